//! Rows read as messages, and times and lists written for SQLite.

use std::fmt::Write as _;
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
use serde::Deserialize;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row, Sqlite, ValueRef};
use uuid::Uuid;

use crate::error::store_error;

/// What most messages do not have, in the order in which `outbox_claim.sql` tells it: an array, or nothing.
#[derive(Default, Deserialize)]
struct Extras {
    due_at: Option<i64>,
    expires_at: Option<i64>,
    lost_lease_count: i64,
    priority: i64,
    message_type: Option<String>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    tenant_id: Option<String>,
    message_key: Option<String>,
    correlation_id: Option<String>,
    causation_id: Option<String>,
    headers: Option<String>,
    occurred_at: Option<i64>,
    last_error: Option<String>,
}

/// A row of a claim; the columns are those of `outbox_claim.sql`. Nothing when the extras cannot be read: one text that is not
/// UTF-8 spoils them all, and `outbox_get.sql` tells which.
pub(crate) fn claimed(row: &SqliteRow, fence: Fence) -> Result<Option<Claimed>, StoreError> {
    let extras = match text(row, 7, "extras") {
        Ok(None) => Some(Extras::default()),
        Ok(Some(json)) => serde_json::from_str(&json).ok(),
        Err(_) => None,
    };
    let Some(mut extras) = extras else { return Ok(None) };
    Ok(Some(Claimed {
        held: Held { work_id: work_id(row)?, fence },
        attempts: counter(row, 5)?,
        lost_lease_count: count(extras.lost_lease_count),
        created_at: from_micros(get(row, 4)?),
        last_error: extras.last_error.take(),
        message: together(row, extras),
    }))
}

/// The same of a row of `outbox_get.sql`.
pub(crate) fn claimed_whole(row: &SqliteRow, fence: Fence) -> Result<Claimed, StoreError> {
    let StoredMessage { work_id, attempts, lost_lease_count, created_at, last_error, message, .. } = stored(row)?;
    Ok(Claimed { held: Held { work_id, fence }, attempts, lost_lease_count, created_at, last_error, message })
}

fn together(row: &SqliteRow, extras: Extras) -> Result<Message, Undecodable> {
    Parts {
        message_id: message_id(row)?,
        topic: text(row, 2, "topic")?.unwrap_or_default(),
        payload: payload(row)?,
        due_at: extras.due_at.map(from_micros),
        expires_at: extras.expires_at.map(from_micros),
        priority: i16::try_from(extras.priority).unwrap_or_default(),
        message_type: extras.message_type,
        aggregate_type: extras.aggregate_type,
        aggregate_id: extras.aggregate_id,
        tenant_id: extras.tenant_id,
        message_key: extras.message_key,
        correlation_id: extras.correlation_id,
        causation_id: extras.causation_id,
        content_type: text(row, 6, "content_type")?,
        headers: extras.headers,
        occurred_at: extras.occurred_at.map(from_micros),
    }
    .into_message()
}

/// A row for the operator, and whatever is read whole; the columns are those of `outbox_get.sql`.
pub(crate) fn stored(row: &SqliteRow) -> Result<StoredMessage, StoreError> {
    Ok(StoredMessage {
        work_id: work_id(row)?,
        state: state(row, 21)?,
        attempts: counter(row, 7)?,
        lost_lease_count: counter(row, 8)?,
        created_at: from_micros(get(row, 4)?),
        due_at: time(row, 5)?,
        owner: owner(row, 22)?,
        locked_until: time(row, 23)?,
        settled_at: time(row, 24)?,
        settled_by: owner(row, 25)?,
        last_error: text(row, 20, "last_error").unwrap_or_default(),
        is_receipt: get(row, 26)?,
        message: message(row),
    })
}

/// The row of `outbox_tally.sql`.
pub(crate) fn tally(row: &SqliteRow) -> Result<Tally, StoreError> {
    let count = |column| get::<i64>(row, column).map(i64::unsigned_abs);
    Ok(Tally { count: count(0)?, oldest: time(row, 1)?, newest: time(row, 2)?, receipt_count: count(3)? })
}

/// A row of `outbox_group_dead.sql`.
pub(crate) fn group(row: &SqliteRow) -> Result<Group, StoreError> {
    Ok(Group {
        topic: String::from_utf8_lossy(get(row, 0)?).into_owned(),
        error: text(row, 1, "last_error").unwrap_or_default(),
        count: get::<i64>(row, 2)?.unsigned_abs(),
    })
}

