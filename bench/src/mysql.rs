//! MariaDB and MySQL: the store beside raw statements.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pillarbox_core::message::Message;
use pillarbox_core::naming::Naming;
use pillarbox_core::retention::{KEEP_DEFAULT, Retention};
use pillarbox_core::store::{Enqueue, EnqueueIn, StoreOptions};
use pillarbox_mysql::MysqlStore;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions, MySqlRow};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection, Executor, MySql, MySqlConnection, Row};
use time::PrimitiveDateTime;
use uuid::Uuid;

use crate::report::Report;
use crate::run::{Scale, Work, compare};
use crate::store::{Backend, Through};
use crate::subject::{BATCH, ENQUEUE_BATCH, Subject, TOPIC, payload};

const DATABASE: &str = "MariaDB";

pub(crate) async fn measure(scale: Scale, report: &mut Report) {
    let url = url();
    let store = Outbox::open(&url, "bench_store", Retention::Delete).await;
    let keeping = Outbox::open(&url, "bench_keep", Retention::Message(KEEP_DEFAULT)).await;
    let receipts = Outbox::open(&url, "bench_receipt", Retention::Receipt(KEEP_DEFAULT)).await;
    let raw = Raw { outbox: store.clone(), trips: Trips::One };
    compare(report, DATABASE, &Work::ALL, ["raw", "store"], &raw, &Through(store.clone()), scale).await;
    let chatty = Raw { outbox: store.clone(), trips: Trips::Many };
    let names = ["raw, in many round trips", "store"];
    compare(report, DATABASE, &Work::ALL[3..], names, &chatty, &Through(store.clone()), scale).await;
    let exchange = [Work::Exchange { workers: 1 }];
    compare(
        report,
        DATABASE,
        &exchange,
        ["deleted", "receipt kept"],
        &Through(store.clone()),
        &Through(receipts),
        scale,
    )
    .await;
    compare(report, DATABASE, &exchange, ["deleted", "message kept"], &Through(store), &Through(keeping), scale).await;
}

pub(crate) fn url() -> String {
    std::env::var("PILLARBOX_BENCH_MYSQL_URL").expect("run this through `cargo xtask bench`")
}

#[derive(Clone)]
pub(crate) struct Outbox {
    store: MysqlStore,
    pool: MySqlPool,
    prefix: &'static str,
    first_id: Arc<AtomicU64>,
}

impl Outbox {
    pub(crate) async fn open(url: &str, prefix: &'static str, retention: Retention) -> Self {
        let pool = MySqlPoolOptions::new()
            .max_connections(8)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await.map(drop)
                })
            })
            .connect(url)
            .await
            .unwrap();
        let naming = Naming::new(prefix, "outbox").unwrap();
        let options = StoreOptions { naming, retention, ..StoreOptions::default() };
        let store = MysqlStore::with_pool(pool.clone(), options).await.unwrap();
        Self { store, pool, prefix, first_id: Arc::new(AtomicU64::new(1)) }
    }

    pub(crate) fn into_store(self) -> MysqlStore {
        self.store
    }
}

impl Backend for Outbox {
    type Store = MysqlStore;
    type Connection = PoolConnection<MySql>;

    fn store(&self) -> &MysqlStore {
        &self.store
    }

    async fn clear(&self) {
        // Ids must go on rising: a claim starts above the last one.
        let first = self.first_id.fetch_add(100_000_000, Ordering::Relaxed);
        for table in ["outbox", "outbox_shelf", "outbox_lane"] {
            let sql = format!("TRUNCATE TABLE {}_{table}", self.prefix);
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.pool).await.unwrap();
        }
        let sql = format!("ALTER TABLE {}_outbox AUTO_INCREMENT = {first}", self.prefix);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.pool).await.unwrap();
    }

    async fn connect(&self) -> PoolConnection<MySql> {
        self.pool.acquire().await.unwrap()
    }

    async fn enqueue_in_transaction(&self, connection: &mut PoolConnection<MySql>, messages: &[Message]) {
        let mut tx = connection.begin().await.unwrap();
        self.store.enqueue_in(&mut tx, Enqueue::pending(messages).owned()).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// Statements as one would write them by hand for the same tables.
#[derive(Clone)]
struct Raw {
    outbox: Outbox,
    trips: Trips,
}

/// How a claim gets to the server: as one script, which is the store's design, or statement by statement. The latter can lock
/// and read in one go, which is faster where a round trip costs nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trips {
    One,
    Many,
}

