//! The seam for the way to a broker: a batch goes out, and one answer per message comes back.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::diagnosis::Finding;
use crate::message::Message;
use crate::recall::{Recall, Recalled};
use crate::template::Template;

/// Messages that one [`Transport::deliver`] call takes at the most.
pub const DELIVERY_BATCH_MAX: usize = 10_000;

/// The way to a broker, an endpoint or a file.
///
/// A transport holds a message only for the time of the call: nothing is queued behind it, so that memory stays bounded while
/// the broker is away. It connects when it is first used and again, by itself, after a connection broke.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// What kind it is, such as `nats`, for logs and metrics.
    fn kind(&self) -> &'static str;

    /// Delivers each message to its destination and answers for each, in the order of the batch.
    ///
    /// A message counts as delivered when the broker has said that it took responsibility for it. Whenever that is not
    /// certain, for example because the connection broke before the answer came, the message is not delivered: it is sent again
    /// later, under the same id. One message that is not taken stops no other. Messages of one key that are delivered arrive
    /// in the order of the batch.
    ///
    /// Ends within the transport's time limit, whatever the broker does.
    async fn deliver(&self, parcels: &[Parcel<'_>]) -> Vec<DeliveryResult>;

    /// Whether the broker can be reached and would talk to us, without sending a message.
    async fn probe(&self) -> Result<(), Undelivered>;

    /// Looks at the settings of the broker, and whether it would take what is sent; changes nothing. Nothing is found where it cannot
    /// be reached, which [`probe`](Self::probe) tells, or says nothing about itself.
    async fn diagnose(&self, _checkup: &Checkup) -> Vec<Finding> {
        Vec::new()
    }

    /// Looks for messages that were delivered, without changing or consuming anything.
    ///
    /// A transport whose broker cannot be looked through says so.
    async fn recall(&self, _recall: &Recall<'_>) -> Result<Recalled, Undelivered> {
        Ok(Recalled::unreadable(format!("what {} took cannot be looked through", self.kind())))
    }

    /// Ends connections in an orderly way. Whoever delivers afterwards connects again.
    async fn close(&self) {}
}

/// What a look at a broker is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkup {
    /// Where messages will go.
    pub destinations: Vec<Template>,
    /// How long a message stays with whoever delivers it: if that one dies, the message comes again so much later.
    pub lease: Duration,
}

impl Checkup {
    /// A look at these destinations.
    pub fn new(destinations: Vec<Template>, lease: Duration) -> Self {
        Self { destinations, lease }
    }
}

/// A message and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel<'a> {
    /// A subject, exchange and routing key, topic, stream, address: whatever the transport takes for one.
    pub destination: Cow<'a, str>,
    /// What goes there.
    pub message: &'a Message,
}

impl<'a> Parcel<'a> {
    /// A message for a destination.
    pub fn new(destination: impl Into<Cow<'a, str>>, message: &'a Message) -> Self {
        Self { destination: destination.into(), message }
    }
}

/// What became of one message.
pub type DeliveryResult = Result<Delivery, Undelivered>;

/// How a message was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The broker has it now.
    Taken,
    /// The broker had it already, under this id.
    Known,
}

/// Why a message was not delivered, or may not have been. Never carries a payload or a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undelivered {
    /// The broker cannot be reached, or takes nothing from us now. Says nothing about the message: no attempt is spent.
    Unavailable {
        /// What happened.
        reason: String,
    },
    /// The broker did not take this message, and may take it another time: nobody listens there yet, an error on its side.
    Refused {
        /// What it said.
        reason: String,
    },
    /// The broker will never take this message as it is.
    Rejected {
        /// What it said.
        reason: String,
    },
    /// The message is larger than the broker takes.
    TooLarge {
        /// What it measures as it is sent, as far as is known.
        bytes: usize,
        /// The broker's limit, where it tells.
        limit: Option<usize>,
    },
    /// The broker asks for time: try again after it. No attempt is spent.
    Later {
        /// How long.
        delay: Duration,
        /// What it said.
        reason: String,
    },
    /// The destination is gone for good and wants nothing more: whoever sends should stop until somebody looks at it.
    Gone {
        /// What it said.
        reason: String,
    },
}

impl Undelivered {
    /// The broker is away.
    pub fn unavailable(why: impl fmt::Display) -> Self {
        Self::Unavailable { reason: why.to_string() }
    }

    /// Not taken this time.
    pub fn refused(why: impl fmt::Display) -> Self {
        Self::Refused { reason: why.to_string() }
    }

    /// Never taken.
    pub fn rejected(why: impl fmt::Display) -> Self {
        Self::Rejected { reason: why.to_string() }
    }
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable { reason } => write!(f, "unavailable: {reason}"),
            Self::Refused { reason } => write!(f, "refused: {reason}"),
            Self::Rejected { reason } => write!(f, "rejected: {reason}"),
            Self::TooLarge { bytes, limit: Some(limit) } => {
                write!(f, "too large: {bytes} bytes, and the broker takes {limit}")
            }
            Self::TooLarge { bytes, limit: None } => {
                write!(f, "too large: {bytes} bytes are more than the broker takes")
            }
            Self::Later { delay, reason } => write!(f, "not before {delay:?}: {reason}"),
            Self::Gone { reason } => write!(f, "gone: {reason}"),
        }
    }
}

impl std::error::Error for Undelivered {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_is_said_in_one_line() {
        let table = [
            (Undelivered::unavailable("connection refused"), "unavailable: connection refused"),
            (Undelivered::refused("no queue is bound"), "refused: no queue is bound"),
            (Undelivered::rejected("bad subject"), "rejected: bad subject"),
            (Undelivered::TooLarge { bytes: 9, limit: Some(8) }, "too large: 9 bytes, and the broker takes 8"),
            (Undelivered::TooLarge { bytes: 9, limit: None }, "too large: 9 bytes are more than the broker takes"),
            (
                Undelivered::Later { delay: Duration::from_secs(7), reason: "slow down".to_owned() },
                "not before 7s: slow down",
            ),
            (Undelivered::Gone { reason: "410".to_owned() }, "gone: 410"),
        ];
        for (undelivered, words) in table {
            assert_eq!(undelivered.to_string(), words);
        }
    }
}
