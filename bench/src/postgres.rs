//! PostgreSQL: the store beside raw statements, beside design (aw), and under disturbance.

use pillarbox_core::message::Message;
use pillarbox_core::naming::Naming;
use pillarbox_core::retention::{KEEP_DEFAULT, Retention};
use pillarbox_core::store::{Enqueue, EnqueueIn, OutboxStore, StoreOptions};
use pillarbox_postgres::PostgresStore;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, Row};
use std::time::Duration;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::report::{Figure, Report};
use crate::run::{Scale, Work, compare, rate};
use crate::store::{Backend, Through, batches};
use crate::subject::{BATCH, ENQUEUE_BATCH, Subject, TOPIC, payload};

const DATABASE: &str = "PostgreSQL";

pub(crate) async fn measure(scale: Scale, quick: bool, report: &mut Report) {
    let url = url();
    let store = Outbox::open(&url, "bench_store", Retention::Delete).await;
    let keeping = Outbox::open(&url, "bench_keep", Retention::Message(KEEP_DEFAULT)).await;
    let receipts = Outbox::open(&url, "bench_receipt", Retention::Receipt(KEEP_DEFAULT)).await;
    let raw = Raw::open(&store, Keep::Nothing).await;
    let raw_keeping = Raw::open(&keeping, Keep::Message).await;
    let plain = Plain::open(&url, "bench_plain").await;

    compare(report, DATABASE, &Work::ALL, ["raw", "store"], &raw, &Through(store.clone()), scale).await;
    let drains = [Work::Drain { workers: 1 }, Work::Drain { workers: 2 }];
    let fused = [Work::Exchange { workers: 1 }, Work::Exchange { workers: 2 }];
    let kept = format!("{DATABASE}, whole message kept");
    compare(report, &kept, &drains, ["raw", "store"], &raw_keeping, &Through(keeping.clone()), scale).await;
    compare(report, DATABASE, &drains, ["(aw)", "raw"], &plain, &raw, scale).await;
    compare(
        report,
        DATABASE,
        &fused[..1],
        ["deleted", "receipt kept"],
        &Through(store.clone()),
        &Through(receipts),
        scale,
    )
    .await;
    compare(
        report,
        DATABASE,
        &fused[..1],
        ["deleted", "message kept"],
        &Through(store.clone()),
        &Through(keeping),
        scale,
    )
    .await;
    if !quick {
        disturbed(&url, store, scale, report).await;
    }
}

/// The drain of one store that is left alone, in turn with the drain of one that is not.
async fn disturbed(url: &str, calm: Outbox, scale: Scale, report: &mut Report) {
    let store = || Through(calm.clone());
    let exchange = Work::Exchange { workers: 1 };
    if report.wants(BACKLOG) {
        let backlog = Outbox::open(url, "bench_backlog", Retention::Delete).await;
        Through(backlog.clone()).fill(BACKLOG_COUNT).await;
        backlog.settle_down().await;
        in_turn(report, BACKLOG, exchange, &store(), &Through(backlog.clone()), scale, false).await;
        backlog.drop_schema().await;
    }
    if report.wants(BACKLOG_PLAIN) {
        let (calm, backlog) =
            (Plain::open(url, "bench_plain_calm").await, Plain::open(url, "bench_plain_backlog").await);
        backlog.fill(BACKLOG_COUNT).await;
        backlog.settle_down().await;
        in_turn(report, BACKLOG_PLAIN, Work::Drain { workers: 1 }, &calm, &backlog, scale, false).await;
        execute(&backlog.pool, "DROP SCHEMA bench_plain_backlog CASCADE").await;
    }
    if report.wants(SCHEDULED) {
        let scheduled = Outbox::open(url, "bench_scheduled", Retention::Delete).await;
        scheduled.schedule(1_000_000).await;
        in_turn(report, SCHEDULED, exchange, &store(), &Through(scheduled.clone()), scale, true).await;
        scheduled.drop_schema().await;
    }
    let mut open = PgConnection::connect(url).await.unwrap();
    if report.wants(WRITING) {
        let writing = Outbox::open(url, "bench_writing", Retention::Delete).await;
        let mut tx = open.begin().await.unwrap();
        let unseen: Vec<Message> = batches(10).next().unwrap();
        writing.store.enqueue_in(&mut tx, Enqueue::pending(&unseen)).await.unwrap();
        in_turn(report, WRITING, exchange, &store(), &Through(writing.clone()), scale, true).await;
        tx.rollback().await.unwrap();
        writing.drop_schema().await;
    }
    if report.wants(HELD) {
        let bloated = Outbox::open(url, "bench_bloated", Retention::Delete).await;
        let mut snapshot = open.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        sqlx::query("SELECT count(*) FROM pg_class").execute(&mut *snapshot).await.unwrap();
        Through(bloated.clone()).fill(500_000).await;
        Through(bloated.clone()).drain_by_exchange(usize::MAX).await;
        in_turn(report, HELD, exchange, &store(), &Through(bloated.clone()), scale, true).await;
        snapshot.rollback().await.unwrap();
        bloated.drop_schema().await;
    }
}

