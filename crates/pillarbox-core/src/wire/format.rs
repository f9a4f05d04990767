//! In which shape messages travel.

use std::fmt;
use std::sync::Arc;

use super::{Wire, cloud_events};
use crate::message::Message;
use crate::problem::{Invalid, Problem};

/// In which shape a transport sends messages. [`read`](super::read) understands them all.
///
/// | field of the message | plain | CloudEvents |
/// |---|---|---|
/// | id | `pillarbox-id` | `id`, and `pillarbox-id` beside it |
/// | message type, else topic | `pillarbox-type` | `type` |
/// | topic | `pillarbox-topic` | `topic` |
/// | aggregate id | `pillarbox-aggregate-id` | `subject` |
/// | aggregate type | `pillarbox-aggregate-type` | `aggregatetype` |
/// | key | `pillarbox-key` | `partitionkey` |
/// | tenant | `pillarbox-tenant` | `tenant` |
/// | correlation id | `pillarbox-correlation-id` | `correlationid` |
/// | causation id | `pillarbox-causation-id` | `causationid` |
/// | when it happened | `pillarbox-occurred-at` | `time` |
/// | content type | the broker's own field | the same; `datacontenttype` inside of a structured one |
/// | headers | headers | headers beside it; `traceparent` and `tracestate` are attributes too |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireFormat {
    /// The payload as it is, and the fields as headers `pillarbox-…`.
    #[default]
    Plain,
    /// CloudEvents 1.0 in binary mode: the payload as it is, and the attributes as headers.
    CloudEventsBinary {
        /// Who sends.
        source: Source,
    },
    /// CloudEvents 1.0 in structured mode: one JSON text with attributes and payload.
    ///
    /// A payload that is JSON stands in it as it is, but for white space around it; any other one as base64.
    CloudEventsStructured {
        /// Who sends.
        source: Source,
    },
}

impl WireFormat {
    /// CloudEvents 1.0, the payload as the body.
    pub fn cloud_events_binary(source: impl AsRef<str>) -> Result<Self, Invalid> {
        Ok(Self::CloudEventsBinary { source: Source::new(source)? })
    }

    /// CloudEvents 1.0, everything in one JSON text.
    pub fn cloud_events_structured(source: impl AsRef<str>) -> Result<Self, Invalid> {
        Ok(Self::CloudEventsStructured { source: Source::new(source)? })
    }

    /// A message as it is sent. The prefix is what the broker's binding puts before the names of attributes: `ce-` for
    /// HTTP and NATS, `ce_` for Kafka, `cloudEvents:` for AMQP 1.0, nothing for MQTT; `ce-` where there is no binding.
    pub fn encode<'a>(&'a self, message: &'a Message, prefix: &str) -> Wire<'a> {
        match self {
            Self::Plain => Wire::plain(message),
            Self::CloudEventsBinary { source } => cloud_events::binary(message, source.as_str(), prefix),
            Self::CloudEventsStructured { source } => cloud_events::structured(message, source.as_str()),
        }
    }
}

/// Who sends, as CloudEvents has it: a URI or a part of one, such as `urn:acme:shop` or `/shop/orders`.
#[derive(Clone, PartialEq, Eq)]
pub struct Source(Arc<str>);

impl Source {
    /// The longest one, in characters.
    pub const CHARS_MAX: usize = 255;

    /// Takes 1 to 255 characters that may stand in a URI.
    pub fn new(source: impl AsRef<str>) -> Result<Self, Invalid> {
        let source = source.as_ref();
        let length = source.chars().count();
        let may_stand = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte);
        if source.is_empty() {
            return Err(Problem::empty("source").into());
        }
        if length > Self::CHARS_MAX {
            return Err(Problem::too_long("source", Self::CHARS_MAX, length).into());
        }
        if !source.bytes().all(may_stand) {
            return Err(Problem::malformed("source", "must be a URI, or a part of one").into());
        }
        Ok(Self(source.into()))
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_part_of_a_uri() {
        for good in ["urn:acme:shop", "/shop", "https://acme.example/shop?x=%20#y", "shop", "mailto:shop@acme.example"]
        {
            assert_eq!(Source::new(good).map(|source| source.as_str().to_owned()).as_deref(), Ok(good));
        }
        let long = "s".repeat(256);
        let table = [
            ("", Some(1)),
            (long.as_str(), Some(255)),
            ("my shop", None),
            ("größe", None),
            ("a\nb", None),
            ("<a>", None),
        ];
        for (bad, limit) in table {
            let problem = Source::new(bad).unwrap_err().problems()[0].clone();
            assert_eq!((problem.field(), problem.limit()), ("source", limit), "{bad}");
        }
    }

    #[test]
    fn messages_are_plain_unless_told_otherwise() {
        let message = Message::new("t", "body").key("k");
        assert_eq!(WireFormat::default().encode(&message, "ce-"), Wire::plain(&message));
    }
}
