//! The inbox: its ledger, beside a queue that is another set of the outbox's tables.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox_core::inbox::{
    Admission, ConsumeIn, InboxOptions, InboxRecord, InboxState, InboxStore, Incoming, Mark, Receipt, Received,
    Reception, Registered, Sighting, WithInbox, check_page,
};
use pillarbox_core::lease::Lease;
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::store::{BoxFuture, Enqueue};
use pillarbox_core::{OutboxAdmin, OutboxStore, SchemaAdmin, StoreError, StoreId};
use sqlx::{Sqlite, SqliteConnection, Transaction};

use crate::enqueue::{enqueue_within, require_open};
use crate::error::store_error;
use crate::migrate::LEDGER;
use crate::parameters::bound;
use crate::row::{self, micros, record};
use crate::sql::InboxStatements;
use crate::store::{Inner, SqliteStore};

mod ledger;

use ledger::{Taking, mark_within, named, receive_one, see, take, take_new};

/// An inbox in an SQLite file, beside the outbox whose connections it shares. Clones share everything.
#[derive(Clone)]
pub struct SqliteInbox {
    pub(crate) queue: SqliteStore,
    pub(crate) sql: Arc<InboxStatements>,
    remember: Duration,
}

impl WithInbox for SqliteStore {
    type Inbox = SqliteInbox;

    fn inbox(&self, options: InboxOptions) -> BoxFuture<'_, Result<SqliteInbox, StoreError>> {
        Box::pin(async move {
            let queue = options.queue_options(&self.inner.options, &self.inner.id)?;
            let (policy, sql) = (queue.schema, Arc::new(InboxStatements::new(&queue.naming)));
            let remember = queue.retention.keeps_for().unwrap_or_default();
            let id = queue.store_id.clone().unwrap_or_else(|| self.inner.id.clone());
            let inbox = SqliteInbox { queue: self.beside(id, queue), sql, remember };
            inbox.apply_policy(policy).await?;
            Ok(inbox)
        })
    }

    fn queue_of(inbox: &SqliteInbox) -> Self {
        inbox.queue.clone()
    }
}

#[async_trait]
impl InboxStore for SqliteInbox {
    fn id(&self) -> &StoreId {
        &self.queue.inner.id
    }

    fn queue(&self) -> Arc<dyn OutboxStore> {
        Arc::new(self.queue.clone())
    }

    fn admin(&self) -> Arc<dyn OutboxAdmin> {
        Arc::new(self.queue.clone())
    }

    async fn already_processed(&self, receipt: &Receipt) -> Result<Sighting, StoreError> {
        receipt.check()?;
        let (sql, copy) = (Arc::clone(&self.sql), receipt.clone());
        let answer = self
            .queue
            .write_at_now(move |_, tx, _| Box::pin(async move { see(&sql, tx, &copy, InboxState::Seen).await }))
            .await?;
        Ok(answer.sighting())
    }

    async fn mark(&self, receipt: &Receipt, mark: Mark) -> Result<Sighting, StoreError> {
        receipt.check()?;
        let (sql, copy) = (Arc::clone(&self.sql), receipt.clone());
        let answer = self
            .queue
            .write_at_now(move |_, tx, _| {
                Box::pin(async move {
                    let answer = see(&sql, tx, &copy, InboxState::Seen).await?;
                    mark_within(&sql, tx, &copy, &answer, mark).await?;
                    Ok(answer)
                })
            })
            .await?;
        Ok(answer.sighting())
    }

    async fn receive(&self, incoming: &[Incoming]) -> Result<Vec<Received>, StoreError> {
        Incoming::check_all(incoming, &self.queue.inner.options.limits)?;
        if incoming.is_empty() {
            return Ok(Vec::new());
        }
        let (sql, batch) = (Arc::clone(&self.sql), incoming.to_vec());
        self.queue
            .write_at_now(move |inner, tx, _| Box::pin(async move { receive_within(inner, tx, &sql, &batch).await }))
            .await
    }

    async fn lease(&self, receipt: &Receipt, lease: Lease) -> Result<Admission, StoreError> {
        receipt.check()?;
        let (sql, copy) = (Arc::clone(&self.sql), receipt.clone());
        self.queue
            .write_at_now(move |_, tx, _| {
                Box::pin(async move { Ok(take(&sql, tx, &copy, Taking::Lease(lease)).await?.admission()) })
            })
            .await
    }

