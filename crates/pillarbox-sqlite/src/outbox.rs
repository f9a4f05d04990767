//! Claim, settle, renew, reap and purge. Binds, runs and reads; what must happen is decided elsewhere.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use pillarbox_core::floor::Look;
use pillarbox_core::lease::{Claim, Held, Lease, Stretch};
use pillarbox_core::order::{AfterDead, REASON_PARKED};
use pillarbox_core::outbox::{REASON_EXPIRED, REASON_LEASES_LOST};
use pillarbox_core::retention::{PurgeLimit, Retention};
use pillarbox_core::store::{
    Claimed, Enqueue, Enqueued, Exchanged, GuardPlan, OutboxStore, Reap, Reaped, Settlement, StoreOptions,
};
use pillarbox_core::{
    Fence, InstanceStore, LeftOut, OwnerToken, PauseStore, ProgressStore, Served, Settled, StoreError, StoreId,
    Verdict, WorkId,
};
use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::{SqlStr, SqliteConnection};
use uuid::Uuid;

use crate::enqueue::{enqueue_within, require_open};
use crate::error::store_error;
use crate::instance::SqliteInstances;
use crate::lease::{self, Kept, Which};
use crate::pause::SqlitePauses;
use crate::progress::SqliteProgress;
use crate::row::{self, claimed, claimed_whole, id_list, id_map, micros, work_id};
use crate::store::{Inner, Moment, SqliteStore, at_now, burst};

#[async_trait]
impl OutboxStore for SqliteStore {
    fn id(&self) -> &StoreId {
        &self.inner.id
    }

    fn options(&self) -> &StoreOptions {
        &self.inner.options
    }

    async fn enqueue(&self, enqueue: Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
        self.options().limits.check(enqueue.messages())?;
        if enqueue.messages().is_empty() {
            return Ok(Vec::new());
        }
        let copy = enqueue.copied();
        self.write(move |inner, tx| Box::pin(async move { enqueue_within(inner, tx, copy.call()).await })).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, StoreError> {
        let look = self.look(&claim).await?;
        let start = start_of(look.as_ref());
        let claimed = match self.inner.has_more.load(Ordering::Relaxed) || self.finds(&claim, start).await? {
            true => {
                let claim = claim.clone();
                let take = async move |inner: &Inner, tx: &mut SqliteConnection| {
                    let moment = Moment::read(inner, tx).await?;
                    claim_within(inner, tx, moment, claim, start).await
                };
                self.write(move |inner, tx| Box::pin(take(inner, tx))).await?
            }
            false => Vec::new(),
        };
        self.note_claimed(&claim, &claimed, look);
        Ok(claimed)
    }

    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        let plan = GuardPlan::new(settlements, |settlement| settlement.held)?;
        if plan.is_empty() {
            return Ok(Vec::new());
        }
        let verdicts = Verdicts::new(owner, &plan, self.inner.options.retention);
        let applied = self.write(move |inner, tx| Box::pin(verdicts.apply_now(inner, tx))).await?;
        self.inner.floor.freed(Instant::now(), plan.freed());
        Ok(plan.answers_or_all(applied))
    }

    async fn exchange(&self, settlements: &[Settlement], claim: Claim) -> Result<Exchanged, StoreError> {
        let plan = GuardPlan::new(settlements, |settlement| settlement.held)?;
        if plan.is_empty() {
            return Ok(Exchanged { settled: Vec::new(), claimed: self.claim(claim).await? });
        }
        let verdicts = Verdicts::new(claim.owner(), &plan, self.inner.options.retention);
        self.inner.floor.freed(Instant::now(), plan.freed());
        let look = self.look(&claim).await?;
        let (start, next) = (start_of(look.as_ref()), claim.clone());
        let (applied, claimed) = self
            .write(move |inner, tx| {
                Box::pin(async move {
                    let moment = Moment::read(inner, tx).await?;
                    let applied = verdicts.apply(inner, tx, moment.now).await?;
                    Ok((applied, claim_within(inner, tx, moment, next, start).await?))
                })
            })
            .await?;
        self.note_claimed(&claim, &claimed, look);
        Ok(Exchanged { settled: plan.answers_or_all(applied), claimed })
    }

