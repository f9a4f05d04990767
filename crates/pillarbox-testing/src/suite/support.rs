//! Short words for what every behaviour does.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use pillarbox_core::admin::Counts;
pub(super) use pillarbox_core::admin::{
    BlockedKey, Ended, Filter, Group, GroupBy, ListQuery, MessageName, OutboxAdmin, Replay, StoredMessage, Tally,
};
pub(super) use pillarbox_core::inbox::{
    ContentHash, InboxOptions, InboxRecord, Mark, Received, Reception, Registered, Sighting,
};
pub(super) use pillarbox_core::instance::{Instance, InstanceRecord, InstanceStore};
pub(super) use pillarbox_core::lease::{Claim, Held, Lease};
pub(super) use pillarbox_core::retention::{PurgeLimit, Retention};
pub(super) use pillarbox_core::store::{Claimed, Enqueue, Placement, Reap, Reaped, Settlement, StoreOptions};
pub(super) use pillarbox_core::{
    AfterDead, Fence, Message, MessageId, OutboxStore, OwnerToken, SchemaAdmin, Settled, State, StoreError, Verdict,
    WorkId, wire,
};
pub(super) use pillarbox_core::{ConsumeIn, InboxState, InboxStore, Incoming, Receipt, WithInbox};

use pillarbox_core::{StoreTransaction, Transactional};

use crate::{Harness, StoreTx};

/// A minute: the smallest step of the tests' clock. What takes real time stays far below it.
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// An hour.
pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// A day.
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);

/// The lease of every claim that names no other.
pub(super) const LEASE: Duration = Duration::from_secs(5 * 60);

/// Defaults, except that claims always look at everything.
pub(super) fn options() -> StoreOptions {
    StoreOptions { rescan_interval: Duration::ZERO, ..StoreOptions::default() }
}

/// As [`options`], with this retention.
pub(super) fn keeping(retention: Retention) -> StoreOptions {
    StoreOptions { retention, ..options() }
}

/// As [`options`], with this limit of lost leases.
pub(super) fn losing(lost_leases_max: u32) -> StoreOptions {
    StoreOptions { lost_leases_max, ..options() }
}

/// Begins a transaction through the store.
pub(super) async fn begin<H: Harness>(h: &H) -> StoreTx<H> {
    h.store().begin().await.expect("a transaction can be begun")
}

/// Settles one message inside a transaction.
pub(super) async fn settle_in<H: Harness>(
    h: &H,
    tx: &mut StoreTx<H>,
    owner: OwnerToken,
    claimed: &Claimed,
    verdict: &Verdict,
) -> Settled {
    let settled = tx.settle(h.store(), owner, &[settlement(claimed, verdict)]).await.expect("a settle succeeds");
    assert_eq!(settled.len(), 1);
    settled[0]
}

pub(super) async fn start<H: Harness>() -> H {
    H::start(options()).await
}

/// A second process on the same tables.
pub(super) async fn another<H: Harness>(h: &H) -> H::Store {
    h.connect(options()).await.expect("a second process can connect")
}

pub(super) fn messages(count: usize) -> Vec<Message> {
    (0..count).map(|number| Message::new("topic", format!("payload {number}"))).collect()
}

pub(super) fn ids(messages: &[Message]) -> Vec<MessageId> {
    messages.iter().map(Message::id).collect()
}

/// Stores new messages; answers their rows in the order of the messages.
pub(super) async fn enqueue(store: &(impl OutboxStore + ?Sized), messages: &[Message]) -> Vec<WorkId> {
    let enqueued = store.enqueue(Enqueue::pending(messages)).await.expect("messages can be stored");
    enqueued.iter().map(|one| one.placement.work_id().expect("the message is new")).collect()
}

/// Stores messages that may be known; answers where they stand.
pub(super) async fn place(store: &(impl OutboxStore + ?Sized), enqueue: Enqueue<'_>) -> Vec<Placement> {
    let enqueued = store.enqueue(enqueue).await.expect("messages can be stored");
    let asked = ids(enqueue.messages());
    assert_eq!(enqueued.iter().map(|one| one.message_id).collect::<Vec<_>>(), asked, "answers in the order asked");
    enqueued.iter().map(|one| one.placement).collect()
}

pub(super) fn claim_of(owner: OwnerToken, limit: u32) -> Claim {
    Claim::new(owner, LEASE, limit).expect("the claim is legal")
}

/// Claims for [`LEASE`].
pub(super) async fn claim(store: &(impl OutboxStore + ?Sized), owner: OwnerToken, limit: u32) -> Vec<Claimed> {
    store.claim(claim_of(owner, limit)).await.expect("a claim succeeds")
}

