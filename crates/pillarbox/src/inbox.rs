//! The inbox as a program holds it: messages that come in take effect once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::lease::Lease;
use pillarbox_core::store::CONFLICT_RETRIES_MAX;
use pillarbox_core::{CommitError, ErrorKind, Isolation, OwnerToken, StoreError};

pub use pillarbox_core::inbox::*;

use crate::builder::RuntimeBuilder;
use crate::hot_path::Hub;
use crate::outbox::Outbox;
use crate::runtime::Runtime;
use crate::telemetry::inbox::InboxTelemetry;
use crate::tx::Tx;

/// The inbox beside an [`Outbox`], in the same database. Cheap to clone.
///
/// There are two ways to take a message in:
///
/// - [`consume`](Self::consume) handles it here and now: the record that it came, your own changes and the messages that you
///   enqueue are committed together.
/// - [`receive`](Self::receive) stores it; the handlers of a [`runtime`](Self::runtime) get it, with retries.
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use pillarbox::prelude::*;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}", folder.path().join("shop.db").display());
/// let outbox = Outbox::sqlite(&url).await?;
/// # sqlx::query("create table invoices (id integer primary key, paid integer)").execute(outbox.store().pool()).await?;
/// let inbox = outbox.inbox().await?;
/// for _ in 0..2 {
///     // The sender delivers it twice.
///     let consumed = inbox
///         .consume(Receipt::new("stripe", "evt_1"), async |tx| {
///             sqlx::query("insert into invoices (id, paid) values (1, 1)").execute(tx.conn()).await?;
///             tx.enqueue(Message::new("invoice.paid", "1")).await?;
///             Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
///         })
///         .await?;
///     println!("{consumed:?}"); // Done(()), then Duplicate
/// }
/// # assert_eq!(outbox.store().overview().await?.total().pending, 1);
/// # Ok(())
/// # }
/// # }
/// ```
pub struct Inbox<S: WithInbox> {
    outbox: Outbox<S>,
    ledger: Arc<S::Inbox>,
    hub: Arc<Hub>,
    isolation: Isolation,
    telemetry: Arc<InboxTelemetry>,
}

/// How a delivery ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumed<T> {
    /// It took effect now, and this is what the handler answered.
    Done(T),
    /// It had taken effect before. Acknowledge it to its sender.
    Duplicate,
    /// Somebody else is at it: it waits in the queue, or another consumer holds its lease. Let the sender come again.
    InProgress,
}

/// Why a delivery had no effect. Nothing of it is in the database, unless its commit ended unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsumeError<E> {
    /// The handler gave up; its changes were rolled back.
    #[error("the handler failed: {0}")]
    Handler(E),
    /// The store refused, or was away.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The transaction was not committed, or nobody knows. A redelivery finds out: it is a duplicate if it was.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl<S: WithInbox> Outbox<S> {
    /// Opens the inbox beside this outbox, with the settings of the contract, and deploys its tables if the outbox does.
    pub async fn inbox(&self) -> Result<Inbox<S>, StoreError> {
        self.inbox_with(InboxOptions::default()).await
    }

    /// Like [`inbox`](Self::inbox), with settings of your own.
    pub async fn inbox_with(&self, options: InboxOptions) -> Result<Inbox<S>, StoreError> {
        let ledger = Arc::new(self.store().inbox(options).await?);
        let hub = Hub::of_inbox(self.clone(), &ledger);
        let telemetry = Arc::new(InboxTelemetry::new(ledger.id()));
        Ok(Inbox { outbox: self.clone(), ledger, hub, isolation: self.store().options().isolation, telemetry })
    }
}

impl<S: WithInbox> Inbox<S> {
    /// The store's half: marks, records, purges. It writes no log and counts nothing.
    pub fn store(&self) -> &Arc<S::Inbox> {
        &self.ledger
    }

    pub(crate) fn outbox(&self) -> &Outbox<S> {
        &self.outbox
    }

    /// Takes note of messages that were stored in a transaction, which is committed by now.
    pub(crate) fn stored(&self, incoming: &[Incoming], received: &[Received]) {
        if !received.is_empty() {
            self.erased().stored(incoming, received);
        }
    }