    async fn renew(&self, owner: OwnerToken, held: &[Held], lease: Duration) -> Result<Vec<Settled>, StoreError> {
        let lease = Lease::new(owner, lease)?;
        let plan = GuardPlan::new(held, |held| *held)?;
        if plan.is_empty() {
            return Ok(Vec::new());
        }
        let fences = fences(plan.rows().iter().copied());
        let renew = self.write_at_now(move |inner, tx, at| Box::pin(renew_within(inner, tx, at.now, lease, fences)));
        Ok(plan.answers(renew.await?))
    }

    async fn reap(&self, reap: Reap) -> Result<Reaped, StoreError> {
        reap.validate()?;
        let after = reap.after.map_or(i64::MIN, WorkId::as_i64);
        let look = sqlx::query(self.inner.sql.reap_look.clone()).bind(after).bind(reap.window);
        let parked = (reap.after_dead == AfterDead::Park).then_some(REASON_PARKED);
        let look =
            look.bind(reap.after.is_none()).bind(parked.is_some()).fetch_one(self.pool()).await.map_err(store_error)?;
        let (seen, last): (u32, Option<i64>) = (row::get(&look, 0)?, row::get(&look, 1)?);
        let next = last.filter(|_| seen >= reap.window).map(WorkId::from_i64);
        let (needs_work, has_expired_waiting): (bool, bool) = (row::get(&look, 2)?, row::get(&look, 3)?);
        let has_parked_waiting: bool = row::get(&look, 4)?;
        if !needs_work && !has_expired_waiting && !has_parked_waiting {
            return Ok(Reaped { next, ..Reaped::default() });
        }
        let reaped = self
            .write_at_now(move |inner, tx, Moment { now, .. }| {
                Box::pin(async move {
                    if needs_work {
                        // What these statements take for free may be part of a stretch.
                        lease::spread(inner, tx, Which::All).await?;
                    }
                    let mut parked_count = 0;
                    if has_parked_waiting {
                        let park = sqlx::query(inner.sql.reap_park.clone()).bind(now).bind(parked).bind(reap.window);
                        parked_count = park.execute(&mut *tx).await.map_err(store_error)?.rows_affected();
                    }
                    let mut reaped = match last.filter(|_| needs_work) {
                        Some(last) => reap_live(inner, tx, now, (after, last), parked).await?,
                        None => Reaped::default(),
                    };
                    reaped.parked += parked_count;
                    if has_expired_waiting {
                        let expire = sqlx::query(inner.sql.reap_waiting.clone()).bind(now).bind(REASON_EXPIRED);
                        let done = expire.bind(reap.window).execute(tx).await.map_err(store_error)?;
                        reaped.expired += done.rows_affected();
                    }
                    Ok(reaped)
                })
            })
            .await?;
        Ok(Reaped { next, ..reaped })
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        let keep = micros(self.inner.options.retention.keeps_for().unwrap_or_default());
        let look = sqlx::query(self.inner.sql.purge_look.clone()).bind(keep);
        let found = look.fetch_one(self.pool()).await.map_err(store_error)?;
        if !row::get::<bool>(&found, 0)? {
            return Ok(0);
        }
        self.write_at_now(move |inner, tx, Moment { now, .. }| {
            Box::pin(async move {
                let purge = sqlx::query(inner.sql.purge.clone()).bind(now).bind(keep).bind(limit.get());
                Ok(purge.execute(tx).await.map_err(store_error)?.rows_affected())
            })
        })
        .await
    }

    async fn clock(&self) -> Result<Option<SystemTime>, StoreError> {
        let look = sqlx::query(self.inner.sql.clock.clone());
        row::time(&look.fetch_one(self.pool()).await.map_err(store_error)?, 0)
    }

    async fn oldest_pending(&self) -> Result<Option<Duration>, StoreError> {
        let look = sqlx::query(self.inner.sql.leases.clone()).fetch_one(self.pool()).await.map_err(store_error)?;
        let waited: Option<i64> = row::get(&look, 2)?;
        Ok(waited.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))))
    }

    async fn detached(&self) -> Result<Arc<dyn OutboxStore>, StoreError> {
        Ok(Arc::new(self.with_own_pool()))
    }

    fn instances(&self) -> Option<Arc<dyn InstanceStore>> {
        Some(Arc::new(SqliteInstances::beside(self)))
    }

    fn pauses(&self) -> Option<Arc<dyn PauseStore>> {
        Some(Arc::new(SqlitePauses::beside(self)))
    }

    fn progress(&self) -> Option<Arc<dyn ProgressStore>> {
        Some(Arc::new(SqliteProgress::beside(self)))
    }
}

