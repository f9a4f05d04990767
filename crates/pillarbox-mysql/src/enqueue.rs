//! Enqueueing on a transaction of the caller's own.
//!
//! On MariaDB messages that are due at once take one round trip, however many, when their ids were drawn for this call: there
//! is nothing to look for. When they may be known, up to sixty-four take one: a compound statement that inserts them and looks
//! at the shelf. So does one message of any kind, through a routine. All others, and several on MySQL, take two: one
//! insert, and one look at what came of it. What is known already costs one more.

use std::collections::HashSet;

use pillarbox_core::lease::Held;
use pillarbox_core::parts::{write_aggregate_type, write_headers};
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, OpenTransaction, Placement, chunks, enqueue_answers};
use pillarbox_core::{Fence, Message, MessageId, StoreError, WorkId};
use sqlx::mysql::{MySql, MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Row as _, Transaction};
use uuid::Uuid;

use crate::error::{no_transaction, store_error};
use crate::parameters::{KEY_TEXT, duration_micros, hash, occurred, of_one, texts, when_micros};
use crate::row::answers;
use crate::sql::{LIST_MAX, with_ids, with_literal, with_messages, with_number, with_owner};
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
    let (birth, new) = (Birth::of(&enqueue), enqueue.is_new());
    let plain = inner.server.is_mariadb && !enqueue.messages().iter().any(is_conditional);
    match enqueue.messages() {
        [message] if !plain => return insert_one(inner, connection, message, &birth).await,
        _ if !inner.server.is_mariadb => {
            sqlx::raw_sql(AssertSqlSafe(inner.sql.enqueue_guard.as_str())).execute(&mut *connection).await?;
        }
        _ => {}
    }
    let mut stored = Vec::with_capacity(enqueue.messages().len());
    for chunk in chunks(enqueue.messages(), inner.server.packet_bytes_max / 2, LIST_MAX) {
        // A batch of an uncommon size has its last row twice, which only the other statement takes.
        let lean = new && row_count(chunk.len()) == chunk.len();
        stored.extend(match plain {
            true if lean => insert_new(inner, connection, chunk, &birth).await?,
            true => insert_plain(inner, connection, chunk, &birth, new).await?,
            false => insert_chunk(inner, connection, chunk, &birth).await?,
        });
    }
    Ok(stored)
}

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
    let address = inner.pool.connect_options();
    inner.spares.prepare(&address, connection, &inner.sql.enqueue_one).await?;
    let query = sqlx::query(AssertSqlSafe(inner.sql.enqueue_one.as_str()));
    let parameters = of_one(message, birth);
    let rows = parameters.iter().fold(query, |query, value| value.bind(query)).fetch_all(connection).await?;
    rows.iter()
        .map(|row| {
            let leased = row.try_get_unchecked::<i64, _>(2)? != 0;
            Ok((message.id(), birth.placement(row.try_get_unchecked(0)?, leased)))
        })
        .collect()
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

