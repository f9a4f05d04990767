//! A transaction that takes messages, and hands them over once it is committed.

use std::fmt;
use std::sync::Arc;

use pillarbox_core::store::{Enqueue, Enqueued};
use pillarbox_core::{CommitError, Message, Savepoint, StoreError, StoreTransaction, Transactional};

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
    /// Nested parts that are open. One that was cut short stays open.
    depth: u32,
    /// A savepoint could not be rolled back to: nobody knows what the transaction holds.
    is_lost: bool,
}

impl<S: Transactional> Tx<S> {
    pub(crate) fn new(store: Arc<S>, tx: S::Transaction, handover: Handover) -> Self {
        Self { store, tx, handover, depth: 0, is_lost: false }
    }

    pub(crate) fn inner_mut(&mut self) -> &mut S::Transaction {
        &mut self.tx
    }

    /// Takes note of messages that were stored through it, pending, for whoever claims them.
    pub(crate) fn stored_plain(&mut self, messages: &[Message], answers: &[Enqueued]) {
        self.handover.stored_plain(messages, answers);
    }

    /// The database's own connection, inside the transaction.
    ///
    /// Savepoints that take messages with them are set by [`nested`](Self::nested), not by statements of your own: a message
    /// that was enqueued through this transaction is handed over when it is committed.
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
            leased = self.tx.enqueue_checked(&self.store, enqueue).await?;
            self.handover.stored(&mut sorted, &leased);
        }
        let mut pending = Vec::new();
        if !sorted.pending.is_empty() {
            pending = self.tx.enqueue_checked(&self.store, Enqueue::pending(&sorted.pending).owned()).await?;
            self.handover.stored_pending(&sorted.pending, &pending);
        }
        Ok(sorted.in_order(leased, pending))
    }

    /// Does a part of the transaction: when it fails, what it changed and enqueued is undone, and the rest can go on.
    ///
    /// Nothing takes effect before the whole transaction is committed. Parts may be nested. A part that is cut short, because
    /// its future was dropped or panicked, takes the whole transaction with it: the commit answers
    /// [`CommitError::RolledBack`].
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")] {
    /// use pillarbox::prelude::*;
    ///
    /// async fn place(tx: &mut Tx<pillarbox::sqlite::SqliteStore>) -> Result<(), Box<dyn std::error::Error>> {
    ///     tx.enqueue(Message::new("order.created", "1")).await?;
    ///     let gift: Result<(), Box<dyn std::error::Error>> = tx
    ///         .nested(async |tx| {
    ///             sqlx::query("update gifts set count = count - 1 where id = 7").execute(tx.conn()).await?;
    ///             tx.enqueue(Message::new("gift.added", "7")).await?;
    ///             Ok(())
    ///         })
    ///         .await;
    ///     if gift.is_err() {
    ///         tx.enqueue(Message::new("gift.missed", "7")).await?; // without a gift, and without its message
    ///     }
    ///     Ok(())
    /// }
    /// # }
    /// ```
    pub async fn nested<T, E: From<StoreError>>(
        &mut self,
        part: impl AsyncFnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let depth = self.depth + 1;
        self.tx.savepoint(Savepoint::Set(depth)).await?;
        self.depth = depth;
        let mark = self.handover.mark();
        let done = part(self).await;
        // A part may hide that a statement of its own has failed: then it is no success.
        let kept = match done {
            Ok(_) => self.tx.savepoint(Savepoint::Release(depth)).await,
            Err(_) => Ok(()),
        };
        if done.is_err() || kept.is_err() {
            self.handover.forget_since(mark);
            // A database that has given up the whole transaction knows no savepoints of it.
            self.is_lost |= self.tx.savepoint(Savepoint::RollBack(depth)).await.is_err();
        }
        self.depth = depth - 1;
        kept?;
        done
    }

    /// Commits, and hands the messages over. Once begun it runs to its end, also when the future is dropped.
    ///
    /// When the outcome is [unknown](CommitError::Unknown) nothing is handed over: if the messages are there after all,
    /// they are handled when their leases have run out.
    pub async fn commit(self) -> Result<(), CommitError> {
        let Self { tx, handover, depth, is_lost, .. } = self;
        lasting(async move {
            if depth > 0 || is_lost {
                let _ = tx.rollback().await;
                return Err(CommitError::RolledBack(StoreError::rejected(
                    "a nested part of the transaction was cut short or could not be undone: begin a new transaction",
                )));
            }
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
