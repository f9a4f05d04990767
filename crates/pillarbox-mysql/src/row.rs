//! Rows, read back. Columns are read by their place: `id`, the twenty of the message, then what the table adds.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pillarbox_core::admin::{BlockedKey, Group, StoredMessage, Tally};
use pillarbox_core::inbox::{ContentHash, InboxRecord, Standing, state_of};
use pillarbox_core::instance::{InstanceParts, InstanceRecord};
use pillarbox_core::lease::Held;
use pillarbox_core::parts::Parts;
use pillarbox_core::pause::{Pause, PauseRecord};
use pillarbox_core::store::{Claimed, Undecodable};
use pillarbox_core::{Fence, InstanceId, Message, MessageId, OwnerToken, State, StoreError, WorkId};
use sqlx::Row as _;
use sqlx::mysql::{MySql, MySqlRow};
use time::OffsetDateTime;
use uuid::Uuid;

/// The columns that both tables share.
struct Common {
    work_id: WorkId,
    attempts: u32,
    lost_lease_count: u32,
    created_at: SystemTime,
    due_at: Option<SystemTime>,
    last_error: Option<String>,
    message: Result<Message, Undecodable>,
}

/// A row of a claim's answer.
pub(crate) fn claimed(row: &MySqlRow) -> Result<Claimed, StoreError> {
    let common = common(row)?;
    Ok(Claimed {
        held: Held { work_id: common.work_id, fence: Fence::from_i64(get(row, 23)?) },
        attempts: common.attempts,
        lost_lease_count: common.lost_lease_count,
        created_at: common.created_at,
        last_error: common.last_error,
        message: common.message,
    })
}

/// A row of the hot table.
pub(crate) fn stored_live(row: &MySqlRow) -> Result<StoredMessage, StoreError> {
    let owner = owner(row, 21)?;
    let state = if owner.is_some() { State::Processing } else { State::Pending };
    let locked_until = instant(row, 22, "locked_until").unwrap_or_default();
    Ok(StoredMessage { owner, locked_until, ..stored(common(row)?, state) })
}

/// A row of the shelf.
pub(crate) fn stored_shelf(row: &MySqlRow) -> Result<StoredMessage, StoreError> {
    let word: String = get(row, 21)?;
    let state = State::from_word(&word).ok_or_else(unreadable)?;
    let settled_at = instant(row, 22, "settled_at").unwrap_or_default();
    let is_receipt = get::<i64>(row, 24)? != 0;
    Ok(StoredMessage { settled_at, settled_by: owner(row, 23)?, is_receipt, ..stored(common(row)?, state) })
}

/// The row of `outbox_tally.sql`.
pub(crate) fn tally(row: &MySqlRow) -> Result<Tally, StoreError> {
    let seen = |column| instant(row, column, "settled_at").map_err(|_| unreadable());
    let count = |column| get::<i64>(row, column).map(i64::unsigned_abs);
    Ok(Tally { count: count(0)?, oldest: seen(1)?, newest: seen(2)?, receipt_count: count(3)? })
}

/// A row of `outbox_group_dead.sql`.
pub(crate) fn group(row: &MySqlRow) -> Result<Group, StoreError> {
    Ok(Group { topic: get(row, 0)?, error: get(row, 1)?, count: get::<i64>(row, 2)?.unsigned_abs() })
}

/// A row of `outbox_blocked_keys.sql`.
pub(crate) fn blocked_key(row: &MySqlRow) -> Result<BlockedKey, StoreError> {
    Ok(BlockedKey {
        key: get(row, 0)?,
        head: WorkId::from_i64(get(row, 1)?),
        state: State::from_word(&get::<String>(row, 2)?).ok_or_else(unreadable)?,
        last_error: get(row, 3)?,
        due_at: instant(row, 4, "due_at").unwrap_or_default(),
        waiting_count: u64::try_from(get::<i64>(row, 5)?).unwrap_or(0),
    })
}

/// A row of `inbox_find.sql`.
pub(crate) fn record(row: &MySqlRow) -> Result<InboxRecord, StoreError> {
    let seen = |column| instant(row, column, "seen").ok().flatten().unwrap_or(SystemTime::UNIX_EPOCH);
    Ok(InboxRecord {
        source: name(row, 0)?,
        message_id: name(row, 1)?,
        queue_id: MessageId::from_uuid(get(row, 2)?)?,
        state: state_of(standing(row)?),
        first_seen_at: seen(9),
        last_seen_at: seen(10),
        hash: hash(row)?,
        mismatch_count: count(row, 11)?,
        attempts: u32::try_from(get::<i64>(row, 12)?).unwrap_or(0),
        due_at: instant(row, 13, "due_at").unwrap_or_default(),
        last_error: get(row, 14)?,
        topic: get(row, 15)?,
    })
}

/// A row of `instance_live.sql`; nothing when it has no name.
pub(crate) fn instance(row: &MySqlRow) -> Result<Option<InstanceRecord>, StoreError> {
    let Ok(id) = InstanceId::from_uuid(get(row, 0)?) else { return Ok(None) };
    let parts = InstanceParts {
        service: get(row, 1)?,
        host: get(row, 2)?,
        pid: get(row, 3)?,
        version: get(row, 4)?,
        metadata: get(row, 5)?,
    };
    let seen = |column| instant(row, column, "seen").ok().flatten().unwrap_or(SystemTime::UNIX_EPOCH);
    Ok(Some(InstanceRecord {
        instance: parts.into_instance(id),
        started_at: seen(6),
        last_seen_at: seen(7),
        silent_for: Duration::from_micros(get::<i64>(row, 8)?.unsigned_abs()),
    }))
}

