//! Leases of stretches: rows that stand beside each other are leased by one row of their own, and are written only when they go.
//!
//! Whatever a stretch has no statement for, first spreads its lease over its rows: a lease like any other.

use std::sync::atomic::Ordering;

use pillarbox_core::lease::{CLAIM_LIMIT_MAX, Claim, Held, Stretch};
use pillarbox_core::store::Claimed;
use pillarbox_core::{Fence, OwnerToken, StoreError, WorkId};
use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, ValueRef};

use crate::error::store_error;
use crate::outbox::read_claimed;
use crate::row;
use crate::store::{Inner, Moment, burst};

/// Fewer rows are written one by one: that takes fewer statements.
pub(crate) const STRETCH_MIN: u32 = 16;

/// No stretch is leased where other statements look at the owners of rows.
pub(crate) const NO_STRETCHES: u32 = u32::MAX;

/// What a claim of stretches brought.
pub(crate) struct Taken {
    pub(crate) claimed: Vec<Claimed>,
    /// Whatever else there is to claim stands above this row; nothing when there is nothing else.
    pub(crate) rest: Option<i64>,
}

impl Taken {
    fn nothing(above: i64) -> Self {
        Self { claimed: Vec::new(), rest: Some(above) }
    }
}

/// A stretch that somebody holds.
pub(crate) struct Leased {
    first: i64,
    last: i64,
    fence: i64,
    locked_until: i64,
}

impl Leased {
    /// Whether this row was claimed with it.
    fn has(&self, held: Held) -> bool {
        self.stretch().has(held)
    }

    fn stretch(&self) -> Stretch {
        let (first, last) = (WorkId::from_i64(self.first), WorkId::from_i64(self.last));
        Stretch { first, last, fence: Fence::from_i64(self.fence) }
    }
}

/// Takes up to `room` rows above one, as far as none has an owner or a key, and leases them by their stretches. Nothing when others
/// that can be claimed come first, or when they are few or lie scattered.
pub(crate) async fn claim(
    inner: &Inner,
    tx: &mut SqliteConnection,
    moment: Moment,
    claim: &Claim,
    (above, room): (i64, u32),
) -> Result<Taken, StoreError> {
    let least = inner.stretch_min.load(Ordering::Relaxed);
    if room < least || claim.order().in_sequence || claim.left_out().is_some() {
        return Ok(Taken::nothing(above));
    }
    let look = sqlx::query(inner.sql.lease_start.clone()).bind(above).bind(least).bind(moment.now);
    let look = look.fetch_one(&mut *tx).await.map_err(store_error)?;
    let (start, has_others): (i64, bool) = (row::get(&look, 0)?, row::get(&look, 1)?);
    let (plain_count, is_bounded): (u32, bool) = (row::get(&look, 2)?, row::get(&look, 3)?);
    if has_others || plain_count < least {
        return Ok(Taken::nothing(if has_others { above } else { start }));
    }
    // Where rows with keys stand among the others, no more are read than it takes to find the next of them.
    let limit = inner.stretch_hint.load(Ordering::Relaxed).min(room);
    let rows = sqlx::query(inner.sql.claim_stretch.clone()).bind(start).bind(limit).bind(moment.now);
    let rows = burst(rows, &mut *tx).await?;
    let plain = &rows[..rows.iter().position(may_not).unwrap_or(rows.len())];
    let stretches = stretches(plain.iter().map(row::work_id))?;
    let (has_end, is_scattered) = (plain.len() < rows.len(), plain.len() < stretches.len() * 2);
    let seen = if is_scattered { Some(0) } else { has_end.then_some(plain.len()) };
    inner.stretch_hint.store(hint(limit, seen).max(least), Ordering::Relaxed);
    if is_scattered || plain.is_empty() {
        return Ok(Taken::nothing(start));
    }
    let lease = claim.lease();
    let add = sqlx::query(inner.sql.lease_add_and_tick.clone()).bind(json!(stretches).to_string());
    let add = add.bind(lease.fence().as_i64()).bind(lease.owner().as_uuid());
    let add = add.bind(moment.now + row::micros(lease.duration())).bind(moment.now).bind(moment.change_count);
    add.execute(&mut *tx).await.map_err(store_error)?;
    let is_all = !has_end && rows.len() < limit as usize && !is_bounded;
    let rest = stretches.last().map(|[_, last]| *last).filter(|_| !is_all);
    Ok(Taken { claimed: read_claimed(inner, tx, plain, lease.fence()).await?, rest })
}