const BACKLOG_COUNT: usize = 3_000_000;
const BACKLOG: &str = "exchange, with a backlog of 3 million";
const BACKLOG_PLAIN: &str = "(aw): claim + settle, with a backlog of 3 million";
const SCHEDULED: &str = "exchange, with 1 million scheduled for tomorrow";
const WRITING: &str = "exchange, behind an open write transaction";
const HELD: &str = "exchange, 500 k dead rows under a held snapshot";

/// Both fill what they drain, except that a backlog is there already: so much of it is drained in each round.
async fn in_turn<S: Subject>(
    report: &mut Report,
    name: &str,
    work: Work,
    calm: &S,
    disturbed: &S,
    scale: Scale,
    fill: bool,
) {
    let mut figure = Figure::new(DATABASE, name, ["undisturbed", "disturbed"]);
    for round in 0..=scale.rounds {
        let reference = rate(work, calm, scale).await;
        if fill {
            disturbed.fill(scale.messages).await;
        }
        let start = std::time::Instant::now();
        let done = match work {
            Work::Drain { .. } => disturbed.drain(scale.messages).await,
            _ => disturbed.drain_by_exchange(scale.messages).await,
        };
        assert!(done >= scale.messages, "the disturbed drain stopped after {done} messages");
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let contender = done as f64 / start.elapsed().as_secs_f64();
        if round > 0 {
            figure.add([reference, contender]);
        }
    }
    eprintln!("{figure}");
    report.add(figure);
}

pub(crate) fn url() -> String {
    std::env::var("PILLARBOX_BENCH_POSTGRES_URL").expect("run this through `cargo xtask bench`")
}

/// The store with the user's pool.
#[derive(Clone)]
pub(crate) struct Outbox {
    pub(crate) store: PostgresStore,
    pub(crate) pool: PgPool,
    schema: &'static str,
}

impl Outbox {
    pub(crate) async fn open(url: &str, schema: &'static str, retention: Retention) -> Self {
        Self::open_with(url, schema, retention, 8).await
    }

