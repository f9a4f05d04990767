//! SQLite: the store beside raw statements, with `synchronous = FULL` and `NORMAL`.

mod batch_leases;

use std::fmt::Write;
use std::sync::Arc;

use pillarbox_core::message::Message;
use pillarbox_core::retention::{KEEP_DEFAULT, Retention};
use pillarbox_core::store::{Enqueue, EnqueueIn, StoreOptions};
use pillarbox_sqlite::SqliteStore;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions, SqliteRow, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection, Row, Sqlite, SqliteConnection};
use tempfile::TempDir;
use uuid::Uuid;

use batch_leases::BatchLeases;

use crate::report::Report;
use crate::run::{Scale, Work, compare};
use crate::store::{Backend, Begun, Through};
use crate::subject::{BATCH, ENQUEUE_BATCH, Subject, TOPIC, payload};

/// One writer at a time: a second worker only waits.
const WORKS: [Work; 4] = [
    Work::EnqueueSingle { writers: 1 },
    Work::EnqueueBatched,
    Work::Drain { workers: 1 },
    Work::Exchange { workers: 1 },
];

pub(crate) async fn measure(scale: Scale, report: &mut Report) {
    for (name, synchronous) in [("SQLite FULL", SqliteSynchronous::Full), ("SQLite NORMAL", SqliteSynchronous::Normal)]
    {
        let store = File::open(synchronous, Retention::Delete).await;
        let raw = Raw { file: store.clone(), asks: false };
        compare(report, name, &WORKS, ["raw", "store"], &raw, &Through(store.clone()), scale).await;
        let lean = BatchLeases::open(synchronous).await;
        let exchange = [Work::Exchange { workers: 1 }];
        compare(report, name, &exchange, ["batch leases", "store"], &lean, &Through(store.clone()), scale).await;
        let single = [Work::EnqueueSingle { writers: 1 }];
        let asking = Raw { file: store.clone(), asks: true };
        compare(report, name, &single, ["raw, asking", "store"], &asking, &Through(store.clone()), scale).await;
        compare(report, name, &single, ["raw", "begun by the store"], &raw, &Begun(store.clone()), scale).await;
        let keeping = File::open(synchronous, Retention::Message(KEEP_DEFAULT)).await;
        let receipts = File::open(synchronous, Retention::Receipt(KEEP_DEFAULT)).await;
        compare(
            report,
            name,
            &exchange,
            ["deleted", "receipt kept"],
            &Through(store.clone()),
            &Through(receipts),
            scale,
        )
        .await;
        compare(report, name, &exchange, ["deleted", "message kept"], &Through(store), &Through(keeping), scale).await;
    }
}

#[derive(Clone)]
pub(crate) struct File {
    pub(crate) store: SqliteStore,
    /// For users' transactions, and for the raw statements: one connection, as one writer at a time.
    pool: SqlitePool,
    _directory: Arc<TempDir>,
}

impl File {
    pub(crate) async fn open(synchronous: SqliteSynchronous, retention: Retention) -> Self {
        let directory = TempDir::new().unwrap();
        let url = format!("sqlite:{}", directory.path().join("bench.db").display());
        let connect = SqliteStore::connect_options(&url).unwrap().synchronous(synchronous);
        let options = StoreOptions { retention, ..StoreOptions::default() };
        let store = SqliteStore::connect_with(connect.clone(), options).await.unwrap();
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(connect).await.unwrap();
        Self { store, pool, _directory: Arc::new(directory) }
    }

    /// A table of the user's.
    pub(crate) async fn create_orders(&self) {
        let sql = "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL)";
        sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
    }
}

impl Backend for File {
    type Store = SqliteStore;
    type Connection = PoolConnection<Sqlite>;

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    async fn clear(&self) {
        for sql in
            ["DELETE FROM pillarbox_outbox", "DELETE FROM pillarbox_outbox_shelf", "PRAGMA wal_checkpoint(TRUNCATE)"]
        {
            sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
        }
    }

    async fn connect(&self) -> PoolConnection<Sqlite> {
        self.pool.acquire().await.unwrap()
    }

