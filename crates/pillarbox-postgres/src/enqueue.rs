//! Enqueue: on the caller's own transaction, or on one of the store's.

use std::sync::Arc;
use std::time::SystemTime;

use pillarbox_core::lease::{Held, Lease};
use pillarbox_core::message::{Message, When};
use pillarbox_core::parts::{write_aggregate_type, write_headers};
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, OpenTransaction, Placement, chunks, enqueue_answers};
use pillarbox_core::{MessageId, StoreError, WorkId, key_hash};
use sqlx::postgres::PgRow;
use sqlx::{Connection, Decode, PgConnection, Postgres, Row, Transaction, Type};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::store_error;
use crate::sql::{Statement, UsedColumn};
use crate::store::{PgQuery, PostgresStore};

/// Bytes of messages in one statement: far below what the protocol frames, and bounded in memory.
const STATEMENT_BYTES_MAX: usize = 32 * 1024 * 1024;

impl OpenTransaction<PostgresStore> for &mut PgConnection {
    fn enqueue_on<'a>(
        self,
        store: &'a PostgresStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            require_open(self)?;
            insert_all(store, self, enqueue).await
        })
    }
}

impl OpenTransaction<PostgresStore> for &mut Transaction<'_, Postgres> {
    fn enqueue_on<'a>(
        self,
        store: &'a PostgresStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>
    where
        Self: 'a,
    {
        let connection: &mut PgConnection = self;
        connection.enqueue_on(store, enqueue)
    }
}

/// Refuses a connection on which no transaction is open.
pub(crate) fn require_open(connection: &PgConnection) -> Result<(), StoreError> {
    if connection.is_in_transaction() {
        return Ok(());
    }
    Err(StoreError::rejected(
        "no transaction is open on this connection: begin one, or make the call that needs no connection",
    ))
}

/// Enqueues in a transaction of the store's own: one statement is one already; more get one around them.
pub(crate) async fn standalone(store: &PostgresStore, enqueue: Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
    let messages = enqueue.distinct();
    if let [chunk] = chunks(&messages, STATEMENT_BYTES_MAX, usize::MAX)[..] {
        let insert = Insert::of(store, chunk, &enqueue);
        let rows = store.fetch(insert.statement(), |query| insert.bind(query)).await?;
        return Ok(enqueue_answers(&enqueue, insert.stored(&rows)?));
    }
    let (store, copy) = (store.clone(), enqueue.copied());
    // A dropped begin() would leave an open transaction in the pool: the task is never dropped half-way.
    let run = tokio::spawn(async move {
        let mut tx = store.pool().begin().await.map_err(store_error)?;
        let answers = insert_all(&store, &mut tx, copy.call()).await?;
        tx.commit().await.map_err(store_error)?;
        Ok(answers)
    });
    run.await.map_err(|_| StoreError::unavailable("the runtime is shutting down"))?
}

/// Inserts the messages through a connection that is inside a transaction.
pub(crate) async fn insert_all(
    store: &PostgresStore,
    connection: &mut PgConnection,
    enqueue: Enqueue<'_>,
) -> Result<Vec<Enqueued>, StoreError> {
    let messages = enqueue.distinct();
    let mut stored = Vec::with_capacity(messages.len());
    for chunk in chunks(&messages, STATEMENT_BYTES_MAX, usize::MAX) {
        let insert = Insert::of(store, chunk, &enqueue);
        let query = store.query(insert.statement(), |query| insert.bind(query));
        let rows = query.fetch_all(&mut *connection).await.map_err(store_error);
        store.notice_if_foreign(&rows);
        stored.extend(insert.stored(&rows?)?);
    }
    Ok(enqueue_answers(&enqueue, stored))
}

/// Gives rows that are under a running lease another content, by a statement that takes what `outbox_enqueue_delayed.sql`
/// does; answers which rows were.
pub(crate) async fn revise_all(
    store: &PostgresStore,
    connection: &mut PgConnection,
    statement: &Statement,
    messages: &[&Message],
) -> Result<Vec<Uuid>, StoreError> {
    let mut revised = Vec::with_capacity(messages.len());
    for chunk in chunks(messages, STATEMENT_BYTES_MAX, usize::MAX) {
        let insert = Insert { statement: Text::Whole(statement), form: Form::Delayed, messages: chunk, lease: None };
        let query = store.query(insert.statement(), |query| insert.bind(query));
        for row in query.fetch_all(&mut *connection).await.map_err(store_error)? {
            revised.push(get(&row, 0)?);
        }
    }
    Ok(revised)
}

