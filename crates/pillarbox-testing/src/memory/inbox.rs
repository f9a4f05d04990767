//! The inbox's seam, filled from memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use pillarbox_core::inbox::{
    Admission, InboxOptions, InboxRecord, InboxStore, Incoming, Mark, Marking, Receipt, Received, Reception, Sighting,
    Standing, WithInbox, check_page, decide, decide_mark, state_of,
};
use pillarbox_core::lease::Lease;
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::store::{BoxFuture, Enqueue};
use pillarbox_core::{OutboxAdmin, OutboxStore, SchemaAdmin, StoreError, StoreId};
use tokio::sync::OwnedMutexGuard;

use super::ledger::{Entry, Ledger, Name, name_of};
use super::locks::until_free;
use super::outbox::Outbox;
use super::staged::Overlay;
use super::store::MemoryStore;

/// An inbox in memory, beside the store that opened it; clones share everything.
#[derive(Clone, Debug)]
pub struct MemoryInbox {
    queue: MemoryStore,
    remember: Duration,
}

impl WithInbox for MemoryStore {
    type Inbox = MemoryInbox;

    fn inbox(&self, options: InboxOptions) -> BoxFuture<'_, Result<MemoryInbox, StoreError>> {
        Box::pin(async move {
            let queue = options.queue_options(self.options(), self.id())?;
            let (policy, remember) = (queue.schema, queue.retention.keeps_for().unwrap_or_default());
            let inbox = MemoryInbox { queue: MemoryStore::on(self.database().clone(), queue), remember };
            inbox.apply_policy(policy).await?;
            Ok(inbox)
        })
    }

    fn queue_of(inbox: &MemoryInbox) -> Self {
        inbox.queue.clone()
    }
}

impl MemoryInbox {
    pub(super) fn queue_store(&self) -> &MemoryStore {
        &self.queue
    }

    /// Runs one call on queue and ledger, at one instant, with nobody else in between.
    pub(super) fn call<T>(&self, act: impl FnOnce(&mut Outbox, &mut Ledger, SystemTime) -> T) -> Result<T, StoreError> {
        let mut inner = self.queue.database().lock();
        let (outbox, ledger, now) = inner.call_inbox(self.queue.naming())?;
        Ok(act(outbox, ledger, now))
    }

    /// Waits until no open transaction is at these entries, and keeps others away from them.
    pub(super) async fn lock(&self, names: BTreeSet<Name>) -> Result<Vec<OwnedMutexGuard<()>>, StoreError> {
        let mut guards = Vec::with_capacity(names.len());
        for name in names {
            let lock = self.call(|_, ledger, _| ledger.lock_of(&name))?;
            guards.push(lock.lock_owned().await);
        }
        Ok(guards)
    }

    /// Runs one call on the entry of a receipt; whether there was one comes with it.
    async fn at<T>(
        &self,
        receipt: &Receipt,
        act: impl Fn(&mut Entry, bool, &mut Outbox, SystemTime) -> T,
    ) -> Result<T, StoreError> {
        self.at_when(receipt, |_| false, act).await
    }

    /// As [`at`](Self::at), once the queue's row is free if the call is going to take it.
    async fn at_when<T>(
        &self,
        receipt: &Receipt,
        takes: impl Fn(Standing) -> bool,
        act: impl Fn(&mut Entry, bool, &mut Outbox, SystemTime) -> T,
    ) -> Result<T, StoreError> {
        receipt.check()?;
        let name = name_of(receipt);
        let _held = self.lock([name.clone()].into()).await?;
        self.call_when(std::slice::from_ref(&name), takes, |outbox, ledger, now| {
            let is_known = ledger.entries.contains_key(&name);
            let entry = ledger.entries.entry(name.clone()).or_insert_with(|| Entry::new(now));
            act(entry, is_known, outbox, now)
        })
        .await
    }

    /// As [`call`](Self::call), once no open transaction has settled a message that the call is going to take.
    async fn call_when<T>(
        &self,
        names: &[Name],
        takes: impl Fn(Standing) -> bool,
        act: impl Fn(&mut Outbox, &mut Ledger, SystemTime) -> T,
    ) -> Result<T, StoreError> {
        let attempt = || {
            self.call(|outbox, ledger, now| {
                let entries = names.iter().filter_map(|name| ledger.entries.get(name));
                let mut taken = entries.filter(|entry| takes(entry.standing(outbox, now)));
                match taken.find_map(|entry| outbox.holder_of(entry.message_id)) {
                    Some(holder) => Err(holder),
                    None => Ok(act(outbox, ledger, now)),
                }
            })
        };
        until_free(attempt).await
    }

