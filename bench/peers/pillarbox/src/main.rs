//! Pillarbox through its facade, writers and runtime in one process: once tuned for throughput, once as it comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contest::{
    About, BUSINESS_CLEAR, BUSINESS_INSERT, BUSINESS_PAYLOAD, BUSINESS_TABLE, Contestant, Progress, Result, payload,
};
use pillarbox::SchemaAdmin as _;
use pillarbox::postgres::PostgresStore;
use pillarbox::prelude::{Context, Message, Outbox, Retention, Runtime, StoreOptions};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::sync::OnceCell;

const TOPIC: &str = "order.created";
const CLAIM: u32 = 2000;

/// While one waits for the disk and one for its messages, two keep the server busy.
const CALLS: usize = 4;

/// Sixteen writers, and the runtime beside them.
const CONNECTIONS: u32 = 24;

struct Pillarbox {
    pool: PgPool,
    url: String,
    /// Nothing is set that a user need not set.
    defaults: bool,
    outbox: OnceCell<Outbox<PostgresStore>>,
    running: Arc<AtomicBool>,
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
        let outbox = self.outbox().await?.clone();
        Ok(match self.running.load(Ordering::Relaxed) {
            true => Writer::Handing(outbox),
            false => Writer::Storing(outbox, PgConnection::connect(&self.url).await?),
        })
    }

    async fn start(&self, progress: Arc<Progress>) -> Result<Workers> {
        let mut builder = Runtime::builder(self.outbox().await?).on_topic(TOPIC, move |cx: Context| {
            progress.handle(cx.payload());
            async { Ok(()) }
        });
        if !self.defaults {
            builder = builder.claim_limit(CLAIM).store_call_count(CALLS).cold_capacity(CALLS * CLAIM as usize);
        }
        let (runtime, running) = (builder.start().await?, Arc::clone(&self.running));
        running.store(true, Ordering::Relaxed);
        Ok(Workers { runtime, running })
    }
}

fn message(payload: String) -> Message {
    Message::new(TOPIC, payload).content_type("application/json")
}

enum Writer {
    /// Beside a runtime: what is committed is handed over to it.
    Handing(Outbox<PostgresStore>),
    /// Where nobody handles anything: a connection and a transaction of its own, as most of the others' writers have.
    Storing(Outbox<PostgresStore>, PgConnection),
}

impl contest::Writer for Writer {
    async fn write(&mut self, payloads: Vec<String>) -> Result<()> {
        let messages = payloads.into_iter().map(message);
        match self {
            Self::Handing(outbox) => {
                let mut tx = outbox.begin().await?;
                sqlx::query(BUSINESS_INSERT).bind(BUSINESS_PAYLOAD).execute(tx.conn()).await?;
                tx.enqueue_all(messages).await?;
                Ok(tx.commit().await?)
            }
            Self::Storing(outbox, connection) => {
                let mut tx = connection.begin().await?;
                sqlx::query(BUSINESS_INSERT).bind(BUSINESS_PAYLOAD).execute(&mut *tx).await?;
                outbox.enqueue_all(&mut tx, messages).await?;
                Ok(tx.commit().await?)
            }
        }
    }
}

struct Workers {
    runtime: Runtime,
    running: Arc<AtomicBool>,
}

impl contest::Workers for Workers {
    async fn settled(&self) -> Result<u64> {
        Ok(self.runtime.stats().done_count)
    }

    async fn stop(self) -> Result<()> {
        self.running.store(false, Ordering::Relaxed);
        self.runtime.shutdown(Duration::from_secs(10)).await;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = contest::database_url()?;
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await?;
    let defaults = std::env::args().nth(1).as_deref() == Some("defaults");
    contest::serve(Pillarbox { pool, url, defaults, outbox: OnceCell::new(), running: Arc::default() }).await
}