impl Raw {
    fn named(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(sql.replace("{p}", self.outbox.prefix))
    }

    async fn insert(&self, connection: &mut MySqlConnection, count: usize) {
        let mut sql = String::from("INSERT INTO {p}_outbox (message_id, topic, payload, content_type) VALUES ");
        for row in 0..count {
            let _ = write!(sql, "{}(?, ?, ?, ?)", if row == 0 { "" } else { ", " });
        }
        sql.push_str(" RETURNING id");
        let mut query = sqlx::query(self.named(&sql));
        for _ in 0..count {
            query = query.bind(Uuid::now_v7().as_bytes().to_vec()).bind(TOPIC).bind(payload()).bind("application/json");
        }
        assert_eq!(query.fetch_all(connection).await.unwrap().len(), count);
    }

    async fn claim(&self, connection: &mut MySqlConnection, owner: &str, fence: i64, floor: i64) -> Vec<i64> {
        let select = format!(
            "SELECT id, message_id, topic, payload, attempts, created_at, lost_lease_count, priority, due_at, expires_at,
                occurred_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id,
                content_type, headers, last_error
             FROM {{p}}_outbox FORCE INDEX (PRIMARY)
             WHERE id > ? AND (owner_token IS NULL OR locked_until <= UTC_TIMESTAMP(6))
               AND (due_at IS NULL OR due_at <= UTC_TIMESTAMP(6)) AND (expires_at IS NULL OR expires_at > UTC_TIMESTAMP(6))
             ORDER BY id LIMIT {BATCH} FOR UPDATE SKIP LOCKED"
        );
        let rows = sqlx::query(self.named(&select)).bind(floor).fetch_all(&mut *connection).await.unwrap();
        let ids: Vec<i64> = rows.iter().map(read).collect();
        if !ids.is_empty() {
            let update = format!(
                "UPDATE {{p}}_outbox FORCE INDEX (PRIMARY) SET owner_token = x'{owner}', fence = {fence},
                    locked_until = UTC_TIMESTAMP(6) + INTERVAL 60 SECOND,
                    attempts = attempts + 1 WHERE id IN ({})",
                list(&ids)
            );
            sqlx::raw_sql(self.named(&update)).execute(connection).await.unwrap();
        }
        ids
    }

    /// Acknowledges what the claim before this one took, and claims up to `limit`.
    async fn exchange(&self, owner: &str, fence: i64, floor: i64, held: &[i64], limit: usize) -> Vec<i64> {
        match self.trips {
            Trips::One => self.exchange_at_once(owner, fence, floor, held, limit).await,
            Trips::Many => {
                let mut tx = self.outbox.pool.begin().await.unwrap();
                self.ack(&mut tx, owner, fence - 1, held).await;
                let claimed = if limit == 0 { Vec::new() } else { self.claim(&mut tx, owner, fence, floor).await };
                tx.commit().await.unwrap();
                claimed
            }
        }
    }