/// The statement for a batch, and what it binds.
struct Insert<'s, 'm> {
    statement: Text<'s>,
    form: Form,
    messages: &'m [&'m Message],
    lease: Option<Lease>,
}

enum Text<'s> {
    Whole(&'s Statement),
    Completed(Arc<Statement>),
}

enum Form {
    /// No store can hold them yet, and whether they are leased is known beforehand: only the columns in use.
    New(Vec<&'static Optional>),
    One,
    Many,
    /// Some may have to wait.
    Delayed,
}

impl<'s, 'm> Insert<'s, 'm> {
    fn of(store: &'s PostgresStore, messages: &'m [&'m Message], enqueue: &Enqueue<'_>) -> Self {
        let (sql, lease, new) = (store.sql(), enqueue.lease(), enqueue.is_new());
        let any = |is: fn(&Message) -> bool| messages.iter().any(|message| is(message));
        let (statement, form) = if any(Message::is_delayed) {
            (Text::Whole(&sql.enqueue_delayed), Form::Delayed)
        } else if new && !any(|message| message.expires().is_some()) {
            let used: Vec<_> = OPTIONAL.iter().filter(|optional| any(optional.is_used)).collect();
            let columns: Vec<_> = used.iter().map(|optional| optional.column).collect();
            (Text::Completed(sql.enqueue_new(messages.len() > 1, lease.is_some(), columns)), Form::New(used))
        } else if messages.len() == 1 {
            (Text::Whole(&sql.enqueue_one), Form::One)
        } else {
            (Text::Whole(&sql.enqueue), Form::Many)
        };
        Self { statement, form, messages, lease }
    }

    fn statement(&self) -> &Statement {
        match &self.statement {
            Text::Whole(statement) => statement,
            Text::Completed(statement) => statement,
        }
    }

    fn bind(&self, query: PgQuery) -> PgQuery {
        let (query, messages) = (self.bind_required(query), self.messages);
        match &self.form {
            Form::New(used) => {
                let query = match self.lease {
                    Some(_) => self.bind_lease(query),
                    None => query,
                };
                used.iter().fold(query, |query, optional| match messages {
                    [message] => (optional.bind)(query, message),
                    _ => (optional.bind_all)(query, messages),
                })
            }
            Form::One => {
                let expires = messages.first().and_then(|message| message.expires());
                let query = query.bind(after(expires)).bind(at(expires));
                let bind = |query, optional: &Optional| {
                    messages.iter().fold(query, |query, message| (optional.bind)(query, message))
                };
                self.bind_lease(OPTIONAL.iter().fold(query, bind))
            }
            Form::Many | Form::Delayed => {
                let query = Times::of(messages.iter().map(|message| message.expires())).bind(query);
                let bind = |query, optional: &Optional| (optional.bind_all)(query, messages);
                let query = self.bind_lease(OPTIONAL.iter().fold(query, bind));
                match self.form {
                    Form::Delayed => Times::of(messages.iter().map(|message| message.due())).bind(query),
                    _ => query,
                }
            }
        }
    }

    fn bind_required(&self, query: PgQuery) -> PgQuery {
        if let ([message], Form::New(_) | Form::One) = (self.messages, &self.form) {
            return query.bind(message.id().as_uuid()).bind(message.topic()).bind(&message.payload()[..]);
        }
        let messages = || self.messages.iter();
        query
            .bind(messages().map(|message| message.id().as_uuid()).collect::<Vec<_>>())
            .bind(messages().map(|message| message.topic()).collect::<Vec<_>>())
            .bind(messages().map(|message| &message.payload()[..]).collect::<Vec<_>>())
    }

    fn bind_lease(&self, query: PgQuery) -> PgQuery {
        query
            .bind(self.lease.map(|lease| lease.owner().as_uuid()))
            .bind(self.lease.map(|lease| micros(lease.duration())))
            .bind(self.lease.map(|lease| lease.fence().as_i64()))
    }

    /// The messages that are new, from what the statement answered.
    fn stored(&self, rows: &[PgRow]) -> Result<Vec<(MessageId, Placement)>, StoreError> {
        if matches!(self.form, Form::New(_)) && rows.len() != self.messages.len() {
            return Err(StoreError::rejected(format!(
                "the database stored {} of {} messages: does a trigger or a rule stand on the outbox table?",
                rows.len(),
                self.messages.len(),
            )));
        }
        let mut stored = Vec::with_capacity(rows.len());
        for (index, row) in rows.iter().enumerate() {
            let (message_id, id, leased) = match &self.form {
                Form::New(_) => (self.messages[index].id(), get(row, 0)?, self.lease.is_some()),
                Form::One => {
                    let Some(id) = get::<Option<i64>>(row, 0)? else { continue };
                    (self.messages[index].id(), id.abs(), id < 0)
                }
                Form::Many | Form::Delayed => (MessageId::from_uuid(get(row, 1)?)?, get(row, 0)?, get(row, 2)?),
            };
            let work_id = WorkId::from_i64(id);
            let placement = match self.lease {
                Some(lease) if leased => Placement::Leased(Held { work_id, fence: lease.fence() }),
                _ => Placement::Pending(work_id),
            };
            stored.push((message_id, placement));
        }
        Ok(stored)
    }
}

fn get<'r, T: Decode<'r, Postgres> + Type<Postgres>>(row: &'r PgRow, index: usize) -> Result<T, StoreError> {
    row.try_get(index).map_err(store_error)
}

/// A column that a message may leave empty.
struct Optional {
    column: UsedColumn,
    is_used: fn(&Message) -> bool,
    bind: fn(PgQuery, &Message) -> PgQuery,
    /// A column that no message uses is left out: unnest pads it with NULL.
    bind_all: fn(PgQuery, &[&Message]) -> PgQuery,
}

macro_rules! optional {
    ($($column:ident $kind:ident: $value:expr;)*) => {
        [$(Optional {
            column: (stringify!($column), stringify!($kind)),
            is_used: |message| $value(message).is_some(),
            bind: |query, message| query.bind($value(message)),
            bind_all: |query, messages| query.bind(used(messages.iter().map(|message| $value(message)).collect())),
        }),*]
    };
}

/// In the order in which the functions take them.
static OPTIONAL: [Optional; 12] = optional! {
    message_type text: Message::get_message_type;
    aggregate_type text: write_aggregate_type;
    aggregate_id text: Message::get_aggregate_id;
    tenant_id text: Message::get_tenant;
    message_key text: Message::get_key;
    correlation_id text: Message::get_correlation_id;
    causation_id text: Message::get_causation_id;
    content_type text: Message::get_content_type;
    headers text: |message: &Message| write_headers(message.get_headers());
    occurred_at timestamptz: |message: &Message| message.get_occurred_at().map(instant);
    priority smallint: |message: &Message| Some(message.get_priority()).filter(|priority| *priority != 0);
    key_hash bigint: |message: &Message| message.get_key().map(|key| i64::from(key_hash(key)));
};

type Column<T> = Option<Vec<Option<T>>>;

/// Times as two columns: delays, which the database adds to its clock, and instants.
struct Times {
    after: Column<i64>,
    at: Column<OffsetDateTime>,
}

impl Times {
    fn of(times: impl Iterator<Item = Option<When>> + Clone) -> Self {
        Self { after: used(times.clone().map(after).collect()), at: used(times.map(at).collect()) }
    }

    fn bind(&self, query: PgQuery) -> PgQuery {
        query.bind(&self.after).bind(&self.at)
    }
}

fn after(time: Option<When>) -> Option<i64> {
    match time {
        Some(When::After(delay)) => Some(micros(delay)),
        Some(When::At(_)) | None => None,
    }
}

fn at(time: Option<When>) -> Option<OffsetDateTime> {
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
