//! What the work coordinator does in a transaction that the store began.

use std::collections::HashSet;

use pillarbox_core::inbox::{Incoming, Received};
use pillarbox_core::lease::{Claim, Held, Lease};
use pillarbox_core::progress::{Checkpoint, ReceptorResult, RecordPlan, Recorded};
use pillarbox_core::store::{BoxFuture, Claimed, GuardPlan};
use pillarbox_core::{ReceiveIn, Settled, StoreError, WorkTransaction};
use serde_json::{Value, json};
use sqlx::SqlStr;
use uuid::Uuid;

use crate::error::store_error;
use crate::inbox::{SqliteInbox, receive_within};
use crate::outbox::{claim_within, fences, renew_within};
use crate::row;
use crate::sql::ProgressStatements;
use crate::store::SqliteStore;
use crate::transaction::SqliteTransaction;

impl WorkTransaction<SqliteStore> for SqliteTransaction {
    fn claim<'a>(
        &'a mut self,
        store: &'a SqliteStore,
        claim: Claim,
    ) -> BoxFuture<'a, Result<Vec<Claimed>, StoreError>> {
        Box::pin(self.run(store, move |inner, tx, moment| Box::pin(claim_within(inner, tx, moment, claim, i64::MIN))))
    }

    fn renew_planned<'a>(
        &'a mut self,
        store: &'a SqliteStore,
        lease: Lease,
        plan: &'a GuardPlan<'a, Held>,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async move {
            let fences = fences(plan.rows().iter().copied());
            let renew = self.run(store, move |inner, tx, at| Box::pin(renew_within(inner, tx, at.now, lease, fences)));
            Ok(plan.answers(renew.await?))
        })
    }

    fn record_receptors<'a>(
        &'a mut self,
        store: &'a SqliteStore,
        plan: &'a RecordPlan<'a, ReceptorResult>,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, StoreError>> {
        Box::pin(async move {
            let sql = ProgressStatements::new(&store.inner.options.naming).record_receptors;
            let rows = plan.rows().map(|one| {
                json!([hex(one.message_id.as_uuid()), one.receptor, one.outcome.as_str(), one.outcome.error()])
            });
            let applied: HashSet<(Vec<u8>, String)> = self.record(store, sql, rows.collect()).await?;
            let key = |one: &ReceptorResult| (one.message_id.as_uuid().as_bytes().to_vec(), one.receptor.clone());
            Ok(plan.answers(|one| applied.contains(&key(one))))
        })
    }

    fn record_checkpoints<'a>(
        &'a mut self,
        store: &'a SqliteStore,
        plan: &'a RecordPlan<'a, Checkpoint>,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, StoreError>> {
        Box::pin(async move {
            let sql = ProgressStatements::new(&store.inner.options.naming).record_checkpoints;
            let rows = plan.rows().map(|one| {
                let (message_id, outcome) = (one.message_id.map(|id| hex(id.as_uuid())), &one.outcome);
                json!([one.stream, one.perspective, one.position, message_id, outcome.as_str(), outcome.error()])
            });
            let applied: HashSet<(Vec<u8>, String)> = self.record(store, sql, rows.collect()).await?;
            let key = |one: &Checkpoint| (one.stream.as_bytes().to_vec(), one.perspective.clone());
            Ok(plan.answers(|one| applied.contains(&key(one))))
        })
    }
}

impl SqliteTransaction {
    /// Runs one statement on rows in JSON; answers the keys of those that changed.
    async fn record(
        &mut self,
        store: &SqliteStore,
        sql: SqlStr,
        rows: Value,
    ) -> Result<HashSet<(Vec<u8>, String)>, StoreError> {
        let rows = rows.to_string();
        let record = self.run(store, move |_, tx, at| {
            Box::pin(async move { sqlx::query(sql).bind(at.now).bind(rows).fetch_all(tx).await.map_err(store_error) })
        });
        let changed = record.await?;
        changed.iter().map(|row| Ok((row::get(row, 0)?, row::get(row, 1)?))).collect()
    }
}

impl ReceiveIn<SqliteTransaction> for SqliteInbox {
    fn receive_checked<'a>(
        &'a self,
        tx: &'a mut SqliteTransaction,
        incoming: &'a [Incoming],
    ) -> BoxFuture<'a, Result<Vec<Received>, StoreError>> {
        let (sql, batch) = (self.sql.clone(), incoming.to_vec());
        Box::pin(tx.run(&self.queue, move |inner, tx, _| {
            Box::pin(async move { receive_within(inner, tx, &sql, &batch).await })
        }))
    }
}

fn hex(id: Uuid) -> String {
    id.simple().to_string()
}
