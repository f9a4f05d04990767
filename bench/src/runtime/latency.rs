//! From a commit to the start of its handler, in one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pillarbox::prelude::{Context, MessageId, Outbox, Runtime};
use pillarbox_core::retention::Retention;
use pillarbox_core::store::BoxFuture;
use pillarbox_core::{StoreTransaction, Transactional};
use sqlx::AssertSqlSafe;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::postgres;
use crate::report::{Delays, Report};
use crate::sqlite::File;
use crate::store::message;
use crate::subject::TOPIC;

/// Transactions per second, how many of them are measured, and how many before them are not.
const RATE: u32 = 500;
const COUNT: usize = 5000;
const WARM_UP: usize = 500;

const WORK: &str = "commit to handler, in process, 500/s";

pub(super) async fn postgres(url: &str, report: &mut Report) {
    if !report.wants(WORK) {
        return;
    }
    let outbox = postgres::Outbox::open(url, "bench_latency", Retention::Delete).await;
    outbox.create_orders().await;
    let sql = outbox.insert_order();
    in_process("PostgreSQL", Outbox::new(outbox.store.clone()), report, move |connection| {
        let sql = AssertSqlSafe(sql.clone());
        Box::pin(async move {
            sqlx::query(sql).bind(4711_i64).execute(connection).await.unwrap();
        })
    })
    .await;
}

pub(super) async fn sqlite(file: File, report: &mut Report) {
    if !report.wants(WORK) {
        return;
    }
    file.create_orders().await;
    let sql = "INSERT INTO orders (customer) VALUES (?)";
    in_process("SQLite", Outbox::new(file.store.clone()), report, move |connection| {
        Box::pin(async move {
            sqlx::query(sql).bind(4711_i64).execute(connection).await.unwrap();
        })
    })
    .await;
}

/// When a commit was begun and when it was over.
#[derive(Clone, Copy)]
struct Commit {
    begun: Instant,
    over: Instant,
}

type Connection<S> = <<S as Transactional>::Transaction as StoreTransaction<S>>::Connection;

async fn in_process<S, F>(database: &str, outbox: Outbox<S>, report: &mut Report, business: F)
where
    S: Transactional,
    F: for<'a> Fn(&'a mut Connection<S>) -> BoxFuture<'a, ()> + Send + Sync + 'static,
{
    let started: Arc<Mutex<HashMap<MessageId, Instant>>> = Arc::default();
    let seen = Arc::clone(&started);
    let runtime = Runtime::builder(&outbox)
        .on_topic(TOPIC, move |cx: Context| {
            seen.lock().unwrap().insert(cx.message_id(), Instant::now());
            async { Ok(()) }
        })
        .start()
        .await
        .unwrap();
    let (bell, rung) = mpsc::unbounded_channel();
    let hops = tokio::spawn(hops(rung));
    let commits = tokio::spawn(commits(outbox, business, bell)).await.unwrap();
    runtime.idle().await;
    runtime.shutdown(Duration::ZERO).await;
    let started = std::mem::take(&mut *started.lock().unwrap());
    let measured = &commits[WARM_UP..];
    let micros = |from: Instant, to: Instant| {
        let late = to.saturating_duration_since(from).as_secs_f64();
        // A handler may run before the writer is told of its own commit.
        (late - from.saturating_duration_since(to).as_secs_f64()) * 1e6
    };
    let alone = measured.iter().map(|(_, commit)| micros(commit.begun, commit.over));
    report.add_delays(Delays::new(database, &format!("{WORK}: the commit alone"), alone));
    let handed = measured.iter().map(|(id, commit)| micros(commit.over, started[id]));
    report.add_delays(Delays::new(database, &format!("{WORK}: from its end to the handler"), handed));
    let hops = hops.await.unwrap().into_iter().skip(WARM_UP).map(|hop| hop.as_secs_f64() * 1e6);
    report.add_delays(Delays::new(database, &format!("{WORK}: from its end to a task that waits for a channel"), hops));
}

/// The least that a hand-over to another task can cost here: nothing but a channel.
async fn hops(mut rung: mpsc::UnboundedReceiver<Instant>) -> Vec<Duration> {
    let mut hops = Vec::with_capacity(WARM_UP + COUNT);
    while let Some(at) = rung.recv().await {
        hops.push(at.elapsed());
    }
    hops
}

/// Begin, a statement of the user's, enqueue, commit; at a fixed rate. In turn with the same without a message, after
/// which a bell is rung instead.
async fn commits<S, F>(outbox: Outbox<S>, business: F, bell: mpsc::UnboundedSender<Instant>) -> Vec<(MessageId, Commit)>
where
    S: Transactional,
    F: for<'a> Fn(&'a mut Connection<S>) -> BoxFuture<'a, ()>,
{
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / RATE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut commits = Vec::with_capacity(WARM_UP + COUNT);
    for _ in 0..WARM_UP + COUNT {
        ticks.tick().await;
        let mut tx = outbox.begin().await.unwrap();
        business(tx.conn()).await;
        let id = tx.enqueue(message()).await.unwrap().message_id;
        let begun = Instant::now();
        tx.commit().await.unwrap();
        commits.push((id, Commit { begun, over: Instant::now() }));
        ticks.tick().await;
        let mut tx = outbox.begin().await.unwrap();
        business(tx.conn()).await;
        tx.commit().await.unwrap();
        bell.send(Instant::now()).unwrap();
    }
    commits
}