/// A column that some message of a batch uses, and how to bind it.
type Used = (&'static str, for<'q> fn(Bound<'q>, &Message) -> Bound<'q>);

type Bound<'q> = Query<'q, MySql, MySqlArguments>;

type IsUsed = fn(&Message) -> bool;

/// Messages without due time and expiry that no store can hold yet, on MariaDB.
async fn insert_new(
    inner: &Inner,
    connection: &mut MySqlConnection,
    chunk: &[Message],
    birth: &Birth,
) -> Result<Vec<(MessageId, Placement)>, sqlx::Error> {
    let used = used_by(chunk);
    let leased = birth.owner.is_some();
    let (mut columns, mut values) = (String::new(), String::new());
    if leased {
        columns.push_str(", `fence`");
        values.push_str(", ?");
    }
    add_columns(&used, leased, &mut columns, &mut values);
    let sql = with_literal(&inner.sql.enqueue_new, " /*columns*/", &columns);
    let guard = if chunk.len() == 1 { NULL_OUTSIDE } else { TWO_BYTES_OUTSIDE };
    let rows = format!("({guard}, ?, ?{values}){}", format!(", (?, ?, ?{values})").repeat(chunk.len() - 1));
    let statement = with_literal(&sql, "(?, ?, ? /*values*/)", &rows);
    inner.spares.prepare(&inner.pool.connect_options(), connection, &statement).await?;
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for message in chunk {
        query = query.bind(message.id().as_uuid()).bind(message.topic().as_bytes()).bind(&message.payload()[..]);
        if let (Some(owner), Some(lease)) = (birth.owner, birth.lease) {
            query = query.bind(birth.fence.as_i64()).bind(owner).bind(lease);
        }
        for (_, bind) in &used {
            query = bind(query, message);
        }
    }
    let rows = query.fetch_all(connection).await?;
    let place =
        |(row, message): (&MySqlRow, &Message)| Ok((message.id(), birth.placement(row.try_get_unchecked(0)?, leased)));
    rows.iter().zip(chunk).map(place).collect()
}

fn used_by(chunk: &[Message]) -> Vec<Used> {
    OPTIONAL.into_iter().filter(|(used, _)| chunk.iter().any(used)).map(|(_, used)| used).collect()
}

/// The columns of a lease and those in use, and the values of a row.
fn add_columns(used: &[Used], leased: bool, columns: &mut String, values: &mut String) {
    if leased {
        columns.push_str(", `owner_token`, `locked_until`, `attempts`");
        values.push_str(", ?, TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6)), 1");
    }
    for (column, _) in used {
        columns.push_str(&format!(", `{column}`"));
        values.push_str(match *column {
            "occurred_at" => ", TIMESTAMPADD(MICROSECOND, ?, '1970-01-01')",
            _ => ", ?",
        });
    }
}

/// Messages without due time and expiry, on MariaDB: whether they are leased is known beforehand.
async fn insert_plain(
    inner: &Inner,
    connection: &mut MySqlConnection,
    chunk: &[Message],
    birth: &Birth,
    new: bool,
) -> Result<Vec<(MessageId, Placement)>, sqlx::Error> {
    let used = used_by(chunk);
    let rows = row_count(chunk.len());
    let insert = plain_statement(inner, &used, birth, rows);
    let look = || with_literal(&inner.sql.enqueue_known, "0 /*messages*/", &format!("?{}", ", ?".repeat(rows - 1)));
    let together = !new && rows <= COMPOUND_ROWS_MAX;
    let statement = if together { format!("BEGIN NOT ATOMIC\n{insert};\n{};\nEND", look()) } else { insert };
    let address = inner.pool.connect_options();
    inner.spares.prepare(&address, connection, &statement).await?;
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for (message, payload) in filled_up(chunk) {
        query = query.bind(message.id().as_uuid()).bind(message.topic().as_bytes());
        query = query.bind(payload).bind(birth.fence.as_i64());
        if let (Some(owner), Some(lease)) = (birth.owner, birth.lease) {
            query = query.bind(owner).bind(lease);
        }
        for (_, bind) in &used {
            query = bind(query, message);
        }
    }
    let ids = || filled_up(chunk).map(|(message, _)| message.id().as_uuid());
    let answer = match together {
        true => ids().fold(query, Query::bind).fetch_all(&mut *connection).await?,
        false if new => query.fetch_all(&mut *connection).await?,
        false => {
            let (mut answer, look) = (query.fetch_all(&mut *connection).await?, look());
            inner.spares.prepare(&address, connection, &look).await?;
            let look = ids().fold(sqlx::query(AssertSqlSafe(look)), Query::bind);
            answer.extend(look.fetch_all(&mut *connection).await?);
            answer
        }
    };
    let (mut placed, mut known) = (Vec::with_capacity(chunk.len()), HashSet::new());
    for row in answer {
        if answers(&row, "known") {
            known.insert(row.try_get_unchecked::<Uuid, _>(0)?);
        } else if row.try_get_unchecked::<i64, _>(2)? == birth.fence.as_i64() {
            placed.push((row.try_get_unchecked::<Uuid, _>(1)?, row.try_get_unchecked::<i64, _>(0)?));
        }
    }
    let (stale, new): (Vec<_>, Vec<_>) = placed.into_iter().partition(|(message_id, _)| known.contains(message_id));
    if !stale.is_empty() {
        let undo = with_ids(&inner.sql.enqueue_undo, stale.iter().map(|(_, id)| *id));
        sqlx::raw_sql(AssertSqlSafe(undo)).execute(connection).await?;
    }
    let placement = |(uuid, id)| Some((MessageId::from_uuid(uuid).ok()?, birth.placement(id, birth.owner.is_some())));
    Ok(new.into_iter().filter_map(placement).collect())
}

/// Which messages use a column, and how it is bound.
const OPTIONAL: [(IsUsed, Used); 12] = [
    (|m| m.get_message_type().is_some(), ("message_type", |q, m| q.bind(m.get_message_type().map(str::as_bytes)))),
    (
        |m| write_aggregate_type(m).is_some(),
        ("aggregate_type", |q, m| q.bind(write_aggregate_type(m).map(str::as_bytes))),
    ),
    (|m| m.get_aggregate_id().is_some(), ("aggregate_id", |q, m| q.bind(m.get_aggregate_id().map(str::as_bytes)))),
    (|m| m.get_tenant().is_some(), ("tenant_id", |q, m| q.bind(m.get_tenant().map(str::as_bytes)))),
    (|m| m.get_key().is_some(), ("message_key", |q, m| q.bind(m.get_key().map(str::as_bytes)))),
    (|m| m.get_key().is_some(), ("key_hash", |q, m| q.bind(hash(m)))),
    (
        |m| m.get_correlation_id().is_some(),
        ("correlation_id", |q, m| q.bind(m.get_correlation_id().map(str::as_bytes))),
    ),
    (|m| m.get_causation_id().is_some(), ("causation_id", |q, m| q.bind(m.get_causation_id().map(str::as_bytes)))),
    (|m| m.get_content_type().is_some(), ("content_type", |q, m| q.bind(m.get_content_type().map(str::as_bytes)))),
    (
        |m| !m.get_headers().is_empty(),
        ("headers", |q, m| q.bind(write_headers(m.get_headers()).map(String::into_bytes))),
    ),
    (|m| m.get_occurred_at().is_some(), ("occurred_at", |q, m| q.bind(occurred(m)))),
    (|m| m.get_priority() != 0, ("priority", |q, m| q.bind(m.get_priority()))),
];

/// Rows up to which the insert and the look at the shelf go together. The server writes a compound statement's values into
/// its text again, which costs more per row than a round trip does for many rows.
const COMPOUND_ROWS_MAX: usize = 64;

/// The insert for so many rows of the used columns.
fn plain_statement(inner: &Inner, used: &[Used], birth: &Birth, count: usize) -> String {
    let (mut columns, mut values) = (String::new(), String::new());
    add_columns(used, birth.owner.is_some(), &mut columns, &mut values);
    let sql = with_literal(&inner.sql.enqueue_plain, " /*columns*/", &columns);
    let (head, rest) = sql.split_once("VALUES").unwrap_or((&sql, ""));
    let (_, tail) = rest.split_once("ON DUPLICATE").unwrap_or((rest, ""));
    // Fails the whole statement, in any sql_mode, when the server ended the transaction behind our back (H9).
    let first = format!("(?, ?, ?, {TRANSACTION_GUARD}{values})");
    let others = format!(", (?, ?, ?, ?{values})").repeat(count - 1);
    format!("{head}VALUES {first}{others} ON DUPLICATE{tail}")
}

/// The messages with their payloads; the last is named again, without its payload, until the statement's rows are filled.
fn filled_up(chunk: &[Message]) -> impl Iterator<Item = (&Message, &[u8])> {
    let whole = chunk.iter().map(|message| (message, &message.payload()[..]));
    let again = chunk.last().into_iter().cycle().map(|message| (message, &[][..]));
    whole.chain(again).take(row_count(chunk.len()))
}

async fn insert_chunk(
    inner: &Inner,
    connection: &mut MySqlConnection,
    chunk: &[Message],
    birth: &Birth,
) -> Result<Vec<(MessageId, Placement)>, sqlx::Error> {
    let rows_max = row_count(chunk.len());
    let statement = insert_statement(inner, rows_max);
    let address = inner.pool.connect_options();
    inner.spares.prepare(&address, connection, &statement).await?;
    let mut query = sqlx::query(AssertSqlSafe(statement));
    let headers: Vec<_> = chunk.iter().map(|message| write_headers(message.get_headers())).collect();
    for ((message, payload), headers) in filled_up(chunk).zip(headers.iter().chain(headers.last().into_iter().cycle()))
    {
        let leased = birth.owner.is_some() && !is_conditional(message);
        query = query.bind(message.id().as_uuid()).bind(message.topic().as_bytes()).bind(payload);
        query = bind_times(query, message)
            .bind(i32::from(leased))
            .bind(message.get_priority())
            .bind(birth.owner.filter(|_| leased))
            .bind(birth.lease.filter(|_| leased));
        for text in texts(message) {
            query = query.bind(text.map(str::as_bytes));
        }
        query = query.bind(headers.as_deref().map(str::as_bytes)).bind(occurred(message));
        query = query.bind(hash(message)).bind(birth.fence.as_i64());
    }
    query.execute(&mut *connection).await?;
    let ids = || chunk.iter().map(|message| message.id().as_uuid());
    let look = format!(
        "{};\n{}",
        with_number(&with_messages(&inner.sql.enqueue_stored, ids()), "0 /*fence*/", birth.fence.as_i64()),
        with_messages(&inner.sql.enqueue_known, ids()),
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(look)).fetch_all(&mut *connection).await?;
    let found = Found::read(&rows, birth)?;
    if let Some(script) = found.script(inner, birth) {
        sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut *connection).await?;
    }
    Ok(found.stored)
}

