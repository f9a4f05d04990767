//! A file of its own for every test.

use std::path::PathBuf;
use std::time::Duration;

use pillarbox_core::naming::Naming;
use pillarbox_core::store::{Enqueue, EnqueueIn, Enqueued, StoreOptions};
use pillarbox_core::{StoreError, StoreTransaction};
use pillarbox_sqlite::{SqliteStore, SqliteTransaction};
use pillarbox_testing::Harness;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{AssertSqlSafe, Connection, Sqlite, SqlitePool, Transaction};
use tempfile::TempDir;
use uuid::Uuid;

/// Tests have few messages: two beside each other are a stretch.
const STRETCH_MIN: u32 = 2;

const WRITE_ROW: &str = "INSERT INTO business (note) VALUES ('x')";

pub(crate) struct SqliteHarness {
    store: SqliteStore,
    /// Connections of the user, who is not the store.
    user: SqlitePool,
    naming: Naming,
    directory: TempDir,
}

impl SqliteHarness {
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("outbox.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    pub(crate) fn user(&self) -> &SqlitePool {
        &self.user
    }

    /// Replaces `{t}` by the name of the outbox table.
    pub(crate) fn named(&self, sql: &str) -> String {
        sql.replace("{t}", &self.naming.joined())
    }

    /// Runs statements in which `{t}` stands for the name of the outbox table.
    pub(crate) async fn run(&self, sql: &str) {
        let mut tx = self.user.begin_with("BEGIN IMMEDIATE").await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(self.named(sql))).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// The number that a query answers, with `{t}` as above.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = sql.replace("{t}", &self.naming.joined());
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.user).await.unwrap()
    }
}

impl Harness for SqliteHarness {
    type Store = SqliteStore;
    type Transaction = Transaction<'static, Sqlite>;

