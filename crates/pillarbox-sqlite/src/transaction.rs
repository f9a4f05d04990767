//! Transactions that the store begins for its user.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pillarbox_core::lasting::Lasting;
use pillarbox_core::lease::Lease;
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, GuardPlan, Settlement};
use pillarbox_core::transaction::Wholeness;
use pillarbox_core::{
    Admission, CommitError, ConsumeIn, Isolation, OwnerToken, Receipt, Savepoint, Settled, StoreError,
    StoreTransaction, Transactional,
};
use sqlx::{AssertSqlSafe, Connection, Sqlite, SqliteConnection, SqlitePool, Transaction};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

use crate::enqueue::{enqueue_within, require_open};
use crate::error::{is_busy, is_commit_unknown, is_outside_transaction, store_error};
use crate::inbox::SqliteInbox;
use crate::store::{BUSY_TIMEOUT, Inner, Moment, POOL_MAX, SqliteStore, at_now, is_really_open, roll_back};

/// Commits, or fails where no transaction is open. The driver does not notice this commit, and rolls back when it is done: the
/// new transaction, which takes no lock, is there for that.
const COMMIT: &str = "COMMIT; BEGIN";

/// A transaction on the store's database, which holds the write lock from its beginning. Dropping it rolls back.
///
/// Always serializable: it is the only one that writes, and it has seen everything that was written before. Commit and
/// roll back through it, not by statements on its connection. A database in memory has one connection only:
/// there, the store's own calls wait until the transaction has ended, and report
/// [`Unavailable`](pillarbox_core::ErrorKind::Unavailable) when that takes too long.
pub struct SqliteTransaction {
    /// None once it has been ended.
    open: Option<Open>,
    /// After some errors SQLite rolls back by itself, and the driver does not notice.
    whole: Wholeness,
}

struct Open {
    tx: Transaction<'static, Sqlite>,
    turn: OwnedSemaphorePermit,
}

impl Transactional for SqliteStore {
    type Transaction = SqliteTransaction;

    fn begin_at(&self, _: Isolation) -> BoxFuture<'_, Result<SqliteTransaction, StoreError>> {
        let inner = Arc::clone(&self.inner);
        // A begin() that is dropped half-way must not leave a transaction behind.
        Box::pin(lasting(
            async move { Ok(SqliteTransaction { open: Some(begin(&inner).await?), whole: Wholeness::new() }) },
        ))
    }
}

impl StoreTransaction<SqliteStore> for SqliteTransaction {
    type Connection = SqliteConnection;

    fn connection(&mut self) -> &mut SqliteConnection {
        self.whole = self.whole.lent();
        self.tx()
    }

    fn enqueue_checked<'a>(
        &'a mut self,
        store: &'a SqliteStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>> {
        Box::pin(async move {
            let before = self.whole;
            self.whole = before.opened();
            if !before.is_proven() {
                require_open(self.tx()).await?;
            }
            let enqueued = enqueue_within(&store.inner, self.tx(), enqueue).await?;
            self.whole = before.proven(true);
            Ok(enqueued)
        })
    }

    fn settle_planned<'a>(
        &'a mut self,
        store: &'a SqliteStore,
        owner: OwnerToken,
        plan: &'a GuardPlan<'a, Settlement>,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async move {
            let before = self.whole;
            self.whole = before.opened();
            let settled = store.settle_on(self.tx(), owner, plan).await?;
            self.whole = before.proven(true);
            Ok(settled)
        })
    }

    fn savepoint(&mut self, savepoint: Savepoint) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let before = self.whole;
            self.whole = before.opened();
            // Outside of a transaction a savepoint would begin one, and hide that what came before is gone.
            if !before.is_proven() && !is_really_open(self.tx()).await? {
                return Err(rolled_back_before());
            }
            let statement = sqlx::raw_sql(AssertSqlSafe(savepoint.to_sql()));
            statement.execute(&mut **self.tx()).await.map_err(store_error)?;
            self.whole = before.after(savepoint);
            Ok(())
        })
    }

    fn commit(mut self) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(lasting(async move {
            let Some(open) = self.open.take() else { return Ok(()) };
            commit(open, self.whole).await
        }))
    }

    fn rollback(mut self) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(lasting(async move {
            let Some(open) = self.open.take() else { return Ok(()) };
            roll_back(open.tx).await.map_err(store_error)
        }))
    }
}

