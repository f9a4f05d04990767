//! The handle: its connections, and the two ways to use them, one transaction for writing and one for reading.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use pillarbox_core::floor::Floor;
use pillarbox_core::store::{BoxFuture, StoreOptions};
use pillarbox_core::{SchemaAdmin, StoreError, StoreId};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{Connection, Sqlite, SqliteConnection, SqlitePool, Transaction};
use tokio::sync::Semaphore;

use crate::error::{is_busy, is_inside_transaction, store_error};
use crate::lease::{NO_STRETCHES, STRETCH_MIN};
use crate::row;
use crate::sql::Statements;

/// How long a connection waits for the lock of another writer.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections beside the writer's own: each is a thread.
pub(crate) const POOL_MAX: u32 = 8;

/// Connections of a detached handle, beside its writer.
const DETACHED_MAX: u32 = 2;

/// The file that SQLite writes first is cut back to this size once it has been copied.
const WAL_BYTES_MAX: &str = "67108864";

/// An outbox in an SQLite file, or in memory.
///
/// A handle: clones share connections. SQLite has one writer at a time, so the store writes through a single connection
/// of its own, in short `BEGIN IMMEDIATE` transactions, and reads through [`pool`](Self::pool).
#[derive(Clone)]
pub struct SqliteStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) id: StoreId,
    pub(crate) options: StoreOptions,
    pub(crate) sql: Statements,
    /// Reads, and the user's own transactions.
    pool: SqlitePool,
    /// One connection: what this process writes queues here, in order, and not in SQLite's busy loop. None in memory, where
    /// the pool has the only connection.
    writer: Option<SqlitePool>,
    /// One permit: whose turn it is among the transactions that the store begins for its user.
    pub(crate) turns: Arc<Semaphore>,
    /// Where claims start that leave topics out; all others start at the first row.
    pub(crate) floor: Floor,
    /// The last claim brought as much as it could, so that the next one will find something, too.
    pub(crate) has_more: AtomicBool,
    /// So many rows beside each other are leased as a stretch.
    pub(crate) stretch_min: AtomicU32,
    /// So many rows are read for a stretch.
    pub(crate) stretch_hint: AtomicU32,
}

impl Inner {
    pub(crate) fn pool(&self) -> &SqlitePool {
        &self.pool
    }
}

impl SqliteStore {
    /// Opens `sqlite:<path>`, where `%`, `?` and `#` in the path are percent-encoded, or `sqlite::memory:`.
    ///
    /// A missing file is created, unless the address has a `mode`. The settings are those of
    /// [`connect_options`](Self::connect_options).
    pub async fn connect(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        Self::connect_with(Self::connect_options(url)?, options).await
    }