    pub(super) fn receive_one(
        &self,
        outbox: &mut Outbox,
        ledger: &mut Ledger,
        now: SystemTime,
        incoming: &Incoming,
    ) -> Received {
        let name = name_of(incoming.receipt());
        let before = ledger.entries.get(&name).map(|entry| entry.standing(outbox, now));
        let entry = ledger.entries.entry(name).or_insert_with(|| Entry::new(now));
        let is_mismatch = entry.see(incoming.receipt(), now);
        let outcome = decide(before);
        let message = incoming.queued_as(entry.message_id);
        if outcome != Reception::Done {
            entry.queue(incoming.receipt());
        }
        if outcome == Reception::Replaced {
            outbox.forget(entry.message_id);
        }
        if outcome == Reception::Revised
            && let Some(row) = outbox.row_of_mut(entry.message_id)
        {
            row.revise(&message, now);
        }
        if matches!(outcome, Reception::Queued | Reception::Replaced) {
            let (rows, _) = outbox.prepare(&Enqueue::pending(std::slice::from_ref(&message)), &Overlay::new(), now);
            outbox.insert(rows);
        }
        Received { message_id: entry.message_id, before: before.map(state_of), outcome, is_mismatch }
    }
}

#[async_trait]
impl InboxStore for MemoryInbox {
    fn id(&self) -> &StoreId {
        self.queue.id()
    }

    fn queue(&self) -> Arc<dyn OutboxStore> {
        Arc::new(self.queue.clone())
    }

    fn admin(&self) -> Arc<dyn OutboxAdmin> {
        Arc::new(self.queue.clone())
    }

    async fn already_processed(&self, receipt: &Receipt) -> Result<Sighting, StoreError> {
        self.at(receipt, |entry, is_known, outbox, now| {
            let before = is_known.then(|| state_of(entry.standing(outbox, now)));
            Sighting { before, is_mismatch: entry.see(receipt, now) }
        })
        .await
    }

    async fn mark(&self, receipt: &Receipt, mark: Mark) -> Result<Sighting, StoreError> {
        let takes = |standing| matches!(decide_mark(Some(standing), &mark), Marking::Finish | Marking::Bury);
        self.at_when(receipt, takes, |entry, is_known, outbox, now| {
            let before = is_known.then(|| entry.standing(outbox, now));
            let is_mismatch = entry.see(receipt, now);
            entry.mark(outbox, before, mark.clone(), now);
            Sighting { before: before.map(state_of), is_mismatch }
        })
        .await
    }

    async fn receive(&self, incoming: &[Incoming]) -> Result<Vec<Received>, StoreError> {
        Incoming::check_all(incoming, &self.queue.options().limits)?;
        if incoming.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<_> = incoming.iter().map(|one| name_of(one.receipt())).collect();
        let _held = self.lock(names.iter().cloned().collect()).await?;
        let takes = |standing| decide(Some(standing)).takes_row();
        self.call_when(&names, takes, |outbox, ledger, now| {
            incoming.iter().map(|one| self.receive_one(outbox, ledger, now, one)).collect()
        })
        .await
    }

    async fn lease(&self, receipt: &Receipt, lease: Lease) -> Result<Admission, StoreError> {
        self.at(receipt, |entry, _, outbox, now| {
            let is_mismatch = entry.see(receipt, now);
            Admission { registered: entry.take(outbox, Some(lease), None, now), is_mismatch }
        })
        .await
    }

    async fn release(&self, receipt: &Receipt, lease: Lease) -> Result<bool, StoreError> {
        receipt.check()?;
        let name = name_of(receipt);
        let _held = self.lock([name.clone()].into()).await?;
        self.call(|_, ledger, _| ledger.entries.get_mut(&name).is_some_and(|entry| entry.release(lease)))
    }

    async fn get(&self, source: &str, message_id: &str) -> Result<Option<InboxRecord>, StoreError> {
        let receipt = Receipt::new(source, message_id);
        receipt.check()?;
        self.call(|outbox, ledger, now| ledger.record(&name_of(&receipt), outbox, now))
    }

    async fn mismatches(&self, after: Option<(String, String)>, limit: u32) -> Result<Vec<InboxRecord>, StoreError> {
        check_page(limit)?;
        self.call(|outbox, ledger, now| ledger.mismatches(&after.unwrap_or_default(), limit, outbox, now))
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        self.queue.purge(limit).await?;
        self.call(|outbox, ledger, now| ledger.purge(limit.get(), self.remember, outbox, now))
    }
}

#[async_trait]
impl SchemaAdmin for MemoryInbox {
    async fn deploy_schema(&self) -> Result<u32, StoreError> {
        self.queue.deploy_schema().await?;
        Ok(self.queue.database().deploy_ledger(self.queue.naming()))
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        match self.queue.check_schema().await? {
            SchemaStatus::Current(_) => Ok(self.queue.database().ledger_status(self.queue.naming())),
            other => Ok(other),
        }
    }

    fn schema_script(&self) -> String {
        self.queue.schema_script()
    }
}
