//! Handlers inside a transaction: what they change, what they enqueue and the end of their message are committed together.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pillarbox_core::store::{BoxFuture, Settlement};
use pillarbox_core::{
    CommitError, ErrorKind, Isolation, OwnerToken, Settled, StoreError, StoreTransaction, Transactional, WithInbox,
};

use crate::batch::FromBatch;
use crate::clock::dice;
use crate::context::Context;
use crate::extract::{FromMessage, Need};
use crate::failure::Failure;
use crate::hot_path::{Handover, Hub};
use crate::outbox::Outbox;
use crate::tx::Tx;

/// How long a message waits whose transaction lost a race against another one, at the most.
const CONFLICT_DELAY: Duration = Duration::from_millis(50);

/// How long a message waits while its database is away.
const AWAY_DELAY: Duration = Duration::from_secs(1);

/// The transaction that a handler runs in, of the store that its message came from.
///
/// It is there for the handlers of routes that are [transactional](crate::RuntimeBuilder::transactional). When the handler
/// succeeds, the transaction is committed together with the end of its message; otherwise it is rolled back. If somebody else
/// has taken the message over meanwhile, it is rolled back too. So what happens in it happens once.
///
/// What the handler does elsewhere, such as a call to another service, may be repeated.
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use pillarbox::prelude::*;
/// use pillarbox::sqlite::SqliteStore;
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Paid { invoice: i64 }
/// # impl Event for Paid { const TOPIC: &str = "invoice.paid"; }
///
/// fn routes(builder: RuntimeBuilder) -> RuntimeBuilder {
///     builder.transactional().on(async |paid: Payload<Paid>, mut tx: InTx<SqliteStore>| {
///         sqlx::query("update invoices set paid = 1 where id = ?").bind(paid.invoice).execute(tx.conn()).await?;
///         tx.enqueue(Message::new("invoice.closed", paid.invoice.to_string())).await?;
///         Ok(())
///     })
/// }
/// # }
/// ```
pub struct InTx<S: Transactional> {
    /// None only while it is dropped.
    tx: Option<Tx<S>>,
    slot: Arc<Slot<S>>,
}

impl<S: Transactional> Deref for InTx<S> {
    type Target = Tx<S>;

    fn deref(&self) -> &Tx<S> {
        self.tx.as_ref().expect("it holds the transaction until it is dropped")
    }
}

impl<S: Transactional> DerefMut for InTx<S> {
    fn deref_mut(&mut self) -> &mut Tx<S> {
        self.tx.as_mut().expect("it holds the transaction until it is dropped")
    }
}

impl<S: Transactional> Drop for InTx<S> {
    fn drop(&mut self) {
        self.slot.put_back(self.tx.take());
    }
}

impl<S: Transactional> fmt::Debug for InTx<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InTx<{}>", type_name::<S>())
    }
}

impl<S: Transactional> FromMessage for InTx<S> {
    fn from_message(cx: &Context) -> Result<Self, Failure> {
        cx.transaction()
    }

    fn needs() -> Option<Need> {
        Some(Need::transaction::<S>())
    }
}

impl<S: Transactional> FromBatch for InTx<S> {}

impl Context {
    /// The transaction that the handler runs in; for a [`MessageHandler`](crate::MessageHandler), which takes no
    /// [`InTx`]. It can be taken once at a time.
    pub fn transaction<S: Transactional>(&self) -> Result<InTx<S>, Failure> {
        let Some(slot) = self.slot() else {
            return Err(Failure::retry(
                "there is no transaction: the route is not transactional, or its handler has not begun yet",
            ));
        };
        let Ok(slot) = slot.downcast::<Slot<S>>() else {
            return Err(Failure::retry(format!("the transaction is not one of `{}`", type_name::<S>())));
        };
        let tx = slot.lock().tx.take().ok_or_else(|| Failure::retry("the transaction is taken already, or over"))?;
        Ok(InTx { tx: Some(tx), slot })
    }
}

/// Where the transaction of an attempt lies while nobody uses it.
struct Slot<S: Transactional>(Mutex<Kept<S>>);

struct Kept<S: Transactional> {
    tx: Option<Tx<S>>,
    /// The attempt has ended: whoever comes back with the transaction comes too late.
    is_over: bool,
}

impl<S: Transactional> Slot<S> {
    fn lock(&self) -> MutexGuard<'_, Kept<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_back(&self, tx: Option<Tx<S>>) {
        let mut kept = self.lock();
        if !kept.is_over {
            kept.tx = tx;
        }
    }

    /// Takes the transaction for good; none when it is still in use.
    fn end(&self) -> Option<Tx<S>> {
        let mut kept = self.lock();
        kept.is_over = true;
        kept.tx.take()
    }
}

/// Begins the transactions of handlers; knows the type of the database.
pub(crate) trait Transactions: Send + Sync {
    /// The store whose transactions these are.
    fn store_type(&self) -> Need;

    /// Begins one. Its messages are handed over through `hub`, unless they go to another outbox than the handler's own.
    fn begin<'a>(
        &'a self,
        hub: Arc<Hub>,
        isolation: Option<Isolation>,
    ) -> BoxFuture<'a, Result<Box<dyn Begun>, StoreError>>;
}

/// The transaction of one attempt. Dropping it rolls back.
pub(crate) trait Begun: Send {
    /// Where handlers find it.
    fn slot(&self) -> Arc<dyn Any + Send + Sync>;

