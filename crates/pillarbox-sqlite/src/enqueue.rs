//! Enqueueing, on the caller's transaction or on one of the store's own.

use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::lease::{Held, Lease};
use pillarbox_core::message::When;
use pillarbox_core::parts::{write_aggregate_type, write_headers};
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, OpenTransaction, Placement, enqueue_answers};
use pillarbox_core::{Message, MessageId, StoreError, WorkId, key_hash};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Connection, Encode, SqlStr, Sqlite, SqliteConnection, Transaction, Type};
use uuid::Uuid;

use crate::error::store_error;
use crate::row::{self, id_list, micros, to_micros, work_id};
use crate::sql::{self, ENQUEUE_ROWS};
use crate::store::{Inner, SqliteStore, is_really_open};

/// Bytes of messages in one statement: the driver holds a copy of them while it runs.
const STATEMENT_BYTES_MAX: usize = 8 * 1024 * 1024;

impl OpenTransaction<SqliteStore> for &mut Transaction<'_, Sqlite> {
    fn enqueue_on<'a>(
        self,
        store: &'a SqliteStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>
    where
        Self: 'a,
    {
        Box::pin(enqueue_guarded(&store.inner, self, enqueue))
    }
}

impl OpenTransaction<SqliteStore> for &mut SqliteConnection {
    fn enqueue_on<'a>(
        self,
        store: &'a SqliteStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>
    where
        Self: 'a,
    {
        Box::pin(enqueue_guarded(&store.inner, self, enqueue))
    }
}

/// Enqueues inside a transaction that somebody else began, once it is sure that there is one.
async fn enqueue_guarded(
    inner: &Inner,
    connection: &mut SqliteConnection,
    enqueue: Enqueue<'_>,
) -> Result<Vec<Enqueued>, StoreError> {
    require_open(connection).await?;
    enqueue_within(inner, connection, enqueue).await
}

/// Refuses a connection on which no transaction is open.
pub(crate) async fn require_open(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    if !connection.is_in_transaction() {
        return Err(StoreError::rejected(
            "no transaction is open on this connection: begin one with `begin_with(\"BEGIN IMMEDIATE\")`",
        ));
    }
    if !is_really_open(connection).await? {
        return Err(StoreError::rejected(
            "SQLite has rolled this transaction back by itself after an earlier error, such as a full disk: \
             nothing was stored, begin a new transaction",
        ));
    }
    Ok(())
}

/// Inserts the messages through a connection that is inside a transaction.
pub(crate) async fn enqueue_within(
    inner: &Inner,
    connection: &mut SqliteConnection,
    enqueue: Enqueue<'_>,
) -> Result<Vec<Enqueued>, StoreError> {
    let plain = Plain::of(&enqueue);
    let mut stored = Vec::with_capacity(enqueue.messages().len());
    let mut rest = enqueue.messages();
    while !rest.is_empty() {
        let size = statement_size(rest);
        let (chunk, later) = rest.split_at(ENQUEUE_ROWS[size]);
        match &plain {
            Some(plain) => stored.extend(plain.insert(inner, connection, chunk).await?),
            None => {
                let query = sqlx::query_with(inner.sql.enqueue[size].clone(), bound(chunk, enqueue.lease())?);
                for row in query.fetch_all(&mut *connection).await.map_err(store_error)? {
                    stored.push(placed(&row, enqueue.lease())?);
                }
            }
        }
        rest = later;
    }
    if enqueue.messages().iter().any(Message::is_delayed) {
        shelve_delayed(inner, connection, &stored).await?;
    }
    Ok(enqueue_answers(&enqueue, stored))
}

/// Moves those of the new rows that must wait to the shelf.
async fn shelve_delayed(
    inner: &Inner,
    connection: &mut SqliteConnection,
    stored: &[(MessageId, Placement)],
) -> Result<(), StoreError> {
    let ids = id_list(stored.iter().filter_map(|(_, placement)| placement.work_id()));
    let shelve = sqlx::query(inner.sql.enqueue_delayed.clone()).bind(ids);
    let rows = shelve.fetch_all(&mut *connection).await.map_err(store_error)?;
    if rows.is_empty() {
        return Ok(());
    }
    let moved: Vec<WorkId> = rows.iter().map(work_id).collect::<Result<_, _>>()?;
    let leave = sqlx::query(inner.sql.leave_live.clone()).bind(id_list(moved));
    leave.execute(connection).await.map_err(store_error)?;
    Ok(())
}

