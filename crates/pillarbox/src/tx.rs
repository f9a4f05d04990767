//! A transaction that takes messages, and hands them over once it is committed.

use std::fmt;
use std::sync::Arc;

use pillarbox_core::store::{Enqueue, Enqueued};
use pillarbox_core::{CommitError, StoreError, StoreTransaction, Transactional};

use crate::event::IntoMessage;
use crate::hot_path::Handover;
use crate::lasting::lasting;
use crate::outbox::into_messages;

/// An open transaction of an [`Outbox`](crate::Outbox). Dropping it rolls back, and nothing is handed over.
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use pillarbox::prelude::*;
///
/// async fn place_order(outbox: &Outbox<pillarbox::sqlite::SqliteStore>) -> Result<(), Box<dyn std::error::Error>> {
///     let mut tx = outbox.begin().await?;
///     sqlx::query("insert into orders (id) values (1)").execute(tx.conn()).await?;
///     tx.enqueue(Message::new("order.created", "1")).await?;
///     tx.commit().await?; // the order and its message, or neither
///     Ok(())
/// }
/// # }
/// ```
pub struct Tx<S: Transactional> {
    store: Arc<S>,
    tx: S::Transaction,
    handover: Handover,
}

impl<S: Transactional> Tx<S> {
    pub(crate) fn new(store: Arc<S>, tx: S::Transaction, handover: Handover) -> Self {
        Self { store, tx, handover }
    }

    pub(crate) fn inner_mut(&mut self) -> &mut S::Transaction {
        &mut self.tx
    }

    /// The database's own connection, inside the transaction.
    ///
    /// Messages that must vanish when a savepoint is rolled back are enqueued through that savepoint, with
    /// [`Outbox::enqueue`](crate::Outbox::enqueue): those of this transaction are handed over when it is committed.
    pub fn conn(&mut self) -> &mut <S::Transaction as StoreTransaction<S>>::Connection {
        self.tx.connection()
    }

    /// Stores a message; it exists, and is handled a moment later, once the transaction is committed.
    pub async fn enqueue(&mut self, message: impl IntoMessage) -> Result<Enqueued, StoreError> {
        let answers = self.enqueue_all([message]).await?;
        answers.into_iter().next().ok_or_else(|| StoreError::rejected("the store gave no answer"))
    }

    /// Stores many messages. Answers come in their order.
    pub async fn enqueue_all<M>(&mut self, messages: M) -> Result<Vec<Enqueued>, StoreError>
    where
        M: IntoIterator<Item: IntoMessage>,
    {
        let messages = into_messages(messages)?;
        // All of them are checked before any is sent: they may go in two calls.
        self.store.options().limits.check(&messages)?;
        let mut sorted = self.handover.sort(messages);
        let mut leased = Vec::new();
        if !sorted.leased.is_empty() {
            let enqueue = Enqueue::leased(&sorted.leased, self.handover.lease()?).owned();
            leased = self.tx.enqueue(&self.store, enqueue).await?;
            self.handover.stored(&mut sorted, &leased);
        }
        let mut pending = Vec::new();
        if !sorted.pending.is_empty() {
            pending = self.tx.enqueue(&self.store, Enqueue::pending(&sorted.pending).owned()).await?;
            sorted.pending.iter().for_each(|message| self.handover.stored_pending(message));
        }
        Ok(sorted.in_order(leased, pending))
    }

    /// Commits, and hands the messages over. Once begun it runs to its end, also when the future is dropped.
    ///
    /// When the outcome is [unknown](CommitError::Unknown) nothing is handed over: if the messages are there after all,
    /// they are handled when their leases have run out.
    pub async fn commit(self) -> Result<(), CommitError> {
        let Self { tx, handover, .. } = self;
        lasting(async move {
            tx.commit().await?;
            handover.committed();
            Ok(())
        })
        .await
    }

    /// Rolls back; nothing is handed over.
    pub async fn rollback(self) -> Result<(), StoreError> {
        self.tx.rollback().await
    }
}

impl<S: Transactional> fmt::Debug for Tx<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("store", self.store.id()).finish_non_exhaustive()
    }
}
