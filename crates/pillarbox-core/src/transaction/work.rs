//! What the work coordinator does inside a transaction, beside messages and verdicts.

use std::time::Duration;

use super::{StoreTransaction, Transactional};
use crate::error::StoreError;
use crate::id::OwnerToken;
use crate::inbox::{InboxStore, Incoming, Received, WithInbox};
use crate::lease::{Claim, Held, Lease};
use crate::outbox::Settled;
use crate::problem::{Invalid, Problem};
use crate::progress::{Checkpoint, ReceptorResult, RecordPlan, Recorded};
use crate::store::{BoxFuture, Claimed, GuardPlan, OutboxStore};

/// A transaction that can also claim, renew and record; everything takes effect with its commit, and nothing without.
///
/// After an error of the database, or when a future is dropped half-way, the transaction can only be rolled back, as after
/// [`settle`](StoreTransaction::settle). A race that was lost is a [`Conflict`](crate::ErrorKind::Conflict) and not retried.
pub trait WorkTransaction<S: OutboxStore>: StoreTransaction<S> {
    /// Claims as [`OutboxStore::claim`] does. Others pass over what was claimed here, and after a rollback it is as if nobody
    /// had: no attempt is counted.
    ///
    /// - Sees what this transaction has done before: what it enqueued or gave back may be claimed by it.
    /// - Looks at everything, and leaves no trace in where other claims start to look.
    /// - While it is open nobody else is handed a message of the keys it has claimed from. One exception: of a key whose message
    ///   it woke because its due time has come, others may be handed later ones.
    /// - Only after [`may_claim`](Self::may_claim) has said so.
    fn claim<'a>(&'a mut self, store: &'a S, claim: Claim) -> BoxFuture<'a, Result<Vec<Claimed>, StoreError>>;

    /// Refuses, with [`stale_claim`], a transaction that may look at an old snapshot: the order of keys rests upon what is there
    /// now. On a server it must have been begun at [`ReadCommitted`](super::Isolation::ReadCommitted). A refusal does no harm.
    fn may_claim(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Renews as [`OutboxStore::renew`] does.
    fn renew<'a>(
        &'a mut self,
        store: &'a S,
        owner: OwnerToken,
        held: &'a [Held],
        lease: Duration,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async move {
            let lease = Lease::new(owner, lease)?;
            let plan = GuardPlan::new(held, |held| *held)?;
            if plan.is_empty() {
                return Ok(Vec::new());
            }
            self.renew_planned(store, lease, &plan).await
        })
    }

    /// As [`renew`](Self::renew), for a plan that is not empty. Renewed leases keep their fences; that of `lease` is of no use.
    fn renew_planned<'a>(
        &'a mut self,
        store: &'a S,
        lease: Lease,
        plan: &'a GuardPlan<'a, Held>,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>>;

    /// Stores what receptors have made of messages, in one statement. What is done stays done; each result that is stored
    /// counts as an attempt. The results were checked, and there is at least one.
    fn record_receptors<'a>(
        &'a mut self,
        store: &'a S,
        plan: &'a RecordPlan<'a, ReceptorResult>,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, StoreError>>;

    /// Stores how far perspectives have come, in one statement, which compares: a checkpoint never moves backwards, and one
    /// that is done is not replaced by another at the same position. They were checked, and there is at least one.
    fn record_checkpoints<'a>(
        &'a mut self,
        store: &'a S,
        plan: &'a RecordPlan<'a, Checkpoint>,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, StoreError>>;
}

/// Receives into the inbox's queue inside an open transaction.
pub trait ReceiveIn<T>: InboxStore {
    /// Receives as [`InboxStore::receive`] does, inside `tx`. Never commits, never rolls back.
    ///
    /// Whoever delivers one of these messages at the same time waits until the transaction has ended. The messages were checked,
    /// and there is at least one.
    fn receive_checked<'a>(
        &'a self,
        tx: &'a mut T,
        incoming: &'a [Incoming],
    ) -> BoxFuture<'a, Result<Vec<Received>, StoreError>>;
}

/// A store on whose database all of a [`WorkBatch`](crate::coordinator::WorkBatch) can be done in one transaction.
pub trait Coordinated:
    WithInbox<Inbox: ReceiveIn<<Self as Transactional>::Transaction>> + Transactional<Transaction: WorkTransaction<Self>>
{
}

impl<S> Coordinated for S
where
    S: WithInbox,
    S::Transaction: WorkTransaction<S>,
    S::Inbox: ReceiveIn<S::Transaction>,
{
}

/// Why a transaction at another level than READ COMMITTED must not claim.
pub fn stale_claim() -> Invalid {
    let complaint = "must be READ COMMITTED for a claim inside of a transaction: begin it with begin_at";
    Problem::malformed("isolation", complaint).into()
}
