//! The values that a statement takes, for whichever client runs it.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use pillarbox_core::message::When;
use pillarbox_core::parts::{write_aggregate_type, write_headers};
use pillarbox_core::{Message, key_hash};
use sqlx::mysql::{MySql, MySqlArguments};
use sqlx::query::Query;

use crate::enqueue::Birth;

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

/// What `outbox_enqueue_one.sql` takes.
pub(crate) fn of_one<'m>(message: &'m Message, birth: &Birth) -> Vec<Parameter<'m>> {
    let text = |text: Option<&'m str>| Parameter::Bytes(text.map(|text| Cow::Borrowed(text.as_bytes())));
    let uuid = |uuid: uuid::Uuid| Cow::Owned(uuid.into_bytes().to_vec());
    let (due_at, due_after) = when_micros(message.due());
    let (expires_at, expires_after) = when_micros(message.expires());
    let headers = write_headers(message.get_headers()).map(|headers| Cow::Owned(headers.into_bytes()));
    let mut values = vec![
        Parameter::Bytes(Some(uuid(message.id().as_uuid()))),
        text(Some(message.topic())),
        Parameter::Bytes(Some(Cow::Borrowed(&message.payload()[..]))),
    ];
    values.extend(texts(message).map(text));
    values.push(Parameter::Bytes(headers));
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
