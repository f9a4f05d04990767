//! What a backend brings along to be tested.

use std::future::Future;
use std::time::Duration;

use pillarbox_core::store::{Enqueue, Enqueued, StoreOptions};
use pillarbox_core::{OutboxAdmin, OutboxStore, SchemaAdmin, StoreError};

/// A backend under test: a real database with tables of its own for every test, and a clock that obeys.
pub trait Harness: Sized + Send + Sync + 'static {
    /// The store under test.
    type Store: OutboxStore + OutboxAdmin + SchemaAdmin + Clone;

    /// A transaction of a user of the store.
    type Transaction: Send;

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

    /// Lets time pass for this test alone: every time in its tables moves so far into the past.
    fn advance(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Overwrites the recorded schema version, as an older or newer program would have left it.
    fn set_schema_version(&self, version: u32) -> impl Future<Output = ()> + Send;

    /// Stores a row as another language would, by plain SQL with as few columns as the table contract allows,
    /// with `headers` as they are given, well-formed or not.
    fn insert_foreign_row(&self, topic: &str, headers: Option<&str>) -> impl Future<Output = ()> + Send;

    /// Sets `attempts` and `lost_lease_count` of every stored message, to come near the limits of the type.
    fn set_counters(&self, attempts: u32, lost_lease_count: u32) -> impl Future<Output = ()> + Send;

    /// Begins a transaction on a connection that is not the store's.
    fn begin(&self) -> impl Future<Output = Self::Transaction> + Send;

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
}
