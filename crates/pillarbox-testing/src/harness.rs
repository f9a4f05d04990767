//! What a backend brings along to be tested.

use std::future::Future;
use std::time::Duration;

use pillarbox_core::inbox::InboxOptions;
use pillarbox_core::store::{Enqueue, Enqueued, StoreOptions};
use pillarbox_core::{
    ConsumeIn, Coordinated, OutboxAdmin, OutboxStore, SchemaAdmin, StoreError, Transactional, WithInbox,
};
use uuid::Uuid;

/// A transaction that the store under test has begun.
pub type StoreTx<H> = <<H as Harness>::Store as Transactional>::Transaction;

/// The inbox of the store under test.
pub type Inbox<H> = <<H as Harness>::Store as WithInbox>::Inbox;

/// A backend under test: a real database with tables of its own for every test, and a clock that obeys.
pub trait Harness: Sized + Send + Sync + 'static {
    /// The store under test.
    type Store: OutboxStore
        + OutboxAdmin
        + SchemaAdmin
        + Transactional
        + WithInbox<Inbox: ConsumeIn<Self::Transaction>>
        + Coordinated
        + Clone;

    /// A transaction of a user of the store.
    type Transaction: Send;

    /// Whether a server's session stands behind a transaction, which an operator can end.
    const HAS_SESSIONS: bool;

    /// Whether the store wakes other processes and can be woken.
    const HAS_WAKEUPS: bool;

    /// Whether an open transaction keeps others from the rows that it has changed, and not from writing at all.
    const HAS_ROW_LOCKS: bool;

    /// The isolation levels that the database offers, by their names in SQL.
    const ISOLATION_LEVELS: &'static [&'static str];

    /// Opens a store on fresh tables that no other test uses; the harness chooses the names in `options.naming`.
    ///
    /// Also creates one table for the rows of [`write_business_row`](Self::write_business_row).
    fn start(options: StoreOptions) -> impl Future<Output = Self> + Send;

    /// The store that [`start`](Self::start) opened.
    fn store(&self) -> &Self::Store;

    /// Opens another store on the same tables, with connections of its own, as another process would.
    ///
    /// `options.naming` is replaced by the names of this test.
    fn connect(&self, options: StoreOptions) -> impl Future<Output = Result<Self::Store, StoreError>> + Send;

    /// Opens a store with exactly these options, naming included, in the database of this test.
    fn connect_as_is(&self, options: StoreOptions) -> impl Future<Output = Result<Self::Store, StoreError>> + Send;

    /// Lets time pass for this test alone: every time in its tables, those of its inbox, of the outbox's lists of instances and of
    /// pauses and of the coordinator's progress included, moves so far into the past.
    fn advance(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Overwrites the recorded schema version, as an older or newer program would have left it.
    fn set_schema_version(&self, version: u32) -> impl Future<Output = ()> + Send;

    /// Stores a row as another language would, by plain SQL with as few columns as the table contract allows,
    /// with `headers` as they are given, well-formed or not.
    fn insert_foreign_row(&self, topic: &str, headers: Option<&str>) -> impl Future<Output = ()> + Send;

    /// Takes the hash from every stored message with a key, as if another language had stored it.
    fn forget_key_hashes(&self) -> impl Future<Output = ()> + Send;

    /// Adds a row to the list of instances as another language would, with `metadata` as it is given, well-formed or not, last
    /// seen so far `ahead` of now. Its service and host are `foreign`.
    fn insert_foreign_instance(&self, id: Uuid, metadata: &str, ahead: Duration) -> impl Future<Output = ()> + Send;

    /// Sets `attempts` and `lost_lease_count` of every stored message, to come near the limits of the type.
    fn set_counters(&self, attempts: u32, lost_lease_count: u32) -> impl Future<Output = ()> + Send;

    /// Begins a transaction on a connection that is not the store's.
    fn begin(&self) -> impl Future<Output = Self::Transaction> + Send;

    /// Begins a transaction at one of the [`ISOLATION_LEVELS`](Self::ISOLATION_LEVELS), 32 at once if asked to.
    fn begin_at(&self, level: &str) -> impl Future<Output = Self::Transaction> + Send;

    /// Commits a transaction of [`begin_at`](Self::begin_at); false when the database wants it to be done again.
    fn commit_at(&self, tx: Self::Transaction) -> impl Future<Output = bool> + Send;

    /// Opens an inbox beside the store, in tables that no other test uses. The clock of
    /// [`advance`](Self::advance) moves it too.
    fn inbox(&self) -> impl Future<Output = Inbox<Self>> + Send {
        async { self.store().inbox(InboxOptions::default()).await.expect("an inbox can be opened") }
    }

    /// Enqueues through the user's transaction.
    fn enqueue_in(
        &self,
        tx: &mut Self::Transaction,
        enqueue: Enqueue<'_>,
    ) -> impl Future<Output = Result<Vec<Enqueued>, StoreError>> + Send;

    /// Writes one row of the user's own through the transaction.
    fn write_business_row(&self, tx: &mut Self::Transaction) -> impl Future<Output = ()> + Send;

    /// Committed rows of the user's own.
    fn business_row_count(&self) -> impl Future<Output = u64> + Send;

    /// Commits.
    fn commit(&self, tx: Self::Transaction) -> impl Future<Output = ()> + Send;

    /// Rolls back.
    fn rollback(&self, tx: Self::Transaction) -> impl Future<Output = ()> + Send;

    /// Writes one row of the user's own through a transaction that the store has begun.
    fn write_row_on(&self, tx: &mut StoreTx<Self>) -> impl Future<Output = ()> + Send;

    /// Writes one row of the user's own in a nested transaction, a savepoint where there are any, and keeps it or not.
    fn write_nested_row_on(&self, tx: &mut StoreTx<Self>, is_kept: bool) -> impl Future<Output = ()> + Send;

    /// Begins a nested transaction of the driver's on the connection, and drops it.
    fn begin_nested_on(&self, tx: &mut StoreTx<Self>) -> impl Future<Output = ()> + Send;

    /// Lets a statement of the user's fail so that the database gives up the whole transaction; the user ignores it.
    fn spoil(&self, tx: &mut StoreTx<Self>) -> impl Future<Output = ()> + Send;

    /// Lets a statement of the user's fail in a way that takes no more along than what came after the last savepoint.
    fn fail_statement(&self, tx: &mut StoreTx<Self>) -> impl Future<Output = ()> + Send;

    /// Rolls back by a plain statement, behind the back of the transaction, or spoils it where there are no statements.
    fn roll_back_behind(&self, tx: &mut StoreTx<Self>) -> impl Future<Output = ()> + Send;

    /// The server's session behind a transaction; none without [`HAS_SESSIONS`](Self::HAS_SESSIONS).
    fn session_of(&self, tx: &mut StoreTx<Self>) -> impl Future<Output = Option<u64>> + Send;

    /// Ends a session as an operator does, and waits until it is gone. Called only with [`HAS_SESSIONS`](Self::HAS_SESSIONS).
    fn end_session(&self, session: u64) -> impl Future<Output = ()> + Send;

    /// Ends the sessions that listen for wake-ups on the tables of this test. Called only with
    /// [`HAS_WAKEUPS`](Self::HAS_WAKEUPS).
    fn end_listeners(&self) -> impl Future<Output = ()> + Send;
}