/// A row of `pause_list.sql`.
pub(crate) fn pause(row: &MySqlRow) -> Result<PauseRecord, StoreError> {
    let words = |column| get::<Option<String>>(row, column).map(Option::unwrap_or_default);
    Ok(PauseRecord {
        pause: Pause::new(words(0)?).reason(words(1)?).by(words(2)?),
        since: instant(row, 3, "paused").ok().flatten().unwrap_or(SystemTime::UNIX_EPOCH),
        lasts: Duration::from_micros(get::<i64>(row, 4)?.unsigned_abs()),
    })
}

/// The standing in a row of `inbox_find.sql`.
pub(crate) fn standing(row: &MySqlRow) -> Result<Standing, StoreError> {
    let (state, is_queued, place): (String, i64, Option<String>) = (get(row, 3)?, get(row, 4)?, get(row, 5)?);
    Standing::of_words(&state, is_queued != 0, place.as_deref()).ok_or_else(unreadable)
}

/// The hash on record in a row of `inbox_find.sql`.
pub(crate) fn hash(row: &MySqlRow) -> Result<Option<ContentHash>, StoreError> {
    let (algorithm, hash): (Option<Vec<u8>>, Option<Vec<u8>>) = (get(row, 6)?, get(row, 7)?);
    let algorithm = algorithm.map(String::from_utf8).transpose().map_err(|_| unreadable())?;
    Ok(algorithm.zip(hash).map(|(algorithm, hash)| ContentHash::new(algorithm, hash)))
}

/// A name, which is stored as bytes.
pub(crate) fn name(row: &MySqlRow, column: usize) -> Result<String, StoreError> {
    String::from_utf8(get(row, column)?).map_err(|_| unreadable())
}

/// One column by its place, whatever the exact type of the expression.
pub(crate) fn get<'r, T: sqlx::Decode<'r, MySql>>(row: &'r MySqlRow, column: usize) -> Result<T, StoreError> {
    row.try_get_unchecked(column).map_err(|_| unreadable())
}

/// Whether the row belongs to an answer with this first column.
pub(crate) fn answers(row: &MySqlRow, name: &str) -> bool {
    row.columns().first().is_some_and(|column| sqlx::Column::name(column) == name)
}

fn unreadable() -> StoreError {
    StoreError::rejected("a row of the outbox tables has columns of unexpected types")
}

fn stored(common: Common, state: State) -> StoredMessage {
    StoredMessage {
        work_id: common.work_id,
        state,
        attempts: common.attempts,
        lost_lease_count: common.lost_lease_count,
        created_at: common.created_at,
        due_at: common.due_at,
        owner: None,
        locked_until: None,
        settled_at: None,
        settled_by: None,
        last_error: common.last_error,
        is_receipt: false,
        message: common.message,
    }
}

fn common(row: &MySqlRow) -> Result<Common, StoreError> {
    Ok(Common {
        work_id: WorkId::from_i64(get(row, 0)?),
        attempts: count(row, 7)?,
        lost_lease_count: count(row, 8)?,
        created_at: instant(row, 4, "created_at").ok().flatten().unwrap_or(SystemTime::UNIX_EPOCH),
        due_at: instant(row, 5, "due_at").unwrap_or_default(),
        last_error: get(row, 20)?,
        message: parts(row)?.and_then(Parts::into_message),
    })
}

fn parts(row: &MySqlRow) -> Result<Result<Parts, Undecodable>, StoreError> {
    let times =
        (|| Ok((instant(row, 5, "due_at")?, instant(row, 6, "expires_at")?, instant(row, 19, "occurred_at")?)))();
    let (due_at, expires_at, occurred_at) = match times {
        Ok(times) => times,
        Err(undecodable) => return Ok(Err(undecodable)),
    };
    Ok(Ok(Parts {
        message_id: get(row, 1)?,
        topic: get(row, 2)?,
        payload: Bytes::from(get::<Vec<u8>>(row, 3)?),
        due_at,
        expires_at,
        priority: get(row, 9)?,
        message_type: get(row, 10)?,
        aggregate_type: get(row, 11)?,
        aggregate_id: get(row, 12)?,
        tenant_id: get(row, 13)?,
        message_key: get(row, 14)?,
        correlation_id: get(row, 15)?,
        causation_id: get(row, 16)?,
        content_type: get(row, 17)?,
        headers: get(row, 18)?,
        occurred_at,
    }))
}

/// A time; the zero date that MySQL may hold is none that we can name.
fn instant(row: &MySqlRow, column: usize, name: &'static str) -> Result<Option<SystemTime>, Undecodable> {
    row.try_get_unchecked::<Option<OffsetDateTime>, _>(column)
        .map(|at| at.map(SystemTime::from))
        .map_err(|_| Undecodable { column: name, complaint: "is not a time".into() })
}

fn owner(row: &MySqlRow, column: usize) -> Result<Option<OwnerToken>, StoreError> {
    Ok(get::<Option<Uuid>>(row, column)?.and_then(|token| OwnerToken::from_uuid(token).ok()))
}

fn count(row: &MySqlRow, column: usize) -> Result<u32, StoreError> {
    Ok(u32::try_from(get::<i32>(row, column)?).unwrap_or(0))
}
