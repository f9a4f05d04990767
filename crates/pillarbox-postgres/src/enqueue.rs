//! Enqueue: on the caller's own transaction, or on one of the store's.

use std::time::SystemTime;

use pillarbox_core::lease::{Held, Lease};
use pillarbox_core::message::{Message, When};
use pillarbox_core::parts::{write_aggregate_type, write_headers};
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, OpenTransaction, Placement, chunks, enqueue_answers};
use pillarbox_core::{MessageId, StoreError, WorkId};
use sqlx::postgres::PgRow;
use sqlx::{Connection, Decode, PgConnection, Postgres, Row, Transaction, Type};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::{is_foreign_connection, store_error};
use crate::sql::Statement;
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
            if !self.is_in_transaction() {
                return Err(StoreError::rejected(
                    "no transaction is open on this connection: begin one, or call enqueue without a connection",
                ));
            }
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

/// Enqueues in a transaction of the store's own: one statement is one already; more get one around them.
pub(crate) async fn standalone(store: &PostgresStore, enqueue: Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
    let messages = enqueue.distinct();
    if let [chunk] = chunks(&messages, STATEMENT_BYTES_MAX, usize::MAX)[..] {
        let insert = Insert::of(store, chunk, enqueue.lease());
        let rows = store.fetch(insert.statement, |query| insert.bind(query)).await?;
        return Ok(enqueue_answers(&enqueue, insert.stored(&rows)?));
    }
    let (store, owned, lease) = (store.clone(), enqueue.messages().to_vec(), enqueue.lease());
    // A dropped begin() would leave an open transaction in the pool: the task is never dropped half-way.
    let run = tokio::spawn(async move {
        let enqueue = lease.map_or(Enqueue::pending(&owned), |lease| Enqueue::leased(&owned, lease));
        let mut tx = store.pool().begin().await.map_err(store_error)?;
        let answers = insert_all(&store, &mut tx, enqueue).await?;
        tx.commit().await.map_err(store_error)?;
        Ok(answers)
    });
    run.await.map_err(|_| StoreError::unavailable("the runtime is shutting down"))?
}

async fn insert_all(
    store: &PostgresStore,
    connection: &mut PgConnection,
    enqueue: Enqueue<'_>,
) -> Result<Vec<Enqueued>, StoreError> {
    let messages = enqueue.distinct();
    let mut stored = Vec::with_capacity(messages.len());
    for chunk in chunks(&messages, STATEMENT_BYTES_MAX, usize::MAX) {
        let insert = Insert::of(store, chunk, enqueue.lease());
        let query = store.query(insert.statement, |query| insert.bind(query));
        let rows = query.fetch_all(&mut *connection).await.map_err(store_error);
        if rows.as_ref().is_err_and(is_foreign_connection) {
            // This transaction is lost; the next one will be served.
            store.notice_pooler();
        }
        stored.extend(insert.stored(&rows?)?);
    }
    Ok(enqueue_answers(&enqueue, stored))
}

/// The statement for a batch, and what it binds.
struct Insert<'s, 'm> {
    statement: &'s Statement,
    rows: Rows<'m>,
    lease: Option<Lease>,
}

