//! The leanest known design for SQLite with the columns that a whole message needs: one table, no index but its key, rows that
//! are written once and deleted once, and a lease per batch in a row of its own, which falls with the batch when the next one is
//! taken. No scheduling beside the due time, no order by key, no message id to recognise a duplicate by.

use std::sync::Arc;

use sqlx::sqlite::{SqlitePool, SqlitePoolOptions, SqliteRow, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection};
use tempfile::TempDir;
use uuid::Uuid;

use super::{CLOCK, SqliteStore};
use crate::subject::{BATCH, ENQUEUE_BATCH, Subject, TOPIC, payload};

const TABLES: [&str; 2] = [
    "CREATE TABLE lean (id INTEGER PRIMARY KEY AUTOINCREMENT, message_id BLOB NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL, lost_lease_count INTEGER NOT NULL DEFAULT 0, priority INTEGER NOT NULL DEFAULT 0,
        due_at INTEGER, expires_at INTEGER, occurred_at INTEGER, topic TEXT NOT NULL, message_type TEXT, aggregate_type TEXT,
        aggregate_id TEXT, tenant_id TEXT, message_key TEXT, correlation_id TEXT, causation_id TEXT, content_type TEXT,
        headers TEXT, last_error TEXT, payload ANY NOT NULL) STRICT",
    "CREATE TABLE lean_lease (fence INTEGER PRIMARY KEY, owner_token BLOB NOT NULL, low INTEGER NOT NULL,
        high INTEGER NOT NULL, locked_until INTEGER NOT NULL) STRICT",
];

#[derive(Clone)]
pub(super) struct BatchLeases {
    pool: SqlitePool,
    _directory: Arc<TempDir>,
}

impl BatchLeases {
    pub(super) async fn open(synchronous: SqliteSynchronous) -> Self {
        let directory = TempDir::new().unwrap();
        let url = format!("sqlite:{}", directory.path().join("lean.db").display());
        let connect = SqliteStore::connect_options(&url).unwrap().synchronous(synchronous);
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(connect).await.unwrap();
        for sql in TABLES {
            sqlx::raw_sql(sql).execute(&pool).await.unwrap();
        }
        Self { pool, _directory: Arc::new(directory) }
    }

    /// Takes what comes after all that is leased.
    async fn claim(connection: &mut SqliteConnection, owner: &[u8], fence: i64) -> Vec<i64> {
        let sql = format!(
            "SELECT id, message_id, topic, payload, created_at, attempts, content_type,
                CASE WHEN coalesce(due_at, expires_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key,
                    correlation_id, causation_id, headers, occurred_at, last_error) IS NOT NULL
                    OR lost_lease_count <> 0 OR priority <> 0
                THEN json_array(due_at, expires_at, lost_lease_count, priority, message_type, aggregate_type, aggregate_id,
                    tenant_id, message_key, correlation_id, causation_id, headers, occurred_at, last_error) END
             FROM lean
             WHERE id > coalesce((SELECT max(high) FROM lean_lease WHERE locked_until > {CLOCK}), 0)
               AND (due_at IS NULL OR due_at <= {CLOCK}) AND (expires_at IS NULL OR expires_at > {CLOCK})
             ORDER BY id LIMIT {BATCH}"
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut *connection).await.unwrap();
        let ids: Vec<i64> = rows.iter().map(read).collect();
        if let (Some(low), Some(high)) = (ids.first(), ids.last()) {
            let lease = format!("INSERT INTO lean_lease VALUES (?, ?, ?, ?, {CLOCK} + 60000000)");
            let lease = sqlx::query(AssertSqlSafe(lease)).bind(fence).bind(owner).bind(low).bind(high);
            lease.execute(connection).await.unwrap();
        }
        ids
    }

    /// The batch and its lease; nothing when somebody else has it by now.
    async fn ack(connection: &mut SqliteConnection, owner: &[u8], fence: i64, ids: &[i64]) {
        let rows = sqlx::query(
            "DELETE FROM lean WHERE id BETWEEN ?1 AND ?2
                AND EXISTS (SELECT 1 FROM lean_lease WHERE fence = ?3 AND owner_token = ?4)",
        );
        let rows = rows.bind(ids.first()).bind(ids.last()).bind(fence).bind(owner);
        assert_eq!(rows.execute(&mut *connection).await.unwrap().rows_affected(), ids.len() as u64);
        let lease = sqlx::query("DELETE FROM lean_lease WHERE fence = ?1 AND owner_token = ?2").bind(fence).bind(owner);
        lease.execute(connection).await.unwrap();
    }
}

impl Subject for BatchLeases {
    async fn clear(&self) {
        for sql in ["DELETE FROM lean", "DELETE FROM lean_lease", "PRAGMA wal_checkpoint(TRUNCATE)"] {
            sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
        }
    }

    async fn fill(&self, count: usize) {
        let sql = format!(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {ENQUEUE_BATCH})
             INSERT INTO lean (message_id, topic, payload, content_type, created_at)
             SELECT randomblob(16), ?1, ?2, 'application/json', {CLOCK} FROM n"
        );
        for _ in 0..count / ENQUEUE_BATCH {
            sqlx::query(AssertSqlSafe(sql.as_str())).bind(TOPIC).bind(payload()).execute(&self.pool).await.unwrap();
        }
    }

    async fn enqueue_single(&self, _count: usize) {
        unreachable!("a design for draining");
    }

    async fn enqueue_batched(&self, _count: usize) {
        unreachable!("a design for draining");
    }

    async fn drain(&self, _count: usize) -> usize {
        unreachable!("what is done falls when the next batch is taken");
    }

    async fn drain_by_exchange(&self, count: usize) -> usize {
        let owner = Uuid::new_v4().into_bytes();
        let (mut done, mut fence, mut held) = (0, 0_i64, Vec::new());
        while done < count {
            let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
            if !held.is_empty() {
                Self::ack(&mut tx, &owner, fence, &held).await;
            }
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

/// What most messages do not have comes as one value, as it does in the store: the driver copies each.
fn read(row: &SqliteRow) -> i64 {
    let message: (Vec<u8>, String, Vec<u8>, i64, i64) = (row.get(1), row.get(2), row.get(3), row.get(4), row.get(5));
    let texts: [Option<String>; 2] = [row.get(6), row.get(7)];
    std::hint::black_box((message, texts));
    row.get(0)
}
