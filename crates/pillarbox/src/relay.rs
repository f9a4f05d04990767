//! Messages that go on to a broker: a route whose handler is a transport.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use pillarbox_core::template::{Escape, Template};
use pillarbox_core::{Delivery, DeliveryResult, Invalid, Message, Parcel, Transport, Undelivered};

use crate::batch::{Batch, BatchOutcome};
use crate::bus::SendError;
use crate::failure::{Failure, HandlerResult};
use crate::route::{HandledRoute, Route};
use crate::telemetry::TARGET;

/// Messages that are handed to a transport at once, unless set.
pub const DELIVERY_BATCH_DEFAULT: usize = 500;

/// Destinations that are remembered as gone; more are asked again.
const GONE_MAX: usize = 10_000;

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
    /// messages are dead too, to be replayed when somebody has looked at it.
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
    gone: Mutex<HashSet<String>>,
}

impl Way {
    pub(crate) fn new(to: To) -> Result<Self, Invalid> {
        let To { transport, destination, escape, batch_max: _ } = to;
        Ok(Self { transport, template: destination?, escape, gone: Mutex::default() })
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
        for (place, cx) in batch.iter().enumerate() {
            match self.destination(cx.message()) {
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
        for ((place, parcel), result) in places.into_iter().zip(&parcels).zip(results) {
            let result = result.unwrap_or_else(unanswered);
            self.note(&result, parcel);
            outcome.set(place, self.answer(result));
        }
        outcome
    }

    fn destination(&self, message: &Message) -> Result<String, Failure> {
        let destination = self.template.fill(message, self.escape).map_err(Failure::dead)?;
        if self.gone().contains(&destination) {
            return Err(Failure::dead(format_args!("{} is gone: it is asked no more", Shown(&destination))));
        }
        Ok(destination)
    }

    /// WRK-12: what was delivered is told without its content.
    fn note(&self, result: &DeliveryResult, parcel: &Parcel<'_>) {
        let (kind, id, destination) = (self.transport.kind(), parcel.message.id(), Shown(&parcel.destination));
        match result {
            Ok(delivery) => {
                tracing::debug!(target: TARGET, transport = kind, message_id = %id, %destination, ?delivery, "delivered");
            }
            Err(Undelivered::Gone { reason }) => {
                let mut gone = self.gone();
                if gone.len() < GONE_MAX && gone.insert(parcel.destination.to_string()) {
                    tracing::warn!(
                        target: TARGET, transport = kind, %destination, reason,
                        "a destination is gone for good: its messages are dead from now on, replay them when it is back"
                    );
                }
            }
            Err(error) => {
                tracing::debug!(target: TARGET, transport = kind, message_id = %id, %destination, %error, "not delivered");
            }
        }
    }

    fn answer(&self, result: DeliveryResult) -> HandlerResult {
        let kind = self.transport.kind();
        let Err(error) = result else { return Ok(()) };
        Err(match &error {
            Undelivered::Unavailable { .. } => Failure::unavailable(format_args!("{kind}: {error}")),
            Undelivered::Later { delay, .. } => Failure::again_in(*delay),
            Undelivered::Rejected { .. } | Undelivered::TooLarge { .. } | Undelivered::Gone { .. } => {
                Failure::dead(format_args!("{kind}: {error}"))
            }
            _ => Failure::retry(format_args!("{kind}: {error}")),
        })
    }

    fn gone(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
