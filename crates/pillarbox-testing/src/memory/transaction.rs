//! A user's transaction on the memory database.

use std::time::SystemTime;

use pillarbox_core::lease::{Held, Lease};
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, GuardPlan, OpenTransaction, Settlement};
use pillarbox_core::{
    Admission, CommitError, ConsumeIn, Isolation, OutboxStore, OwnerToken, Receipt, Savepoint, Settled, StoreError,
    StoreTransaction, Transactional, WorkId,
};
use tokio::sync::OwnedMutexGuard;

use super::database::MemoryDatabase;
use super::inbox::MemoryInbox;
use super::ledger::{Entry, Name, name_of};
use super::locks::{Holder, Lock, until_free};
use super::outbox::Outbox;
use super::row::Row;
use super::staged::{Registration, Staged};
use super::store::MemoryStore;

/// What was written and not yet committed; dropping it rolls back.
///
/// Two open transactions do not see each other: of one message enqueued in both, the first commit stores it and the
/// second one leaves it. A message that was settled, renewed or claimed here, and a receipt that was registered or received,
/// are locked until the end: claims and reaps pass over the message, and whoever wants to settle or renew it, or to register the
/// receipt, waits. Two transactions that wait for each other wait for ever.
#[derive(Debug)]
pub struct MemoryTransaction {
    database: MemoryDatabase,
    pub(super) staged: Staged,
    /// On messages, and on entries of ledgers.
    pub(super) locks: (Vec<Lock>, Vec<OwnedMutexGuard<()>>),
    savepoints: Vec<Mark>,
    pub(super) fate: Fate,
}

/// What there was when a savepoint was set.
#[derive(Debug)]
struct Mark {
    depth: u32,
    staged: Staged,
    lock_counts: (usize, usize),
    fate: Fate,
}

/// What a test has in mind for a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Committed,
    Spoiled,
    Unheard { is_stored: bool },
}

impl MemoryTransaction {
    pub(super) fn new(database: MemoryDatabase) -> Self {
        let (staged, fate) = (Staged::default(), Fate::Committed);
        Self { database, staged, locks: Default::default(), savepoints: Vec::new(), fate }
    }

    /// Spoils it, as a deadlock or a failed statement does elsewhere: it takes no message any more, and its commit answers
    /// [`CommitError::RolledBack`] and stores nothing. Rolling back to a savepoint that was set before mends it.
    pub fn spoil(&mut self) {
        self.fate = Fate::Spoiled;
    }

    /// Lets its commit answer [`CommitError::Unknown`], as when the connection breaks, having stored everything or nothing.
    pub fn lose_answer(&mut self, is_stored: bool) {
        self.fate = Fate::Unheard { is_stored };
    }

    /// Makes everything visible at once, unless it was spoiled.
    pub fn commit(self) {
        if !matches!(self.fate, Fate::Committed | Fate::Unheard { is_stored: true }) {
            return;
        }
        self.staged.write(&mut self.database.lock());
    }

    /// Forgets everything.
    pub fn rollback(self) {}

    /// Refuses a store in another database, and a transaction that has failed.
    pub(super) fn require_whole(&self, store: &MemoryStore) -> Result<(), StoreError> {
        if !self.database.is_same(store.database()) {
            return Err(StoreError::rejected("the transaction was begun on another database than the store's"));
        }
        if let Fate::Spoiled = self.fate { Err(spoiled()) } else { Ok(()) }
    }

    pub(super) fn write_business_rows(&mut self, count: u64) {
        self.staged.business_row_count += count;
    }

    fn enqueue(&mut self, store: &MemoryStore, enqueue: &Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
        self.require_whole(store)?;
        let overlay = self.staged.overlay(store.naming());
        store.call(|outbox, now| {
            let (rows, answers) = outbox.prepare(enqueue, overlay, now);
            overlay.extend(rows.into_iter().map(|row| (row.id, Some(row))));
            answers
        })
    }

    /// Changes messages that are still under these claims and locks them, or says which transaction must end before. `change`
    /// says whether anything of the row is kept.
    pub(super) fn change_held<T>(
        &mut self,
        store: &MemoryStore,
        owner: OwnerToken,
        entries: &[&T],
        held: impl Fn(&T) -> Held,
        change: impl Fn(&mut Row, &T, SystemTime) -> bool,
    ) -> Result<Result<Vec<WorkId>, Holder>, StoreError> {
        let Self { staged, locks, .. } = self;
        let overlay = staged.overlay(store.naming());
        let foreign: Vec<_> = entries.iter().map(|entry| held(entry)).collect();
        store.call(|outbox, now| {
            let foreign = foreign.iter().filter(|held| !overlay.contains_key(&held.work_id));
            if let Some(holder) = outbox.holder(owner, foreign) {
                return Err(holder);
            }
            let (mut applied, mut taken) = (Vec::new(), Vec::new());
            for entry in entries {
                let held = held(entry);
                let mine = overlay.get(&held.work_id);
                let found = mine.map_or_else(|| outbox.row(held.work_id), Option::as_ref);
                let Some(row) = found.filter(|row| row.is_under(owner, held)) else { continue };
                if mine.is_none() {
                    taken.push(held.work_id);
                }
                let mut row = row.clone();
                let is_kept = change(&mut row, entry, now);
                overlay.insert(held.work_id, is_kept.then_some(row));
                applied.push(held.work_id);
            }
            locks.0.push(outbox.lock(taken));
            Ok(applied)
        })
    }

