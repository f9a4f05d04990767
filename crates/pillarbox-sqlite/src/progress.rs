//! How far receptors and perspectives have come: read, and forgotten when it is old.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use pillarbox_core::progress::{
    Checkpoint, CheckpointRecord, Outcome, ProgressStore, RECEPTORS_MAX, ReceptorRecord, ReceptorResult, check_names,
};
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::{MessageId, SchemaAdmin, StoreError};
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use crate::error::store_error;
use crate::migrate::{PROGRESS, is_table};
use crate::row::{get, micros, time};
use crate::sql::ProgressStatements;
use crate::store::SqliteStore;

/// The progress beside a queue in an SQLite file, through the connections of its store.
pub(crate) struct SqliteProgress {
    queue: SqliteStore,
    sql: Arc<ProgressStatements>,
}

impl SqliteProgress {
    pub(crate) fn beside(queue: &SqliteStore) -> Self {
        Self { queue: queue.clone(), sql: Arc::new(ProgressStatements::new(&queue.inner.options.naming)) }
    }
}

#[async_trait]
impl ProgressStore for SqliteProgress {
    async fn receptors_of(&self, message_id: MessageId) -> Result<Vec<ReceptorRecord>, StoreError> {
        let look = sqlx::query(self.sql.receptors_of.clone()).bind(message_id.as_uuid()).bind(RECEPTORS_MAX);
        let rows = look.fetch_all(self.queue.pool()).await.map_err(store_error)?;
        let record = |row: &SqliteRow| {
            let (receptor, outcome) = (get(row, 0)?, Outcome::from_columns(get(row, 1)?, get(row, 2)?));
            let result = ReceptorResult { message_id, receptor, outcome };
            let attempts = u32::try_from(get::<i64>(row, 3)?).unwrap_or(0);
            Ok(ReceptorRecord { result, attempts, changed_at: time(row, 4)?.unwrap_or(SystemTime::UNIX_EPOCH) })
        };
        rows.iter().map(record).collect()
    }

    async fn checkpoint(&self, stream: &str, perspective: &str) -> Result<Option<CheckpointRecord>, StoreError> {
        check_names(stream, perspective)?;
        let look = sqlx::query(self.sql.checkpoint.clone()).bind(stream.to_owned()).bind(perspective.to_owned());
        let Some(row) = look.fetch_optional(self.queue.pool()).await.map_err(store_error)? else { return Ok(None) };
        let message_id = get::<Option<&[u8]>>(&row, 1)?.and_then(|bytes| Uuid::from_slice(bytes).ok());
        let checkpoint = Checkpoint {
            stream: stream.to_owned(),
            perspective: perspective.to_owned(),
            position: u64::try_from(get::<i64>(&row, 0)?).unwrap_or(0),
            message_id: message_id.and_then(|id| MessageId::from_uuid(id).ok()),
            outcome: Outcome::from_columns(get(&row, 2)?, get(&row, 3)?),
        };
        Ok(Some(CheckpointRecord { checkpoint, changed_at: time(&row, 4)?.unwrap_or(SystemTime::UNIX_EPOCH) }))
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        let keep = micros(self.queue.inner.options.retention.keeps_results_for());
        let sql = Arc::clone(&self.sql);
        let look = self.queue.read(move |inner, tx| {
            Box::pin(async move {
                if !is_table(tx, inner.options.naming.joined() + "_receptor").await? {
                    return Ok(false);
                }
                let look = sqlx::query(sql.purge_look.clone()).bind(keep);
                get::<bool>(&look.fetch_one(tx).await.map_err(store_error)?, 0)
            })
        });
        if !look.await? {
            return Ok(0);
        }
        let sql = Arc::clone(&self.sql);
        let purge = self.queue.write_at_now(move |_, tx, _| {
            Box::pin(async move {
                let purge = sqlx::query(sql.purge.clone()).bind(keep).bind(limit.get());
                Ok(purge.execute(tx).await.map_err(store_error)?.rows_affected())
            })
        });
        purge.await
    }
}

#[async_trait]
impl SchemaAdmin for SqliteProgress {
    async fn deploy_schema(&self) -> Result<u32, StoreError> {
        self.queue.deploy_beside(&PROGRESS).await
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        self.queue.check_beside(&PROGRESS).await
    }

    fn schema_script(&self) -> String {
        self.queue.script(&PROGRESS)
    }
}

impl fmt::Debug for SqliteProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteProgress").field("queue", &self.queue).finish_non_exhaustive()
    }
}
