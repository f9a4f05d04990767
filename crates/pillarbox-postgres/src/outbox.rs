//! Claim, settle, exchange, renew, reap and purge.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use pillarbox_core::floor::Look;
use pillarbox_core::lease::{Claim, Held, Lease};
use pillarbox_core::order::REASON_PARKED;
use pillarbox_core::outbox::{REASON_EXPIRED, REASON_LEASES_LOST, Settled, Verdict};
use pillarbox_core::retention::{PurgeLimit, Retention};
use pillarbox_core::store::{
    Claimed, Enqueue, Enqueued, Exchanged, GuardPlan, OutboxStore, Reap, Reaped, Settlement, StoreOptions,
};
use pillarbox_core::{
    AfterDead, InstanceStore, LeftOut, Order, OwnerToken, PauseStore, ProgressStore, StoreError, StoreId, Wakeups,
    WorkId,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use time::OffsetDateTime;

use crate::enqueue::{self, require_open};
use crate::error::{is_not_whole, store_error};
use crate::instance::PostgresInstances;
use crate::lease::{Brought, NO_STRETCHES};
use crate::notify;
use crate::parameters::micros;
use crate::pause::PostgresPauses;
use crate::progress::PostgresProgress;
use crate::row;
use crate::sql::Statement;
use crate::store::{PgQuery, PostgresStore};

#[async_trait]
impl OutboxStore for PostgresStore {
    fn id(&self) -> &StoreId {
        self.name()
    }

    fn options(&self) -> &StoreOptions {
        self.settings()
    }

    async fn enqueue(&self, enqueue: Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
        self.settings().limits.check(enqueue.messages())?;
        if enqueue.messages().is_empty() {
            return Ok(Vec::new());
        }
        enqueue::standalone(self, enqueue).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, StoreError> {
        let look = self.look(&claim).await?;
        let start = look.above();
        let rows = self
            .fetch(&self.sql().claim, |query| self.bind_plain_claim(query, &claim, start, self.stretches()))
            .await?;
        self.whole_claim(rows, &claim, look).await
    }

    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        let plan = GuardPlan::new(settlements, |settlement| settlement.held)?;
        if plan.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self
            .fetch_verdicts(&self.sql().settle, plan.rows(), |query, columns| self.bind_settle(query, columns, owner))
            .await?;
        self.floor().freed(Instant::now(), plan.freed());
        read_settled(&plan, &rows)
    }

    async fn exchange(&self, settlements: &[Settlement], claim: Claim) -> Result<Exchanged, StoreError> {
        let plan = GuardPlan::new(settlements, |settlement| settlement.held)?;
        if plan.is_empty() {
            return Ok(Exchanged { settled: Vec::new(), claimed: self.claim(claim).await? });
        }
        self.floor().freed(Instant::now(), plan.freed());
        let look = self.look(&claim).await?;
        let (retention, order) = (retention_code(self.settings().retention), order_code(claim.order()));
        let rows = self
            .fetch_verdicts(&self.sql().exchange, plan.rows(), |query, columns| {
                let query = columns.bind(self.bind_claim(query, &claim, look.above()));
                bind_scope(query.bind(retention).bind(order), &claim).bind(self.stretches())
            })
            .await?;
        let mut rows = rows.into_iter();
        let Some(first) = rows.next() else {
            return Err(StoreError::unavailable("the database gave an answer without its first row"));
        };
        let settled = answers(&plan, row::settled(&first)?);
        // What was settled stays so, whatever becomes of the rest: the next claim will tell.
        let claimed = self.whole_claim(rows.collect(), &claim, look).await.unwrap_or_default();
        Ok(Exchanged { settled, claimed })
    }

    async fn renew(&self, owner: OwnerToken, held: &[Held], lease: Duration) -> Result<Vec<Settled>, StoreError> {
        let lease = Lease::new(owner, lease)?;
        let plan = GuardPlan::new(held, |held| *held)?;
        if plan.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.fetch(&self.sql().renew, |query| bind_renew(query, lease, &plan)).await?;
        read_renewed(&plan, &rows)
    }

    async fn reap(&self, reap: Reap) -> Result<Reaped, StoreError> {
        reap.validate()?;
        let lost_leases_max = counter(self.settings().lost_leases_max);
        let look = |is_spread: bool| {
            self.fetch(&self.sql().reap, move |query| {
                query
                    .bind(reap.after.map_or(0, WorkId::as_i64))
                    .bind(i64::from(reap.window))
                    .bind(lost_leases_max)
                    .bind(REASON_EXPIRED)
                    .bind(REASON_LEASES_LOST)
                    .bind((reap.after_dead == AfterDead::Park).then_some(REASON_PARKED))
                    .bind(is_spread)
            })
        };
        let (mut reaped, mut lowest, are_stretches) = read_reaped(&look(false).await?)?;
        if are_stretches {
            // They are leases of rows from now on, so what is done for those is done for them.
            self.fetch(&self.sql().lease_spread, |query| query).await?;
            (reaped, lowest, _) = read_reaped(&look(true).await?)?;
        }
        self.floor().given_back(lowest);
        Ok(reaped)
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        let keep = micros(self.settings().retention.keeps_for().unwrap_or_default());
        self.execute(&self.sql().purge, |query| query.bind(keep).bind(i64::from(limit.get()))).await
    }

    async fn clock(&self) -> Result<Option<SystemTime>, StoreError> {
        let rows = self.fetch(&self.sql().clock, |query| query).await?;
        rows.first().map(|row| row::get::<OffsetDateTime>(row, 0).map(SystemTime::from)).transpose()
    }

    async fn oldest_pending(&self) -> Result<Option<Duration>, StoreError> {
        let rows = self.fetch(&self.sql().leases, |query| query).await?;
        let waited = rows.first().map(|row| row::get::<Option<i64>>(row, 0)).transpose()?.flatten();
        Ok(waited.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))))
    }

    async fn detached(&self) -> Result<Arc<dyn OutboxStore>, StoreError> {
        Ok(Arc::new(self.with_own_pool()))
    }

    fn connection_count(&self) -> usize {
        usize::try_from(self.pool().size()).unwrap_or(usize::MAX)
    }

    async fn close_idle(&self) -> bool {
        let idle = self.kept().take().or_else(|| self.pool().try_acquire());
        let is_idle = idle.is_some();
        if let Some(connection) = idle {
            // One that does not end well is gone as well.
            let _ = connection.close().await;
        }
        is_idle
    }

    fn instances(&self) -> Option<Arc<dyn InstanceStore>> {
        Some(Arc::new(PostgresInstances::beside(self)))
    }

    fn pauses(&self) -> Option<Arc<dyn PauseStore>> {
        Some(Arc::new(PostgresPauses::beside(self)))
    }

    fn progress(&self) -> Option<Arc<dyn ProgressStore>> {
        Some(Arc::new(PostgresProgress::beside(self)))
    }

    async fn wake_others(&self) -> Result<(), StoreError> {
        notify::wake_others(self).await
    }

    async fn listen(&self) -> Result<Option<Box<dyn Wakeups>>, StoreError> {
        notify::listen(self).await
    }
}