enum Rows<'m> {
    One(&'m Message),
    Many(Box<Columns<'m>>),
}

impl<'s, 'm> Insert<'s, 'm> {
    fn of(store: &'s PostgresStore, messages: &[&'m Message], lease: Option<Lease>) -> Self {
        let sql = store.sql();
        let delayed = messages.iter().any(|message| message.is_delayed());
        let (statement, rows) = match messages {
            [message] if !delayed => (&sql.enqueue_one, Rows::One(message)),
            _ if delayed => (&sql.enqueue_delayed, Rows::Many(Box::new(Columns::of(messages, true)))),
            _ => (&sql.enqueue, Rows::Many(Box::new(Columns::of(messages, false)))),
        };
        Self { statement, rows, lease }
    }

    fn bind(&self, query: PgQuery) -> PgQuery {
        let query = match &self.rows {
            Rows::One(message) => bind_one(query, message),
            Rows::Many(columns) => columns.bind(query),
        };
        let query = query
            .bind(self.lease.map(|lease| lease.owner().as_uuid()))
            .bind(self.lease.map(|lease| micros(lease.duration())))
            .bind(self.lease.map(|lease| lease.fence().as_i64()));
        match &self.rows {
            Rows::Many(columns) => columns.bind_due(query),
            Rows::One(_) => query,
        }
    }

    /// The messages that are new, from what the statement answered.
    fn stored(&self, rows: &[PgRow]) -> Result<Vec<(MessageId, Placement)>, StoreError> {
        let mut stored = Vec::with_capacity(rows.len());
        for row in rows {
            let (message_id, id, leased) = match &self.rows {
                Rows::One(message) => {
                    let Some(id) = get::<Option<i64>>(row, 0)? else { continue };
                    (message.id(), id.abs(), id < 0)
                }
                Rows::Many(_) => (MessageId::from_uuid(get(row, 1)?)?, get(row, 0)?, get(row, 2)?),
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

fn bind_one(query: PgQuery, message: &Message) -> PgQuery {
    query
        .bind(message.id().as_uuid())
        .bind(message.topic())
        .bind(&message.payload()[..])
        .bind(after(message.expires()))
        .bind(at(message.expires()))
        .bind(message.get_message_type())
        .bind(write_aggregate_type(message))
        .bind(message.get_aggregate_id())
        .bind(message.get_tenant())
        .bind(message.get_key())
        .bind(message.get_correlation_id())
        .bind(message.get_causation_id())
        .bind(message.get_content_type())
        .bind(write_headers(message.get_headers()))
        .bind(message.get_occurred_at().map(instant))
        .bind(message.get_priority())
}

/// A batch turned into columns. A column that no message uses is left out: unnest pads it with NULL.
struct Columns<'m> {
    message_ids: Vec<Uuid>,
    topics: Vec<&'m str>,
    payloads: Vec<&'m [u8]>,
    expires: Times,
    message_types: Column<&'m str>,
    aggregate_types: Column<&'m str>,
    aggregate_ids: Column<&'m str>,
    tenants: Column<&'m str>,
    keys: Column<&'m str>,
    correlation_ids: Column<&'m str>,
    causation_ids: Column<&'m str>,
    content_types: Column<&'m str>,
    headers: Column<String>,
    occurred_at: Column<OffsetDateTime>,
    priorities: Column<i16>,
    /// Only in the statement for batches of which some messages wait.
    due: Option<Times>,
}

type Column<T> = Option<Vec<Option<T>>>;

impl<'m> Columns<'m> {
    fn of(messages: &[&'m Message], delayed: bool) -> Self {
        Self {
            message_ids: messages.iter().map(|message| message.id().as_uuid()).collect(),
            topics: messages.iter().map(|message| message.topic()).collect(),
            payloads: messages.iter().map(|message| &message.payload()[..]).collect(),
            expires: Times::of(messages.iter().map(|message| message.expires())),
            message_types: column(messages, Message::get_message_type),
            aggregate_types: column(messages, write_aggregate_type),
            aggregate_ids: column(messages, Message::get_aggregate_id),
            tenants: column(messages, Message::get_tenant),
            keys: column(messages, Message::get_key),
            correlation_ids: column(messages, Message::get_correlation_id),
            causation_ids: column(messages, Message::get_causation_id),
            content_types: column(messages, Message::get_content_type),
            headers: column(messages, |message| write_headers(message.get_headers())),
            occurred_at: column(messages, |message| message.get_occurred_at().map(instant)),
            priorities: column(messages, |message| Some(message.get_priority()).filter(|priority| *priority != 0)),
            due: delayed.then(|| Times::of(messages.iter().map(|message| message.due()))),
        }
    }

    fn bind(&self, query: PgQuery) -> PgQuery {
        query
            .bind(&self.message_ids)
            .bind(&self.topics)
            .bind(&self.payloads)
            .bind(&self.expires.after)
            .bind(&self.expires.at)
            .bind(&self.message_types)
            .bind(&self.aggregate_types)
            .bind(&self.aggregate_ids)
            .bind(&self.tenants)
            .bind(&self.keys)
            .bind(&self.correlation_ids)
            .bind(&self.causation_ids)
            .bind(&self.content_types)
            .bind(&self.headers)
            .bind(&self.occurred_at)
            .bind(&self.priorities)
    }

    /// The times come last: only the statement for batches that may wait has them.
    fn bind_due(&self, query: PgQuery) -> PgQuery {
        match &self.due {
            Some(due) => query.bind(&due.after).bind(&due.at),
            None => query,
        }
    }
}

/// Times as two columns: delays, which the database adds to its clock, and instants.
struct Times {
    after: Column<i64>,
    at: Column<OffsetDateTime>,
}

impl Times {
    fn of(times: impl Iterator<Item = Option<When>> + Clone) -> Self {
        Self { after: used(times.clone().map(after).collect()), at: used(times.map(at).collect()) }
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

fn column<'m, T>(messages: &[&'m Message], read: impl Fn(&'m Message) -> Option<T>) -> Column<T> {
    used(messages.iter().map(|message| read(message)).collect())
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
