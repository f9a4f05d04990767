//! Transactions that the store begins for its user.

use std::fmt;
use std::future::Future;
use std::time::Instant;

use pillarbox_core::floor::Freed;
use pillarbox_core::lasting::Lasting;
use pillarbox_core::lease::Lease;
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, GuardPlan, OpenTransaction as _, Settlement};
use pillarbox_core::transaction::Wholeness;
use pillarbox_core::{
    Admission, CommitError, ConsumeIn, Isolation, OwnerToken, Receipt, Savepoint, Settled, StoreError,
    StoreTransaction, Transactional,
};
use sqlx::mysql::MySqlPool;
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, Row as _, Transaction};
use tokio::runtime::Handle;

use crate::error::{is_commit_unknown, is_dirty_connection, no_transaction, savepoint_error, store_error};
use crate::inbox::MysqlInbox;
use crate::store::MysqlStore;

/// The first statement fails on a pooled connection that somebody left inside a transaction. A plain beginning would commit
/// that transaction.
fn beginning(isolation: Isolation) -> String {
    let level = isolation.as_sql().map(|level| format!("ISOLATION LEVEL {level}, ")).unwrap_or_default();
    format!("SET TRANSACTION {level}READ WRITE; START TRANSACTION")
}

/// Tells whether a transaction was open, and commits it. The driver does not notice, and rolls back when it is done: the new
/// transaction, in which nothing has happened, is there for that.
const COMMIT: &str = "SELECT @@in_transaction; COMMIT AND CHAIN";

/// A transaction on the store's database. Dropping it rolls back.
///
/// Commit and roll back through it, not by statements on its connection. A statement that commits by itself, such as
/// `CREATE TABLE`, ends it too; its commit then fails although what came before that statement is stored.
pub struct MysqlTransaction {
    tx: Transaction<'static, MySql>,
    pub(crate) store: MysqlStore,
    pub(crate) isolation: Isolation,
    /// After a deadlock the server has rolled back everything, and would answer a commit as if nothing had happened.
    whole: Wholeness,
    /// Rows that its commit makes claimable at once, and whose claims must look so far down.
    freed: Vec<(MysqlStore, Freed)>,
}

impl Transactional for MysqlStore {
    type Transaction = MysqlTransaction;

    fn begin_at(&self, isolation: Isolation) -> BoxFuture<'_, Result<MysqlTransaction, StoreError>> {
        let store = self.clone();
        // A begin() that is dropped half-way would leave an open transaction in the pool.
        Box::pin(lasting(async move {
            let tx = begin_clean(&store.inner.pool, &beginning(isolation)).await?;
            Ok(MysqlTransaction { tx, store, isolation, whole: Wholeness::new(), freed: Vec::new() })
        }))
    }
}

impl StoreTransaction<MysqlStore> for MysqlTransaction {
    type Connection = MySqlConnection;

    fn connection(&mut self) -> &mut MySqlConnection {
        self.whole = self.whole.lent();
        &mut self.tx
    }

    fn enqueue_checked<'a>(
        &'a mut self,
        store: &'a MysqlStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>> {
        Box::pin(async move {
            let before = self.whole;
            self.whole = before.opened();
            let enqueued = (&mut self.tx).enqueue_on(store, enqueue).await?;
            self.whole = before.proven(true);
            Ok(enqueued)
        })
    }

    fn settle_planned<'a>(
        &'a mut self,
        store: &'a MysqlStore,
        owner: OwnerToken,
        plan: &'a GuardPlan<'a, Settlement>,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async move {
            let before = self.whole;
            self.whole = before.opened();
            let settled = store.settle_on(&mut self.tx, owner, plan).await?;
            self.whole = before.proven(true);
            self.freed.push((store.clone(), plan.freed()));
            Ok(settled)
        })
    }

    fn savepoint(&mut self, savepoint: Savepoint) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let before = self.whole;
            self.whole = before.during(savepoint);
            let statement = sqlx::raw_sql(AssertSqlSafe(savepoint.to_sql()));
            statement.execute(&mut *self.tx).await.map_err(savepoint_error)?;
            self.whole = before.after(savepoint);
            Ok(())
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
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        Box::pin(async move {
            receipt.check()?;
            let before = tx.whole;
            tx.whole = before.opened();
            let registered = self.register_under(&mut tx.tx, receipt, lease).await?;
            tx.whole = before.proven(true);
            Ok(registered)
        })
    }
}

