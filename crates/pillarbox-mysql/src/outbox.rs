//! Claim, settle, exchange, renew, reap, purge.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use pillarbox_core::floor::Look;
use pillarbox_core::lease::{Claim, Held, Lease, Stretch};
use pillarbox_core::retention::{PurgeLimit, Retention};
use pillarbox_core::store::{
    Claimed, Enqueue, Enqueued, Exchanged, GuardPlan, OutboxStore, Reap, Reaped, Settlement, StoreOptions,
    enqueue_answers,
};
use pillarbox_core::{
    AfterDead, InstanceStore, LeftOut, OwnerToken, PauseStore, ProgressStore, Settled, StoreError, StoreId, Verdict,
    WorkId,
};
use serde_json::json;
use sqlx::mysql::{MySql, MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};
use time::OffsetDateTime;

use crate::enqueue::{TWO_BYTES_OUTSIDE, guard_first, insert};
use crate::error::store_error;
use crate::instance::MysqlInstances;
use crate::parameters::duration_micros;
use crate::pause::MysqlPauses;
use crate::progress::MysqlProgress;
use crate::row::{answers, claimed, get};
use crate::sql::{LIST_MAX, binary, guarded, with_literal, with_number, with_owner};
use crate::store::MysqlStore;

#[async_trait]
impl OutboxStore for MysqlStore {
    fn id(&self) -> &StoreId {
        &self.inner.id
    }

    fn options(&self) -> &StoreOptions {
        &self.inner.options
    }

    async fn enqueue(&self, enqueue: Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
        self.inner.options.limits.check(enqueue.messages())?;
        if enqueue.messages().is_empty() {
            return Ok(Vec::new());
        }
        let (store, copy) = (self.clone(), Arc::new(enqueue.copied()));
        let stored = self.attempt(move |connection| {
            let (store, copy) = (store.clone(), Arc::clone(&copy));
            Box::pin(async move {
                let mut tx = connection.begin_with(AssertSqlSafe(store.inner.sql.begin.as_str())).await?;
                let stored = insert(&store.inner, &mut tx, copy.call()).await?;
                tx.commit().await?;
                Ok(stored)
            })
        });
        Ok(enqueue_answers(&enqueue, stored.await?))
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, StoreError> {
        let look = self.look(&claim).await?;
        let next = self.next(&claim, look.above());
        let rows = self.transact(vec![next.statement]).await?;
        self.whole_claim(&rows, &claim, look).await
    }

    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        let plan = GuardPlan::new(settlements, |settlement| settlement.held)?;
        if plan.is_empty() {
            return Ok(Vec::new());
        }
        let rows = match acks(&plan) {
            Some(held) => self.transact(packed(self.ack_statements(owner, &held), self.script_bytes_max())).await?,
            None => self.settle_bound(owner, &plan, None).await?,
        };
        self.inner.floor.freed(Instant::now(), plan.freed());
        Ok(plan.answers_or_all(applied(&rows)?))
    }

    async fn exchange(&self, settlements: &[Settlement], claim: Claim) -> Result<Exchanged, StoreError> {
        let plan = GuardPlan::new(settlements, |settlement| settlement.held)?;
        self.inner.floor.freed(Instant::now(), plan.freed());
        let look = self.look(&claim).await?;
        let next = self.next(&claim, look.above());
        let owner = claim.owner();
        let rows = match acks(&plan) {
            Some(held) => {
                let mut statements = self.ack_statements(owner, &held);
                statements.push(next.statement);
                self.transact(packed(statements, self.script_bytes_max())).await?
            }
            None => self.settle_bound(owner, &plan, Some(next)).await?,
        };
        let claimed = self.whole_claim(&rows, &claim, look).await?;
        Ok(Exchanged { settled: plan.answers_or_all(applied(&rows)?), claimed })
    }

    async fn renew(&self, owner: OwnerToken, held: &[Held], lease: Duration) -> Result<Vec<Settled>, StoreError> {
        let lease = Lease::new(owner, lease)?;
        let plan = GuardPlan::new(held, |held| *held)?;
        if plan.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.transact(self.renew_scripts(lease, &plan)).await?;
        Ok(plan.answers_or_all(applied(&rows)?))
    }

