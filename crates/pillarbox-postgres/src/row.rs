//! Reads rows. Columns are read by position: the order is that of the statements in `sql/`.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pillarbox_core::admin::{BlockedKey, Group, Replayed, StoredMessage, Tally};
use pillarbox_core::inbox::{ContentHash, InboxRecord, Standing, state_of};
use pillarbox_core::instance::{InstanceParts, InstanceRecord};
use pillarbox_core::lease::Held;
use pillarbox_core::parts::Parts;
use pillarbox_core::pause::{Pause, PauseRecord};
use pillarbox_core::store::Claimed;
use pillarbox_core::{Fence, InstanceId, MessageId, OwnerToken, State, StoreError, WorkId};
use sqlx::postgres::PgRow;
use sqlx::{Row, ValueRef};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::store_error;

/// A claimed message.
pub(crate) fn claimed(row: &PgRow, fence: Fence) -> Result<Claimed, StoreError> {
    let column = Columns { row };
    Ok(Claimed {
        held: Held { work_id: WorkId::from_i64(column.get(0)?), fence },
        attempts: counter(column.get(5)?),
        lost_lease_count: counter(column.get(6)?),
        created_at: column.get::<OffsetDateTime>(4)?.into(),
        last_error: column.get(20)?,
        message: column.parts()?.into_message(),
    })
}

/// Whether a claim's row is no message, but a stretch that it leased: see `outbox_claim.sql`.
pub(crate) fn is_stretch(row: &PgRow) -> bool {
    row.try_get_raw(2).is_ok_and(|topic| topic.is_null())
}

/// What an exchange settled: the headers of its first row, nothing when all were.
pub(crate) fn settled(row: &PgRow) -> Result<Option<Vec<i64>>, StoreError> {
    let ids: Option<&str> = Columns { row }.get(19)?;
    let read = |ids| serde_json::from_str(ids).map_err(|_| StoreError::rejected("an exchange answered no settled ids"));
    ids.map(read).transpose()
}

/// A message as an operator sees it.
pub(crate) fn stored(row: &PgRow) -> Result<StoredMessage, StoreError> {
    let column = Columns { row };
    let owner = |index| {
        Ok::<_, StoreError>(column.get::<Option<Uuid>>(index)?.and_then(|uuid| OwnerToken::from_uuid(uuid).ok()))
    };
    Ok(StoredMessage {
        work_id: WorkId::from_i64(column.get(0)?),
        state: column.state(21)?,
        attempts: counter(column.get(5)?),
        lost_lease_count: counter(column.get(6)?),
        created_at: column.get::<OffsetDateTime>(4)?.into(),
        due_at: column.instant(8)?,
        owner: owner(22)?,
        locked_until: column.instant(23)?,
        settled_at: column.instant(24)?,
        settled_by: owner(25)?,
        last_error: column.get(20)?,
        is_receipt: column.get(26)?,
        message: column.parts()?.into_message(),
    })
}

/// A row of `outbox_blocked_keys.sql`.
pub(crate) fn blocked(row: &PgRow) -> Result<BlockedKey, StoreError> {
    let column = Columns { row };
    Ok(BlockedKey {
        key: get(row, 0)?,
        head: WorkId::from_i64(get(row, 1)?),
        state: column.state(2)?,
        last_error: get(row, 3)?,
        due_at: column.instant(4)?,
        waiting_count: get::<i64>(row, 5)?.unsigned_abs(),
    })
}

/// The row of `outbox_tally.sql`.
pub(crate) fn tally(row: &PgRow) -> Result<Tally, StoreError> {
    let column = Columns { row };
    Ok(Tally {
        count: get::<i64>(row, 0)?.unsigned_abs(),
        oldest: column.instant(1)?,
        newest: column.instant(2)?,
        receipt_count: get::<i64>(row, 3)?.unsigned_abs(),
    })
}

/// A row of `outbox_group_dead.sql`.
pub(crate) fn group(row: &PgRow) -> Result<Group, StoreError> {
    Ok(Group { topic: get(row, 0)?, error: get(row, 1)?, count: get::<i64>(row, 2)?.unsigned_abs() })
}

/// The row of `outbox_replay.sql`: what was replayed, and the lowest row of it.
pub(crate) fn replayed(row: &PgRow) -> Result<(Replayed, Option<WorkId>), StoreError> {
    let id = |index| get::<Option<i64>>(row, index).map(|id| id.map(WorkId::from_i64));
    Ok((Replayed { count: get::<i64>(row, 0)?.unsigned_abs(), last: id(2)? }, id(1)?))
}

