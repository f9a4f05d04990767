//! Messages declared once: where each kind goes, and whether through the outbox or directly.

use std::fmt;
use std::sync::Arc;

use pillarbox_core::route::RouteTable;
use pillarbox_core::store::{Enqueued, OpenTransaction};
use pillarbox_core::{Delivery, Invalid, Message, OutboxStore, StoreError, Transactional, Undelivered};

use crate::builder::RuntimeBuilder;
use crate::event::{Event, IntoMessage};
use crate::outbox::Outbox;
use crate::relay::{To, Way};
use crate::route::Route;
use crate::runtime::Runtime;
use crate::trace::inherit;
use crate::tx::Tx;

/// Sends messages as they were declared: through the outbox, so that they exist if and only if the transaction is committed,
/// or directly, for what may be lost. Cheap to clone.
///
/// ```
/// # use std::sync::Arc;
/// use pillarbox::prelude::*;
/// use pillarbox::relay::To;
/// use pillarbox::{Bus, Via};
/// # #[derive(Serialize, Deserialize)] struct OrderCreated { id: i64 }
/// # impl Event for OrderCreated { const TOPIC: &str = "order.created"; }
/// # #[derive(Serialize, Deserialize)] struct PriceSeen { cents: i64 }
/// # impl Event for PriceSeen { const TOPIC: &str = "price.seen"; }
///
/// # #[cfg(feature = "sqlite")]
/// async fn shop(
///     outbox: Outbox<pillarbox::sqlite::SqliteStore>,
///     bus: Arc<dyn pillarbox::Transport>,
/// ) -> Result<(), Failure> {
///     let bus = Bus::builder(&outbox)
///         .event::<OrderCreated>(To::new(bus.clone(), "shop.{topic}")) // through the outbox
///         .declare(Route::topic("price.**"), To::new(bus, "ticks"), Some(Via::Direct))
///         .build()?;
///     let runtime = bus.runtime().start().await?;
///
///     let mut tx = outbox.begin().await?;
///     bus.send(&mut tx, OrderCreated { id: 1 }).await?; // with the commit, or never
///     bus.send(&mut tx, PriceSeen { cents: 999 }).await?; // now
///     tx.commit().await?;
/// #   runtime.shutdown(std::time::Duration::from_secs(5)).await;
///     Ok(())
/// }
/// ```
pub struct Bus<S: ?Sized> {
    outbox: Outbox<S>,
    declared: Arc<Declared>,
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// It is stored with the transaction and delivered after its commit, by whoever runs [`Bus::runtime`].
    Outbox,
    /// It is delivered at once, whatever becomes of the transaction, and nobody tries again.
    Direct,
}

/// How a message was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It waits for the commit.
    Enqueued(Enqueued),
    /// It is with its broker.
    Delivered(Delivery),
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No declaration matches.
    #[error("no message of topic `{topic}` is declared on this bus")]
    Undeclared {
        /// Its topic.
        topic: String,
    },
    /// It could not be stored. What else the transaction did is for its owner to judge.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It could not be delivered directly.
    #[error("a message that is sent directly was not delivered: {0}")]
    Undelivered(#[source] Undelivered),
    /// Its destination cannot be told.
    #[error("a message cannot be sent directly: {0}")]
    NoDestination(String),
}

/// Which messages go through the outbox, where their declaration does not say.
type Filter = Arc<dyn Fn(&Message) -> bool + Send + Sync>;

struct Declared {
    table: RouteTable,
    producers: Vec<Producer>,
    through_outbox: Filter,
}

struct Producer {
    route: Route,
    to: To,
    way: Way,
    via: Option<Via>,
}

/// Collects declarations.
#[must_use = "a builder does nothing until it is built"]
pub struct BusBuilder<S: ?Sized> {
    outbox: Outbox<S>,
    drafts: Vec<(Route, To, Option<Via>)>,
    through_outbox: Filter,
}

impl<S: ?Sized> Bus<S> {
    /// A bus that sends through this outbox.
    pub fn builder(outbox: &Outbox<S>) -> BusBuilder<S> {
        BusBuilder { outbox: outbox.clone(), drafts: Vec::new(), through_outbox: Arc::new(|_| true) }
    }
}

impl<S: ?Sized> BusBuilder<S> {
    /// Declares an event: where it goes.
    pub fn event<E: Event>(self, to: To) -> Self {
        self.declare(Route::event::<E>(), to, None)
    }