    /// The same inbox, whose [`consume`](Self::consume) begins its transactions at this isolation level instead of the
    /// store's. A transaction that fails with a [conflict](ErrorKind::Conflict) had no effect: let the sender come again.
    #[must_use]
    pub fn at(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Looks whether a message has taken effect, and remembers that it was asked about.
    pub async fn already_processed(&self, receipt: &Receipt) -> Result<Sighting, StoreError> {
        self.erased().already_processed(receipt).await
    }

    /// Handles a message unless it has taken effect already.
    ///
    /// The record of the message comes first in the transaction, so of two deliveries at the same moment the second waits
    /// until the first has ended. When the handler fails, everything is rolled back and the next delivery tries again.
    ///
    /// Nothing in this database takes effect twice. What the handler does outside of it, such as a call to another service,
    /// is repeated when the transaction is rolled back or its commit is lost: put such things into messages.
    pub async fn consume<T, E>(
        &self,
        receipt: Receipt,
        handler: impl AsyncFnOnce(&mut Tx<S>) -> Result<T, E>,
    ) -> Result<Consumed<T>, ConsumeError<E>> {
        receipt.check().map_err(StoreError::from)?;
        let mut tx = match self.begin_registered(&receipt).await? {
            Consumed::Done(tx) => tx,
            Consumed::Duplicate => return Ok(Consumed::Duplicate),
            Consumed::InProgress => return Ok(Consumed::InProgress),
        };
        match handler(&mut tx).await {
            Ok(answer) => self.committed(tx, answer).await,
            Err(error) => Err(undone(tx, ConsumeError::Handler(error)).await),
        }
    }

    /// Like [`consume`](Self::consume), for handlers that take long: a lease that is committed beforehand tells others that
    /// somebody is at it, so that they neither wait nor do the work in vain. (On SQLite they wait: it has one writer at a time.)
    ///
    /// The record of the message comes last in the transaction, guarded by the lease. A handler that outlives its lease may
    /// run beside another one, and what it does outside of this database is then done twice; of the two transactions only one is
    /// committed, and whoever was too late is told what the other has made of it. When this process dies, the next delivery
    /// has to wait until the lease has run out.
    pub async fn consume_leased<T, E>(
        &self,
        receipt: Receipt,
        lease: Duration,
        handler: impl AsyncFnOnce(&mut Tx<S>) -> Result<T, E>,
    ) -> Result<Consumed<T>, ConsumeError<E>> {
        let lease = Lease::new(OwnerToken::new(), lease).map_err(StoreError::from)?;
        match self.telemetry.admitted(&receipt, self.ledger.lease(&receipt, lease).await?) {
            Registered::Duplicate => return Ok(Consumed::Duplicate),
            Registered::InProgress => return Ok(Consumed::InProgress),
            Registered::New => {}
        }
        let consumed = self.consume_under(&receipt, lease, handler).await;
        if consumed.is_err() {
            // What is not given back runs out.
            let _ = self.ledger.release(&receipt, lease).await;
        }
        consumed
    }

    /// Like [`consume`](Self::consume), as a part of a transaction that is open already: inside another handler, for example.
    ///
    /// It is a [nested](Tx::nested) part: when the handler fails, what it did is undone and the outer transaction can go on.
    /// Nothing takes effect before the outer transaction is committed; if it is rolled back, the next delivery tries again.
    pub async fn consume_in<T, E>(
        &self,
        tx: &mut Tx<S>,
        receipt: Receipt,
        handler: impl AsyncFnOnce(&mut Tx<S>) -> Result<T, E>,
    ) -> Result<Consumed<T>, ConsumeError<E>> {
        receipt.check().map_err(StoreError::from)?;
        tx.nested(async |tx: &mut Tx<S>| {
            let admission = self.ledger.register(tx.inner_mut(), &receipt).await?;
            match self.telemetry.admitted(&receipt, admission) {
                Registered::Duplicate => Ok(Consumed::Duplicate),
                Registered::InProgress => Ok(Consumed::InProgress),
                Registered::New => handler(tx).await.map(Consumed::Done).map_err(ConsumeError::Handler),
            }
        })
        .await
    }

    /// Handles a message first and registers it afterwards: until then nobody has to wait for this transaction.
    async fn consume_under<T, E>(
        &self,
        receipt: &Receipt,
        lease: Lease,
        handler: impl AsyncFnOnce(&mut Tx<S>) -> Result<T, E>,
    ) -> Result<Consumed<T>, ConsumeError<E>> {
        let mut tx = self.outbox.begin_at(self.isolation).await?;
        let answer = match handler(&mut tx).await {
            Ok(answer) => answer,
            Err(error) => return Err(undone(tx, ConsumeError::Handler(error)).await),
        };
        // Its content was compared when it was leased.
        let named = Receipt::new(receipt.source(), receipt.message_id());
        match self.ledger.register_under(tx.inner_mut(), &named, Some(lease)).await.map(|one| one.registered) {
            Ok(Registered::New) => self.committed(tx, answer).await,
            Ok(Registered::Duplicate) => Ok(undone(tx, Consumed::Duplicate).await),
            Ok(Registered::InProgress) => Ok(undone(tx, Consumed::InProgress).await),
            Err(error) => Err(undone(tx, error.into()).await),
        }
    }

    async fn committed<T, E>(&self, tx: Tx<S>, answer: T) -> Result<Consumed<T>, ConsumeError<E>> {
        tx.commit().await?;
        self.telemetry.consumed();
        Ok(Consumed::Done(answer))
    }

    /// A transaction in which the receipt is registered; begun again when the database says that another was faster.
    async fn begin_registered(&self, receipt: &Receipt) -> Result<Consumed<Tx<S>>, StoreError> {
        let mut tries = 0;
        loop {
            let mut tx = self.outbox.begin_at(self.isolation).await?;
            let registered = self.ledger.register(tx.inner_mut(), receipt).await;
            let known = match registered.map(|admission| self.telemetry.admitted(receipt, admission)) {
                Ok(Registered::New) => return Ok(Consumed::Done(tx)),
                Ok(Registered::Duplicate) => Consumed::Duplicate,
                Ok(Registered::InProgress) => Consumed::InProgress,
                Err(error) => {
                    let _ = tx.rollback().await;
                    if error.kind() != ErrorKind::Conflict || tries == CONFLICT_RETRIES_MAX {
                        return Err(error);
                    }
                    tries += 1;
                    continue;
                }
            };
            // When it came last, and with which content, is worth keeping, and no reason to fail.
            let _ = tx.commit().await;
            return Ok(known);
        }
    }

    /// Stores messages for the handlers of a [`runtime`](Self::runtime), in a transaction of its own: all or none. Once this
    /// returns they may be acknowledged to their sender.
    pub async fn receive(&self, incoming: &[Incoming]) -> Result<Vec<Received>, StoreError> {
        self.erased().receive(incoming).await
    }

    /// The same inbox, for whoever need not know which database it is.
    pub(crate) fn erased(&self) -> RoutedInbox {
        let ledger = Arc::clone(&self.ledger) as Arc<dyn InboxStore>;
        RoutedInbox { ledger, hub: Arc::clone(&self.hub), telemetry: Arc::clone(&self.telemetry) }
    }

    /// Begins to describe a runtime that handles what was received; everything about it is as for an outbox.
    pub fn runtime(&self) -> RuntimeBuilder {
        Runtime::builder_of(&self.hub)
    }
}

/// An inbox of a [fleet](crate::Fleet), whatever its database. Cheap to clone.
///
/// To [consume](Inbox::consume) in a transaction, hold the [`Inbox`] of the database's own type:
/// [`Router::inbox_of`](crate::Router::inbox_of).
#[derive(Clone)]
pub struct RoutedInbox {
    ledger: Arc<dyn InboxStore>,
    hub: Arc<Hub>,
    telemetry: Arc<InboxTelemetry>,
}

impl RoutedInbox {
    /// The store's half: marks, records, purges. It writes no log and counts nothing.
    pub fn store(&self) -> &Arc<dyn InboxStore> {
        &self.ledger
    }

