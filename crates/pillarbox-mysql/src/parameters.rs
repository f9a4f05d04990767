//! The values that a statement takes, for whichever client runs it.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use pillarbox_core::message::When;
use pillarbox_core::parts::{write_aggregate_type, write_headers};
use pillarbox_core::{Message, key_hash};
use serde_json::Value;
use sqlx::mysql::{MySql, MySqlArguments};
use sqlx::query::Query;

use crate::enqueue::Birth;
use crate::sql::hexadecimal;

/// One value of a statement. Texts travel as bytes, so that no session's character set matters.
pub(crate) enum Parameter<'m> {
    Bytes(Option<Cow<'m, [u8]>>),
    Number(Option<i64>),
}

impl Parameter<'_> {
    pub(crate) fn bind<'q>(&self, query: Query<'q, MySql, MySqlArguments>) -> Query<'q, MySql, MySqlArguments> {
        match self {
            Self::Bytes(bytes) => query.bind(bytes.as_deref()),
            Self::Number(number) => query.bind(*number),
        }
    }
}

impl<'m> From<&'m str> for Parameter<'m> {
    fn from(text: &'m str) -> Self {
        Self::Bytes(Some(Cow::Borrowed(text.as_bytes())))
    }
}

impl<'m> From<Option<&'m str>> for Parameter<'m> {
    fn from(text: Option<&'m str>) -> Self {
        Self::Bytes(text.map(|text| Cow::Borrowed(text.as_bytes())))
    }
}

/// A column that some message of a batch uses, and its value.
pub(crate) type Column = (&'static str, for<'m> fn(&'m Message) -> Parameter<'m>);

type IsUsed = fn(&Message) -> bool;

/// The columns beside id, topic, payload, times and lease that these messages use.
pub(crate) fn columns_of(messages: &[Message]) -> Vec<Column> {
    OPTIONAL.into_iter().filter(|(used, _)| messages.iter().any(used)).map(|(_, column)| column).collect()
}

const OPTIONAL: [(IsUsed, Column); 12] = [
    (|m| m.get_message_type().is_some(), ("message_type", |m| m.get_message_type().into())),
    (|m| write_aggregate_type(m).is_some(), ("aggregate_type", |m| write_aggregate_type(m).into())),
    (|m| m.get_aggregate_id().is_some(), ("aggregate_id", |m| m.get_aggregate_id().into())),
    (|m| m.get_tenant().is_some(), ("tenant_id", |m| m.get_tenant().into())),
    (|m| m.get_key().is_some(), ("message_key", |m| m.get_key().into())),
    (|m| m.get_key().is_some(), ("key_hash", |m| Parameter::Number(hash(m)))),
    (|m| m.get_correlation_id().is_some(), ("correlation_id", |m| m.get_correlation_id().into())),
    (|m| m.get_causation_id().is_some(), ("causation_id", |m| m.get_causation_id().into())),
    (|m| m.get_content_type().is_some(), ("content_type", |m| m.get_content_type().into())),
    (|m| !m.get_headers().is_empty(), ("headers", headers)),
    (|m| m.get_occurred_at().is_some(), ("occurred_at", |m| Parameter::Number(occurred(m)))),
    (|m| m.get_priority() != 0, ("priority", |m| Parameter::Number(Some(m.get_priority().into())))),
];

fn headers(message: &Message) -> Parameter<'_> {
    Parameter::Bytes(write_headers(message.get_headers()).map(|headers| Cow::Owned(headers.into_bytes())))
}

/// What `outbox_enqueue_many.sql` takes: a list of the same, in which bytes that are no text are hexadecimal digits.
pub(crate) fn of_many<'m>(messages: &[Message], birth: &Birth) -> [Parameter<'m>; 4] {
    let list: Vec<Vec<Value>> = messages.iter().map(|message| of_one(message, birth)).map(listed).collect();
    let list = Value::from_iter(list).to_string();
    [
        Parameter::Bytes(Some(Cow::Owned(list.into_bytes()))),
        Parameter::Bytes(birth.owner.map(|owner| Cow::Owned(owner.into_bytes().to_vec()))),
        Parameter::Number(Some(birth.fence.as_i64())),
        Parameter::Number(birth.lease),
    ]
}

/// The values of one message without those of its lease, which all share.
fn listed(values: Vec<Parameter<'_>>) -> Vec<Value> {
    let of_message = values.len() - 3;
    let value = |(place, value): (usize, Parameter<'_>)| match value {
        Parameter::Bytes(Some(bytes)) if RAW.contains(&place) => Value::from(hexadecimal(&bytes)),
        Parameter::Bytes(Some(bytes)) => Value::from(String::from_utf8_lossy(&bytes)),
        Parameter::Number(Some(number)) => Value::from(number),
        Parameter::Bytes(None) | Parameter::Number(None) => Value::Null,
    };
    values.into_iter().take(of_message).enumerate().map(value).collect()
}

/// The places of values that are no text: id and payload.
const RAW: [usize; 2] = [0, 2];

/// What `outbox_enqueue_one.sql` takes.
pub(crate) fn of_one<'m>(message: &'m Message, birth: &Birth) -> Vec<Parameter<'m>> {
    let uuid = |uuid: uuid::Uuid| Cow::Owned(uuid.into_bytes().to_vec());
    let (due_at, due_after) = when_micros(message.due());
    let (expires_at, expires_after) = when_micros(message.expires());
    let mut values = vec![
        Parameter::Bytes(Some(uuid(message.id().as_uuid()))),
        message.topic().into(),
        Parameter::Bytes(Some(Cow::Borrowed(&message.payload()[..]))),
    ];
    values.extend(texts(message).map(Parameter::from));
    values.push(headers(message));
    values.extend([occurred(message), due_at, due_after, expires_at, expires_after].map(Parameter::Number));
    values.push(Parameter::Number(Some(message.get_priority().into())));
    values.push(Parameter::Number(hash(message)));
    values.push(Parameter::Bytes(birth.owner.map(uuid)));
    values.extend([Some(birth.fence.as_i64()), birth.lease].map(Parameter::Number));
    values
}

/// The place of the key among the texts.
pub(crate) const KEY_TEXT: usize = 4;

/// The optional texts, in the order of the columns.
pub(crate) fn texts(message: &Message) -> [Option<&str>; 8] {
    [
        message.get_message_type(),
        write_aggregate_type(message),
        message.get_aggregate_id(),
        message.get_tenant(),
        message.get_key(),
        message.get_correlation_id(),
        message.get_causation_id(),
        message.get_content_type(),
    ]
}

/// An instant or a delay, in microseconds: one of the two.
pub(crate) fn when_micros(when: Option<When>) -> (Option<i64>, Option<i64>) {
    match when {
        None => (None, None),
        Some(When::After(delay)) => (None, Some(duration_micros(delay))),
        Some(When::At(at)) => (Some(instant_micros(at)), None),
    }
}

/// What says which partition a message belongs to.
pub(crate) fn hash(message: &Message) -> Option<i64> {
    message.get_key().map(|key| i64::from(key_hash(key)))
}

pub(crate) fn occurred(message: &Message) -> Option<i64> {
    message.get_occurred_at().map(instant_micros)
}

fn instant_micros(at: SystemTime) -> i64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, duration_micros)
}

/// Whole microseconds; what is left over is cut off, never rounded up.
pub(crate) fn duration_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_cut_to_microseconds() {
        assert_eq!(duration_micros(Duration::from_nanos(1_999)), 1);
        assert_eq!(when_micros(Some(When::After(Duration::MAX))), (None, Some(i64::MAX)));
    }
}
