//! How far receptors and perspectives have come: read, and forgotten when it is old.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use pillarbox_core::progress::{
    Checkpoint, CheckpointRecord, Outcome, ProgressStore, RECEPTORS_MAX, ReceptorRecord, ReceptorResult, check_names,
};
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::{MessageId, SchemaAdmin, StoreError};
use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlRow;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::store_error;
use crate::migrate::PROGRESS;
use crate::row::get;
use crate::sql::ProgressStatements;
use crate::store::MysqlStore;

/// The progress beside a queue in a MySQL or MariaDB database, through the connections of its store.
pub(crate) struct MysqlProgress {
    queue: MysqlStore,
    sql: Arc<ProgressStatements>,
}

impl MysqlProgress {
    pub(crate) fn beside(queue: &MysqlStore) -> Self {
        Self { queue: queue.clone(), sql: Arc::new(ProgressStatements::new(&queue.inner.options.naming)) }
    }
}

#[async_trait]
impl ProgressStore for MysqlProgress {
    async fn receptors_of(&self, message_id: MessageId) -> Result<Vec<ReceptorRecord>, StoreError> {
        let sql = Arc::clone(&self.sql);
        let rows = self.queue.within(move |tx| {
            let look = sqlx::query(AssertSqlSafe(sql.receptors_of.clone()));
            let look = look.bind(message_id.as_uuid()).bind(RECEPTORS_MAX);
            Box::pin(async move { look.fetch_all(tx).await.map_err(store_error) })
        });
        let record = |row: &MySqlRow| {
            let (receptor, outcome) = (get(row, 0)?, Outcome::from_columns(&get::<String>(row, 1)?, get(row, 2)?));
            let result = ReceptorResult { message_id, receptor, outcome };
            let attempts = u32::try_from(get::<i32>(row, 3)?).unwrap_or(0);
            Ok(ReceptorRecord { result, attempts, changed_at: get::<OffsetDateTime>(row, 4)?.into() })
        };
        rows.await?.iter().map(record).collect()
    }

    async fn checkpoint(&self, stream: &str, perspective: &str) -> Result<Option<CheckpointRecord>, StoreError> {
        check_names(stream, perspective)?;
        let (sql, names) = (Arc::clone(&self.sql), [stream, perspective].map(|name| name.as_bytes().to_vec()));
        let rows = self.queue.within(move |tx| {
            let look = sqlx::query(AssertSqlSafe(sql.checkpoint.clone()));
            let look = names.iter().fold(look, |look, name| look.bind(name.clone()));
            Box::pin(async move { look.fetch_all(tx).await.map_err(store_error) })
        });
        let rows = rows.await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let checkpoint = Checkpoint {
            stream: stream.to_owned(),
            perspective: perspective.to_owned(),
            position: u64::try_from(get::<i64>(row, 0)?).unwrap_or(0),
            message_id: get::<Option<Uuid>>(row, 1)?.and_then(|id| MessageId::from_uuid(id).ok()),
            outcome: Outcome::from_columns(&get::<String>(row, 2)?, get(row, 3)?),
        };
        Ok(Some(CheckpointRecord { checkpoint, changed_at: get::<OffsetDateTime>(row, 4)?.into() }))
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        let look = self.queue.transact(vec![self.sql.purge_look.clone()]).await?;
        if look.first().map_or(Ok(0), |row| get::<i64>(row, 0))? == 0 {
            return Ok(0);
        }
        self.queue.purge_by(&self.sql.purge, self.queue.inner.options.retention.keeps_results_for(), limit).await
    }
}

#[async_trait]
impl SchemaAdmin for MysqlProgress {
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

impl fmt::Debug for MysqlProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlProgress").field("queue", &self.queue).finish_non_exhaustive()
    }
}