/// A row of `outbox_blocked_keys.sql`.
pub(crate) fn blocked(row: &SqliteRow) -> Result<BlockedKey, StoreError> {
    let unreadable = |_: Undecodable| StoreError::rejected("a key of the outbox tables is not UTF-8");
    Ok(BlockedKey {
        key: text(row, 0, "message_key").map_err(unreadable)?.unwrap_or_default(),
        head: WorkId::from_i64(get(row, 1)?),
        state: state(row, 2)?,
        last_error: text(row, 3, "last_error").unwrap_or_default(),
        due_at: time(row, 4)?,
        waiting_count: get::<i64>(row, 5)?.unsigned_abs(),
    })
}

fn state(row: &SqliteRow, index: usize) -> Result<State, StoreError> {
    let unknown = || StoreError::rejected("a row of the outbox tables is in a state that this program does not know");
    State::from_word(get(row, index)?).ok_or_else(unknown)
}

/// A row of `inbox_get.sql`.
pub(crate) fn record(row: &SqliteRow) -> Result<InboxRecord, StoreError> {
    let unreadable = |_: Undecodable| StoreError::rejected("a text of the inbox tables is not UTF-8");
    let words = |index| text(row, index, "source").map_err(unreadable);
    let hash: Option<Vec<u8>> = get(row, 9)?;
    Ok(InboxRecord {
        source: words(0)?.unwrap_or_default(),
        message_id: words(1)?.unwrap_or_default(),
        queue_id: MessageId::from_uuid(get(row, 2)?)?,
        state: state_of(standing(row, 3)?),
        first_seen_at: from_micros(get(row, 6)?),
        last_seen_at: from_micros(get(row, 7)?),
        hash: words(8)?.zip(hash).map(|(algorithm, hash)| ContentHash::new(algorithm, hash)),
        mismatch_count: counter(row, 10)?,
        attempts: counter(row, 11)?,
        due_at: time(row, 12)?,
        last_error: words(13)?,
        topic: words(14)?,
    })
}

/// A row of `instance_live.sql`; nothing when it has no name.
pub(crate) fn instance(row: &SqliteRow) -> Result<Option<InstanceRecord>, StoreError> {
    let Ok(id) = InstanceId::from_uuid(get(row, 0)?) else { return Ok(None) };
    let words = |column| {
        Ok::<_, StoreError>(get::<Option<&[u8]>>(row, column)?.map(|text| String::from_utf8_lossy(text).into_owned()))
    };
    let parts = InstanceParts {
        service: words(1)?.unwrap_or_default(),
        host: words(2)?.unwrap_or_default(),
        pid: get(row, 3)?,
        version: words(4)?,
        metadata: words(5)?,
    };
    Ok(Some(InstanceRecord {
        instance: parts.into_instance(id),
        started_at: from_micros(get(row, 6)?),
        last_seen_at: from_micros(get(row, 7)?),
        silent_for: Duration::from_micros(get::<i64>(row, 8)?.unsigned_abs()),
    }))
}

/// A row of `pause_list.sql`.
pub(crate) fn pause(row: &SqliteRow) -> Result<PauseRecord, StoreError> {
    let words = |column| {
        let text = get::<Option<&[u8]>>(row, column)?;
        Ok::<_, StoreError>(text.map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default())
    };
    Ok(PauseRecord {
        pause: Pause::new(words(0)?).reason(words(1)?).by(words(2)?),
        since: from_micros(get(row, 3)?),
        lasts: Duration::from_micros(get::<i64>(row, 4)?.unsigned_abs()),
    })
}

/// Three columns from here on: the ledger's word, whether the message was queued, and where the queue has it.
pub(crate) fn standing(row: &SqliteRow, first: usize) -> Result<Standing, StoreError> {
    let (state, is_queued, place): (&str, bool, Option<&str>) =
        (get(row, first)?, get(row, first + 1)?, get(row, first + 2)?);
    let unknown = || StoreError::rejected("a row of the inbox tables is in a state that this program does not know");
    Standing::of_words(state, is_queued, place).ok_or_else(unknown)
}

/// The row's key, always the first column.
pub(crate) fn work_id(row: &SqliteRow) -> Result<WorkId, StoreError> {
    get(row, 0).map(WorkId::from_i64)
}

/// A value whose type the tables guarantee.
pub(crate) fn get<'r, T: Decode<'r, Sqlite>>(row: &'r SqliteRow, column: usize) -> Result<T, StoreError> {
    row.try_get_unchecked(column).map_err(store_error)
}

/// A time as it is stored: microseconds since 1970. Times that do not fit are cut to the end of the range.
pub(crate) fn to_micros(at: SystemTime) -> i64 {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    }
}

