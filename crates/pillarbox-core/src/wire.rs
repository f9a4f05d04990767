//! What a message looks like on its way: body, content type and headers, for any broker, and back.

use std::borrow::Cow;
use std::time::SystemTime;

use bytes::Bytes;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::id::MessageId;
use crate::message::{GLOBAL_AGGREGATE, Message};

mod cloud_events;
mod format;

pub use format::{Source, WireFormat};

/// The id of a message: the same whenever it is sent.
pub const ID: &str = "pillarbox-id";
/// Its topic.
pub const TOPIC: &str = "pillarbox-topic";
/// Its key.
pub const KEY: &str = "pillarbox-key";
/// Its type.
pub const TYPE: &str = "pillarbox-type";
/// The kind of thing it is about.
pub const AGGREGATE_TYPE: &str = "pillarbox-aggregate-type";
/// The thing it is about.
pub const AGGREGATE_ID: &str = "pillarbox-aggregate-id";
/// Whose it is.
pub const TENANT: &str = "pillarbox-tenant";
/// What it belongs to.
pub const CORRELATION_ID: &str = "pillarbox-correlation-id";
/// What caused it.
pub const CAUSATION_ID: &str = "pillarbox-causation-id";
/// When it happened, as RFC 3339 has it.
pub const OCCURRED_AT: &str = "pillarbox-occurred-at";
/// How often an operator has replayed a message, where that is so. A stored message has it among its headers, so that all attempts
/// of one replay say the same; a broker that keeps duplicates out can tell a replay from what it repeats.
pub const REPLAY: &str = "pillarbox-replay";
/// Marks a message that was put into another shape before it is handed to a transport; it is not sent.
pub const SHAPED: &str = "pillarbox-shaped";
/// How to read the body, where a broker has no field of its own for it.
pub const CONTENT_TYPE: &str = "content-type";
/// Stands before the name of a header of the user's where that name has another meaning; [`read`] takes it away again.
pub const DISPLACED: &str = "pillarbox-header-";

/// A message as it is sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Wire<'a> {
    /// What is sent.
    pub body: Bytes,
    /// How to read it; goes into the broker's own field, or into the header [`CONTENT_TYPE`].
    pub content_type: Option<Cow<'a, str>>,
    /// Everything else, names in any case and values of any characters: see [`line_safe`] where a broker is more narrow.
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

// Values may be secrets, as in a message.
impl std::fmt::Debug for Wire<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire")
            .field("content_type", &self.content_type)
            .field("header_count", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

impl<'a> Wire<'a> {
    /// The payload as it is, and every field as a header. A header of the user's that has the name of a field gives way to it.
    pub fn plain(message: &'a Message) -> Self {
        let aggregate_type = Some(message.get_aggregate_type()).filter(|name| *name != GLOBAL_AGGREGATE);
        let fields = [
            (TOPIC, Some(message.topic())),
            (KEY, message.get_key()),
            (TYPE, message.get_message_type()),
            (AGGREGATE_TYPE, aggregate_type),
            (AGGREGATE_ID, message.get_aggregate_id()),
            (TENANT, message.get_tenant()),
            (CORRELATION_ID, message.get_correlation_id()),
            (CAUSATION_ID, message.get_causation_id()),
        ];
        let mut headers = Vec::with_capacity(4 + message.get_headers().len());
        headers.push((Cow::Borrowed(ID), Cow::Owned(message.id().to_string())));
        let (body, content_type) = (message.payload().clone(), message.get_content_type().map(Cow::Borrowed));
        // The fields of a message in another shape stand in it already.
        if message.get_headers().contains_key(SHAPED) {
            headers.extend(Self::own_headers(message));
            return Self { body, content_type, headers };
        }
        for (name, value) in fields {
            headers.extend(value.map(|value| (Cow::Borrowed(name), Cow::Borrowed(value))));
        }
        if let Some(at) = message.get_occurred_at().and_then(rfc3339) {
            headers.push((Cow::Borrowed(OCCURRED_AT), Cow::Owned(at)));
        }
        headers.extend(Self::own_headers(message));
        Self { body, content_type, headers }
    }

    /// The user's own headers, trace context among them.
    pub fn own_headers(message: &Message) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        let own = message.get_headers().iter().filter(|(name, _)| !is_field(name));
        own.map(|(name, value)| {
            let is_displaced = before_displaced(name).is_some();
            let name = if is_displaced { displaced(name).into() } else { Cow::Borrowed(name.as_str()) };
            (name, Cow::Borrowed(value.as_str()))
        })
    }

    /// Bytes of body and headers, roughly as a broker counts them.
    pub fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        self.body.len() + self.content_type.as_ref().map_or(0, |text| text.len()) + headers.sum::<usize>()
    }
}

/// What came in, read as a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The message; under a new id, where none came with it.
    pub message: Message,
    /// Whether its id came with it. Otherwise something that the broker says must tell one from another.
    pub is_named: bool,
}

