//! Enqueueing on a transaction of the caller's own.
//!
//! However many they are, they take one round trip: messages that are due at once and whose ids were drawn for this call an
//! insert that returns its rows (MariaDB), all others a script that inserts, looks at the shelf, and moves there what is not due yet. Only when
//! one of them turns out to have been stored before, and to be on the shelf, there is a second.

use std::collections::HashMap;

use pillarbox_core::lease::Held;
use pillarbox_core::message::When;
use pillarbox_core::parts::write_headers;
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, OpenTransaction, Placement, chunks, enqueue_answers};
use pillarbox_core::{Fence, Message, MessageId, StoreError, WorkId};
use sqlx::mysql::{MySql, MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Row as _, Transaction};
use uuid::Uuid;

use crate::error::{no_transaction, store_error};
use crate::parameters::{KEY_TEXT, columns_of, duration_micros, occurred, of_one, texts, when_micros};
use crate::row::answers;
use crate::sql::{LIST_MAX, binary, push_binary, with_ids, with_literal, with_number};
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
    let (bytes_max, count_max) = (server.packet_bytes_max / 10, if lean { LEAN_ROWS_MAX } else { usize::MAX });
    let mut stored = Vec::with_capacity(messages.len());
    for chunk in chunks(messages, bytes_max, count_max) {
        stored.extend(match chunk {
            _ if lean && is_common(chunk.len()) => insert_new(inner, connection, chunk, &birth).await?,
            // Written as text it would be twice as long.
            [message] if message.weight() > bytes_max => insert_one(inner, connection, message, &birth).await?,
            _ => insert_script(inner, connection, chunk, &birth).await?,
        });
    }
    Ok(stored)
}

/// Rows of a prepared insert: a statement takes 65,535 values, and a row has up to 18.
const LEAN_ROWS_MAX: usize = 3_600;

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
        values.push_str(", ");
        push_value(&mut values, column, |values| values.push('?'));
    }
    let sql = with_literal(&inner.sql.enqueue_new, " /*columns*/", &columns);
    let guard = guard_of(chunk.len());
    let rows = format!("({guard}, ?, ?{values}){}", format!(", (?, ?, ?{values})").repeat(chunk.len() - 1));
    let statement = with_literal(&sql, "(?, ?, ? /*values*/)", &rows);
    inner.spares.prepare(&inner.pool.connect_options(), connection, &statement).await?;
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for message in chunk {
        query = query.bind(message.id().as_uuid()).bind(message.topic().as_bytes()).bind(&message.payload()[..]);
        if let (Some(owner), Some(lease)) = (birth.owner, birth.lease) {
            query = query.bind(birth.fence.as_i64()).bind(owner).bind(lease);
        }
        query = used.iter().fold(query, |query, (_, value)| value(message).bind(query));
    }
    let rows = query.fetch_all(connection).await?;
    let place =
        |(row, message): (&MySqlRow, &Message)| Ok((message.id(), birth.placement(row.try_get_unchecked(0)?, leased)));
    rows.iter().zip(chunk).map(place).collect()
}

/// Adds the value of an optional column; instants are counted in microseconds.
fn push_value(sql: &mut String, column: &str, push: impl FnOnce(&mut String)) {
    let is_instant = column == "occurred_at";
    if is_instant {
        sql.push_str("TIMESTAMPADD(MICROSECOND, ");
    }
    push(sql);
    if is_instant {
        sql.push_str(", '1970-01-01')");
    }
}

/// Messages of any kind, with everything that has to be asked and done, as one text.
async fn insert_script(
    inner: &Inner,
    connection: &mut MySqlConnection,
    chunk: &[Message],
    birth: &Birth,
) -> Result<Vec<(MessageId, Placement)>, sqlx::Error> {
    let script: Vec<_> = chunk.chunks(LIST_MAX).map(|chunk| script(inner, chunk, birth)).collect();
    let rows = sqlx::raw_sql(AssertSqlSafe(script.join(";\n"))).fetch_all(&mut *connection).await?;
    let found = Found::read(&rows, birth)?;
    if !found.known.is_empty() {
        let undo = found.known.chunks(LIST_MAX).map(|ids| with_ids(&inner.sql.enqueue_undo, ids.iter().copied()));
        let undo = undo.collect::<Vec<_>>().join(";\n");
        sqlx::raw_sql(AssertSqlSafe(undo)).execute(connection).await?;
    }
    Ok(found.stored)
}

fn script(inner: &Inner, chunk: &[Message], birth: &Birth) -> String {
    let (sql, is_mariadb) = (&inner.sql, inner.server.is_mariadb);
    let messages = chunk.iter().fold(String::with_capacity(chunk.len() * 36), |mut list, message| {
        list.push_str(if list.is_empty() { "" } else { "," });
        push_binary(&mut list, message.id().as_uuid().as_bytes());
        list
    });
    let of_batch = |statement: &str| with_literal(statement, "0 /*messages*/", &messages);
    let ours = |statement: &str| with_number(&of_batch(statement), "0 /*fence*/", birth.fence.as_i64());
    let insert = insert_statement(inner, chunk, birth);
    let mut steps = match is_mariadb {
        true => vec![insert],
        false => vec![sql.enqueue_guard.clone(), insert, of_batch(&sql.enqueue_stored)],
    };
    if chunk.iter().any(Message::is_delayed) {
        steps.extend([ours(&sql.enqueue_delayed), ours(&sql.enqueue_moved)]);
    }
    steps.push(of_batch(&sql.enqueue_known));
    steps.join(";\n")
}