    async fn reap(&self, reap: Reap) -> Result<Reaped, StoreError> {
        reap.validate()?;
        let after = reap.after.map_or_else(|| "NULL".to_owned(), |after| after.as_i64().to_string());
        let sql = with_literal(&self.inner.sql.reap, "NULL /*after*/", &after);
        let sql = with_number(&sql, "1 /*window*/", i64::from(reap.window));
        let sql = with_number(&sql, "0 /*lost_leases_max*/", self.lost_leases_max());
        let park = i64::from(reap.after_dead == AfterDead::Park);
        let rows = self.transact(vec![with_number(&sql, "FALSE /*park*/", park)]).await?;
        let row = rows.first().ok_or_else(|| StoreError::rejected("the reap routine gave no answer"))?;
        self.inner.floor.given_back(get::<Option<i64>>(row, 4)?.map(WorkId::from_i64));
        let count = |column| get::<i64>(row, column).map(|count| u64::try_from(count).unwrap_or(0));
        let next = get::<Option<i64>>(row, 3)?.map(WorkId::from_i64);
        Ok(Reaped { released: count(0)?, lost: count(1)?, expired: count(2)?, parked: count(5)?, next })
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        let keep = self.inner.options.retention.keeps_for().unwrap_or_default();
        self.purge_by(&self.inner.sql.purge, keep, limit).await
    }

    async fn clock(&self) -> Result<Option<SystemTime>, StoreError> {
        let rows = self.transact(vec![self.inner.sql.clock.clone()]).await?;
        rows.first().map(|row| get::<OffsetDateTime>(row, 0).map(SystemTime::from)).transpose()
    }

    async fn oldest_pending(&self) -> Result<Option<Duration>, StoreError> {
        let rows = self.transact(vec![self.inner.sql.leases.clone()]).await?;
        let waited = rows.first().map(|row| get::<Option<i64>>(row, 0)).transpose()?.flatten();
        Ok(waited.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))))
    }

    async fn detached(&self) -> Result<Arc<dyn OutboxStore>, StoreError> {
        Ok(Arc::new(self.with_own_pool()))
    }

    fn connection_count(&self) -> usize {
        usize::try_from(self.pool().size()).unwrap_or(usize::MAX)
    }

    async fn close_idle(&self) -> bool {
        let idle = self.pool().try_acquire();
        let is_idle = idle.is_some();
        if let Some(connection) = idle {
            // One that does not end well is gone as well.
            let _ = connection.close().await;
        }
        is_idle
    }

    fn instances(&self) -> Option<Arc<dyn InstanceStore>> {
        Some(Arc::new(MysqlInstances::beside(self)))
    }

    fn pauses(&self) -> Option<Arc<dyn PauseStore>> {
        Some(Arc::new(MysqlPauses::beside(self)))
    }

    fn progress(&self) -> Option<Arc<dyn ProgressStore>> {
        Some(Arc::new(MysqlProgress::beside(self)))
    }
}

impl MysqlStore {
    /// Removes what is older than `keep`; answers how many rows.
    pub(crate) async fn purge_by(&self, sql: &str, keep: Duration, limit: PurgeLimit) -> Result<u64, StoreError> {
        let sql = with_number(sql, "0 /*keep*/", duration_micros(keep));
        let sql = with_number(&sql, "1 /*limit*/", i64::from(limit.get()));
        let rows = self.transact(vec![format!("{sql};\nSELECT ROW_COUNT()")]).await?;
        let purged: i64 = rows.first().map_or(Ok(0), |row| get(row, 0))?;
        Ok(u64::try_from(purged).unwrap_or(0))
    }

