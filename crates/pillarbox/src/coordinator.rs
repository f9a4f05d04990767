//! One call for all of a worker's business with its database, in one transaction.

use std::fmt;
use std::sync::Arc;

use pillarbox_core::coordinator::{QueueDone, QueueWork, WorkBatch, WorkDone};
use pillarbox_core::progress::{ProgressStore, RecordPlan};
use pillarbox_core::store::{CONFLICT_RETRIES_MAX, Enqueue};
use pillarbox_core::{
    CommitError, Coordinated, ErrorKind, Isolation, ReceiveIn, StoreError, StoreTransaction, WithInbox, WorkTransaction,
};

use crate::inbox::Inbox;
use crate::lasting::lasting;
use crate::outbox::Outbox;
use crate::trace::inherit;
use crate::tx::Tx;

/// Carries completions, failures, renewals, new messages and records of progress to the database in one transaction, and brings
/// new work back: for workers that have a loop of their own instead of a [`Runtime`](crate::Runtime).
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use pillarbox::prelude::*;
/// use pillarbox::{OwnerToken, QueueWork, WorkBatch};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = Outbox::sqlite("sqlite::memory:").await?;
/// let coordinator = outbox.coordinator().await?;
/// outbox.enqueue_now(Message::new("order.created", "1")).await?;
///
/// let me = OwnerToken::new();
/// let mut work = coordinator.process(WorkBatch::new(me).outbox(QueueWork::new().claim(10))).await?.outbox.claimed;
/// while !work.is_empty() {
///     let mut batch = WorkBatch::new(me);
///     let mut finished = QueueWork::new().claim(10);
///     for claimed in &work {
///         if claimed.message.as_ref().is_ok_and(|message| message.topic() == "order.created") {
///             batch = batch.enqueue(Message::new("mail.wanted", "1"));
///         }
///         finished = finished.complete(claimed.held);
///     }
///     // What was finished, what came of it, and the next work: all of it or nothing.
///     work = coordinator.process(batch.outbox(finished)).await?.outbox.claimed;
/// }
/// assert_eq!(outbox.store().overview().await?.total().done, 2);
/// # Ok(())
/// # }
/// # }
/// ```
pub struct Coordinator<S: WithInbox> {
    outbox: Outbox<S>,
    inbox: Inbox<S>,
    queue: S,
    progress: Arc<dyn ProgressStore>,
}

/// Why a batch had no effect. Nothing of it is in the database, unless its commit ended unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The store refused the batch, or was away.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The transaction was not committed, or nobody knows. What it claimed comes back when its leases have run out; sent again,
    /// the rest of the batch is answered by what had happened.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl WorkError {
    fn is_conflict(&self) -> bool {
        match self {
            Self::Store(error) | Self::Commit(CommitError::RolledBack(error)) => error.kind() == ErrorKind::Conflict,
            Self::Commit(_) => false,
        }
    }
}

impl<S: Coordinated> Outbox<S> {
    /// The work coordinator of this outbox and of the [inbox](Self::inbox) beside it.
    ///
    /// Deploys or checks the tables that it needs as the outbox does its own.
    pub async fn coordinator(&self) -> Result<Coordinator<S>, StoreError> {
        self.inbox().await?.coordinator().await
    }
}

impl<S: Coordinated> Inbox<S> {
    /// The work coordinator of this inbox and of the outbox beside it, as [`Outbox::coordinator`].
    pub async fn coordinator(&self) -> Result<Coordinator<S>, StoreError> {
        let (inbox, outbox) = (self.clone(), self.outbox().clone());
        let Some(progress) = outbox.store().progress() else {
            return Err(StoreError::rejected("this store keeps no progress of receptors and perspectives"));
        };
        progress.apply_policy(outbox.store().options().schema).await?;
        Ok(Coordinator { queue: S::queue_of(inbox.store()), outbox, inbox, progress })
    }
}

impl<S: Coordinated> Coordinator<S> {
    /// How far receptors and perspectives have come.
    pub fn progress(&self) -> &Arc<dyn ProgressStore> {
        &self.progress
    }

    /// Does all of a batch in a transaction of its own, and commits it; again when it lost a race.
    ///
    /// A batch with wrong arguments is refused as a whole before any I/O. Everything else is answered item by item: what cannot
    /// be done to one message harms no other. Once begun it runs to its end, also when the future is dropped.
    pub async fn process(&self, batch: WorkBatch) -> Result<WorkDone, WorkError> {
        let batch = batch.map_messages(inherit);
        self.check(&batch)?;
        let coordinator = self.clone();
        lasting(async move {
            let mut tries = 0;
            loop {
                match coordinator.attempt(&batch).await {
                    Err(error) if error.is_conflict() && tries < CONFLICT_RETRIES_MAX => tries += 1,
                    ended => return ended,
                }
            }
        })
        .await
    }

