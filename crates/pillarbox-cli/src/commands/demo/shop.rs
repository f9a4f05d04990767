//! The shop: its tables, and the till where orders are placed.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use pillarbox::prelude::*;
use pillarbox::sqlite::SqliteStore;

use super::failed;
use super::script::{Carrier, Order};
use crate::exit::Failure;

const TABLES: &str = "
    CREATE TABLE orders (id INTEGER PRIMARY KEY, total_cents INTEGER NOT NULL);
    -- Whatever reaches a handler is noted here, as often as it comes.
    CREATE TABLE deliveries (message_id BLOB NOT NULL, topic TEXT NOT NULL, process TEXT NOT NULL,
        lost_lease_count INTEGER NOT NULL);
    -- What a handler did. The message's id is the key: what comes twice takes effect once.
    CREATE TABLE effects (message_id BLOB PRIMARY KEY, topic TEXT NOT NULL, order_id INTEGER NOT NULL);
";

/// To be shipped by the warehouse.
#[derive(Serialize, Deserialize)]
pub(super) struct OrderPlaced {
    pub(super) order: u32,
    pub(super) carrier: Carrier,
}

impl Event for OrderPlaced {
    const TOPIC: &str = "order.placed";
}

/// To be mailed to the customer.
#[derive(Serialize, Deserialize)]
pub(super) struct ReceiptDue {
    pub(super) order: u32,
    pub(super) has_mailbox: bool,
}

impl Event for ReceiptDue {
    const TOPIC: &str = "receipt.due";
}

pub(super) struct Shop {
    outbox: Outbox<SqliteStore>,
    /// When the commit of each order was begun.
    committed: HashMap<u32, Instant>,
    /// Orders that were rolled back, and their messages.
    rolled_back: Vec<(u32, [MessageId; 2])>,
}

impl Shop {
    pub(super) async fn open(database: &Path, schema: SchemaPolicy) -> Result<Self, Failure> {
        let path = database.to_str().ok_or_else(|| failed("the temporary directory's name is not UTF-8"))?;
        let path = path.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
        let options = StoreOptions { schema, ..StoreOptions::default() };
        let outbox = Outbox::sqlite_with(&format!("sqlite:{path}"), options).await.map_err(failed)?;
        Ok(Self { outbox, committed: HashMap::new(), rolled_back: Vec::new() })
    }

    pub(super) async fn create_tables(&self) -> Result<(), Failure> {
        sqlx::raw_sql(TABLES).execute(self.outbox.store().pool()).await.map_err(failed)?;
        Ok(())
    }

    pub(super) fn outbox(&self) -> &Outbox<SqliteStore> {
        &self.outbox
    }

    pub(super) fn rolled_back(&self) -> &[(u32, [MessageId; 2])] {
        &self.rolled_back
    }

    pub(super) fn committed_count(&self) -> usize {
        self.committed.len()
    }

    /// What an application does: its own change and its messages, in one transaction.
    pub(super) async fn place(&mut self, order: &Order) -> Result<(), Failure> {
        let ship = OrderPlaced { order: order.id, carrier: order.carrier }.to_message().map_err(failed)?;
        let mail = ReceiptDue { order: order.id, has_mailbox: order.has_mailbox }.to_message().map_err(failed)?;
        let ids = [ship.id(), mail.id()];
        let mut tx = self.outbox.begin().await.map_err(failed)?;
        let insert = sqlx::query("INSERT INTO orders (id, total_cents) VALUES (?1, ?2)");
        insert.bind(order.id).bind(order.total_cents).execute(tx.conn()).await.map_err(failed)?;
        tx.enqueue_all([ship, mail]).await.map_err(failed)?;
        if order.is_abandoned {
            tx.rollback().await.map_err(failed)?;
            self.rolled_back.push((order.id, ids));
        } else {
            self.committed.insert(order.id, Instant::now());
            tx.commit().await.map_err(failed)?;
        }
        Ok(())
    }

    /// The median time from the commit's beginning to the beginning of the order's handler.
    pub(super) fn median_latency(&self, begun: &HashMap<u32, Instant>) -> Duration {
        let latency =
            |(order, begun): (&u32, &Instant)| Some(begun.saturating_duration_since(*self.committed.get(order)?));
        let mut latencies: Vec<Duration> = begun.iter().filter_map(latency).collect();
        latencies.sort_unstable();
        latencies.get(latencies.len() / 2).copied().unwrap_or_default()
    }

    /// The number that a query counts.
    pub(super) async fn count(&self, sql: &'static str) -> Result<u64, Failure> {
        let counted: i64 = sqlx::query_scalar(sql).fetch_one(self.outbox.store().pool()).await.map_err(failed)?;
        u64::try_from(counted).map_err(failed)
    }
}
