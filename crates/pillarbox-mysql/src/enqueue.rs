//! Enqueueing on a transaction of the caller's own.
//!
//! On MariaDB a batch takes one round trip: messages that are due at once and whose ids were drawn for this call an insert that
//! returns its rows, all others a compound statement that inserts, moves to the shelf what is not due yet, and looks who
//! was there before. Where some have a key, their places in the lane are written by the same statement. Only when one of them
//! turns out to have been stored before, and to be on the shelf, there is a second. MySQL has neither such statements nor inserts
//! that return rows: there routines do it. Values are bound, never written into the text, which drivers log.

use std::collections::HashMap;

use pillarbox_core::lease::Held;
use pillarbox_core::parts::write_headers;
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, OpenTransaction, Placement, chunks, enqueue_answers};
use pillarbox_core::{Fence, Message, MessageId, StoreError, WorkId};
use sqlx::mysql::{MySql, MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Row as _, Transaction};
use uuid::Uuid;

use crate::error::{no_transaction, store_error};
use crate::parameters::{
    Column, KEY_TEXT, Parameter, columns_of, duration_micros, occurred, of_many, of_one, texts, when_micros,
};
use crate::row::answers;
use crate::sql::{LIST_MAX, OWNER, Statements, with_ids, with_literal};
use crate::store::{Inner, MysqlStore};

impl OpenTransaction<MysqlStore> for &mut Transaction<'_, MySql> {
    fn enqueue_on<'a>(
        self,
        store: &'a MysqlStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>
    where
        Self: 'a,
    {
        (&mut **self).enqueue_on(store, enqueue)
    }
}

impl OpenTransaction<MysqlStore> for &mut MySqlConnection {
    fn enqueue_on<'a>(
        self,
        store: &'a MysqlStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            if !self.is_in_transaction() {
                return Err(no_transaction());
            }
            let stored = insert(&store.inner, self, enqueue).await.map_err(store_error)?;
            Ok(enqueue_answers(&enqueue, stored))
        })
    }
}

/// Stores the messages and answers those that are new.
pub(crate) async fn insert(
    inner: &Inner,
    connection: &mut MySqlConnection,
    enqueue: Enqueue<'_>,
) -> Result<Vec<(MessageId, Placement)>, sqlx::Error> {
    let (birth, messages, server) = (Birth::of(&enqueue), enqueue.messages(), &inner.server);
    let lean = server.is_mariadb && enqueue.is_new() && !messages.iter().any(is_conditional);
    let count_max = match lean {
        true if messages.iter().any(has_key) => KEYED_ROWS_MAX,
        true => LEAN_ROWS_MAX,
        false => LIST_MAX,
    };
    // In a list for a routine each byte takes two.
    let bytes_max = if server.is_mariadb { server.packet_bytes_max / 2 } else { server.packet_bytes_max / 5 };
    let mut stored = Vec::with_capacity(messages.len());
    for chunk in chunks(messages, bytes_max, count_max) {
        stored.extend(match chunk {
            _ if lean && row_count(chunk.len()) == chunk.len() => insert_new(inner, connection, chunk, &birth).await?,
            [message] if !server.is_mariadb => insert_one(inner, connection, message, &birth).await?,
            _ if !server.is_mariadb => insert_many(inner, connection, chunk, &birth).await?,
            _ => insert_any(inner, connection, chunk, &birth).await?,
        });
    }
    Ok(stored)
}

/// Rows of a prepared insert: a statement takes 65,535 values, and a row has up to 18.
const LEAN_ROWS_MAX: usize = 3_600;

/// The same where some have keys: each is named once more.
const KEYED_ROWS_MAX: usize = 3_400;

/// How the rows of one call are born. Each call has a fence of its own, by which its rows are told from older ones.
pub(crate) struct Birth {
    pub(crate) owner: Option<Uuid>,
    pub(crate) fence: Fence,
    pub(crate) lease: Option<i64>,
}

impl Birth {
    pub(crate) fn of(enqueue: &Enqueue<'_>) -> Self {
        match enqueue.lease() {
            Some(lease) => Self {
                owner: Some(lease.owner().as_uuid()),
                fence: lease.fence(),
                lease: Some(duration_micros(lease.duration())),
            },
            None => Self { owner: None, fence: Fence::new(), lease: None },
        }
    }

