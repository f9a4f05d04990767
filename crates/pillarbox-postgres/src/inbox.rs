//! The inbox: its ledger, beside a queue that is another set of the outbox's tables.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox_core::inbox::{
    Admission, ConsumeIn, InboxOptions, InboxRecord, InboxStore, Incoming, Mark, Receipt, Received, Sighting,
    WithInbox, check_page, state_of,
};
use pillarbox_core::lease::Lease;
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::store::{BoxFuture, CONFLICT_RETRIES_MAX};
use pillarbox_core::{OutboxAdmin, OutboxStore, SchemaAdmin, StoreError, StoreId};
use sqlx::{PgConnection, Postgres, Transaction};

use crate::enqueue::require_open;
use crate::error::{is_foreign_connection, is_race, store_error};
use crate::migrate::LEDGER;
use crate::parameters::micros;
use crate::row::record;
use crate::sql::InboxSql;
use crate::store::{PostgresStore, pause};

mod ledger;

use ledger::Taking;

/// An inbox in a PostgreSQL database, beside the outbox whose connections it shares. Clones share everything.
#[derive(Clone)]
pub struct PostgresInbox {
    pub(crate) queue: PostgresStore,
    sql: Arc<InboxSql>,
    remember: Duration,
}

impl WithInbox for PostgresStore {
    type Inbox = PostgresInbox;

    fn inbox(&self, options: InboxOptions) -> BoxFuture<'_, Result<PostgresInbox, StoreError>> {
        Box::pin(async move {
            let queue = options.queue_options(self.settings(), self.name())?;
            let (policy, sql) = (queue.schema, Arc::new(InboxSql::new(&queue.naming)));
            let remember = queue.retention.keeps_for().unwrap_or_default();
            let id = queue.store_id.clone().unwrap_or_else(|| self.name().clone());
            let inbox = PostgresInbox { queue: self.beside(id, queue), sql, remember };
            inbox.apply_policy(policy).await?;
            Ok(inbox)
        })
    }

    fn queue_of(inbox: &PostgresInbox) -> Self {
        inbox.queue.clone()
    }
}

#[async_trait]
impl InboxStore for PostgresInbox {
    fn id(&self) -> &StoreId {
        self.queue.name()
    }

    fn queue(&self) -> Arc<dyn OutboxStore> {
        Arc::new(self.queue.clone())
    }

    fn admin(&self) -> Arc<dyn OutboxAdmin> {
        Arc::new(self.queue.clone())
    }

    async fn already_processed(&self, receipt: &Receipt) -> Result<Sighting, StoreError> {
        receipt.check()?;
        let mut answer = self.seen(receipt).await?;
        if answer.needs_place() {
            let rows = self.queue.fetch(&self.sql.place, |query| query.bind(vec![answer.message_id.as_uuid()])).await?;
            answer.add_place(&rows)?;
        }
        let before = answer.before()?.map(state_of);
        Ok(Sighting { before, is_mismatch: answer.is_mismatch })
    }

    async fn mark(&self, receipt: &Receipt, mark: Mark) -> Result<Sighting, StoreError> {
        receipt.check()?;
        let copy = receipt.clone();
        let (before, is_mismatch) = self
            .transact(move |inbox, tx| {
                let (receipt, mark) = (copy.clone(), mark.clone());
                Box::pin(async move { inbox.mark_within(tx, &receipt, mark).await })
            })
            .await?;
        Ok(Sighting { before: before.map(state_of), is_mismatch })
    }

    async fn receive(&self, incoming: &[Incoming]) -> Result<Vec<Received>, StoreError> {
        Incoming::check_all(incoming, &self.queue.settings().limits)?;
        if incoming.is_empty() {
            return Ok(Vec::new());
        }
        let batch: Arc<[Incoming]> = incoming.into();
        self.transact(move |inbox, tx| {
            let batch = Arc::clone(&batch);
            Box::pin(async move { inbox.receive_within(tx, &batch).await })
        })
        .await
    }

    async fn lease(&self, receipt: &Receipt, lease: Lease) -> Result<Admission, StoreError> {
        receipt.check()?;
        let copy = receipt.clone();
        self.transact(move |inbox, tx| {
            let receipt = copy.clone();
            Box::pin(async move { inbox.take(tx, &receipt, Taking::Lease(lease)).await })
        })
        .await
    }