    pub(crate) async fn open_with(url: &str, schema: &'static str, retention: Retention, connections: u32) -> Self {
        let pool = PgPoolOptions::new().max_connections(connections).connect(url).await.unwrap();
        execute(&pool, &format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await;
        let naming = Naming::new(schema, "outbox").unwrap();
        let options = StoreOptions { naming, retention, ..StoreOptions::default() };
        let store = PostgresStore::with_pool(pool.clone(), options).await.unwrap().reusing_connections();
        Self { store, pool, schema }
    }

    /// Tables of the user's: one for orders, and one that is written instead of a message.
    pub(crate) async fn create_orders(&self) {
        let sql = "CREATE TABLE {s}.orders (id bigserial PRIMARY KEY, customer bigint NOT NULL);
            CREATE TABLE {s}.bare (id bigserial PRIMARY KEY, message_id uuid NOT NULL UNIQUE, topic text NOT NULL,
                payload bytea NOT NULL, content_type text NOT NULL)";
        execute(&self.pool, &sql.replace("{s}", self.schema)).await;
    }

    pub(crate) fn insert_order(&self) -> String {
        format!("INSERT INTO {}.orders (customer) VALUES ($1)", self.schema)
    }

    pub(crate) fn insert_bare_row(&self) -> String {
        let schema = self.schema;
        format!(
            "INSERT INTO {schema}.bare (message_id, topic, payload, content_type) VALUES ($1, $2, $3, $4) RETURNING id"
        )
    }

    pub(crate) fn delete_bare_rows(&self) -> String {
        format!("DELETE FROM {}.bare WHERE id = ANY ($1)", self.schema)
    }

    async fn schedule(&self, count: usize) {
        for batch in batches(count) {
            let tomorrow = Duration::from_secs(24 * 3600);
            let batch: Vec<_> = batch.into_iter().map(|message| message.delay(tomorrow)).collect();
            self.store.enqueue(Enqueue::pending(&batch)).await.unwrap();
        }
    }

    /// Lets the server write down and vacuum what it was given, so that the drain is not measured together with that.
    pub(crate) async fn settle_down(&self) {
        execute(&self.pool, &format!("VACUUM ANALYZE {}.outbox; CHECKPOINT", self.schema)).await;
    }

    /// Whether any message waits or is held.
    pub(crate) async fn has_messages(&self) -> bool {
        let sql = format!("SELECT EXISTS (SELECT FROM {}.outbox)", self.schema);
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await.unwrap()
    }

    async fn drop_schema(&self) {
        execute(&self.pool, &format!("DROP SCHEMA {} CASCADE", self.schema)).await;
    }
}

impl Backend for Outbox {
    type Store = PostgresStore;
    type Connection = PoolConnection<Postgres>;

    fn store(&self) -> &PostgresStore {
        &self.store
    }

    async fn clear(&self) {
        let schema = self.schema;
        execute(&self.pool, &format!("TRUNCATE {schema}.outbox, {schema}.outbox_shelf; CHECKPOINT")).await;
    }

    async fn connect(&self) -> PoolConnection<Postgres> {
        self.pool.acquire().await.unwrap()
    }

    async fn enqueue_in_transaction(&self, connection: &mut PoolConnection<Postgres>, messages: &[Message]) {
        let mut tx = connection.begin().await.unwrap();
        self.store.enqueue_in(&mut tx, Enqueue::pending(messages).owned()).await.unwrap();
        tx.commit().await.unwrap();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    Message,
}

/// Statements as one would write them by hand for the same tables, each with its best plan.
///
/// Left to itself, the server keeps the plan it made while the tables were small and drains at a third of the rate; a
/// session of one's own can forbid that.
#[derive(Clone)]
pub(crate) struct Raw {
    outbox: Outbox,
    pool: PgPool,
    insert: String,
    insert_one: String,
    claim: String,
    ack: String,
    exchange: String,
}

const PLANS: [(&str, &str); 6] = [
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_sort", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

const CLAIM: &str = "UPDATE {s}.outbox SET owner_token = $1, fence = $2, attempts = attempts + 1,
        locked_until = clock_timestamp() + interval '60 seconds'
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {s}.outbox
        WHERE id > $3 AND (due_at IS NULL OR due_at <= (SELECT clock_timestamp()))
          AND (expires_at IS NULL OR expires_at > (SELECT clock_timestamp()))
          AND (owner_token IS NULL OR locked_until <= (SELECT clock_timestamp()))
        ORDER BY id LIMIT {n} FOR NO KEY UPDATE SKIP LOCKED))
    RETURNING id, message_id, topic, payload, attempts, created_at, lost_lease_count, priority, due_at, expires_at,
        occurred_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id,
        content_type, headers::text, last_error";

/// One claim has one fence, and a batch is acknowledged whole: its rows are found in one walk.
const ACK: &str = "DELETE FROM {s}.outbox AS live
    WHERE live.id BETWEEN $4 AND $5 AND live.fence = $6 AND live.owner_token = $1 RETURNING live.id";

const ACK_AND_KEEP: &str = "WITH gone AS (
        DELETE FROM {s}.outbox AS live
        WHERE live.id BETWEEN $4 AND $5 AND live.fence = $6 AND live.owner_token = $1 RETURNING live.*
    )
    INSERT INTO {s}.outbox_shelf (id, message_id, state, settled_at, settled_by, created_at, attempts, topic,
        message_type, content_type, headers, correlation_id, message_key, payload)
    SELECT id, message_id, 'done', clock_timestamp(), owner_token, created_at, attempts, topic,
        message_type, content_type, headers, correlation_id, message_key, payload
    FROM gone RETURNING id";

