//! The seam that every backend fills. A backend binds, runs and reads SQL; it decides nothing.
//!
//! The docs of each method are its contract; `pillarbox-testing` holds the behaviours that prove it.
//!
//! Rules that hold for all methods:
//!
//! - Only the database's clock decides; durations cross the wire, never instants of our own.
//! - Each call is atomic: it takes effect as a whole or not at all.
//! - Arguments are checked before any I/O.
//! - Deadlocks and serialization failures are retried inside, [`CONFLICT_RETRIES_MAX`] times.
//! - Many instances may call everything at once, on one database.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::error::StoreError;
use crate::floor::Freed;
use crate::id::{OwnerToken, StoreId, WorkId};
use crate::instance::InstanceStore;
use crate::lease::{Claim, Held};
use crate::message::{Limits, Message};
use crate::naming::Naming;
use crate::order::AfterDead;
use crate::outbox::{Settled, Verdict};
use crate::pause::PauseStore;
use crate::problem::{Invalid, Problem};
use crate::progress::ProgressStore;
use crate::retention::{PurgeLimit, Retention};
use crate::retry::LOST_LEASES_MAX;
use crate::schema::SchemaPolicy;
use crate::transaction::Isolation;
use crate::wake::Wakeups;

mod enqueue;

pub use enqueue::{Enqueue, EnqueueCopy, Enqueued, Placement, enqueue_answers};

/// How often a store repeats a call that lost a deadlock or a serialization race before it reports a conflict.
pub const CONFLICT_RETRIES_MAX: u32 = 8;

/// Settlements, or leases to renew, in one call at the most.
pub const SETTLE_MAX: usize = 10_000;

