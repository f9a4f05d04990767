//! What an idle runtime asks of its database, as the server counts it.

use std::time::Duration;

use pillarbox::prelude::{Context, Outbox, Runtime};
use pillarbox_core::store::StoreOptions;
use pillarbox_postgres::PostgresStore;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection, raw_sql};
use tokio::time::sleep;

use crate::report::{Rate, Report};
use crate::subject::TOPIC;

const WORK: &str = "idle runtime, transactions";
const DATABASE: &str = "bench_idle";

/// Long enough for the polls to have slowed down, and for the server to have counted what came before.
const SETTLE: Duration = Duration::from_secs(35);
const WATCHED: Duration = Duration::from_secs(60);

pub(super) async fn measure(url: &str, report: &mut Report) {
    if !report.wants(WORK) {
        return;
    }
    let mut server = PgConnection::connect(url).await.unwrap();
    // The server's own cleaning would count as well.
    for sql in ["ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()", "DROP DATABASE IF EXISTS bench_idle"] {
        raw_sql(sql).execute(&mut server).await.unwrap();
    }
    raw_sql("CREATE DATABASE bench_idle").execute(&mut server).await.unwrap();
    let connect = url.parse::<PgConnectOptions>().unwrap().database(DATABASE);
    let pool = PgPoolOptions::new().max_connections(8).connect_with(connect).await.unwrap();
    let outbox = Outbox::new(PostgresStore::with_pool(pool.clone(), StoreOptions::default()).await.unwrap());
    let runtime = Runtime::builder(&outbox).on_topic(TOPIC, async |_: Context| Ok(())).start().await.unwrap();
    sleep(SETTLE).await;
    assert!(runtime.stats().has_wakeups, "wake-ups work");
    let before = transactions(&mut server).await;
    sleep(WATCHED).await;
    let count = transactions(&mut server).await - before;
    runtime.shutdown(Duration::ZERO).await;
    drop((runtime, outbox));
    pool.close().await;
    for sql in ["DROP DATABASE bench_idle WITH (FORCE)", "ALTER SYSTEM RESET autovacuum", "SELECT pg_reload_conf()"] {
        raw_sql(sql).execute(&mut server).await.unwrap();
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    report.add_rate(Rate::new("PostgreSQL", WORK, count as f64 / WATCHED.as_secs_f64()));
}

async fn transactions(server: &mut PgConnection) -> i64 {
    sqlx::query_scalar("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1")
        .bind(DATABASE)
        .fetch_one(server)
        .await
        .unwrap()
}