/// What the look at a batch found.
#[derive(Default)]
struct Found {
    stored: Vec<(MessageId, Placement)>,
    known: Vec<i64>,
    delayed: Vec<i64>,
    to_lease: Vec<i64>,
}

impl Found {
    fn read(rows: &[MySqlRow], birth: &Birth) -> Result<Self, sqlx::Error> {
        let (known, new): (Vec<_>, Vec<_>) = rows.iter().partition(|row| answers(row, "known"));
        let known: HashSet<Uuid> =
            known.iter().map(|row| row.try_get_unchecked(0)).collect::<Result<_, sqlx::Error>>()?;
        let mut found = Self::default();
        for row in new {
            let id: i64 = row.try_get_unchecked(0)?;
            let message_id: Uuid = row.try_get_unchecked(1)?;
            let flag = |column: usize| row.try_get_unchecked::<i64, _>(column).map(|flag| flag != 0);
            let (leased, delayed, expired) = (flag(2)?, flag(3)?, flag(4)?);
            if known.contains(&message_id) {
                found.known.push(id);
                continue;
            }
            let lease_now = birth.owner.is_some() && !leased && !delayed && !expired;
            if delayed {
                found.delayed.push(id);
            } else if lease_now {
                found.to_lease.push(id);
            }
            if let Ok(message_id) = MessageId::from_uuid(message_id) {
                found.stored.push((message_id, birth.placement(id, leased || lease_now)));
            }
        }
        Ok(found)
    }