/// A store's half of the outbox: claim, settle, renew, reap, purge, and enqueue without a transaction of one's own.
#[async_trait]
pub trait OutboxStore: fmt::Debug + Send + Sync + 'static {
    /// The name of this store in logs and metrics.
    fn id(&self) -> &StoreId;

    /// The settings it was opened with.
    fn options(&self) -> &StoreOptions;

    /// Enqueues in a transaction of the store's own and commits it: all messages or none.
    ///
    /// The caller's own transaction is served by [`OpenTransaction`] instead. An empty batch is a no-op.
    /// Answers come in the order of the messages.
    async fn enqueue(&self, enqueue: Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError>;

    /// Takes up to `limit` messages under a lease and hands them out whole.
    ///
    /// - A message is claimable when it is due, has not expired, is not done or dead, and is not under a running
    ///   lease. A lease that ran out does not protect it; such a claim counts as one more lost lease, and past the
    ///   limit of lost leases it is left for [`reap`](Self::reap) to bury.
    /// - Those that waited for their due time or a retry come first, then the others, each in the order of the
    ///   database's sequence. The answer is sorted by [`WorkId`].
    /// - Messages of one key are handed out in order, as [`order`](crate::order) says: none while another one of its key is
    ///   held, and none past an earlier one. Several of one key in one answer are to be handled one after the other.
    /// - Of the messages with a key only those of the partitions that the claim [serves](Claim::serving).
    /// - Of the topics that the claim [leaves out](Claim::leaving_out) none, and nothing that comes behind one of those in its
    ///   key; but those that waited, whatever their topic.
    /// - Each claimed message has one attempt more, counted now, so that a message that kills its worker is counted too.
    /// - No message is handed out twice, however many claim at once; a claim never waits for another.
    /// - None ready: an empty answer, not an error.
    async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, StoreError>;

    /// Like [`claim`](Self::claim), for callers who need no more than the leases.
    async fn claim_ids(&self, claim: Claim) -> Result<Vec<Held>, StoreError> {
        Ok(self.claim(claim).await?.iter().map(|claimed| claimed.held).collect())
    }

    /// Applies many verdicts in one round trip. Answers come in the order of the settlements.
    ///
    /// A settlement takes effect when the message is still under the very claim that the settlement names: same owner,
    /// same fence, also when the lease ran out but nobody took over. Everything else (unknown, settled before, taken over,
    /// named twice in one call) answers [`Settled::LeaseLost`] and changes nothing. An empty call is a no-op.
    ///
    /// - Ack: done, by the retention. Fail: dead, with the reason.
    /// - Abandon: pending, due after the delay, reason stored, attempt spent.
    /// - Release: pending, due after the delay, attempt given back.
    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError>;

    /// Settles what one batch finished and claims the next one, in a single round trip and transaction.
    ///
    /// Means the same as [`settle`](Self::settle) for the owner of the claim, followed by [`claim`](Self::claim), except
    /// that messages given back by this very call may be missing from its claim.
    async fn exchange(&self, settlements: &[Settlement], claim: Claim) -> Result<Exchanged, StoreError>;

    /// Makes leases last for `lease` from the database's now. Guarded and answered like [`settle`](Self::settle).
    async fn renew(&self, owner: OwnerToken, held: &[Held], lease: Duration) -> Result<Vec<Settled>, StoreError>;

    /// Looks at one window of messages, in the order of the sequence, and puts right what nobody else will.
    ///
    /// - A lease that ran out is removed and counted as lost; past the limit the message is dead.
    /// - A message past its `expires_at` that nobody holds is dead with [`REASON_EXPIRED`](crate::outbox::REASON_EXPIRED).
    /// - A message that is not due yet is moved out of the claims' way.
    /// - Under [`AfterDead::Park`], a message whose key has an earlier dead one is dead with
    ///   [`REASON_PARKED`](crate::order::REASON_PARKED).
    ///
    /// Safe to run on every instance at once; rows that others work on are passed over. Claims do not depend on it.
    async fn reap(&self, reap: Reap) -> Result<Reaped, StoreError>;

    /// Reaps window after window to the end of the queue.
    async fn reap_all(&self, after_dead: AfterDead) -> Result<Reaped, StoreError> {
        let mut total = Reaped::default();
        let mut reap = Reap { after_dead, ..Reap::default() };
        loop {
            let reaped = self.reap(reap).await?;
            total.released += reaped.released;
            total.lost += reaped.lost;
            total.expired += reaped.expired;
            total.parked += reaped.parked;
            match reaped.next {
                Some(next) => reap.after = Some(next),
                None => return Ok(total),
            }
        }
    }

    /// Removes up to `limit` done messages that are past the retention; answers how many.
    ///
    /// Never touches pending, leased or dead ones. Safe to run on every instance at once.
    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError>;

    /// What the database's clock shows, for an alarm when it was set. Decides nothing.
    ///
    /// A store whose clock does not go by itself answers none.
    async fn clock(&self) -> Result<Option<SystemTime>, StoreError> {
        Ok(None)
    }

    /// How long the oldest message has waited that could be claimed now, by the database's clock; none when there is none.
    ///
    /// For a gauge. Reads the queue once, as reaping all of it does. A store that cannot tell answers none.
    async fn oldest_pending(&self) -> Result<Option<Duration>, StoreError> {
        Ok(None)
    }

    /// Another handle on the same tables, with few connections of its own that belong to the caller's async runtime.
    ///
    /// To be called on the runtime that will use it. Connects when it is first used; deploys and checks nothing.
    /// Leases are renewed through it from a thread of their own, so that a handler which blocks every thread of the
    /// program's runtime cannot starve them.
    async fn detached(&self) -> Result<Arc<dyn OutboxStore>, StoreError>;

    /// Connections to a server that this handle holds open, the idle ones among them. Its clones have the same ones, and so has
    /// an inbox beside it. A store without a server has none.
    fn connection_count(&self) -> usize {
        0
    }

    /// Closes one connection that nobody uses; whether there was one. The next call may have to connect again.
    async fn close_idle(&self) -> bool {
        false
    }

    /// Tells every process that listens on this store that messages wait. Runs outside any transaction of the user's.
    ///
    /// A store without wake-ups does nothing.
    async fn wake_others(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Subscribes to [`wake_others`](Self::wake_others) of every process, this one included.
    ///
    /// A store without wake-ups answers none; its users poll.
    async fn listen(&self) -> Result<Option<Box<dyn Wakeups>>, StoreError> {
        Ok(None)
    }

    /// The list of the instances that serve this queue. Looks at nothing: its table is deployed or checked by whoever uses it,
    /// through [`SchemaAdmin::apply_policy`](crate::SchemaAdmin::apply_policy).
    ///
    /// A store without such a list answers none.
    fn instances(&self) -> Option<Arc<dyn InstanceStore>> {
        None
    }

    /// The routes of this queue that an operator paused. As with [`instances`](Self::instances), its table is deployed or checked
    /// by whoever uses it, and a store without one answers none.
    fn pauses(&self) -> Option<Arc<dyn PauseStore>> {
        None
    }

    /// How far receptors and perspectives have come, beside this queue. As with [`instances`](Self::instances), its tables are
    /// deployed or checked by whoever uses them, and a store without them answers none.
    fn progress(&self) -> Option<Arc<dyn ProgressStore>> {
        None
    }
}

/// A future that a seam returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A connection inside an open transaction of the caller's own, on which messages can be enqueued.
///
/// Implemented by every backend for `&mut` transaction and `&mut` connection; a connection on which no transaction is
/// open is refused with an error. Never implemented for pools.
#[diagnostic::on_unimplemented(
    message = "messages are enqueued on a transaction of your own, and `{Self}` is not one",
    label = "expected `&mut tx`: a transaction begun on the store's database",
    note = "a pool commits every statement by itself, so the message would survive a rollback of the change it tells about",
    note = "begin one with `let mut tx = pool.begin().await?` and pass `&mut tx`, or call `enqueue` without a transaction"
)]
pub trait OpenTransaction<S: ?Sized>: Send {
    /// Inserts the messages through this connection, in one round trip. Never commits, never rolls back.
    ///
    /// A statement that was not prepared on this connection yet costs another one, and so does, on MariaDB, a message that turns out
    /// to be known. A batch of more than a statement may hold is cut.
    ///
    /// The messages have been checked against the store's limits. A message whose id is known already, waiting, done
    /// or dead, is not stored again and answers [`Placement::Duplicate`].
    fn enqueue_on<'a>(self, store: &'a S, enqueue: Enqueue<'a>) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>
    where
        Self: 'a;
}

