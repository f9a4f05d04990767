//! Tables of its own for every test, in one database.

use std::time::Duration;

use pillarbox_core::naming::Naming;
use pillarbox_core::store::{Enqueue, EnqueueIn as _, Enqueued, StoreOptions};
use pillarbox_core::{StoreError, StoreTransaction as _};
use pillarbox_mysql::{MysqlStore, MysqlTransaction};
use pillarbox_testing::Harness;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, MySql, Row as _, Transaction};
use tokio::sync::OnceCell;
use uuid::Uuid;

/// Connections of one pool: many tests run at once, and the server has 300.
const CONNECTIONS_MAX: u32 = 4;

pub(crate) const ROUTINES: [&str; 16] = [
    "require_tx",
    "enqueue_one",
    "enqueue_many",
    "claim_runs",
    "claim_rows",
    "settle_rows",
    "reap_rows",
    "key_hash",
    "enqueue",
    "claim",
    "ack",
    "abandon",
    "fail",
    "reap",
    "settle",
    "exchange",
];

const WRITE_ROW: &str = "INSERT INTO {s}_business () VALUES ()";

/// A store under test, and the connections of a user who is not the store.
pub(crate) struct MysqlHarness {
    store: MysqlStore,
    user: MySqlPool,
    /// Connections for many at once.
    crowd: OnceCell<MySqlPool>,
    naming: Naming,
}

/// The server's address.
pub(crate) fn url() -> String {
    named_url("PILLARBOX_TEST_MYSQL_URL")
}

/// A server that takes encrypted connections only; the address demands them, and names the root of its certificate.
pub(crate) fn encrypted_url() -> String {
    named_url("PILLARBOX_TEST_MYSQL_TLS_URL")
}

fn named_url(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run `cargo xtask test`"))
}

/// Names that no other test has.
pub(crate) fn fresh_naming() -> Naming {
    let unique = uuid::Uuid::now_v7().simple().to_string();
    // The end of the id is random, its beginning tells the time.
    Naming::new(format!("t{}", &unique[18..]), "mail").unwrap()
}

pub(crate) async fn pool() -> MySqlPool {
    MySqlPoolOptions::new()
        .max_connections(CONNECTIONS_MAX)
        .acquire_timeout(Duration::from_secs(120))
        .connect(&url())
        .await
        .expect("the test server is up")
}

impl MysqlHarness {
    pub(crate) fn naming(&self) -> &Naming {
        &self.naming
    }

    pub(crate) fn user(&self) -> &MySqlPool {
        &self.user
    }

    /// Replaces `{t}` by the name of the outbox table.
    pub(crate) fn named(&self, sql: &str) -> String {
        sql.replace("{t}", &self.naming.joined()).replace("{s}", self.naming.schema().as_str())
    }

    /// Runs statements in which `{t}` stands for the name of the outbox table.
    pub(crate) async fn run(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(self.named(sql))).execute(&self.user).await.unwrap();
    }

    /// The lane holds exactly the messages with keys that are live, waiting or dead, and each in its place.
    pub(crate) async fn assert_lane(&self, queue: &str) {
        assert_eq!(self.number(&out_of_lane(queue)).await, 0, "{queue}");
    }

    /// The number that a query answers, with `{t}` as above.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(self.named(sql))).fetch_one(&self.user).await.unwrap()
    }
}

/// Counts messages with keys that are not where the lane of their queue says, and places without a message.
fn out_of_lane(queue: &str) -> String {
    format!(
        "SELECT COUNT(*) FROM (
             SELECT id FROM (
                 SELECT id, message_key, 'live' AS place FROM {queue} WHERE message_key IS NOT NULL
                 UNION ALL
                 SELECT id, message_key, IF(state = 'pending', 'waiting', 'dead') FROM {queue}_shelf
                 WHERE message_key IS NOT NULL AND state <> 'done'
                 UNION ALL
                 SELECT id, message_key, CONCAT(place, '') FROM {queue}_lane
             ) AS places
             GROUP BY id, message_key, place HAVING COUNT(*) <> 2
         ) AS wrong"
    )
}

