//! The list of paused routes, filled from memory.

use std::collections::BTreeMap;
use std::time::SystemTime;

use async_trait::async_trait;
use pillarbox_core::pause::{PAUSES_MAX, Pause, PauseRecord, PauseStore, check_route};
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::{SchemaAdmin, StoreError};

use super::store::MemoryStore;

/// The paused routes of a queue in memory; clones share everything.
#[derive(Clone, Debug)]
pub struct MemoryPauses {
    queue: MemoryStore,
}

/// The rows, by route.
pub(super) type Rows = BTreeMap<String, (Pause, SystemTime)>;

impl MemoryPauses {
    pub(super) fn beside(queue: &MemoryStore) -> Self {
        Self { queue: queue.clone() }
    }

    /// Runs one call on the rows, at one instant, with nobody else in between.
    fn call<T>(&self, act: impl FnOnce(&mut Rows, SystemTime) -> T) -> Result<T, StoreError> {
        let mut inner = self.queue.database().lock();
        let (rows, now) = inner.call_pauses(self.queue.naming())?;
        Ok(act(rows, now))
    }
}

fn record((pause, since): &(Pause, SystemTime), now: SystemTime) -> PauseRecord {
    let lasts = now.duration_since(*since).unwrap_or_default();
    PauseRecord { pause: pause.clone(), since: *since, lasts }
}

#[async_trait]
impl PauseStore for MemoryPauses {
    async fn pause(&self, pause: &Pause) -> Result<Option<PauseRecord>, StoreError> {
        pause.validate()?;
        self.call(|rows, now| {
            let before = rows.get(pause.route()).map(|row| record(row, now));
            rows.entry(pause.route().to_owned()).or_insert_with(|| (pause.clone(), now));
            before
        })
    }

    async fn resume(&self, route: &str) -> Result<Option<PauseRecord>, StoreError> {
        check_route(route)?;
        self.call(|rows, now| rows.remove(route).map(|row| record(&row, now)))
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, StoreError> {
        self.call(|rows, now| {
            let mut records: Vec<_> = rows.values().map(|row| record(row, now)).collect();
            records.sort_by_key(|record| record.since);
            records.truncate(usize::try_from(PAUSES_MAX).unwrap_or(usize::MAX));
            records
        })
    }
}

#[async_trait]
impl SchemaAdmin for MemoryPauses {
    async fn deploy_schema(&self) -> Result<u32, StoreError> {
        self.queue.deploy_schema().await?;
        Ok(self.queue.database().deploy_pauses(self.queue.naming()))
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        match self.queue.check_schema().await? {
            SchemaStatus::Current(_) => Ok(self.queue.database().pauses_status(self.queue.naming())),
            other => Ok(other),
        }
    }

    fn schema_script(&self) -> String {
        self.queue.schema_script()
    }
}
