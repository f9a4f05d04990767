//! The server that all contestants share: a database for each, and what it counts.

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, PgConnection};
use std::time::Duration;

/// The private server.
pub(crate) struct Server {
    pub(crate) pool: PgPool,
    connect: PgConnectOptions,
}

/// What the server has counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    wal_bytes: f64,
    transactions: f64,
    dead_tuples: f64,
}

impl Counters {
    /// WAL bytes, transactions and dead tuples since then, each divided.
    pub(crate) fn since(self, before: Self, messages: f64) -> Vec<f64> {
        let differences = [
            self.wal_bytes - before.wal_bytes,
            self.transactions - before.transactions,
            self.dead_tuples - before.dead_tuples,
        ];
        differences.map(|difference| difference / messages).to_vec()
    }
}

impl Server {
    pub(crate) async fn connect(url: &str) -> Self {
        let connect: PgConnectOptions = url.parse().unwrap();
        let pool = PgPoolOptions::new().max_connections(2).connect_with(connect.clone()).await.unwrap();
        Self { pool, connect }
    }

    /// Makes an empty database for a contestant and answers its address.
    pub(crate) async fn make_database(&self, name: &str) -> String {
        let database = database(name);
        self.run(format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)")).await;
        self.run(format!("CREATE DATABASE {database}")).await;
        // With nothing in it that only one language's driver understands.
        let (user, host) = (self.connect.get_username(), self.connect.get_host());
        format!("postgres://{user}@{host}:{}/{database}?sslmode=disable", self.connect.get_port())
    }

    pub(crate) async fn drop_database(&self, name: &str) {
        self.run(format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", database(name))).await;
    }

    /// Lets the server write down and vacuum what it was given, so that no round is measured together with that.
    pub(crate) async fn settle_down(&self, name: &str) {
        let mut session = self.session(name).await;
        session.execute("VACUUM ANALYZE").await.unwrap();
        session.execute("CHECKPOINT").await.unwrap();
    }

    pub(crate) async fn checkpoint(&self) {
        self.run("CHECKPOINT".into()).await;
    }

    /// A transaction that keeps every row version that dies from now on, as long as it is not dropped.
    pub(crate) async fn hold(&self, name: &str) -> PgConnection {
        let mut session = self.session(name).await;
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()").await.unwrap();
        session
    }

    /// Counts of a database once everybody has left it: sessions tell theirs when they end.
    pub(crate) async fn final_counters(&self, name: &str) -> Counters {
        let mut session = self.session(name).await;
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
        while sqlx::query_scalar::<_, i64>(others).fetch_one(&mut session).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(session);
        self.counters(name).await
    }

    /// Counts of a database as far as they are told.
    pub(crate) async fn counters(&self, name: &str) -> Counters {
        let mut session = self.session(name).await;
        let sql = "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8,
            (SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname = current_database()),
            (SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 FROM pg_stat_user_tables)";
        let (wal_bytes, transactions, dead_tuples) = sqlx::query_as(sql).fetch_one(&mut session).await.unwrap();
        Counters { wal_bytes, transactions, dead_tuples }
    }

    async fn session(&self, name: &str) -> PgConnection {
        self.connect.clone().database(&database(name)).connect().await.unwrap()
    }

    async fn run(&self, sql: String) {
        self.pool.execute(AssertSqlSafe(sql)).await.unwrap();
    }
}

fn database(name: &str) -> String {
    // Two, because names may differ in nothing but this.
    format!("contest_{}", name.replace('-', "__"))
}
