//! A user's transaction on the memory database.

use pillarbox_core::naming::Naming;
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, OpenTransaction};
use pillarbox_core::{OutboxStore, StoreError};

use super::database::MemoryDatabase;
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
    pub(super) business_row_count: u64,
}

impl MemoryTransaction {
    pub(super) fn new(database: MemoryDatabase) -> Self {
        Self { database, rows: Vec::new(), business_row_count: 0 }
    }

    /// Makes everything visible at once.
    pub fn commit(self) {
        let mut inner = self.database.lock();
        inner.business_row_count += self.business_row_count;
        for (naming, rows) in self.rows {
            if let Ok((outbox, _)) = inner.call(&naming) {
                outbox.insert(rows);
            }
        }
    }

    /// Forgets everything.
    pub fn rollback(self) {}

    fn enqueue(&mut self, store: &MemoryStore, enqueue: &Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
        if !self.database.is_same(store.database()) {
            return Err(StoreError::rejected("the transaction was begun on another database than the store's"));
        }
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
