//! The values that a statement takes, for whichever client runs it.

use std::borrow::Cow;
use std::time::SystemTime;

use pillarbox_core::key_hash;
use pillarbox_core::message::{Message, When};
use pillarbox_core::parts::{write_aggregate_type, write_headers};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::sql::UsedColumn;
use crate::store::PgQuery;

/// One value of a statement.
pub(crate) enum Parameter<'m> {
    Ids(Vec<Uuid>),
    Topics(Vec<&'m str>),
    Payloads(Vec<&'m [u8]>),
    Texts(Column<Cow<'m, str>>),
    Numbers(Column<i64>),
    Priorities(Column<i16>),
    Instants(Column<OffsetDateTime>),
    Owner(Option<Uuid>),
    Number(Option<i64>),
    /// See [`Statement`](crate::sql::Statement); the store binds its own.
    #[cfg(any(feature = "diesel-async", feature = "sea-orm", feature = "tokio-postgres"))]
    Guard(&'m str),
}

impl Parameter<'_> {
    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        match self {
            Self::Ids(ids) => query.bind(ids),
            Self::Topics(topics) => query.bind(topics),
            Self::Payloads(payloads) => query.bind(payloads),
            Self::Texts(texts) => query.bind(texts),
            Self::Numbers(numbers) => query.bind(numbers),
            Self::Priorities(priorities) => query.bind(priorities),
            Self::Instants(instants) => query.bind(instants),
            Self::Owner(owner) => query.bind(owner),
            Self::Number(number) => query.bind(number),
            #[cfg(any(feature = "diesel-async", feature = "sea-orm", feature = "tokio-postgres"))]
            Self::Guard(guard) => query.bind(guard),
        }
    }
}

/// A column that a message may leave empty.
pub(crate) struct Optional {
    pub(crate) column: UsedColumn,
    pub(crate) is_used: fn(&Message) -> bool,
    pub(crate) bind: fn(PgQuery, &Message) -> PgQuery,
    /// A column that no message uses is left out: unnest pads it with NULL.
    pub(crate) all: for<'m> fn(&[&'m Message]) -> Parameter<'m>,
}

macro_rules! optional {
    ($($column:ident $kind:ident $parameter:ident: $value:expr;)*) => {
        [$(Optional {
            column: (stringify!($column), stringify!($kind)),
            is_used: |message| $value(message).is_some(),
            bind: |query, message| query.bind($value(message)),
            all: |messages| {
                Parameter::$parameter(used(messages.iter().map(|message| $value(message).map(Into::into)).collect()))
            },
        }),*]
    };
}

/// In the order in which the functions take them.
pub(crate) static OPTIONAL: [Optional; 12] = optional! {
    message_type text Texts: Message::get_message_type;
    aggregate_type text Texts: write_aggregate_type;
    aggregate_id text Texts: Message::get_aggregate_id;
    tenant_id text Texts: Message::get_tenant;
    message_key text Texts: Message::get_key;
    correlation_id text Texts: Message::get_correlation_id;
    causation_id text Texts: Message::get_causation_id;
    content_type text Texts: Message::get_content_type;
    headers text Texts: |message: &Message| write_headers(message.get_headers());
    occurred_at timestamptz Instants: |message: &Message| message.get_occurred_at().map(instant);
    priority smallint Priorities: |message: &Message| Some(message.get_priority()).filter(|priority| *priority != 0);
    key_hash bigint Numbers: |message: &Message| message.get_key().map(|key| i64::from(key_hash(key)));
};

/// A value for each message; nothing when none has one.
pub(crate) type Column<T> = Option<Vec<Option<T>>>;

/// Times as two columns: delays, which the database adds to its clock, and instants.
pub(crate) fn times<'m>(times: impl Iterator<Item = Option<When>> + Clone) -> [Parameter<'m>; 2] {
    [Parameter::Numbers(used(times.clone().map(after).collect())), Parameter::Instants(used(times.map(at).collect()))]
}

pub(crate) fn after(time: Option<When>) -> Option<i64> {
    match time {
        Some(When::After(delay)) => Some(micros(delay)),
        Some(When::At(_)) | None => None,
    }
}

pub(crate) fn at(time: Option<When>) -> Option<OffsetDateTime> {
    match time {
        Some(When::At(at)) => Some(instant(at)),
        Some(When::After(_)) | None => None,
    }
}

fn used<T>(values: Vec<Option<T>>) -> Column<T> {
    values.iter().any(Option::is_some).then_some(values)
}

fn instant(at: SystemTime) -> OffsetDateTime {
    at.into()
}

/// Durations cross the wire in whole microseconds.
pub(crate) fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
