//! The store's seam, filled from memory.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use pillarbox_core::admin::StoredMessage;
use pillarbox_core::lease::{Claim, Held, Lease};
use pillarbox_core::naming::Naming;
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::schema::{SchemaPolicy, SchemaStatus};
use pillarbox_core::store::{Claimed, Enqueue, Enqueued, Exchanged, GuardPlan, Reap, Reaped, Settlement, StoreOptions};
use pillarbox_core::{
    InstanceStore, OutboxAdmin, OutboxStore, OwnerToken, PauseStore, ProgressStore, SchemaAdmin, Settled, StoreError,
    StoreId,
};

use super::database::MemoryDatabase;
use super::instance::MemoryInstances;
use super::locks::until_free;
use super::outbox::Outbox;
use super::pause::MemoryPauses;
use super::progress::MemoryProgress;
use super::row::Row;
use super::staged::Overlay;

/// A store in memory; clones share everything.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    id: StoreId,
    options: Arc<StoreOptions>,
    database: MemoryDatabase,
}

impl MemoryStore {
    /// A store in a database of its own, its tables deployed.
    ///
    /// More handles on the same tables, and other settings for the schema, come from [`MemoryDatabase::connect`].
    ///
    /// # Panics
    ///
    /// When the options contradict the limits that every store has.
    pub fn new(mut options: StoreOptions) -> Self {
        options.schema = SchemaPolicy::Deploy;
        MemoryDatabase::new().connect(options).expect("the options are within the limits of every store")
    }

    /// The database behind the store: its clock and its transactions.
    pub fn database(&self) -> &MemoryDatabase {
        &self.database
    }

    /// Every message that was committed, wherever it stands, in the order of the sequence.
    ///
    /// Those that a purge or an operator removed are gone.
    pub fn messages(&self) -> Result<Vec<StoredMessage>, StoreError> {
        self.call(|outbox, _| outbox.rows().map(Row::stored).collect())
    }

    pub(super) fn on(database: MemoryDatabase, options: StoreOptions) -> Self {
        let named = options.store_id.clone();
        let id = named.unwrap_or_else(|| StoreId::new("memory").expect("the name is short and not empty"));
        Self { id, options: Arc::new(options), database }
    }

    pub(super) fn naming(&self) -> &Naming {
        &self.options.naming
    }

    /// Runs one call on the rows, at one instant, with nobody else in between.
    pub(super) fn call<T>(&self, act: impl FnOnce(&mut Outbox, SystemTime) -> T) -> Result<T, StoreError> {
        let mut inner = self.database.lock();
        let (outbox, now) = inner.call(self.naming())?;
        Ok(act(outbox, now))
    }

    /// As [`call`](Self::call), once no open transaction has settled one of these claims.
    async fn call_at<'h, T>(
        &self,
        owner: OwnerToken,
        held: impl IntoIterator<Item = &'h Held> + Clone,
        act: impl Fn(&mut Outbox, SystemTime) -> T,
    ) -> Result<T, StoreError> {
        let attempt = || {
            self.call(|outbox, now| match outbox.holder(owner, held.clone()) {
                Some(holder) => Err(holder),
                None => Ok(act(outbox, now)),
            })
        };
        until_free(attempt).await
    }

    fn settle_on(
        &self,
        outbox: &mut Outbox,
        owner: OwnerToken,
        plan: &GuardPlan<'_, Settlement>,
        now: SystemTime,
    ) -> Vec<Settled> {
        let retention = self.options.retention;
        let mut applied = Vec::new();
        for settlement in plan.rows() {
            if outbox.settle(owner, settlement, retention, now) {
                applied.push(settlement.held.work_id);
            }
        }
        plan.answers(applied)
    }
}

#[async_trait]
impl OutboxStore for MemoryStore {
    fn id(&self) -> &StoreId {
        &self.id
    }

    fn options(&self) -> &StoreOptions {
        &self.options
    }

    async fn enqueue(&self, enqueue: Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
        self.options.limits.check(enqueue.messages())?;
        if enqueue.messages().is_empty() {
            return Ok(Vec::new());
        }
        self.call(|outbox, now| {
            let (rows, answers) = outbox.prepare(&enqueue, &Overlay::new(), now);
            outbox.insert(rows);
            answers
        })
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, StoreError> {
        self.call(|outbox, now| outbox.claim(&claim, self.options.lost_leases_max, now))
    }

    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        let plan = GuardPlan::new(settlements, |settlement| settlement.held)?;
        if plan.is_empty() {
            return Ok(Vec::new());
        }
        let held = plan.rows().iter().map(|settlement| &settlement.held);
        self.call_at(owner, held, |outbox, now| self.settle_on(outbox, owner, &plan, now)).await
    }

    async fn exchange(&self, settlements: &[Settlement], claim: Claim) -> Result<Exchanged, StoreError> {
        let plan = GuardPlan::new(settlements, |settlement| settlement.held)?;
        let held = plan.rows().iter().map(|settlement| &settlement.held);
        self.call_at(claim.owner(), held, |outbox, now| Exchanged {
            settled: self.settle_on(outbox, claim.owner(), &plan, now),
            claimed: outbox.claim(&claim, self.options.lost_leases_max, now),
        })
        .await
    }

    async fn renew(&self, owner: OwnerToken, held: &[Held], lease: Duration) -> Result<Vec<Settled>, StoreError> {
        let lease = Lease::new(owner, lease)?;
        let plan = GuardPlan::new(held, |held| *held)?;
        if plan.is_empty() {
            return Ok(Vec::new());
        }
        self.call_at(owner, plan.rows().iter().copied(), |outbox, now| {
            let renewed: Vec<_> = plan.rows().iter().filter(|held| outbox.renew(lease, ***held, now)).collect();
            plan.answers(renewed.into_iter().map(|held| held.work_id))
        })
        .await
    }

    async fn reap(&self, reap: Reap) -> Result<Reaped, StoreError> {
        reap.validate()?;
        self.call(|outbox, now| outbox.reap(reap, self.options.lost_leases_max, now))
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        let keep = self.options.retention.keeps_for().unwrap_or_default();
        self.call(|outbox, now| outbox.purge(limit.get(), keep, now))
    }

    async fn oldest_pending(&self) -> Result<Option<Duration>, StoreError> {
        Ok(self.overview().await?.oldest_pending)
    }

    async fn detached(&self) -> Result<Arc<dyn OutboxStore>, StoreError> {
        // A clone: nothing here waits for anybody's runtime.
        Ok(Arc::new(self.clone()))
    }

    fn instances(&self) -> Option<Arc<dyn InstanceStore>> {
        Some(Arc::new(MemoryInstances::beside(self)))
    }

    fn pauses(&self) -> Option<Arc<dyn PauseStore>> {
        Some(Arc::new(MemoryPauses::beside(self)))
    }

    fn progress(&self) -> Option<Arc<dyn ProgressStore>> {
        Some(Arc::new(MemoryProgress::beside(self)))
    }
}

#[async_trait]
impl SchemaAdmin for MemoryStore {
    async fn deploy_schema(&self) -> Result<u32, StoreError> {
        self.database.deploy(self)
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        Ok(self.database.schema_status(self))
    }

    fn schema_script(&self) -> String {
        format!("-- {} lives in memory: there is nothing to run.\n", self.naming().joined())
    }
}
