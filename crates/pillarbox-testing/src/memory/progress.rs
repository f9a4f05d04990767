//! How far receptors and perspectives have come, filled from memory.

use std::collections::{BTreeMap, HashSet};
use std::time::SystemTime;

use async_trait::async_trait;
use pillarbox_core::progress::{
    Checkpoint, CheckpointRecord, Outcome, ProgressStore, RECEPTORS_MAX, ReceptorRecord, ReceptorResult, check_names,
};
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::{MessageId, OutboxStore, SchemaAdmin, StoreError};

use super::row::increased;
use super::store::MemoryStore;

/// The progress beside a queue in memory; clones share everything.
#[derive(Clone, Debug)]
pub struct MemoryProgress {
    queue: MemoryStore,
}

/// The rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    receptors: BTreeMap<(MessageId, String), ReceptorRecord>,
    checkpoints: BTreeMap<(String, String), CheckpointRecord>,
}

impl Progress {
    /// Stores what a transaction has written, as far as another has not come further in the meantime.
    pub(super) fn lay_over(&mut self, other: Self) {
        let nothing = Self::default();
        for (key, record) in other.receptors {
            if self.record_receptor(&nothing, &record.result, record.changed_at) {
                self.receptors.insert(key, record);
            }
        }
        for record in other.checkpoints.into_values() {
            self.record_checkpoint(&nothing, &record.checkpoint, record.changed_at);
        }
    }

    /// Stores a result upon what is known here, or else in `before`; whether it counts.
    pub(super) fn record_receptor(&mut self, before: &Self, result: &ReceptorResult, now: SystemTime) -> bool {
        let key = (result.message_id, result.receptor.clone());
        let known = self.receptors.get(&key).or_else(|| before.receptors.get(&key));
        if known.is_some_and(|known| known.result.outcome == Outcome::Done) {
            return false;
        }
        let attempts = increased(known.map_or(0, |known| known.attempts));
        let result = ReceptorResult { outcome: stored(&result.outcome), ..result.clone() };
        self.receptors.insert(key, ReceptorRecord { result, attempts, changed_at: now });
        true
    }

    /// Forgets so many old results of messages that are not stored any more.
    fn purge(&mut self, limit: u32, until: SystemTime, is_stored: impl Fn(MessageId) -> bool) -> u64 {
        let is_old = |record: &&ReceptorRecord| record.changed_at <= until && !is_stored(record.result.message_id);
        let mut old: Vec<_> = self.receptors.values().filter(is_old).map(|one| (one.changed_at, key_of(one))).collect();
        old.sort_unstable();
        old.truncate(limit as usize);
        for (_, key) in &old {
            self.receptors.remove(key);
        }
        old.len() as u64
    }

    /// Stores a checkpoint upon what is known here, or else in `before`; whether it counts.
    pub(super) fn record_checkpoint(&mut self, before: &Self, checkpoint: &Checkpoint, now: SystemTime) -> bool {
        let key = (checkpoint.stream.clone(), checkpoint.perspective.clone());
        let known = self.checkpoints.get(&key).or_else(|| before.checkpoints.get(&key)).map(|one| &one.checkpoint);
        let is_further = known.is_none_or(|known| match checkpoint.position.cmp(&known.position) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => known.outcome != Outcome::Done,
            std::cmp::Ordering::Greater => true,
        });
        if is_further {
            let checkpoint = Checkpoint { outcome: stored(&checkpoint.outcome), ..checkpoint.clone() };
            self.checkpoints.insert(key, CheckpointRecord { checkpoint, changed_at: now });
        }
        is_further
    }
}

fn key_of(record: &ReceptorRecord) -> (MessageId, String) {
    (record.result.message_id, record.result.receptor.clone())
}

fn stored(outcome: &Outcome) -> Outcome {
    Outcome::from_columns(outcome.as_str(), outcome.error())
}

impl MemoryProgress {
    pub(super) fn beside(queue: &MemoryStore) -> Self {
        Self { queue: queue.clone() }
    }

    fn call<T>(&self, act: impl FnOnce(&Progress) -> T) -> Result<T, StoreError> {
        let mut inner = self.queue.database().lock();
        let (progress, _) = inner.call_progress(self.queue.naming())?;
        Ok(act(progress))
    }
}

#[async_trait]
impl ProgressStore for MemoryProgress {
    async fn receptors_of(&self, message_id: MessageId) -> Result<Vec<ReceptorRecord>, StoreError> {
        let max = usize::try_from(RECEPTORS_MAX).unwrap_or(usize::MAX);
        self.call(|progress| {
            let of_it = progress.receptors.iter().filter(|((of, _), _)| *of == message_id);
            of_it.map(|(_, record)| record.clone()).take(max).collect()
        })
    }

    async fn checkpoint(&self, stream: &str, perspective: &str) -> Result<Option<CheckpointRecord>, StoreError> {
        check_names(stream, perspective)?;
        self.call(|progress| progress.checkpoints.get(&(stream.to_owned(), perspective.to_owned())).cloned())
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        let (database, naming) = (self.queue.database(), self.queue.naming());
        if database.progress_status(naming) == SchemaStatus::Missing {
            return Ok(0);
        }
        let stored: HashSet<_> = self.queue.call(|outbox, _| outbox.rows().map(|row| row.message.id()).collect())?;
        let mut inner = database.lock();
        let (progress, now) = inner.call_progress(naming)?;
        let until = now - self.queue.options().retention.keeps_results_for();
        Ok(progress.purge(limit.get(), until, |id| stored.contains(&id)))
    }
}

#[async_trait]
impl SchemaAdmin for MemoryProgress {
    async fn deploy_schema(&self) -> Result<u32, StoreError> {
        self.queue.deploy_schema().await?;
        Ok(self.queue.database().deploy_progress(self.queue.naming()))
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        match self.queue.check_schema().await? {
            SchemaStatus::Current(_) => Ok(self.queue.database().progress_status(self.queue.naming())),
            other => Ok(other),
        }
    }

    fn schema_script(&self) -> String {
        self.queue.schema_script()
    }
}
