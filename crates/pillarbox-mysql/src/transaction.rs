//! Transactions that the store begins for its user.

use std::fmt;
use std::future::Future;

use pillarbox_core::lasting::Lasting;
use pillarbox_core::lease::Lease;
use pillarbox_core::store::{BoxFuture, CONFLICT_RETRIES_MAX, Enqueue, Enqueued};
use pillarbox_core::{
    CommitError, ConsumeIn, EnqueueIn as _, Receipt, Registered, StoreError, StoreTransaction, Transactional,
};
use sqlx::mysql::MySqlPool;
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, Row as _, Transaction};
use tokio::runtime::Handle;

use crate::error::{is_commit_unknown, is_dirty_connection, no_transaction, store_error};
use crate::inbox::MysqlInbox;
use crate::store::MysqlStore;

/// The first statement fails on a pooled connection that somebody left inside a transaction. A plain beginning would commit
/// that transaction.
const BEGIN: &str = "SET TRANSACTION READ WRITE; START TRANSACTION";

/// A transaction on the store's database. Dropping it rolls back.
///
/// Commit and roll back through it, not by statements on its connection. A statement that commits by itself, such as
/// `CREATE TABLE`, ends it too; its commit then fails although what came before that statement is stored.
pub struct MysqlTransaction {
    tx: Transaction<'static, MySql>,
    store: MysqlStore,
    /// Whether the server has accepted a statement of ours since the user had the connection. After a deadlock the server has
    /// rolled back everything, and would answer a commit as if nothing had happened.
    is_proven: bool,
}

impl Transactional for MysqlStore {
    type Transaction = MysqlTransaction;

    fn begin(&self) -> BoxFuture<'_, Result<MysqlTransaction, StoreError>> {
        let store = self.clone();
        // A begin() that is dropped half-way would leave an open transaction in the pool.
        Box::pin(lasting(async move {
            let tx = begin_clean(&store.inner.pool, BEGIN).await?;
            Ok(MysqlTransaction { tx, store, is_proven: true })
        }))
    }
}

impl StoreTransaction<MysqlStore> for MysqlTransaction {
    type Connection = MySqlConnection;

    fn connection(&mut self) -> &mut MySqlConnection {
        self.is_proven = false;
        &mut self.tx
    }

    fn enqueue<'a>(
        &'a mut self,
        store: &'a MysqlStore,
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

impl ConsumeIn<MysqlTransaction> for MysqlInbox {
    fn register_under<'a>(
        &'a self,
        tx: &'a mut MysqlTransaction,
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

impl MysqlTransaction {
    async fn end(mut self) -> Result<(), CommitError> {
        if !self.is_proven
            && let Err(error) = self.require_open().await
        {
            // No commit was sent. When the connection is gone, its transaction went with it.
            let _ = self.tx.rollback().await;
            return Err(CommitError::RolledBack(error));
        }
        // A connection that fails here is tested when it is dropped, and closed instead of pooled. What is still open on it
        // is rolled back before.
        self.tx.commit().await.map_err(|error| match is_commit_unknown(&error) {
            true => CommitError::Unknown(store_error(error)),
            false => CommitError::RolledBack(store_error(error)),
        })
    }

    /// Asks the server, because the driver only counts what it was told.
    async fn require_open(&mut self) -> Result<(), StoreError> {
        let inner = &self.store.inner;
        if !inner.server.is_mariadb {
            let guard = sqlx::raw_sql(AssertSqlSafe(inner.sql.enqueue_guard.as_str()));
            return guard.execute(&mut *self.tx).await.map(drop).map_err(store_error);
        }
        let asked = sqlx::raw_sql("SELECT @@in_transaction").fetch_one(&mut *self.tx).await;
        let is_open: i64 = asked.and_then(|row| row.try_get_unchecked(0)).map_err(store_error)?;
        if is_open == 1 { Ok(()) } else { Err(no_transaction()) }
    }
}

impl fmt::Debug for MysqlTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlTransaction").field("is_proven", &self.is_proven).finish_non_exhaustive()
    }
}

/// Begins on a connection that is in order. One that is not is passed over, and cleaned when it is the next to be met.
pub(crate) async fn begin_clean(pool: &MySqlPool, begin: &str) -> Result<Transaction<'static, MySql>, StoreError> {
    let mut tries = 0;
    loop {
        match pool.begin_with(AssertSqlSafe(begin)).await {
            Err(error) if is_dirty_connection(&error) && tries < CONFLICT_RETRIES_MAX => {
                tries += 1;
                sqlx::raw_sql("ROLLBACK").execute(pool).await.map_err(store_error)?;
            }
            begun => return begun.map_err(store_error),
        }
    }
}

/// Runs to the end, also when the caller loses interest.
fn lasting<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Lasting<T, impl FnOnce(BoxFuture<'static, ()>) + Unpin> {
    let runtime = Handle::try_current();
    Lasting::new(work, move |rest| drop(runtime.map(|runtime| runtime.spawn(rest))))
}
