//! Where a message goes, written with the names of its fields: `shop.{topic}`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::message::Message;
use crate::problem::{Invalid, Problem};

/// The longest template, in characters.
pub const TEMPLATE_CHARS_MAX: usize = 2048;

/// A destination with places for the fields of a message.
///
/// `{topic}`, `{key}`, `{type}`, `{tenant}`, `{aggregate_type}`, `{aggregate_id}`, `{id}` and `{header:name}` stand for what the
/// message has there; `{{` and `}}` for a brace.
///
/// ```
/// # use pillarbox_core::Message;
/// # use pillarbox_core::template::{Escape, Template};
/// let template: Template = "shop.{topic}".parse()?;
/// let message = Message::new("order.created", "");
/// assert_eq!(template.fill(&message, Escape::Nothing).as_deref(), Ok("shop.order.created"));
/// # Ok::<(), pillarbox_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Field(Field),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Topic,
    Key,
    Type,
    Tenant,
    AggregateType,
    AggregateId,
    Id,
    Header(String),
}

/// What is done to a value before it is put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// It goes in as it is.
    Nothing,
    /// Percent-encoded, so that it cannot leave its place in an address: it stays one segment of a path, or one label of a host.
    Url,
}

/// A field that the destination asks for and the message does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the destination `{template}` needs {field}, and the message has none")]
pub struct FieldMissing {
    template: String,
    field: String,
}

impl Template {
    /// The destination of a message.
    pub fn fill(&self, message: &Message, escape: Escape) -> Result<String, FieldMissing> {
        let mut destination = String::with_capacity(self.text.len() * 2);
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => destination.push_str(text),
                Piece::Field(field) => {
                    let missing = || FieldMissing { template: self.text.clone(), field: field.to_string() };
                    let value = field.of(message).filter(|value| !value.is_empty()).ok_or_else(missing)?;
                    match escape {
                        Escape::Nothing => destination.push_str(&value),
                        Escape::Url => push_encoded(&mut destination, &value),
                    }
                }
            }
        }
        Ok(destination)
    }

    /// What stands before the first field: how every destination begins.
    pub fn head(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Literal(text)) => text,
            _ => "",
        }
    }

    /// The destination of every message, where no field stands in it.
    pub fn constant(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Literal(text)] => Some(text),
            _ => None,
        }
    }
}

impl Field {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "topic" => Self::Topic,
            "key" => Self::Key,
            "type" => Self::Type,
            "tenant" => Self::Tenant,
            "aggregate_type" => Self::AggregateType,
            "aggregate_id" => Self::AggregateId,
            "id" => Self::Id,
            _ => Self::Header(name.strip_prefix("header:").filter(|name| !name.is_empty())?.to_owned()),
        })
    }

    fn of<'a>(&self, message: &'a Message) -> Option<Cow<'a, str>> {
        let text = match self {
            Self::Topic => Some(message.topic()),
            Self::Key => message.get_key(),
            Self::Type => message.get_message_type(),
            Self::Tenant => message.get_tenant(),
            Self::AggregateType => Some(message.get_aggregate_type()),
            Self::AggregateId => message.get_aggregate_id(),
            Self::Id => return Some(Cow::Owned(message.id().to_string())),
            Self::Header(name) => message.get_headers().get(name).map(String::as_str),
        };
        text.map(Cow::Borrowed)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Topic => "a topic",
            Self::Key => "a key",
            Self::Type => "a type",
            Self::Tenant => "a tenant",
            Self::AggregateType => "an aggregate type",
            Self::AggregateId => "an aggregate id",
            Self::Id => "an id",
            Self::Header(name) => return write!(f, "a header {name}"),
        })
    }
}

impl FromStr for Template {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let length = text.chars().count();
        if text.is_empty() {
            return Err(Problem::empty("destination").into());
        }
        if length > TEMPLATE_CHARS_MAX {
            return Err(Problem::too_long("destination", TEMPLATE_CHARS_MAX, length).into());
        }
        Ok(Self { text: text.to_owned(), pieces: parse(text)? })
    }
}