impl Raw {
    async fn open(outbox: &Outbox, keep: Keep) -> Self {
        Self::open_with(outbox, keep, BATCH).await
    }

    /// Claims so many at a time.
    pub(crate) async fn open_with(outbox: &Outbox, keep: Keep, batch: usize) -> Self {
        let connect = outbox.pool.connect_options().as_ref().clone().options(PLANS);
        let pool = PgPoolOptions::new().max_connections(8).connect_with(connect).await.unwrap();
        let named = |sql: &str| sql.replace("{s}", outbox.schema).replace("{n}", &batch.to_string());
        let insert = "INSERT INTO {s}.outbox (message_id, topic, payload, content_type)
            SELECT * FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::text[]) RETURNING id";
        let insert_one =
            "INSERT INTO {s}.outbox (message_id, topic, payload, content_type) VALUES ($1, $2, $3, $4) RETURNING id";
        let ack = if keep == Keep::Nothing { ACK } else { ACK_AND_KEEP };
        let exchange = format!(
            "WITH acked AS ({ACK}), claimed AS ({CLAIM}) SELECT *, NULL::bigint[] AS acked FROM claimed
             UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                NULL, NULL, NULL, NULL, NULL, ARRAY(SELECT id FROM acked)"
        );
        Self {
            outbox: outbox.clone(),
            pool,
            insert: named(insert),
            insert_one: named(insert_one),
            claim: named(CLAIM),
            ack: named(&ack.replace("$4", "$2").replace("$5", "$3").replace("$6", "$4")),
            exchange: named(&exchange),
        }
    }

    /// Rows above the floor.
    pub(crate) async fn claim(&self, owner: Uuid, fence: i64, floor: i64) -> Vec<PgRow> {
        let claim = sqlx::query(AssertSqlSafe(self.claim.as_str())).bind(owner).bind(fence).bind(floor);
        claim.fetch_all(&self.pool).await.unwrap()
    }

    /// The rows of a claim, all of them; answers how many that were.
    pub(crate) async fn ack(&self, owner: Uuid, fence: i64, ids: &[i64]) -> usize {
        let (low, high) = ends(ids);
        let ack = sqlx::query(AssertSqlSafe(self.ack.as_str())).bind(owner).bind(low).bind(high).bind(fence);
        ack.fetch_all(&self.pool).await.unwrap().len()
    }

    async fn insert_one(&self, connection: &mut PgConnection) {
        let row = sqlx::query(AssertSqlSafe(self.insert_one.as_str()))
            .bind(Uuid::now_v7())
            .bind(TOPIC)
            .bind(payload())
            .bind("application/json")
            .fetch_one(connection)
            .await
            .unwrap();
        assert!(row.get::<i64, _>(0) > 0);
    }

    async fn insert(&self, connection: &mut PgConnection, count: usize) {
        let ids: Vec<Uuid> = (0..count).map(|_| Uuid::now_v7()).collect();
        let rows = sqlx::query(AssertSqlSafe(self.insert.as_str()))
            .bind(&ids)
            .bind(vec![TOPIC; count])
            .bind(vec![payload(); count])
            .bind(vec!["application/json"; count])
            .fetch_all(connection)
            .await
            .unwrap();
        assert_eq!(rows.len(), count);
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
        let mut connection = self.pool.acquire().await.unwrap();
        for _ in 0..count {
            let mut tx = connection.begin().await.unwrap();
            self.insert_one(&mut tx).await;
            tx.commit().await.unwrap();
        }
    }

    async fn enqueue_batched(&self, count: usize) {
        let mut connection = self.pool.acquire().await.unwrap();
        for _ in 0..count / ENQUEUE_BATCH {
            let mut tx = connection.begin().await.unwrap();
            self.insert(&mut tx, ENQUEUE_BATCH).await;
            tx.commit().await.unwrap();
        }
    }

    async fn drain(&self, count: usize) -> usize {
        let (owner, mut floor, mut done, mut fence) = (Uuid::new_v4(), 0_i64, 0, 0_i64);
        while done < count {
            fence += 1;
            let rows = self.claim(owner, fence, floor).await;
            let ids: Vec<i64> = rows.iter().map(read).collect();
            let Some(&last) = ids.last() else { break };
            floor = last;
            done += ids.len();
            assert_eq!(self.ack(owner, fence, &ids).await, ids.len());
        }
        done
    }

    async fn drain_by_exchange(&self, count: usize) -> usize {
        let (owner, mut floor, mut done, mut fence) = (Uuid::new_v4(), 0_i64, 0, 0_i64);
        let mut held: Vec<i64> = Vec::new();
        while done < count {
            let (low, high) = ends(&held);
            let rows = sqlx::query(AssertSqlSafe(self.exchange.as_str()))
                .bind(owner)
                .bind(fence + 1)
                .bind(floor)
                .bind(low)
                .bind(high)
                .bind(fence)
                .fetch_all(&self.pool)
                .await
                .unwrap();
            fence += 1;
            held = rows.iter().filter(|row| row.get::<Option<i64>, _>(0).is_some()).map(read).collect();
            let Some(&last) = held.last() else { break };
            floor = last;
            done += held.len();
        }
        done
    }
}