impl ConsumeIn<SqliteTransaction> for SqliteInbox {
    fn register_under<'a>(
        &'a self,
        tx: &'a mut SqliteTransaction,
        receipt: &'a Receipt,
        lease: Option<Lease>,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        Box::pin(async move {
            receipt.check()?;
            let before = tx.whole;
            tx.whole = before.opened();
            let registered = if before.is_proven() {
                self.register_within(tx.tx(), receipt, lease).await?
            } else {
                self.register_under(tx.tx(), receipt, lease).await?
            };
            tx.whole = before.proven(true);
            Ok(registered)
        })
    }
}

impl SqliteTransaction {
    /// Runs a call of ours at the database's now. When it does not come to its end, the transaction cannot be committed.
    pub(crate) async fn run<T, W>(&mut self, store: &SqliteStore, work: W) -> Result<T, StoreError>
    where
        W: for<'c> FnOnce(&'c Inner, &'c mut SqliteConnection, Moment) -> BoxFuture<'c, Result<T, StoreError>>,
    {
        let before = self.whole;
        self.whole = before.opened();
        if !before.is_proven() {
            require_open(self.tx()).await?;
        }
        let done = at_now(&store.inner, self.tx(), work).await?;
        self.whole = before.proven(true);
        Ok(done)
    }

    fn tx(&mut self) -> &mut Transaction<'static, Sqlite> {
        &mut self.open.as_mut().expect("a transaction is open until it is given away to be ended").tx
    }
}

impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        // The driver's own rollback fails, and spoils the connection, when SQLite has rolled back by itself.
        if let Some(open) = self.open.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                let _ = roll_back(open.tx).await;
                drop(open.turn);
            });
        }
    }
}

impl fmt::Debug for SqliteTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTransaction").field("whole", &self.whole).finish_non_exhaustive()
    }
}

/// Begins once it is this transaction's turn. Those of one store queue here, in order, and not in SQLite's busy loop, where
/// the luckiest wins.
async fn begin(inner: &Inner) -> Result<Open, StoreError> {
    let patience = Instant::now() + BUSY_TIMEOUT;
    let turn = tokio::time::timeout(BUSY_TIMEOUT, Arc::clone(&inner.turns).acquire_owned()).await;
    let Ok(Ok(turn)) = turn else {
        return Err(StoreError::unavailable("another transaction of this store has held the write lock for too long"));
    };
    let mut spoiled = 0;
    loop {
        match inner.pool().begin_with("BEGIN IMMEDIATE").await {
            // The pool's own busy timeout may be shorter.
            Err(error) if is_busy(&error) && Instant::now() < patience => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(sqlx::Error::InvalidSavePointStatement) if spoiled < SPOILED_MAX => {
                spoiled += 1;
                close_spoiled(inner.pool());
                // The one that was just met returns to the pool by a task of the driver's.
                tokio::task::yield_now().await;
            }
            begun => return Ok(Open { tx: begun.map_err(store_error)?, turn }),
        }
    }
}

async fn commit(mut open: Open, whole: Wholeness) -> Result<(), CommitError> {
    if let Some(torn) = whole.torn() {
        let _ = roll_back(open.tx).await;
        return Err(CommitError::RolledBack(torn));
    }
    let committed = match whole.is_proven() {
        // After an error the driver rolls back what is still open.
        true => return open.tx.commit().await.map_err(not_committed),
        false => sqlx::query(COMMIT).execute(&mut *open.tx).await,
    };
    let Err(error) = committed else { return Ok(()) };
    let _ = roll_back(open.tx).await;
    Err(not_committed(error))
}

fn not_committed(error: sqlx::Error) -> CommitError {
    match error {
        error if is_outside_transaction(&error) => CommitError::RolledBack(rolled_back_before()),
        error if is_commit_unknown(&error) => CommitError::Unknown(store_error(error)),
        error => CommitError::RolledBack(store_error(error)),
    }
}

fn rolled_back_before() -> StoreError {
    StoreError::rejected(
        "SQLite has rolled this transaction back by itself after an earlier error, such as a full disk: \
         begin a new transaction",
    )
}

/// Spoiled connections that a begin passes over: more than there are, because one may be met again before it is closed.
const SPOILED_MAX: u32 = POOL_MAX * 8;

/// Closes idle connections on which the driver counts a transaction that is no more: SQLite rolled it back when its commit
/// failed.
fn close_spoiled(pool: &SqlitePool) {
    let mut idle: Vec<_> = std::iter::from_fn(|| pool.try_acquire()).collect();
    for connection in &mut idle {
        if connection.is_in_transaction() {
            connection.close_on_drop();
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