    async fn enqueue_in_transaction(&self, connection: &mut PoolConnection<Sqlite>, messages: &[Message]) {
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
        self.store.enqueue_in(&mut tx, Enqueue::pending(messages).owned()).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// Statements as one would write them by hand for the same tables.
#[derive(Clone)]
struct Raw {
    file: File,
    /// Before a message is stored it is made sure that SQLite has not ended the transaction by itself, as the store does: the
    /// message would be committed alone.
    asks: bool,
}

const CLOCK: &str = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000";

impl Raw {
    async fn insert(connection: &mut SqliteConnection, count: usize) {
        let mut sql = String::from("INSERT INTO pillarbox_outbox (message_id, topic, payload, content_type) VALUES ");
        for row in 0..count {
            let _ = write!(sql, "{}(?, ?, ?, ?)", if row == 0 { "" } else { ", " });
        }
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for _ in 0..count {
            query =
                query.bind(Uuid::now_v7().into_bytes().to_vec()).bind(TOPIC).bind(payload()).bind("application/json");
        }
        assert_eq!(query.execute(connection).await.unwrap().rows_affected(), count as u64);
    }

    async fn claim(connection: &mut SqliteConnection, owner: &[u8], fence: i64) -> Vec<i64> {
        let sql = format!(
            "UPDATE pillarbox_outbox SET owner_token = ?1, fence = ?2, locked_until = {CLOCK} + 60000000,
                attempts = attempts + 1
             WHERE id IN (SELECT id FROM pillarbox_outbox
                WHERE (owner_token IS NULL OR locked_until <= {CLOCK}) AND (due_at IS NULL OR due_at <= {CLOCK})
                  AND (expires_at IS NULL OR expires_at > {CLOCK}) ORDER BY id LIMIT {BATCH})
             RETURNING id, message_id, topic, payload, attempts, created_at, lost_lease_count, priority, due_at, expires_at,
                occurred_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id,
                content_type, headers, last_error"
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).bind(owner).bind(fence).fetch_all(connection).await.unwrap();
        rows.iter().map(read).collect()
    }

    /// One claim has one fence, and a batch is acknowledged whole: its rows stand beside each other.
    async fn ack(connection: &mut SqliteConnection, owner: &[u8], fence: i64, ids: &[i64]) {
        let ack =
            sqlx::query("DELETE FROM pillarbox_outbox WHERE id BETWEEN ?1 AND ?2 AND owner_token = ?3 AND fence = ?4");
        let (low, high) = (ids.iter().min().copied(), ids.iter().max().copied());
        let done = ack.bind(low).bind(high).bind(owner).bind(fence).execute(connection).await.unwrap();
        assert_eq!(done.rows_affected(), ids.len() as u64);
    }
}

impl Subject for Raw {
    async fn clear(&self) {
        Backend::clear(&self.file).await;
    }

    async fn fill(&self, count: usize) {
        Through(self.file.clone()).fill(count).await;
    }

    async fn enqueue_single(&self, count: usize) {
        let mut connection = self.file.pool.acquire().await.unwrap();
        for _ in 0..count {
            let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
            if self.asks {
                sqlx::query("BEGIN").execute(&mut *tx).await.unwrap_err();
            }
            Self::insert(&mut tx, 1).await;
            tx.commit().await.unwrap();
        }
    }

    async fn enqueue_batched(&self, count: usize) {
        let mut connection = self.file.pool.acquire().await.unwrap();
        for _ in 0..count / ENQUEUE_BATCH {
            let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
            Self::insert(&mut tx, ENQUEUE_BATCH).await;
            tx.commit().await.unwrap();
        }
    }

    async fn drain(&self, count: usize) -> usize {
        let owner = Uuid::new_v4().into_bytes();
        let (mut done, mut fence) = (0, 0_i64);
        while done < count {
            fence += 1;
            let mut tx = self.file.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
            let ids = Self::claim(&mut tx, &owner, fence).await;
            tx.commit().await.unwrap();
            if ids.is_empty() {
                break;
            }
            done += ids.len();
            let mut tx = self.file.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
            Self::ack(&mut tx, &owner, fence, &ids).await;
            tx.commit().await.unwrap();
        }
        done
    }

    async fn drain_by_exchange(&self, count: usize) -> usize {
        let owner = Uuid::new_v4().into_bytes();
        let (mut done, mut fence, mut held) = (0, 0_i64, Vec::new());
        while done < count {
            let mut tx = self.file.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
            Self::ack(&mut tx, &owner, fence, &held).await;
            fence += 1;
            held = Self::claim(&mut tx, &owner, fence).await;
            tx.commit().await.unwrap();
            if held.is_empty() {
                break;
            }
            done += held.len();
        }
        done
    }
}

/// Reads a whole message, as a hand-written worker does.
fn read(row: &SqliteRow) -> i64 {
    let message: (Vec<u8>, String, Vec<u8>, i64, i64) = (row.get(1), row.get(2), row.get(3), row.get(4), row.get(5));
    let numbers: [Option<i64>; 5] = std::array::from_fn(|index| row.get(6 + index));
    let texts: [Option<String>; 10] = std::array::from_fn(|index| row.get(11 + index));
    std::hint::black_box((message, numbers, texts));
    row.get(0)
}