impl PostgresStore {
    /// Runs a statement that applies verdicts: as a whole where they are such, and one by one where that was not to be had.
    async fn fetch_verdicts(
        &self,
        statement: &Statement,
        settlements: &[&Settlement],
        bind: impl Fn(PgQuery, &Verdicts<'_>) -> PgQuery,
    ) -> Result<Vec<PgRow>, StoreError> {
        if let Some(columns) = Verdicts::as_a_whole(settlements) {
            match self.fetch(statement, |query| bind(query, &columns)).await {
                Err(error) if is_not_whole(&error) => {}
                answer => return answer,
            }
        }
        let columns = Verdicts::one_by_one(settlements);
        self.fetch(statement, |query| bind(query, &columns)).await
    }

    /// Where a claim starts, which knows the highest row there is where it may have to walk that far.
    async fn look(&self, claim: &Claim) -> Result<Look<'_>, StoreError> {
        let top: Option<i64> = match self.floor().wants_top(claim) {
            true => {
                let rows = self.fetch(&self.sql().top, |query| query).await?;
                rows.first().map(|row| row::get(row, 0)).transpose()?.flatten()
            }
            false => None,
        };
        Ok(self.floor().look(Instant::now(), self.settings().rescan_interval, claim, top.map(WorkId::from_i64)))
    }