/// Which of the prepared statements carries the next messages: the largest that is filled and not too heavy.
fn statement_size(messages: &[Message]) -> usize {
    let fits = |rows: &usize| {
        let weight = |chunk: &[Message]| chunk.iter().map(Message::weight).sum::<usize>();
        messages.get(..*rows).is_some_and(|chunk| weight(chunk) <= STATEMENT_BYTES_MAX)
    };
    ENQUEUE_ROWS.iter().position(fits).unwrap_or(ENQUEUE_ROWS.len() - 1)
}

fn placed(row: &SqliteRow, lease: Option<Lease>) -> Result<(MessageId, Placement), StoreError> {
    let work_id = work_id(row)?;
    let message_id: Uuid = row::get(row, 1)?;
    let placement = match lease {
        Some(lease) if row::get(row, 2)? => Placement::Leased(Held { work_id, fence: lease.fence() }),
        _ => Placement::Pending(work_id),
    };
    Ok((MessageId::from_uuid(message_id)?, placement))
}

/// Messages without due time and expiry: whether they are leased is known beforehand, and columns that none uses are left out.
struct Plain {
    lease: Option<Lease>,
    used: Vec<Optional>,
    /// No store can hold them yet.
    new: bool,
}

impl Plain {
    fn of(enqueue: &Enqueue<'_>) -> Option<Self> {
        let messages = enqueue.messages();
        if messages.iter().any(|message| message.is_delayed() || message.expires().is_some()) {
            return None;
        }
        let used =
            OPTIONAL.into_iter().chain([PRIORITY]).filter(|optional| messages.iter().any(optional.is_used)).collect();
        Some(Self { lease: enqueue.lease(), used, new: enqueue.is_new() })
    }

    async fn insert(
        &self,
        inner: &Inner,
        connection: &mut SqliteConnection,
        chunk: &[Message],
    ) -> Result<Vec<(MessageId, Placement)>, StoreError> {
        let query = sqlx::query_with(self.statement(inner, chunk.len()), self.bound(chunk)?);
        let inserted = query.execute(&mut *connection).await.map_err(store_error)?;
        let new_count = i64::try_from(inserted.rows_affected()).unwrap_or(i64::MAX);
        if inserted.rows_affected() == chunk.len() as u64 {
            let first = inserted.last_insert_rowid() - new_count + 1;
            return Ok((first..).zip(chunk).map(|(id, message)| (message.id(), self.placement(id))).collect());
        }
        let look = sqlx::query(sql::found(&inner.sql.enqueue_found, chunk.len()));
        let look = chunk.iter().fold(look, |look, message| look.bind(message.id().as_uuid())).bind(new_count);
        let rows = look.fetch_all(connection).await.map_err(store_error)?;
        let place = |row| Ok((MessageId::from_uuid(row::get(row, 1)?)?, self.placement(row::get(row, 0)?)));
        rows.iter().map(place).collect()
    }

    fn placement(&self, id: i64) -> Placement {
        let work_id = WorkId::from_i64(id);
        match self.lease {
            Some(lease) => Placement::Leased(Held { work_id, fence: lease.fence() }),
            None => Placement::Pending(work_id),
        }
    }

    fn statement(&self, inner: &Inner, rows: usize) -> SqlStr {
        let columns = self.used.iter().map(|optional| optional.column).collect();
        inner.sql.plain(sql::Plain { rows, columns, is_leased: self.lease.is_some(), is_new: self.new })
    }

    fn bound(&self, messages: &[Message]) -> Result<SqliteArguments, StoreError> {
        let mut binds = Binds::for_values(messages.len() * (3 + self.used.len()));
        if let Some(lease) = self.lease {
            binds.add(lease.owner().as_uuid())?;
            binds.add(lease.fence().as_i64())?;
            binds.add(micros(lease.duration()))?;
        }
        for message in messages {
            binds.add(message.id().as_uuid())?;
            binds.add_text(message.topic())?;
            binds.add(message.payload().as_ref())?;
            for optional in &self.used {
                (optional.bind)(&mut binds, message)?;
            }
        }
        Ok(binds.arguments)
    }
}