/// A row of `inbox_get.sql`.
pub(crate) fn record(row: &PgRow) -> Result<InboxRecord, StoreError> {
    let column = Columns { row };
    let (algorithm, hash): (Option<String>, Option<Vec<u8>>) = (column.get(8)?, column.get(9)?);
    Ok(InboxRecord {
        source: column.get(0)?,
        message_id: column.get(1)?,
        queue_id: MessageId::from_uuid(column.get(2)?)?,
        state: state_of(standing(column.get(3)?, column.get(4)?, column.get(5)?)?),
        first_seen_at: column.get::<OffsetDateTime>(6)?.into(),
        last_seen_at: column.get::<OffsetDateTime>(7)?.into(),
        hash: algorithm.zip(hash).map(|(algorithm, hash)| ContentHash::new(algorithm, hash)),
        mismatch_count: counter(column.get(10)?),
        attempts: counter(column.get(11)?),
        due_at: column.instant(12)?,
        last_error: column.get(13)?,
        topic: column.get(14)?,
    })
}

/// A row of `instance_live.sql`; nothing when it has no name.
pub(crate) fn instance(row: &PgRow) -> Result<Option<InstanceRecord>, StoreError> {
    let column = Columns { row };
    let Ok(id) = InstanceId::from_uuid(column.get(0)?) else { return Ok(None) };
    let parts = InstanceParts {
        service: column.get(1)?,
        host: column.get(2)?,
        pid: column.get(3)?,
        version: column.get(4)?,
        metadata: column.get(5)?,
    };
    Ok(Some(InstanceRecord {
        instance: parts.into_instance(id),
        started_at: column.get::<OffsetDateTime>(6)?.into(),
        last_seen_at: column.get::<OffsetDateTime>(7)?.into(),
        silent_for: Duration::from_micros(column.get::<i64>(8)?.unsigned_abs()),
    }))
}

/// A row of `pause_list.sql`.
pub(crate) fn pause(row: &PgRow) -> Result<PauseRecord, StoreError> {
    let column = Columns { row };
    let words = |index| column.get::<Option<String>>(index).map(Option::unwrap_or_default);
    Ok(PauseRecord {
        pause: Pause::new(words(0)?).reason(words(1)?).by(words(2)?),
        since: column.get::<OffsetDateTime>(3)?.into(),
        lasts: Duration::from_micros(column.get::<i64>(4)?.unsigned_abs()),
    })
}

/// The ledger's word, whether the message was queued, and where the queue has it.
pub(crate) fn standing(state: &str, is_queued: bool, place: Option<&str>) -> Result<Standing, StoreError> {
    let unknown = || StoreError::rejected("a row of the inbox tables has a state this program does not know");
    Standing::of_words(state, is_queued, place).ok_or_else(unknown)
}

/// One column by its place.
pub(crate) fn get<'r, T>(row: &'r PgRow, index: usize) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    Columns { row }.get(index)
}

/// Counters are never negative in our tables; a foreign writer's may be.
fn counter(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or(0)
}

struct Columns<'r> {
    row: &'r PgRow,
}

impl<'r> Columns<'r> {
    fn get<T>(&self, index: usize) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        // The types are those of our own tables and statements: looking at them for each value takes longer than to read it.
        self.row.try_get_unchecked(index).map_err(store_error)
    }

    fn instant(&self, index: usize) -> Result<Option<SystemTime>, StoreError> {
        Ok(self.get::<Option<OffsetDateTime>>(index)?.map(Into::into))
    }

    fn state(&self, index: usize) -> Result<State, StoreError> {
        let unknown = || StoreError::rejected("a row has a state this program does not know");
        State::from_word(self.get(index)?).ok_or_else(unknown)
    }

    fn parts(&self) -> Result<Parts, StoreError> {
        Ok(Parts {
            message_id: self.get(1)?,
            topic: self.get(2)?,
            payload: Bytes::copy_from_slice(self.get(3)?),
            priority: self.get(7)?,
            due_at: self.instant(8)?,
            expires_at: self.instant(9)?,
            occurred_at: self.instant(10)?,
            message_type: self.get(11)?,
            aggregate_type: self.get(12)?,
            aggregate_id: self.get(13)?,
            tenant_id: self.get(14)?,
            message_key: self.get(15)?,
            correlation_id: self.get(16)?,
            causation_id: self.get(17)?,
            content_type: self.get(18)?,
            headers: self.get(19)?,
        })
    }
}