/// Reads what any [`WireFormat`] or anybody else has sent. What does not fit into a field stays a header.
///
/// Attributes of a CloudEvent that belong to no field become headers `ce-…`, its source among them. What only looks like
/// one stays as it came.
pub fn read(
    topic: &str,
    body: impl Into<Bytes>,
    content_type: Option<&str>,
    headers: impl IntoIterator<Item = (String, String)>,
) -> Arrival {
    let opened = cloud_events::opened(body.into(), content_type.map(str::to_owned), headers.into_iter().collect());
    let mut fields = Fields::default();
    let mut own = Vec::new();
    for (name, value) in opened.headers {
        if let Some((name, value)) = fields.take(name, value) {
            own.push((before_displaced(&name).map_or_else(|| name.clone(), str::to_owned), value));
        }
    }
    let Fields { id, topic: sent_topic, content_type: sent_type, texts, occurred_at } = fields;
    let mut message = Message::new(sent_topic.unwrap_or_else(|| topic.to_owned()), opened.body).headers(own);
    for (name, value) in texts {
        message = match name {
            KEY => message.key(value),
            TYPE => message.message_type(value),
            AGGREGATE_TYPE => message.aggregate_type(value),
            AGGREGATE_ID => message.aggregate_id(value),
            TENANT => message.tenant(value),
            CORRELATION_ID => message.correlation_id(value),
            _ => message.causation_id(value),
        };
    }
    if let Some(content_type) = opened.content_type.or(sent_type) {
        message = message.content_type(content_type);
    }
    if let Some(at) = occurred_at {
        message = message.occurred_at(at);
    }
    let is_named = id.is_some();
    Arrival { message: id.into_iter().fold(message, Message::with_id), is_named }
}

#[derive(Default)]
struct Fields {
    id: Option<MessageId>,
    topic: Option<String>,
    content_type: Option<String>,
    texts: Vec<(&'static str, String)>,
    occurred_at: Option<SystemTime>,
}

impl Fields {
    /// Keeps what is a field; answers what is none, or is none that can be read.
    fn take(&mut self, name: String, value: String) -> Option<(String, String)> {
        const TEXTS: [&str; 7] = [KEY, TYPE, AGGREGATE_TYPE, AGGREGATE_ID, TENANT, CORRELATION_ID, CAUSATION_ID];
        let is = |field: &str| name.eq_ignore_ascii_case(field);
        if is(ID) {
            self.id = value.parse().ok().and_then(|uuid| MessageId::from_uuid(uuid).ok());
            return if self.id.is_some() { None } else { Some((name, value)) };
        }
        if is(OCCURRED_AT) {
            self.occurred_at = OffsetDateTime::parse(&value, &Rfc3339).ok().map(SystemTime::from);
            return if self.occurred_at.is_some() { None } else { Some((name, value)) };
        }
        if is(TOPIC) {
            self.topic = Some(value);
        } else if is(CONTENT_TYPE) {
            self.content_type = Some(value);
        } else if let Some(field) = TEXTS.into_iter().find(|field| is(field)) {
            self.texts.push((field, value));
        } else {
            return Some((name, value));
        }
        None
    }
}

/// The name under which a header of the user's travels where its own has another meaning, such as `host` in HTTP.
pub fn displaced(name: &str) -> String {
    format!("{DISPLACED}{name}")
}

/// The name that a displaced header had.
fn before_displaced(name: &str) -> Option<&str> {
    let (start, rest) = name.split_at_checked(DISPLACED.len())?;
    (start.eq_ignore_ascii_case(DISPLACED) && !rest.is_empty()).then_some(rest)
}

/// Whether a header's name belongs to a field of the message.
fn is_field(name: &str) -> bool {
    const FIELDS: [&str; 12] = [
        ID,
        SHAPED,
        TOPIC,
        KEY,
        TYPE,
        AGGREGATE_TYPE,
        AGGREGATE_ID,
        TENANT,
        CORRELATION_ID,
        CAUSATION_ID,
        OCCURRED_AT,
        CONTENT_TYPE,
    ];
    FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field))
}

/// An instant in UTC; none outside of the years that RFC 3339 knows.
pub fn rfc3339(at: SystemTime) -> Option<String> {
    // Outside of these, the conversion would panic.
    const YEARS: i64 = 253_402_300_799;
    let seconds = match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).ok()?,
        Err(before) => -i64::try_from(before.duration().as_secs()).ok()?,
    };
    if !(-62_135_596_800..=YEARS).contains(&seconds) {
        return None;
    }
    OffsetDateTime::from(at).format(&Rfc3339).ok()
}

/// Text for a header that is a line of ASCII: everything else, and the percent sign, is percent-encoded as UTF-8.
pub fn line_safe(text: &str) -> Cow<'_, str> {
    let is_safe = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'%';
    let has_edges = text.starts_with(' ') || text.ends_with(' ');
    if text.bytes().all(is_safe) && !has_edges {
        return Cow::Borrowed(text);
    }
    let last = text.len().saturating_sub(1);
    let mut encoded = String::with_capacity(text.len() * 2);
    for (index, byte) in text.bytes().enumerate() {
        // Spaces at the ends would be trimmed on the way.
        if is_safe(byte) && !(byte == b' ' && (index == 0 || index == last)) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    Cow::Owned(encoded)
}

