//! Typed messages: a type of the user's own that knows its topic.

use pillarbox_core::{Message, StoreError};
use serde::Serialize;

/// A type that is enqueued as a message of its own topic, with itself as JSON payload.
///
/// ```
/// use pillarbox::prelude::*;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct OrderCreated { id: i64 }
///
/// impl Event for OrderCreated { const TOPIC: &str = "order.created"; }
///
/// let message = OrderCreated { id: 1 }.to_message()?.delay(std::time::Duration::from_secs(30));
/// assert_eq!(message.topic(), "order.created");
/// assert_eq!(&message.payload()[..], br#"{"id":1}"#);
/// # Ok::<(), pillarbox::EventError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no topic",
    label = "not an `Event`",
    note = "write `impl Event for {Self} {{ const TOPIC: &str = \"…\"; }}`; it must also be `Serialize`"
)]
pub trait Event: Serialize {
    /// Where its messages go.
    const TOPIC: &'static str;

    /// What happened, for handlers that are registered by type.
    fn message_type(&self) -> Option<&str> {
        None
    }

    /// What it happened to.
    fn aggregate(&self) -> Option<Aggregate> {
        None
    }

    /// Messages of one key belong together.
    fn key(&self) -> Option<String> {
        None
    }

    /// The message, for those who want to add to it before they enqueue it.
    fn to_message(&self) -> Result<Message, EventError> {
        // Serde's text may quote the value that it stumbled over.
        let message = Message::json(Self::TOPIC, &self).map_err(|_| EventError { topic: Self::TOPIC })?;
        let message = match self.message_type() {
            Some(message_type) => message.message_type(message_type),
            None => message,
        };
        let message = match self.key() {
            Some(key) => message.key(key),
            None => message,
        };
        Ok(match self.aggregate() {
            Some(aggregate) => message.aggregate_type(aggregate.kind).aggregate_id(aggregate.id),
            None => message,
        })
    }
}

impl<E: Event> Event for &E {
    const TOPIC: &'static str = E::TOPIC;

    fn message_type(&self) -> Option<&str> {
        (**self).message_type()
    }

    fn aggregate(&self) -> Option<Aggregate> {
        (**self).aggregate()
    }

    fn key(&self) -> Option<String> {
        (**self).key()
    }

    fn to_message(&self) -> Result<Message, EventError> {
        (**self).to_message()
    }
}

/// A thing that messages tell about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    kind: String,
    id: String,
}

impl Aggregate {
    /// The kind of thing, as a text or an enum, and which one it is.
    pub fn new(kind: impl TypeName, id: impl std::fmt::Display) -> Self {
        Self { kind: kind.type_name().to_owned(), id: id.to_string() }
    }
}

pub use pillarbox_core::TypeName;

/// Whatever can be enqueued: a [`Message`], or an [`Event`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be enqueued",
    label = "neither a `Message` nor an `Event`",
    note = "write `impl Event for {Self} {{ const TOPIC: &str = \"…\"; }}`, or build a message with `Message::json(topic, &value)?`"
)]
pub trait IntoMessage {
    /// The message.
    fn into_message(self) -> Result<Message, EventError>;
}

impl IntoMessage for Message {
    fn into_message(self) -> Result<Message, EventError> {
        Ok(self)
    }
}

impl<E: Event> IntoMessage for E {
    fn into_message(self) -> Result<Message, EventError> {
        self.to_message()
    }
}

/// An event that cannot be written as JSON, for example because a map in it has keys that are no texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of topic `{topic}` cannot be written as JSON: look at its `Serialize`")]
pub struct EventError {
    topic: &'static str,
}

impl EventError {
    /// The topic of the event.
    pub fn topic(&self) -> &'static str {
        self.topic
    }
}

impl From<EventError> for StoreError {
    fn from(error: EventError) -> Self {
        Self::rejected(error.to_string())
    }
}