/// A duration as it is added to a stored time.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Ids as a JSON array, for `json_each`.
pub(crate) fn id_list(ids: impl IntoIterator<Item = WorkId>) -> String {
    let mut json = String::from("[");
    for id in ids {
        let comma = if json.len() == 1 { "" } else { "," };
        let _ = write!(json, "{comma}{}", id.as_i64());
    }
    json + "]"
}

/// Ids and what belongs to each, already JSON, as a JSON object: `json_each` reads it in one pass.
pub(crate) fn id_map<T: std::fmt::Display>(entries: impl IntoIterator<Item = (WorkId, T)>) -> String {
    let mut json = String::from("{");
    for (id, value) in entries {
        let comma = if json.len() == 1 { "" } else { "," };
        let _ = write!(json, "{comma}\"{}\":{value}", id.as_i64());
    }
    json + "}"
}

fn message(row: &SqliteRow) -> Result<Message, Undecodable> {
    Parts {
        message_id: message_id(row)?,
        topic: text(row, 2, "topic")?.unwrap_or_default(),
        payload: payload(row)?,
        due_at: time(row, 5).map_err(undecodable("due_at"))?,
        expires_at: time(row, 6).map_err(undecodable("expires_at"))?,
        priority: i16::try_from(get::<i64>(row, 9).map_err(undecodable("priority"))?).unwrap_or_default(),
        message_type: text(row, 10, "message_type")?,
        aggregate_type: text(row, 11, "aggregate_type")?,
        aggregate_id: text(row, 12, "aggregate_id")?,
        tenant_id: text(row, 13, "tenant_id")?,
        message_key: text(row, 14, "message_key")?,
        correlation_id: text(row, 15, "correlation_id")?,
        causation_id: text(row, 16, "causation_id")?,
        content_type: text(row, 17, "content_type")?,
        headers: text(row, 18, "headers")?,
        occurred_at: time(row, 19).map_err(undecodable("occurred_at"))?,
    }
    .into_message()
}

fn message_id(row: &SqliteRow) -> Result<Uuid, Undecodable> {
    let id: &[u8] = get(row, 1).map_err(undecodable("message_id"))?;
    Uuid::from_slice(id).map_err(|_| Undecodable { column: "message_id", complaint: "does not have 16 bytes".into() })
}

fn payload(row: &SqliteRow) -> Result<Bytes, Undecodable> {
    get::<Vec<u8>>(row, 3).map(Bytes::from).map_err(undecodable("payload"))
}

fn undecodable(column: &'static str) -> impl Fn(StoreError) -> Undecodable {
    move |_| Undecodable { column, complaint: "has an unexpected type".into() }
}

/// A text; SQLite itself does not check that it is UTF-8.
fn text(row: &SqliteRow, index: usize, column: &'static str) -> Result<Option<String>, Undecodable> {
    let undecodable = || Undecodable { column, complaint: "is not UTF-8".into() };
    let value = row.try_get_raw(index).map_err(|_| undecodable())?;
    if value.is_null() {
        return Ok(None);
    }
    <String as Decode<'_, Sqlite>>::decode(value).map(Some).map_err(|_| undecodable())
}

pub(crate) fn time(row: &SqliteRow, column: usize) -> Result<Option<SystemTime>, StoreError> {
    Ok(get::<Option<i64>>(row, column)?.map(from_micros))
}

fn owner(row: &SqliteRow, column: usize) -> Result<Option<OwnerToken>, StoreError> {
    let bytes: Option<&[u8]> = get(row, column)?;
    Ok(bytes.and_then(|bytes| Uuid::from_slice(bytes).ok()).and_then(|uuid| OwnerToken::from_uuid(uuid).ok()))
}

fn counter(row: &SqliteRow, column: usize) -> Result<u32, StoreError> {
    get(row, column).map(count)
}

fn count(stored: i64) -> u32 {
    u32::try_from(stored.max(0)).unwrap_or(u32::MAX)
}

fn from_micros(micros: i64) -> SystemTime {
    let distance = Duration::from_micros(micros.unsigned_abs());
    let at = if micros < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    at.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_way_to_the_table_and_back() {
        for micros in [0, 1, -1, 1_763_247_600_123_456, 7_258_118_399_999_999] {
            assert_eq!(to_micros(from_micros(micros)), micros);
        }
    }

    #[test]
    fn lists_and_maps_are_json() {
        let ids = [1, -2, i64::MAX].map(WorkId::from_i64);
        assert_eq!(id_list(ids), "[1,-2,9223372036854775807]");
        assert_eq!(id_list([]), "[]");
        assert_eq!(id_map(ids.map(|id| (id, 7))), r#"{"1":7,"-2":7,"9223372036854775807":7}"#);
    }
}