/// Enqueues inside the caller's own transaction; every store has it.
pub trait EnqueueIn: OutboxStore {
    /// Checks the messages, then stores them through `tx`, in one round trip. Never commits, never rolls back.
    ///
    /// A problem is reported before any I/O, so that it cannot poison the caller's transaction.
    fn enqueue_in<'a, T>(&'a self, tx: T, enqueue: Enqueue<'a>) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>
    where
        T: OpenTransaction<Self> + 'a,
    {
        if let Err(invalid) = self.options().limits.check(enqueue.messages()) {
            return Box::pin(std::future::ready(Err(invalid.into())));
        }
        if enqueue.messages().is_empty() {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        tx.enqueue_on(self, enqueue)
    }
}

impl<S: OutboxStore> EnqueueIn for S {}

/// A message under a fresh lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// What settling and renewing need.
    pub held: Held,
    /// Attempts, this one included.
    pub attempts: u32,
    /// Leases of it that ran out.
    pub lost_lease_count: u32,
    /// When it was stored, by the database's clock.
    pub created_at: SystemTime,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// The message, or why the row cannot be read as one.
    pub message: Result<Message, Undecodable>,
}

impl Claimed {
    /// Whether it is a message with a key.
    pub fn has_key(&self) -> bool {
        self.message.as_ref().is_ok_and(|message| message.get_key().is_some())
    }
}

/// Why a row cannot be read as a message. Somebody else wrote it; it is given up, not retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// The column.
    pub column: &'static str,
    /// What is wrong with it, without its content.
    pub complaint: String,
}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As of a payload that a handler cannot read: who looks for one finds both.
        write!(f, "decode: column {} {}", self.column, self.complaint)
    }
}

impl std::error::Error for Undecodable {}

/// A verdict for a message that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Under which claim.
    pub held: Held,
    /// What becomes of it.
    pub verdict: Verdict,
}

impl Settlement {
    /// The message is done.
    pub fn ack(held: Held) -> Self {
        Self { held, verdict: Verdict::Ack }
    }
}

/// The answer to an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// One answer per settlement, in their order.
    pub settled: Vec<Settled>,
    /// The next batch.
    pub claimed: Vec<Claimed>,
}

/// One window of a reap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reap {
    /// Where the last window ended; nothing means from the start.
    pub after: Option<WorkId>,
    /// Rows that are looked at, at the most.
    pub window: u32,
    /// What a dead message does to the later ones of its key.
    pub after_dead: AfterDead,
}

impl Reap {
    /// The largest window: longer ones hold locks too long.
    pub const WINDOW_MAX: u32 = 10_000;

    /// Checks the window.
    pub fn validate(&self) -> Result<(), Invalid> {
        if (1..=Self::WINDOW_MAX).contains(&self.window) {
            return Ok(());
        }
        let complaint = format!("must be 1 to {}, is {}", Self::WINDOW_MAX, self.window);
        let missed = if self.window == 0 { 1 } else { u64::from(Self::WINDOW_MAX) };
        Err(Problem::out_of_range("window", missed, complaint).into())
    }
}

