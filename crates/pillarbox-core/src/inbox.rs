//! The inbox: each message that comes in takes effect once.
//!
//! A **ledger** remembers every (source, message id), beside a **queue** that is a second set of the outbox's tables: what
//! is claimed, settled, reaped and administered there works as in the outbox, through [`InboxStore::queue`].
//!
//! Rules that hold for all methods are those of [`store`](crate::store): the database's clock decides, each call is atomic,
//! arguments are checked before any I/O, deadlocks are retried inside, many instances may call everything at once.
//!
//! Names are compared byte for byte on every database. A delivery whose content hash contradicts the one on record (same
//! algorithm, other bytes) is counted, and the answer says so; the call succeeds. The first hash stays on record until
//! another content is queued, which brings its own.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::admin::OutboxAdmin;
use crate::error::StoreError;
use crate::id::{MessageId, StoreId};
use crate::lease::Lease;
use crate::naming::Naming;
use crate::problem::{Invalid, Problem};
use crate::retention::{PurgeLimit, Retention};
use crate::schema::{SchemaAdmin, SchemaPolicy};
use crate::store::{BoxFuture, OutboxStore, StoreOptions};
use crate::transaction::Transactional;

mod receipt;
mod state;

pub use receipt::{
    ALGORITHM_CHARS_MAX, ContentHash, HASH_BYTES_MAX, Incoming, MESSAGE_ID_HEADER, NAME_CHARS_MAX, Receipt,
    SOURCE_HEADER,
};
pub use state::{InboxState, Mark, Marking, Place, Reception, Registered, Standing, decide, decide_mark, state_of};

/// How long done messages are remembered when nothing else is said.
pub const REMEMBER_DEFAULT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Records that one call lists at the most.
pub const RECORDS_MAX: u32 = 10_000;

/// A store's half of the inbox: the ledger, and the queue behind it.
#[async_trait]
pub trait InboxStore: std::fmt::Debug + Send + Sync + 'static {
    /// The name of this inbox in logs and metrics.
    fn id(&self) -> &StoreId;

    /// The queue of received messages: claim, settle, renew, reap.
    ///
    /// A message in it has the id of [`Received::message_id`] and two headers that name its receipt. Acknowledging it
    /// makes the receipt done, failing it makes it dead.
    fn queue(&self) -> std::sync::Arc<dyn OutboxStore>;

    /// What an operator can ask and do about the queue: counts, dead messages, replay.
    ///
    /// A dead message that is deleted there counts as done from then on: it was given up for good.
    fn admin(&self) -> std::sync::Arc<dyn OutboxAdmin>;

    /// Looks whether a message has taken effect, and remembers that it was asked about: one atomic upsert.
    ///
    /// An unknown one becomes [`Seen`](InboxState::Seen); of any other, only the time it was last seen moves on.
    async fn already_processed(&self, receipt: &Receipt) -> Result<Sighting, StoreError>;

    /// Marks a message, known or not, and answers what it found before.
    ///
    /// - What is done stays done, whatever it is marked.
    /// - Processing: changes nothing where the queue has the message, because the queue tells then.
    /// - Processed: takes the message out of the queue, also from under a running lease, whose settlement then answers
    ///   `LeaseLost`.
    /// - Dead: a queued message lies dead in the queue, with its payload and this reason, and can be replayed.
    async fn mark(&self, receipt: &Receipt, mark: Mark) -> Result<Sighting, StoreError>;

    /// Puts messages into the queue, in one transaction of the store's own: all or none. Answers come in their order.
    ///
    /// - Unknown or not queued yet: queued.
    /// - Queued and waiting, or dead: topic, payload and due time are replaced, no attempts, claimable again.
    /// - Under a running lease: topic, payload and due time are replaced for the next attempt. The running one keeps its
    ///   lease, and its verdict stands: an acknowledged message is done, whatever came meanwhile. Key and priority stay, so
    ///   that no later message of the key overtakes the attempt.
    /// - Done: nothing but the time it was last seen and its hash count changes.
    /// - Named twice in one call: as if received one after the other. An empty call is a no-op.
    async fn receive(&self, incoming: &[Incoming]) -> Result<Vec<Received>, StoreError>;

    /// Takes a short lease on a message before it is consumed, in a transaction of the store's own.
    ///
    /// [`New`](Registered::New): the lease is ours until it runs out; [`ConsumeIn::register_under`] then needs it, and a
    /// consumer whose lease was taken over is told [`InProgress`](Registered::InProgress) there.
    async fn lease(&self, receipt: &Receipt, lease: Lease) -> Result<Admission, StoreError>;

    /// Gives a lease of [`lease`](Self::lease) back before it runs out; whether it was still ours.
    async fn release(&self, receipt: &Receipt, lease: Lease) -> Result<bool, StoreError>;

    /// Everything that is known of one message; none when it is unknown or purged.
    async fn get(&self, source: &str, message_id: &str) -> Result<Option<InboxRecord>, StoreError>;

    /// A page of messages that came again with another content, in the order of their names.
    ///
    /// `after` is the name where the last page ended.
    async fn mismatches(&self, after: Option<(String, String)>, limit: u32) -> Result<Vec<InboxRecord>, StoreError>;

    /// Forgets up to `limit` messages that are done and were last seen longer ago than they are remembered, and as many of
    /// the queue's done rows; answers how many were forgotten.
    ///
    /// Never touches what is seen, processing or dead. Safe to run on every instance at once.
    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError>;
}

