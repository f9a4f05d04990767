//! The list of instances, filled from memory.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use pillarbox_core::instance::{
    INSTANCES_MAX, Instance, InstanceParts, InstanceRecord, InstanceStore, METADATA_READ_MAX, check_stale_after,
};
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::{InstanceId, SchemaAdmin, StoreError};
use uuid::Uuid;

use super::store::MemoryStore;

/// The instances of a queue in memory; clones share everything.
#[derive(Clone, Debug)]
pub struct MemoryInstances {
    queue: MemoryStore,
}

/// The rows.
#[derive(Debug, Default)]
pub(super) struct Instances {
    rows: BTreeMap<Uuid, Row>,
}

#[derive(Clone, Debug)]
struct Row {
    parts: InstanceParts,
    started_at: SystemTime,
    last_seen_at: SystemTime,
}

impl Row {
    /// How far its last sign lies from now, before or behind.
    fn distance(&self, now: SystemTime) -> Duration {
        now.duration_since(self.last_seen_at).unwrap_or_else(|ahead| ahead.duration())
    }

    fn record(&self, id: InstanceId, now: SystemTime) -> InstanceRecord {
        let mut parts = self.parts.clone();
        let read = usize::try_from(METADATA_READ_MAX).unwrap_or(usize::MAX);
        parts.metadata = parts.metadata.map(|text| text.chars().take(read).collect());
        let (started_at, last_seen_at) = (self.started_at, self.last_seen_at);
        let silent_for = now.duration_since(last_seen_at).unwrap_or_default();
        InstanceRecord { instance: parts.into_instance(id), started_at, last_seen_at, silent_for }
    }
}

impl MemoryInstances {
    pub(super) fn beside(queue: &MemoryStore) -> Self {
        Self { queue: queue.clone() }
    }

    pub(super) fn insert_foreign(&self, id: Uuid, metadata: &str, ahead: Duration) {
        let parts = InstanceParts {
            metadata: Some(metadata.to_owned()),
            ..InstanceParts::of(&Instance::new("foreign", "foreign", 0))
        };
        let insert = self.call(|instances, now| {
            instances.rows.insert(id, Row { parts, started_at: now, last_seen_at: now + ahead });
        });
        insert.expect("the list is deployed");
    }

    /// Runs one call on the rows, at one instant, with nobody else in between.
    fn call<T>(&self, act: impl FnOnce(&mut Instances, SystemTime) -> T) -> Result<T, StoreError> {
        let mut inner = self.queue.database().lock();
        let (instances, now) = inner.call_instances(self.queue.naming())?;
        Ok(act(instances, now))
    }
}

#[async_trait]
impl InstanceStore for MemoryInstances {
    async fn heartbeat(&self, instance: &Instance) -> Result<(), StoreError> {
        instance.validate()?;
        let parts = InstanceParts::of(instance);
        self.call(|instances, now| {
            let id = instance.id().as_uuid();
            let started_at = instances.rows.get(&id).map_or(now, |known| known.started_at);
            instances.rows.insert(id, Row { parts, started_at, last_seen_at: now });
        })
    }

    async fn leave(&self, id: InstanceId) -> Result<bool, StoreError> {
        self.call(|instances, _| instances.rows.remove(&id.as_uuid()).is_some())
    }

    async fn live(&self, stale_after: Duration) -> Result<Vec<InstanceRecord>, StoreError> {
        check_stale_after(stale_after)?;
        self.call(|instances, now| {
            let live = instances.rows.iter().filter(|(_, row)| row.distance(now) < stale_after);
            let named = live.filter_map(|(id, row)| Some(row.record(InstanceId::from_uuid(*id).ok()?, now)));
            named.take(usize::try_from(INSTANCES_MAX).unwrap_or(usize::MAX)).collect()
        })
    }

    async fn forget(&self, stale_after: Duration, limit: PurgeLimit) -> Result<u64, StoreError> {
        check_stale_after(stale_after)?;
        self.call(|instances, now| {
            let stale = instances.rows.iter().filter(|(_, row)| row.distance(now) >= stale_after);
            let stale: Vec<Uuid> = stale.map(|(id, _)| *id).take(limit.get() as usize).collect();
            stale.iter().filter(|id| instances.rows.remove(*id).is_some()).count() as u64
        })
    }
}

#[async_trait]
impl SchemaAdmin for MemoryInstances {
    async fn deploy_schema(&self) -> Result<u32, StoreError> {
        self.queue.deploy_schema().await?;
        Ok(self.queue.database().deploy_instances(self.queue.naming()))
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        match self.queue.check_schema().await? {
            SchemaStatus::Current(_) => Ok(self.queue.database().instances_status(self.queue.naming())),
            other => Ok(other),
        }
    }

    fn schema_script(&self) -> String {
        self.queue.schema_script()
    }
}
