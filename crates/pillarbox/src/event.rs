//! Typed messages: a type of the user's own that knows its topic.

use pillarbox_core::{Message, StoreError};
use serde::Serialize;

/// A type that is enqueued as a message of its own topic, with itself as JSON payload.
///
/// ```
/// use pillarbox::prelude::*;
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[derive(Serialize)]
    struct OrderChanged {
        id: i64,
        #[serde(skip)]
        change: Change,
    }

    #[derive(Clone, Copy)]
    enum Change {
        Created,
        Shipped,
    }

    impl TypeName for Change {
        fn type_name(&self) -> &str {
            match self {
                Self::Created => "created",
                Self::Shipped => "shipped",
            }
        }
    }

    enum Kind {
        Order,
    }

    impl TypeName for Kind {
        fn type_name(&self) -> &str {
            match self {
                Self::Order => "Order",
            }
        }
    }

    impl Event for OrderChanged {
        const TOPIC: &'static str = "order.changed";

        fn message_type(&self) -> Option<&str> {
            Some(self.change.type_name())
        }

        fn aggregate(&self) -> Option<Aggregate> {
            Some(Aggregate::new(Kind::Order, self.id))
        }

        fn key(&self) -> Option<String> {
            Some(format!("order-{}", self.id))
        }
    }

    /// HOT-17.
    #[test]
    fn enums_name_message_and_aggregate_types() {
        for (change, name) in [(Change::Created, "created"), (Change::Shipped, "shipped")] {
            let event = OrderChanged { id: 7, change };
            let message = (&event).into_message().unwrap();
            assert_eq!(message.topic(), "order.changed");
            assert_eq!(message.get_message_type(), Some(name));
            assert_eq!((message.get_aggregate_type(), message.get_aggregate_id()), ("Order", Some("7")));
            assert_eq!(message.get_key(), Some("order-7"));
            assert_eq!(message.get_content_type(), Some("application/json"));
            assert_eq!(&message.payload()[..], br#"{"id":7}"#);
            let plain = Message::new("t", "").message_type(change).aggregate_type(Kind::Order);
            assert_eq!((plain.get_message_type(), plain.get_aggregate_type()), (Some(name), "Order"));
        }
    }

    #[test]
    fn a_topic_is_enough_for_an_event() {
        #[derive(Serialize)]
        struct Ping;
        impl Event for Ping {
            const TOPIC: &'static str = "ping";
        }
        let message = Ping.into_message().unwrap();
        assert_eq!((message.topic(), message.get_message_type(), message.get_key()), ("ping", None, None));
    }

    #[test]
    fn a_message_is_enqueued_as_it_is() {
        let message = Message::new("t", "payload").key("k");
        assert_eq!(message.clone().into_message().unwrap(), message);
    }

    /// H54: serde says which key it refused.
    #[test]
    fn an_event_that_is_no_json_is_refused_without_its_content() {
        #[derive(Serialize)]
        struct Odd(HashMap<Vec<String>, u8>);
        impl Event for Odd {
            const TOPIC: &'static str = "odd";
        }
        let error = Odd([(vec!["canary".to_owned()], 1)].into()).into_message().unwrap_err();
        assert_eq!(error.topic(), "odd");
        assert!(!format!("{error} {error:?} {}", StoreError::from(error)).contains("canary"));
    }
}
