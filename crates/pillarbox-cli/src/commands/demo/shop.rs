//! The shop (sender) and its warehouse (receiver), in one SQLite file.

use std::path::Path;

use pillarbox::AttemptEnd;
use pillarbox::admin::{Counts, MessageName};
use pillarbox::prelude::*;
use pillarbox::sqlite::SqliteStore;
use pillarbox::store::Claimed;
use serde_json::{Value, json};

use super::failed;
use crate::exit::Failure;

const TABLES: &str = "
    CREATE TABLE orders (id INTEGER PRIMARY KEY, total_cents INTEGER NOT NULL);
    -- The warehouse notes whatever arrives, and ships an order once: its key is the message's id.
    CREATE TABLE deliveries (message_id BLOB NOT NULL, worker TEXT NOT NULL, lost_lease_count INTEGER NOT NULL);
    CREATE TABLE shipments (message_id BLOB PRIMARY KEY, order_id INTEGER NOT NULL);
";

pub(super) struct Shop {
    store: SqliteStore,
}

/// How a transaction ends.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    Commit,
    Rollback,
}

impl Shop {
    pub(super) async fn open(database: &Path, schema: SchemaPolicy) -> Result<Self, Failure> {
        let path = database.to_str().ok_or_else(|| failed("the temporary directory's name is not UTF-8"))?;
        let path = path.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
        let options = StoreOptions { schema, ..StoreOptions::default() };
        let store = SqliteStore::connect(&format!("sqlite:{path}"), options).await.map_err(failed)?;
        Ok(Self { store })
    }

    pub(super) async fn create_tables(&self) -> Result<(), Failure> {
        sqlx::raw_sql(TABLES).execute(self.store.pool()).await.map_err(failed)?;
        Ok(())
    }

    pub(super) fn store(&self) -> &SqliteStore {
        &self.store
    }

    /// What an application does: its own change and the message, on one transaction.
    pub(super) async fn place(&self, order: u32, ending: Ending) -> Result<MessageId, Failure> {
        let total_cents = order * 10;
        let message = Message::json("order.created", &json!({ "id": order, "total_cents": total_cents }))
            .map_err(failed)?
            .key(order);
        let id = message.id();
        let mut tx = self.store.pool().begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
        sqlx::query("INSERT INTO orders (id, total_cents) VALUES (?1, ?2)")
            .bind(order)
            .bind(total_cents)
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
        self.store.enqueue_in(&mut tx, Enqueue::pending(&[message])).await.map_err(failed)?;
        match ending {
            Ending::Commit => tx.commit().await.map_err(failed)?,
            Ending::Rollback => tx.rollback().await.map_err(failed)?,
        }
        Ok(id)
    }

    /// What a receiver does: notes the arrival and ships, unless this message was shipped before.
    pub(super) async fn receive(&self, worker: &str, claimed: &Claimed) -> AttemptEnd {
        let message = match &claimed.message {
            Ok(message) => message,
            Err(undecodable) => return AttemptEnd::FailedPermanent(undecodable.to_string()),
        };
        let Some(order) = order_of(message) else {
            return AttemptEnd::FailedPermanent("the payload names no order".into());
        };
        match self.ship(worker, claimed, message.id(), order).await {
            Ok(()) => AttemptEnd::Succeeded,
            Err(error) => AttemptEnd::FailedTransient(error.to_string()),
        }
    }

    async fn ship(&self, worker: &str, claimed: &Claimed, id: MessageId, order: i64) -> Result<(), sqlx::Error> {
        let id = id.as_uuid();
        let mut tx = self.store.pool().begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query("INSERT INTO deliveries (message_id, worker, lost_lease_count) VALUES (?1, ?2, ?3)")
            .bind(id)
            .bind(worker)
            .bind(claimed.lost_lease_count)
            .execute(&mut *tx)
            .await?;
        sqlx::query("INSERT INTO shipments (message_id, order_id) VALUES (?1, ?2) ON CONFLICT (message_id) DO NOTHING")
            .bind(id)
            .bind(order)
            .execute(&mut *tx)
            .await?;
        tx.commit().await
    }

    pub(super) async fn messages(&self) -> Result<Counts, Failure> {
        Ok(self.store.overview().await.map_err(failed)?.total())
    }

    pub(super) async fn knows_message(&self, id: MessageId) -> Result<bool, Failure> {
        Ok(self.store.get(MessageName::Message(id)).await.map_err(failed)?.is_some())
    }

    pub(super) async fn knows_order(&self, order: u32) -> Result<bool, Failure> {
        let found = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM orders WHERE id = ?1)").bind(order);
        found.fetch_one(self.store.pool()).await.map_err(failed)
    }

    /// The number that a query counts.
    pub(super) async fn count(&self, sql: &'static str) -> Result<u64, Failure> {
        let counted: i64 = sqlx::query_scalar(sql).fetch_one(self.store.pool()).await.map_err(failed)?;
        u64::try_from(counted).map_err(failed)
    }
}

fn order_of(message: &Message) -> Option<i64> {
    serde_json::from_slice::<Value>(message.payload()).ok()?.get("id")?.as_i64()
}
