//! Messages that go on to a broker: a route whose handler is a transport.

mod destinations;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pillarbox_core::template::{Escape, Template};
use pillarbox_core::wire;
use pillarbox_core::{Delivery, DeliveryResult, Invalid, Message, Parcel, Transport, Undelivered};

use crate::batch::{Batch, BatchOutcome};
use crate::bus::SendError;
use crate::clock::{Clock, Tick};
use crate::context::Context;
use crate::failure::{Failure, HandlerResult};
use crate::route::{HandledRoute, Route};
use crate::telemetry::TARGET;
use destinations::{AWAY_FIRST, Destinations, host};

/// Messages that are handed to a transport at once, unless set.
pub const DELIVERY_BATCH_DEFAULT: usize = 500;

/// Where messages are delivered.
///
/// ```
/// # use std::sync::Arc;
/// use pillarbox::prelude::*;
/// use pillarbox::relay::To;
///
/// fn routes(builder: RuntimeBuilder, bus: Arc<dyn pillarbox::Transport>) -> RuntimeBuilder {
///     builder
///         .route(Route::topic("order.**").deliver(To::new(bus.clone(), "shop.{topic}")))
///         .route(Route::topic("order.**").tenant("acme").deliver(To::new(bus, "acme.{topic}")))
/// }
/// ```
#[derive(Clone, Debug)]
pub struct To {
    transport: Arc<dyn Transport>,
    destination: Result<Template, Invalid>,
    escape: Escape,
    batch_max: usize,
}

impl To {
    /// Through a transport to a destination, in which fields of the message may stand: see [`Template`]. A destination that
    /// cannot be read keeps the runtime from starting.
    pub fn new(transport: Arc<dyn Transport>, destination: impl TryInto<Template, Error: Into<Invalid>>) -> Self {
        let escape = if transport.kind() == "http" { Escape::Url } else { Escape::Nothing };
        let destination = destination.try_into().map_err(Into::into);
        Self { transport, destination, escape, batch_max: DELIVERY_BATCH_DEFAULT }
    }

    /// Messages that are handed over at once at the most; 500 unless set.
    pub fn batch_max(mut self, batch_max: usize) -> Self {
        self.batch_max = batch_max;
        self
    }
}

impl Route {
    /// Delivers its messages through a transport, many at a time.
    ///
    /// A broker that is away pauses the route, and its messages spend no attempt. One that does not take a message costs the
    /// message an attempt; one that never will makes it dead at once, with the broker's reason, and so does a field that the
    /// destination needs and the message lacks. A destination that is gone for good is asked no more by this runtime: its
    /// messages are dead too. One that is replayed asks again, and opens the destination to all when it is taken. While a
    /// destination asks for time, its messages wait and spend no attempt; others of the route go on. So do they where the
    /// address has a field in its host, and one of the hosts is away: that one is looked for after a second, then ever less
    /// often, every half a minute at least.
    pub fn deliver(self, to: To) -> HandledRoute {
        let batch_max = to.batch_max;
        let (way, problems) = match Way::new(to) {
            Ok(way) => (Some(Arc::new(way)), Vec::new()),
            Err(invalid) => (None, invalid.problems().to_vec()),
        };
        let handler = move |batch: Batch| {
            let way = way.clone();
            async move {
                match way {
                    Some(way) => Ok(way.deliver(&batch).await),
                    // Its problem keeps the runtime from starting.
                    None => Err(Failure::retry("the route has no destination")),
                }
            }
        };
        let mut route = self.to_batch(batch_max, handler);
        route.problems = problems;
        route
    }
}

/// A destination that was checked, and what is known of it.
pub(crate) struct Way {
    transport: Arc<dyn Transport>,
    template: Template,
    escape: Escape,
    has_many_hosts: bool,
    clock: Clock,
    known: Mutex<Destinations>,
}

impl Way {
    pub(crate) fn new(to: To) -> Result<Self, Invalid> {
        let To { transport, destination, escape, batch_max: _ } = to;
        let template = destination?;
        let has_many_hosts = has_many_hosts(&template);
        Ok(Self { transport, template, escape, has_many_hosts, clock: Clock::start(), known: Mutex::default() })
    }

    /// One message, now.
    pub(crate) async fn deliver_one(&self, message: &Message) -> Result<Delivery, SendError> {
        let destination = self
            .template
            .fill(message, self.escape)
            .map_err(|missing| SendError::NoDestination(missing.to_string()))?;
        let parcel = Parcel::new(destination, message);
        let results = self.transport.deliver(std::slice::from_ref(&parcel)).await;
        let result = results.into_iter().next().unwrap_or_else(unanswered);
        self.note(&result, &parcel);
        result.map_err(SendError::Undelivered)
    }