impl Default for Reap {
    fn default() -> Self {
        Self { after: None, window: Self::WINDOW_MAX, after_dead: AfterDead::default() }
    }
}

/// What a reap found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Messages whose lease ran out and that are claimable again.
    pub released: u64,
    /// Messages that are dead now because their leases ran out too often.
    pub lost: u64,
    /// Messages that are dead now because they expired.
    pub expired: u64,
    /// Messages that are dead now because an earlier one of their key is.
    pub parked: u64,
    /// Where the next window starts; nothing at the end of the queue.
    pub next: Option<WorkId>,
}

/// Settings that all backends share.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The store's name; by default made from the database's address, without secrets.
    pub store_id: Option<StoreId>,
    /// Names of schema and tables.
    pub naming: Naming,
    /// What messages may measure.
    pub limits: Limits,
    /// What becomes of done messages.
    pub retention: Retention,
    /// Leases of one message that may run out before it is dead.
    pub lost_leases_max: u32,
    /// Whether the store deploys its tables, checks them or assumes them.
    pub schema: SchemaPolicy,
    /// How long a claim may start where the last one ended before it looks at everything again. Zero: always everything.
    ///
    /// Skipping what was claimed keeps claims fast while somebody holds an old snapshot open. The price: a message that
    /// another instance gave back, or whose lease ran out, may wait this much longer. With the default of a second it is taken
    /// over within lease, poll interval and a second, also by a process that is busy all the time.
    pub rescan_interval: Duration,
    /// The isolation level of transactions that the store begins for its user.
    pub isolation: Isolation,
}

impl StoreOptions {
    /// Checks everything before a connection is opened.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.limits.validate()
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            store_id: None,
            naming: Naming::default(),
            limits: Limits::default(),
            retention: Retention::default(),
            lost_leases_max: LOST_LEASES_MAX,
            schema: SchemaPolicy::default(),
            rescan_interval: Duration::from_secs(1),
            isolation: Isolation::default(),
        }
    }
}