    /// Lets a call act on the tables as this transaction sees them, and stages and locks what it changes there.
    pub(super) fn act<T>(
        &mut self,
        store: &MemoryStore,
        act: impl FnOnce(&mut Outbox, SystemTime) -> T,
    ) -> Result<T, StoreError> {
        let Self { staged, locks, .. } = self;
        let overlay = staged.overlay(store.naming());
        store.call(|outbox, now| {
            let mut seen = outbox.seen_with(overlay);
            let answer = act(&mut seen, now);
            let changes = outbox.changes_to(seen);
            let taken = changes.keys().filter(|row| !overlay.contains_key(row) && outbox.row(**row).is_some());
            let taken: Vec<_> = taken.copied().collect();
            locks.0.push(outbox.lock(taken));
            for (id, row) in overlay.iter_mut().filter(|(id, _)| !changes.contains_key(id)) {
                *row = outbox.row(*id).cloned();
            }
            overlay.extend(changes);
            answer
        })
    }

    fn act_on(&mut self, savepoint: Savepoint) -> Result<(), StoreError> {
        let (Savepoint::Set(depth) | Savepoint::Release(depth) | Savepoint::RollBack(depth)) = savepoint;
        if let (Fate::Spoiled, Savepoint::Set(_) | Savepoint::Release(_)) = (self.fate, savepoint) {
            return Err(spoiled());
        }
        if let Savepoint::Set(_) = savepoint {
            let (staged, fate) = (self.staged.clone(), self.fate);
            let lock_counts = (self.locks.0.len(), self.locks.1.len());
            self.savepoints.push(Mark { depth, staged, lock_counts, fate });
            return Ok(());
        }
        let Some(at) = self.savepoints.iter().rposition(|mark| mark.depth == depth) else {
            self.fate = Fate::Spoiled;
            return Err(StoreError::rejected("this transaction has no such savepoint"));
        };
        let mark = self.savepoints.drain(at..).next();
        if let (Some(mark), Savepoint::RollBack(_)) = (mark, savepoint) {
            (self.staged, self.fate) = (mark.staged, mark.fate);
            self.locks.0.truncate(mark.lock_counts.0);
            self.locks.1.truncate(mark.lock_counts.1);
        }
        Ok(())
    }
}

impl MemoryTransaction {
    /// The place of a ledger's entry, which is locked from now on.
    async fn entry_of(&mut self, inbox: &MemoryInbox, name: Name) -> Result<usize, StoreError> {
        let naming = inbox.queue_store().naming();
        if let Some(at) = self.staged.registration(naming, &name) {
            return Ok(at);
        }
        self.locks.1.extend(inbox.lock([name.clone()].into()).await?);
        let known = inbox.call(|_, ledger, now| ledger.entries.get(&name).cloned().ok_or(now))?;
        let (naming, entry) = (naming.clone(), known.unwrap_or_else(Entry::new));
        self.staged.registrations.push(Registration { naming, name, entry });
        Ok(self.staged.registrations.len() - 1)
    }
}

impl ConsumeIn<MemoryTransaction> for MemoryInbox {
    fn register_under<'a>(
        &'a self,
        tx: &'a mut MemoryTransaction,
        receipt: &'a Receipt,
        lease: Option<Lease>,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        Box::pin(async move {
            receipt.check()?;
            tx.require_whole(self.queue_store())?;
            let at = tx.entry_of(self, name_of(receipt)).await?;
            let entry = &mut tx.staged.registrations[at].entry;
            self.call(|outbox, _, now| {
                let is_mismatch = entry.see(receipt, now);
                Admission { registered: entry.take(outbox, None, lease, now), is_mismatch }
            })
        })
    }
}

impl OpenTransaction<MemoryStore> for &mut MemoryTransaction {
    fn enqueue_on<'a>(
        self,
        store: &'a MemoryStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>
    where
        Self: 'a,
    {
        Box::pin(async move { self.enqueue(store, &enqueue) })
    }
}

impl Transactional for MemoryStore {
    type Transaction = MemoryTransaction;

    /// Always serializable: whoever would see something else has to wait.
    fn begin_at(&self, _: Isolation) -> BoxFuture<'_, Result<MemoryTransaction, StoreError>> {
        Box::pin(async move { Ok(self.database().begin()) })
    }
}

impl StoreTransaction<MemoryStore> for MemoryTransaction {
    type Connection = Self;

    fn connection(&mut self) -> &mut Self {
        self
    }

    fn enqueue_checked<'a>(
        &'a mut self,
        store: &'a MemoryStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>> {
        self.enqueue_on(store, enqueue)
    }

    fn settle_planned<'a>(
        &'a mut self,
        store: &'a MemoryStore,
        owner: OwnerToken,
        plan: &'a GuardPlan<'a, Settlement>,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async move {
            self.require_whole(store)?;
            let fate = std::mem::replace(&mut self.fate, Fate::Spoiled);
            let retention = store.options().retention;
            let settle = |row: &mut Row, one: &Settlement, now| row.settle(owner, &one.verdict, retention, now);
            let applied = until_free(|| self.change_held(store, owner, plan.rows(), |one| one.held, settle)).await?;
            self.fate = fate;
            Ok(plan.answers(applied))
        })
    }

    fn savepoint(&mut self, savepoint: Savepoint) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.act_on(savepoint) })
    }

    fn commit(self) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(async move {
            let fate = self.fate;
            Self::commit(self);
            match fate {
                Fate::Committed => Ok(()),
                Fate::Spoiled => Err(CommitError::RolledBack(spoiled())),
                Fate::Unheard { .. } => {
                    Err(CommitError::Unknown(StoreError::unavailable("the answer to the commit was lost")))
                }
            }
        })
    }

    fn rollback(self) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move {
            Self::rollback(self);
            Ok(())
        })
    }
}

fn spoiled() -> StoreError {
    StoreError::rejected("the transaction has failed before: roll it back and start again")
}