/// The lowest and the highest row of a batch.
fn ends(ids: &[i64]) -> (i64, i64) {
    (ids.iter().copied().min().unwrap_or(0), ids.iter().copied().max().unwrap_or(0))
}

/// Reads a whole message, as a hand-written worker does.
fn read(row: &PgRow) -> i64 {
    let message: (Uuid, String, Vec<u8>, i32, OffsetDateTime) =
        (row.get(1), row.get(2), row.get(3), row.get(4), row.get(5));
    let counters: (i32, i16) = (row.get(6), row.get(7));
    let times: [Option<OffsetDateTime>; 3] = [8, 9, 10].map(|index| row.get(index));
    let texts: [Option<String>; 10] = std::array::from_fn(|index| row.get(11 + index));
    std::hint::black_box((message, counters, times, texts));
    row.get(0)
}

/// Design (aw) of the research, with the columns that a whole message needs: one table, one index, leases by one time,
/// claimed by row address. No scheduling, no expiry, no message id to recognise a duplicate by.
#[derive(Clone)]
struct Plain {
    pool: PgPool,
    schema: &'static str,
}

impl Plain {
    async fn open(url: &str, schema: &'static str) -> Self {
        let connect: PgConnectOptions = url.parse().unwrap();
        let pool = PgPoolOptions::new().max_connections(8).connect_with(connect.options(PLANS)).await.unwrap();
        let sql = "DROP SCHEMA IF EXISTS {s} CASCADE; CREATE SCHEMA {s};
            CREATE TABLE {s}.outbox (id bigserial PRIMARY KEY, message_id uuid NOT NULL, topic text NOT NULL,
                payload bytea NOT NULL, attempts integer NOT NULL DEFAULT 0, created_at timestamptz NOT NULL DEFAULT now(),
                lost_lease_count integer NOT NULL DEFAULT 0, priority smallint NOT NULL DEFAULT 0, due_at timestamptz,
                expires_at timestamptz, occurred_at timestamptz, message_type text, aggregate_type text, aggregate_id text,
                tenant_id text, message_key text, correlation_id text, causation_id text, content_type text, headers jsonb,
                last_error text, locked_until timestamptz NOT NULL DEFAULT '-infinity', owner_token uuid,
                fence bigint NOT NULL DEFAULT 0)
            WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02)";
        execute(&pool, &sql.replace("{s}", schema)).await;
        Self { pool, schema }
    }

    fn named(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(sql.replace("{s}", self.schema))
    }

    pub(crate) async fn settle_down(&self) {
        execute(&self.pool, &format!("VACUUM ANALYZE {}.outbox; CHECKPOINT", self.schema)).await;
    }
}