/// A header's value where headers are lines of ASCII, by its name: CloudEvents demands more of the values of its attributes
/// than [`line_safe`] does, namely that spaces and quotes be encoded too.
pub fn header_line<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    let is_attribute = name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("ce-"));
    match line_safe(value) {
        line if is_attribute && line.contains([' ', '"']) => line.replace(' ', "%20").replace('"', "%22").into(),
        line => line,
    }
}

/// Undoes [`line_safe`] and [`header_line`]. Text that it did not make stays as it is.
pub fn from_line_safe(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let pair = (bytes.get(index + 1).copied().and_then(hex), bytes.get(index + 2).copied().and_then(hex));
        match (bytes[index], pair) {
            (b'%', (Some(high), Some(low))) => {
                decoded.push(high * 16 + low);
                index += 3;
            }
            (byte, _) => {
                decoded.push(byte);
                index += 1;
            }
        }
    }
    String::from_utf8(decoded).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn sent(message: &Message) -> Arrival {
        let wire = Wire::plain(message);
        let headers = wire.headers.iter().map(|(name, value)| (name.to_uppercase(), value.to_string()));
        read("elsewhere", wire.body.clone(), wire.content_type.as_deref(), headers)
    }

    /// BUS-02: whatever carries it, a message arrives as it was.
    #[test]
    fn every_field_arrives() {
        let message = Message::new("order.created", "{}")
            .key("customer-7")
            .message_type("OrderCreated")
            .aggregate_type("Order")
            .aggregate_id(7)
            .tenant("acme")
            .correlation_id("c")
            .causation_id("d")
            .content_type("application/json")
            .occurred_at(SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456));
        assert_eq!(sent(&message), Arrival { message, is_named: true });
    }

    #[test]
    fn a_users_header_cannot_pass_for_a_field() {
        let message = Message::new("t", "").header("Pillarbox-Topic", "forged").header("traceparent", "00-1");
        let wire = Wire::plain(&message);
        let topics = wire.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(TOPIC));
        assert_eq!(topics.map(|(_, value)| value.as_ref()).collect::<Vec<_>>(), ["t"]);
        assert!(wire.headers.contains(&("traceparent".into(), "00-1".into())));
    }

    /// A name that was displaced comes back, and one that only looks so is the user's own.
    #[test]
    fn a_displaced_header_gets_its_name_back() {
        let message = Message::new("t", "").header("pillarbox-header-host", "a").header("pillarbox-header-", "b");
        assert_eq!(sent(&message).message.get_headers().len(), 2);
        let wire = Wire::plain(&message);
        assert!(wire.headers.contains(&("pillarbox-header-pillarbox-header-host".into(), "a".into())));
        let arrival = read("t", "", None, [(displaced("Host"), "c".to_owned())]);
        assert_eq!(arrival.message.get_headers()["Host"], "c");
    }

    #[test]
    fn a_message_of_a_stranger_gets_the_topic_of_where_it_came() {
        let headers = [("pillarbox-id", "no id"), ("pillarbox-occurred-at", "yesterday"), ("x", "1")];
        let arrival = read("orders", "b", None, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(!arrival.is_named);
        assert_eq!((arrival.message.topic(), arrival.message.get_headers().len()), ("orders", 3));
    }

    #[test]
    fn instants_that_nobody_can_write_are_left_out() {
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 50);
        assert_eq!(rfc3339(far), None);
        assert_eq!(rfc3339(SystemTime::UNIX_EPOCH).as_deref(), Some("1970-01-01T00:00:00Z"));
    }

    #[test]
    fn debug_shows_no_content() {
        let message = Message::new("t", "canary-payload").header("auth", "canary-header");
        assert!(!format!("{:?}", Wire::plain(&message)).contains("canary"));
    }

    #[test]
    fn attributes_of_events_have_neither_spaces_nor_quotes() {
        let table = [("ce-subject", "a%20%22b%22%20%25"), ("CE-x", "a%20%22b%22%20%25"), ("x-note", "a \"b\" %25")];
        for (name, line) in table {
            assert_eq!(header_line(name, "a \"b\" %"), line);
            assert_eq!(from_line_safe(line), "a \"b\" %");
        }
        assert_eq!(header_line("é", "v"), "v");
    }

    proptest! {
        /// H48: what a line cannot carry is encoded, and comes back.
        #[test]
        fn any_text_survives_a_line(text in any::<String>()) {
            let line = line_safe(&text);
            prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            prop_assert_eq!(line.trim(), line.as_ref());
            prop_assert_eq!(from_line_safe(&line), text.as_str());
        }

        #[test]
        fn lines_of_strangers_are_read_without_a_panic(text in any::<String>()) {
            from_line_safe(&text);
        }
    }
}