    /// What a claim brought, and what it passed by: that is looked for in a second call. Where that one fails, the next claim will
    /// tell; what the first one brought is held.
    async fn whole_claim(
        &self,
        rows: Vec<PgRow>,
        claim: &Claim,
        mut look: Look<'_>,
    ) -> Result<Vec<Claimed>, StoreError> {
        let mut claimed = match self.read_stretches(claim, rows).await? {
            Brought::Rows(rows) => sorted_claimed(&rows, claim)?,
            Brought::Nothing => self.claim_rows(claim, look.above()).await?,
            Brought::Stretches(rows, has_rest) => {
                let mut claimed = sorted_claimed(&rows, claim)?;
                if let Some(part) = claim.remainder(claimed.len()).filter(|_| has_rest) {
                    claimed.extend(self.claim_rows(&part, look.above()).await.unwrap_or_default());
                    claimed.sort_unstable_by_key(|claimed| claimed.held.work_id);
                }
                claimed
            }
        };
        if let Some(rest) = claim.rest(claimed.len())
            && let Some(start) = look.again(highest_row(&claimed))
        {
            let Ok(more) = self.claim_rows(&rest, start).await else { return Ok(claimed) };
            look.brought(&rest, &more, highest_row(&more));
            claimed.extend(more);
            claimed.sort_unstable_by_key(|claimed| claimed.held.work_id);
            return Ok(claimed);
        }
        look.brought(claim, &claimed, highest_row(&claimed));
        Ok(claimed)
    }

    /// Claims row by row.
    async fn claim_rows(&self, claim: &Claim, start: i64) -> Result<Vec<Claimed>, StoreError> {
        let rows = self.fetch(&self.sql().claim, |query| self.bind_plain_claim(query, claim, start, None)).await?;
        sorted_claimed(&rows, claim)
    }

    /// From how many rows on claims lease stretches, if they do. Not where a statement takes several round trips, in between of which this
    /// program might be stopped: all who lease stretches would wait for it.
    fn stretches(&self) -> Option<i32> {
        let may = !self.is_behind_pooler() && !self.has_old_snapshots();
        Some(self.stretch_min()).filter(|least| may && *least != NO_STRETCHES).map(counter)
    }

    /// Applies verdicts through a connection that is inside a transaction. What is given back can be claimed when that commits.
    pub(crate) async fn settle_on(
        &self,
        tx: &mut PgConnection,
        owner: OwnerToken,
        plan: &GuardPlan<'_, Settlement>,
    ) -> Result<Vec<Settled>, StoreError> {
        require_open(tx)?;
        // Not as a whole: an error would end the transaction.
        let columns = Verdicts::one_by_one(plan.rows());
        let query = self.query(&self.sql().settle, |query| self.bind_settle(query, &columns, owner));
        let rows = query.fetch_all(tx).await.map_err(store_error);
        self.notice_if_foreign(&rows);
        read_settled(plan, &rows?)
    }

    /// Renews through a connection that is inside a transaction.
    pub(crate) async fn renew_on(
        &self,
        tx: &mut PgConnection,
        lease: Lease,
        plan: &GuardPlan<'_, Held>,
    ) -> Result<Vec<Settled>, StoreError> {
        let rows = self.query(&self.sql().renew, |query| bind_renew(query, lease, plan)).fetch_all(tx).await;
        let rows = rows.map_err(store_error);
        self.notice_if_foreign(&rows);
        read_renewed(plan, &rows?)
    }

    /// Claims through a connection that is inside a transaction. Leaves the floor alone: the claim may be undone.
    pub(crate) async fn claim_on(&self, tx: &mut PgConnection, claim: &Claim) -> Result<Vec<Claimed>, StoreError> {
        let rows =
            self.query(&self.sql().claim, |query| self.bind_plain_claim(query, claim, 0, None)).fetch_all(tx).await;
        let rows = rows.map_err(store_error);
        self.notice_if_foreign(&rows);
        sorted_claimed(&rows?, claim)
    }

    fn bind_plain_claim(&self, query: PgQuery, claim: &Claim, start: i64, stretches: Option<i32>) -> PgQuery {
        bind_scope(self.bind_claim(query, claim, start).bind(order_code(claim.order())), claim).bind(stretches)
    }

    fn bind_settle(&self, query: PgQuery, columns: &Verdicts<'_>, owner: OwnerToken) -> PgQuery {
        columns.bind(query).bind(owner.as_uuid()).bind(retention_code(self.settings().retention))
    }