    /// Applies the verdicts and commits, or rolls back.
    fn commit(
        self: Box<Self>,
        owner: OwnerToken,
        settlements: Vec<Settlement>,
    ) -> BoxFuture<'static, Result<(), NotCommitted>>;

    fn rollback(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// Transactions on an outbox's own database, for the handlers of its messages.
pub(crate) struct OfOutbox<S>(pub(crate) Arc<S>);

impl<S: Transactional> Transactions for OfOutbox<S> {
    fn store_type(&self) -> Need {
        Need::transaction::<S>()
    }

    fn begin<'a>(
        &'a self,
        hub: Arc<Hub>,
        isolation: Option<Isolation>,
    ) -> BoxFuture<'a, Result<Box<dyn Begun>, StoreError>> {
        Box::pin(async move {
            let tx = self.0.begin_at(isolation.unwrap_or(self.0.options().isolation)).await?;
            let tx = Tx::new(Arc::clone(&self.0), tx, Handover::new(hub));
            Ok(Attempted::boxed(tx, Arc::clone(&self.0)))
        })
    }
}

/// Transactions on the database of an inbox: what they enqueue goes to the outbox beside it.
pub(crate) struct OfInbox<S: WithInbox> {
    pub(crate) outbox: Outbox<S>,
    pub(crate) queue: Arc<S>,
}

impl<S: WithInbox> Transactions for OfInbox<S> {
    fn store_type(&self) -> Need {
        Need::transaction::<S>()
    }

    fn begin<'a>(
        &'a self,
        _hub: Arc<Hub>,
        isolation: Option<Isolation>,
    ) -> BoxFuture<'a, Result<Box<dyn Begun>, StoreError>> {
        Box::pin(async move {
            let isolation = isolation.unwrap_or(self.outbox.store().options().isolation);
            Ok(Attempted::boxed(self.outbox.begin_at(isolation).await?, Arc::clone(&self.queue)))
        })
    }
}

/// What a route needs to run its handler inside of transactions.
#[derive(Clone)]
pub(crate) struct Transacting {
    pub(crate) hub: Weak<Hub>,
    pub(crate) transactions: Arc<dyn Transactions>,
    pub(crate) isolation: Option<Isolation>,
}

impl Transacting {
    pub(crate) async fn begin(&self) -> Result<Box<dyn Begun>, NotCommitted> {
        let hub = self.hub.upgrade().ok_or(NotCommitted::Gone)?;
        Ok(self.transactions.begin(hub, self.isolation).await?)
    }
}

struct Attempted<S: Transactional> {
    slot: Arc<Slot<S>>,
    queue: Arc<S>,
}

impl<S: Transactional> Attempted<S> {
    fn boxed(tx: Tx<S>, queue: Arc<S>) -> Box<dyn Begun> {
        let slot = Arc::new(Slot(Mutex::new(Kept { tx: Some(tx), is_over: false })));
        Box::new(Self { slot, queue })
    }
}

impl<S: Transactional> Begun for Attempted<S> {
    fn slot(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.slot) as Arc<dyn Any + Send + Sync>
    }

    fn commit(
        self: Box<Self>,
        owner: OwnerToken,
        settlements: Vec<Settlement>,
    ) -> BoxFuture<'static, Result<(), NotCommitted>> {
        Box::pin(async move {
            let mut tx = self.slot.end().ok_or(NotCommitted::InUse)?;
            let settled = tx.inner_mut().settle(&self.queue, owner, &settlements).await;
            let reason = match settled {
                Ok(settled) if settled.iter().all(|settled| *settled == Settled::Applied) => {
                    return Ok(tx.commit().await?);
                }
                Ok(_) => NotCommitted::LeaseLost,
                Err(error) => NotCommitted::Store(error),
            };
            // A rollback that fails is one all the same: the connection goes with it.
            let _ = tx.rollback().await;
            Err(reason)
        })
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Some(tx) = self.slot.end() {
                let _ = tx.rollback().await;
            }
        })
    }
}

impl<S: Transactional> Drop for Attempted<S> {
    fn drop(&mut self) {
        drop(self.slot.end());
    }
}

/// Why the transaction of a handler was not begun or not committed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotCommitted {
    /// One of the messages belongs to somebody else by now.
    #[error("another worker has taken the message over, so the handler's transaction was rolled back")]
    LeaseLost,
    #[error("the handler has ended, but something that it started still holds its transaction")]
    InUse,
    #[error("the runtime is gone")]
    Gone,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl NotCommitted {
    /// What should become of the messages. Races and outages are no fault of theirs and spend no attempt.
    pub(crate) fn failure(&self) -> Failure {
        let error = match self {
            Self::Store(error) | Self::Commit(CommitError::RolledBack(error)) => error,
            // A commit whose end is unknown counts as an attempt, lest one that kills its session is repeated for ever. Whoever
            // gives back a message that is done after all, or not ours any more, is told by the store.
            Self::InUse | Self::Commit(_) => return Failure::retry(self),
            Self::LeaseLost | Self::Gone => return Failure::again_in(Duration::ZERO),
        };
        match error.kind() {
            ErrorKind::Conflict => Failure::again_in(CONFLICT_DELAY.mul_f64(dice())),
            ErrorKind::Unavailable => Failure::again_in(AWAY_DELAY),
            _ => Failure::retry(self),
        }
    }
}

impl Need {
    /// The need for a transaction of this store's.
    pub fn transaction<S: 'static>() -> Self {
        Self { id: TypeId::of::<S>(), name: type_name::<S>(), is_transaction: true }
    }
}
