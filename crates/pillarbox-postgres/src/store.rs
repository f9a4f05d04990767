//! The store: a pool, settings, rendered statements, and the one way in which statements are run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use pillarbox_core::floor::Floor;
use pillarbox_core::schema::SchemaAdmin;
use pillarbox_core::store::{CONFLICT_RETRIES_MAX, StoreOptions};
use pillarbox_core::{Fence, StoreError, StoreId};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, Postgres, SqlSafeStr};

use crate::error::{is_foreign_connection, is_old_snapshot, is_race, store_error};
use crate::kept::Kept;
use crate::lease::{NO_STRETCHES, STRETCH_MIN};
use crate::sql::{Sql, Statement};

/// A statement with its arguments.
pub(crate) type PgQuery = Query<'static, Postgres, PgArguments>;

/// An outbox in a PostgreSQL database. Cheap to clone; all clones share one pool.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

struct Inner {
    id: StoreId,
    pool: PgPool,
    /// Of the same pool.
    kept: Arc<Kept>,
    options: StoreOptions,
    sql: Sql,
    floor: Floor,
    behind_pooler: AtomicBool,
    /// Transactions begin at another level than claims need, unless told otherwise.
    has_old_snapshots: AtomicBool,
    /// So many rows beside each other are leased as a stretch.
    stretch_min: AtomicU32,
}

/// Connections of a detached handle.
const DETACHED_MAX: u32 = 2;

impl PostgresStore {
    /// Connects, with a pool of its own, and deploys or checks the tables as the options say.
    pub async fn connect(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        options.validate()?;
        let connect: PgConnectOptions = url.parse().map_err(store_error)?;
        // A pool would try a refused connection again until its time is up, and then not say why.
        let first = PgConnection::connect_with(&connect).await.map_err(store_error)?;
        first.close().await.map_err(store_error)?;
        let pool =
            PgPoolOptions::new().max_connections(8).acquire_timeout(Duration::from_secs(10)).connect_lazy_with(connect);
        Ok(Self::with_pool(pool, options).await?.reusing_connections())
    }

    /// Uses a pool that exists already, and deploys or checks the tables as the options say.
    pub async fn with_pool(pool: PgPool, options: StoreOptions) -> Result<Self, StoreError> {
        let store = Self::lazily(pool, options)?;
        store.apply_policy(store.inner.options.schema).await?;
        Ok(store)
    }

    /// Like [`with_pool`](Self::with_pool) for a pool that leads through a pooler in transaction mode, such as pgbouncer.
    ///
    /// Named prepared statements get lost there, so every statement is prepared anew inside a transaction of its own. That
    /// costs two round trips more per call: give the runtime a direct connection where you can.
    pub async fn behind_pooler(pool: PgPool, options: StoreOptions) -> Result<Self, StoreError> {
        let store = Self::lazily(pool, options)?;
        store.inner.behind_pooler.store(true, Ordering::Relaxed);
        store.apply_policy(store.inner.options.schema).await?;
        Ok(store)
    }

    /// Passes the connection of a transaction that was committed, or of a call of the store's own, on to the next one within a moment, past
    /// the pool.
    ///
    /// A pool tests a connection when it comes back and before it is handed out: two round trips of the six that a small
    /// transaction takes. A store that [`connect`](Self::connect)s does so by itself. It is not done for a pool of your own unless you say so,
    /// because its `before_acquire` and `after_release` would not be called in between.
    #[must_use]
    pub fn reusing_connections(self) -> Self {
        self.inner.kept.switch_on();
        self
    }