    fn bind_claim(&self, query: PgQuery, claim: &Claim, start: i64) -> PgQuery {
        query
            .bind(claim.owner().as_uuid())
            .bind(claim.lease().fence().as_i64())
            .bind(micros(claim.lease().duration()))
            .bind(i64::from(claim.limit()))
            .bind(start)
            .bind(counter(self.settings().lost_leases_max))
    }
}

/// The highest row that the claim has walked to. One that waited on the shelf may stand anywhere above that; where all have a
/// due time, it is not known which.
fn highest_row(claimed: &[Claimed]) -> Option<WorkId> {
    let has_waited = |claimed: &&Claimed| claimed.message.as_ref().is_ok_and(|message| message.due().is_some());
    let walked = claimed.iter().rev().find(|claimed| !has_waited(claimed));
    walked.or_else(|| claimed.last()).map(|highest| highest.held.work_id)
}

fn sorted_claimed(rows: &[PgRow], claim: &Claim) -> Result<Vec<Claimed>, StoreError> {
    let fence = claim.lease().fence();
    let mut claimed = rows.iter().map(|row| row::claimed(row, fence)).collect::<Result<Vec<_>, _>>()?;
    claimed.sort_unstable_by_key(|claimed| claimed.held.work_id);
    Ok(claimed)
}

fn bind_renew(query: PgQuery, lease: Lease, plan: &GuardPlan<'_, Held>) -> PgQuery {
    let ids: Vec<i64> = plan.rows().iter().map(|held| held.work_id.as_i64()).collect();
    let fences: Vec<i64> = plan.rows().iter().map(|held| held.fence.as_i64()).collect();
    query.bind(ids).bind(fences).bind(lease.owner().as_uuid()).bind(micros(lease.duration()))
}

fn read_renewed(plan: &GuardPlan<'_, Held>, rows: &[PgRow]) -> Result<Vec<Settled>, StoreError> {
    let renewed = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>().map_err(store_error)?;
    Ok(plan.answers(renewed.into_iter().map(WorkId::from_i64)))
}

fn read_settled(plan: &GuardPlan<'_, Settlement>, rows: &[PgRow]) -> Result<Vec<Settled>, StoreError> {
    let applied = rows.first().map(|row| row.try_get(0)).transpose().map_err(store_error)?;
    Ok(answers(plan, applied.flatten()))
}

/// The database answers the rows that changed, or nothing when all did.
fn answers(plan: &GuardPlan<'_, Settlement>, applied: Option<Vec<i64>>) -> Vec<Settled> {
    plan.answers_or_all(applied.map(|applied| applied.into_iter().map(WorkId::from_i64)))
}

/// Settlements as columns, in one of the two forms that the statement takes.
struct Verdicts<'s> {
    ids: Vec<i64>,
    fences: Vec<i64>,
    codes: Option<Vec<i16>>,
    delays: Option<Vec<i64>>,
    reasons: Option<Vec<Option<Cow<'s, str>>>>,
}

/// Acknowledged rows are walked through where not many others lie between them: one costs an eighth of a search.
const SPAN_PER_ROW: usize = 8;

