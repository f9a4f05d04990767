//! The list of the instances that serve a queue.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox_core::instance::{
    INSTANCES_MAX, Instance, InstanceParts, InstanceRecord, InstanceStore, METADATA_READ_MAX, check_stale_after,
};
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::{InstanceId, SchemaAdmin, StoreError};
use sqlx::AssertSqlSafe;
use sqlx::mysql::{MySql, MySqlArguments};
use sqlx::query::Query;

use crate::error::store_error;
use crate::migrate::INSTANCES;
use crate::parameters::duration_micros;
use crate::row::instance;
use crate::sql::InstanceStatements;
use crate::store::MysqlStore;

/// The instances of a queue in a MySQL or MariaDB database, through the connections of its store.
pub(crate) struct MysqlInstances {
    queue: MysqlStore,
    sql: Arc<InstanceStatements>,
}

type Bound = Query<'static, MySql, MySqlArguments>;

impl MysqlInstances {
    pub(crate) fn beside(queue: &MysqlStore) -> Self {
        let sql = Arc::new(InstanceStatements::new(&queue.inner.options.naming));
        Self { queue: queue.clone(), sql }
    }

    /// Runs one statement in a transaction of its own; how many rows it changed.
    async fn change(
        &self,
        sql: &str,
        bind: impl Fn(Bound) -> Bound + Send + Sync + 'static,
    ) -> Result<u64, StoreError> {
        let sql: Arc<str> = sql.into();
        self.queue
            .within(move |tx| {
                let query = bind(sqlx::query(AssertSqlSafe(Arc::clone(&sql))));
                Box::pin(async move { Ok(query.execute(tx).await.map_err(store_error)?.rows_affected()) })
            })
            .await
    }
}

#[async_trait]
impl InstanceStore for MysqlInstances {
    async fn heartbeat(&self, instance: &Instance) -> Result<(), StoreError> {
        instance.validate()?;
        let (id, parts) = (instance.id().as_uuid(), InstanceParts::of(instance));
        let bind = move |query: Bound| {
            let InstanceParts { service, host, pid, version, metadata } = parts.clone();
            query.bind(id).bind(service).bind(host).bind(pid).bind(version).bind(metadata)
        };
        self.change(&self.sql.heartbeat, bind).await.map(drop)
    }

    async fn leave(&self, id: InstanceId) -> Result<bool, StoreError> {
        Ok(self.change(&self.sql.leave, move |query| query.bind(id.as_uuid())).await? > 0)
    }

    async fn live(&self, stale_after: Duration) -> Result<Vec<InstanceRecord>, StoreError> {
        check_stale_after(stale_after)?;
        let sql = Arc::clone(&self.sql);
        let rows = self.queue.within(move |tx| {
            let live = sqlx::query(AssertSqlSafe(sql.live.clone())).bind(METADATA_READ_MAX);
            let live = live.bind(duration_micros(stale_after)).bind(INSTANCES_MAX);
            Box::pin(async move { live.fetch_all(tx).await.map_err(store_error) })
        });
        rows.await?.iter().filter_map(|row| instance(row).transpose()).collect()
    }

    async fn forget(&self, stale_after: Duration, limit: PurgeLimit) -> Result<u64, StoreError> {
        check_stale_after(stale_after)?;
        let bind = move |query: Bound| query.bind(duration_micros(stale_after)).bind(limit.get());
        self.change(&self.sql.forget, bind).await
    }
}

#[async_trait]
impl SchemaAdmin for MysqlInstances {
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

impl fmt::Debug for MysqlInstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlInstances").field("queue", &self.queue).finish_non_exhaustive()
    }
}