impl Harness for MysqlHarness {
    type Store = MysqlStore;
    type Transaction = Transaction<'static, MySql>;

    const HAS_SESSIONS: bool = true;
    const HAS_WAKEUPS: bool = false;
    const HAS_ROW_LOCKS: bool = true;
    const ISOLATION_LEVELS: &'static [&'static str] =
        &["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

    async fn start(options: StoreOptions) -> Self {
        let naming = fresh_naming();
        let user = pool().await;
        let store =
            MysqlStore::with_pool(pool().await, StoreOptions { naming: naming.clone(), ..options }).await.unwrap();
        let harness = Self { store, user, crowd: OnceCell::new(), naming };
        harness.run("CREATE TABLE {s}_business (id INT AUTO_INCREMENT PRIMARY KEY, note INT NOT NULL DEFAULT 0)").await;
        let rows = (1..=100).map(|id| format!("({id}, 0)")).collect::<Vec<_>>().join(", ");
        harness.run("CREATE TABLE {s}_deadlock (id INT PRIMARY KEY, note INT NOT NULL)").await;
        harness.run(&format!("INSERT INTO {{s}}_deadlock VALUES {rows}")).await;
        harness
    }

    fn store(&self) -> &MysqlStore {
        &self.store
    }

    async fn connect(&self, options: StoreOptions) -> Result<MysqlStore, StoreError> {
        MysqlStore::with_pool(pool().await, StoreOptions { naming: self.naming.clone(), ..options }).await
    }

    async fn connect_as_is(&self, options: StoreOptions) -> Result<MysqlStore, StoreError> {
        MysqlStore::with_pool(pool().await, options).await
    }

    async fn advance(&self, by: Duration) {
        let by = by.as_micros();
        let back = |columns: &[&str]| {
            let moved = columns.iter().map(|column| format!("{column} = {column} - INTERVAL {by} MICROSECOND"));
            moved.collect::<Vec<_>>().join(", ")
        };
        let live = back(&["created_at", "due_at", "expires_at", "locked_until"]);
        let shelf = back(&["created_at", "due_at", "expires_at", "wake_at", "settled_at"]);
        self.run(&format!("UPDATE {{t}} SET {live}; UPDATE {{t}}_shelf SET {shelf}")).await;
        let inbox = "SELECT COUNT(*) FROM information_schema.tables
                     WHERE table_schema = DATABASE() AND table_name = '{s}_inbox_ledger'";
        if self.number(inbox).await > 0 {
            let ledger = back(&["first_seen_at", "last_seen_at", "locked_until"]);
            self.run(&format!("UPDATE {{s}}_inbox SET {live}; UPDATE {{s}}_inbox_shelf SET {shelf}")).await;
            self.run(&format!("UPDATE {{s}}_inbox_ledger SET {ledger}")).await;
        }
        for table in ["receptor", "checkpoint"] {
            let found = format!(
                "SELECT COUNT(*) FROM information_schema.tables
                 WHERE table_schema = DATABASE() AND table_name = '{{t}}_{table}'"
            );
            if self.number(&found).await > 0 {
                self.run(&format!("UPDATE {{t}}_{table} SET {}", back(&["changed_at"]))).await;
            }
        }
        let pauses = "SELECT COUNT(*) FROM information_schema.tables
                      WHERE table_schema = DATABASE() AND table_name = '{t}_pause'";
        if self.number(pauses).await > 0 {
            self.run(&format!("UPDATE {{t}}_pause SET {}", back(&["paused_at"]))).await;
        }
        let instances = "SELECT COUNT(*) FROM information_schema.tables
                         WHERE table_schema = DATABASE() AND table_name = '{t}_instance'";
        if self.number(instances).await > 0 {
            self.run(&format!("UPDATE {{t}}_instance SET {}", back(&["started_at", "last_seen_at"]))).await;
        }
    }

    async fn insert_foreign_instance(&self, id: Uuid, metadata: &str, ahead: Duration) {
        let sql = "INSERT INTO {t}_instance (id, service, host, pid, metadata, started_at, last_seen_at)
                   VALUES (?, 'foreign', 'foreign', 0, ?, '9999-12-31', UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)";
        let ahead = u64::try_from(ahead.as_micros()).unwrap();
        let insert = sqlx::query(AssertSqlSafe(self.named(sql))).bind(id).bind(metadata).bind(ahead);
        insert.execute(&self.user).await.unwrap();
    }

    async fn set_schema_version(&self, version: u32) {
        let table = "{s}_schema_version";
        self.run(&format!("DELETE FROM {table} WHERE outbox = '{{t}}'")).await;
        let values = format!("('{{t}}', {version}, 'by the test')");
        self.run(&format!("INSERT INTO {table} (outbox, version, name) VALUES {values}")).await;
    }

    async fn insert_foreign_row(&self, topic: &str, headers: Option<&str>) {
        sqlx::query(AssertSqlSafe(self.named("INSERT INTO {t} (topic, payload, headers) VALUES (?, '', ?)")))
            .bind(topic)
            .bind(headers)
            .execute(&self.user)
            .await
            .unwrap();
    }

    async fn forget_key_hashes(&self) {
        for table in ["{t}", "{t}_shelf"] {
            self.run(&format!("UPDATE {table} SET key_hash = NULL")).await;
        }
    }

    async fn set_counters(&self, attempts: u32, lost_lease_count: u32) {
        for table in ["{t}", "{t}_shelf"] {
            self.run(&format!("UPDATE {table} SET attempts = {attempts}, lost_lease_count = {lost_lease_count}")).await;
        }
    }

    async fn begin(&self) -> Transaction<'static, MySql> {
        self.user.begin().await.unwrap()
    }

    async fn begin_at(&self, level: &str) -> Transaction<'static, MySql> {
        let crowd = self
            .crowd
            .get_or_init(|| async { MySqlPoolOptions::new().max_connections(32).connect(&url()).await.unwrap() });
        let begin = format!("SET TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION");
        crowd.await.begin_with(AssertSqlSafe(begin)).await.unwrap()
    }

    async fn commit_at(&self, tx: Transaction<'static, MySql>) -> bool {
        tx.commit().await.is_ok()
    }

    async fn enqueue_in(
        &self,
        tx: &mut Transaction<'static, MySql>,
        enqueue: Enqueue<'_>,
    ) -> Result<Vec<Enqueued>, StoreError> {
        self.store.enqueue_in(tx, enqueue).await
    }

    async fn write_business_row(&self, tx: &mut Transaction<'static, MySql>) {
        sqlx::raw_sql(AssertSqlSafe(self.named(WRITE_ROW))).execute(&mut **tx).await.unwrap();
    }

    async fn business_row_count(&self) -> u64 {
        u64::try_from(self.number("SELECT COUNT(*) FROM {s}_business").await).unwrap()
    }

    async fn commit(&self, tx: Transaction<'static, MySql>) {
        tx.commit().await.unwrap();
    }

    async fn rollback(&self, tx: Transaction<'static, MySql>) {
        // An enqueue that was cut short may have taken the connection with it; the server rolls back then.
        drop(tx.rollback().await);
    }

    async fn write_row_on(&self, tx: &mut MysqlTransaction) {
        sqlx::raw_sql(AssertSqlSafe(self.named(WRITE_ROW))).execute(tx.connection()).await.unwrap();
    }

    async fn begin_nested_on(&self, tx: &mut MysqlTransaction) {
        drop(tx.connection().begin().await);
    }

    async fn write_nested_row_on(&self, tx: &mut MysqlTransaction, is_kept: bool) {
        let mut nested = tx.connection().begin().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(self.named(WRITE_ROW))).execute(&mut *nested).await.unwrap();
        if is_kept { nested.commit().await.unwrap() } else { nested.rollback().await.unwrap() }
    }

    /// A deadlock. The server takes the transaction that has changed less as its victim.
    async fn spoil(&self, tx: &mut MysqlTransaction) {
        let update =
            |ids: &str| AssertSqlSafe(self.named(&format!("UPDATE {{s}}_deadlock SET note = note + 1 WHERE {ids}")));
        let mut heavy = self.user.begin().await.unwrap();
        sqlx::raw_sql(update("id >= 2")).execute(&mut *heavy).await.unwrap();
        sqlx::raw_sql(update("id = 1")).execute(tx.connection()).await.unwrap();
        let wins = sqlx::raw_sql(update("id = 1")).execute(&mut *heavy);
        let loses = sqlx::raw_sql(update("id = 2")).execute(tx.connection());
        let (won, lost) = tokio::join!(wins, loses);
        won.unwrap();
        lost.unwrap_err();
        heavy.rollback().await.unwrap();
    }

    async fn fail_statement(&self, tx: &mut MysqlTransaction) {
        let twice = AssertSqlSafe(self.named("INSERT INTO {s}_business (id) VALUES (-1), (-1)"));
        sqlx::raw_sql(twice).execute(tx.connection()).await.unwrap_err();
    }

    async fn roll_back_behind(&self, tx: &mut MysqlTransaction) {
        sqlx::raw_sql("ROLLBACK").execute(tx.connection()).await.unwrap();
    }

    async fn session_of(&self, tx: &mut MysqlTransaction) -> Option<u64> {
        let row = sqlx::raw_sql("SELECT CONNECTION_ID()").fetch_one(tx.connection()).await.unwrap();
        Some(row.try_get_unchecked(0).unwrap())
    }

    async fn end_session(&self, session: u64) {
        self.run(&format!("KILL {session}")).await;
        let alive = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {session}");
        while self.number(&alive).await > 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn end_listeners(&self) {
        unreachable!("nobody listens to MySQL");
    }
}

