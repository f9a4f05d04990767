//! From a commit in one process to the start of its handler in another: this program starts itself as the worker.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pillarbox::prelude::{Context, MessageId, Outbox, Runtime};
use pillarbox_core::naming::Naming;
use pillarbox_core::retention::Retention;
use pillarbox_core::store::StoreOptions;
use pillarbox_postgres::PostgresStore;
use sqlx::AssertSqlSafe;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::MissedTickBehavior;

use crate::postgres;
use crate::report::{Delays, Report};
use crate::store::message;
use crate::subject::TOPIC;

/// Transactions per second, and how many are measured. The slow ones find the worker asleep.
const RATES: [(u32, usize); 2] = [(50, 1000), (500, 5000)];

const SCHEMA: &str = "bench_across";

pub(super) async fn measure(url: &str, report: &mut Report) {
    for (rate, count) in RATES {
        let work = format!("commit to handler, across processes, {rate}/s");
        if report.wants(&work) {
            let delays = between(url, rate, count).await;
            report.add_delays(Delays::new("PostgreSQL", &work, delays.into_iter()));
        }
    }
}

/// Microseconds from the end of each commit to the start of its handler in the other process.
async fn between(url: &str, rate: u32, count: usize) -> Vec<f64> {
    let outbox = postgres::Outbox::open(url, SCHEMA, Retention::Delete).await;
    outbox.create_orders().await;
    let sql = outbox.insert_order();
    let mut worker = start_worker();
    let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("listening"));
    let writer = Outbox::new(outbox.store.clone());
    let commits = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut commits = Vec::with_capacity(count);
        for _ in 0..count {
            ticks.tick().await;
            let mut tx = writer.begin().await.unwrap();
            sqlx::query(AssertSqlSafe(sql.as_str())).bind(4711_i64).execute(tx.conn()).await.unwrap();
            let id = tx.enqueue(message()).await.unwrap().message_id;
            tx.commit().await.unwrap();
            commits.push((id, nanos()));
        }
        commits
    });
    let commits = commits.await.unwrap();
    // The end of its input tells the worker to finish and to say what it saw.
    drop(worker.stdin.take());
    let mut started = HashMap::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        let (id, at) = line.split_once(' ').unwrap();
        started.insert(id.to_owned(), at.parse::<i64>().unwrap());
    }
    assert!(worker.wait().await.unwrap().success());
    #[expect(clippy::cast_precision_loss, reason = "differences far below 2^52")]
    let late = |(id, over): &(MessageId, i64)| (started[&id.to_string()] - over) as f64 / 1e3;
    commits.iter().map(late).collect()
}

fn start_worker() -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    command.spawn().unwrap()
}

/// The other process: handles until its input ends, then prints when each handler began.
pub(crate) async fn work() {
    let naming = Naming::new(SCHEMA, "outbox").unwrap();
    let options = StoreOptions { naming, retention: Retention::Delete, ..StoreOptions::default() };
    let outbox = Outbox::new(PostgresStore::connect(&postgres::url(), options).await.unwrap());
    let started: Arc<Mutex<Vec<(MessageId, i64)>>> = Arc::default();
    let seen = Arc::clone(&started);
    let runtime = Runtime::builder(&outbox)
        .on_topic(TOPIC, move |cx: Context| {
            seen.lock().unwrap().push((cx.message_id(), nanos()));
            async { Ok(()) }
        })
        .start()
        .await
        .unwrap();
    while !runtime.stats().has_wakeups {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("listening");
    tokio::io::stdin().read_to_end(&mut Vec::new()).await.unwrap();
    runtime.idle().await;
    runtime.shutdown(Duration::ZERO).await;
    for (id, at) in started.lock().unwrap().iter() {
        println!("{id} {at}");
    }
}

/// The clock that all processes of one machine share.
pub(crate) fn nanos() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}
