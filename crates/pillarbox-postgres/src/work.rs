//! What the work coordinator does in a transaction that the store began.

use std::collections::HashSet;

use pillarbox_core::inbox::{Incoming, Received};
use pillarbox_core::lease::{Claim, Held, Lease};
use pillarbox_core::progress::{Checkpoint, ReceptorResult, RecordPlan, Recorded};
use pillarbox_core::store::{BoxFuture, Claimed, GuardPlan};
use pillarbox_core::transaction::stale_claim;
use pillarbox_core::{ReceiveIn, Settled, StoreError, WorkTransaction};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::error::store_error;
use crate::inbox::PostgresInbox;
use crate::row::get;
use crate::sql::ProgressSql;
use crate::store::PostgresStore;
use crate::transaction::PostgresTransaction;

impl WorkTransaction<PostgresStore> for PostgresTransaction {
    fn claim<'a>(
        &'a mut self,
        store: &'a PostgresStore,
        claim: Claim,
    ) -> BoxFuture<'a, Result<Vec<Claimed>, StoreError>> {
        Box::pin(async move { self.run(async |tx: &mut PgConnection| store.claim_on(tx, &claim).await).await })
    }

    fn may_claim(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            // The server is asked: a statement of the user's own may have chosen the level.
            match self.run(async |tx: &mut PgConnection| is_read_committed(tx).await).await? {
                true => Ok(()),
                false => Err(stale_claim().into()),
            }
        })
    }

    fn renew_planned<'a>(
        &'a mut self,
        store: &'a PostgresStore,
        lease: Lease,
        plan: &'a GuardPlan<'a, Held>,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async move { self.run(async |tx: &mut PgConnection| store.renew_on(tx, lease, plan).await).await })
    }

    fn record_receptors<'a>(
        &'a mut self,
        store: &'a PostgresStore,
        plan: &'a RecordPlan<'a, ReceptorResult>,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, StoreError>> {
        Box::pin(async move {
            let statement = ProgressSql::new(&store.settings().naming).record_receptors;
            let query = store.query(&statement, |query| {
                query
                    .bind(plan.rows().map(|one| one.message_id.as_uuid()).collect::<Vec<_>>())
                    .bind(plan.rows().map(|one| one.receptor.clone()).collect::<Vec<_>>())
                    .bind(plan.rows().map(|one| one.outcome.as_str()).collect::<Vec<_>>())
                    .bind(plan.rows().map(|one| one.outcome.error()).collect::<Vec<_>>())
            });
            let changed =
                self.run(async |tx: &mut PgConnection| query.fetch_all(tx).await.map_err(store_error)).await?;
            let keys = changed.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?)));
            let keys = keys.collect::<Result<HashSet<(Uuid, String)>, StoreError>>()?;
            Ok(plan.answers(|one| keys.contains(&(one.message_id.as_uuid(), one.receptor.clone()))))
        })
    }

    fn record_checkpoints<'a>(
        &'a mut self,
        store: &'a PostgresStore,
        plan: &'a RecordPlan<'a, Checkpoint>,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, StoreError>> {
        Box::pin(async move {
            let statement = ProgressSql::new(&store.settings().naming).record_checkpoints;
            let query = store.query(&statement, |query| {
                query
                    .bind(plan.rows().map(|one| one.stream.clone()).collect::<Vec<_>>())
                    .bind(plan.rows().map(|one| one.perspective.clone()).collect::<Vec<_>>())
                    .bind(plan.rows().map(|one| i64::try_from(one.position).unwrap_or(i64::MAX)).collect::<Vec<_>>())
                    .bind(plan.rows().map(|one| one.message_id.map(|id| id.as_uuid())).collect::<Vec<_>>())
                    .bind(plan.rows().map(|one| one.outcome.as_str()).collect::<Vec<_>>())
                    .bind(plan.rows().map(|one| one.outcome.error()).collect::<Vec<_>>())
            });
            let changed =
                self.run(async |tx: &mut PgConnection| query.fetch_all(tx).await.map_err(store_error)).await?;
            let keys = changed.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?)));
            let keys = keys.collect::<Result<HashSet<(String, String)>, StoreError>>()?;
            Ok(plan.answers(|one| keys.contains(&(one.stream.clone(), one.perspective.clone()))))
        })
    }
}

impl ReceiveIn<PostgresTransaction> for PostgresInbox {
    fn receive_checked<'a>(
        &'a self,
        tx: &'a mut PostgresTransaction,
        incoming: &'a [Incoming],
    ) -> BoxFuture<'a, Result<Vec<Received>, StoreError>> {
        Box::pin(async move {
            let received = tx.run(async |tx: &mut PgConnection| self.receive_within(tx, incoming).await).await;
            self.queue.notice_if_foreign(&received);
            received
        })
    }
}

async fn is_read_committed(tx: &mut PgConnection) -> Result<bool, StoreError> {
    let asked = sqlx::query("SELECT current_setting('transaction_isolation') = 'read committed'").persistent(false);
    get(&asked.fetch_one(tx).await.map_err(store_error)?, 0)
}
