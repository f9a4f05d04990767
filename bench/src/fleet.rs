//! Many stores: one that is busy among 200, beside the same one alone; and what the others cost when nothing happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pillarbox::prelude::{Context, Outbox};
use pillarbox::{Fleet, FleetBuilder};
use pillarbox_core::StoreId;
use pillarbox_core::naming::Naming;
use pillarbox_core::store::{Enqueue, OutboxStore, StoreOptions};
use pillarbox_postgres::PostgresStore;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::sync::Notify;

use crate::postgres;
use crate::report::{Figure, Rate, Report};
use crate::run::Scale;
use crate::store::batches;
use crate::subject::TOPIC;

const STORES: usize = 200;
const DATABASE: &str = "PostgreSQL";

/// How long idle stores are watched.
const WATCHED: Duration = Duration::from_secs(40);

pub(crate) async fn measure(scale: Scale, report: &mut Report) {
    let url = postgres::url();
    // A schema for each tenant on one server, as many have it: they share its connections.
    let pool = PgPoolOptions::new().max_connections(16).connect(&url).await.unwrap();
    let mut outboxes = Vec::new();
    for number in 0..STORES {
        let naming = Naming::new(format!("bench_fleet_{number}"), "outbox").unwrap();
        let store_id = Some(StoreId::new(format!("tenant-{number}")).unwrap());
        let options = StoreOptions { naming, store_id, ..StoreOptions::default() };
        outboxes.push(Outbox::new(PostgresStore::with_pool(pool.clone(), options).await.unwrap()));
    }
    let mut figure = Figure::new(DATABASE, "drain of one busy store", ["alone", "among 200"]);
    for round in 0..=scale.rounds {
        let pair = [drained(&outboxes[..1], scale.messages).await, drained(&outboxes, scale.messages).await];
        if round > 0 {
            figure.add(pair);
        }
    }
    eprintln!("{figure}");
    report.add(figure);
    report.add_rate(Rate::new(DATABASE, "statements of an idle store in a fleet of 200", idle(&outboxes, &url).await));
}

fn fleet_of(outboxes: &[Outbox<PostgresStore>]) -> FleetBuilder {
    let builder = outboxes.iter().enumerate();
    builder
        .fold(Fleet::builder(), |builder, (number, outbox)| builder.store(format!("tenant-{number}").as_str(), outbox))
}

/// Messages per second of the first store.
async fn drained(outboxes: &[Outbox<PostgresStore>], count: usize) -> f64 {
    let busy = outboxes[0].store();
    for batch in batches(count) {
        busy.enqueue(Enqueue::pending(&batch)).await.unwrap();
    }
    let (handled, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let handler = {
        let (handled, all) = (Arc::clone(&handled), Arc::clone(&all));
        move |_: Context| {
            if handled.fetch_add(1, Ordering::Relaxed) + 1 == count {
                all.notify_one();
            }
            async { Ok(()) }
        }
    };
    let start = Instant::now();
    let fleet = fleet_of(outboxes).on_topic(TOPIC, handler).start().await.unwrap();
    all.notified().await;
    let elapsed = start.elapsed();
    fleet.shutdown(Duration::from_secs(5)).await;
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let messages = count as f64;
    messages / elapsed.as_secs_f64()
}

/// Statements per second and store, by the server's own count, once the stores have been idle for a while.
async fn idle(outboxes: &[Outbox<PostgresStore>], url: &str) -> f64 {
    let fleet = fleet_of(outboxes).on_topic(TOPIC, async |_: Context| Ok(())).start().await.unwrap();
    fleet.idle().await;
    tokio::time::sleep(WATCHED).await;
    let server = PgPool::connect(url).await.unwrap();
    let before = transactions(&server).await;
    tokio::time::sleep(WATCHED).await;
    let after = transactions(&server).await;
    fleet.shutdown(Duration::from_secs(5)).await;
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let (statements, stores) = ((after - before) as f64, STORES as f64);
    statements / WATCHED.as_secs_f64() / stores
}

async fn transactions(server: &PgPool) -> i64 {
    let sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    sqlx::query_scalar(sql).fetch_one(server).await.unwrap()
}