/// Registers a receipt on an open transaction of the caller's own, so that the message's effects and the record of it are
/// committed together or not at all.
///
/// `T` is the driver's transaction or connection, or the transaction that the store began. A connection on which no
/// transaction is open is refused.
#[diagnostic::on_unimplemented(
    message = "a receipt is registered on a transaction of your own, and `{T}` is not one that `{Self}` knows",
    label = "expected `&mut tx`: a transaction begun on the inbox's database",
    note = "a pool commits every statement by itself, so the record would survive a rollback of the effects",
    note = "begin one with `let mut tx = pool.begin().await?` and pass `&mut tx`"
)]
pub trait ConsumeIn<T>: InboxStore {
    /// Makes the message done inside `tx` unless somebody else has it. Never commits, never rolls back.
    ///
    /// Whoever registers the same receipt at the same time waits until this transaction has ended, and is told
    /// [`Duplicate`](Registered::Duplicate) if it was committed. Under stricter isolation levels than READ COMMITTED the
    /// database may report that as a [`Conflict`](crate::ErrorKind::Conflict) instead: begin again.
    fn register<'a>(&'a self, tx: &'a mut T, receipt: &'a Receipt) -> BoxFuture<'a, Result<Admission, StoreError>> {
        self.register_under(tx, receipt, None)
    }

    /// As [`register`](Self::register), under a lease that [`InboxStore::lease`] gave.
    fn register_under<'a>(
        &'a self,
        tx: &'a mut T,
        receipt: &'a Receipt,
        lease: Option<Lease>,
    ) -> BoxFuture<'a, Result<Admission, StoreError>>;
}

/// A store that opens an inbox on its own database.
pub trait WithInbox: Transactional {
    /// What [`inbox`](Self::inbox) gives.
    type Inbox: InboxStore + ConsumeIn<Self::Transaction> + SchemaAdmin + Clone;

    /// Opens the inbox beside this store, in the same schema and through the same connections.
    fn inbox(&self, options: InboxOptions) -> BoxFuture<'_, Result<Self::Inbox, StoreError>>;

    /// The queue of an inbox as a store of this type, for verdicts inside of transactions.
    fn queue_of(inbox: &Self::Inbox) -> Self;
}

/// What a delivery found when it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Where the message stood; nothing when it was unknown.
    pub before: Option<InboxState>,
    /// Whether its content hash contradicts the one on record.
    pub is_mismatch: bool,
}

impl Sighting {
    /// Whether the message has taken effect, so that this delivery is a duplicate.
    pub fn is_processed(&self) -> bool {
        self.before == Some(InboxState::Done)
    }
}

/// What a consumer found when it registered or leased a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Whether it may go on.
    pub registered: Registered,
    /// Whether its content hash contradicts the one on record.
    pub is_mismatch: bool,
}

