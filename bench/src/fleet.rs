//! Many stores: one that is busy among 200, beside the same one alone; and what the others cost when nothing happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pillarbox::prelude::{Context, Message, Outbox};
use pillarbox::{Fleet, FleetBuilder};
use pillarbox_core::StoreId;
use pillarbox_core::naming::Naming;
use pillarbox_core::store::{Enqueue, EnqueueIn, OutboxStore, StoreOptions};
use pillarbox_postgres::PostgresStore;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::sync::Notify;

use crate::postgres;
use crate::report::{Delays, Figure, Rate, Report};
use crate::run::Scale;
use crate::store::batches;
use crate::subject::TOPIC;

const STORES: usize = 200;
const DATABASE: &str = "PostgreSQL";
const IDLE: &str = "statements of an idle store in a fleet of 200";

/// How long idle stores are watched.
const WATCHED: Duration = Duration::from_secs(60);

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
    busy_beside_idle(&outboxes, &pool, scale, report).await;
    if report.wants(IDLE) {
        report.add_rate(Rate::new(DATABASE, IDLE, idle(&outboxes, &url).await));
    }
}

/// The rate counts from the moment the backlog is there, in fleets that run: both have looked at all of their stores before.
/// What the start takes stands beside it, and so does a drain from the start on: a fleet of one has little of it.
async fn busy_beside_idle(outboxes: &[Outbox<PostgresStore>], pool: &PgPool, scale: Scale, report: &mut Report) {
    let mut running = Figure::new(DATABASE, "drain of one busy store", ["alone", "among 200"]);
    let mut starting = Figure::new(DATABASE, "the same from the start of the fleet", ["alone", "among 200"]);
    let mut starts = [Vec::new(), Vec::new()];
    for round in 0..=scale.rounds {
        let [alone, among] = [&outboxes[..1], outboxes];
        let [(one, first), (other, second)] =
            [drained(alone, pool, scale.messages).await, drained(among, pool, scale.messages).await];
        let from_start = [started(alone, scale.messages).await, started(among, scale.messages).await];
        if round > 0 {
            running.add([one, other]);
            starting.add(from_start);
            starts[0].push(first);
            starts[1].push(second);
        }
    }
    for figure in [running, starting] {
        eprintln!("{figure}");
        report.add(figure);
    }
    for (name, took) in ["start of a fleet of one store", "start of a fleet of 200 stores"].into_iter().zip(starts) {
        report.add_delays(Delays::new(DATABASE, name, took.into_iter().map(|took| took.as_secs_f64() * 1e6)));
    }
}

fn fleet_of(outboxes: &[Outbox<PostgresStore>]) -> FleetBuilder {
    let builder = outboxes.iter().enumerate();
    builder
        .fold(Fleet::builder(), |builder, (number, outbox)| builder.store(format!("tenant-{number}").as_str(), outbox))
}

/// Counts what is handled, up to a number.
#[derive(Clone)]
struct Countdown {
    handled: Arc<AtomicUsize>,
    all: Arc<Notify>,
    count: usize,
}

impl Countdown {
    fn of(count: usize) -> Self {
        Self { handled: Arc::default(), all: Arc::default(), count }
    }

    async fn fleet(&self, outboxes: &[Outbox<PostgresStore>]) -> Fleet {
        let countdown = self.clone();
        let handler = move |_: Context| {
            if countdown.handled.fetch_add(1, Ordering::Relaxed) + 1 == countdown.count {
                countdown.all.notify_one();
            }
            async { Ok(()) }
        };
        fleet_of(outboxes).on_topic(TOPIC, handler).start().await.unwrap()
    }

    /// Messages per second once all are handled, and the end of the fleet.
    async fn ended(&self, since: Instant, fleet: Fleet) -> f64 {
        self.all.notified().await;
        let elapsed = since.elapsed();
        fleet.shutdown(Duration::from_secs(5)).await;
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let messages = self.count as f64;
        messages / elapsed.as_secs_f64()
    }
}

/// Messages per second of the first store in a fleet that runs, and how long its start took until every store was seen idle.
async fn drained(outboxes: &[Outbox<PostgresStore>], pool: &PgPool, count: usize) -> (f64, Duration) {
    let countdown = Countdown::of(count + 1);
    let begun = Instant::now();
    let fleet = countdown.fleet(outboxes).await;
    fleet.idle().await;
    let start = begun.elapsed();
    let mut tx = pool.begin().await.unwrap();
    for batch in batches(count) {
        outboxes[0].store().enqueue_in(&mut tx, Enqueue::pending(&batch)).await.unwrap();
    }
    tx.commit().await.unwrap();
    let since = Instant::now();
    // Written by others, so it lies in the store; a message with a key is claimed, and brings the news.
    outboxes[0].enqueue_now(Message::new(TOPIC, "the last one").key("news")).await.unwrap();
    (countdown.ended(since, fleet).await, start)
}

/// Messages per second of the first store from the start of the fleet on, the first look at all stores included.
async fn started(outboxes: &[Outbox<PostgresStore>], count: usize) -> f64 {
    for batch in batches(count) {
        outboxes[0].store().enqueue(Enqueue::pending(&batch)).await.unwrap();
    }
    let countdown = Countdown::of(count);
    let since = Instant::now();
    let fleet = countdown.fleet(outboxes).await;
    countdown.ended(since, fleet).await
}

/// Statements per second and store, by the server's own count, once the stores have been idle for a while. What the server
/// counts when nobody asks for anything, its own cleaning, is taken off.
async fn idle(outboxes: &[Outbox<PostgresStore>], url: &str) -> f64 {
    let fleet = fleet_of(outboxes).on_topic(TOPIC, async |_: Context| Ok(())).start().await.unwrap();
    fleet.idle().await;
    tokio::time::sleep(WATCHED).await;
    let server = PgPool::connect(url).await.unwrap();
    let served = watched(&server).await;
    fleet.shutdown(Duration::from_secs(5)).await;
    let alone = watched(&server).await;
    eprintln!("{served} transactions in {WATCHED:?}, and {alone} when nobody asks");
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let (statements, stores) = ((served - alone) as f64, STORES as f64);
    statements / WATCHED.as_secs_f64() / stores
}

async fn watched(server: &PgPool) -> i64 {
    let before = transactions(server).await;
    tokio::time::sleep(WATCHED).await;
    transactions(server).await - before
}

async fn transactions(server: &PgPool) -> i64 {
    let sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    sqlx::query_scalar(sql).fetch_one(server).await.unwrap()
}
