//! PostgreSQL under test: a schema of its own for every test.

use std::future::Future;
use std::time::Duration;

use pillarbox_core::lease::Claim;
use pillarbox_core::naming::Naming;
use pillarbox_core::schema::SchemaPolicy;
use pillarbox_core::store::{Enqueue, Enqueued, StoreOptions};
use pillarbox_core::{EnqueueIn, Message, OwnerToken, StoreError, StoreTransaction};
use pillarbox_postgres::{PostgresStore, PostgresTransaction};
use pillarbox_testing::Harness;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgPool, Postgres, Row, Transaction};
use tokio::sync::OnceCell;
use uuid::Uuid;

/// Tests have few messages: two beside each other are a stretch.
const STRETCH_MIN: u32 = 2;

/// Which way the store's connections go; the harness' own always go directly.
pub(crate) trait Route: Send + Sync + 'static {
    /// Whether `LISTEN` works on it.
    const IS_DIRECT: bool;

    fn open(pool: PgPool, options: StoreOptions) -> impl Future<Output = Result<PostgresStore, StoreError>> + Send;
    fn url() -> String;

    /// The server at the end of it.
    fn server() -> String {
        Direct::url()
    }
}

/// Straight to the server.
pub(crate) struct Direct;

impl Route for Direct {
    const IS_DIRECT: bool = true;

    async fn open(pool: PgPool, options: StoreOptions) -> Result<PostgresStore, StoreError> {
        let store = PostgresStore::with_pool(pool, options).await?.reusing_connections();
        store.lease_stretches_from(STRETCH_MIN);
        Ok(store)
    }

    fn url() -> String {
        variable("PILLARBOX_TEST_POSTGRES_URL")
    }
}

/// Through pgbouncer in transaction mode.
pub(crate) struct Pooler;

impl Route for Pooler {
    const IS_DIRECT: bool = false;

    async fn open(pool: PgPool, options: StoreOptions) -> Result<PostgresStore, StoreError> {
        let store = PostgresStore::behind_pooler(pool, options).await?;
        store.lease_stretches_from(STRETCH_MIN);
        Ok(store)
    }

    fn url() -> String {
        variable("PILLARBOX_TEST_PGBOUNCER_URL")
    }
}

/// Straight to a server whose clock can be set, by whoever holds its `ServerClock`.
pub(crate) struct Jumping;

impl Route for Jumping {
    const IS_DIRECT: bool = true;

    async fn open(pool: PgPool, options: StoreOptions) -> Result<PostgresStore, StoreError> {
        Direct::open(pool, options).await
    }

    fn url() -> String {
        variable("PILLARBOX_TEST_POSTGRES_JUMPING_URL")
    }

    fn server() -> String {
        Self::url()
    }
}

pub(crate) struct PostgresHarness<R = Direct> {
    pub(crate) naming: Naming,
    pub(crate) pool: PgPool,
    store: PostgresStore,
    /// Connections for many at once.
    crowd: OnceCell<PgPool>,
    route: std::marker::PhantomData<R>,
}

impl<R> PostgresHarness<R> {
    /// Runs a statement of the test's own; `{schema}` stands for the schema of this test.
    pub(crate) async fn run(&self, sql: &str) {
        let sql = sql.replace("{schema}", self.naming.schema().as_str());
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.pool).await.unwrap();
    }

    fn write_row(&self) -> String {
        format!("INSERT INTO {}.business DEFAULT VALUES", self.naming.schema())
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = sql.replace("{schema}", self.naming.schema().as_str());
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await.unwrap()
    }
}

impl<R: Route> Harness for PostgresHarness<R> {
    type Store = PostgresStore;
    type Transaction = Transaction<'static, Postgres>;

