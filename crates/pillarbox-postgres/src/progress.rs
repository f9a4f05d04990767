//! How far receptors and perspectives have come: read, and forgotten when it is old.

use std::fmt;

use async_trait::async_trait;
use pillarbox_core::progress::{
    Checkpoint, CheckpointRecord, Outcome, ProgressStore, RECEPTORS_MAX, ReceptorRecord, ReceptorResult, check_names,
};
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::{MessageId, SchemaAdmin, StoreError};
use sqlx::postgres::PgRow;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::migrate::PROGRESS;
use crate::parameters::micros;
use crate::row::get;
use crate::sql::ProgressSql;
use crate::store::{PgQuery, PostgresStore};

/// The progress beside a queue in a PostgreSQL database, through the connections of its store.
pub(crate) struct PostgresProgress {
    queue: PostgresStore,
    sql: ProgressSql,
}

impl PostgresProgress {
    pub(crate) fn beside(queue: &PostgresStore) -> Self {
        Self { queue: queue.clone(), sql: ProgressSql::new(&queue.settings().naming) }
    }
}

#[async_trait]
impl ProgressStore for PostgresProgress {
    async fn receptors_of(&self, message_id: MessageId) -> Result<Vec<ReceptorRecord>, StoreError> {
        let bind = |query: PgQuery| query.bind(message_id.as_uuid()).bind(i64::from(RECEPTORS_MAX));
        let record = |row: &PgRow| {
            let (receptor, outcome) = (get(row, 0)?, Outcome::from_columns(get(row, 1)?, get(row, 2)?));
            let result = ReceptorResult { message_id, receptor, outcome };
            let attempts = u32::try_from(get::<i32>(row, 3)?).unwrap_or(0);
            Ok(ReceptorRecord { result, attempts, changed_at: get::<OffsetDateTime>(row, 4)?.into() })
        };
        self.queue.fetch(&self.sql.receptors_of, bind).await?.iter().map(record).collect()
    }

    async fn checkpoint(&self, stream: &str, perspective: &str) -> Result<Option<CheckpointRecord>, StoreError> {
        check_names(stream, perspective)?;
        let bind = |query: PgQuery| query.bind(stream.to_owned()).bind(perspective.to_owned());
        let rows = self.queue.fetch(&self.sql.checkpoint, bind).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let checkpoint = Checkpoint {
            stream: stream.to_owned(),
            perspective: perspective.to_owned(),
            position: u64::try_from(get::<i64>(row, 0)?).unwrap_or(0),
            message_id: get::<Option<Uuid>>(row, 1)?.and_then(|id| MessageId::from_uuid(id).ok()),
            outcome: Outcome::from_columns(get(row, 2)?, get(row, 3)?),
        };
        Ok(Some(CheckpointRecord { checkpoint, changed_at: get::<OffsetDateTime>(row, 4)?.into() }))
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        let look = self.queue.fetch(&self.sql.purge_look, |query| query).await?;
        if !look.first().map_or(Ok(false), |row| get(row, 0))? {
            return Ok(0);
        }
        let keep = micros(self.queue.settings().retention.keeps_results_for());
        self.queue.execute(&self.sql.purge, |query| query.bind(keep).bind(i64::from(limit.get()))).await
    }
}

#[async_trait]
impl SchemaAdmin for PostgresProgress {
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

impl fmt::Debug for PostgresProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresProgress").field("queue", &self.queue).finish_non_exhaustive()
    }
}