impl Subject for Plain {
    async fn clear(&self) {
        execute(&self.pool, &format!("TRUNCATE {}.outbox; CHECKPOINT", self.schema)).await;
    }

    async fn fill(&self, count: usize) {
        for _ in 0..count / ENQUEUE_BATCH {
            sqlx::query(self.named(
                "INSERT INTO {s}.outbox (message_id, topic, payload, content_type)
                 SELECT gen_random_uuid(), input.*, 'application/json' FROM unnest($1::text[], $2::bytea[]) AS input",
            ))
            .bind(vec![TOPIC; ENQUEUE_BATCH])
            .bind(vec![payload(); ENQUEUE_BATCH])
            .execute(&self.pool)
            .await
            .unwrap();
        }
    }

    async fn enqueue_single(&self, _count: usize) {
        unreachable!("(aw) is a design for draining");
    }

    async fn enqueue_batched(&self, _count: usize) {
        unreachable!("(aw) is a design for draining");
    }

    async fn drain(&self, count: usize) -> usize {
        let (owner, mut floor, mut done) = (Uuid::new_v4(), 0_i64, 0);
        while done < count {
            let rows = sqlx::query(self.named(
                "UPDATE {s}.outbox SET locked_until = clock_timestamp() + interval '60 seconds', owner_token = $2,
                    fence = fence + 1
                 WHERE ctid = ANY (ARRAY(SELECT ctid FROM {s}.outbox
                    WHERE id > $1 AND locked_until < clock_timestamp() ORDER BY id LIMIT 500
                    FOR NO KEY UPDATE SKIP LOCKED))
                 RETURNING id, message_id, topic, payload, attempts, created_at, lost_lease_count, priority, due_at,
                    expires_at, occurred_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key,
                    correlation_id, causation_id, content_type, headers::text, last_error, fence",
            ))
            .bind(floor)
            .bind(owner)
            .fetch_all(&self.pool)
            .await
            .unwrap();
            let held: Vec<(i64, i64)> = rows.iter().map(|row| (read(row), row.get(21))).collect();
            let Some(last) = held.last() else { break };
            floor = last.0;
            done += held.len();
            let (ids, fences): (Vec<i64>, Vec<i64>) = held.into_iter().unzip();
            sqlx::query(self.named(
                "DELETE FROM {s}.outbox AS live USING unnest($1::bigint[], $2::bigint[]) AS held (id, fence)
                 WHERE live.id = held.id AND live.fence = held.fence AND live.owner_token = $3",
            ))
            .bind(&ids)
            .bind(&fences)
            .bind(owner)
            .execute(&self.pool)
            .await
            .unwrap();
        }
        done
    }

    async fn drain_by_exchange(&self, _count: usize) -> usize {
        unreachable!("(aw) settles in a round trip of its own");
    }
}

async fn execute(pool: &PgPool, sql: &str) {
    for statement in sql.split(';') {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(pool).await.unwrap();
    }
}