    /// Applies verdicts through a connection that is inside a transaction, in as many round trips as outside of one.
    ///
    /// Refused when the server has ended the transaction behind our back: the verdicts would stand alone (H9).
    pub(crate) async fn settle_on(
        &self,
        tx: &mut MySqlConnection,
        owner: OwnerToken,
        plan: &GuardPlan<'_, Settlement>,
    ) -> Result<Vec<Settled>, StoreError> {
        let inner = &self.inner;
        let mut rows = Vec::new();
        if let Some(held) = acks(plan) {
            // By their list: a walk under the user's own isolation may lock the gap before the first row.
            let mut statements = self.listed_acks(owner, &held);
            statements.insert(0, inner.sql.enqueue_guard.clone());
            for script in packed(statements, self.script_bytes_max()) {
                rows.extend(sqlx::raw_sql(AssertSqlSafe(script)).fetch_all(&mut *tx).await.map_err(store_error)?);
            }
        } else {
            let statement = guard_first(inner, tx, &inner.sql.settle_rows_part, TWO_BYTES_OUTSIDE).await;
            let statement = statement.map_err(store_error)?;
            inner.spares.prepare(&inner.pool.connect_options(), tx, &statement).await.map_err(store_error)?;
            rows = send_parts(tx, &statement, owner, &self.verdicts(plan)).await.map_err(store_error)?;
        }
        Ok(plan.answers_or_all(applied(&rows)?))
    }

    /// Renews through a connection that is known to be inside a transaction.
    pub(crate) async fn renew_on(
        &self,
        tx: &mut MySqlConnection,
        lease: Lease,
        plan: &GuardPlan<'_, Held>,
    ) -> Result<Vec<Settled>, StoreError> {
        let mut rows = Vec::new();
        for script in self.renew_scripts(lease, plan) {
            rows.extend(sqlx::raw_sql(AssertSqlSafe(script)).fetch_all(&mut *tx).await.map_err(store_error)?);
        }
        Ok(plan.answers_or_all(applied(&rows)?))
    }

    /// Claims through a connection that is known to be inside a transaction. Leaves the floor alone: the claim may be undone.
    pub(crate) async fn claim_on(&self, tx: &mut MySqlConnection, claim: &Claim) -> Result<Vec<Claimed>, StoreError> {
        let script = AssertSqlSafe(self.claim_statement(claim, 0));
        let rows = sqlx::raw_sql(script).fetch_all(tx).await.map_err(store_error)?;
        Ok(self.claimed_in(&rows)?.0)
    }

    fn renew_scripts(&self, lease: Lease, plan: &GuardPlan<'_, Held>) -> Vec<String> {
        let held: Vec<Held> = plan.rows().iter().map(|held| **held).collect();
        let (owner, sql) = (lease.owner(), &self.inner.sql);
        let renew = with_number(&sql.renew, "0 /*lease*/", duration_micros(lease.duration()));
        let statements =
            held.chunks(LIST_MAX).flat_map(|held| [guarded(&sql.settle, owner, held), guarded(&renew, owner, held)]);
        packed(statements.collect(), self.script_bytes_max())
    }