/// Claims one message that must be there.
pub(super) async fn claim_one(store: &(impl OutboxStore + ?Sized), owner: OwnerToken) -> Claimed {
    claim(store, owner, 1).await.pop().expect("a message is ready")
}

/// Stores one message and claims it.
pub(super) async fn enqueue_and_claim(store: &(impl OutboxStore + ?Sized), owner: OwnerToken) -> (MessageId, Claimed) {
    let message = messages(1);
    enqueue(store, &message).await;
    (message[0].id(), claim_one(store, owner).await)
}

/// Stores messages and fails them all for this reason.
pub(super) async fn bury(store: &(impl OutboxStore + ?Sized), messages: &[Message], reason: &str) -> Vec<WorkId> {
    let owner = OwnerToken::new();
    let rows = enqueue(store, messages).await;
    let claimed = claim(store, owner, 10_000).await;
    assert_eq!(ids_of(&claimed), ids(messages), "only the messages to be buried are ready");
    settle_all(store, owner, &claimed, &fail(reason)).await;
    rows
}

/// The ids of claimed messages, in the order of the answer.
pub(super) fn ids_of(claimed: &[Claimed]) -> Vec<MessageId> {
    claimed.iter().map(|one| one.message.as_ref().expect("the message can be read").id()).collect()
}

pub(super) fn settlement(claimed: &Claimed, verdict: &Verdict) -> Settlement {
    Settlement { held: claimed.held, verdict: verdict.clone() }
}

pub(super) async fn settle(
    store: &(impl OutboxStore + ?Sized),
    owner: OwnerToken,
    claimed: &Claimed,
    verdict: &Verdict,
) -> Settled {
    let settled = store.settle(owner, &[settlement(claimed, verdict)]).await.expect("a settle succeeds");
    assert_eq!(settled.len(), 1);
    settled[0]
}

/// Settles all; each must still be held.
pub(super) async fn settle_all(
    store: &(impl OutboxStore + ?Sized),
    owner: OwnerToken,
    claimed: &[Claimed],
    verdict: &Verdict,
) {
    let settlements: Vec<_> = claimed.iter().map(|one| settlement(one, verdict)).collect();
    let settled = store.settle(owner, &settlements).await.expect("a settle succeeds");
    assert_eq!(settled, vec![Settled::Applied; claimed.len()]);
}

pub(super) fn abandon(delay: Duration, reason: &str) -> Verdict {
    Verdict::Abandon { delay, reason: reason.into() }
}

pub(super) fn release(delay: Duration) -> Verdict {
    Verdict::Release { delay }
}

pub(super) fn fail(reason: &str) -> Verdict {
    Verdict::Fail { reason: reason.into() }
}

/// One of each verdict; those that give back do it at once.
pub(super) fn every_verdict() -> [Verdict; 4] {
    [Verdict::Ack, abandon(Duration::ZERO, "why"), release(Duration::ZERO), fail("why")]
}

pub(super) async fn find(store: &(impl OutboxAdmin + ?Sized), id: MessageId) -> Option<StoredMessage> {
    store.get(MessageName::Message(id)).await.expect("a message can be looked up")
}

pub(super) async fn stored(store: &(impl OutboxAdmin + ?Sized), id: MessageId) -> StoredMessage {
    find(store, id).await.expect("the message is stored")
}

pub(super) async fn state(store: &(impl OutboxAdmin + ?Sized), id: MessageId) -> State {
    stored(store, id).await.state
}

pub(super) async fn list(store: &(impl OutboxAdmin + ?Sized), state: State, filter: Filter) -> Vec<StoredMessage> {
    let query = ListQuery { state, filter, after: None, limit: 10_000 };
    store.list(&query).await.expect("messages can be listed").messages
}

pub(super) async fn count_dead(admin: &(impl OutboxAdmin + ?Sized), filter: &Filter) -> u64 {
    tally(admin, Ended::Dead, filter).await.count
}

pub(super) async fn tally(admin: &(impl OutboxAdmin + ?Sized), ended: Ended, filter: &Filter) -> Tally {
    admin.tally(ended, filter).await.expect("messages can be counted")
}

/// Replays dead messages, from the lowest on.
pub(super) async fn replay(admin: &(impl OutboxAdmin + ?Sized), filter: &Filter, limit: u32) -> u64 {
    admin.replay(&Replay::dead(filter.clone(), limit)).await.expect("a replay succeeds").count
}

pub(super) fn listed_ids(messages: &[StoredMessage]) -> Vec<MessageId> {
    messages.iter().map(|one| one.message.as_ref().expect("the message can be read").id()).collect()
}

pub(super) async fn counts(store: &(impl OutboxAdmin + ?Sized)) -> Counts {
    store.overview().await.expect("messages can be counted").total()
}

