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
use pillarbox_core::store::BoxFuture;
use pillarbox_core::{OutboxAdmin, OutboxStore, SchemaAdmin, StoreError, StoreId};
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, Transaction};

use crate::error::{no_transaction, store_error};
use crate::migrate::LEDGER;
use crate::parameters::duration_micros;
use crate::row::{get, record};
use crate::sql::{InboxStatements, with_literal, with_number};
use crate::store::MysqlStore;

mod ledger;

use ledger::Taking;

/// An inbox in a MySQL or MariaDB database, beside the outbox whose connections it shares. Clones share everything.
#[derive(Clone)]
pub struct MysqlInbox {
    queue: MysqlStore,
    sql: Arc<InboxStatements>,
    remember: Duration,
}

impl WithInbox for MysqlStore {
    type Inbox = MysqlInbox;

    fn inbox(&self, options: InboxOptions) -> BoxFuture<'_, Result<MysqlInbox, StoreError>> {
        Box::pin(async move {
            let queue = options.queue_options(&self.inner.options, &self.inner.id)?;
            let (policy, sql) = (queue.schema, Arc::new(InboxStatements::new(&queue.naming)));
            let remember = queue.retention.keeps_for().unwrap_or_default();
            let id = queue.store_id.clone().unwrap_or_else(|| self.inner.id.clone());
            let inbox = MysqlInbox { queue: self.beside(id, queue), sql, remember };
            inbox.apply_policy(policy).await?;
            Ok(inbox)
        })
    }

    fn queue_of(inbox: &MysqlInbox) -> Self {
        inbox.queue.clone()
    }
}

#[async_trait]
impl InboxStore for MysqlInbox {
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
        let copy = receipt.clone();
        let (before, is_mismatch) = self
            .transact(move |inbox, tx| {
                let receipt = copy.clone();
                Box::pin(async move { inbox.see_one(tx, &receipt).await })
            })
            .await?;
        Ok(Sighting { before: before.map(state_of), is_mismatch })
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
        Incoming::check_all(incoming, &self.queue.inner.options.limits)?;
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
        let copy = receipt.clone();
        self.transact(move |inbox, tx| {
            let receipt = copy.clone();
            Box::pin(async move { inbox.release_within(tx, &receipt, lease).await })
        })
        .await
    }

    async fn get(&self, source: &str, message_id: &str) -> Result<Option<InboxRecord>, StoreError> {
        let receipt = Receipt::new(source, message_id);
        receipt.check()?;
        let found = self.transact(move |inbox, tx| {
            let receipt = receipt.clone();
            Box::pin(async move { inbox.find(tx, &[&receipt], "").await })
        });
        found.await?.first().map(record).transpose()
    }

    async fn mismatches(&self, after: Option<(String, String)>, limit: u32) -> Result<Vec<InboxRecord>, StoreError> {
        check_page(limit)?;
        let (source, message_id) = after.unwrap_or_default();
        let page = self.transact(move |inbox, tx| {
            let page = sqlx::query(AssertSqlSafe(inbox.sql.mismatches.as_str()))
                .bind(source.clone().into_bytes())
                .bind(source.clone().into_bytes())
                .bind(message_id.clone().into_bytes())
                .bind(limit);
            Box::pin(async move { page.fetch_all(tx).await.map_err(store_error) })
        });
        page.await?.iter().map(record).collect()
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        // The queue first: what it has forgotten can be forgotten here.
        self.queue.purge(limit).await?;
        let done = self.purge_state("'done'", limit.get()).await?;
        let room = limit.get().saturating_sub(u32::try_from(done).unwrap_or(u32::MAX));
        if room == 0 {
            return Ok(done);
        }
        Ok(done + self.purge_state("'processing'", room).await?)
    }
}

impl ConsumeIn<MySqlConnection> for MysqlInbox {
    fn register_under<'a>(
        &'a self,
        tx: &'a mut MySqlConnection,
        receipt: &'a Receipt,
        lease: Option<Lease>,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        Box::pin(async move {
            receipt.check()?;
            if !tx.is_in_transaction() {
                return Err(no_transaction());
            }
            self.take(tx, receipt, Taking::Done(lease)).await
        })
    }
}

impl<'t> ConsumeIn<Transaction<'t, MySql>> for MysqlInbox {
    fn register_under<'a>(
        &'a self,
        tx: &'a mut Transaction<'t, MySql>,
        receipt: &'a Receipt,
        lease: Option<Lease>,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        let connection: &mut MySqlConnection = tx;
        self.register_under(connection, receipt, lease)
    }
}

#[async_trait]
impl SchemaAdmin for MysqlInbox {
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

impl MysqlInbox {
    /// Runs `work` in a transaction of the inbox's own.
    async fn transact<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> Fn(&'c Self, &'c mut MySqlConnection) -> BoxFuture<'c, Result<T, StoreError>>
            + Send
            + Sync
            + 'static,
    {
        let (inbox, work) = (self.clone(), Arc::new(work));
        self.queue
            .within(move |tx| {
                let (inbox, work) = (inbox.clone(), Arc::clone(&work));
                Box::pin(async move { work(&inbox, tx).await })
            })
            .await
    }

    /// Forgets what has this word in the ledger.
    async fn purge_state(&self, state: &str, limit: u32) -> Result<u64, StoreError> {
        let sql = with_literal(&self.sql.purge, "'done' /*state*/", state);
        let sql = with_number(&sql, "0 /*keep*/", duration_micros(self.remember));
        let sql = with_number(&sql, "1 /*limit*/", i64::from(limit));
        let rows = self.queue.transact(vec![format!("{sql};\nSELECT ROW_COUNT()")]).await?;
        let purged: i64 = rows.first().map_or(Ok(0), |row| get(row, 0))?;
        Ok(u64::try_from(purged).unwrap_or(0))
    }
}

impl fmt::Debug for MysqlInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlInbox").field("id", self.id()).finish_non_exhaustive()
    }
}
