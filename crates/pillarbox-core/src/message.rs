//! The message: what a service wants to tell.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;

use crate::id::MessageId;
use crate::parts::Parts;

mod extras;
mod identity;
mod limits;

use extras::{Aside, Extras};
use identity::Identity;
pub use limits::Limits;
pub(crate) use limits::check_text;

/// The aggregate type of messages that belong to no aggregate.
pub const GLOBAL_AGGREGATE: &str = "__GLOBAL__";

/// The furthest that a due time, an expiry or a delay may lie ahead: ten years.
pub const HORIZON_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// A point in time as the caller knows it. Delays are added to the *database's* clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So long after the database received the message.
    After(Duration),
    /// At this instant, compared with the database's clock; the past means now.
    At(SystemTime),
}

/// The name of a message type or an aggregate type: a text, or an enum, so that no two places can spell it differently.
///
/// ```
/// # use pillarbox_core::{Message, TypeName};
/// enum OrderChange { Created, Shipped }
///
/// impl TypeName for OrderChange {
///     fn type_name(&self) -> &str {
///         match self {
///             Self::Created => "created",
///             Self::Shipped => "shipped",
///         }
///     }
/// }
///
/// let message = Message::new("orders", "1").message_type(OrderChange::Created);
/// assert_eq!(message.get_message_type(), Some(OrderChange::Created.type_name()));
/// # let _ = OrderChange::Shipped;
/// ```
pub trait TypeName {
    /// The name, as it is stored and compared; case counts.
    fn type_name(&self) -> &str;
}

impl TypeName for str {
    fn type_name(&self) -> &str {
        self
    }
}

impl TypeName for String {
    fn type_name(&self) -> &str {
        self
    }
}

impl<T: TypeName + ?Sized> TypeName for &T {
    fn type_name(&self) -> &str {
        (**self).type_name()
    }
}

/// A message, built once and not changed afterwards.
///
/// ```
/// # use pillarbox_core::Message;
/// let message = Message::json("order.created", &serde_json::json!({ "id": 1 }))?
///     .key("customer-7")
///     .correlation_id("request-42");
/// assert_eq!(message.topic(), "order.created");
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// Enqueueing the same message twice stores it once: its [id](Message::id) is drawn when it is built, so a
/// caller who does not know whether a commit succeeded simply enqueues it again.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    identity: Identity,
    topic: String,
    content_type: Option<String>,
    payload: Bytes,
    extras: Aside,
}

impl Message {
    /// A message of plain bytes. The payload may be empty.
    pub fn new(topic: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self {
            identity: Identity::drawn(),
            topic: topic.into(),
            content_type: None,
            payload: payload.into(),
            extras: Aside::default(),
        }
    }