/// How many rows the next claim reads at the most, after one that might read so many and found an end after some of them, or none.
fn hint(limit: u32, plain_until_end: Option<usize>) -> u32 {
    match plain_until_end {
        Some(count) => u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(2),
        None => limit.max(CLAIM_LIMIT_MAX / 100).saturating_mul(4),
    }
}

/// A row that ends what a claim of stretches takes: `outbox_claim_stretch.sql` tells it by its topic.
fn may_not(row: &SqliteRow) -> bool {
    row.try_get_raw(2).is_ok_and(|topic| topic.is_null())
}

/// The first and the last row of each run without a gap.
fn stretches(ids: impl Iterator<Item = Result<WorkId, StoreError>>) -> Result<Vec<[i64; 2]>, StoreError> {
    let mut stretches: Vec<[i64; 2]> = Vec::new();
    for id in ids {
        let id = id?.as_i64();
        match stretches.last_mut() {
            Some([_, last]) if last.checked_add(1) == Some(id) => *last = id,
            _ => stretches.push([id, id]),
        }
    }
    Ok(stretches)
}

/// The stretches that an owner holds.
pub(crate) async fn list(
    inner: &Inner,
    tx: &mut SqliteConnection,
    owner: OwnerToken,
) -> Result<Vec<Leased>, StoreError> {
    let list = sqlx::query(inner.sql.lease_list.clone()).bind(owner.as_uuid());
    let rows = list.fetch_all(tx).await.map_err(store_error)?;
    let read = |row: &SqliteRow| {
        Ok(Leased {
            first: row::get(row, 0)?,
            last: row::get(row, 1)?,
            fence: row::get(row, 2)?,
            locked_until: row::get(row, 3)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Acknowledges runs of rows that were claimed with a stretch which their owner holds: they go, and the stretch is cut. Then the stretches
/// of all the others are spread. Answers which rows went; a run of which a row is missing is left to the others.
pub(crate) async fn settle(
    inner: &Inner,
    tx: &mut SqliteConnection,
    owner: OwnerToken,
    (acked, others): (&[Held], &[Held]),
    kept: Option<Kept>,
) -> Result<Vec<Stretch>, StoreError> {
    let (least, mut gone) = (inner.stretch_min.load(Ordering::Relaxed), Vec::<Stretch>::new());
    let mut leases = if least == NO_STRETCHES { Vec::new() } else { list(inner, tx, owner).await? };
    if leases.is_empty() {
        return Ok(gone);
    }
    let least = RUN_MIN.min(least) as usize;
    for run in runs(acked) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let Some(at) = leases.iter().position(|lease| lease.has(first) && lease.has(last)) else { continue };
        let (lease, stretch) = (&leases[at], Stretch { first: first.work_id, last: last.work_id, fence: first.fence });
        if (run.len() < least && stretch != lease.stretch()) || !remove(inner, tx, owner, stretch, kept).await? {
            continue;
        }
        gone.push(stretch);
        let rest = cut(inner, tx, owner, lease, stretch).await?;
        leases.splice(at..=at, rest);
    }
    let is_left = |held: &&Held| !gone.iter().any(|stretch| stretch.has(**held));
    let left = acked.iter().chain(others).filter(is_left);
    let mut firsts: Vec<i64> =
        left.filter_map(|held| leases.iter().find(|lease| lease.has(*held))).map(|lease| lease.first).collect();
    firsts.dedup();
    if !firsts.is_empty() {
        spread(inner, tx, Which::Firsts(firsts)).await?;
    }
    Ok(gone)
}

/// Fewer acknowledged rows than these are not worth cutting a stretch for.
const RUN_MIN: u32 = 16;

/// Runs of one claim without a gap; the rows are sorted.
fn runs(held: &[Held]) -> impl Iterator<Item = &[Held]> {
    held.chunk_by(|one, next| {
        one.fence == next.fence && one.work_id.as_i64().checked_add(1) == Some(next.work_id.as_i64())
    })
}

/// Takes acknowledged rows away, all of them; nothing when one is missing.
async fn remove(
    inner: &Inner,
    tx: &mut SqliteConnection,
    owner: OwnerToken,
    stretch: Stretch,
    kept: Option<Kept>,
) -> Result<bool, StoreError> {
    let (first, last) = (stretch.first.as_i64(), stretch.last.as_i64());
    if let Some(Kept { now, is_receipt }) = kept {
        let shelve = sqlx::query(inner.sql.settle_done_leased.clone()).bind(now).bind(owner.as_uuid()).bind(first);
        shelve.bind(is_receipt).bind(last).execute(&mut *tx).await.map_err(store_error)?;
    }
    let remove = sqlx::query(inner.sql.settle_remove_leased.clone()).bind(first).bind(last);
    Ok(remove.execute(tx).await.map_err(store_error)?.rows_affected() > 0)
}

/// What is left of a stretch without these rows.
async fn cut(
    inner: &Inner,
    tx: &mut SqliteConnection,
    owner: OwnerToken,
    lease: &Leased,
    stretch: Stretch,
) -> Result<Vec<Leased>, StoreError> {
    let Leased { first, last, fence, locked_until } = *lease;
    let (from, to) = (stretch.first.as_i64(), stretch.last.as_i64());
    let ends = [(first < from).then(|| (first, from - 1)), (to < last).then(|| (to + 1, last))];
    let rest: Vec<_> =
        ends.into_iter().flatten().map(|(first, last)| Leased { first, last, fence, locked_until }).collect();
    let left = json!(rest.iter().map(|rest| [rest.first, rest.last]).collect::<Vec<_>>());
    let cut = sqlx::query(inner.sql.lease_cut_and_add.clone()).bind(left.to_string()).bind(fence);
    let cut = cut.bind(owner.as_uuid()).bind(locked_until).bind(first);
    cut.execute(tx).await.map_err(store_error)?;
    Ok(rest)
}

/// What is left of acknowledged messages, and since when.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) now: i64,
    pub(crate) is_receipt: bool,
}

/// Which leases are spread over their rows.
pub(crate) enum Which {
    All,
    /// Those that ran out by this time.
    Lapsed(i64),
    /// Those with the fences in the values of a JSON map.
    Fences(String),
    /// Those that begin with these rows.
    Firsts(Vec<i64>),
}

/// Makes leases of stretches into leases of their rows.
pub(crate) async fn spread(inner: &Inner, tx: &mut SqliteConnection, which: Which) -> Result<(), StoreError> {
    let (fences, lapsed, firsts) = match which {
        Which::All => (None, None, None),
        Which::Lapsed(now) => (None, Some(now), None),
        Which::Fences(fences) => (Some(fences), None, None),
        Which::Firsts(firsts) => (None, None, Some(json!(firsts).to_string())),
    };
    let spread = sqlx::query(inner.sql.lease_spread_and_drop.clone()).bind(fences).bind(lapsed).bind(firsts);
    spread.execute(tx).await.map(drop).map_err(store_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_reads_little_where_stretches_are_short_and_finds_back() {
        assert_eq!(hint(2_000, Some(30)), 60);
        assert_eq!(hint(60, None), 400);
        assert_eq!(hint(hint(400, None), None), 6_400);
        assert_eq!(hint(u32::MAX, None), u32::MAX);
    }

    #[test]
    fn runs_end_at_gaps_and_at_other_claims() {
        let held = |(id, fence): (i64, i64)| Held { work_id: WorkId::from_i64(id), fence: Fence::from_i64(fence) };
        let all = [(1, 1), (2, 1), (4, 1), (5, 2), (6, 2)].map(held);
        assert_eq!(runs(&all).map(<[Held]>::len).collect::<Vec<_>>(), [2, 1, 2]);
        assert_eq!(runs(&[]).count(), 0);
    }

    #[test]
    fn rows_beside_each_other_are_one_stretch() {
        let stretches = |ids: &[i64]| stretches(ids.iter().map(|id| Ok(WorkId::from_i64(*id)))).unwrap();
        assert_eq!(stretches(&[]), [[0; 2]; 0]);
        assert_eq!(stretches(&[7]), [[7, 7]]);
        assert_eq!(stretches(&[7, 8, 9, 11, 13, 14]), [[7, 9], [11, 11], [13, 14]]);
        assert_eq!(stretches(&[i64::MIN, i64::MAX]), [[i64::MIN; 2], [i64::MAX; 2]]);
    }
}