    /// What is left to be done, where anything is.
    fn script(&self, inner: &Inner, birth: &Birth) -> Option<String> {
        let mut steps = Vec::new();
        if !self.known.is_empty() {
            steps.push(with_ids(&inner.sql.enqueue_undo, self.known.iter().copied()));
        }
        if !self.delayed.is_empty() {
            steps.push(with_ids(&inner.sql.enqueue_delayed, self.delayed.iter().copied()));
            steps.push(with_ids(&inner.sql.enqueue_undo, self.delayed.iter().copied()));
        }
        if let (Some(owner), Some(lease)) = (birth.owner, birth.lease)
            && !self.to_lease.is_empty()
            && let Ok(owner) = pillarbox_core::OwnerToken::from_uuid(owner)
        {
            let step = with_ids(&inner.sql.enqueue_lease, self.to_lease.iter().copied());
            steps.push(with_owner(&with_number(&step, "0 /*lease*/", lease), owner));
        }
        (!steps.is_empty()).then(|| steps.join(";\n"))
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

/// Takes the place of one bound value, and is an error outside a transaction.
const TRANSACTION_GUARD: &str = "IF(@@in_transaction = 1, ?, (SELECT 1 UNION SELECT 2))";

/// The same for bytes.
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

/// The insert with so many rows.
fn insert_statement(inner: &Inner, count: usize) -> String {
    let sql = &inner.sql.enqueue;
    let (head, rest) = sql.split_once("VALUES").unwrap_or((sql, ""));
    let (row, tail) = rest.split_once("ON DUPLICATE").unwrap_or((rest, ""));
    let row = row.trim();
    // Fails the whole statement, in any sql_mode, when the server ended the transaction behind our back (H9).
    let guarded = || with_literal(row, "? /*fence*/", TRANSACTION_GUARD);
    let first = if inner.server.is_mariadb { guarded() } else { row.to_owned() };
    let others = format!(", {row}").repeat(count - 1);
    format!("{head}VALUES {first}{others} ON DUPLICATE{tail}")
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
