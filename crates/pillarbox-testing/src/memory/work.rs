//! What the work coordinator does in a transaction on the memory database.

use std::collections::BTreeSet;
use std::time::SystemTime;

use pillarbox_core::inbox::{Incoming, Received, decide};
use pillarbox_core::lease::{Claim, Held, Lease};
use pillarbox_core::progress::{Checkpoint, ReceptorResult, RecordPlan, Recorded};
use pillarbox_core::store::{BoxFuture, Claimed, GuardPlan};
use pillarbox_core::{OutboxStore, ReceiveIn, Settled, StoreError, WorkTransaction};

use super::inbox::MemoryInbox;
use super::ledger::{Entry, Ledger, Name, name_of};
use super::locks::{Holder, until_free};
use super::progress::Progress;
use super::row::Row;
use super::staged::Registration;
use super::store::MemoryStore;
use super::transaction::{Fate, MemoryTransaction};

impl WorkTransaction<MemoryStore> for MemoryTransaction {
    fn claim<'a>(
        &'a mut self,
        store: &'a MemoryStore,
        claim: Claim,
    ) -> BoxFuture<'a, Result<Vec<Claimed>, StoreError>> {
        Box::pin(async move {
            self.require_whole(store)?;
            self.act(store, |outbox, now| outbox.claim(&claim, store.options().lost_leases_max, now))
        })
    }

    fn renew_planned<'a>(
        &'a mut self,
        store: &'a MemoryStore,
        lease: Lease,
        plan: &'a GuardPlan<'a, Held>,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async move {
            self.require_whole(store)?;
            let fate = std::mem::replace(&mut self.fate, Fate::Spoiled);
            let renew = |row: &mut Row, held: &Held, now| {
                row.renew(lease, *held, now);
                true
            };
            let renewed =
                until_free(|| self.change_held(store, lease.owner(), plan.rows(), |held| *held, renew)).await?;
            self.fate = fate;
            Ok(plan.answers(renewed))
        })
    }

    fn record_receptors<'a>(
        &'a mut self,
        store: &'a MemoryStore,
        plan: &'a RecordPlan<'a, ReceptorResult>,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, StoreError>> {
        Box::pin(async move { self.record(store, plan, Progress::record_receptor) })
    }

    fn record_checkpoints<'a>(
        &'a mut self,
        store: &'a MemoryStore,
        plan: &'a RecordPlan<'a, Checkpoint>,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, StoreError>> {
        Box::pin(async move { self.record(store, plan, Progress::record_checkpoint) })
    }
}

impl MemoryTransaction {
    fn record<T: PartialEq>(
        &mut self,
        store: &MemoryStore,
        plan: &RecordPlan<'_, T>,
        record: impl Fn(&mut Progress, &Progress, &T, SystemTime) -> bool,
    ) -> Result<Vec<Recorded>, StoreError> {
        self.require_whole(store)?;
        let mut inner = store.database().lock();
        let (before, now) = inner.call_progress(store.naming())?;
        let staged = self.staged.progress(store.naming());
        let applied: Vec<&T> = plan.rows().filter(|one| record(staged, before, one, now)).collect();
        Ok(plan.answers(|one| applied.contains(&one)))
    }

    /// The entries of these messages as this transaction sees them.
    fn seen_ledger(&self, inbox: &MemoryInbox, names: &BTreeSet<Name>) -> Result<Ledger, StoreError> {
        let naming = inbox.queue_store().naming();
        inbox.call(|_, ledger, _| {
            let mut seen = Ledger::default();
            for name in names {
                let staged = self.staged.registration(naming, name).map(|at| &self.staged.registrations[at].entry);
                if let Some(entry) = staged.or_else(|| ledger.entries.get(name)) {
                    seen.entries.insert(name.clone(), entry.clone());
                }
            }
            seen
        })
    }

    fn try_receive(
        &mut self,
        inbox: &MemoryInbox,
        ledger: &mut Ledger,
        incoming: &[Incoming],
    ) -> Result<Result<Vec<Received>, Holder>, StoreError> {
        self.act(inbox.queue_store(), |outbox, now| {
            let takes = |entry: &&Entry| decide(Some(entry.standing(outbox, now))).takes_row();
            let mut taken = ledger.entries.values().filter(takes);
            if let Some(holder) = taken.find_map(|entry| outbox.holder_of(entry.message_id)) {
                return Err(holder);
            }
            Ok(incoming.iter().map(|one| inbox.receive_one(outbox, ledger, now, one)).collect())
        })
    }
}

impl ReceiveIn<MemoryTransaction> for MemoryInbox {
    fn receive_checked<'a>(
        &'a self,
        tx: &'a mut MemoryTransaction,
        incoming: &'a [Incoming],
    ) -> BoxFuture<'a, Result<Vec<Received>, StoreError>> {
        Box::pin(async move {
            tx.require_whole(self.queue_store())?;
            let fate = std::mem::replace(&mut tx.fate, Fate::Spoiled);
            let naming = self.queue_store().naming();
            let names: BTreeSet<Name> = incoming.iter().map(|one| name_of(one.receipt())).collect();
            let is_ours = |name: &Name| tx.staged.registration(naming, name).is_some();
            let others = names.iter().filter(|name| !is_ours(name)).cloned().collect();
            tx.locks.1.extend(self.lock(others).await?);
            let mut ledger = tx.seen_ledger(self, &names)?;
            let received = until_free(|| tx.try_receive(self, &mut ledger, incoming)).await?;
            for (name, entry) in ledger.entries {
                match tx.staged.registration(naming, &name) {
                    Some(at) => tx.staged.registrations[at].entry = entry,
                    None => tx.staged.registrations.push(Registration { naming: naming.clone(), name, entry }),
                }
            }
            tx.fate = fate;
            Ok(received)
        })
    }
}
