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

use crate::migrate::INSTANCES;
use crate::parameters::micros;
use crate::row::instance;
use crate::sql::InstanceSql;
use crate::store::{PgQuery, PostgresStore};

/// The instances of a queue in a PostgreSQL database, through the connections of its store.
pub(crate) struct PostgresInstances {
    queue: PostgresStore,
    sql: InstanceSql,
}

impl PostgresInstances {
    pub(crate) fn beside(queue: &PostgresStore) -> Self {
        Self { queue: queue.clone(), sql: InstanceSql::new(&queue.settings().naming) }
    }
}

#[async_trait]
impl InstanceStore for PostgresInstances {
    async fn heartbeat(&self, instance: &Instance) -> Result<(), StoreError> {
        instance.validate()?;
        let bind = |query: PgQuery| {
            let InstanceParts { service, host, pid, version, metadata } = InstanceParts::of(instance);
            query.bind(instance.id().as_uuid()).bind(service).bind(host).bind(pid).bind(version).bind(metadata)
        };
        self.queue.execute(&self.sql.heartbeat, bind).await.map(drop)
    }

    async fn leave(&self, id: InstanceId) -> Result<bool, StoreError> {
        Ok(self.queue.execute(&self.sql.leave, |query| query.bind(id.as_uuid())).await? > 0)
    }

    async fn live(&self, stale_after: Duration) -> Result<Vec<InstanceRecord>, StoreError> {
        check_stale_after(stale_after)?;
        let bind = |query: PgQuery| {
            let read_max = i32::try_from(METADATA_READ_MAX).unwrap_or(i32::MAX);
            query.bind(micros(stale_after)).bind(read_max).bind(i64::from(INSTANCES_MAX))
        };
        let rows = self.queue.fetch(&self.sql.live, bind).await?;
        rows.iter().filter_map(|row| instance(row).transpose()).collect()
    }

    async fn forget(&self, stale_after: Duration, limit: PurgeLimit) -> Result<u64, StoreError> {
        check_stale_after(stale_after)?;
        let bind = |query: PgQuery| query.bind(micros(stale_after)).bind(i64::from(limit.get()));
        self.queue.execute(&self.sql.forget, bind).await
    }
}

#[async_trait]
impl SchemaAdmin for PostgresInstances {
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

impl fmt::Debug for PostgresInstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresInstances").field("queue", &self.queue).finish_non_exhaustive()
    }
}
