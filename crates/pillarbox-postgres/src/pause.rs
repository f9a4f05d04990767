//! The routes of a queue that an operator paused.

use std::fmt;

use async_trait::async_trait;
use pillarbox_core::pause::{PAUSES_MAX, Pause, PauseRecord, PauseStore, check_route};
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::{SchemaAdmin, StoreError};

use crate::migrate::PAUSES;
use crate::row::pause;
use crate::sql::PauseSql;
use crate::store::{PgQuery, PostgresStore};

/// The paused routes of a queue in a PostgreSQL database, through the connections of its store.
pub(crate) struct PostgresPauses {
    queue: PostgresStore,
    sql: PauseSql,
}

impl PostgresPauses {
    pub(crate) fn beside(queue: &PostgresStore) -> Self {
        Self { queue: queue.clone(), sql: PauseSql::new(&queue.settings().naming) }
    }
}

#[async_trait]
impl PauseStore for PostgresPauses {
    async fn pause(&self, asked: &Pause) -> Result<Option<PauseRecord>, StoreError> {
        asked.validate()?;
        let (route, reason, by) = (asked.route(), asked.get_reason(), asked.get_by());
        let bind =
            |query: PgQuery| query.bind(route.to_owned()).bind(reason.map(str::to_owned)).bind(by.map(str::to_owned));
        self.queue.fetch(&self.sql.add, bind).await?.first().map(pause).transpose()
    }

    async fn resume(&self, route: &str) -> Result<Option<PauseRecord>, StoreError> {
        check_route(route)?;
        let rows = self.queue.fetch(&self.sql.end, |query| query.bind(route.to_owned())).await?;
        rows.first().map(pause).transpose()
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, StoreError> {
        let rows = self.queue.fetch(&self.sql.list, |query| query.bind(i64::from(PAUSES_MAX))).await?;
        rows.iter().map(pause).collect()
    }
}

#[async_trait]
impl SchemaAdmin for PostgresPauses {
    async fn deploy_schema(&self) -> Result<u32, StoreError> {
        self.queue.deploy_beside(&PAUSES).await
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        self.queue.check_beside(&PAUSES).await
    }

    fn schema_script(&self) -> String {
        self.queue.script(&PAUSES)
    }
}

impl fmt::Debug for PostgresPauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresPauses").field("queue", &self.queue).finish_non_exhaustive()
    }
}