    /// Does all of a batch as a part of a transaction that is open already: it takes effect with its commit.
    ///
    /// A refused batch does the transaction no harm; after any other error it can only be rolled back, as a whole or to the
    /// [nested](Tx::nested) part around this call. What is claimed belongs to nobody until the commit: handle it afterwards.
    /// To claim on PostgreSQL or MySQL, begin at [`Isolation::ReadCommitted`]. Handlers of the inbox in this process learn of
    /// new messages by their next poll.
    pub async fn process_in(&self, tx: &mut Tx<S>, batch: WorkBatch) -> Result<WorkDone, StoreError> {
        let batch = batch.map_messages(inherit);
        self.check(&batch)?;
        if batch.claims() {
            tx.inner_mut().may_claim().await?;
        }
        self.work(tx, &batch).await
    }

    fn check(&self, batch: &WorkBatch) -> Result<(), StoreError> {
        Ok(batch.check(&self.outbox.store().options().limits, &self.queue.options().limits)?)
    }

    async fn attempt(&self, batch: &WorkBatch) -> Result<WorkDone, WorkError> {
        // Whatever the settings say: these statements are ours, and claims need it.
        let mut tx = self.outbox.begin_at(Isolation::ReadCommitted).await?;
        match self.work(&mut tx, batch).await {
            Ok(done) => {
                tx.commit().await?;
                self.inbox.stored(batch.incoming(), &done.received);
                Ok(done)
            }
            Err(error) => {
                // A rollback that fails is one all the same: the connection goes with it.
                let _ = tx.rollback().await;
                Err(error.into())
            }
        }
    }

    async fn work(&self, tx: &mut Tx<S>, batch: &WorkBatch) -> Result<WorkDone, StoreError> {
        let mut done = WorkDone::default();
        let store = self.outbox.store();
        settle(tx, store, batch, batch.outbox_work(), &mut done.outbox).await?;
        settle(tx, &self.queue, batch, batch.inbox_work(), &mut done.inbox).await?;
        if !batch.messages().is_empty() {
            // Pending, and not born leased: they are for whoever claims them.
            done.enqueued = tx.inner_mut().enqueue_checked(store, Enqueue::pending(batch.messages())).await?;
            tx.stored_plain(batch.messages(), &done.enqueued);
        }
        if !batch.incoming().is_empty() {
            done.received = self.inbox.store().receive_checked(tx.inner_mut(), batch.incoming()).await?;
        }
        let receptors = RecordPlan::receptors(batch.receptors());
        if !receptors.is_empty() {
            done.receptors = tx.inner_mut().record_receptors(store, &receptors).await?;
        }
        let checkpoints = RecordPlan::checkpoints(batch.checkpoints());
        if !checkpoints.is_empty() {
            done.checkpoints = tx.inner_mut().record_checkpoints(store, &checkpoints).await?;
        }
        if let Some(claim) = batch.claim_for(batch.outbox_work())? {
            done.outbox.claimed = tx.inner_mut().claim(store, claim).await?;
        }
        if let Some(claim) = batch.claim_for(batch.inbox_work())? {
            done.inbox.claimed = tx.inner_mut().claim(&self.queue, claim).await?;
        }
        Ok(done)
    }
}

/// Settles and renews what the batch's owner holds in one queue.
async fn settle<S: Coordinated>(
    tx: &mut Tx<S>,
    queue: &S,
    batch: &WorkBatch,
    work: &QueueWork,
    done: &mut QueueDone,
) -> Result<(), StoreError> {
    done.settled = tx.inner_mut().settle(queue, batch.owner(), work.settlements()).await?;
    done.renewed = tx.inner_mut().renew(queue, batch.owner(), work.renewals(), batch.get_lease()).await?;
    Ok(())
}

impl<S: Coordinated> Clone for Coordinator<S> {
    fn clone(&self) -> Self {
        let (outbox, inbox, queue) = (self.outbox.clone(), self.inbox.clone(), S::queue_of(self.inbox.store()));
        Self { outbox, inbox, queue, progress: Arc::clone(&self.progress) }
    }
}

impl<S: WithInbox> fmt::Debug for Coordinator<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator").field("store", self.outbox.store().id()).finish_non_exhaustive()
    }
}