impl TryFrom<&str> for Template {
    type Error = Invalid;

    fn try_from(text: &str) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse(text: &str) -> Result<Vec<Piece>, Invalid> {
    let refuse = |complaint: String| Invalid::from(Problem::malformed("destination", complaint));
    let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        let (brace, after) = rest[at..].split_at(1);
        if let Some(after) = after.strip_prefix(brace) {
            literal.push_str(brace);
            rest = after;
            continue;
        }
        let field = after.split_once('}').filter(|_| brace == "{");
        let Some((name, after)) = field else {
            return Err(refuse(format!("`{text}` has a brace without its other; write `{brace}{brace}` for one")));
        };
        let Some(field) = Field::parse(name) else {
            let known = "topic, key, type, tenant, aggregate_type, aggregate_id, id and header:name";
            return Err(refuse(format!("`{text}` names `{name}`; known are {known}")));
        };
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(Piece::Field(field));
        rest = after;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

fn push_encoded(destination: &mut String, value: &str) {
    // A whole value of dots would climb up a path.
    let is_climbing = value.bytes().all(|byte| byte == b'.');
    for byte in value.bytes() {
        let is_plain =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') || (byte == b'.' && !is_climbing);
        if is_plain {
            destination.push(char::from(byte));
        } else {
            destination.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(template: &str, message: &Message) -> String {
        template.parse::<Template>().unwrap().fill(message, Escape::Nothing).unwrap()
    }

    #[test]
    fn fields_stand_where_they_are_named() {
        let message = Message::new("order.created", "")
            .key("k")
            .message_type("Created")
            .tenant("acme")
            .aggregate_type("Order")
            .aggregate_id(7)
            .header("region", "eu");
        let table = [
            ("orders", "orders"),
            ("shop.{topic}", "shop.order.created"),
            ("{tenant}/{type}/{key}", "acme/Created/k"),
            ("{aggregate_type}-{aggregate_id}", "Order-7"),
            ("{header:region}.{topic}", "eu.order.created"),
            ("a{{b}}c", "a{b}c"),
        ];
        for (template, destination) in table {
            assert_eq!(filled(template, &message), destination);
        }
        assert_eq!(filled("{id}", &message), message.id().to_string());
        assert_eq!("a{{b".parse::<Template>().unwrap().constant(), Some("a{b"));
        assert_eq!("{topic}".parse::<Template>().unwrap().constant(), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let template: Template = "shop.{tenant}".parse().unwrap();
        let missing = template.fill(&Message::new("t", ""), Escape::Nothing).unwrap_err();
        assert_eq!(missing.to_string(), "the destination `shop.{tenant}` needs a tenant, and the message has none");
    }

    #[test]
    fn a_template_that_nobody_could_fill_is_refused() {
        let long = "x".repeat(TEMPLATE_CHARS_MAX + 1);
        let table = [
            ("", "destination must not be empty"),
            ("a{topic", "brace without its other"),
            ("a}b", "brace without its other"),
            ("{Topic}", "names `Topic`; known are topic, key"),
            ("{header:}", "names `header:`"),
            (long.as_str(), "at most 2048"),
        ];
        for (template, complaint) in table {
            let text = template.parse::<Template>().unwrap_err().to_string();
            assert!(text.contains(complaint), "{text}");
        }
    }

    proptest! {
        /// H60: a tenant's name cannot lead to another host or another path.
        #[test]
        fn a_value_stays_in_its_place_in_an_address(tenant in "\\PC{1,20}") {
            let template: Template = "https://example.com/{tenant}/in".parse().unwrap();
            let filled = template.fill(&Message::new("t", "").tenant(&tenant), Escape::Url).unwrap();
            let middle = filled.strip_prefix("https://example.com/").and_then(|rest| rest.strip_suffix("/in")).unwrap();
            prop_assert!(!middle.contains(['/', '?', '#', '@', ':', '\\', ' ']), "{filled}");
            prop_assert!(middle != "." && middle != "..");
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".*") {
            let _ = text.parse::<Template>();
        }
    }
}