    const HAS_SESSIONS: bool = false;
    const HAS_WAKEUPS: bool = false;
    const HAS_ROW_LOCKS: bool = false;
    const ISOLATION_LEVELS: &'static [&'static str] = &["DEFERRED"];

    async fn start(options: StoreOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/outbox.db", directory.path().display());
        // Not the default names: a statement that forgets to use the configured ones is noticed.
        let naming = Naming::new("test", "mail").unwrap();
        let store = SqliteStore::connect(&url, StoreOptions { naming: naming.clone(), ..options }).await.unwrap();
        let user =
            SqlitePoolOptions::new().max_connections(64).connect_with(SqliteStore::connect_options(&url).unwrap());
        let user = user.await.unwrap();
        store.lease_stretches_from(STRETCH_MIN);
        sqlx::query("CREATE TABLE business (id INTEGER PRIMARY KEY, note BLOB)").execute(&user).await.unwrap();
        Self { store, user, naming, directory }
    }

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    async fn connect(&self, options: StoreOptions) -> Result<SqliteStore, StoreError> {
        self.connect_as_is(StoreOptions { naming: self.naming.clone(), ..options }).await
    }

    async fn connect_as_is(&self, options: StoreOptions) -> Result<SqliteStore, StoreError> {
        let store = SqliteStore::connect(&self.url(), options).await?;
        store.lease_stretches_from(STRETCH_MIN);
        Ok(store)
    }

    async fn advance(&self, by: Duration) {
        let by = by.as_micros();
        self.run(&format!(
            "UPDATE {{t}} SET created_at = created_at - {by}, due_at = due_at - {by}, expires_at = expires_at - {by},
                              locked_until = locked_until - {by};
             UPDATE {{t}}_lease SET locked_until = locked_until - {by};
             UPDATE {{t}}_shelf SET created_at = created_at - {by}, due_at = due_at - {by},
                              expires_at = expires_at - {by}, wake_at = wake_at - {by}, settled_at = settled_at - {by};"
        ))
        .await;
        let has_inbox = "SELECT count(*) FROM sqlite_master WHERE name = 'test_inbox_ledger'";
        if self.number(has_inbox).await > 0 {
            self.run(&format!(
                "UPDATE test_inbox SET due_at = due_at - {by}, locked_until = locked_until - {by};
                 UPDATE test_inbox_shelf SET due_at = due_at - {by}, wake_at = wake_at - {by},
                                  settled_at = settled_at - {by};
                 UPDATE test_inbox_ledger SET first_seen_at = first_seen_at - {by},
                                  last_seen_at = last_seen_at - {by}, locked_until = locked_until - {by};"
            ))
            .await;
        }
        for table in ["receptor", "checkpoint"] {
            let has_table = format!("SELECT count(*) FROM sqlite_master WHERE name = '{{t}}_{table}'");
            if self.number(&has_table).await > 0 {
                self.run(&format!("UPDATE {{t}}_{table} SET changed_at = changed_at - {by};")).await;
            }
        }
        if self.number("SELECT count(*) FROM sqlite_master WHERE name = '{t}_pause'").await > 0 {
            self.run(&format!("UPDATE {{t}}_pause SET paused_at = paused_at - {by};")).await;
        }
        let has_instances = "SELECT count(*) FROM sqlite_master WHERE name = '{t}_instance'";
        if self.number(has_instances).await > 0 {
            self.run(&format!(
                "UPDATE {{t}}_instance SET started_at = started_at - {by}, last_seen_at = last_seen_at - {by};"
            ))
            .await;
        }
    }

    async fn insert_foreign_instance(&self, id: Uuid, metadata: &str, ahead: Duration) {
        let sql = format!(
            "INSERT INTO {}_instance (id, service, host, pid, metadata, started_at, last_seen_at)
             SELECT ?1, 'foreign', 'foreign', 0, ?2, now, now + ?3 FROM {}_now",
            self.naming.joined(),
            self.naming.joined()
        );
        let ahead = i64::try_from(ahead.as_micros()).unwrap();
        sqlx::query(AssertSqlSafe(sql)).bind(id).bind(metadata).bind(ahead).execute(&self.user).await.unwrap();
    }

    async fn set_schema_version(&self, version: u32) {
        self.run(&format!(
            "DELETE FROM test_schema_version WHERE outbox = '{{t}}';
             INSERT INTO test_schema_version (outbox, version, name) VALUES ('{{t}}', {version}, 'test');"
        ))
        .await;
    }

    async fn insert_foreign_row(&self, topic: &str, headers: Option<&str>) {
        let columns = if headers.is_some() { "topic, payload, headers" } else { "topic, payload" };
        let values = if headers.is_some() { "?1, 'foreign', ?2" } else { "?1, 'foreign'" };
        let sql = format!("INSERT INTO {} ({columns}) VALUES ({values})", self.naming.joined());
        sqlx::query(AssertSqlSafe(sql)).bind(topic).bind(headers).execute(&self.user).await.unwrap();
    }

    async fn forget_key_hashes(&self) {
        self.run("UPDATE {t} SET key_hash = NULL; UPDATE {t}_shelf SET key_hash = NULL;").await;
    }

    async fn set_counters(&self, attempts: u32, lost_lease_count: u32) {
        let (attempts, lost) = (attempts.min(i32::MAX as u32), lost_lease_count.min(i32::MAX as u32));
        self.run(&format!(
            "UPDATE {{t}} SET attempts = {attempts}, lost_lease_count = {lost};
             UPDATE {{t}}_shelf SET attempts = {attempts}, lost_lease_count = {lost};"
        ))
        .await;
    }

    async fn begin(&self) -> Self::Transaction {
        // Deferred, as a user's plain `begin` is: it writes first and so cannot lose its snapshot.
        self.user.begin().await.unwrap()
    }

    async fn begin_at(&self, level: &str) -> Self::Transaction {
        self.user.begin_with(AssertSqlSafe(format!("BEGIN {level}"))).await.unwrap()
    }

    async fn commit_at(&self, tx: Self::Transaction) -> bool {
        tx.commit().await.is_ok()
    }

    async fn enqueue_in(&self, tx: &mut Self::Transaction, enqueue: Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
        self.store.enqueue_in(tx, enqueue).await
    }

    async fn write_business_row(&self, tx: &mut Self::Transaction) {
        sqlx::query(WRITE_ROW).execute(&mut **tx).await.unwrap();
    }

    async fn business_row_count(&self) -> u64 {
        u64::try_from(self.number("SELECT count(*) FROM business").await).unwrap()
    }

    async fn commit(&self, tx: Self::Transaction) {
        tx.commit().await.unwrap();
    }

    async fn rollback(&self, tx: Self::Transaction) {
        tx.rollback().await.unwrap();
    }

    async fn write_row_on(&self, tx: &mut SqliteTransaction) {
        sqlx::query(WRITE_ROW).execute(tx.connection()).await.unwrap();
    }

    async fn begin_nested_on(&self, tx: &mut SqliteTransaction) {
        drop(tx.connection().begin().await);
    }

    async fn write_nested_row_on(&self, tx: &mut SqliteTransaction, is_kept: bool) {
        let mut nested = tx.connection().begin().await.unwrap();
        sqlx::query(WRITE_ROW).execute(&mut *nested).await.unwrap();
        if is_kept { nested.commit().await.unwrap() } else { nested.rollback().await.unwrap() }
    }

    async fn spoil(&self, tx: &mut SqliteTransaction) {
        // One of the errors after which SQLite rolls back by itself.
        let twice = sqlx::query("INSERT OR ROLLBACK INTO business (id) VALUES (-1), (-1)");
        twice.execute(tx.connection()).await.unwrap_err();
    }

    async fn fail_statement(&self, tx: &mut SqliteTransaction) {
        let twice = sqlx::query("INSERT INTO business (id) VALUES (-1), (-1)");
        twice.execute(tx.connection()).await.unwrap_err();
    }

    async fn roll_back_behind(&self, tx: &mut SqliteTransaction) {
        sqlx::query("ROLLBACK").execute(tx.connection()).await.unwrap();
    }

    async fn session_of(&self, _: &mut SqliteTransaction) -> Option<u64> {
        None
    }

    async fn end_session(&self, _: u64) {
        unreachable!("no session stands behind a transaction of SQLite");
    }

    async fn end_listeners(&self) {
        unreachable!("nobody listens to SQLite");
    }
}