pub(super) async fn reap_all(store: &(impl OutboxStore + ?Sized)) -> Reaped {
    store.reap_all(AfterDead::default()).await.expect("a reap succeeds")
}

pub(super) async fn purge(store: &(impl OutboxStore + ?Sized)) -> u64 {
    store.purge(PurgeLimit::default()).await.expect("a purge succeeds")
}

/// The fields that a refusal names; it must be one that no repetition mends.
pub(super) fn refused_fields<T>(answer: Result<T, StoreError>) -> Vec<&'static str> {
    let Err(error) = answer else { panic!("must be refused") };
    assert!(!error.is_transient(), "{error}");
    error.problems().iter().map(pillarbox_core::Problem::field).collect()
}

/// Asserts that two durations are the same but for the time the test itself takes.
#[track_caller]
pub(super) fn assert_near(actual: Duration, expected: Duration) {
    assert!(actual.abs_diff(expected) < MINUTE, "{actual:?} is not about {expected:?}");
}

/// Runs the same work in many tasks at once and collects what they return.
pub(super) async fn at_once<T, F>(tasks: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.expect("no task fails"));
    }
    results
}

/// How often a future is polled before it is dropped: from hardly begun to nearly through.
pub(super) const POLLS: std::ops::RangeInclusive<u32> = 1..=12;

/// Longer than any database needs to finish or undo what was cut short.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Polls the future so often, then drops it.
pub(super) async fn cut_short<T>(polls: u32, future: impl Future<Output = T>) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let ended = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await;
        if ended {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Lets the future come to its nth place of waiting, then drops it there. Unlike [`cut_short`], it meets every such place.
pub(super) async fn cut_at<T>(place: u32, future: impl Future<Output = T>) {
    let _ = come_to(place, pin!(future)).await;
}

/// Lets the future come to its nth place of waiting, or to its end.
pub(super) async fn come_to<T>(place: u32, mut future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    let mut polls = 0;
    poll_fn(|context| {
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Pending if polls < place => Poll::Pending,
            poll => Poll::Ready(poll),
        }
    })
    .await
}

/// Claims and acknowledges, with time passing, until so many messages have been seen: what was cut short may hold some of
/// them for a lease, no longer.
pub(super) async fn recover<H: Harness>(h: &H, count: usize) {
    let owner = OwnerToken::new();
    let begun = Instant::now();
    let mut seen = 0;
    while seen < count {
        assert!(begun.elapsed() < PATIENCE, "{} of {count} messages are stuck", count - seen);
        h.advance(LEASE).await;
        let claimed = claim(h.store(), owner, 1_000).await;
        seen += claimed.len();
        settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    }
    assert_eq!(seen, count);
}

pub(super) fn receipt(id: &str) -> Receipt {
    Receipt::new("source", id)
}

/// A receipt with a hash of this content.
pub(super) fn hashed(id: &str, content: &str) -> Receipt {
    receipt(id).hash(ContentHash::new("sha256", content.as_bytes()))
}

pub(super) fn incoming(id: &str, payload: &str) -> Incoming {
    Incoming::new(receipt(id), Message::new("topic", payload.to_owned()))
}

/// Asks about a delivery.
pub(super) async fn see(inbox: &impl InboxStore, receipt: &Receipt) -> Sighting {
    inbox.already_processed(receipt).await.expect("a delivery can be looked up")
}

/// Receives one message.
pub(super) async fn receive(inbox: &impl InboxStore, incoming: Incoming) -> Received {
    let mut received = inbox.receive(&[incoming]).await.expect("a message can be received");
    assert_eq!(received.len(), 1);
    received.remove(0)
}

/// Marks a message, and answers where it stood.
pub(super) async fn mark(inbox: &impl InboxStore, receipt: &Receipt, mark: Mark) -> InboxState {
    inbox.mark(receipt, mark).await.expect("a message can be marked").before.unwrap_or(InboxState::Seen)
}

/// What is known of a message of the usual source.
pub(super) async fn record(inbox: &impl InboxStore, id: &str) -> InboxRecord {
    let found = inbox.get("source", id).await.expect("a message can be looked up");
    found.expect("the message is known")
}

/// Where a message stands that the ledger knows.
pub(super) async fn inbox_state(inbox: &impl InboxStore, id: &str) -> InboxState {
    record(inbox, id).await.state
}

/// Claims one message of the inbox's queue and settles it.
pub(super) async fn handle(inbox: &impl InboxStore, verdict: &Verdict) -> Claimed {
    let owner = OwnerToken::new();
    let claimed = claim_one(&*inbox.queue(), owner).await;
    assert_eq!(settle(&*inbox.queue(), owner, &claimed, verdict).await, Settled::Applied);
    claimed
}