    async fn release(&self, receipt: &Receipt, lease: Lease) -> Result<bool, StoreError> {
        receipt.check()?;
        let released = self.queue.execute(&self.sql.release, |query| {
            let query = query.bind(receipt.source().to_owned()).bind(receipt.message_id().to_owned());
            query.bind(lease.owner().as_uuid()).bind(lease.fence().as_i64())
        });
        Ok(released.await? > 0)
    }

    async fn get(&self, source: &str, message_id: &str) -> Result<Option<InboxRecord>, StoreError> {
        Receipt::new(source, message_id).check()?;
        let bind = |query: crate::store::PgQuery| query.bind(source.to_owned()).bind(message_id.to_owned());
        self.queue.fetch(&self.sql.get, bind).await?.first().map(record).transpose()
    }

    async fn mismatches(&self, after: Option<(String, String)>, limit: u32) -> Result<Vec<InboxRecord>, StoreError> {
        check_page(limit)?;
        let (source, message_id) = after.unwrap_or_default();
        let page = self.queue.fetch(&self.sql.mismatches, |query| {
            query.bind(source.clone()).bind(message_id.clone()).bind(i64::from(limit))
        });
        page.await?.iter().map(record).collect()
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        // The queue first: what it has forgotten can be forgotten here.
        self.queue.purge(limit).await?;
        let remember = micros(self.remember);
        self.queue.execute(&self.sql.purge, |query| query.bind(remember).bind(i64::from(limit.get()))).await
    }
}

impl ConsumeIn<PgConnection> for PostgresInbox {
    fn register_under<'a>(
        &'a self,
        tx: &'a mut PgConnection,
        receipt: &'a Receipt,
        lease: Option<Lease>,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        Box::pin(async move {
            receipt.check()?;
            require_open(tx)?;
            let registered = self.take(tx, receipt, Taking::Done(lease)).await;
            self.queue.notice_if_foreign(&registered);
            registered
        })
    }
}

impl<'t> ConsumeIn<Transaction<'t, Postgres>> for PostgresInbox {
    fn register_under<'a>(
        &'a self,
        tx: &'a mut Transaction<'t, Postgres>,
        receipt: &'a Receipt,
        lease: Option<Lease>,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        let connection: &mut PgConnection = tx;
        self.register_under(connection, receipt, lease)
    }
}

#[async_trait]
impl SchemaAdmin for PostgresInbox {
    async fn deploy_schema(&self) -> Result<u32, StoreError> {
        self.queue.deploy_beside(&LEDGER).await
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        self.queue.check_beside(&LEDGER).await
    }

    fn schema_script(&self) -> String {
        self.queue.schema_script() + "\n" + &self.queue.script(&LEDGER)
    }
}

impl PostgresInbox {
    /// Runs `work` in a transaction of the inbox's own, again when it lost a race, in a task that nobody drops half-way.
    async fn transact<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> Fn(&'c Self, &'c mut PgConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + Sync + 'static,
    {
        let inbox = self.clone();
        let run = tokio::spawn(async move {
            let mut races = 0;
            loop {
                match inbox.attempt(&work).await {
                    Err(error) if is_race(&error) && races < CONFLICT_RETRIES_MAX => {
                        races += 1;
                        pause(races).await;
                    }
                    Err(error) if is_foreign_connection(&error) && !inbox.queue.is_behind_pooler() => {
                        inbox.queue.notice_pooler();
                    }
                    ended => return ended,
                }
            }
        });
        run.await.map_err(|_| StoreError::unavailable("the runtime is shutting down"))?
    }

    async fn attempt<T, W>(&self, work: &W) -> Result<T, StoreError>
    where
        W: for<'c> Fn(&'c Self, &'c mut PgConnection) -> BoxFuture<'c, Result<T, StoreError>>,
    {
        let mut tx = self.queue.kept().begin(None).await.map_err(store_error)?;
        let done = work(self, &mut tx).await?;
        tx.commit().await.map_err(store_error)?;
        Ok(done)
    }
}

impl fmt::Debug for PostgresInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresInbox").field("id", self.id()).finish_non_exhaustive()
    }
}