/// A column that a message may leave empty.
#[derive(Clone, Copy)]
struct Optional {
    column: &'static str,
    is_used: fn(&Message) -> bool,
    bind: fn(&mut Binds, &Message) -> Result<(), StoreError>,
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

const OPTIONAL: [Optional; 11] = optional! {
    message_type: add_some_text Message::get_message_type;
    aggregate_type: add_some_text write_aggregate_type;
    aggregate_id: add Message::get_aggregate_id;
    tenant_id: add_some_text Message::get_tenant;
    message_key: add Message::get_key;
    correlation_id: add Message::get_correlation_id;
    causation_id: add Message::get_causation_id;
    content_type: add_some_text Message::get_content_type;
    headers: add |message: &Message| write_headers(message.get_headers());
    occurred_at: add |message: &Message| message.get_occurred_at().map(to_micros);
    key_hash: add hash;
};

/// Never empty, but mostly zero.
const PRIORITY: Optional = Optional {
    column: "priority",
    is_used: |message| message.get_priority() != 0,
    bind: |binds, message| binds.add(message.get_priority()),
};

/// The parameters of `outbox_enqueue.sql`, in the order of its question marks.
pub(crate) fn bound(messages: &[Message], lease: Option<Lease>) -> Result<SqliteArguments, StoreError> {
    let mut binds = Binds::for_values(3 + messages.len() * 19);
    binds.add(lease.map(|lease| lease.owner().as_uuid()))?;
    binds.add(lease.map(|lease| lease.fence().as_i64()))?;
    binds.add(lease.map(|lease| micros(lease.duration())))?;
    for message in messages {
        binds.add(message.id().as_uuid())?;
        binds.add_text(message.topic())?;
        binds.add(message.payload().as_ref())?;
        binds.add_some_text(message.get_message_type())?;
        binds.add_some_text(write_aggregate_type(message))?;
        binds.add(message.get_aggregate_id())?;
        binds.add_some_text(message.get_tenant())?;
        binds.add(message.get_key())?;
        binds.add(message.get_correlation_id())?;
        binds.add(message.get_causation_id())?;
        binds.add_some_text(message.get_content_type())?;
        binds.add(write_headers(message.get_headers()))?;
        binds.add(message.get_occurred_at().map(to_micros))?;
        binds.add(message.get_priority())?;
        binds.add(hash(message))?;
        binds.add_when(message.due().filter(|due| *due != When::After(Duration::ZERO)))?;
        binds.add_when(message.expires())?;
    }
    Ok(binds.arguments)
}

/// What says which partition a message belongs to.
fn hash(message: &Message) -> Option<i64> {
    message.get_key().map(|key| i64::from(key_hash(key)))
}

/// Words that are remembered while a batch is bound; more different ones would cost more to find than to copy.
const WORDS_MAX: usize = 8;

struct Binds {
    arguments: SqliteArguments,
    /// Texts that the messages of a batch have in common, such as their topic: copied once.
    words: Vec<Arc<str>>,
}

impl Binds {
    fn for_values(count: usize) -> Self {
        let mut arguments = SqliteArguments::default();
        arguments.reserve(count, 0);
        Self { arguments, words: Vec::new() }
    }

    /// A text that comes again in most messages.
    fn add_text(&mut self, text: &str) -> Result<(), StoreError> {
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

    fn add_some_text(&mut self, text: Option<&str>) -> Result<(), StoreError> {
        match text {
            Some(text) => self.add_text(text),
            None => self.add(None::<&str>),
        }
    }

    fn add<'t>(&mut self, value: impl Encode<'t, Sqlite> + Type<Sqlite>) -> Result<(), StoreError> {
        Arguments::add(&mut self.arguments, value)
            .map_err(|_| StoreError::rejected("a value cannot be passed to SQLite"))
    }

    /// An instant, or a delay that the database adds to its own clock: one of two columns.
    fn add_when(&mut self, when: Option<When>) -> Result<(), StoreError> {
        let (at, after) = match when {
            None => (None, None),
            Some(When::At(at)) => (Some(to_micros(at)), None),
            Some(When::After(delay)) => (None, Some(micros(delay))),
        };
        self.add(at)?;
        self.add(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_cut_into_prepared_sizes_and_by_weight() {
        let rows = |count: usize, bytes: usize| {
            let messages = vec![Message::new("t", vec![0; bytes]); count];
            ENQUEUE_ROWS[statement_size(&messages)]
        };
        assert_eq!(rows(1, 0), 1);
        assert_eq!(rows(4, 0), 2);
        assert_eq!(rows(1000, 0), 1000);
        assert_eq!(rows(1999, 0), 1000);
        assert_eq!(rows(1000, 1024 * 1024), 5);
        assert_eq!(rows(2, 64 * 1024 * 1024), 1);
    }
}