    /// Where a claim starts.
    async fn look(&self, claim: &Claim) -> Result<Look<'_>, StoreError> {
        let top = if self.inner.floor.wants_top(claim) { self.top().await? } else { None };
        Ok(self.inner.floor.look(Instant::now(), self.inner.options.rescan_interval, claim, top))
    }

    fn next(&self, claim: &Claim, floor: i64) -> Next {
        Next {
            fence: claim.lease().fence().as_i64(),
            lease: duration_micros(claim.lease().duration()),
            limit: claim.limit(),
            floor,
            order: self.order_bits(claim),
            served: claim.served().map(|served| served.as_bytes().to_vec()),
            left_out: claim.left_out().map(between_zeros),
            statement: self.claim_statement(claim, floor),
        }
    }

    /// The highest row there is.
    async fn top(&self) -> Result<Option<WorkId>, StoreError> {
        let rows = self.transact(vec![self.inner.sql.top.clone()]).await?;
        let top = rows.first().map(|row| get::<Option<i64>>(row, 0)).transpose()?;
        Ok(top.flatten().map(WorkId::from_i64))
    }

    fn claim_statement(&self, claim: &Claim, floor: i64) -> String {
        let sql = with_owner(&self.inner.sql.claim, claim.owner());
        let sql = with_number(&sql, "0 /*fence*/", claim.lease().fence().as_i64());
        let sql = with_number(&sql, "0 /*lease*/", duration_micros(claim.lease().duration()));
        let sql = with_number(&sql, "1 /*limit*/", i64::from(claim.limit()));
        let sql = with_number(&sql, "0 /*floor*/", floor);
        let sql = with_number(&sql, "0 /*lost_leases_max*/", self.lost_leases_max());
        let sql = with_number(&sql, "0 /*order*/", self.order_bits(claim));
        let sql = match claim.served() {
            Some(served) => with_literal(&sql, "NULL /*served*/", &binary(served.as_bytes())),
            None => sql,
        };
        match claim.left_out() {
            Some(left_out) => with_literal(&sql, "NULL /*left_out*/", &binary(&between_zeros(left_out))),
            None => sql,
        }
    }

    /// Acks carry no text, so they travel as plain statements with the ids in them: opening JSON costs the server more.
    fn ack_statements(&self, owner: OwnerToken, held: &[Held]) -> Vec<String> {
        let sql = &self.inner.sql;
        match (Stretch::of(held), self.inner.options.retention) {
            (Some(Stretch { first, fence, .. }), Retention::Delete) => {
                let call = with_number(&with_owner(&sql.settle_stretch, owner), "0 /*fence*/", fence.as_i64());
                let call = with_number(&call, "0 /*first*/", first.as_i64());
                vec![with_literal(&call, "0 /*count*/", &held.len().to_string())]
            }
            _ => self.listed_acks(owner, held),
        }
    }

    fn listed_acks(&self, owner: OwnerToken, held: &[Held]) -> Vec<String> {
        let sql = &self.inner.sql;
        let keep = match self.inner.options.retention {
            Retention::Delete => None,
            Retention::Receipt(_) => Some(&sql.settle_receipt),
            Retention::Message(_) => Some(&sql.settle_done),
        };
        held.chunks(LIST_MAX)
            .flat_map(|held| {
                let steps = [Some(&sql.settle), keep, Some(&sql.settle_delete)];
                steps.into_iter().flatten().map(move |step| guarded(step, owner, held))
            })
            .collect()
    }

    /// Verdicts that carry text are bound as JSON. What exceeds a packet goes in parts, within one transaction.
    async fn settle_bound(
        &self,
        owner: OwnerToken,
        plan: &GuardPlan<'_, Settlement>,
        next: Option<Next>,
    ) -> Result<Vec<MySqlRow>, StoreError> {
        let parts = self.verdicts(plan);
        let store = self.clone();
        let shared = std::sync::Arc::new((parts, next));
        self.attempt(move |connection| {
            let (store, shared) = (store.clone(), shared.clone());
            Box::pin(async move { store.send_bound(connection, owner, &shared.0, shared.1.as_ref()).await })
        })
        .await
    }

    async fn send_bound(
        &self,
        connection: &mut MySqlConnection,
        owner: OwnerToken,
        parts: &[String],
        next: Option<&Next>,
    ) -> Result<Vec<MySqlRow>, sqlx::Error> {
        let sql = &self.inner.sql;
        match (parts, next) {
            ([_], None) => send_parts(connection, &sql.settle_rows, owner, parts).await,
            ([part], Some(next)) => {
                part_query(&sql.exchange, owner, part)
                    .bind(next.fence)
                    .bind(next.lease)
                    .bind(next.limit)
                    .bind(next.floor)
                    .bind(self.lost_leases_max())
                    .bind(next.order)
                    .bind(next.served.clone())
                    .bind(next.left_out.clone())
                    .fetch_all(connection)
                    .await
            }
            (parts, next) => {
                let mut tx = connection.begin_with(AssertSqlSafe(sql.begin.as_str())).await?;
                let mut rows = send_parts(&mut tx, &sql.settle_rows_part, owner, parts).await?;
                if let Some(next) = next {
                    let claim = AssertSqlSafe(next.statement.as_str());
                    rows.extend(sqlx::raw_sql(claim).fetch_all(&mut *tx).await?);
                }
                tx.commit().await?;
                Ok(rows)
            }
        }
    }

    /// The verdicts as JSON arrays, each within half a packet.
    fn verdicts(&self, plan: &GuardPlan<'_, Settlement>) -> Vec<String> {
        let ack = match self.inner.options.retention {
            Retention::Delete => "delete",
            Retention::Receipt(_) => "receipt",
            Retention::Message(_) => "keep",
        };
        let entries = plan.rows().iter().map(|settlement| {
            let Held { work_id, fence } = settlement.held;
            let verdict = &settlement.verdict;
            let word = match verdict {
                Verdict::Ack => ack,
                Verdict::Abandon { .. } => "abandon",
                Verdict::Release { .. } => "release",
                Verdict::Fail { .. } => "fail",
            };
            let delay = duration_micros(verdict.delay());
            json!([work_id.as_i64(), fence.as_i64(), word, delay, verdict.reason()]).to_string()
        });
        let joined = join(entries, ",", self.script_bytes_max());
        joined.into_iter().map(|part| format!("[{part}]")).collect()
    }

    /// What a claim brought, and what it passed by or put into the lane: that is looked for in another call. Where that one
    /// fails, the next claim will tell; what the first one brought is held.
    async fn whole_claim(
        &self,
        rows: &[MySqlRow],
        claim: &Claim,
        mut look: Look<'_>,
    ) -> Result<Vec<Claimed>, StoreError> {
        let (mut taken, mut highest) = self.claimed_in(rows)?;
        let mut has_registered = self.registered(rows);
        for _ in 0..LOOKS_MAX {
            let Some(rest) = claim.rest(taken.len()) else { break };
            let start = if has_registered { Some(look.above()) } else { look.again(highest) };
            let Some(start) = start else { break };
            let more = self.transact(vec![self.next(&rest, start).statement]).await;
            let more = more.and_then(|rows| Ok((self.claimed_in(&rows)?, self.registered(&rows))));
            let Ok(((more, more_highest), registered)) = more else {
                taken.sort_by_key(|message| message.held.work_id);
                return Ok(taken);
            };
            // Above what the first look brought there may be what this one had no room for.
            highest = if has_registered { more_highest.or(highest) } else { more_highest };
            has_registered = registered;
            taken.extend(more);
        }
        taken.sort_by_key(|message| message.held.work_id);
        look.brought(claim, &taken, highest);
        Ok(taken)
    }

    /// Whether a claim found messages with keys that somebody inserted by hand. They can be claimed now. Notes that there are keys.
    fn registered(&self, rows: &[MySqlRow]) -> bool {
        if rows.iter().any(|row| answers(row, "met")) {
            self.inner.has_keys.store(true, Ordering::Relaxed);
        }
        rows.iter().any(|row| answers(row, "registered"))
    }

    /// The messages of a claim, sorted, and the highest row of those that had not waited.
    fn claimed_in(&self, rows: &[MySqlRow]) -> Result<(Vec<Claimed>, Option<WorkId>), StoreError> {
        let mut taken = Vec::new();
        let mut highest = None;
        for row in rows.iter().filter(|row| answers(row, "id")) {
            let message = claimed(row)?;
            // Those that waited may stand far ahead of the backlog.
            if get::<i64>(row, 24)? == 0 {
                highest = highest.max(Some(message.held.work_id));
            }
            taken.push(message);
        }
        if taken.iter().any(Claimed::has_key) {
            self.inner.has_keys.store(true, Ordering::Relaxed);
        }
        taken.sort_by_key(|message| message.held.work_id);
        Ok((taken, highest))
    }

    /// The order as the routine takes it. The third bit spares it the look whether there are keys at all: many settled
    /// messages with keys, kept in the lane by somebody's old snapshot, would make that look long. The last asks for an answer
    /// when some were met all the same, and when some were put into the lane.
    fn order_bits(&self, claim: &Claim) -> i64 {
        let order = claim.order();
        let has_keys = self.inner.has_keys.load(Ordering::Relaxed);
        let bits = [order.after_dead.holds_back(), order.in_sequence, has_keys, true];
        bits.into_iter().rev().fold(0, |bits, bit| bits << 1 | i64::from(bit))
    }

    fn lost_leases_max(&self) -> i64 {
        i64::from(self.inner.options.lost_leases_max.min(i32::MAX.unsigned_abs()))
    }

    /// Half a packet: the rest is for what surrounds the text.
    fn script_bytes_max(&self) -> usize {
        self.inner.server.packet_bytes_max / 2
    }
}

