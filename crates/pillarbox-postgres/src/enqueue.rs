//! Enqueue: on the caller's own transaction, or on one of the store's.

use std::sync::Arc;

use pillarbox_core::lease::{Held, Lease};
use pillarbox_core::message::Message;
use pillarbox_core::store::{
    BoxFuture, CONFLICT_RETRIES_MAX, Enqueue, Enqueued, OpenTransaction, Placement, chunks, enqueue_answers,
};
use pillarbox_core::{MessageId, StoreError, WorkId};
use sqlx::postgres::PgRow;
use sqlx::{Connection, Decode, PgConnection, Postgres, Row, Transaction, Type};
use uuid::Uuid;

use crate::error::{is_race, store_error};
use crate::parameters::{OPTIONAL, Optional, Parameter, after, at, micros, times};
use crate::sql::Statement;
use crate::store::{PgQuery, PostgresStore, pause};

/// Bytes of messages in one statement: far below what the protocol frames, and bounded in memory.
pub(crate) const STATEMENT_BYTES_MAX: usize = 32 * 1024 * 1024;

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
    Err(no_transaction())
}

pub(crate) fn no_transaction() -> StoreError {
    StoreError::rejected(
        "no transaction is open on this connection: begin one, or make the call that needs no connection",
    )
}

/// Enqueues in a transaction of the store's own, again when it lost a race: one statement is one already; more get one
/// around them.
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
        let mut races = 0;
        loop {
            match in_one_transaction(&store, copy.call()).await {
                Err(error) if is_race(&error) && races < CONFLICT_RETRIES_MAX => {
                    races += 1;
                    pause(races).await;
                }
                answers => return answers,
            }
        }
    });
    run.await.map_err(|_| StoreError::unavailable("the runtime is shutting down"))?
}

async fn in_one_transaction(store: &PostgresStore, enqueue: Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
    let mut tx = store.kept().begin(None).await.map_err(store_error)?;
    let answers = insert_all(store, &mut tx, enqueue).await?;
    tx.commit().await.map_err(store_error)?;
    Ok(answers)
}

/// Inserts the messages through a connection that is inside a transaction.
pub(crate) async fn insert_all(
    store: &PostgresStore,
    connection: &mut PgConnection,
    enqueue: Enqueue<'_>,
) -> Result<Vec<Enqueued>, StoreError> {
    insert_and_look(store, connection, enqueue).await.map(|(answers, _)| answers)
}

/// Inserts the messages, and tells whether the server has shown on the way that the connection is inside a transaction that was
/// begun. It can do so where that has written before; otherwise nothing is known.
pub(crate) async fn insert_and_look(
    store: &PostgresStore,
    connection: &mut PgConnection,
    enqueue: Enqueue<'_>,
) -> Result<(Vec<Enqueued>, bool), StoreError> {
    let messages = enqueue.distinct();
    let mut stored = Vec::with_capacity(messages.len());
    let mut is_open = false;
    for chunk in chunks(&messages, STATEMENT_BYTES_MAX, usize::MAX) {
        let insert = Insert::of(store, chunk, &enqueue);
        let query = store.query(insert.statement(), |query| insert.bind(query));
        let rows = query.fetch_all(&mut *connection).await.map_err(store_error);
        store.notice_if_foreign(&rows);
        let rows = rows?;
        is_open = insert.has_shown_a_transaction(&rows)?;
        stored.extend(insert.stored(&rows)?);
    }
    Ok((enqueue_answers(&enqueue, stored), is_open))
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
                    _ => (optional.all)(messages).bind(query),
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
            Form::Many => many(messages, self.lease).into_iter().fold(query, |query, value| value.bind(query)),
            Form::Delayed => delayed(messages, self.lease).into_iter().fold(query, |query, value| value.bind(query)),
        }
    }

    fn bind_required(&self, query: PgQuery) -> PgQuery {
        if let ([message], Form::New(_) | Form::One) = (self.messages, &self.form) {
            return query.bind(message.id().as_uuid()).bind(message.topic()).bind(&message.payload()[..]);
        }
        required(self.messages).into_iter().fold(query, |query, value| value.bind(query))
    }

    fn bind_lease(&self, query: PgQuery) -> PgQuery {
        query
            .bind(self.lease.map(|lease| lease.owner().as_uuid()))
            .bind(self.lease.map(|lease| micros(lease.duration())))
            .bind(self.lease.map(|lease| lease.fence().as_i64()))
    }

    /// Whether the statement has said that it ran in a transaction that was begun.
    fn has_shown_a_transaction(&self, rows: &[PgRow]) -> Result<bool, StoreError> {
        match (&self.form, rows.first()) {
            (Form::New(_), Some(row)) => get(row, 1),
            (Form::One, Some(row)) => get(row, 0),
            (Form::Many | Form::Delayed, _) | (_, None) => Ok(false),
        }
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
                    let Some(id) = get::<Option<i64>>(row, 1)? else { continue };
                    (self.messages[index].id(), id.abs(), id < 0)
                }
                Form::Many | Form::Delayed => (MessageId::from_uuid(get(row, 1)?)?, get(row, 0)?, get(row, 2)?),
            };
            stored.push((message_id, placement(id, leased, self.lease)));
        }
        Ok(stored)
    }
}

/// What every message has.
fn required<'m>(messages: &[&'m Message]) -> [Parameter<'m>; 3] {
    [
        Parameter::Ids(messages.iter().map(|message| message.id().as_uuid()).collect()),
        Parameter::Topics(messages.iter().map(|message| message.topic()).collect()),
        Parameter::Payloads(messages.iter().map(|message| &message.payload()[..]).collect()),
    ]
}

/// The rest of what `outbox_enqueue.sql` takes, but for its guard.
fn many<'m>(messages: &[&'m Message], lease: Option<Lease>) -> Vec<Parameter<'m>> {
    let mut values = Vec::from(times(messages.iter().map(|message| message.expires())));
    values.extend(OPTIONAL.iter().map(|optional| (optional.all)(messages)));
    values.push(Parameter::Owner(lease.map(|lease| lease.owner().as_uuid())));
    values.push(Parameter::Number(lease.map(|lease| micros(lease.duration()))));
    values.push(Parameter::Number(lease.map(|lease| lease.fence().as_i64())));
    values
}

/// The same for `outbox_enqueue_delayed.sql`.
fn delayed<'m>(messages: &[&'m Message], lease: Option<Lease>) -> Vec<Parameter<'m>> {
    let mut values = many(messages, lease);
    values.extend(times(messages.iter().map(|message| message.due())));
    values
}

/// All that `outbox_enqueue_delayed.sql` takes, for clients that know one statement only.
#[cfg(any(feature = "diesel-async", feature = "sea-orm", feature = "tokio-postgres"))]
pub(crate) fn everything<'m>(
    messages: &[&'m Message],
    lease: Option<Lease>,
    guard: Option<&'m str>,
) -> Vec<Parameter<'m>> {
    let mut values = Vec::from(required(messages));
    values.extend(delayed(messages, lease));
    values.push(Parameter::Guard(guard.unwrap_or_default()));
    values
}

/// Where a message is that has this row.
pub(crate) fn placement(id: i64, leased: bool, lease: Option<Lease>) -> Placement {
    let work_id = WorkId::from_i64(id);
    match lease {
        Some(lease) if leased => Placement::Leased(Held { work_id, fence: lease.fence() }),
        _ => Placement::Pending(work_id),
    }
}

fn get<'r, T: Decode<'r, Postgres> + Type<Postgres>>(row: &'r PgRow, index: usize) -> Result<T, StoreError> {
    row.try_get(index).map_err(store_error)
}