    /// The settings that [`connect`](Self::connect) uses, to be changed and given to [`connect_with`](Self::connect_with).
    ///
    /// - `journal_mode = WAL`: readers and the writer do not wait for each other.
    /// - `synchronous = FULL`: what was committed survives a power loss. `NORMAL` is many times faster for single
    ///   messages, survives a crash of the process, and may lose the last commits when the power fails.
    /// - `busy_timeout` of 10 s: how long a connection waits for another process's writes.
    /// - `journal_size_limit` of 64 MiB: a log that a long reader made grow shrinks again.
    pub fn connect_options(url: &str) -> Result<SqliteConnectOptions, StoreError> {
        if !url.starts_with("sqlite:") {
            return Err(StoreError::rejected("the address of an SQLite file starts with `sqlite:`"));
        }
        let creates = !url.split_once('?').is_some_and(|(_, query)| query.contains("mode="));
        let options = SqliteConnectOptions::from_str(url).map_err(store_error)?;
        let options = if creates { options.create_if_missing(true) } else { options };
        Ok(options
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT)
            .pragma("journal_size_limit", WAL_BYTES_MAX))
    }

    /// Opens a file with settings of your own; names with odd characters need no encoding here.
    pub async fn connect_with(connect: SqliteConnectOptions, options: StoreOptions) -> Result<Self, StoreError> {
        options.validate()?;
        // Several programs that turn on WAL in a new file at once get BUSY, and SQLite does not wait there by itself.
        let patience = Instant::now() + BUSY_TIMEOUT;
        let mut first = loop {
            match SqliteConnection::connect_with(&connect).await {
                Err(error) if is_busy(&error) && Instant::now() < patience => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                opened => break opened.map_err(store_error)?,
            }
        };
        // A database in memory ends with its last connection: exactly one is kept, for ever.
        let in_memory = file_of(&mut first).await?.is_empty();
        let pool = SqlitePoolOptions::new()
            .max_connections(if in_memory { 1 } else { POOL_MAX })
            .min_connections(u32::from(in_memory))
            .idle_timeout((!in_memory).then_some(Duration::from_secs(60)))
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_with(connect)
            .await
            .map_err(store_error)?;
        drop(first);
        Self::with_pool(pool, options).await
    }

    /// Takes a pool that exists already. Its settings stay as they are, see [`connect_options`](Self::connect_options)
    /// for the recommended ones; a pool on a database in memory must have one connection that is never closed.
    pub async fn with_pool(pool: SqlitePool, options: StoreOptions) -> Result<Self, StoreError> {
        options.validate()?;
        let mut connection = pool.acquire().await.map_err(store_error)?;
        let file = file_of(&mut connection).await?;
        if !file.is_empty() {
            warn_of_settings(&mut connection).await?;
        }
        drop(connection);
        let writer = if file.is_empty() { None } else { Some(writer_beside(&pool)) };
        let id = match &options.store_id {
            Some(id) => id.clone(),
            None => default_id(&file)?,
        };
        let policy = options.schema;
        let store = Self::made_of(id, options, pool, writer, Arc::new(Semaphore::new(1)));
        store.apply_policy(policy).await?;
        Ok(store)
    }

    /// The connections for reading and for transactions of your own; the store writes through another one.
    ///
    /// Begin those that write with `begin_with("BEGIN IMMEDIATE")`: a plain `begin` that reads first and writes later
    /// fails at once when another writer came in between. In memory this is the only connection: end a transaction
    /// before the next call to the store.
    pub fn pool(&self) -> &SqlitePool {
        &self.inner.pool
    }

    /// The same store with connections of its own.
    ///
    /// SQLite works on threads of the driver's own, but connections go back to their pool by a task of the runtime that used
    /// them: while it is blocked, the writer's only one is missing. In memory there is no second connection to be had.
    pub(crate) fn with_own_pool(&self) -> Self {
        let Inner { id, options, pool, writer, .. } = &*self.inner;
        if writer.is_none() {
            return self.clone();
        }
        let own = pool.options().clone().min_connections(0).max_connections(DETACHED_MAX);
        let own = own.connect_lazy_with(pool.connect_options().as_ref().clone());
        let writer = Some(writer_beside(&own));
        let detached = Self::made_of(id.clone(), options.clone(), own, writer, Arc::new(Semaphore::new(1)));
        detached.lease_stretches_from(self.inner.stretch_min.load(Ordering::Relaxed));
        detached
    }

    /// The queue of an inbox: another set of tables in the same file, through the same connections. An inbox looks at the owners of rows.
    pub(crate) fn beside(&self, id: StoreId, options: StoreOptions) -> Self {
        let Inner { pool, writer, turns, .. } = &*self.inner;
        let queue = Self::made_of(id, options, pool.clone(), writer.clone(), Arc::clone(turns));
        queue.lease_stretches_from(NO_STRETCHES);
        queue
    }

    /// From how many rows on a claim leases those that stand beside each other together; for tests, which have few.
    #[doc(hidden)]
    pub fn lease_stretches_from(&self, rows: u32) {
        self.inner.stretch_min.store(rows, Ordering::Relaxed);
    }

    fn made_of(
        id: StoreId,
        options: StoreOptions,
        pool: SqlitePool,
        writer: Option<SqlitePool>,
        turns: Arc<Semaphore>,
    ) -> Self {
        let (sql, floor, has_more) = (Statements::new(&options.naming), Floor::default(), AtomicBool::new(false));
        let (stretch_min, stretch_hint) = (AtomicU32::new(STRETCH_MIN), AtomicU32::new(u32::MAX));
        let inner = Inner { id, options, sql, pool, writer, turns, floor, has_more, stretch_min, stretch_hint };
        Self { inner: Arc::new(inner) }
    }

    /// Runs `work` at the database's now, and remembers that time if anything was written.
    pub(crate) async fn write_at_now<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c Inner, &'c mut SqliteConnection, Moment) -> BoxFuture<'c, Result<T, StoreError>>
            + Send
            + 'static,
    {
        self.write(move |inner, tx| Box::pin(at_now(inner, tx, work))).await
    }

    /// Runs `work` in a transaction that holds the write lock from its beginning, and commits it.
    ///
    /// In a task of its own: a caller that stops waiting must not leave a transaction open.
    pub(crate) async fn write<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c Inner, &'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        in_own_task(async move {
            let mut connection = inner.writer.as_ref().unwrap_or(&inner.pool).acquire().await.map_err(store_error)?;
            let done = run_write(&inner, &mut connection, work).await;
            if done.is_err() {
                settle_down(&mut connection).await;
            }
            done
        })
        .await
    }

    /// Runs `work` on one snapshot of the database.
    pub(crate) async fn read<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c Inner, &'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        in_own_task(async move {
            let mut tx = inner.pool.begin().await.map_err(store_error)?;
            let found = work(&inner, &mut tx).await?;
            tx.rollback().await.map_err(store_error)?;
            Ok(found)
        })
        .await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