/// What became of one received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The id of the message in the queue; the same for every delivery of one receipt.
    pub message_id: MessageId,
    /// Where it stood; nothing when it was unknown.
    pub before: Option<InboxState>,
    /// What was done.
    pub outcome: Reception,
    /// Whether its content hash contradicts the one on record.
    pub is_mismatch: bool,
}

/// Everything that is known of a received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRecord {
    /// Who sent it.
    pub source: String,
    /// What the sender calls it.
    pub message_id: String,
    /// What the queue calls it.
    pub queue_id: MessageId,
    /// Where it stands.
    pub state: InboxState,
    /// When it came first.
    pub first_seen_at: SystemTime,
    /// When it came last.
    pub last_seen_at: SystemTime,
    /// The hash of the content that was queued last, or else the first one that came.
    pub hash: Option<ContentHash>,
    /// Deliveries whose hash contradicted the one on record.
    pub mismatch_count: u32,
    /// Attempts in the queue so far.
    pub attempts: u32,
    /// When it may be claimed, where it was told to wait.
    pub due_at: Option<SystemTime>,
    /// Why the last attempt failed, or why it was marked dead.
    pub last_error: Option<String>,
    /// Its topic, where the queue has it.
    pub topic: Option<String>,
}

/// Settings of an inbox; what is not said here is as in the store that it stands beside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxOptions {
    /// The name of the queue's table, in the schema of the store; the ledger's ends in `_ledger`.
    pub table: String,
    /// How long done messages are remembered after they were last seen.
    pub remember: Duration,
    /// Whether the inbox deploys its tables, checks them or assumes them; by default as the store does.
    pub schema: Option<SchemaPolicy>,
}

impl InboxOptions {
    /// The settings of the queue, beside a store with these settings and this name.
    pub fn queue_options(&self, store: &StoreOptions, id: &StoreId) -> Result<StoreOptions, Invalid> {
        let naming = Naming::new(store.naming.schema().as_str(), &self.table)?;
        if naming == store.naming {
            return Err(Problem::malformed("table", "must not be the outbox's own").into());
        }
        let name: String = format!("{id}/{}", self.table).chars().take(StoreId::CHARS_MAX).collect();
        Ok(StoreOptions {
            store_id: Some(StoreId::new(name)?),
            naming,
            retention: Retention::Receipt(self.remember),
            schema: self.schema.unwrap_or(store.schema),
            ..store.clone()
        })
    }
}

impl Default for InboxOptions {
    fn default() -> Self {
        Self { table: "inbox".into(), remember: REMEMBER_DEFAULT, schema: None }
    }
}

/// Checks the size of a page.
pub fn check_page(limit: u32) -> Result<(), Invalid> {
    if (1..=RECORDS_MAX).contains(&limit) {
        return Ok(());
    }
    let missed = if limit == 0 { 1 } else { u64::from(RECORDS_MAX) };
    Err(Problem::out_of_range("limit", missed, format!("must be 1 to {RECORDS_MAX}, is {limit}")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IBX-100.
    #[test]
    fn a_queue_keeps_receipts_for_thirty_days_under_its_own_names() {
        let id = StoreId::new("orders").unwrap();
        let store = StoreOptions { schema: SchemaPolicy::Check, lost_leases_max: 3, ..StoreOptions::default() };
        let queue = InboxOptions::default().queue_options(&store, &id).unwrap();
        assert_eq!(queue.retention, Retention::Receipt(Duration::from_secs(2_592_000)));
        assert_eq!(queue.naming.joined(), "pillarbox_inbox");
        assert_eq!(queue.store_id.unwrap().as_str(), "orders/inbox");
        assert_eq!((queue.schema, queue.lost_leases_max), (SchemaPolicy::Check, 3));
    }

    #[test]
    fn an_inbox_needs_a_table_of_its_own() {
        let id = StoreId::new("orders").unwrap();
        for table in ["outbox", "a b", ""] {
            let options = InboxOptions { table: table.into(), ..InboxOptions::default() };
            let refused = options.queue_options(&StoreOptions::default(), &id).unwrap_err();
            assert_eq!(refused.problems()[0].field(), "table", "{table:?}");
        }
    }

    #[test]
    fn pages_are_bounded() {
        assert!(check_page(0).is_err());
        assert!(check_page(RECORDS_MAX + 1).is_err());
        assert!(check_page(1).is_ok());
    }
}
