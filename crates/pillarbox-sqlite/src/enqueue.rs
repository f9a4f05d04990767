//! Enqueueing, on the caller's transaction or on one of the store's own.

use pillarbox_core::lease::{Held, Lease};
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, OpenTransaction, Placement, enqueue_answers};
use pillarbox_core::{Message, MessageId, StoreError, WorkId};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Connection, SqlStr, Sqlite, SqliteConnection, Transaction};
use uuid::Uuid;

use crate::error::store_error;
use crate::parameters::{Binds, OPTIONAL, Optional, PRIORITY, Values, bound};
use crate::row::{self, id_list, micros, work_id};
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
        return Err(rolled_back());
    }
    Ok(())
}

/// Of a transaction that is not open any more.
pub(crate) fn rolled_back() -> StoreError {
    StoreError::rejected(
        "SQLite has rolled this transaction back by itself after an earlier error, such as a full disk: \
         nothing was stored, begin a new transaction",
    )
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
    Ok((MessageId::from_uuid(message_id)?, placement(work_id, row::get(row, 2)?, lease)))
}

/// Where a message is that has this row.
pub(crate) fn placement(work_id: WorkId, leased: bool, lease: Option<Lease>) -> Placement {
    match lease {
        Some(lease) if leased => Placement::Leased(Held { work_id, fence: lease.fence() }),
        _ => Placement::Pending(work_id),
    }
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
            binds.add_uuid(Some(lease.owner().as_uuid()))?;
            binds.add_number(Some(lease.fence().as_i64()))?;
            binds.add_number(Some(micros(lease.duration())))?;
        }
        for message in messages {
            binds.add_uuid(Some(message.id().as_uuid()))?;
            binds.add_word(Some(message.topic()))?;
            binds.add_bytes(message.payload())?;
            for optional in &self.used {
                (optional.bind)(&mut binds, message)?;
            }
        }
        Ok(binds.arguments)
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
