//! The inbox: what it costs to consume each message once, to look for duplicates, and to drain what was received.

use std::future::Future;
use std::time::{Duration, Instant};

use pillarbox::prelude::*;
use pillarbox::store::SETTLE_MAX;
use pillarbox::{Tx, WithInbox};
use pillarbox_core::retention::Retention;
use sqlx::sqlite::SqliteSynchronous;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::report::{Figure, Report};
use crate::run::Scale;
use crate::store::message;
use crate::subject::BATCH;
use crate::{Db, mysql, postgres, sqlite};

const WRITERS: usize = 8;
const LEASE: Duration = Duration::from_secs(60);

/// A database with a table of the user's.
trait Shop: Clone + Send + Sync + 'static {
    type Store: WithInbox + Clone;

    const NAME: &str;
    /// Writers at once; SQLite has one.
    const WRITERS: usize = WRITERS;

    /// What a consumer does beside remembering: one row, whatever the database.
    fn pay(tx: &mut Tx<Self::Store>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

macro_rules! shop {
    ($name:ident, $store:ty, $called:literal, $writers:expr, $sql:literal) => {
        #[derive(Clone)]
        struct $name;

        impl Shop for $name {
            type Store = $store;

            const NAME: &str = $called;
            const WRITERS: usize = $writers;

            async fn pay(tx: &mut Tx<$store>) -> Result<(), StoreError> {
                sqlx::query($sql).execute(tx.conn()).await.unwrap();
                Ok(())
            }
        }
    };
}

shop!(
    Postgres,
    pillarbox::postgres::PostgresStore,
    "PostgreSQL",
    WRITERS,
    "insert into bench_paid (amount) values (7)"
);
shop!(Mysql, pillarbox::mysql::MysqlStore, "MariaDB", WRITERS, "insert into bench_paid (amount) values (7)");
shop!(Sqlite, pillarbox::sqlite::SqliteStore, "SQLite FULL", 1, "insert into bench_paid (amount) values (7)");

pub(crate) async fn measure(scale: Scale, wanted: impl Fn(Db) -> bool, report: &mut Report) {
    if wanted(Db::Postgres) {
        let outbox = postgres::Outbox::open_with(&postgres::url(), "bench_inbox", Retention::Delete, 16).await;
        let table =
            "DROP TABLE IF EXISTS bench_paid; CREATE TABLE bench_paid (id bigserial PRIMARY KEY, amount bigint)";
        sqlx::raw_sql(table).execute(outbox.store.pool()).await.unwrap();
        compare::<Postgres>(Outbox::new(outbox.store.clone()), scale, report).await;
    }
    if wanted(Db::Mysql) {
        let store = mysql::Outbox::open(&mysql::url(), "bench_inbox", Retention::Delete).await.into_store();
        let table = "CREATE TABLE IF NOT EXISTS bench_paid (id bigint AUTO_INCREMENT PRIMARY KEY, amount bigint)";
        sqlx::raw_sql(table).execute(store.pool()).await.unwrap();
        compare::<Mysql>(Outbox::new(store), scale, report).await;
    }
    if wanted(Db::Sqlite) {
        let file = sqlite::File::open(SqliteSynchronous::Full, Retention::Delete).await;
        let table = "CREATE TABLE bench_paid (id integer PRIMARY KEY, amount integer)";
        sqlx::raw_sql(table).execute(file.store.pool()).await.unwrap();
        compare::<Sqlite>(Outbox::new(file.store.clone()), scale, report).await;
    }
}

async fn compare<D: Shop>(outbox: Outbox<D::Store>, scale: Scale, report: &mut Report) {
    let inbox = outbox.inbox().await.unwrap();
    let each = (scale.messages / 20 / D::WRITERS).max(100);
    let consume = format!("consume once, {} writer(s)", D::WRITERS);
    let mut figures = [
        Figure::new(D::NAME, &consume, ["without an inbox", "consume"]),
        Figure::new(D::NAME, "of duplicates", ["consume once", "look"]),
        Figure::new(D::NAME, "claim + settle, 1 worker", ["outbox", "inbox"]),
    ];
    for round in 0..=scale.rounds {
        let plain = by_writers::<D, _, _>(each, {
            let outbox = outbox.clone();
            move |_| {
                let outbox = outbox.clone();
                async move {
                    let mut tx = outbox.begin().await.unwrap();
                    D::pay(&mut tx).await.unwrap();
                    tx.commit().await.unwrap();
                }
            }
        })
        .await;
        let ids: Vec<String> = (0..each * D::WRITERS).map(|_| Uuid::now_v7().to_string()).collect();
        let receipts = ids.clone();
        let consumed = by_writers::<D, _, _>(each, {
            let inbox = inbox.clone();
            move |number| {
                let (inbox, receipt) = (inbox.clone(), Receipt::new("bench", receipts[number].as_str()));
                async move {
                    let consumed = inbox.consume(receipt, async |tx| D::pay(tx).await).await.unwrap();
                    assert_eq!(consumed, Consumed::Done(()));
                }
            }
        })
        .await;
        let looked = by_writers::<D, _, _>(each, {
            let inbox = inbox.clone();
            move |number| {
                let (inbox, receipt) = (inbox.clone(), Receipt::new("bench", ids[number].as_str()));
                async move { assert!(inbox.store().already_processed(&receipt).await.unwrap().is_processed()) }
            }
        })
        .await;
        let drained = drains(&outbox, &inbox, scale.messages / 5).await;
        if round > 0 {
            for (figure, pair) in figures.iter_mut().zip([[plain, consumed], [consumed, looked], drained]) {
                figure.add(pair);
            }
        }
    }
    for figure in figures {
        eprintln!("{figure}");
        report.add(figure);
    }
}

/// Calls per second of all writers together; each call has a number of its own.
async fn by_writers<D: Shop, F, C>(each: usize, call: C) -> f64
where
    C: Fn(usize) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let start = Instant::now();
    let mut writers = JoinSet::new();
    for writer in 0..D::WRITERS {
        let call = call.clone();
        writers.spawn(async move {
            for number in 0..each {
                call(writer * each + number).await;
            }
        });
    }
    writers.join_all().await;
    per_second(each * D::WRITERS, start)
}

