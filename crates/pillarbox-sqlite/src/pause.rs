//! The routes of a queue that an operator paused.

use std::fmt;

use async_trait::async_trait;
use pillarbox_core::pause::{PAUSES_MAX, Pause, PauseRecord, PauseStore, check_route};
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::{SchemaAdmin, StoreError};

use crate::error::store_error;
use crate::migrate::PAUSES;
use crate::row::pause;
use crate::sql::PauseStatements;
use crate::store::SqliteStore;

/// The paused routes of a queue in an SQLite file, through the connections of its store.
pub(crate) struct SqlitePauses {
    queue: SqliteStore,
    sql: PauseStatements,
}

impl SqlitePauses {
    pub(crate) fn beside(queue: &SqliteStore) -> Self {
        Self { queue: queue.clone(), sql: PauseStatements::new(&queue.inner.options.naming) }
    }

    /// Adds a pause, or ends that of its route, and answers the one that was there.
    async fn change(&self, asked: Pause, adds: bool) -> Result<Option<PauseRecord>, StoreError> {
        let find = sqlx::query(self.sql.find.clone()).bind(asked.route().to_owned());
        let sql = if adds { &self.sql.add } else { &self.sql.end };
        let mut change = sqlx::query(sql.clone()).bind(asked.route().to_owned());
        if adds {
            change = change.bind(asked.get_reason().map(str::to_owned)).bind(asked.get_by().map(str::to_owned));
        }
        let write = self.queue.write_at_now(move |_, tx, _| {
            Box::pin(async move {
                let before = find.fetch_optional(&mut *tx).await.map_err(store_error)?;
                change.execute(tx).await.map_err(store_error)?;
                before.as_ref().map(pause).transpose()
            })
        });
        write.await
    }
}

#[async_trait]
impl PauseStore for SqlitePauses {
    async fn pause(&self, asked: &Pause) -> Result<Option<PauseRecord>, StoreError> {
        asked.validate()?;
        self.change(asked.clone(), true).await
    }

    async fn resume(&self, route: &str) -> Result<Option<PauseRecord>, StoreError> {
        check_route(route)?;
        self.change(Pause::new(route), false).await
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, StoreError> {
        let list = sqlx::query(self.sql.list.clone()).bind(PAUSES_MAX);
        list.fetch_all(self.queue.pool()).await.map_err(store_error)?.iter().map(pause).collect()
    }
}

#[async_trait]
impl SchemaAdmin for SqlitePauses {
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

impl fmt::Debug for SqlitePauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlitePauses").field("queue", &self.queue).finish_non_exhaustive()
    }
}
