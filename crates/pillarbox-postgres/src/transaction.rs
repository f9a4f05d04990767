//! Transactions that the store begins for its user.

use std::fmt;
use std::future::Future;

use pillarbox_core::lasting::Lasting;
use pillarbox_core::lease::Lease;
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued};
use pillarbox_core::{
    CommitError, ConsumeIn, EnqueueIn, Receipt, Registered, StoreError, StoreTransaction, Transactional,
};
use sqlx::{PgConnection, Postgres, Row, Transaction};
use tokio::runtime::Handle;

use crate::error::{is_commit_unknown, store_error};
use crate::inbox::PostgresInbox;
use crate::store::PostgresStore;

/// Fails in a transaction that an error has aborted, and answers false where none is open: only inside a transaction does
/// the clock of the transaction lie behind that of the statement.
const PROOF: &str = "SELECT pg_catalog.transaction_timestamp() <> pg_catalog.statement_timestamp()";

/// A transaction on the store's database. Dropping it rolls back.
///
/// Commit and roll back through it, not by statements on its connection.
pub struct PostgresTransaction {
    tx: Transaction<'static, Postgres>,
    /// Whether the server has accepted a statement of ours since the user had the connection. PostgreSQL answers the commit
    /// of an aborted transaction with a silent rollback, which the driver does not tell from a commit.
    is_proven: bool,
}

impl Transactional for PostgresStore {
    type Transaction = PostgresTransaction;

    fn begin(&self) -> BoxFuture<'_, Result<PostgresTransaction, StoreError>> {
        let pool = self.pool().clone();
        // A begin() that is dropped half-way would leave an open transaction in the pool.
        Box::pin(lasting(async move {
            let tx = pool.begin().await.map_err(store_error)?;
            Ok(PostgresTransaction { tx, is_proven: true })
        }))
    }
}

impl StoreTransaction<PostgresStore> for PostgresTransaction {
    type Connection = PgConnection;

    fn connection(&mut self) -> &mut PgConnection {
        self.is_proven = false;
        &mut self.tx
    }

    fn enqueue<'a>(
        &'a mut self,
        store: &'a PostgresStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>> {
        Box::pin(async move {
            let was_proven = std::mem::replace(&mut self.is_proven, false);
            let enqueued = store.enqueue_in(&mut self.tx, enqueue).await?;
            // Nothing is sent for an empty batch, and nothing is learned.
            self.is_proven = was_proven || !enqueued.is_empty();
            Ok(enqueued)
        })
    }

    fn commit(self) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(lasting(self.end()))
    }

    fn rollback(self) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(lasting(async move { self.tx.rollback().await.map_err(store_error) }))
    }
}

impl ConsumeIn<PostgresTransaction> for PostgresInbox {
    fn register_under<'a>(
        &'a self,
        tx: &'a mut PostgresTransaction,
        receipt: &'a Receipt,
        lease: Option<Lease>,
    ) -> BoxFuture<'a, Result<Registered, StoreError>> {
        Box::pin(async move {
            receipt.check()?;
            tx.is_proven = false;
            let registered = self.register_under(&mut tx.tx, receipt, lease).await?;
            tx.is_proven = true;
            Ok(registered)
        })
    }
}

impl PostgresTransaction {
    async fn end(mut self) -> Result<(), CommitError> {
        if !self.is_proven {
            match self.is_open().await {
                Ok(true) => {}
                Ok(false) => return Err(CommitError::Unknown(ended_by_hand())),
                Err(error) => {
                    // No commit was sent. When the connection is gone, its transaction went with it.
                    let _ = self.tx.rollback().await;
                    return Err(CommitError::RolledBack(store_error(error)));
                }
            }
        }
        // A connection that fails here is tested when it is dropped, and closed instead of pooled.
        self.tx.commit().await.map_err(|error| match is_commit_unknown(&error) {
            true => CommitError::Unknown(store_error(error)),
            false => CommitError::RolledBack(store_error(error)),
        })
    }

    /// Asks the server, by a statement of its own, which a pooler takes as well.
    async fn is_open(&mut self) -> Result<bool, sqlx::Error> {
        sqlx::raw_sql(PROOF).fetch_one(&mut *self.tx).await?.try_get(0)
    }
}

impl fmt::Debug for PostgresTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTransaction").field("is_proven", &self.is_proven).finish_non_exhaustive()
    }
}

/// Runs to the end, also when the caller loses interest.
fn lasting<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Lasting<T, impl FnOnce(BoxFuture<'static, ()>) + Unpin> {
    let runtime = Handle::try_current();
    Lasting::new(work, move |rest| drop(runtime.map(|runtime| runtime.spawn(rest))))
}

fn ended_by_hand() -> StoreError {
    StoreError::rejected(
        "a statement on its connection has ended the transaction: commit and roll back through the transaction itself",
    )
}