    /// A message whose payload is the value as JSON, serialised here and never again.
    pub fn json(topic: impl Into<String>, value: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self::new(topic, serde_json::to_vec(value)?).content_type("application/json"))
    }

    /// Replaces the drawn id by one that exists already, for example after a process restart.
    #[must_use]
    pub fn with_id(mut self, id: MessageId) -> Self {
        self.identity = Identity::known(id);
        self
    }

    /// What happened, for routing beside the topic: a text, or an enum of the user's own that is a [`TypeName`].
    #[must_use]
    pub fn message_type(mut self, message_type: impl TypeName) -> Self {
        self.extras.message_type = filled(message_type.type_name().to_owned());
        self
    }

    /// The kind of thing it happened to; [`GLOBAL_AGGREGATE`] unless set.
    #[must_use]
    pub fn aggregate_type(mut self, aggregate_type: impl TypeName) -> Self {
        self.extras.aggregate_type =
            filled(aggregate_type.type_name().to_owned()).filter(|name| name != GLOBAL_AGGREGATE);
        self
    }

    /// Which thing it happened to.
    #[must_use]
    pub fn aggregate_id(mut self, aggregate_id: impl fmt::Display) -> Self {
        self.extras.aggregate_id = filled(aggregate_id.to_string());
        self
    }

    /// The tenant, passed through unchanged.
    #[must_use]
    pub fn tenant(mut self, tenant: impl fmt::Display) -> Self {
        self.extras.tenant = filled(tenant.to_string());
        self
    }

    /// Messages of one key belong together.
    #[must_use]
    pub fn key(mut self, key: impl fmt::Display) -> Self {
        self.extras.key = filled(key.to_string());
        self
    }

    /// What the message belongs to, for tracing; the empty text counts as none.
    #[must_use]
    pub fn correlation_id(mut self, correlation_id: impl fmt::Display) -> Self {
        self.extras.correlation_id = filled(correlation_id.to_string());
        self
    }

    /// What caused the message.
    #[must_use]
    pub fn causation_id(mut self, causation_id: impl fmt::Display) -> Self {
        self.extras.causation_id = filled(causation_id.to_string());
        self
    }

    /// Adds or replaces one header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.extras.headers.insert(name.into(), value.into());
        self
    }

    /// Adds or replaces many headers.
    #[must_use]
    pub fn headers(mut self, headers: impl IntoIterator<Item = (String, String)>) -> Self {
        self.extras.headers.extend(headers);
        self
    }

    /// The media type of the payload.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = filled(content_type.into());
        self
    }

    /// When it happened, as the producer saw it; nothing is decided by it.
    #[must_use]
    pub fn occurred_at(mut self, at: SystemTime) -> Self {
        self.extras.occurred_at = Some(truncated(at));
        self
    }

    /// Not before this time has passed on the database's clock.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.extras.due = Some(When::After(delay));
        self
    }

    /// Not before this instant; one in the past means now.
    #[must_use]
    pub fn due_at(mut self, at: SystemTime) -> Self {
        self.extras.due = Some(When::At(truncated(at)));
        self
    }

    /// Never handled once this time has passed on the database's clock.
    #[must_use]
    pub fn expires_in(mut self, after: Duration) -> Self {
        self.extras.expires = Some(When::After(after));
        self
    }

    /// Never handled after this instant.
    #[must_use]
    pub fn expires_at(mut self, at: SystemTime) -> Self {
        self.extras.expires = Some(When::At(truncated(at)));
        self
    }

    /// Reserved: stored and handed out, not yet heeded by the claim.
    #[must_use]
    pub fn priority(mut self, priority: i16) -> Self {
        self.extras.priority = priority;
        self
    }

    /// Puts a message together from the columns of a row; nothing is drawn and nothing copied.
    pub(crate) fn from_parts(id: MessageId, headers: BTreeMap<String, String>, parts: Parts) -> Self {
        let text = |text: Option<String>| text.and_then(filled);
        Self {
            identity: Identity::known(id),
            topic: parts.topic,
            content_type: text(parts.content_type),
            payload: parts.payload,
            extras: Aside::of(Extras {
                message_type: text(parts.message_type),
                aggregate_type: text(parts.aggregate_type).filter(|name| name != GLOBAL_AGGREGATE),
                aggregate_id: text(parts.aggregate_id),
                tenant: text(parts.tenant_id),
                key: text(parts.message_key),
                correlation_id: text(parts.correlation_id),
                causation_id: text(parts.causation_id),
                headers,
                occurred_at: parts.occurred_at.map(truncated),
                due: parts.due_at.map(truncated).map(When::At),
                expires: parts.expires_at.map(truncated).map(When::At),
                priority: parts.priority,
            }),
        }
    }

    fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("topic", Some(self.topic.as_str())),
            ("message_type", self.extras.message_type.as_deref()),
            ("aggregate_type", self.extras.aggregate_type.as_deref()),
            ("aggregate_id", self.extras.aggregate_id.as_deref()),
            ("tenant", self.extras.tenant.as_deref()),
            ("key", self.extras.key.as_deref()),
            ("correlation_id", self.extras.correlation_id.as_deref()),
            ("causation_id", self.extras.causation_id.as_deref()),
            ("content_type", self.content_type.as_deref()),
        ]
        .into_iter()
        .filter_map(|(field, value)| Some((field, value?)))
    }
}

/// Reading a message.
impl Message {
    /// The message's own name, constant through all attempts.
    ///
    /// Ask after enqueueing, and keep no clone, where you can: then the store need not look whether it has the message.
    pub fn id(&self) -> MessageId {
        self.identity.tell()
    }

    /// Where it goes; case counts.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// What happened.
    pub fn get_message_type(&self) -> Option<&str> {
        self.extras.message_type.as_deref()
    }

    /// The kind of thing it happened to.
    pub fn get_aggregate_type(&self) -> &str {
        self.extras.aggregate_type.as_deref().unwrap_or(GLOBAL_AGGREGATE)
    }

    /// Which thing it happened to.
    pub fn get_aggregate_id(&self) -> Option<&str> {
        self.extras.aggregate_id.as_deref()
    }

    /// The tenant.
    pub fn get_tenant(&self) -> Option<&str> {
        self.extras.tenant.as_deref()
    }

    /// What it belongs together with.
    pub fn get_key(&self) -> Option<&str> {
        self.extras.key.as_deref()
    }

    /// What it belongs to.
    pub fn get_correlation_id(&self) -> Option<&str> {
        self.extras.correlation_id.as_deref()
    }

    /// What caused it.
    pub fn get_causation_id(&self) -> Option<&str> {
        self.extras.causation_id.as_deref()
    }

    /// All headers, sorted by name.
    pub fn get_headers(&self) -> &BTreeMap<String, String> {
        &self.extras.headers
    }

    /// The media type of the payload.
    pub fn get_content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The payload, byte for byte as it was given.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// When it happened, truncated to microseconds.
    pub fn get_occurred_at(&self) -> Option<SystemTime> {
        self.extras.occurred_at
    }

    /// When it may be handled; nothing means at once.
    pub fn due(&self) -> Option<When> {
        self.extras.due
    }