/// Whether a transaction is open on this connection, as SQLite itself sees it.
///
/// The driver only counts what it was told: after a full disk, an I/O error or an interrupt SQLite rolls back by itself,
/// and what follows would be committed statement by statement. A `BEGIN` inside a transaction is refused, changes nothing
/// and costs no I/O; outside of one it succeeds, and the `ROLLBACK` behind it undoes it.
pub(crate) async fn is_really_open(connection: &mut SqliteConnection) -> Result<bool, StoreError> {
    match sqlx::query("BEGIN; ROLLBACK").execute(connection).await {
        Ok(_) => Ok(false),
        Err(error) if is_inside_transaction(&error) => Ok(true),
        Err(error) => Err(store_error(error)),
    }
}

/// The time of a transaction.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now: i64,
    /// Something on the shelf may have its time.
    pub(crate) is_waited_for: bool,
    pub(crate) change_count: i64,
    /// Stretches are leased, and some of those leases ran out.
    pub(crate) has_leases: bool,
    pub(crate) has_lapsed: bool,
}

impl Moment {
    pub(crate) async fn read(inner: &Inner, tx: &mut SqliteConnection) -> Result<Self, StoreError> {
        let row = sqlx::query(inner.sql.now.clone()).fetch_one(tx).await.map_err(store_error)?;
        Ok(Self {
            now: row::get(&row, 0)?,
            change_count: row::get(&row, 1)?,
            is_waited_for: row::get(&row, 2)?,
            has_leases: row::get(&row, 3)?,
            has_lapsed: row::get(&row, 4)?,
        })
    }

    /// Remembers this time if anything was written since it was read.
    pub(crate) async fn remember(self, inner: &Inner, tx: &mut SqliteConnection) -> Result<(), StoreError> {
        let tick = sqlx::query(inner.sql.tick.clone()).bind(self.now).bind(self.change_count);
        tick.execute(tx).await.map(drop).map_err(store_error)
    }
}

/// Runs `work` at the database's now, inside a transaction, and remembers that time if anything was written.
pub(crate) async fn at_now<T, W>(inner: &Inner, tx: &mut SqliteConnection, work: W) -> Result<T, StoreError>
where
    W: for<'c> FnOnce(&'c Inner, &'c mut SqliteConnection, Moment) -> BoxFuture<'c, Result<T, StoreError>>,
{
    let moment = Moment::read(inner, tx).await?;
    let done = work(inner, tx, moment).await?;
    moment.remember(inner, tx).await?;
    Ok(done)
}

/// All rows of a statement that answers many.
///
/// They come from the driver's thread in a burst, once SQLite has done the work: a task that sleeps until the next row makes that
/// thread wake it each time, which costs more than the row. So, once the first is there, the task stays awake and lets others
/// run instead. It reads none of them meanwhile: whoever is slower than that thread keeps it waiting for the channel.
pub(crate) async fn burst(
    query: SqliteQuery<'_>,
    connection: &mut SqliteConnection,
) -> Result<Vec<SqliteRow>, StoreError> {
    let mut stream = query.fetch(connection);
    let mut rows = Vec::new();
    let mut patience = 0;
    loop {
        let next = match futures_util::poll!(stream.try_next()) {
            Poll::Ready(next) => next,
            Poll::Pending if patience > 0 => {
                patience -= 1;
                tokio::task::yield_now().await;
                continue;
            }
            Poll::Pending => stream.try_next().await,
        };
        let Some(row) = next.map_err(store_error)? else { return Ok(rows) };
        rows.push(row);
        patience = BURST_PATIENCE;
    }
}

