//! What writers pay: an outbox with its runtime in the same process, beside a bare row without any. Bare rows are written as a
//! program with a pool writes them, and also by writers that hold a connection each: a runtime's transactions pass theirs on.

use std::time::{Duration, Instant};

use pillarbox::prelude::{Context, Outbox, Runtime};
use pillarbox_core::retention::Retention;
use pillarbox_core::store::{Enqueue, EnqueueIn};
use sqlx::{AssertSqlSafe, Connection, PgPool, Row};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::postgres;
use crate::report::{Figure, Report};
use crate::run::Scale;
use crate::store::{Backend, message};
use crate::subject::{TOPIC, payload};

const WRITERS: usize = 16;
const CONTENDERS: usize = 5;
const WORK: &str = "16 writers, order and message";

/// The same writers with the store alone, and with a runtime: what is missing in the first is the statement's price.
pub(super) async fn measure(url: &str, scale: Scale, report: &mut Report) {
    if !report.wants(WORK) {
        return;
    }
    // Room for every writer, and for the runtime beside them.
    let connections = u32::try_from(WRITERS + 4).unwrap();
    let outbox = postgres::Outbox::open_with(url, "bench_writers", Retention::Delete, connections).await;
    outbox.create_orders().await;
    let each = (scale.messages / WRITERS).max(100);
    let names = ["bare row, one connection for each", "bare row, deleted by hand", "store, never handled", "runtime"];
    let mut figures = names.map(|name| Figure::new("PostgreSQL", WORK, ["bare row", name]));
    for round in 0..=scale.rounds {
        // In another order each time: whoever comes after a pause finds a rested machine.
        let mut rates = [0.0; CONTENDERS];
        for place in 0..CONTENDERS {
            let contender = (place + round) % CONTENDERS;
            outbox.clear().await;
            rates[contender] = match contender {
                0 => bare(&outbox, each).await,
                1 => bare_without_pool(&outbox, each).await,
                2 => bare_and_deleted(&outbox, each).await,
                3 => through_store(&outbox, each).await,
                _ => with_runtime(&outbox, each).await,
            };
        }
        if round > 0 {
            let [reference, others @ ..] = rates;
            for (figure, rate) in figures.iter_mut().zip(others) {
                figure.add([reference, rate]);
            }
        }
    }
    for figure in figures {
        eprintln!("{figure}");
        report.add(figure);
    }
}

/// Messages that wait for whoever claims them; nobody does.
async fn through_store(outbox: &postgres::Outbox, each: usize) -> f64 {
    let order = outbox.insert_order();
    let start = Instant::now();
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (outbox, order) = (outbox.clone(), order.clone());
        writers.spawn(async move {
            for _ in 0..each {
                let mut tx = outbox.pool.begin().await.unwrap();
                sqlx::query(AssertSqlSafe(order.as_str())).bind(4711_i64).execute(&mut *tx).await.unwrap();
                let message = message();
                let enqueue = Enqueue::pending(std::slice::from_ref(&message)).owned();
                outbox.store.enqueue_in(&mut tx, enqueue).await.unwrap();
                tx.commit().await.unwrap();
            }
        });
    }
    writers.join_all().await;
    per_second(each, start)
}

async fn bare(outbox: &postgres::Outbox, each: usize) -> f64 {
    let start = Instant::now();
    write_bare(outbox, each, &mpsc::unbounded_channel().0, true).await;
    per_second(each, start)
}

/// Writers that never give their connection back, which a pool would test each time.
async fn bare_without_pool(outbox: &postgres::Outbox, each: usize) -> f64 {
    let start = Instant::now();
    write_bare(outbox, each, &mpsc::unbounded_channel().0, false).await;
    per_second(each, start)
}

/// What any outbox must do at the least: somebody takes the rows away again, here by hand, many at a time.
async fn bare_and_deleted(outbox: &postgres::Outbox, each: usize) -> f64 {
    let (written, mut rows) = mpsc::unbounded_channel();
    let (pool, delete) = (outbox.pool.clone(), outbox.delete_bare_rows());
    let start = Instant::now();
    let deleter = tokio::spawn(async move {
        let (mut ids, mut count) = (Vec::new(), 0);
        while rows.recv_many(&mut ids, 500).await > 0 {
            let deleted = sqlx::query(AssertSqlSafe(delete.as_str())).bind(&ids).execute(&pool).await.unwrap();
            count += deleted.rows_affected();
            ids.clear();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        count
    });
    write_bare(outbox, each, &written, true).await;
    drop(written);
    assert_eq!(deleter.await.unwrap(), u64::try_from(WRITERS * each).unwrap());
    per_second(each, start)
}

async fn write_bare(outbox: &postgres::Outbox, each: usize, written: &mpsc::UnboundedSender<i64>, gives_back: bool) {
    let (order, row) = (outbox.insert_order(), outbox.insert_bare_row());
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (pool, order, row): (PgPool, _, _) = (outbox.pool.clone(), order.clone(), row.clone());
        let written = written.clone();
        writers.spawn(async move {
            let mut held = None;
            for _ in 0..each {
                let mut connection = match held.take() {
                    Some(connection) => connection,
                    None => pool.acquire().await.unwrap(),
                };
                let mut tx = connection.begin().await.unwrap();
                sqlx::query(AssertSqlSafe(order.as_str())).bind(4711_i64).execute(&mut *tx).await.unwrap();
                let row = sqlx::query(AssertSqlSafe(row.as_str()))
                    .bind(Uuid::now_v7())
                    .bind(TOPIC)
                    .bind(payload())
                    .bind("application/json")
                    .fetch_one(&mut *tx)
                    .await
                    .unwrap();
                tx.commit().await.unwrap();
                held = (!gives_back).then_some(connection);
                // Nobody listens where rows stay.
                let _ = written.send(row.get(0));
            }
        });
    }
    writers.join_all().await;
}

/// Until everything is settled, so that no work is left uncounted.
async fn with_runtime(outbox: &postgres::Outbox, each: usize) -> f64 {
    let order = outbox.insert_order();
    let outbox = Outbox::new(outbox.store.clone());
    let runtime = Runtime::builder(&outbox).on_topic(TOPIC, async |_: Context| Ok(())).start().await.unwrap();
    runtime.idle().await;
    let start = Instant::now();
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (outbox, order) = (outbox.clone(), order.clone());
        writers.spawn(async move {
            for _ in 0..each {
                let mut tx = outbox.begin().await.unwrap();
                sqlx::query(AssertSqlSafe(order.as_str())).bind(4711_i64).execute(tx.conn()).await.unwrap();
                tx.enqueue(message()).await.unwrap();
                tx.commit().await.unwrap();
            }
        });
    }
    writers.join_all().await;
    runtime.idle().await;
    let rate = per_second(each, start);
    let stats = runtime.stats();
    assert_eq!(stats.done_count, u64::try_from(WRITERS * each).unwrap(), "{stats:?}");
    runtime.shutdown(Duration::ZERO).await;
    rate
}

fn per_second(each: usize, start: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let count = (WRITERS * each) as f64;
    count / start.elapsed().as_secs_f64()
}