impl SqliteStore {
    /// Where a claim starts. One that leaves nothing out finds its rows at the start of the table.
    async fn look(&self, claim: &Claim) -> Result<Option<Look<'_>>, StoreError> {
        let floor = &self.inner.floor;
        let wants_top = floor.wants_top(claim);
        if claim.left_out().is_none() {
            return Ok(None);
        }
        let top = if wants_top { self.top().await? } else { None };
        Ok(Some(floor.look(Instant::now(), self.inner.options.rescan_interval, claim, top)))
    }

    /// Whether a claim would find something. Without the write lock: an idle store is in nobody's way.
    async fn finds(&self, claim: &Claim, start: i64) -> Result<bool, StoreError> {
        let look = sqlx::query(self.inner.sql.claim_look.clone()).bind(self.inner.options.lost_leases_max);
        let look = look.bind(claim.order().after_dead.holds_back()).bind(claim.served().map(Served::as_bytes));
        let look = look.bind(left_out(claim)).bind(start);
        row::get(&look.fetch_one(self.pool()).await.map_err(store_error)?, 0)
    }

    /// Takes note of what a claim brought, for the next one.
    fn note_claimed(&self, claim: &Claim, claimed: &[Claimed], look: Option<Look<'_>>) {
        let is_full = claimed.len() >= claim.limit() as usize;
        self.inner.has_more.store(is_full, Ordering::Relaxed);
        if let Some(look) = look {
            look.brought(claim, claimed, claimed.last().map(|last| last.held.work_id));
        }
    }

    /// The highest row there is.
    async fn top(&self) -> Result<Option<WorkId>, StoreError> {
        let top = sqlx::query(self.inner.sql.top.clone()).fetch_one(self.pool()).await.map_err(store_error)?;
        Ok(row::get::<Option<i64>>(&top, 0)?.map(WorkId::from_i64))
    }

    /// Applies verdicts through a connection that is inside a transaction.
    pub(crate) async fn settle_on(
        &self,
        tx: &mut SqliteConnection,
        owner: OwnerToken,
        plan: &GuardPlan<'_, Settlement>,
    ) -> Result<Vec<Settled>, StoreError> {
        require_open(tx).await?;
        let verdicts = Verdicts::new(owner, plan, self.inner.options.retention);
        Ok(plan.answers_or_all(verdicts.apply_now(&self.inner, tx).await?))
    }
}

/// The row above which a claim starts; rows written by hand may have any number.
fn start_of(look: Option<&Look<'_>>) -> i64 {
    look.map(Look::above).filter(|above| *above != 0).unwrap_or(i64::MIN)
}

/// Makes leases last as long as this one from now; a renewal keeps its fence.
pub(crate) async fn renew_within(
    inner: &Inner,
    tx: &mut SqliteConnection,
    now: i64,
    lease: Lease,
    fences: String,
) -> Result<Vec<WorkId>, StoreError> {
    lease::spread(inner, tx, Which::Fences(fences.clone())).await?;
    let renew = sqlx::query(inner.sql.renew.clone()).bind(now).bind(lease.owner().as_uuid()).bind(fences);
    let rows = renew.bind(micros(lease.duration())).fetch_all(tx).await.map_err(store_error)?;
    rows.iter().map(work_id).collect()
}