    pub(crate) fn placement(&self, id: i64, leased: bool) -> Placement {
        let work_id = WorkId::from_i64(id);
        if leased { Placement::Leased(Held { work_id, fence: self.fence }) } else { Placement::Pending(work_id) }
    }
}

async fn insert_one(
    inner: &Inner,
    connection: &mut MySqlConnection,
    message: &Message,
    birth: &Birth,
) -> Result<Vec<(MessageId, Placement)>, sqlx::Error> {
    call(inner, connection, &inner.sql.enqueue_one, &of_one(message, birth), birth).await
}

async fn insert_many(
    inner: &Inner,
    connection: &mut MySqlConnection,
    chunk: &[Message],
    birth: &Birth,
) -> Result<Vec<(MessageId, Placement)>, sqlx::Error> {
    call(inner, connection, &inner.sql.enqueue_many, &of_many(chunk, birth), birth).await
}

/// Calls a routine that answers a row for each message that is new.
async fn call(
    inner: &Inner,
    connection: &mut MySqlConnection,
    statement: &str,
    parameters: &[Parameter<'_>],
    birth: &Birth,
) -> Result<Vec<(MessageId, Placement)>, sqlx::Error> {
    inner.spares.prepare(&inner.pool.connect_options(), connection, statement).await?;
    let query = sqlx::query(AssertSqlSafe(statement));
    let rows = parameters.iter().fold(query, |query, value| value.bind(query)).fetch_all(connection).await?;
    let mut stored = Vec::with_capacity(rows.len());
    for row in rows {
        let (id, message_id): (i64, Uuid) = (row.try_get_unchecked(0)?, row.try_get_unchecked(1)?);
        let leased = row.try_get_unchecked::<i64, _>(2)? != 0;
        stored
            .extend(MessageId::from_uuid(message_id).ok().map(|message_id| (message_id, birth.placement(id, leased))));
    }
    Ok(stored)
}

/// Gives a row that is under a lease another content.
pub(crate) async fn revise(
    inner: &Inner,
    connection: &mut MySqlConnection,
    statement: &str,
    message: &Message,
) -> Result<(), sqlx::Error> {
    inner.spares.prepare(&inner.pool.connect_options(), connection, statement).await?;
    let headers = write_headers(message.get_headers());
    let query = sqlx::query(AssertSqlSafe(statement)).bind(message.topic().as_bytes()).bind(&message.payload()[..]);
    let texts = texts(message).into_iter().enumerate().filter(|(at, _)| *at != KEY_TEXT);
    let query = texts.fold(query, |query, (_, text)| query.bind(text.map(str::as_bytes)));
    let query = query.bind(headers.as_deref().map(str::as_bytes)).bind(occurred(message));
    bind_times(query, message).bind(message.id().as_uuid()).execute(connection).await.map(drop)
}

/// Messages without due time and expiry that no store can hold yet, on MariaDB.
async fn insert_new(
    inner: &Inner,
    connection: &mut MySqlConnection,
    chunk: &[Message],
    birth: &Birth,
) -> Result<Vec<(MessageId, Placement)>, sqlx::Error> {
    let used = columns_of(chunk);
    let leased = birth.owner.is_some();
    let (mut columns, mut values) = (String::new(), String::new());
    if leased {
        columns.push_str(", `fence`, `owner_token`, `locked_until`, `attempts`");
        values.push_str(", ?, ?, TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6)), 1");
    }
    for (column, _) in &used {
        columns.push_str(&format!(", `{column}`"));
        values.push_str(place_of(column));
    }
    let sql = with_literal(&inner.sql.enqueue_new, " /*columns*/", &columns);
    let guard = guard_of(chunk.len());
    let rows = format!("({guard}, ?, ?{values}){}", format!(", (?, ?, ?{values})").repeat(chunk.len() - 1));
    let mut statement = with_literal(&sql, "(?, ?, ? /*values*/)", &rows);
    let keyed = chunk.iter().any(has_key);
    if keyed {
        let lists = named_by(chunk.len());
        let lane = with_literal(&inner.sql.enqueue_new_lane, "0 /*messages*/", &lists);
        statement = format!("BEGIN NOT ATOMIC\n{statement};\n{lane};\nEND");
    }
    inner.spares.prepare(&inner.pool.connect_options(), connection, &statement).await?;
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for message in chunk {
        query = query.bind(message.id().as_uuid()).bind(message.topic().as_bytes()).bind(&message.payload()[..]);
        if let (Some(owner), Some(lease)) = (birth.owner, birth.lease) {
            query = query.bind(birth.fence.as_i64()).bind(owner).bind(lease);
        }
        query = used.iter().fold(query, |query, (_, value)| value(message).bind(query));
    }
    if keyed {
        query = chunk.iter().map(|message| message.id().as_uuid()).fold(query, Query::bind);
    }
    let rows = query.fetch_all(connection).await?;
    let place =
        |(row, message): (&MySqlRow, &Message)| Ok((message.id(), birth.placement(row.try_get_unchecked(0)?, leased)));
    rows.iter().zip(chunk).map(place).collect()
}

/// So many message ids to be bound, in lists that are not too long.
fn named_by(count: usize) -> String {
    let full = std::iter::repeat_n(LIST_MAX, count / LIST_MAX);
    let lists = full.chain([count % LIST_MAX]).filter(|length| *length > 0);
    let lists = lists.map(|length| format!("l.`message_id` IN (?{})", ", ?".repeat(length - 1)));
    lists.collect::<Vec<_>>().join(" OR ")
}

/// Where a value of an optional column is bound; instants are counted in microseconds.
fn place_of(column: &str) -> &'static str {
    match column {
        "occurred_at" => ", TIMESTAMPADD(MICROSECOND, ?, '1970-01-01')",
        _ => ", ?",
    }
}