/// Cuts a batch where one statement would hold more than so many bytes or messages; most batches stay whole.
///
/// A message that is larger than the limit goes alone.
pub fn chunks<M: Borrow<Message>>(messages: &[M], bytes_max: usize, count_max: usize) -> Vec<&[M]> {
    let mut chunks = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, message) in messages.iter().enumerate() {
        let weight = message.borrow().weight();
        if index > start && (bytes + weight > bytes_max || index - start == count_max) {
            chunks.push(&messages[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += weight;
    }
    chunks.push(&messages[start..]);
    chunks
}

/// Guarded calls, prepared for the database: sorted by row, so that two settlers cannot deadlock, each row named once.
#[derive(Debug)]
pub struct GuardPlan<'a, T> {
    asked: Vec<Held>,
    rows: Vec<&'a T>,
}

impl<'a, T> GuardPlan<'a, T> {
    /// Sorts and thins; of two entries for one row the first counts.
    pub fn new(entries: &'a [T], held: impl Fn(&T) -> Held) -> Result<Self, Invalid> {
        if entries.len() > SETTLE_MAX {
            let complaint = format!("must be at most {SETTLE_MAX}, are {}", entries.len());
            return Err(Problem::out_of_range("settlements", SETTLE_MAX as u64, complaint).into());
        }
        let mut rows: Vec<&T> = entries.iter().collect();
        rows.sort_by_key(|entry| held(entry).work_id);
        rows.dedup_by_key(|entry| held(entry).work_id);
        Ok(Self { asked: entries.iter().map(held).collect(), rows })
    }

    /// What goes to the database.
    pub fn rows(&self) -> &[&'a T] {
        &self.rows
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// One answer per entry, from the rows that changed, or from nothing when all did.
    pub fn answers_or_all(&self, applied: Option<impl IntoIterator<Item = WorkId>>) -> Vec<Settled> {
        match applied {
            Some(applied) => self.answers(applied),
            None if self.rows.len() == self.asked.len() => vec![Settled::Applied; self.asked.len()],
            None => self.answers(self.asked.iter().map(|held| held.work_id)),
        }
    }

    /// One answer per entry, from the rows that changed.
    pub fn answers(&self, applied: impl IntoIterator<Item = WorkId>) -> Vec<Settled> {
        let mut applied: HashSet<WorkId> = applied.into_iter().collect();
        // Removing as we answer: the second entry for a row finds it gone.
        self.asked
            .iter()
            .map(|held| if applied.remove(&held.work_id) { Settled::Applied } else { Settled::LeaseLost })
            .collect()
    }
}

impl GuardPlan<'_, Settlement> {
    /// What can be claimed when these verdicts are applied.
    pub fn freed(&self) -> Freed {
        let is_back = |verdict: &Verdict| match verdict {
            Verdict::Ack | Verdict::Fail { .. } => false,
            // Databases count microseconds.
            Verdict::Abandon { .. } | Verdict::Release { .. } => verdict.delay() < Duration::from_micros(1),
        };
        let back = self.rows.iter().find(|settlement| is_back(&settlement.verdict));
        let row = |settlement: &&Settlement| settlement.held.work_id;
        Freed { back: back.map(row), settled: self.rows.first().map(row) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Fence;

    fn held(id: i64) -> Held {
        Held { work_id: WorkId::from_i64(id), fence: Fence::from_i64(1) }
    }

    #[test]
    fn settlements_are_sorted_and_named_once_and_answered_in_the_callers_order() {
        let asked = [3, 1, 3, 2].map(|id| Settlement::ack(held(id)));
        let plan = GuardPlan::new(&asked, |settlement| settlement.held).unwrap();
        let sent: Vec<_> = plan.rows().iter().map(|s| s.held.work_id.as_i64()).collect();
        assert_eq!(sent, [1, 2, 3]);
        use Settled::{Applied, LeaseLost};
        assert_eq!(plan.answers([1, 3].map(WorkId::from_i64)), [Applied, Applied, LeaseLost, LeaseLost]);
    }

    #[test]
    fn what_is_given_back_at_once_is_known() {
        let given_back = |verdicts: [Verdict; 2]| {
            let [first, second] = verdicts;
            let asked = [(2, first), (1, second)].map(|(id, verdict)| Settlement { held: held(id), verdict });
            GuardPlan::new(&asked, |settlement| settlement.held).unwrap().freed().back.map(WorkId::as_i64)
        };
        let abandon = |delay| Verdict::Abandon { delay, reason: String::new() };
        let release = Verdict::Release { delay: Duration::ZERO };
        assert_eq!(given_back([Verdict::Ack, Verdict::Fail { reason: String::new() }]), None);
        assert_eq!(given_back([abandon(Duration::from_micros(1)), Verdict::Ack]), None);
        assert_eq!(given_back([abandon(Duration::from_nanos(999)), Verdict::Ack]), Some(2));
        assert_eq!(given_back([abandon(Duration::ZERO), release]), Some(1));
    }

    #[test]
    fn a_settle_call_is_bounded() {
        let asked = vec![held(1); SETTLE_MAX + 1];
        let refused = GuardPlan::new(&asked, |held| *held).unwrap_err();
        assert_eq!(refused.problems()[0].limit(), Some(SETTLE_MAX as u64));
    }

    #[test]
    fn batches_are_cut_by_bytes_and_by_count() {
        let lengths = |messages: &[Message], bytes_max, count_max| -> Vec<usize> {
            chunks(messages, bytes_max, count_max).iter().map(|chunk| chunk.len()).collect()
        };
        let small = vec![Message::new("t", ""); 11];
        assert_eq!(lengths(&small, usize::MAX, 10), [10, 1]);
        let large = vec![Message::new("t", vec![0; 1000]); 5];
        assert_eq!(lengths(&large, 2500, usize::MAX), [2, 2, 1]);
        assert_eq!(lengths(&large, 1, usize::MAX), [1; 5]);
    }

    #[test]
    fn a_message_named_twice_in_a_batch_is_stored_once() {
        let message = Message::new("t", "");
        let batch = [message.clone(), message.clone()];
        let place = Placement::Pending(WorkId::from_i64(1));
        let answers = enqueue_answers(&Enqueue::pending(&batch), [(message.id(), place)]);
        let places: Vec<_> = answers.iter().map(|enqueued| enqueued.placement).collect();
        assert_eq!(places, [place, Placement::Duplicate]);
        // A database that answers for every row it was given says it twice.
        let answers = enqueue_answers(&Enqueue::pending(&batch), [(message.id(), place), (message.id(), place)]);
        assert_eq!(answers[1].placement, Placement::Duplicate);
    }
}