    const HAS_SESSIONS: bool = true;
    const HAS_WAKEUPS: bool = R::IS_DIRECT;
    const HAS_ROW_LOCKS: bool = true;
    const ISOLATION_LEVELS: &'static [&'static str] = &["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

    async fn start(options: StoreOptions) -> Self {
        let naming = fresh_naming();
        let pool = pool(&R::server()).await;
        let options = StoreOptions { naming: naming.clone(), ..options };
        let store = R::open(self::pool(&R::url()).await, options).await.unwrap();
        let harness = Self { naming, pool, store, crowd: OnceCell::new(), route: std::marker::PhantomData };
        harness.run("CREATE SCHEMA IF NOT EXISTS {schema}; CREATE TABLE {schema}.business (id serial)").await;
        harness
    }

    fn store(&self) -> &PostgresStore {
        &self.store
    }

    async fn connect(&self, options: StoreOptions) -> Result<PostgresStore, StoreError> {
        self.connect_as_is(StoreOptions { naming: self.naming.clone(), ..options }).await
    }

    async fn connect_as_is(&self, options: StoreOptions) -> Result<PostgresStore, StoreError> {
        R::open(pool(&R::url()).await, options).await
    }

    async fn advance(&self, by: Duration) {
        let by = format!("interval '{} microseconds'", by.as_micros());
        self.run(&format!(
            "UPDATE {{schema}}.outbox SET created_at = created_at - {by}, due_at = due_at - {by},
                expires_at = expires_at - {by}, locked_until = locked_until - {by};
             UPDATE {{schema}}.outbox_lease SET locked_until = locked_until - {by};
             UPDATE {{schema}}.outbox_shelf SET created_at = created_at - {by}, due_at = due_at - {by},
                expires_at = expires_at - {by}, wake_at = wake_at - {by}, settled_at = settled_at - {by}"
        ))
        .await;
        let inbox = "SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}' AND tablename = 'inbox_ledger'";
        if self.number(inbox).await > 0 {
            self.run(&format!(
                "UPDATE {{schema}}.inbox SET due_at = due_at - {by}, locked_until = locked_until - {by};
                 UPDATE {{schema}}.inbox_shelf SET due_at = due_at - {by}, wake_at = wake_at - {by},
                    settled_at = settled_at - {by};
                 UPDATE {{schema}}.inbox_ledger SET first_seen_at = first_seen_at - {by},
                    last_seen_at = last_seen_at - {by}, locked_until = locked_until - {by}"
            ))
            .await;
        }
        for table in ["receptor", "checkpoint"] {
            let found = format!(
                "SELECT count(*) FROM pg_tables WHERE schemaname = '{{schema}}' AND tablename = 'outbox_{table}'"
            );
            if self.number(&found).await > 0 {
                self.run(&format!("UPDATE {{schema}}.outbox_{table} SET changed_at = changed_at - {by}")).await;
            }
        }
        let pauses = "SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}' AND tablename = 'outbox_pause'";
        if self.number(pauses).await > 0 {
            self.run(&format!("UPDATE {{schema}}.outbox_pause SET paused_at = paused_at - {by}")).await;
        }
        let instances =
            "SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}' AND tablename = 'outbox_instance'";
        if self.number(instances).await > 0 {
            self.run(&format!(
                "UPDATE {{schema}}.outbox_instance SET started_at = started_at - {by}, last_seen_at = last_seen_at - {by}"
            ))
            .await;
        }
    }

    async fn insert_foreign_instance(&self, id: Uuid, metadata: &str, ahead: Duration) {
        let sql = "INSERT INTO {schema}.outbox_instance (id, service, host, pid, metadata, started_at, last_seen_at)
                   VALUES ($1, 'foreign', 'foreign', 0, $2, 'infinity', now() + $3)";
        let sql = sql.replace("{schema}", self.naming.schema().as_str());
        sqlx::query(AssertSqlSafe(sql)).bind(id).bind(metadata).bind(ahead).execute(&self.pool).await.unwrap();
    }

    async fn set_schema_version(&self, version: u32) {
        self.run(&format!(
            "DELETE FROM {{schema}}.schema_version WHERE table_name = 'outbox';
             INSERT INTO {{schema}}.schema_version (table_name, version, name) VALUES ('outbox', {version}, 'by a test')"
        ))
        .await;
    }

    async fn insert_foreign_row(&self, topic: &str, headers: Option<&str>) {
        // The column is jsonb: what is not JSON at all can only be stored as a JSON text.
        let headers = headers.map(|headers| {
            serde_json::from_str(headers).unwrap_or_else(|_| serde_json::Value::String(headers.to_owned())).to_string()
        });
        let sql = "INSERT INTO {schema}.outbox (topic, payload, headers) VALUES ($1, 'foreign', $2::jsonb)";
        let sql = sql.replace("{schema}", self.naming.schema().as_str());
        sqlx::query(AssertSqlSafe(sql)).bind(topic).bind(headers).execute(&self.pool).await.unwrap();
    }

    async fn forget_key_hashes(&self) {
        for table in ["outbox", "outbox_shelf"] {
            self.run(&format!("UPDATE {{schema}}.{table} SET key_hash = NULL")).await;
        }
    }

    async fn set_counters(&self, attempts: u32, lost_lease_count: u32) {
        for table in ["outbox", "outbox_shelf"] {
            self.run(&format!(
                "UPDATE {{schema}}.{table} SET attempts = {attempts}, lost_lease_count = {lost_lease_count}"
            ))
            .await;
        }
    }

    async fn begin(&self) -> Transaction<'static, Postgres> {
        self.pool.begin().await.unwrap()
    }

    async fn begin_at(&self, level: &str) -> Transaction<'static, Postgres> {
        let crowd = self
            .crowd
            .get_or_init(|| async { PgPoolOptions::new().max_connections(32).connect(&R::server()).await.unwrap() });
        crowd.await.begin_with(AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"))).await.unwrap()
    }

    async fn commit_at(&self, tx: Transaction<'static, Postgres>) -> bool {
        tx.commit().await.is_ok()
    }

    async fn enqueue_in(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        enqueue: Enqueue<'_>,
    ) -> Result<Vec<Enqueued>, StoreError> {
        self.store.enqueue_in(tx, enqueue).await
    }

    async fn write_business_row(&self, tx: &mut Transaction<'static, Postgres>) {
        sqlx::query(AssertSqlSafe(self.write_row())).execute(&mut **tx).await.unwrap();
    }

    async fn business_row_count(&self) -> u64 {
        self.number("SELECT count(*) FROM {schema}.business").await.unsigned_abs()
    }

    async fn commit(&self, tx: Transaction<'static, Postgres>) {
        tx.commit().await.unwrap();
    }

    async fn rollback(&self, tx: Transaction<'static, Postgres>) {
        tx.rollback().await.unwrap();
    }

    // Statements of the simple protocol: a pooler takes them as they are.
    async fn write_row_on(&self, tx: &mut PostgresTransaction) {
        sqlx::raw_sql(AssertSqlSafe(self.write_row())).execute(tx.connection()).await.unwrap();
    }

    async fn begin_nested_on(&self, tx: &mut PostgresTransaction) {
        drop(tx.connection().begin().await);
    }

    async fn write_nested_row_on(&self, tx: &mut PostgresTransaction, is_kept: bool) {
        let mut nested = tx.connection().begin().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(self.write_row())).execute(&mut *nested).await.unwrap();
        if is_kept { nested.commit().await.unwrap() } else { nested.rollback().await.unwrap() }
    }

    async fn spoil(&self, tx: &mut PostgresTransaction) {
        sqlx::raw_sql("SELECT 1 / 0").execute(tx.connection()).await.unwrap_err();
    }

    async fn fail_statement(&self, tx: &mut PostgresTransaction) {
        self.spoil(tx).await;
    }

    async fn roll_back_behind(&self, tx: &mut PostgresTransaction) {
        sqlx::raw_sql("ROLLBACK").execute(tx.connection()).await.unwrap();
    }

    async fn session_of(&self, tx: &mut PostgresTransaction) -> Option<u64> {
        let row = sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(tx.connection()).await.unwrap();
        Some(row.get::<i32, _>(0).unsigned_abs().into())
    }

    async fn end_session(&self, session: u64) {
        self.run(&format!("SELECT pg_terminate_backend({session}, 30000)")).await;
    }

    async fn end_listeners(&self) {
        let listening = "query LIKE 'LISTEN %{schema}%'";
        let ended = self
            .number(&format!("SELECT count(pg_terminate_backend(pid, 30000)) FROM pg_stat_activity WHERE {listening}"))
            .await;
        assert!(ended > 0, "somebody listens");
    }
}