/// Messages of any kind, with everything that has to be asked and done, on MariaDB.
async fn insert_any(
    inner: &Inner,
    connection: &mut MySqlConnection,
    chunk: &[Message],
    birth: &Birth,
) -> Result<Vec<(MessageId, Placement)>, sqlx::Error> {
    let (rows, used) = (row_count(chunk.len()), columns_of(chunk));
    let steps = Steps {
        keyed: chunk.iter().any(has_key),
        timed: chunk.iter().any(is_conditional),
        leased: birth.owner.is_some(),
    };
    let statement = compound(inner, rows, &used, steps);
    inner.spares.prepare(&inner.pool.connect_options(), connection, &statement).await?;
    let query = bind_rows(sqlx::query(AssertSqlSafe(statement)), chunk, birth, &used, steps);
    let answer = bind_lists(query, chunk, birth, steps).fetch_all(&mut *connection).await?;
    let found = Found::read(&answer, birth)?;
    if !found.known.is_empty() {
        let undo = with_ids(&inner.sql.enqueue_undo, found.known.iter().copied());
        sqlx::raw_sql(AssertSqlSafe(undo)).execute(&mut *connection).await?;
    }
    let strays: Vec<i64> = found.strays.iter().filter(|(_, id)| has_key_in(chunk, *id)).map(|(row, _)| *row).collect();
    if !strays.is_empty() {
        let undo = with_ids(&inner.sql.enqueue_stray, strays);
        sqlx::raw_sql(AssertSqlSafe(undo)).execute(connection).await?;
    }
    Ok(found.stored)
}

/// What a batch needs besides its insert.
#[derive(Clone, Copy)]
struct Steps {
    /// Some messages have a key.
    keyed: bool,
    /// Some messages have a due time, or expire.
    timed: bool,
    leased: bool,
}

/// An instant, or a delay from now.
const INSTANT: &str =
    ", COALESCE(TIMESTAMPADD(MICROSECOND, ?, '1970-01-01'), TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6)))";