    fn lazily(pool: PgPool, options: StoreOptions) -> Result<Self, StoreError> {
        options.validate()?;
        let id = match &options.store_id {
            Some(id) => id.clone(),
            None => named_after(&pool.connect_options())?,
        };
        let sql = Sql::new(&options.naming);
        let behind_pooler = AtomicBool::new(false);
        let kept = Kept::of(pool.clone(), false);
        let (floor, stretch_min) = (Floor::default(), AtomicU32::new(STRETCH_MIN));
        let has_old_snapshots = AtomicBool::new(false);
        let inner = Inner { id, pool, kept, options, sql, floor, behind_pooler, has_old_snapshots, stretch_min };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The same store with connections of its own, which are opened on the runtime that needs them first.
    pub(crate) fn with_own_pool(&self) -> Self {
        let Inner { id, pool, kept, options, .. } = &*self.inner;
        let own = pool.options().clone().min_connections(0).max_connections(DETACHED_MAX);
        let own = own.connect_lazy_with(pool.connect_options().as_ref().clone());
        Self {
            inner: Arc::new(Inner {
                id: id.clone(),
                kept: Kept::of(own.clone(), kept.is_on()),
                pool: own,
                options: options.clone(),
                sql: Sql::new(&options.naming),
                floor: Floor::default(),
                behind_pooler: AtomicBool::new(self.is_behind_pooler()),
                has_old_snapshots: AtomicBool::new(self.has_old_snapshots()),
                stretch_min: AtomicU32::new(self.inner.stretch_min.load(Ordering::Relaxed)),
            }),
        }
    }

    /// Another set of tables in the same database, through the same connections. The queue of an inbox, whose statements look at the owners
    /// of rows.
    pub(crate) fn beside(&self, id: StoreId, options: StoreOptions) -> Self {
        let inner = Inner {
            id,
            pool: self.inner.pool.clone(),
            kept: Arc::clone(&self.inner.kept),
            sql: Sql::new(&options.naming),
            options,
            floor: Floor::default(),
            behind_pooler: AtomicBool::new(self.is_behind_pooler()),
            has_old_snapshots: AtomicBool::new(self.has_old_snapshots()),
            stretch_min: AtomicU32::new(NO_STRETCHES),
        };
        Self { inner: Arc::new(inner) }
    }

    /// For tests: from how many rows on a claim leases those that stand beside each other together.
    #[doc(hidden)]
    pub fn lease_stretches_from(&self, rows: u32) {
        self.inner.stretch_min.store(rows, Ordering::Relaxed);
    }

    pub(crate) fn stretch_min(&self) -> u32 {
        self.inner.stretch_min.load(Ordering::Relaxed)
    }

    /// The pool that the store uses.
    pub fn pool(&self) -> &PgPool {
        &self.inner.pool
    }

    pub(crate) fn kept(&self) -> &Arc<Kept> {
        &self.inner.kept
    }

    pub(crate) fn name(&self) -> &StoreId {
        &self.inner.id
    }

    pub(crate) fn settings(&self) -> &StoreOptions {
        &self.inner.options
    }

    pub(crate) fn sql(&self) -> &Sql {
        &self.inner.sql
    }

    pub(crate) fn floor(&self) -> &Floor {
        &self.inner.floor
    }

    pub(crate) fn is_behind_pooler(&self) -> bool {
        self.inner.behind_pooler.load(Ordering::Relaxed)
    }

    pub(crate) fn has_old_snapshots(&self) -> bool {
        self.inner.has_old_snapshots.load(Ordering::Relaxed)
    }

    /// Whether a statement is prepared under a name, which needs no transaction around it.
    fn is_named(&self, statement: &Statement) -> bool {
        statement.guard.is_some() && !self.is_behind_pooler() && !self.has_old_snapshots()
    }

    /// A statement with its arguments, prepared under a name only where the connection will be met again.
    pub(crate) fn query(&self, statement: &Statement, bind: impl Fn(PgQuery) -> PgQuery) -> PgQuery {
        let query = if self.is_named(statement) {
            sqlx::query(AssertSqlSafe(Arc::clone(&statement.text)))
        } else {
            // Another text than the named statement's: the driver would use that one, were it remembered.
            sqlx::query(AssertSqlSafe(format!("{} ", statement.text))).persistent(false)
        };
        match &statement.guard {
            Some(guard) => bind(query).bind(guard.as_ref()),
            None => bind(query),
        }
    }

    /// Runs one statement as a transaction of its own, again when it lost a race.
    pub(crate) async fn fetch(
        &self,
        statement: &Statement,
        bind: impl Fn(PgQuery) -> PgQuery,
    ) -> Result<Vec<PgRow>, StoreError> {
        let mut races = 0;
        loop {
            let (named, had_old_snapshots) = (self.is_named(statement), self.has_old_snapshots());
            let query = self.query(statement, &bind);
            let answer = if named { self.fetch_named(query).await } else { self.fetch_unnamed(query).await };
            match answer {
                Err(error) if is_race(&error) && races < CONFLICT_RETRIES_MAX => {
                    races += 1;
                    pause(races).await;
                }
                Err(error) if named && is_foreign_connection(&error) => self.notice_pooler(),
                Err(error) if is_old_snapshot(&error) && !had_old_snapshots => {
                    self.inner.has_old_snapshots.store(true, Ordering::Relaxed);
                }
                answer => return answer,
            }
        }
    }

    /// Runs one statement that returns a row for each row it changed; answers their number.
    pub(crate) async fn execute(
        &self,
        statement: &Statement,
        bind: impl Fn(PgQuery) -> PgQuery,
    ) -> Result<u64, StoreError> {
        Ok(self.fetch(statement, bind).await?.len() as u64)
    }

    /// Looks what became of a statement in somebody's transaction. It is lost with the statement; the next one will be served.
    pub(crate) fn notice_if_foreign<T>(&self, answer: &Result<T, StoreError>) {
        if answer.as_ref().is_err_and(is_foreign_connection) {
            self.notice_pooler();
        }
    }

    /// Goes on without named statements: something swaps the connections under them.
    pub(crate) fn notice_pooler(&self) {
        if !self.inner.behind_pooler.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                store = %self.inner.id,
                "prepared statements get lost between connections: a pooler in transaction mode; \
                 going on without them (say `behind_pooler` to avoid this, or connect directly)"
            );
        }
    }

    async fn fetch_named(&self, query: PgQuery) -> Result<Vec<PgRow>, StoreError> {
        let mut session = self.inner.kept.acquire().await.map_err(store_error)?;
        let rows = query.fetch_all(&mut *session).await.map_err(store_error)?;
        session.passes_on();
        Ok(rows)
    }

    /// A pooler keeps to one connection only within a transaction.
    async fn fetch_unnamed(&self, query: PgQuery) -> Result<Vec<PgRow>, StoreError> {
        let kept = Arc::clone(&self.inner.kept);
        let level = self.has_old_snapshots().then(|| "BEGIN ISOLATION LEVEL READ COMMITTED".into_sql_str());
        // A dropped begin() would leave an open transaction in the pool: the task is never dropped half-way.
        let run = tokio::spawn(async move {
            let mut tx = kept.begin(level).await?;
            let rows = query.fetch_all(&mut *tx).await?;
            tx.commit().await?;
            Ok(rows)
        });
        run.await.map_err(|_| StoreError::unavailable("the runtime is shutting down"))?.map_err(store_error)
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

/// A short, growing, jittered pause before another try.
pub(crate) async fn pause(races: u32) {
    // The fence is only a source of dice here.
    let dice = Fence::new().as_i64().unsigned_abs() % 1000;
    let ceiling = 1000 << races.min(6);
    tokio::time::sleep(Duration::from_micros(ceiling * (500 + dice) / 1500)).await;
}

fn named_after(connect: &PgConnectOptions) -> Result<StoreId, StoreError> {
    let (host, port) = (connect.get_host(), connect.get_port());
    let database = connect.get_database().unwrap_or_else(|| connect.get_username());
    Ok(StoreId::new(format!("postgres:{host}:{port}/{database}"))?)
}
