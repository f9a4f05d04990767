//! Where a message goes, and what it looks like there.

use std::time::SystemTime;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use pillarbox_core::wire::{self, Wire};
use pillarbox_core::{Parcel, Undelivered};

/// Bytes of an exchange, a routing key, and most other names in AMQP 0.9.1.
const NAME_BYTES_MAX: usize = 255;

/// Bytes that a header frame needs beyond names and values, generously.
const FRAME_OVERHEAD: usize = 1_024;

/// An exchange and a routing key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) exchange: String,
    pub(super) routing_key: String,
}

impl Target {
    /// Reads `exchange/routing key`, or the name of a queue alone.
    pub(super) fn parse(destination: &str) -> Result<Self, Undelivered> {
        let wrong = |what: &str| Undelivered::rejected(format!("the destination {destination:?} {what}"));
        let (exchange, routing_key) = destination.split_once('/').unwrap_or(("", destination));
        let decoded = |text: &str| wire::from_line_safe(text).into_owned();
        let target = Self { exchange: decoded(exchange), routing_key: decoded(routing_key) };
        if target.exchange.is_empty() && target.routing_key.is_empty() {
            return Err(wrong("names neither an exchange nor a queue"));
        }
        for (name, part) in [("exchange", &target.exchange), ("routing key", &target.routing_key)] {
            if part.len() > NAME_BYTES_MAX {
                return Err(wrong(&format!("has an {name} of more than {NAME_BYTES_MAX} bytes")));
            }
            if part.chars().any(char::is_control) {
                return Err(wrong("has a control character"));
            }
        }
        Ok(target)
    }
}

/// A parcel as it is published.
pub(super) struct Draft<'a> {
    pub(super) target: Target,
    pub(super) wire: Wire<'a>,
    pub(super) message_id: String,
    pub(super) properties: BasicProperties,
}

impl<'a> Draft<'a> {
    pub(super) fn of(parcel: &'a Parcel<'_>) -> Result<Self, Undelivered> {
        let target = Target::parse(&parcel.destination)?;
        let (message, wire) = (parcel.message, Wire::plain(parcel.message));
        let message_id = message.id().to_string();
        let mut table = FieldTable::default();
        for (name, value) in &wire.headers {
            let name = short(name).ok_or_else(|| {
                Undelivered::rejected(format!("a header's name has more than {NAME_BYTES_MAX} bytes"))
            })?;
            table.insert(name, AMQPValue::LongString(value.as_ref().into()));
        }
        // What is too long for its property travels as a header; of most there is one anyway.
        let content_type = wire.content_type.as_deref();
        if let Some(long) = content_type.filter(|text| text.len() > NAME_BYTES_MAX) {
            table.insert(wire::CONTENT_TYPE.into(), AMQPValue::LongString(long.into()));
        }
        let mut properties = BasicProperties::default().with_delivery_mode(2).with_headers(table);
        properties = with(properties, Some(&message_id), BasicProperties::with_message_id);
        properties = with(properties, content_type, BasicProperties::with_content_type);
        properties = with(properties, message.get_correlation_id(), BasicProperties::with_correlation_id);
        properties = with(properties, message.get_message_type(), BasicProperties::with_type);
        if let Some(since) = message.get_occurred_at().and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok()) {
            properties = properties.with_timestamp(since.as_secs());
        }
        Ok(Self { target, wire, message_id, properties })
    }

    /// Whether all headers fit into the one frame that they must fit into, and the body into what the broker has said it takes.
    pub(super) fn check_size(&self, frame_max: usize, body_max: usize) -> Result<(), Undelivered> {
        let header_bytes = self.wire.bytes() - self.wire.body.len() + FRAME_OVERHEAD + 8 * self.wire.headers.len();
        if frame_max > 0 && header_bytes > frame_max {
            return Err(Undelivered::TooLarge { bytes: header_bytes, limit: Some(frame_max) });
        }
        if self.wire.body.len() > body_max {
            return Err(Undelivered::TooLarge { bytes: self.wire.body.len(), limit: Some(body_max) });
        }
        Ok(())
    }
}

/// A name that AMQP 0.9.1 has room for.
pub(super) fn short(text: &str) -> Option<ShortString> {
    ShortString::try_new(text).ok()
}

fn with(
    properties: BasicProperties,
    value: Option<&str>,
    set: fn(BasicProperties, ShortString) -> BasicProperties,
) -> BasicProperties {
    match value.and_then(short) {
        Some(value) => set(properties, value),
        None => properties,
    }
}

#[cfg(test)]
mod tests {
    use pillarbox_core::Message;

    use super::*;

    #[test]
    fn a_destination_is_an_exchange_and_a_key_or_a_queue() {
        let table = [
            ("orders", ("", "orders")),
            ("/orders", ("", "orders")),
            ("events/order.created", ("events", "order.created")),
            ("events/", ("events", "")),
            ("events/a/b", ("events", "a/b")),
            ("a%2Fb/c%25", ("a/b", "c%")),
            ("a%2Fb", ("", "a/b")),
        ];
        for (destination, (exchange, routing_key)) in table {
            let expected = Target { exchange: exchange.into(), routing_key: routing_key.into() };
            assert_eq!(Target::parse(destination), Ok(expected), "{destination}");
        }
        let long = "x".repeat(256);
        for destination in ["", "/", "a/b\n", "a\0", long.as_str(), &format!("{long}/key")] {
            assert!(matches!(Target::parse(destination), Err(Undelivered::Rejected { .. })), "{destination}");
        }
    }

    /// H48, H49: what has no room in a property is not cut off, and what has no room at all is told.
    #[test]
    fn long_fields_have_their_place_or_are_told() {
        let long = "ü".repeat(200);
        let message = Message::new("t", "body").correlation_id(long.clone()).content_type(long.clone());
        let parcel = Parcel::new("queue", &message);
        let draft = Draft::of(&parcel).unwrap();
        assert_eq!((draft.properties.correlation_id(), draft.properties.content_type()), (&None, &None));
        let table = draft.properties.headers().as_ref().unwrap().inner();
        for name in [wire::CORRELATION_ID, wire::CONTENT_TYPE] {
            assert_eq!(table.get(name), Some(&AMQPValue::LongString(long.as_str().into())));
        }
        assert_eq!(draft.check_size(131_072, 4), Ok(()));
        assert_eq!(draft.check_size(131_072, 3), Err(Undelivered::TooLarge { bytes: 4, limit: Some(3) }));
        assert!(matches!(draft.check_size(1_100, 4), Err(Undelivered::TooLarge { limit: Some(1_100), .. })));

        let message = Message::new("t", "").header("h".repeat(256), "1");
        assert!(matches!(Draft::of(&Parcel::new("queue", &message)), Err(Undelivered::Rejected { .. })));
    }
}
