//! What the work coordinator does in a transaction that the store began.

use std::collections::HashSet;

use pillarbox_core::inbox::{Incoming, Received};
use pillarbox_core::lease::{Claim, Held, Lease};
use pillarbox_core::progress::{Checkpoint, ReceptorResult, RecordPlan, Recorded};
use pillarbox_core::store::{BoxFuture, Claimed, GuardPlan};
use pillarbox_core::transaction::stale_claim;
use pillarbox_core::{Fence, Isolation, ReceiveIn, Settled, StoreError, WorkTransaction};
use sqlx::mysql::{MySql, MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySqlConnection};
use uuid::Uuid;

use crate::error::store_error;
use crate::inbox::MysqlInbox;
use crate::row::get;
use crate::sql::{ProgressStatements, with_literal};
use crate::store::MysqlStore;
use crate::transaction::MysqlTransaction;

/// Rows in one statement at the most.
const ROWS_MAX: usize = 200;

const RECEPTOR: &str = "(?, ?, ?, ?, 1, UTC_TIMESTAMP(6), ?)";
const CHECKPOINT: &str = "(?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), ?)";
const THAT_RECEPTOR: &str = "(`message_id` = ? AND `receptor` = ?)";
const THAT_CHECKPOINT: &str = "(`stream` = ? AND `perspective` = ?)";

type Bound = Query<'static, MySql, MySqlArguments>;

impl WorkTransaction<MysqlStore> for MysqlTransaction {
    fn claim<'a>(&'a mut self, store: &'a MysqlStore, claim: Claim) -> BoxFuture<'a, Result<Vec<Claimed>, StoreError>> {
        Box::pin(async move { self.run(async |tx: &mut MySqlConnection| store.claim_on(tx, &claim).await).await })
    }

    fn may_claim(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let is_fresh = match self.isolation {
                Isolation::ReadCommitted => true,
                Isolation::OfDatabase => {
                    // The name that both kinds of server have had for it in the versions that are served.
                    let name =
                        if self.store.inner.server.is_mariadb { "tx_isolation" } else { "transaction_isolation" };
                    let ask = format!("SELECT @@{name} = 'READ-COMMITTED'");
                    let asked = self.run(async |tx: &mut MySqlConnection| {
                        sqlx::raw_sql(AssertSqlSafe(ask)).fetch_one(tx).await.map_err(store_error)
                    });
                    get::<i64>(&asked.await?, 0)? == 1
                }
                _ => false,
            };
            if is_fresh { Ok(()) } else { Err(stale_claim().into()) }
        })
    }

    fn renew_planned<'a>(
        &'a mut self,
        store: &'a MysqlStore,
        lease: Lease,
        plan: &'a GuardPlan<'a, Held>,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async move { self.run(async |tx: &mut MySqlConnection| store.renew_on(tx, lease, plan).await).await })
    }

    fn record_receptors<'a>(
        &'a mut self,
        store: &'a MysqlStore,
        plan: &'a RecordPlan<'a, ReceptorResult>,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, StoreError>> {
        Box::pin(async move {
            let sql = ProgressStatements::new(&store.inner.options.naming);
            let steps = [(&*sql.record_receptors, RECEPTOR), (&*sql.changed_receptors, THAT_RECEPTOR)];
            let key = |query: Bound, one: &ReceptorResult| {
                query.bind(one.message_id.as_uuid()).bind(one.receptor.clone().into_bytes())
            };
            let rest = |query: Bound, one: &ReceptorResult| {
                query.bind(one.outcome.as_str()).bind(one.outcome.error().map(String::into_bytes))
            };
            let changed = self.record(store, steps, plan.rows().collect(), key, rest).await?;
            let keys = changed.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?)));
            let keys = keys.collect::<Result<HashSet<(Uuid, String)>, StoreError>>()?;
            Ok(plan.answers(|one| keys.contains(&(one.message_id.as_uuid(), one.receptor.clone()))))
        })
    }

    fn record_checkpoints<'a>(
        &'a mut self,
        store: &'a MysqlStore,
        plan: &'a RecordPlan<'a, Checkpoint>,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, StoreError>> {
        Box::pin(async move {
            let sql = ProgressStatements::new(&store.inner.options.naming);
            let steps = [(&*sql.record_checkpoints, CHECKPOINT), (&*sql.changed_checkpoints, THAT_CHECKPOINT)];
            let key = |query: Bound, one: &Checkpoint| {
                query.bind(one.stream.clone().into_bytes()).bind(one.perspective.clone().into_bytes())
            };
            let rest = |query: Bound, one: &Checkpoint| {
                let query = query.bind(i64::try_from(one.position).unwrap_or(i64::MAX));
                let query = query.bind(one.message_id.map(|id| id.as_uuid())).bind(one.outcome.as_str());
                query.bind(one.outcome.error().map(String::into_bytes))
            };
            let changed = self.record(store, steps, plan.rows().collect(), key, rest).await?;
            let keys = changed.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?)));
            let keys = keys.collect::<Result<HashSet<(String, String)>, StoreError>>()?;
            Ok(plan.answers(|one| keys.contains(&(one.stream.clone(), one.perspective.clone()))))
        })
    }
}

impl MysqlTransaction {
    /// Writes rows under a fence of their own, and answers the keys of those that carry it afterwards.
    async fn record<T>(
        &mut self,
        store: &MysqlStore,
        [(record, row), (changed, condition)]: [(&str, &str); 2],
        all: Vec<&T>,
        key: impl Fn(Bound, &T) -> Bound,
        rest: impl Fn(Bound, &T) -> Bound,
    ) -> Result<Vec<MySqlRow>, StoreError> {
        let (inner, fence) = (&store.inner, Fence::new().as_i64());
        let address = inner.pool.connect_options();
        let mut found = Vec::new();
        for part in all.chunks(ROWS_MAX) {
            let record = with_literal(record, row, &vec![row; part.len()].join(", "));
            let changed = with_literal(changed, condition, &vec![condition; part.len()].join(" OR "));
            let write = part
                .iter()
                .fold(sqlx::query(AssertSqlSafe(record.clone())), |write, one| rest(key(write, one), one).bind(fence));
            let look = sqlx::query(AssertSqlSafe(changed.clone())).bind(fence);
            let look = part.iter().fold(look, |look, one| key(look, one));
            let rows = self.run(async |tx: &mut MySqlConnection| {
                inner.spares.prepare(&address, tx, &record).await.map_err(store_error)?;
                write.execute(&mut *tx).await.map_err(store_error)?;
                inner.spares.prepare(&address, tx, &changed).await.map_err(store_error)?;
                look.fetch_all(tx).await.map_err(store_error)
            });
            found.extend(rows.await?);
        }
        Ok(found)
    }
}

impl ReceiveIn<MysqlTransaction> for MysqlInbox {
    fn receive_checked<'a>(
        &'a self,
        tx: &'a mut MysqlTransaction,
        incoming: &'a [Incoming],
    ) -> BoxFuture<'a, Result<Vec<Received>, StoreError>> {
        Box::pin(async move { tx.run(async |tx: &mut MySqlConnection| self.receive_within(tx, incoming).await).await })
    }
}