// Best effort, from a thread of its own, because the test's runtime may be on its way out.
impl Drop for MysqlHarness {
    fn drop(&mut self) {
        let tables =
            self.named("DROP TABLE IF EXISTS {t}, {t}_shelf, {t}_lane, {t}_claimed, {s}_schema_version, {s}_business, {s}_deadlock");
        let inbox = self.named(
            "DROP TABLE IF EXISTS {s}_inbox, {s}_inbox_shelf, {s}_inbox_lane, {s}_inbox_claimed, {s}_inbox_ledger",
        );
        let drop_routine = |queue: &str| {
            let named = |routine| self.named(&format!("DROP PROCEDURE IF EXISTS {queue}_{routine}"));
            ROUTINES.map(named)
        };
        let routines = [drop_routine("{t}"), drop_routine("{s}_inbox")].concat();
        let lanes = ["{t}", "{s}_inbox"].map(|queue| self.named(&out_of_lane(queue)));
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                use sqlx::Connection as _;
                let mut connection = sqlx::MySqlConnection::connect(&url()).await.map_err(std::io::Error::other)?;
                let mut out_of_lane = 0;
                for sql in lanes {
                    // Not every test has an inbox.
                    let count = sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql)).fetch_one(&mut connection).await;
                    out_of_lane += count.unwrap_or(0);
                }
                // A connection of the test may still hold a table; it is left behind then.
                let patience = "SET SESSION lock_wait_timeout = 2".to_owned();
                for sql in [patience, tables, inbox].into_iter().chain(routines) {
                    drop(sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await);
                }
                connection.close().await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(out_of_lane)
            })
        });
        // Whatever a test did by the library has left the lanes in order.
        if let Ok(Ok(out_of_lane)) = dropping.join()
            && !std::thread::panicking()
        {
            assert_eq!(out_of_lane, 0, "rows that are not where the lane says");
        }
    }
}
