//! Another delivery of a message that is being handled.

use pillarbox::WorkBatch;

use super::coordinator::coordinate;
use super::support::*;
use crate::Harness;
use crate::harness::Inbox;

/// A message that was received and claimed, and what holds it.
async fn running<H: Harness>(inbox: &Inbox<H>, id: &str, owner: OwnerToken) -> Claimed {
    receive(inbox, Incoming::new(hashed(id, "old"), Message::new("topic", "old").header("of", "old"))).await;
    claim_one(&*inbox.queue(), owner).await
}

/// Another content for it.
fn new(id: &str) -> Incoming {
    Incoming::new(hashed(id, "new"), Message::new("other", "new").header("of", "new"))
}

/// Topic, payload, header and attempts of the message that is claimed next.
async fn next<H: Harness>(inbox: &Inbox<H>) -> (String, String, Option<String>, u32) {
    let claimed = claim_one(&*inbox.queue(), OwnerToken::new()).await;
    let message = claimed.message.expect("the message can be read");
    let payload = String::from_utf8_lossy(message.payload()).into_owned();
    (message.topic().to_owned(), payload, message.get_headers().get("of").cloned(), claimed.attempts)
}

fn of_new(attempts: u32) -> (String, String, Option<String>, u32) {
    ("other".into(), "new".into(), Some("new".into()), attempts)
}

/// A delivery of a message that is being handled changes its content and not its lease: the running attempt is renewed and
/// ended as before, and whoever gets the message next gets the new content. IBX-026, IBX-029.
pub async fn a_running_attempt_keeps_its_lease_and_the_next_gets_the_new_content<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let queue = inbox.queue();
    let owner = OwnerToken::new();
    let zero = std::time::Duration::ZERO;
    for (id, end, attempts) in [
        ("1", Some(abandon(zero, "busy")), 2),
        ("2", Some(release(zero)), 1),
        ("3", Some(abandon(HOUR, "busy")), 2),
        ("4", None, 2),
    ] {
        let held = running::<H>(&inbox, id, owner).await;
        let before = stored(&*inbox.admin(), record(&inbox, id).await.queue_id).await;
        let again = receive(&inbox, new(id)).await;
        assert_eq!((again.before, again.outcome), (Some(InboxState::Processing), Reception::Revised));
        assert!(again.is_mismatch);
        let after = stored(&*inbox.admin(), again.message_id).await;
        let lease = |one: &StoredMessage| (one.work_id, one.state, one.owner, one.locked_until, one.attempts);
        assert_eq!((lease(&after), after.created_at), (lease(&before), before.created_at));
        let renewed = queue.renew(owner, &[held.held], LEASE).await;
        assert_eq!(renewed.expect("a lease can be renewed"), [Settled::Applied]);
        match end {
            Some(verdict) => assert_eq!(settle(&*queue, owner, &held, &verdict).await, Settled::Applied),
            None => h.advance(LEASE).await,
        }
        h.advance(HOUR).await;
        assert_eq!(next::<H>(&inbox).await, of_new(attempts), "{id}");
        let record = record(&inbox, id).await;
        assert_eq!((record.topic.as_deref(), record.mismatch_count), (Some("other"), 1));
        mark(&inbox, &receipt(id), Mark::Processed).await;
    }
}

/// The verdict of a running attempt stands, also when another content came meanwhile: acknowledged is done, failed is dead.
/// IBX-028, IBX-029.
pub async fn a_verdict_ends_a_message_whatever_came_meanwhile<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let owner = OwnerToken::new();
    for (id, verdict, state) in [("1", Verdict::Ack, InboxState::Done), ("2", fail("poison"), InboxState::Dead)] {
        let held = running::<H>(&inbox, id, owner).await;
        assert_eq!(receive(&inbox, new(id)).await.outcome, Reception::Revised);
        assert_eq!(settle(&*inbox.queue(), owner, &held, &verdict).await, Settled::Applied);
        assert_eq!(inbox_state(&inbox, id).await, state);
    }
    assert!(claim(&*inbox.queue(), owner, 10).await.is_empty());
    assert_eq!(
        inbox.admin().replay(&Replay::dead(Filter::all(), 10)).await.expect("a dead message can be replayed").count,
        1
    );
    assert_eq!(next::<H>(&inbox).await, of_new(1), "what is replayed is the new content");
}

/// When the lease is lost, the message waits for the due time that came with the new content. IBX-029.
pub async fn a_new_due_time_is_waited_for_after_a_lost_lease<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    running::<H>(&inbox, "1", OwnerToken::new()).await;
    let later = Incoming::new(hashed("1", "new"), new("1").message().clone().delay(HOUR));
    assert_eq!(receive(&inbox, later).await.outcome, Reception::Revised);
    assert!(record(&inbox, "1").await.due_at.is_some());
    h.advance(LEASE).await;
    for _ in 0..2 {
        assert!(claim(&*inbox.queue(), OwnerToken::new(), 10).await.is_empty(), "it is not due");
        reap_all(&*inbox.queue()).await;
    }
    h.advance(HOUR).await;
    assert_eq!(next::<H>(&inbox).await, of_new(2));
}

