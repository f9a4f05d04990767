//! The list of the instances that serve a queue.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox_core::instance::{
    INSTANCES_MAX, Instance, InstanceParts, InstanceRecord, InstanceStore, METADATA_READ_MAX, check_stale_after,
};
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::{InstanceId, SchemaAdmin, StoreError};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{SqlStr, Sqlite};

use crate::error::store_error;
use crate::migrate::INSTANCES;
use crate::row::{instance, micros};
use crate::sql::InstanceStatements;
use crate::store::SqliteStore;

/// The instances of a queue in an SQLite file, through the connections of its store.
pub(crate) struct SqliteInstances {
    queue: SqliteStore,
    sql: InstanceStatements,
}

impl SqliteInstances {
    pub(crate) fn beside(queue: &SqliteStore) -> Self {
        Self { queue: queue.clone(), sql: InstanceStatements::new(&queue.inner.options.naming) }
    }

    /// Runs one statement at the database's now; how many rows it changed.
    async fn change(
        &self,
        sql: &SqlStr,
        bind: impl FnOnce(Bound) -> Bound + Send + 'static,
    ) -> Result<u64, StoreError> {
        let query = bind(sqlx::query(sql.clone()));
        let change = self.queue.write_at_now(move |_, tx, _| {
            Box::pin(async move { Ok(query.execute(tx).await.map_err(store_error)?.rows_affected()) })
        });
        change.await
    }
}

type Bound = Query<'static, Sqlite, SqliteArguments>;

#[async_trait]
impl InstanceStore for SqliteInstances {
    async fn heartbeat(&self, instance: &Instance) -> Result<(), StoreError> {
        instance.validate()?;
        let (id, parts) = (instance.id().as_uuid(), InstanceParts::of(instance));
        let bind = move |query: Bound| {
            let InstanceParts { service, host, pid, version, metadata } = parts;
            query.bind(id).bind(service).bind(host).bind(pid).bind(version).bind(metadata)
        };
        self.change(&self.sql.heartbeat, bind).await.map(drop)
    }

    async fn leave(&self, id: InstanceId) -> Result<bool, StoreError> {
        Ok(self.change(&self.sql.leave, move |query| query.bind(id.as_uuid())).await? > 0)
    }

    async fn live(&self, stale_after: Duration) -> Result<Vec<InstanceRecord>, StoreError> {
        check_stale_after(stale_after)?;
        let live = sqlx::query(self.sql.live.clone()).bind(micros(stale_after)).bind(METADATA_READ_MAX);
        let rows = live.bind(INSTANCES_MAX).fetch_all(self.queue.pool()).await.map_err(store_error)?;
        rows.iter().filter_map(|row| instance(row).transpose()).collect()
    }

    async fn forget(&self, stale_after: Duration, limit: PurgeLimit) -> Result<u64, StoreError> {
        check_stale_after(stale_after)?;
        let bind = move |query: Bound| query.bind(micros(stale_after)).bind(limit.get());
        self.change(&self.sql.forget, bind).await
    }
}

#[async_trait]
impl SchemaAdmin for SqliteInstances {
    async fn deploy_schema(&self) -> Result<u32, StoreError> {
        self.queue.deploy_beside(&INSTANCES).await
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        self.queue.check_beside(&INSTANCES).await
    }

    fn schema_script(&self) -> String {
        self.queue.script(&INSTANCES)
    }
}

impl fmt::Debug for SqliteInstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteInstances").field("queue", &self.queue).finish_non_exhaustive()
    }
}