/// The insert for so many rows of the used columns.
fn insert_statement(inner: &Inner, rows: usize, used: &[Column], steps: Steps) -> String {
    let (mut columns, mut values) = (String::new(), String::new());
    if steps.timed {
        columns.push_str(", `due_at`, `expires_at`");
        values.push_str(INSTANT);
        values.push_str(INSTANT);
    }
    if steps.leased {
        columns.push_str(", `owner_token`, `locked_until`, `attempts`");
        values.push_str(", ?, TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6)), ?");
    }
    for (column, _) in used {
        columns.push_str(&format!(", `{column}`"));
        values.push_str(place_of(column));
    }
    let first = guard_of(rows);
    let rows = format!("({first}, ?, ?, ?{values}){}", format!(", (?, ?, ?, ?{values})").repeat(rows - 1));
    with_literal(&with_literal(&inner.sql.enqueue, " /*columns*/", &columns), "(0 /*rows*/)", &rows)
}

/// Everything as one statement; [`bind_lists`] binds what comes after the rows.
fn compound(inner: &Inner, rows: usize, used: &[Column], steps: Steps) -> String {
    let list = format!("?{}", ", ?".repeat(rows - 1));
    let bound = |sql: &str| {
        let sql = with_literal(sql, "0 /*messages*/", &list);
        sql.replace("0 /*fence*/", "?").replace("0 /*lease*/", "?").replace(OWNER, "?")
    };
    let insert = insert_statement(inner, rows, used, steps);
    let steps: Vec<_> = std::iter::once(insert).chain(later_steps(&inner.sql, steps).into_iter().map(bound)).collect();
    format!("BEGIN NOT ATOMIC\n{};\nEND", steps.join(";\n"))
}

/// What comes after the insert: places by key, leases that depend on the clock, the way to the shelf, and the look at it.
fn later_steps(sql: &Statements, steps: Steps) -> Vec<&str> {
    let mut later = Vec::new();
    if steps.keyed {
        later.push(sql.enqueue_lane.as_str());
    }
    if steps.timed && steps.leased {
        later.push(sql.enqueue_lease.as_str());
    }
    if steps.timed {
        later.extend([sql.enqueue_delayed.as_str(), sql.enqueue_moved.as_str()]);
    }
    later.push(sql.enqueue_known.as_str());
    later
}

/// Binds the rows of [`insert_statement`].
fn bind_rows<'q>(mut query: Bound<'q>, chunk: &[Message], birth: &Birth, used: &[Column], steps: Steps) -> Bound<'q> {
    for (message, payload) in filled_up(chunk) {
        query = query.bind(message.id().as_uuid()).bind(message.topic().as_bytes());
        query = query.bind(payload).bind(birth.fence.as_i64());
        if steps.timed {
            query = bind_times(query, message);
        }
        if steps.leased {
            let leased = !is_conditional(message);
            let (owner, lease) = (birth.owner.filter(|_| leased), birth.lease.filter(|_| leased));
            query = query.bind(owner).bind(lease).bind(i32::from(leased));
        }
        query = used.iter().fold(query, |query, (_, value)| value(message).bind(query));
    }
    query
}

/// Binds what [`later_steps`] ask for, in their order.
fn bind_lists<'q>(mut query: Bound<'q>, chunk: &[Message], birth: &Birth, steps: Steps) -> Bound<'q> {
    let ids = |query: Bound<'q>| filled_up(chunk).map(|(message, _)| message.id().as_uuid()).fold(query, Query::bind);
    let fence = birth.fence.as_i64();
    if steps.keyed {
        query = ids(query).bind(fence);
    }
    if steps.timed && steps.leased {
        query = ids(query.bind(birth.owner).bind(birth.lease)).bind(fence);
    }
    if steps.timed {
        query = ids(ids(query).bind(fence)).bind(fence);
    }
    ids(query)
}

type Bound<'q> = Query<'q, MySql, MySqlArguments>;

/// The messages with their payloads; the last is named again, without its payload, until the statement's rows are filled.
fn filled_up(chunk: &[Message]) -> impl Iterator<Item = (&Message, &[u8])> {
    let whole = chunk.iter().map(|message| (message, &message.payload()[..]));
    let again = chunk.last().into_iter().cycle().map(|message| (message, &[][..]));
    whole.chain(again).take(row_count(chunk.len()))
}

