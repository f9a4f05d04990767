//! Pillarbox through its facade, writers and runtime in one process: once tuned for throughput, once as it comes.

use std::sync::Arc;
use std::time::Duration;

use contest::{
    About, BUSINESS_CLEAR, BUSINESS_INSERT, BUSINESS_PAYLOAD, BUSINESS_TABLE, Contestant, Progress, Result, payload,
};
use pillarbox::SchemaAdmin as _;
use pillarbox::postgres::PostgresStore;
use pillarbox::prelude::{Context, Message, Outbox, Retention, Runtime, StoreOptions};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::Executor as _;
use tokio::sync::OnceCell;

const TOPIC: &str = "order.created";
const CLAIM: u32 = 2000;

/// While one waits for the disk and one for its messages, two keep the server busy.
const CALLS: usize = 4;

/// As many as there are by default: fewer than writers, who hand them to each other.
const CONNECTIONS: u32 = 8;

struct Pillarbox {
    pool: PgPool,
    url: String,
    /// Nothing is set that a user need not set.
    defaults: bool,
    outbox: OnceCell<Outbox<PostgresStore>>,
}

impl Pillarbox {
    async fn outbox(&self) -> Result<&Outbox<PostgresStore>> {
        self.outbox.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<Outbox<PostgresStore>> {
        let outbox = if self.defaults {
            Outbox::postgres(&self.url).await?
        } else {
            let options = StoreOptions { retention: Retention::Delete, ..StoreOptions::default() };
            let connect = PgPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(false);
            let pool = connect.connect(&self.url).await?;
            Outbox::new(PostgresStore::with_pool(pool, options).await?.reusing_connections())
        };
        // Open before the first writer begins, as the others' are.
        let pool = outbox.store().pool();
        let mut connections = Vec::new();
        for _ in 0..pool.options().get_max_connections() {
            connections.push(pool.acquire().await?);
        }
        drop(connections);
        Ok(outbox)
    }
}

impl Contestant for Pillarbox {
    type Writer = Writer;
    type Workers = Workers;

    fn about(&self) -> About {
        let (name, settings) = if self.defaults {
            ("pillarbox-defaults", "none: done messages are kept for a week, 8 connections".to_owned())
        } else {
            let settings = format!(
                "done messages are deleted, {CALLS} claims of {CLAIM} at a time, {CONNECTIONS} connections without pings"
            );
            ("pillarbox", settings)
        };
        About { name: name.into(), version: "this tree".into(), language: "rust".into(), settings }
    }

    async fn prepare(&self) -> Result<()> {
        self.pool.execute("DROP SCHEMA IF EXISTS pillarbox CASCADE; DROP TABLE IF EXISTS business").await?;
        self.pool.execute(BUSINESS_TABLE).await?;
        self.outbox().await?.store().deploy_schema().await?;
        Ok(())
    }

    async fn clear(&self) -> Result<()> {
        self.pool.execute(BUSINESS_CLEAR).await?;
        self.pool.execute("TRUNCATE pillarbox.outbox, pillarbox.outbox_shelf").await?;
        Ok(())
    }

    async fn fill(&self, count: u64) -> Result<()> {
        let outbox = self.outbox().await?;
        let mut first = 0;
        while first < count {
            let end = count.min(first + 1000);
            let mut tx = outbox.begin().await?;
            tx.enqueue_all((first..end).map(payload).map(message)).await?;
            tx.commit().await?;
            first = end;
        }
        Ok(())
    }

    async fn writer(&self) -> Result<Writer> {
        Ok(Writer(self.outbox().await?.clone()))
    }

    async fn start(&self, progress: Arc<Progress>) -> Result<Workers> {
        let mut builder = Runtime::builder(self.outbox().await?).on_topic(TOPIC, move |cx: Context| {
            progress.handle(cx.payload());
            async { Ok(()) }
        });
        if !self.defaults {
            builder = builder.claim_limit(CLAIM).store_call_count(CALLS).cold_capacity(CALLS * CLAIM as usize);
        }
        Ok(Workers(builder.start().await?))
    }
}

fn message(payload: String) -> Message {
    Message::new(TOPIC, payload).content_type("application/json")
}

/// Transactions of the outbox, which hand their connections to each other.
struct Writer(Outbox<PostgresStore>);

impl contest::Writer for Writer {
    async fn write(&mut self, payloads: Vec<String>) -> Result<()> {
        let mut tx = self.0.begin().await?;
        sqlx::query(BUSINESS_INSERT).bind(BUSINESS_PAYLOAD).execute(tx.conn()).await?;
        tx.enqueue_all(payloads.into_iter().map(message)).await?;
        Ok(tx.commit().await?)
    }
}

struct Workers(Runtime);

impl contest::Workers for Workers {
    async fn settled(&self) -> Result<u64> {
        Ok(self.0.stats().done_count)
    }

    async fn stop(self) -> Result<()> {
        self.0.shutdown(Duration::from_secs(10)).await;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = contest::database_url()?;
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await?;
    let defaults = std::env::args().nth(1).as_deref() == Some("defaults");
    contest::serve(Pillarbox { pool, url, defaults, outbox: OnceCell::new() }).await
}