    /// The same in one script.
    async fn exchange_at_once(&self, owner: &str, fence: i64, floor: i64, held: &[i64], limit: usize) -> Vec<i64> {
        let ack = match held {
            [] => String::new(),
            held => format!(
                "DELETE live FROM {{p}}_outbox AS live FORCE INDEX (PRIMARY) WHERE id IN ({}) AND owner_token = x'{owner}'
                    AND fence = {};",
                list(held),
                fence - 1
            ),
        };
        let claim = match limit {
            0 => String::new(),
            limit => format!(
                "UPDATE (SELECT id FROM {{p}}_outbox FORCE INDEX (PRIMARY)
                    WHERE id > {floor} AND (owner_token IS NULL OR locked_until <= UTC_TIMESTAMP(6))
                      AND (due_at IS NULL OR due_at <= UTC_TIMESTAMP(6))
                      AND (expires_at IS NULL OR expires_at > UTC_TIMESTAMP(6))
                    ORDER BY id LIMIT {limit} FOR UPDATE SKIP LOCKED) AS c
                 STRAIGHT_JOIN {{p}}_outbox AS l FORCE INDEX (PRIMARY) ON l.id = c.id
                 SET l.owner_token = x'{owner}', l.fence = {fence}, l.attempts = l.attempts + 1,
                    l.locked_until = UTC_TIMESTAMP(6) + INTERVAL 60 SECOND;
                 SELECT id, message_id, topic, payload, attempts, created_at, lost_lease_count, priority, due_at, expires_at,
                    occurred_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id,
                    causation_id, content_type, headers, last_error
                 FROM {{p}}_outbox FORCE INDEX (PRIMARY)
                 WHERE id > {floor} AND fence = {fence} AND owner_token = x'{owner}' ORDER BY id LIMIT {limit};"
            ),
        };
        let script = format!("START TRANSACTION;{ack}{claim}COMMIT");
        let rows = sqlx::raw_sql(self.named(&script)).fetch_all(&self.outbox.pool).await.unwrap();
        rows.iter().map(read).collect()
    }

    async fn ack(&self, connection: &mut MySqlConnection, owner: &str, fence: i64, ids: &[i64]) {
        if ids.is_empty() {
            return;
        }
        let delete = format!(
            "DELETE live FROM {{p}}_outbox AS live FORCE INDEX (PRIMARY) WHERE id IN ({}) AND owner_token = x'{owner}'
                AND fence = {fence}",
            list(ids)
        );
        sqlx::raw_sql(self.named(&delete)).execute(connection).await.unwrap();
    }
}

impl Subject for Raw {
    async fn clear(&self) {
        Backend::clear(&self.outbox).await;
    }

    async fn fill(&self, count: usize) {
        Through(self.outbox.clone()).fill(count).await;
    }

    async fn enqueue_single(&self, count: usize) {
        let mut connection = self.outbox.pool.acquire().await.unwrap();
        for _ in 0..count {
            let mut tx = connection.begin().await.unwrap();
            self.insert(&mut tx, 1).await;
            tx.commit().await.unwrap();
        }
    }

    async fn enqueue_batched(&self, count: usize) {
        let mut connection = self.outbox.pool.acquire().await.unwrap();
        for _ in 0..count / ENQUEUE_BATCH {
            let mut tx = connection.begin().await.unwrap();
            self.insert(&mut tx, ENQUEUE_BATCH).await;
            tx.commit().await.unwrap();
        }
    }

    async fn drain(&self, count: usize) -> usize {
        let owner = Uuid::new_v4().simple().to_string();
        let (mut done, mut fence, mut floor) = (0, 0_i64, 0_i64);
        while done < count {
            fence += 1;
            let ids = self.exchange(&owner, fence, floor, &[], BATCH).await;
            let Some(&last) = ids.last() else { break };
            floor = last;
            done += ids.len();
            self.exchange(&owner, fence + 1, floor, &ids, 0).await;
        }
        done
    }

    async fn drain_by_exchange(&self, count: usize) -> usize {
        let owner = Uuid::new_v4().simple().to_string();
        let (mut done, mut fence, mut floor, mut held) = (0, 0_i64, 0_i64, Vec::new());
        while done < count {
            fence += 1;
            held = self.exchange(&owner, fence, floor, &held, BATCH).await;
            let Some(&last) = held.last() else { break };
            floor = last;
            done += held.len();
        }
        done
    }
}

fn list(ids: &[i64]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Reads a whole message, as a hand-written worker does.
fn read(row: &MySqlRow) -> i64 {
    let message: (Vec<u8>, String, Vec<u8>, i32, PrimitiveDateTime) =
        (row.get(1), row.get(2), row.get(3), row.get(4), row.get(5));
    let counters: (i32, i16) = (row.get(6), row.get(7));
    let times: [Option<PrimitiveDateTime>; 3] = [8, 9, 10].map(|index| row.get(index));
    let texts: [Option<String>; 10] = std::array::from_fn(|index| row.get(11 + index));
    std::hint::black_box((message, counters, times, texts));
    row.get(0)
}