/// Takes what waited for its time first, then what lies in the live table, and remembers the moment if anything was written.
pub(crate) async fn claim_within(
    inner: &Inner,
    tx: &mut SqliteConnection,
    moment: Moment,
    claim: Claim,
    start: i64,
) -> Result<Vec<Claimed>, StoreError> {
    let fence = claim.lease().fence();
    match claim.order().in_sequence {
        true if moment.has_leases => lease::spread(inner, tx, Which::All).await?,
        false if moment.has_lapsed => lease::spread(inner, tx, Which::Lapsed(moment.now)).await?,
        _ => {}
    }
    let take = |sql: &SqlStr, limit: u32| {
        let query = sqlx::query(sql.clone())
            .bind(moment.now)
            .bind(claim.owner().as_uuid())
            .bind(fence.as_i64())
            .bind(micros(claim.lease().duration()))
            .bind(limit)
            .bind(inner.options.lost_leases_max)
            .bind(claim.order().after_dead.holds_back());
        match claim.order().in_sequence {
            true => query,
            false => query.bind(claim.served().map(|served| served.as_bytes().to_vec())),
        }
    };
    let (waiting, live) = match claim.order().in_sequence {
        true => (&inner.sql.claim_sequence_waiting, &inner.sql.claim_sequence),
        false => (&inner.sql.claim_waiting, &inner.sql.claim_and_tick),
    };
    // Those that waited come whatever their topic: on the shelf nothing would keep a claim from walking over them each time.
    let mut taken: Vec<Claimed> = Vec::new();
    if moment.is_waited_for {
        let rows = take(waiting, claim.limit()).fetch_all(&mut *tx).await.map_err(store_error)?;
        taken = read_claimed(inner, tx, &rows, fence).await?;
    }
    if !taken.is_empty() {
        let ids = id_list(taken.iter().map(|claimed| claimed.held.work_id));
        sqlx::query(inner.sql.leave_shelf.clone()).bind(ids).execute(&mut *tx).await.map_err(store_error)?;
    }
    let rest = claim.limit().saturating_sub(u32::try_from(taken.len()).unwrap_or(u32::MAX));
    let mut beside = lease::claim(inner, tx, moment, &claim, (start, rest)).await?;
    let room = beside.rest.map_or(0, |_| rest - u32::try_from(beside.claimed.len()).unwrap_or(rest));
    let (start, has_ticked) = (beside.rest.unwrap_or(start), !beside.claimed.is_empty());
    taken.append(&mut beside.claimed);
    if room > 0 {
        let live = match claim.order().in_sequence {
            true => take(live, room),
            false => take(live, room).bind(left_out(&claim)).bind(start).bind(moment.change_count),
        };
        let rows = burst(live, &mut *tx).await?;
        taken.append(&mut read_claimed(inner, tx, &rows, fence).await?);
    }
    if (room == 0 && !has_ticked) || claim.order().in_sequence {
        moment.remember(inner, tx).await?;
    }
    taken.sort_unstable_by_key(|claimed| claimed.held.work_id);
    Ok(taken)
}

/// What a claim brought. A row that cannot be read in its short form is read whole, so that what is wrong with it has a name.
pub(crate) async fn read_claimed(
    inner: &Inner,
    tx: &mut SqliteConnection,
    rows: &[SqliteRow],
    fence: Fence,
) -> Result<Vec<Claimed>, StoreError> {
    let mut taken = Vec::with_capacity(rows.len());
    for row in rows {
        taken.push(match claimed(row, fence)? {
            Some(claimed) => claimed,
            None => {
                let id = work_id(row)?;
                let get = sqlx::query(inner.sql.get.clone()).bind(id.as_i64()).bind(None::<Uuid>);
                claimed_whole(&get.fetch_one(&mut *tx).await.map_err(store_error)?, fence)?
            }
        });
    }
    Ok(taken)
}

/// The topics that a claim leaves where they are, as JSON.
fn left_out(claim: &Claim) -> Option<String> {
    let as_json = |left_out: &LeftOut| json!(left_out.topics().collect::<Vec<_>>()).to_string();
    claim.left_out().map(as_json)
}

/// Puts right the rows of the live table from `after` to `last`.
async fn reap_live(
    inner: &Inner,
    tx: &mut SqliteConnection,
    now: i64,
    (after, last): (i64, i64),
    parked: Option<&str>,
) -> Result<Reaped, StoreError> {
    let shelve = sqlx::query(inner.sql.reap_shelve.clone()).bind(now).bind(after).bind(last);
    let shelve = shelve.bind(inner.options.lost_leases_max).bind(REASON_EXPIRED).bind(REASON_LEASES_LOST).bind(parked);
    let rows = shelve.fetch_all(&mut *tx).await.map_err(store_error)?;
    let mut reaped = Reaped::default();
    let mut moved = Vec::with_capacity(rows.len());
    for row in &rows {
        match row::get::<&str>(row, 1)? {
            "expired" => reaped.expired += 1,
            "lost" => reaped.lost += 1,
            "parked" => reaped.parked += 1,
            _ => {}
        }
        moved.push(work_id(row)?);
    }
    if !moved.is_empty() {
        let leave = sqlx::query(inner.sql.leave_live.clone()).bind(id_list(moved));
        leave.execute(&mut *tx).await.map_err(store_error)?;
    }
    let release = sqlx::query(inner.sql.reap_release.clone()).bind(now).bind(after).bind(last);
    reaped.released = release.execute(tx).await.map_err(store_error)?.rows_affected();
    Ok(reaped)
}

