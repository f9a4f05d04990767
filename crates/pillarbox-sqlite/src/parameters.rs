//! The values that a statement takes, for whichever client runs it.

use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::lease::Lease;
use pillarbox_core::message::When;
use pillarbox_core::parts::{write_aggregate_type, write_headers};
use pillarbox_core::{Message, StoreError, key_hash};
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, Encode, Sqlite, Type};
use uuid::Uuid;

use crate::row::{micros, to_micros};

/// A column that a message may leave empty.
#[derive(Clone, Copy)]
pub(crate) struct Optional {
    pub(crate) column: &'static str,
    pub(crate) is_used: fn(&Message) -> bool,
    pub(crate) bind: fn(&mut Binds, &Message) -> Result<(), StoreError>,
}

macro_rules! optional {
    ($($column:ident: $add:ident $value:expr;)*) => {
        [$(Optional {
            column: stringify!($column),
            is_used: |message| $value(message).is_some(),
            bind: |binds, message| binds.$add($value(message)),
        }),*]
    };
}

pub(crate) const OPTIONAL: [Optional; 11] = optional! {
    message_type: add_word Message::get_message_type;
    aggregate_type: add_word write_aggregate_type;
    aggregate_id: add_text Message::get_aggregate_id;
    tenant_id: add_word Message::get_tenant;
    message_key: add_text Message::get_key;
    correlation_id: add_text Message::get_correlation_id;
    causation_id: add_text Message::get_causation_id;
    content_type: add_word Message::get_content_type;
    headers: add |message: &Message| write_headers(message.get_headers());
    occurred_at: add_number |message: &Message| message.get_occurred_at().map(to_micros);
    key_hash: add_number hash;
};

/// Never empty, but mostly zero.
pub(crate) const PRIORITY: Optional = Optional {
    column: "priority",
    is_used: |message| message.get_priority() != 0,
    bind: |binds, message| binds.add_number(Some(message.get_priority().into())),
};

/// The parameters of `outbox_enqueue.sql`, in the order of its question marks.
pub(crate) fn bound(messages: &[Message], lease: Option<Lease>) -> Result<SqliteArguments, StoreError> {
    let mut binds = Binds::for_values(3 + messages.len() * 19);
    bind(&mut binds, messages, lease)?;
    Ok(binds.arguments)
}

/// The same for any client.
pub(crate) fn bind(binds: &mut impl Values, messages: &[Message], lease: Option<Lease>) -> Result<(), StoreError> {
    binds.add_uuid(lease.map(|lease| lease.owner().as_uuid()))?;
    binds.add_number(lease.map(|lease| lease.fence().as_i64()))?;
    binds.add_number(lease.map(|lease| micros(lease.duration())))?;
    for message in messages {
        binds.add_uuid(Some(message.id().as_uuid()))?;
        binds.add_word(Some(message.topic()))?;
        binds.add_bytes(message.payload())?;
        binds.add_word(message.get_message_type())?;
        binds.add_word(write_aggregate_type(message))?;
        binds.add_text(message.get_aggregate_id())?;
        binds.add_word(message.get_tenant())?;
        binds.add_text(message.get_key())?;
        binds.add_text(message.get_correlation_id())?;
        binds.add_text(message.get_causation_id())?;
        binds.add_word(message.get_content_type())?;
        binds.add_text(write_headers(message.get_headers()).as_deref())?;
        binds.add_number(message.get_occurred_at().map(to_micros))?;
        binds.add_number(Some(message.get_priority().into()))?;
        binds.add_number(hash(message))?;
        binds.add_when(message.due().filter(|due| *due != When::After(Duration::ZERO)))?;
        binds.add_when(message.expires())?;
    }
    Ok(())
}

/// Takes the values of a statement, one after the other.
pub(crate) trait Values {
    fn add_uuid(&mut self, uuid: Option<Uuid>) -> Result<(), StoreError>;
    fn add_number(&mut self, number: Option<i64>) -> Result<(), StoreError>;
    fn add_bytes(&mut self, bytes: &[u8]) -> Result<(), StoreError>;
    fn add_text(&mut self, text: Option<&str>) -> Result<(), StoreError>;

    /// A text that comes again in most messages.
    fn add_word(&mut self, word: Option<&str>) -> Result<(), StoreError> {
        self.add_text(word)
    }

    /// An instant, or a delay that the database adds to its own clock: one of two columns.
    fn add_when(&mut self, when: Option<When>) -> Result<(), StoreError> {
        let (at, after) = match when {
            None => (None, None),
            Some(When::At(at)) => (Some(to_micros(at)), None),
            Some(When::After(delay)) => (None, Some(micros(delay))),
        };
        self.add_number(at)?;
        self.add_number(after)
    }
}

/// What says which partition a message belongs to.
fn hash(message: &Message) -> Option<i64> {
    message.get_key().map(|key| i64::from(key_hash(key)))
}

/// Words that are remembered while a batch is bound; more different ones would cost more to find than to copy.
const WORDS_MAX: usize = 8;

pub(crate) struct Binds {
    pub(crate) arguments: SqliteArguments,
    /// Texts that the messages of a batch have in common, such as their topic: copied once.
    words: Vec<Arc<str>>,
}

impl Binds {
    pub(crate) fn for_values(count: usize) -> Self {
        let mut arguments = SqliteArguments::default();
        arguments.reserve(count, 0);
        Self { arguments, words: Vec::new() }
    }

    fn add<'t>(&mut self, value: impl Encode<'t, Sqlite> + Type<Sqlite>) -> Result<(), StoreError> {
        Arguments::add(&mut self.arguments, value)
            .map_err(|_| StoreError::rejected("a value cannot be passed to SQLite"))
    }
}

impl Values for Binds {
    fn add_uuid(&mut self, uuid: Option<Uuid>) -> Result<(), StoreError> {
        self.add(uuid)
    }

    fn add_number(&mut self, number: Option<i64>) -> Result<(), StoreError> {
        self.add(number)
    }

    fn add_bytes(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.add(bytes)
    }

    fn add_text(&mut self, text: Option<&str>) -> Result<(), StoreError> {
        self.add(text)
    }

    fn add_word(&mut self, word: Option<&str>) -> Result<(), StoreError> {
        let Some(text) = word else { return self.add(None::<&str>) };
        if let Some(word) = self.words.iter().find(|word| ***word == *text) {
            let word = Arc::clone(word);
            return self.add(word);
        }
        let word: Arc<str> = Arc::from(text);
        if self.words.len() < WORDS_MAX {
            self.words.push(Arc::clone(&word));
        }
        self.add(word)
    }
}