impl<'s> Verdicts<'s> {
    /// The first row and how many are meant, and the fences of all rows from there on. Only for acknowledged ones, which are
    /// sorted by their rows, each named once.
    fn as_a_whole(settlements: &[&'s Settlement]) -> Option<Self> {
        let row = |settlement: &Settlement| settlement.held.work_id.as_i64();
        let (first, last) = (row(settlements.first()?), row(settlements.last()?));
        let span = usize::try_from(last.checked_sub(first)?).ok()?.checked_add(1)?;
        let is_ack = |settlement: &&Settlement| settlement.verdict == Verdict::Ack;
        if span > settlements.len() * SPAN_PER_ROW || !settlements.iter().all(is_ack) {
            return None;
        }
        let mut fences = vec![0; span];
        for settlement in settlements {
            let place = usize::try_from(row(settlement) - first).ok()?;
            *fences.get_mut(place)? = settlement.held.fence.as_i64();
        }
        let count = i64::try_from(settlements.len()).ok()?;
        Some(Self { ids: vec![first, count], fences, codes: None, delays: None, reasons: None })
    }

    fn one_by_one(settlements: &[&'s Settlement]) -> Self {
        let reasons: Vec<_> = settlements.iter().map(|settlement| settlement.verdict.reason()).collect();
        Self {
            ids: settlements.iter().map(|settlement| settlement.held.work_id.as_i64()).collect(),
            fences: settlements.iter().map(|settlement| settlement.held.fence.as_i64()).collect(),
            codes: Some(settlements.iter().map(|settlement| verdict_code(&settlement.verdict)).collect()),
            delays: Some(settlements.iter().map(|settlement| micros(settlement.verdict.delay())).collect()),
            reasons: reasons.iter().any(Option::is_some).then_some(reasons),
        }
    }

    fn bind(&self, query: PgQuery) -> PgQuery {
        query.bind(&self.ids).bind(&self.fences).bind(&self.codes).bind(&self.delays).bind(&self.reasons)
    }
}

fn verdict_code(verdict: &Verdict) -> i16 {
    match verdict {
        Verdict::Ack => 0,
        Verdict::Fail { .. } => 1,
        Verdict::Abandon { .. } => 2,
        Verdict::Release { .. } => 3,
    }
}

fn retention_code(retention: Retention) -> i16 {
    match retention {
        Retention::Delete => 0,
        Retention::Receipt(_) => 1,
        Retention::Message(_) => 2,
    }
}

fn order_code(order: Order) -> i32 {
    i32::from(order.after_dead.holds_back()) + 2 * i32::from(order.in_sequence)
}

/// What a reap did, the lowest row that came free, and whether it did nothing because leases of stretches ran out.
fn read_reaped(rows: &[PgRow]) -> Result<(Reaped, Option<WorkId>, bool), StoreError> {
    let Some(row) = rows.first() else { return Ok(Default::default()) };
    let count = |index: usize| row::get::<i64>(row, index).map(i64::unsigned_abs);
    let id = |index: usize| row::get::<Option<i64>>(row, index).map(|id| id.map(WorkId::from_i64));
    let reaped = Reaped { released: count(0)?, lost: count(1)?, expired: count(2)?, parked: count(5)?, next: id(4)? };
    Ok((reaped, id(3)?, row::get(row, 6)?))
}

fn counter(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// The partitions that are served, and the topics that are left out.
fn bind_scope(query: PgQuery, claim: &Claim) -> PgQuery {
    let topics = |left_out: &LeftOut| left_out.topics().map(str::to_owned).collect::<Vec<_>>();
    query.bind(claim.served().map(|served| served.as_bytes().to_vec())).bind(claim.left_out().map(topics))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillarbox_core::Fence;

    fn sent(settlements: &[(i64, Verdict)]) -> (Vec<i64>, Vec<i64>, bool) {
        let settlement = |(id, verdict): &(i64, Verdict)| {
            let held = Held { work_id: WorkId::from_i64(*id), fence: Fence::from_i64(id.wrapping_mul(10)) };
            Settlement { held, verdict: verdict.clone() }
        };
        let settlements: Vec<_> = settlements.iter().map(settlement).collect();
        let settlements: Vec<_> = settlements.iter().collect();
        let columns = Verdicts::as_a_whole(&settlements).unwrap_or_else(|| Verdicts::one_by_one(&settlements));
        (columns.ids, columns.fences, columns.codes.is_none())
    }

    /// H9: a row between two that were acknowledged is nobody's.
    #[test]
    fn acknowledged_rows_that_lie_beside_each_other_are_sent_as_one_stretch() {
        let acks = |ids: &[i64]| ids.iter().map(|id| (*id, Verdict::Ack)).collect::<Vec<_>>();
        assert_eq!(sent(&acks(&[7])), (vec![7, 1], vec![70], true));
        assert_eq!(sent(&acks(&[7, 8, 10])), (vec![7, 3], vec![70, 80, 0, 100], true));
        assert_eq!(sent(&acks(&[1, 17])), (vec![1, 17], vec![10, 170], false), "too far apart");
        assert_eq!(sent(&acks(&[i64::MIN, i64::MAX])).0, [i64::MIN, i64::MAX]);
        let mixed = [(1, Verdict::Ack), (2, Verdict::Release { delay: Duration::ZERO })];
        assert_eq!(sent(&mixed), (vec![1, 2], vec![10, 20], false));
    }
}