    async fn deliver(&self, batch: &Batch) -> BatchOutcome {
        let mut outcome = batch.outcome();
        let (mut parcels, mut places) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        let (now, is_known) = (self.clock.now(), !self.known().is_empty());
        for (place, cx) in batch.iter().enumerate() {
            match self.destination(cx, now, is_known) {
                Ok(destination) => {
                    parcels.push(Parcel::new(destination, cx.message()));
                    places.push(place);
                }
                Err(failure) => outcome.set(place, Err(failure)),
            }
        }
        if parcels.is_empty() {
            return outcome;
        }
        let results = self.transport.deliver(&parcels).await;
        let results = results.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let is_known = !self.known().is_empty();
        for ((place, parcel), result) in places.into_iter().zip(&parcels).zip(results) {
            let result = result.unwrap_or_else(unanswered);
            self.tell(&result, parcel);
            // What is taken where nothing is known of any destination says nothing new.
            if is_known || result.is_err() {
                self.learn(&result, &parcel.destination);
                outcome.set(place, self.answer(result, &parcel.destination));
            }
        }
        outcome
    }

    /// Where a message goes, unless that is not to be asked now. `is_known` tells whether anything is known of any destination.
    fn destination(&self, cx: &Context, now: Tick, is_known: bool) -> Result<Cow<'_, str>, Failure> {
        let destination = match self.template.constant() {
            Some(constant) => Cow::Borrowed(constant),
            None => Cow::Owned(self.template.fill(cx.message(), self.escape).map_err(Failure::dead)?),
        };
        if !is_known {
            return Ok(destination);
        }
        let mut known = self.known();
        // Whoever replays a message wants to know whether somebody is there again.
        if known.is_gone(&destination) && cx.header(wire::REPLAY).is_none() {
            return Err(Failure::dead(format_args!("{} is gone: it is asked no more", Shown(&destination))));
        }
        match known.rest_left(&destination, now) {
            Some(left) => Err(Failure::again_in(left)),
            None => Ok(destination),
        }
    }

    fn note(&self, result: &DeliveryResult, parcel: &Parcel<'_>) {
        self.tell(result, parcel);
        self.learn(result, &parcel.destination);
    }

    /// WRK-12: what was delivered is told without its content.
    fn tell(&self, result: &DeliveryResult, parcel: &Parcel<'_>) {
        let (kind, id, destination) = (self.transport.kind(), parcel.message.id(), Shown(&parcel.destination));
        match result {
            Ok(delivery) => {
                tracing::debug!(target: TARGET, transport = kind, message_id = %id, %destination, ?delivery, "delivered");
            }
            Err(error) => {
                tracing::debug!(target: TARGET, transport = kind, message_id = %id, %destination, %error, "not delivered");
            }
        }
    }

    /// Remembers what an answer says about all messages of a destination, and tells it once.
    fn learn(&self, result: &DeliveryResult, name: &str) {
        let (kind, destination, now) = (self.transport.kind(), Shown(name), self.clock.now());
        // Other answers may be the transport's own.
        if matches!(result, Ok(_) | Err(Undelivered::Gone { .. })) && self.known().answered(name) {
            tracing::info!(
                target: TARGET, transport = kind, destination = host(name),
                "a host that was away is back: its messages are delivered again"
            );
        }
        match result {
            Err(Undelivered::Unavailable { reason }) if self.has_many_hosts && self.known().missed(name, now) => {
                tracing::warn!(
                    target: TARGET, transport = kind, destination = host(name), reason,
                    "a host is away: its messages wait, and spend no attempt; those for other hosts go on"
                );
            }
            Ok(_) if self.known().took(name) => tracing::info!(
                target: TARGET, transport = kind, %destination,
                "a destination that was gone is back: its messages are delivered again"
            ),
            Err(Undelivered::Gone { reason }) if self.known().went(name) => tracing::warn!(
                target: TARGET, transport = kind, %destination, reason,
                "a destination is gone for good: its messages are dead from now on, replay them when it is back"
            ),
            Err(Undelivered::Later { delay, reason }) if self.known().asked(name, *delay, now) => tracing::warn!(
                target: TARGET, transport = kind, %destination, ?delay, reason,
                "a destination asks for time: its messages wait, and spend no attempt"
            ),
            _ => {}
        }
    }

    fn answer(&self, result: DeliveryResult, destination: &str) -> HandlerResult {
        let kind = self.transport.kind();
        let Err(error) = result else { return Ok(()) };
        Err(match &error {
            Undelivered::Unavailable { .. } if self.has_many_hosts => {
                let left = self.known().rest_left(destination, self.clock.now());
                Failure::again_in(left.unwrap_or(AWAY_FIRST))
            }
            Undelivered::Unavailable { .. } => Failure::unavailable(format_args!("{kind}: {error}")),
            Undelivered::Later { delay, .. } => Failure::again_in(*delay),
            Undelivered::Rejected { .. } | Undelivered::TooLarge { .. } | Undelivered::Gone { .. } => {
                Failure::dead(format_args!("{kind}: {error}"))
            }
            _ => Failure::retry(format_args!("{kind}: {error}")),
        })
    }

    fn known(&self) -> MutexGuard<'_, Destinations> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the messages of a route go to several hosts, of which one can be away while the others are there.
fn has_many_hosts(template: &Template) -> bool {
    let host = template.head().split_once("://").map(|(_, host)| host);
    template.constant().is_none() && host.is_some_and(|host| !host.contains(['/', '?', '#']))
}

/// A transport that forgot an answer has not delivered.
fn unanswered() -> DeliveryResult {
    Err(Undelivered::refused("the transport did not answer for the message"))
}

/// A destination as it may be shown: an address may hold a token behind its question mark.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.split(['?', '#']).next().unwrap_or_default())
    }
}