/// What MariaDB tells of the rows while it inserts them; MySQL is asked afterwards, for the same columns.
const RETURNING: &str = "\nRETURNING `id`, `message_id`, `fence`, `owner_token` IS NOT NULL AS `leased`, \
    COALESCE(`due_at` > `created_at`, FALSE) AS `delayed`";

/// The insert of these messages, with their values in it.
fn insert_statement(inner: &Inner, chunk: &[Message], birth: &Birth) -> String {
    let (sql, is_mariadb) = (&inner.sql.enqueue, inner.server.is_mariadb);
    let used = columns_of(chunk);
    let timed = chunk.iter().any(is_conditional);
    let mut columns = String::new();
    if timed {
        columns.push_str(", `due_at`, `expires_at`");
    }
    if birth.owner.is_some() {
        columns.push_str(", `owner_token`, `locked_until`, `attempts`");
    }
    for (column, _) in &used {
        columns.push_str(&format!(", `{column}`"));
    }
    let weight: usize = chunk.iter().map(Message::weight).sum();
    let mut rows = String::with_capacity(2 * weight + 128 * chunk.len());
    for (index, message) in chunk.iter().enumerate() {
        rows.push_str(if index == 0 { "(" } else { "),\n(" });
        let id = binary(message.id().as_uuid().as_bytes());
        match index == 0 && is_mariadb {
            true => rows.push_str(&guard_of(chunk.len()).replace('?', &id)),
            false => rows.push_str(&id),
        }
        rows.push(',');
        push_binary(&mut rows, message.topic().as_bytes());
        rows.push(',');
        push_binary(&mut rows, message.payload());
        rows.push_str(&format!(",{}", birth.fence.as_i64()));
        let (due, expires) = (instant(message.due()), instant(message.expires()));
        if timed {
            rows.push_str(&format!(", {due}, {expires}"));
        }
        if let (Some(owner), Some(lease)) = (birth.owner, birth.lease) {
            push_lease(&mut rows, owner, lease, is_conditional(message).then_some((&due, &expires)));
        }
        for (column, value) in &used {
            rows.push(',');
            push_value(&mut rows, column, |rows| value(message).write(rows));
        }
    }
    rows.push(')');
    let statement = with_literal(&with_literal(sql, " /*columns*/", &columns), "(0 /*rows*/)", &rows);
    if is_mariadb { statement + RETURNING } else { statement }
}

/// Owner, end of the lease and attempts of a row that is born leased, if it is due by then and has not expired.
fn push_lease(rows: &mut String, owner: Uuid, lease: i64, condition: Option<(&String, &String)>) {
    let until = format!("TIMESTAMPADD(MICROSECOND, {lease}, UTC_TIMESTAMP(6))");
    let owner = binary(owner.as_bytes());
    let Some((due, expires)) = condition else {
        rows.push_str(&format!(",{owner},{until},1"));
        return;
    };
    let now = "UTC_TIMESTAMP(6)";
    let ready = format!("COALESCE({due} <= {now}, TRUE) AND COALESCE({expires} > {now}, TRUE)");
    rows.push_str(&format!(",IF({ready},{owner},NULL),IF({ready},{until},NULL),IF({ready},1,0)"));
}

/// When, for the server to count.
fn instant(when: Option<When>) -> String {
    match when_micros(when) {
        (Some(at), _) => format!("TIMESTAMPADD(MICROSECOND, {at}, '1970-01-01')"),
        (_, Some(after)) => format!("TIMESTAMPADD(MICROSECOND, {after}, UTC_TIMESTAMP(6))"),
        (None, None) => "NULL".to_owned(),
    }
}

/// What a script answered.
#[derive(Default)]
struct Found {
    stored: Vec<(MessageId, Placement)>,
    /// New rows of messages that have been stored before.
    known: Vec<i64>,
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
            let (leased, delayed) = (flag(3)?, flag(4)?);
            let on_shelf = shelf.get(&message_id).copied();
            if row.try_get_unchecked::<i64, _>(2)? != birth.fence.as_i64() {
                continue;
            }
            match (delayed, on_shelf) {
                // Moved to where another row was; there is nothing to take back.
                (true, row) if row != Some(id) => {}
                (false, Some(_)) => found.known.push(id),
                _ => found.stored.extend(
                    MessageId::from_uuid(message_id).ok().map(|message_id| (message_id, birth.placement(id, leased))),
                ),
            }
        }
        Ok(found)
    }
}

/// Whether batches of this size have a statement of their own. Each size is one in the cache of the caller's connection, so
/// there are few: small ones, and those that people choose.
fn is_common(message_count: usize) -> bool {
    message_count <= 16 || message_count.is_multiple_of(50)
}

/// What takes the place of the first id, so that the whole statement fails, in any sql_mode, when the server ended the transaction behind our back (H9).
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

/// Whether only the database can say if the message is ready.
fn is_conditional(message: &Message) -> bool {
    message.is_delayed() || message.expires().is_some()
}

fn bind_times<'q>(query: Query<'q, MySql, MySqlArguments>, message: &Message) -> Query<'q, MySql, MySqlArguments> {
    let (due_at, due_after) = when_micros(message.due());
    let (expires_at, expires_after) = when_micros(message.expires());
    query.bind(due_at).bind(due_after).bind(expires_at).bind(expires_after)
}