/// Settlements of one owner, sorted by their rows.
struct Verdicts {
    owner: OwnerToken,
    retention: Retention,
    rows: Vec<Settlement>,
}

impl Verdicts {
    fn new(owner: OwnerToken, plan: &GuardPlan<'_, Settlement>, retention: Retention) -> Self {
        Self { owner, retention, rows: plan.rows().iter().copied().cloned().collect() }
    }

    /// Runs what is needed, at the database's now where a time is written; answers as [`apply`](Self::apply) does.
    async fn apply_now(self, inner: &Inner, tx: &mut SqliteConnection) -> Result<Option<Vec<WorkId>>, StoreError> {
        let is_gone =
            |settlement: &Settlement| settlement.verdict == Verdict::Ack && self.retention == Retention::Delete;
        if self.rows.iter().all(|row| is_gone(row) || is_returned(row)) {
            return self.apply(inner, tx, 0).await;
        }
        at_now(inner, tx, move |inner, tx, moment| Box::pin(self.apply(inner, tx, moment.now))).await
    }

    /// Runs what is needed; answers the rows that were still under the claim, or nothing when all were.
    async fn apply(
        self,
        inner: &Inner,
        tx: &mut SqliteConnection,
        now: i64,
    ) -> Result<Option<Vec<WorkId>>, StoreError> {
        // Few of those that go at once: what was born leased, most often.
        if self.retention == Retention::Delete && self.rows.len() < SHORT {
            let sorted = Sorted::new(self.owner, &self.rows, self.retention);
            if sorted.shelved.is_none() && sorted.remove_stretch(inner, tx).await? {
                return Ok(None);
            }
        }
        let (acked, others): (Vec<&Settlement>, Vec<&Settlement>) =
            self.rows.iter().partition(|settlement| settlement.verdict == Verdict::Ack);
        let [acked, others] = [acked, others].map(|rows| rows.iter().map(|row| row.held).collect::<Vec<_>>());
        let is_receipt = matches!(self.retention, Retention::Receipt(_));
        let kept = (self.retention != Retention::Delete).then_some(Kept { now, is_receipt });
        let gone = lease::settle(inner, tx, self.owner, (&acked, &others), kept).await?;
        let (gone, rest): (Vec<Settlement>, Vec<Settlement>) =
            self.rows.into_iter().partition(|row| gone.iter().any(|stretch| stretch.has(row.held)));
        if rest.is_empty() {
            return Ok(None);
        }
        let applied = Sorted::new(self.owner, &rest, self.retention).apply(inner, tx, now).await?;
        Ok(applied.map(|applied| applied.into_iter().chain(gone.iter().map(|row| row.held.work_id)).collect()))
    }
}

/// So few are looked for by themselves before any stretch is.
const SHORT: usize = 16;

/// Pending again at once.
fn is_returned(settlement: &Settlement) -> bool {
    let verdict = &settlement.verdict;
    matches!(verdict, Verdict::Abandon { .. } | Verdict::Release { .. }) && micros(verdict.delay()) == 0
}

/// Settlements sorted by the statements that they need; each list is JSON, empty ones are not run.
struct Sorted {
    owner: OwnerToken,
    /// Acknowledged and kept.
    done: Option<String>,
    is_receipt: bool,
    /// Dead, or pending with a delay.
    shelved: Option<String>,
    /// All that leave the live table; their fence where they have one in common; and whether they are a stretch.
    removed: Option<String>,
    fence: Option<Fence>,
    stretch: Option<Stretch>,
    /// Pending at once.
    returned: Option<String>,
}