    /// Looks whether a message has taken effect, and remembers that it was asked about.
    pub async fn already_processed(&self, receipt: &Receipt) -> Result<Sighting, StoreError> {
        let sighting = self.ledger.already_processed(receipt).await?;
        self.telemetry.sighted(receipt, sighting);
        Ok(sighting)
    }

    /// Stores messages for the handlers of the fleet, in a transaction of its own: all or none. Once this returns they may
    /// be acknowledged to their sender.
    pub async fn receive(&self, incoming: &[Incoming]) -> Result<Vec<Received>, StoreError> {
        let received = self.ledger.receive(incoming).await?;
        self.stored(incoming, &received);
        Ok(received)
    }

    fn stored(&self, incoming: &[Incoming], received: &[Received]) {
        self.telemetry.received(incoming, received);
        self.hub.nudge();
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }
}

impl fmt::Debug for RoutedInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoutedInbox").field("store", self.ledger.id()).finish_non_exhaustive()
    }
}

/// Rolls back, and gives the answer. A rollback that fails is one all the same: the connection goes with it.
async fn undone<S: WithInbox, A>(tx: Tx<S>, answer: A) -> A {
    let _ = tx.rollback().await;
    answer
}

/// Deliveries are stored, and the handlers of this process are woken.
#[cfg(feature = "webhook")]
#[async_trait::async_trait]
impl<S: WithInbox> pillarbox_webhook::Accept for Inbox<S> {
    async fn accept(&self, incoming: Incoming) -> Result<pillarbox_webhook::Accepted, pillarbox_webhook::AcceptError> {
        pillarbox_webhook::Accepted::of(&self.receive(&[incoming]).await?)
    }
}

impl<S: WithInbox> Clone for Inbox<S> {
    fn clone(&self) -> Self {
        let (ledger, hub, telemetry) = (Arc::clone(&self.ledger), Arc::clone(&self.hub), Arc::clone(&self.telemetry));
        Self { outbox: self.outbox.clone(), ledger, hub, isolation: self.isolation, telemetry }
    }
}

impl<S: WithInbox> fmt::Debug for Inbox<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("store", self.ledger.id()).finish_non_exhaustive()
    }
}
