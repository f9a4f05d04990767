//! The routes of a queue that an operator paused.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use pillarbox_core::pause::{PAUSES_MAX, Pause, PauseRecord, PauseStore, check_route};
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::{SchemaAdmin, StoreError};
use sqlx::{AssertSqlSafe, MySqlConnection};

use crate::error::store_error;
use crate::migrate::PAUSES;
use crate::row::pause;
use crate::sql::PauseStatements;
use crate::store::MysqlStore;

/// The paused routes of a queue in a MySQL or MariaDB database, through the connections of its store.
pub(crate) struct MysqlPauses {
    queue: MysqlStore,
    sql: Arc<PauseStatements>,
}

impl MysqlPauses {
    pub(crate) fn beside(queue: &MysqlStore) -> Self {
        Self { queue: queue.clone(), sql: Arc::new(PauseStatements::new(&queue.inner.options.naming)) }
    }

    /// Adds a pause, or ends that of its route, and answers the one that was there.
    async fn change(&self, asked: Pause, adds: bool) -> Result<Option<PauseRecord>, StoreError> {
        let (sql, asked) = (Arc::clone(&self.sql), Arc::new(asked));
        self.queue
            .within(move |tx| {
                let (sql, asked) = (Arc::clone(&sql), Arc::clone(&asked));
                Box::pin(async move {
                    let before = find(tx, &sql, asked.route()).await?;
                    let change = AssertSqlSafe(if adds { sql.add.clone() } else { sql.end.clone() });
                    let change = sqlx::query(change).bind(asked.route());
                    let change = if adds { change.bind(asked.get_reason()).bind(asked.get_by()) } else { change };
                    change.execute(tx).await.map_err(store_error)?;
                    Ok(before)
                })
            })
            .await
    }
}

async fn find(tx: &mut MySqlConnection, sql: &PauseStatements, route: &str) -> Result<Option<PauseRecord>, StoreError> {
    let find = sqlx::query(AssertSqlSafe(sql.find.clone())).bind(route);
    find.fetch_optional(tx).await.map_err(store_error)?.as_ref().map(pause).transpose()
}

#[async_trait]
impl PauseStore for MysqlPauses {
    async fn pause(&self, asked: &Pause) -> Result<Option<PauseRecord>, StoreError> {
        asked.validate()?;
        self.change(asked.clone(), true).await
    }

    async fn resume(&self, route: &str) -> Result<Option<PauseRecord>, StoreError> {
        check_route(route)?;
        self.change(Pause::new(route), false).await
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, StoreError> {
        let sql = Arc::clone(&self.sql);
        let rows = self.queue.within(move |tx| {
            let list = sqlx::query(AssertSqlSafe(sql.list.clone())).bind(PAUSES_MAX);
            Box::pin(async move { list.fetch_all(tx).await.map_err(store_error) })
        });
        rows.await?.iter().map(pause).collect()
    }
}

#[async_trait]
impl SchemaAdmin for MysqlPauses {
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

impl fmt::Debug for MysqlPauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlPauses").field("queue", &self.queue).finish_non_exhaustive()
    }
}