/// The same backlog through both queues.
async fn drains<S: WithInbox>(outbox: &Outbox<S>, inbox: &Inbox<S>, count: usize) -> [f64; 2] {
    for _ in 0..count / BATCH {
        let batch: Vec<_> = (0..BATCH).map(|_| message()).collect();
        outbox.store().enqueue(Enqueue::pending(&batch).owned()).await.unwrap();
        let receipt = || Receipt::new("bench", Uuid::now_v7().to_string());
        let incoming: Vec<_> = (0..BATCH).map(|_| Incoming::new(receipt(), message())).collect();
        inbox.receive(&incoming).await.unwrap();
    }
    [drain(outbox.store()).await, drain(&*inbox.store().queue()).await]
}

async fn drain(store: &(impl OutboxStore + ?Sized)) -> f64 {
    let (owner, mut count, start) = (OwnerToken::new(), 0, Instant::now());
    loop {
        let limit = u32::try_from(BATCH.min(SETTLE_MAX)).unwrap();
        let claimed = store.claim(Claim::new(owner, LEASE, limit).unwrap()).await.unwrap();
        if claimed.is_empty() {
            return per_second(count, start);
        }
        let settlements: Vec<_> = claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
        assert!(store.settle(owner, &settlements).await.unwrap().iter().all(|settled| *settled == Settled::Applied));
        count += claimed.len();
    }
}

fn per_second(count: usize, start: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let count = count as f64;
    count / start.elapsed().as_secs_f64()
}