impl Sorted {
    fn new(owner: OwnerToken, rows: &[Settlement], retention: Retention) -> Self {
        let pick = |wanted: &dyn Fn(&Settlement) -> bool| -> Vec<&Settlement> {
            rows.iter().filter(|settlement| wanted(settlement)).collect()
        };
        let acked = pick(&|s| s.verdict == Verdict::Ack && retention != Retention::Delete);
        let shelved = pick(&|s| s.verdict != Verdict::Ack && !is_returned(s));
        let removed = pick(&|s| !is_returned(s));
        let returned = pick(&is_returned);
        let map = |list: &[&Settlement], value: fn(&Settlement) -> String| {
            (!list.is_empty()).then(|| id_map(list.iter().map(|s| (s.held.work_id, value(s)))))
        };
        let left: Vec<Held> = removed.iter().map(|settlement| settlement.held).collect();
        let first = left.first().map(|held| held.fence);
        let fence = first.filter(|fence| left.iter().all(|held| held.fence == *fence));
        let fences = |list: &[&Settlement]| (!list.is_empty()).then(|| fences(list.iter().map(|s| &s.held)));
        Self {
            owner,
            done: fences(&acked),
            is_receipt: matches!(retention, Retention::Receipt(_)),
            shelved: map(&shelved, shelf_entry),
            removed: match fence {
                Some(_) => Some(id_list(left.iter().map(|held| held.work_id))),
                None => fences(&removed),
            },
            fence,
            stretch: Stretch::of(&left),
            returned: map(&returned, |s| {
                json!([s.held.fence.as_i64(), given_back(&s.verdict), reason(&s.verdict)]).to_string()
            }),
        }
    }

    /// Runs what is needed for rows with leases of their own; answers as [`Verdicts::apply`] does.
    async fn apply(
        self,
        inner: &Inner,
        tx: &mut SqliteConnection,
        now: i64,
    ) -> Result<Option<Vec<WorkId>>, StoreError> {
        let owner = self.owner.as_uuid();
        if let Some(done) = &self.done {
            let shelve = sqlx::query(inner.sql.settle_done.clone()).bind(now).bind(owner).bind(done);
            shelve.bind(self.is_receipt).execute(&mut *tx).await.map_err(store_error)?;
        }
        if let Some(shelved) = &self.shelved {
            let shelve = sqlx::query(inner.sql.settle_shelve.clone()).bind(now).bind(owner).bind(shelved);
            shelve.execute(&mut *tx).await.map_err(store_error)?;
        }
        if self.remove_stretch(inner, tx).await? {
            return Ok(None);
        }
        let mut applied = Vec::new();
        let remove = self.removed.map(|list| match self.fence {
            Some(fence) => {
                sqlx::query(inner.sql.settle_remove_claim.clone()).bind(owner).bind(list).bind(fence.as_i64())
            }
            None => sqlx::query(inner.sql.settle_remove.clone()).bind(owner).bind(list),
        });
        let give_back = self.returned.map(|list| sqlx::query(inner.sql.settle_return.clone()).bind(owner).bind(list));
        for query in remove.into_iter().chain(give_back) {
            for row in query.fetch_all(&mut *tx).await.map_err(store_error)? {
                applied.push(work_id(&row)?);
            }
        }
        Ok(Some(applied))
    }

    /// Rows that stand beside each other and go all; not done when one is missing.
    async fn remove_stretch(&self, inner: &Inner, tx: &mut SqliteConnection) -> Result<bool, StoreError> {
        let (Some(Stretch { first, last, fence }), None) = (self.stretch, &self.returned) else { return Ok(false) };
        let remove = sqlx::query(inner.sql.settle_remove_stretch.clone()).bind(self.owner.as_uuid());
        let remove = remove.bind(first.as_i64()).bind(last.as_i64()).bind(fence.as_i64());
        Ok(remove.execute(tx).await.map_err(store_error)?.rows_affected() > 0)
    }
}

pub(crate) fn fences<'a>(held: impl IntoIterator<Item = &'a Held>) -> String {
    id_map(held.into_iter().map(|held| (held.work_id, held.fence.as_i64())))
}

fn shelf_entry(settlement: &Settlement) -> String {
    let Settlement { held, verdict } = settlement;
    let state = if matches!(verdict, Verdict::Fail { .. }) { "dead" } else { "pending" };
    json!([held.fence.as_i64(), state, micros(verdict.delay()), given_back(verdict), reason(verdict)]).to_string()
}

fn given_back(verdict: &Verdict) -> u8 {
    u8::from(matches!(verdict, Verdict::Release { .. }))
}

/// SQLite's text functions stop at a NUL, so it is replaced by the sign for what cannot be shown.
fn reason(verdict: &Verdict) -> Option<String> {
    verdict.reason().map(|reason| reason.replace('\0', "\u{FFFD}"))
}