/// Further looks of one claim.
const LOOKS_MAX: u32 = 4;

async fn send_parts(
    connection: &mut MySqlConnection,
    statement: &str,
    owner: OwnerToken,
    parts: &[String],
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    let mut rows = Vec::new();
    for part in parts {
        rows.extend(part_query(statement, owner, part).fetch_all(&mut *connection).await?);
    }
    Ok(rows)
}

fn part_query(statement: &str, owner: OwnerToken, part: &str) -> Query<'static, MySql, MySqlArguments> {
    sqlx::query(AssertSqlSafe(statement)).bind(owner.as_uuid()).bind(part.as_bytes().to_vec())
}

/// A claim: its arguments, and the statement that holds them.
struct Next {
    fence: i64,
    lease: i64,
    limit: u32,
    floor: i64,
    order: i64,
    served: Option<Vec<u8>>,
    left_out: Option<Vec<u8>>,
    statement: String,
}

/// Topics as the routine looks for them: bytes, so that no collation takes one for another.
fn between_zeros(left_out: &LeftOut) -> Vec<u8> {
    left_out.topics().fold(vec![0], |mut bytes, topic| {
        bytes.extend_from_slice(topic.as_bytes());
        bytes.push(0);
        bytes
    })
}

/// The rows of a call that holds nothing but acks.
fn acks(plan: &GuardPlan<'_, Settlement>) -> Option<Vec<Held>> {
    let held = |settlement: &&Settlement| (settlement.verdict == Verdict::Ack).then_some(settlement.held);
    plan.rows().iter().map(held).collect()
}