    /// After what it must not be handled.
    pub fn expires(&self) -> Option<When> {
        self.extras.expires
    }

    /// Reserved.
    pub fn get_priority(&self) -> i16 {
        self.extras.priority
    }

    /// The bytes that this message brings to a statement, roughly: for keeping batches within a packet.
    pub fn weight(&self) -> usize {
        let texts: usize = self.texts().map(|(_, text)| text.len()).sum();
        let headers: usize = self.extras.headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        self.payload.len() + texts + headers + 128
    }

    /// The id, for comparisons that tell nobody.
    pub(crate) fn peek_id(&self) -> MessageId {
        self.identity.peek()
    }

    /// Whether only the owner of this message can know its id.
    pub(crate) fn has_secret_id(&self) -> bool {
        self.identity.is_secret()
    }

    /// Whether the message asks to wait; the database's clock decides whether it really must.
    pub fn is_delayed(&self) -> bool {
        !matches!(self.extras.due, None | Some(When::After(Duration::ZERO)))
    }
}

// The payload and header values may be secrets: only their sizes are shown.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.identity.tell())
            .field("topic", &self.topic)
            .field("message_type", &self.extras.message_type)
            .field("correlation_id", &self.extras.correlation_id)
            .field("header_count", &self.extras.headers.len())
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// Cuts an instant to whole microseconds, never rounding up into the future.
pub fn truncated(at: SystemTime) -> SystemTime {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => at - Duration::from_nanos(u64::from(since.subsec_nanos() % 1000)),
        Err(before) => {
            let spare = before.duration().subsec_nanos() % 1000;
            if spare == 0 { at } else { at - Duration::from_nanos(u64::from(1000 - spare)) }
        }
    }
}

fn filled(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(message: &Message) -> Vec<(&'static str, Option<u64>)> {
        match message.validate(&Limits::default()) {
            Ok(()) => Vec::new(),
            Err(invalid) => invalid.problems().iter().map(|p| (p.field(), p.limit())).collect(),
        }
    }

    #[test]
    fn all_problems_are_reported_with_field_and_limit() {
        let message = Message::new("", vec![0; 1024 * 1024 + 1])
            .correlation_id("c".repeat(256))
            .tenant("a\0b")
            .header("", "x")
            .delay(HORIZON_MAX + Duration::from_secs(1));
        assert_eq!(
            problems(&message),
            [
                ("topic", Some(1)),
                ("tenant", None),
                ("correlation_id", Some(255)),
                ("headers", None),
                ("payload", Some(1024 * 1024)),
                ("due", Some(HORIZON_MAX.as_secs())),
            ]
        );
    }

    #[test]
    fn limits_count_characters_not_bytes() {
        assert!(problems(&Message::new("ß".repeat(255), "")).is_empty());
        assert_eq!(problems(&Message::new("ß".repeat(256), "")), [("topic", Some(255))]);
    }

    #[test]
    fn the_payload_may_be_empty_and_of_any_bytes() {
        assert!(problems(&Message::new("t", "")).is_empty());
        assert!(problems(&Message::new("t", vec![0, 0xff, 0xc0])).is_empty());
    }

    #[test]
    fn an_empty_optional_text_counts_as_none() {
        let message = Message::new("t", "").correlation_id("").key("").aggregate_type("");
        assert_eq!(message.get_correlation_id(), None);
        assert_eq!(message.get_key(), None);
        assert_eq!(message.get_aggregate_type(), GLOBAL_AGGREGATE);
    }

    #[test]
    fn a_message_that_would_expire_before_it_is_due_is_refused() {
        let message = Message::new("t", "").delay(Duration::from_secs(60)).expires_in(Duration::from_secs(60));
        assert_eq!(problems(&message), [("expires", None)]);
    }

    #[test]
    fn debug_shows_no_payload_and_no_header() {
        let shown = format!("{:?}", Message::new("t", "canary-payload").header("auth", "canary-header"));
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn instants_are_truncated_never_rounded_up() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(truncated(epoch + Duration::from_nanos(1_999)), epoch + Duration::from_nanos(1_000));
        assert_eq!(truncated(epoch - Duration::from_nanos(1)), epoch - Duration::from_nanos(1_000));
        assert_eq!(truncated(epoch), epoch);
    }

    #[test]
    fn the_payload_limit_has_a_ceiling() {
        let limits = Limits { payload_bytes_max: Limits::PAYLOAD_BYTES_CEILING + 1, ..Limits::default() };
        assert_eq!(limits.validate().unwrap_err().problems()[0].field(), "payload_bytes_max");
    }

    #[test]
    fn a_batch_is_bounded() {
        let limits = Limits { batch_max: 2, ..Limits::default() };
        let batch = vec![Message::new("t", ""); 3];
        assert_eq!(limits.check(&batch).unwrap_err().problems()[0].limit(), Some(2));
    }
}