/// How often a task looks for the next row of a burst before it sleeps.
const BURST_PATIENCE: u32 = 32;

/// A statement with its arguments.
pub(crate) type SqliteQuery<'q> = sqlx::query::Query<'q, Sqlite, SqliteArguments>;

/// One more connection to the same file, for writing.
fn writer_beside(pool: &SqlitePool) -> SqlitePool {
    let connect = pool.connect_options().as_ref().clone().busy_timeout(BUSY_TIMEOUT).row_buffer_size(1024);
    let pool = pool.options().clone().min_connections(0).max_connections(1);
    pool.idle_timeout(None).max_lifetime(None).test_before_acquire(false).connect_lazy_with(connect)
}

async fn run_write<T, W>(inner: &Inner, connection: &mut SqliteConnection, work: W) -> Result<T, StoreError>
where
    W: for<'c> FnOnce(&'c Inner, &'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>>,
{
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.map_err(store_error)?;
    match work(inner, &mut tx).await {
        Ok(done) => {
            tx.commit().await.map_err(store_error)?;
            Ok(done)
        }
        Err(error) => {
            let _ = roll_back(tx).await;
            Err(error)
        }
    }
}

/// Ends a transaction, whether SQLite has rolled it back already or not.
///
/// If it has, the driver's `ROLLBACK` fails and it counts an open transaction for ever: an empty one gives it something to
/// end. Inside an open one the `BEGIN` is refused and does nothing.
pub(crate) async fn roll_back(mut tx: Transaction<'_, Sqlite>) -> Result<(), sqlx::Error> {
    let _ = sqlx::query("BEGIN").execute(&mut *tx).await;
    if !tx.is_in_transaction() {
        // The driver had ended it, for a nested transaction that failed to begin, and will not end the empty one.
        let _ = sqlx::query("ROLLBACK").execute(&mut *tx).await;
        return Ok(());
    }
    tx.rollback().await
}

/// Gives up a connection that is not in order after a failed transaction.
async fn settle_down(connection: &mut PoolConnection<Sqlite>) {
    // The ping waits until the driver's thread has done what was asked of it before.
    if connection.ping().await.is_err() || connection.is_in_transaction() {
        connection.close_on_drop();
    }
}

pub(crate) async fn in_own_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(_) => Err(StoreError::unavailable("the runtime is shutting down, or the store's own task has failed")),
    }
}

/// The path of the file; empty for a database in memory.
async fn file_of(connection: &mut SqliteConnection) -> Result<String, StoreError> {
    let file = sqlx::query("SELECT coalesce(max(file), '') FROM pragma_database_list WHERE name = 'main'");
    row::get(&file.fetch_one(connection).await.map_err(store_error)?, 0)
}

/// Warns of settings that cost durability or speed.
async fn warn_of_settings(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let settings = sqlx::query("SELECT journal_mode, synchronous FROM pragma_journal_mode, pragma_synchronous");
    let settings = settings.fetch_one(connection).await.map_err(store_error)?;
    let (journal_mode, synchronous): (&str, i64) = (row::get(&settings, 0)?, row::get(&settings, 1)?);
    if journal_mode != "wal" {
        tracing::warn!(journal_mode, "without journal_mode = WAL, readers and the writer wait for each other");
    }
    if synchronous < 2 {
        tracing::warn!(synchronous, "with less than synchronous = FULL, a power loss may undo the last commits");
    }
    Ok(())
}

fn default_id(file: &str) -> Result<StoreId, StoreError> {
    let name = Path::new(file).file_name().map_or("memory".into(), |name| name.to_string_lossy());
    let id: String = format!("sqlite:{name}").chars().take(StoreId::CHARS_MAX).collect();
    Ok(StoreId::new(id)?)
}