/// Names that no other test has.
pub(crate) fn fresh_naming() -> Naming {
    Naming::new(format!("t_{}", &Uuid::new_v4().simple().to_string()[..16]), "outbox").unwrap()
}

/// A small pool: many tests share one server.
pub(crate) async fn pool(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(6).acquire_timeout(Duration::from_secs(30)).connect(url).await.unwrap()
}

/// Defaults, except that claims always look at everything.
pub(crate) fn always_everything() -> StoreOptions {
    StoreOptions { rescan_interval: Duration::ZERO, ..StoreOptions::default() }
}

pub(crate) fn messages(count: usize) -> Vec<Message> {
    (0..count).map(|number| Message::new("topic", number.to_string())).collect()
}

/// Of an owner of its own, for an hour.
pub(crate) fn claim(limit: u32) -> Claim {
    Claim::new(OwnerToken::new(), Duration::from_secs(3600), limit).unwrap()
}

/// A store on the tables of the harness whose sessions begin with these settings.
pub(crate) async fn with_session(
    harness: &PostgresHarness,
    settings: &[(&'static str, &'static str)],
) -> PostgresStore {
    let connect: PgConnectOptions = Direct::url().parse().unwrap();
    let pool = PgPoolOptions::new().max_connections(4).connect_with(connect.options(settings.iter().copied()));
    let options = StoreOptions { naming: harness.naming.clone(), schema: SchemaPolicy::Check, ..always_everything() };
    PostgresStore::with_pool(pool.await.unwrap(), options).await.unwrap()
}

/// A server that takes encrypted connections only; the address demands them, and names the root of its certificate.
pub(crate) fn encrypted_url() -> String {
    variable("PILLARBOX_TEST_POSTGRES_TLS_URL")
}

pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"))
}
