//! A user's transaction on the memory database.

use pillarbox_core::lease::Lease;
use pillarbox_core::naming::Naming;
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, OpenTransaction};
use pillarbox_core::{
    CommitError, ConsumeIn, EnqueueIn, OutboxStore, Receipt, Registered, StoreError, StoreTransaction, Transactional,
};
use tokio::sync::OwnedMutexGuard;

use super::database::MemoryDatabase;
use super::inbox::MemoryInbox;
use super::ledger::{Entry, Name, name_of};
use super::row::Row;
use super::store::MemoryStore;

/// What was written and not yet committed; dropping it rolls back.
///
/// Two open transactions do not see each other: of one message enqueued in both, the first commit stores it and the
/// second one leaves it.
#[derive(Debug)]
pub struct MemoryTransaction {
    database: MemoryDatabase,
    rows: Vec<(Naming, Vec<Row>)>,
    registrations: Vec<Registration>,
    pub(super) business_row_count: u64,
    fate: Fate,
}

/// An entry of a ledger as the transaction will leave it; nobody else gets at it until then.
#[derive(Debug)]
struct Registration {
    naming: Naming,
    name: Name,
    entry: Entry,
    _held: Vec<OwnedMutexGuard<()>>,
}

/// What a test has in mind for a transaction.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Committed,
    Spoiled,
    Unheard { is_stored: bool },
}

impl MemoryTransaction {
    pub(super) fn new(database: MemoryDatabase) -> Self {
        Self { database, rows: Vec::new(), registrations: Vec::new(), business_row_count: 0, fate: Fate::Committed }
    }

    /// Spoils it, as a deadlock or a failed statement does elsewhere: it takes no message any more, and its commit answers
    /// [`CommitError::RolledBack`] and stores nothing.
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
        let mut inner = self.database.lock();
        inner.business_row_count += self.business_row_count;
        for (naming, rows) in self.rows {
            if let Ok((outbox, _)) = inner.call(&naming) {
                outbox.insert(rows);
            }
        }
        for registration in self.registrations {
            if let Ok((_, ledger, _)) = inner.call_inbox(&registration.naming) {
                ledger.entries.insert(registration.name, registration.entry);
            }
        }
    }

    /// Forgets everything.
    pub fn rollback(self) {}

    /// Refuses a store in another database, and a transaction that has failed.
    fn require_whole(&self, store: &MemoryStore) -> Result<(), StoreError> {
        if !self.database.is_same(store.database()) {
            return Err(StoreError::rejected("the transaction was begun on another database than the store's"));
        }
        if let Fate::Spoiled = self.fate { Err(spoiled()) } else { Ok(()) }
    }

    fn enqueue(&mut self, store: &MemoryStore, enqueue: &Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
        self.require_whole(store)?;
        let naming = &store.options().naming;
        let at = self.rows.iter().position(|(other, _)| other == naming).unwrap_or_else(|| {
            self.rows.push((naming.clone(), Vec::new()));
            self.rows.len() - 1
        });
        let unsaved = &mut self.rows[at].1;
        store.call(|outbox, now| {
            let (rows, answers) = outbox.prepare(enqueue, unsaved, now);
            unsaved.extend(rows);
            answers
        })
    }
}

impl ConsumeIn<MemoryTransaction> for MemoryInbox {
    fn register_under<'a>(
        &'a self,
        tx: &'a mut MemoryTransaction,
        receipt: &'a Receipt,
        lease: Option<Lease>,
    ) -> BoxFuture<'a, Result<Registered, StoreError>> {
        Box::pin(async move {
            receipt.check()?;
            tx.require_whole(self.queue_store())?;
            let (naming, name) = (self.queue_store().naming().clone(), name_of(receipt));
            let is_this = |one: &Registration| one.naming == naming && one.name == name;
            let at = match tx.registrations.iter().position(is_this) {
                Some(at) => at,
                None => {
                    let _held = self.lock([name.clone()].into()).await?;
                    let known = self.call(|_, ledger, now| ledger.entries.get(&name).cloned().ok_or(now))?;
                    let entry = known.unwrap_or_else(Entry::new);
                    tx.registrations.push(Registration { naming, name, entry, _held });
                    tx.registrations.len() - 1
                }
            };
            let entry = &mut tx.registrations[at].entry;
            self.call(|outbox, _, now| {
                entry.see(receipt, now);
                entry.take(outbox, None, lease, now)
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

    fn begin(&self) -> BoxFuture<'_, Result<MemoryTransaction, StoreError>> {
        Box::pin(async move { Ok(self.database().begin()) })
    }
}

impl StoreTransaction<MemoryStore> for MemoryTransaction {
    type Connection = Self;

    fn connection(&mut self) -> &mut Self {
        self
    }

    fn enqueue<'a>(
        &'a mut self,
        store: &'a MemoryStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>> {
        store.enqueue_in(self, enqueue)
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