/// The running attempt holds back later messages of its key, also when another content with another key came. IBX-029.
pub async fn a_running_attempt_keeps_its_key<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let keyed = |id, key| Incoming::new(receipt(id), Message::new("topic", id).key(key));
    receive(&inbox, keyed("1", "key")).await;
    receive(&inbox, keyed("2", "key")).await;
    let owner = OwnerToken::new();
    let held = claim_one(&*inbox.queue(), owner).await;
    for key in ["another", ""] {
        assert_eq!(receive(&inbox, keyed("1", key)).await.outcome, Reception::Revised);
        assert!(claim(&*inbox.queue(), owner, 10).await.is_empty(), "the key is held");
    }
    settle(&*inbox.queue(), owner, &held, &Verdict::Ack).await;
    let rest = claim_one(&*inbox.queue(), owner).await.message.expect("the message can be read");
    assert_eq!(&rest.payload()[..], b"2");
}

/// A lease that ran out protects nothing: the message starts anew. IBX-029.
pub async fn a_lease_that_ran_out_protects_nothing<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let owner = OwnerToken::new();
    let held = running::<H>(&inbox, "1", owner).await;
    h.advance(LEASE).await;
    assert_eq!(receive(&inbox, new("1")).await.outcome, Reception::Replaced);
    assert_eq!(settle(&*inbox.queue(), owner, &held, &Verdict::Ack).await, Settled::LeaseLost);
    assert_eq!(next::<H>(&inbox).await, of_new(1));
}

/// A delivery inside a transaction that is rolled back leaves content, hash and lease as they were. IBX-029.
pub async fn a_delivery_that_is_rolled_back_changes_no_running_attempt<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let owner = OwnerToken::new();
    let held = running::<H>(&inbox, "1", owner).await;
    let (outbox, coordinator) = coordinate(&h).await;
    let mut tx = outbox.begin().await.expect("a transaction can be begun");
    let done = coordinator.process_in(&mut tx, WorkBatch::new(owner).receive(new("1"))).await;
    assert_eq!(done.expect("a batch can be done").received[0].outcome, Reception::Revised);
    tx.rollback().await.expect("it can be rolled back");
    let verdict = abandon(std::time::Duration::ZERO, "busy");
    assert_eq!(settle(&*inbox.queue(), owner, &held, &verdict).await, Settled::Applied);
    assert_eq!(next::<H>(&inbox).await, ("topic".into(), "old".into(), Some("old".into()), 2));
    assert_eq!(record(&inbox, "1").await.hash, Some(ContentHash::new("sha256", "old")));
}

/// The hash on record is that of the content in the queue, none if that came without; once the message is done it stays.
/// IBX-007, IBX-029.
pub async fn the_hash_on_record_is_that_of_the_queued_content<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let with = |content| ContentHash::new("sha256", content);
    see(&inbox, &hashed("1", "asked")).await;
    let deliver = async |hash: Option<&'static str>| {
        let one = hash.map_or_else(|| receipt("1"), |hash| hashed("1", hash));
        receive(&inbox, Incoming::new(one, Message::new("topic", ""))).await;
        record(&inbox, "1").await.hash
    };
    assert_eq!(deliver(Some("first")).await, Some(with("first")), "it was seen only");
    assert_eq!(deliver(Some("waiting")).await, Some(with("waiting")));
    assert_eq!(deliver(None).await, None);
    claim_one(&*inbox.queue(), OwnerToken::new()).await;
    assert_eq!(deliver(Some("running")).await, Some(with("running")));
    mark(&inbox, &receipt("1"), Mark::Dead("why".into())).await;
    assert_eq!(deliver(Some("dead")).await, Some(with("dead")));
    handle(&inbox, &Verdict::Ack).await;
    assert_eq!(deliver(Some("done")).await, Some(with("dead")));
    assert_eq!(record(&inbox, "1").await.mismatch_count, 4);
}

/// Deliveries at the same time as the verdicts of the running attempts, many times over: none fails, each message is handed
/// out once more, and always with the new content. IBX-029, IBX-104, IBX-105.
pub async fn deliveries_and_verdicts_at_once_lose_no_content<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let owner = OwnerToken::new();
    for round in 0..20 {
        let names: Vec<_> = (0..5).map(|number| format!("{round}/{}", 9 - number)).collect();
        let batch = |content| names.iter().map(|name| incoming(name, content)).collect::<Vec<_>>();
        inbox.receive(&batch("old")).await.expect("a batch can be received");
        let held = claim(&*inbox.queue(), owner, 10).await;
        let back: Vec<_> =
            held.iter().map(|one| settlement(one, &abandon(std::time::Duration::ZERO, "busy"))).collect();
        let (queue, delivered) = (inbox.queue(), batch("new"));
        let verdicts = async { queue.settle(owner, &back).await.expect("a settle succeeds") };
        let deliveries = async { inbox.receive(&delivered).await.expect("a batch can be received") };
        let (settled, received) = tokio::join!(verdicts, deliveries);
        assert_eq!(settled, [Settled::Applied; 5], "no delivery takes a lease away");
        assert!(received.iter().all(|one| one.outcome.takes_row()));
        let again = claim(&*inbox.queue(), owner, 10).await;
        let payloads: Vec<_> =
            again.iter().map(|one| one.message.as_ref().expect("it can be read").payload()).collect();
        assert_eq!(payloads, ["new"; 5].map(str::as_bytes), "round {round}");
        settle_all(&*inbox.queue(), owner, &again, &Verdict::Ack).await;
    }
}
