//! Transactions that the store begins for its user.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use pillarbox_core::floor::Freed;
use pillarbox_core::lasting::Lasting;
use pillarbox_core::lease::Lease;
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, GuardPlan, Settlement};
use pillarbox_core::transaction::Wholeness;
use pillarbox_core::{
    Admission, CommitError, ConsumeIn, Isolation, OwnerToken, Receipt, Savepoint, Settled, StoreError,
    StoreTransaction, Transactional,
};
use sqlx::{AssertSqlSafe, PgConnection, SqlSafeStr};
use tokio::runtime::Handle;

use crate::enqueue::{insert_and_look, require_open};
use crate::error::{is_commit_unknown, is_no_transaction, store_error};
use crate::inbox::PostgresInbox;
use crate::kept::Session;
use crate::store::PostgresStore;

/// Commits in one round trip, or tells that there is nothing to commit: in a transaction that an error has aborted the first
/// statement fails, and where none is open the second one. The driver does not notice this commit, and rolls back when it is
/// done: the new transaction, in which nothing has happened, is there for that.
const COMMIT: &str = "SELECT; COMMIT AND CHAIN";

/// A transaction on the store's database. Dropping it rolls back.
///
/// Commit and roll back through it, not by statements on its connection.
pub struct PostgresTransaction {
    tx: Session,
    /// PostgreSQL answers the commit of an aborted transaction with a silent rollback, which the driver does not tell from a
    /// commit.
    whole: Wholeness,
    /// Rows that its commit makes claimable at once, and whose claims must look so far down.
    freed: Vec<(PostgresStore, Freed)>,
}

impl Transactional for PostgresStore {
    type Transaction = PostgresTransaction;

    fn begin_at(&self, isolation: Isolation) -> BoxFuture<'_, Result<PostgresTransaction, StoreError>> {
        let kept = Arc::clone(self.kept());
        // A begin() that is dropped half-way would leave an open transaction in the pool.
        Box::pin(lasting(async move {
            let beginning = isolation.as_sql().map(|level| AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}")));
            let tx = kept.begin(beginning.map(SqlSafeStr::into_sql_str)).await.map_err(store_error)?;
            Ok(PostgresTransaction { tx, whole: Wholeness::new(), freed: Vec::new() })
        }))
    }
}

impl StoreTransaction<PostgresStore> for PostgresTransaction {
    type Connection = PgConnection;

    fn connection(&mut self) -> &mut PgConnection {
        self.whole = self.whole.lent();
        &mut self.tx
    }

    fn enqueue_checked<'a>(
        &'a mut self,
        store: &'a PostgresStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>> {
        Box::pin(async move {
            let before = self.whole;
            self.whole = before.opened();
            require_open(&self.tx)?;
            let (enqueued, is_open) = insert_and_look(store, &mut self.tx, enqueue).await?;
            self.whole = if is_open { before.shown() } else { before.proven(true) };
            Ok(enqueued)
        })
    }

    fn settle_planned<'a>(
        &'a mut self,
        store: &'a PostgresStore,
        owner: OwnerToken,
        plan: &'a GuardPlan<'a, Settlement>,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async move {
            let before = self.whole;
            self.whole = before.opened();
            self.require_block(before).await?;
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
            statement.execute(&mut *self.tx).await.map_err(store_error)?;
            // Outside of a transaction, and in one that has failed, it would have been refused.
            self.whole = before.after(savepoint).proven(true);
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

impl ConsumeIn<PostgresTransaction> for PostgresInbox {
    fn register_under<'a>(
        &'a self,
        tx: &'a mut PostgresTransaction,
        receipt: &'a Receipt,
        lease: Option<Lease>,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        Box::pin(async move {
            receipt.check()?;
            let before = tx.whole;
            tx.whole = before.opened();
            tx.require_block(before).await?;
            let registered = self.register_under(&mut *tx.tx, receipt, lease).await?;
            tx.whole = before.proven(true);
            Ok(registered)
        })
    }
}

impl PostgresTransaction {
    /// Runs a call of ours. When it does not come to its end, the transaction cannot be committed.
    pub(crate) async fn run<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut PgConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let before = self.whole;
        self.whole = before.opened();
        self.require_block(before).await?;
        let done = call(&mut self.tx).await?;
        self.whole = before.proven(true);
        Ok(done)
    }

    /// What must not happen alone is not sent before the server has said that a transaction is open.
    async fn require_block(&mut self, whole: Wholeness) -> Result<(), StoreError> {
        if whole.is_proven() {
            return Ok(());
        }
        let guard = "SAVEPOINT pillarbox_0; RELEASE SAVEPOINT pillarbox_0";
        sqlx::raw_sql(guard).execute(&mut *self.tx).await.map(drop).map_err(|error| match is_no_transaction(&error) {
            true => ended_by_hand(),
            false => store_error(error),
        })
    }

    async fn end(mut self) -> Result<(), CommitError> {
        if let Some(torn) = self.whole.torn() {
            let _ = self.tx.rollback().await;
            return Err(CommitError::RolledBack(torn));
        }
        let committed = if self.whole.is_proven() && !self.whole.was_lent() {
            self.tx.commit().await
        } else {
            sqlx::raw_sql(COMMIT).execute(&mut *self.tx).await.map(drop)
        };
        // A connection that fails here is tested when it is dropped, and closed instead of pooled.
        committed.map_err(|error| match error {
            error if is_no_transaction(&error) => CommitError::Unknown(ended_by_hand()),
            error if is_commit_unknown(&error) => CommitError::Unknown(store_error(error)),
            error => CommitError::RolledBack(store_error(error)),
        })?;
        for (store, freed) in self.freed {
            store.floor().freed(Instant::now(), freed);
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTransaction").field("whole", &self.whole).finish_non_exhaustive()
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