    async fn release(&self, receipt: &Receipt, lease: Lease) -> Result<bool, StoreError> {
        receipt.check()?;
        let (sql, copy) = (Arc::clone(&self.sql), receipt.clone());
        self.queue
            .write_at_now(move |_, tx, _| {
                Box::pin(async move {
                    let release = named(&sql.release, &copy).bind(lease.owner().as_uuid()).bind(lease.fence().as_i64());
                    Ok(release.execute(tx).await.map_err(store_error)?.rows_affected() > 0)
                })
            })
            .await
    }

    async fn get(&self, source: &str, message_id: &str) -> Result<Option<InboxRecord>, StoreError> {
        let receipt = Receipt::new(source, message_id);
        receipt.check()?;
        let found = named(&self.sql.get, &receipt).fetch_optional(self.queue.pool()).await.map_err(store_error)?;
        found.as_ref().map(record).transpose()
    }

    async fn mismatches(&self, after: Option<(String, String)>, limit: u32) -> Result<Vec<InboxRecord>, StoreError> {
        check_page(limit)?;
        let (source, message_id) = after.unwrap_or_default();
        let page = sqlx::query(self.sql.mismatches.clone()).bind(source).bind(message_id).bind(limit);
        page.fetch_all(self.queue.pool()).await.map_err(store_error)?.iter().map(record).collect()
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        // The queue first: what it has forgotten can be forgotten here.
        self.queue.purge(limit).await?;
        let remember = micros(self.remember);
        let look = sqlx::query(self.sql.purge_look.clone()).bind(remember);
        let found = look.fetch_one(self.queue.pool()).await.map_err(store_error)?;
        if !row::get::<bool>(&found, 0)? {
            return Ok(0);
        }
        let sql = Arc::clone(&self.sql);
        self.queue
            .write_at_now(move |_, tx, _| {
                Box::pin(async move {
                    let purge = sqlx::query(sql.purge.clone()).bind(remember).bind(limit.get());
                    Ok(purge.execute(tx).await.map_err(store_error)?.rows_affected())
                })
            })
            .await
    }
}

impl ConsumeIn<SqliteConnection> for SqliteInbox {
    fn register_under<'a>(
        &'a self,
        tx: &'a mut SqliteConnection,
        receipt: &'a Receipt,
        lease: Option<Lease>,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        Box::pin(async move {
            receipt.check()?;
            require_open(tx).await?;
            self.register_within(tx, receipt, lease).await
        })
    }
}

/// Receives on a connection that is known to be inside a transaction.
pub(crate) async fn receive_within(
    inner: &Inner,
    tx: &mut SqliteConnection,
    sql: &InboxStatements,
    batch: &[Incoming],
) -> Result<Vec<Received>, StoreError> {
    let mut received = vec![None; batch.len()];
    for round in Incoming::rounds(batch) {
        let mut messages = Vec::new();
        for at in round {
            let one = receive_one(sql, tx, &batch[at]).await?;
            let message = batch[at].queued_as(one.message_id);
            match one.outcome {
                Reception::Queued | Reception::Replaced => messages.push(message),
                Reception::Revised => {
                    let revise = sqlx::query_with(sql.revise.clone(), bound(&[message], None)?);
                    revise.execute(&mut *tx).await.map_err(store_error)?;
                }
                Reception::Done => {}
            }
            received[at] = Some(one);
        }
        enqueue_within(inner, tx, Enqueue::pending(&messages)).await?;
    }
    Ok(received.into_iter().flatten().collect())
}

impl SqliteInbox {
    /// Registers a receipt on a connection that is known to be inside a transaction.
    pub(crate) async fn register_within(
        &self,
        tx: &mut SqliteConnection,
        receipt: &Receipt,
        lease: Option<Lease>,
    ) -> Result<Admission, StoreError> {
        // Most messages are consumed when they come for the first time, without a lease.
        if lease.is_none() && take_new(&self.sql, tx, receipt).await? {
            return Ok(Admission { registered: Registered::New, is_mismatch: false });
        }
        Ok(take(&self.sql, tx, receipt, Taking::Done(lease)).await?.admission())
    }
}

impl<'t> ConsumeIn<Transaction<'t, Sqlite>> for SqliteInbox {
    fn register_under<'a>(
        &'a self,
        tx: &'a mut Transaction<'t, Sqlite>,
        receipt: &'a Receipt,
        lease: Option<Lease>,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        let connection: &mut SqliteConnection = tx;
        self.register_under(connection, receipt, lease)
    }
}

#[async_trait]
impl SchemaAdmin for SqliteInbox {
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

impl fmt::Debug for SqliteInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteInbox").field("id", self.id()).finish_non_exhaustive()
    }
}