impl MysqlTransaction {
    /// Runs a call of ours. When it does not come to its end, the transaction cannot be committed.
    pub(crate) async fn run<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut MySqlConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let before = self.whole;
        self.whole = before.opened();
        if !before.is_proven() {
            self.require_open().await?;
        }
        let done = call(&mut self.tx).await?;
        self.whole = before.proven(true);
        Ok(done)
    }

    async fn end(mut self) -> Result<(), CommitError> {
        if let Some(torn) = self.whole.torn() {
            let _ = self.tx.rollback().await;
            return Err(CommitError::RolledBack(torn));
        }
        if self.whole.is_proven() {
            // A connection that fails here is tested when it is dropped, and closed instead of pooled. What is still open on
            // it is rolled back before.
            self.tx.commit().await.map_err(not_committed)?;
        } else if self.store.inner.server.is_mariadb {
            self.end_asking().await?;
        } else if let Err(error) = self.require_open().await {
            // No commit was sent. When the connection is gone, its transaction went with it.
            let _ = self.tx.rollback().await;
            return Err(CommitError::RolledBack(error));
        } else {
            self.tx.commit().await.map_err(not_committed)?;
        }
        for (store, freed) in self.freed {
            store.inner.floor.freed(Instant::now(), freed);
        }
        Ok(())
    }

    /// Commits in one round trip, and learns whether there was something to commit.
    async fn end_asking(&mut self) -> Result<(), CommitError> {
        // The driver has ended it, for a nested transaction that failed to begin: a chained one would never end.
        if !self.tx.is_in_transaction() {
            return Err(CommitError::RolledBack(no_transaction()));
        }
        let asked = sqlx::raw_sql(COMMIT).fetch_all(&mut *self.tx).await.map_err(not_committed)?;
        let was_open =
            asked.first().map(|row| row.try_get_unchecked::<i64, _>(0)).transpose().map_err(not_committed)?;
        if was_open == Some(1) { Ok(()) } else { Err(CommitError::RolledBack(no_transaction())) }
    }

    /// Asks the server, because the driver only counts what it was told.
    async fn require_open(&mut self) -> Result<(), StoreError> {
        let guard = sqlx::raw_sql(AssertSqlSafe(self.store.inner.sql.enqueue_guard.as_str()));
        guard.execute(&mut *self.tx).await.map(drop).map_err(store_error)
    }
}

fn not_committed(error: sqlx::Error) -> CommitError {
    match is_commit_unknown(&error) {
        true => CommitError::Unknown(store_error(error)),
        false => CommitError::RolledBack(store_error(error)),
    }
}

impl fmt::Debug for MysqlTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlTransaction").field("whole", &self.whole).finish_non_exhaustive()
    }
}

/// Begins on a connection that is in order. When one is not, another is put in order and begun on.
pub(crate) async fn begin_clean(pool: &MySqlPool, begin: &str) -> Result<Transaction<'static, MySql>, StoreError> {
    match pool.begin_with(AssertSqlSafe(begin)).await {
        Err(error) if is_dirty_connection(&error) => {}
        begun => return begun.map_err(store_error),
    }
    let begun = pool.begin_with(AssertSqlSafe(format!("ROLLBACK; {begin}"))).await.map_err(store_error)?;
    // By now the spoiled one is back in the pool: what somebody left open there must not keep its locks.
    let mut idle: Vec<_> = std::iter::from_fn(|| pool.try_acquire()).collect();
    for connection in &mut idle {
        // One that is broken is noticed when it goes back to the pool.
        drop(sqlx::raw_sql("ROLLBACK").execute(&mut **connection).await);
    }
    Ok(begun)
}

/// Runs to the end, also when the caller loses interest.
fn lasting<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Lasting<T, impl FnOnce(BoxFuture<'static, ()>) + Unpin> {
    let runtime = Handle::try_current();
    Lasting::new(work, move |rest| drop(runtime.map(|runtime| runtime.spawn(rest))))
}