/// What was answered.
#[derive(Default)]
struct Found {
    stored: Vec<(MessageId, Placement)>,
    /// New rows of messages that have been stored before.
    known: Vec<i64>,
    /// Rows that were on their way to where another row of their message is. Only their places by key are left.
    strays: Vec<(i64, Uuid)>,
}

impl Found {
    fn read(rows: &[MySqlRow], birth: &Birth) -> Result<Self, sqlx::Error> {
        let (shelf, rows): (Vec<_>, Vec<_>) = rows.iter().partition(|row| answers(row, "known"));
        let shelf: HashMap<Uuid, i64> = shelf
            .iter()
            .map(|row| Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?)))
            .collect::<Result<_, sqlx::Error>>()?;
        let mut found = Self::default();
        for row in rows {
            let (id, message_id): (i64, Uuid) = (row.try_get_unchecked(0)?, row.try_get_unchecked(1)?);
            let flag = |column: usize| row.try_get_unchecked::<i64, _>(column).map(|flag| flag != 0);
            let (delayed, expired) = (flag(3)?, flag(4)?);
            if row.try_get_unchecked::<i64, _>(2)? != birth.fence.as_i64() {
                continue;
            }
            let on_shelf = shelf.get(&message_id).copied();
            match (delayed, on_shelf) {
                (true, row) if row != Some(id) => found.strays.push((id, message_id)),
                (false, Some(_)) => found.known.push(id),
                _ => {
                    let leased = birth.owner.is_some() && !delayed && !expired;
                    let message_id = MessageId::from_uuid(message_id).ok();
                    found.stored.extend(message_id.map(|message_id| (message_id, birth.placement(id, leased))));
                }
            }
        }
        found.known.sort_unstable();
        found.known.dedup();
        Ok(found)
    }
}

/// Rows of an insert. Each count is a statement of its own in the cache of the caller's connection, so there are few: larger
/// batches, unless they are of a size that people choose, are filled up by naming the last message again, which stores nothing.
fn row_count(message_count: usize) -> usize {
    if message_count <= 16 || message_count.is_multiple_of(50) {
        return message_count;
    }
    message_count.next_multiple_of(32)
}

/// What takes the place of the first id, so that the whole statement fails, in any sql_mode, when the server ended the transaction
/// behind our back (H9).
fn guard_of(row_count: usize) -> &'static str {
    if row_count == 1 { NULL_OUTSIDE } else { TWO_BYTES_OUTSIDE }
}

/// Takes the place of bound bytes, and is an error outside a transaction.
pub(crate) const TWO_BYTES_OUTSIDE: &str = "IF(@@in_transaction = 1, ?, (SELECT x'00' UNION SELECT x'01'))";

/// The same for the only row of an insert: there the server refuses NULL in any sql_mode.
pub(crate) const NULL_OUTSIDE: &str = "IF(@@in_transaction = 1, ?, NULL)";

/// Lets a statement fail outside a transaction: by what takes the place of its `? /*guard*/`, or, on MySQL, which has no variable
/// to ask, by a call that comes first.
pub(crate) async fn guard_first(
    inner: &Inner,
    connection: &mut MySqlConnection,
    statement: &str,
    guard: &str,
) -> Result<String, sqlx::Error> {
    if inner.server.is_mariadb {
        return Ok(with_literal(statement, "? /*guard*/", guard));
    }
    sqlx::raw_sql(AssertSqlSafe(inner.sql.enqueue_guard.as_str())).execute(connection).await?;
    Ok(with_literal(statement, "? /*guard*/", "?"))
}

fn has_key(message: &Message) -> bool {
    message.get_key().is_some()
}

fn has_key_in(chunk: &[Message], id: Uuid) -> bool {
    chunk.iter().any(|message| message.id().as_uuid() == id && has_key(message))
}

/// Whether only the database can say if the message is ready.
fn is_conditional(message: &Message) -> bool {
    message.is_delayed() || message.expires().is_some()
}

fn bind_times<'q>(query: Query<'q, MySql, MySqlArguments>, message: &Message) -> Query<'q, MySql, MySqlArguments> {
    let (due_at, due_after) = when_micros(message.due());
    let (expires_at, expires_after) = when_micros(message.expires());
    query.bind(due_at).bind(due_after).bind(expires_at).bind(expires_after)
}