    /// Declares the messages of a route: where they go, and how, if not as the whole bus says. Its settings are those of the
    /// runtime that delivers what went through the outbox.
    pub fn declare(mut self, route: Route, to: To, via: Option<Via>) -> Self {
        self.drafts.push((route, to, via));
        self
    }

    /// Which messages go through the outbox, for the whole bus; all unless set. The rest is sent directly.
    pub fn through_outbox(mut self, filter: impl Fn(&Message) -> bool + Send + Sync + 'static) -> Self {
        self.through_outbox = Arc::new(filter);
        self
    }

    /// Checks all declarations together.
    pub fn build(self) -> Result<Bus<S>, Invalid> {
        let mut problems = Vec::new();
        let table = RouteTable::new(self.drafts.iter().map(|(route, ..)| route.selector.clone()));
        if let Err(invalid) = &table {
            problems.extend_from_slice(invalid.problems());
        }
        let mut producers = Vec::with_capacity(self.drafts.len());
        for (route, to, via) in self.drafts {
            match Way::new(to.clone()) {
                Ok(way) => producers.push(Producer { route, to, way, via }),
                Err(invalid) => problems.extend_from_slice(invalid.problems()),
            }
        }
        Invalid::unless_empty(problems)?;
        let declared = Declared { table: table?, producers, through_outbox: self.through_outbox };
        Ok(Bus { outbox: self.outbox, declared: Arc::new(declared) })
    }
}

impl<S: Transactional> Bus<S> {
    /// Sends a message as it was declared; what goes through the outbox does so with this transaction.
    pub async fn send(&self, tx: &mut Tx<S>, message: impl IntoMessage) -> Result<Sent, SendError> {
        let message = inherit(message.into_message().map_err(StoreError::from)?);
        match self.declared.find(&message)? {
            (_, Via::Outbox) => Ok(Sent::Enqueued(tx.enqueue(message).await?)),
            (producer, Via::Direct) => producer.deliver(&message).await,
        }
    }
}

impl<S: OutboxStore> Bus<S> {
    /// Like [`send`](Self::send), with a transaction of your own, as [`Outbox::enqueue`] takes it.
    pub async fn send_on<T>(&self, tx: T, message: impl IntoMessage) -> Result<Sent, SendError>
    where
        T: OpenTransaction<S>,
    {
        let message = inherit(message.into_message().map_err(StoreError::from)?);
        match self.declared.find(&message)? {
            (_, Via::Outbox) => Ok(Sent::Enqueued(self.outbox.enqueue(tx, message).await?)),
            (producer, Via::Direct) => producer.deliver(&message).await,
        }
    }
}

impl<S: ?Sized> Bus<S> {
    /// A runtime that delivers what went through the outbox. Handlers and settings may be added.
    pub fn runtime(&self) -> RuntimeBuilder {
        let declared = self.declared.producers.iter().filter(|producer| producer.via != Some(Via::Direct));
        declared.fold(Runtime::builder(&self.outbox), |builder, producer| {
            builder.route(producer.route.clone().deliver(producer.to.clone()))
        })
    }
}

impl Declared {
    fn find(&self, message: &Message) -> Result<(&Producer, Via), SendError> {
        let producer = self.table.find(message).and_then(|index| self.producers.get(index));
        let producer = producer.ok_or_else(|| SendError::Undeclared { topic: message.topic().to_owned() })?;
        let by_filter = || if (self.through_outbox)(message) { Via::Outbox } else { Via::Direct };
        Ok((producer, producer.via.unwrap_or_else(by_filter)))
    }
}

impl Producer {
    async fn deliver(&self, message: &Message) -> Result<Sent, SendError> {
        self.way.deliver_one(message).await.map(Sent::Delivered)
    }
}

impl<S: ?Sized> Clone for Bus<S> {
    fn clone(&self) -> Self {
        Self { outbox: self.outbox.clone(), declared: Arc::clone(&self.declared) }
    }
}

impl<S: ?Sized> fmt::Debug for Bus<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes: Vec<_> = self.declared.producers.iter().map(|producer| producer.route.name.as_str()).collect();
        f.debug_struct("Bus").field("outbox", &self.outbox).field("routes", &routes).finish_non_exhaustive()
    }
}

impl<S: ?Sized> fmt::Debug for BusBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusBuilder").field("drafts", &self.drafts).finish_non_exhaustive()
    }
}