/// The rows that were still under their claims, or nothing when all were.
fn applied(rows: &[MySqlRow]) -> Result<Option<Vec<WorkId>>, StoreError> {
    if let Some(stretch) = rows.iter().find(|row| answers(row, "stretch")) {
        let unreadable = |_| StoreError::rejected("a settlement answered no settled ids");
        let ids: Option<Vec<u8>> = get(stretch, 0)?;
        let ids: Option<Vec<i64>> = ids.map(|ids| serde_json::from_slice(&ids).map_err(unreadable)).transpose()?;
        return Ok(ids.map(|ids| ids.into_iter().map(WorkId::from_i64).collect()));
    }
    let ids = rows.iter().filter(|row| answers(row, "applied")).map(|row| get(row, 0).map(WorkId::from_i64));
    ids.collect::<Result<Vec<_>, _>>().map(Some)
}

/// Joins statements into as few scripts as packets allow.
fn packed(statements: Vec<String>, bytes_max: usize) -> Vec<String> {
    join(statements, ";\n", bytes_max)
}

fn join(pieces: impl IntoIterator<Item = String>, separator: &str, bytes_max: usize) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if last.len() + piece.len() < bytes_max => {
                last.push_str(separator);
                last.push_str(&piece);
            }
            _ => joined.push(piece),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_packed_as_far_as_they_fit() {
        let pieces = ["aaa", "bbb", "ccc"].map(String::from);
        assert_eq!(join(pieces.clone(), ",", 100), ["aaa,bbb,ccc"]);
        assert_eq!(join(pieces.clone(), ",", 7), ["aaa,bbb", "ccc"]);
        assert_eq!(join(pieces, ",", 1), ["aaa", "bbb", "ccc"]);
    }
}
