//! obix: a log that one subscriber reads in order. It acknowledges no single message, but keeps a position; a message
//! counts as settled when the position that is stored has passed it.

use std::sync::Arc;

use contest::{About, BUSINESS_INSERT, BUSINESS_PAYLOAD, BUSINESS_TABLE, Contestant, Progress, Result, payload};
use obix::out::Outbox;
use obix::prelude::es_entity::AtomicOperation as _;
use obix::{EventCtx, EventDelivery, Handled, MailboxConfig, OutboxEventJobConfig, SingletonSubscriber, Subscription};
use serde::{Deserialize, Serialize};
use sqlx::Executor as _;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::sync::Mutex;

const BATCH: usize = 500;

/// Sixteen writers, and the subscriber beside them.
const CONNECTIONS: u32 = 24;

#[derive(Debug, Deserialize, Serialize)]
struct Order {
    n: u64,
    pad: String,
}

struct Obix {
    url: String,
    open: Mutex<Option<Open>>,
}

#[derive(Clone)]
struct Open {
    pool: PgPool,
    outbox: Outbox<Order>,
}

impl Obix {
    async fn open(&self) -> Result<Open> {
        let mut open = self.open.lock().await;
        if open.is_none() {
            let pool = connected(&self.url).await?;
            let (init, handle) = (pool.clone(), tokio::runtime::Handle::current());
            // The compiler cannot see that its start may move between threads.
            let opened = tokio::task::spawn_blocking(move || {
                handle.block_on(async move { Outbox::init(&init, MailboxConfig::builder().build()).await })
            });
            *open = Some(Open { pool, outbox: opened.await?? });
        }
        Ok(open.clone().ok_or("there is no outbox")?)
    }
}

async fn connected(url: &str) -> Result<PgPool> {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(false).connect(url).await?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(pool.acquire().await?);
    }
    drop(connections);
    Ok(pool)
}

impl Contestant for Obix {
    type Writer = Writer;
    type Workers = Workers;

    fn about(&self) -> About {
        About {
            name: "obix".into(),
            version: "0.16.0".into(),
            language: "rust".into(),
            settings: format!(
                "one subscriber that collects, batches of {BATCH}, {CONNECTIONS} connections without pings"
            ),
        }
    }

    /// On new connections: statements that were prepared for other tables fail with "cached plan must not change result type".
    async fn prepare(&self) -> Result<()> {
        if let Some(Open { pool, .. }) = self.open.lock().await.take() {
            // Its listener never gives its connection back.
            tokio::spawn(async move { pool.close().await });
        }
        let pool = PgPoolOptions::new().max_connections(1).connect(&self.url).await?;
        pool.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await?;
        pool.execute(BUSINESS_TABLE).await?;
        sqlx::raw_sql(include_str!(concat!(env!("OUT_DIR"), "/migrations.sql"))).execute(&pool).await?;
        pool.close().await;
        self.open().await?;
        Ok(())
    }

    /// A log with a hole is not empty: its reader waits for what is missing. So it starts anew.
    async fn clear(&self) -> Result<()> {
        self.prepare().await
    }

    async fn fill(&self, count: u64) -> Result<()> {
        let Open { outbox, .. } = self.open().await?;
        let mut first = 0;
        while first < count {
            let end = count.min(first + 1000);
            let mut op = outbox.begin_op().await?;
            outbox.publish_all_persisted(&mut op, orders((first..end).map(payload))?).await?;
            op.commit().await?;
            first = end;
        }
        Ok(())
    }

    async fn writer(&self) -> Result<Writer> {
        Ok(Writer(self.open().await?.outbox))
    }

    async fn start(&self, progress: Arc<Progress>) -> Result<Workers> {
        let Open { pool, outbox } = self.open().await?;
        let config = job::JobSvcConfig::builder().pool(pool).build()?;
        let mut jobs = job::Jobs::init(config).await?;
        let config = OutboxEventJobConfig::new(job::JobType::new("contest")).with_max_batch_size(BATCH);
        let subscription = outbox.register_singleton_subscriber(&mut jobs, config, Subscriber(progress)).await?;
        let begin = u64::from(subscription.load().await?.checkpoint());
        jobs.start_poll().await?;
        Ok(Workers { jobs, subscription, begin })
    }
}

fn orders(payloads: impl Iterator<Item = String>) -> Result<Vec<Order>> {
    payloads.map(|payload| Ok(serde_json::from_str(&payload)?)).collect()
}

struct Writer(Outbox<Order>);

impl contest::Writer for Writer {
    async fn write(&mut self, payloads: Vec<String>) -> Result<()> {
        let mut op = self.0.begin_op().await?;
        sqlx::query(BUSINESS_INSERT).bind(BUSINESS_PAYLOAD).execute(op.as_executor()).await?;
        self.0.publish_all_persisted(&mut op, orders(payloads.into_iter())?).await?;
        Ok(op.commit().await?)
    }
}

/// Collects, so that its position is stored with every batch; who skips lets it be stored some seconds later.
struct Subscriber(Arc<Progress>);

impl SingletonSubscriber<Order> for Subscriber {
    type Batch = ();

    async fn handle_persistent<'inv>(
        &self,
        ctx: EventCtx<'inv>,
        event: &EventDelivery<Order>,
    ) -> Result<Handled<'inv>> {
        if let Some(order) = &event.payload {
            self.0.handle_number(order.n);
        }
        Ok(ctx.collect_with(|()| ()))
    }
}

struct Workers {
    jobs: job::Jobs,
    subscription: Subscription<Order>,
    begin: u64,
}

impl contest::Workers for Workers {
    async fn settled(&self) -> Result<u64> {
        Ok(u64::from(self.subscription.load().await?.checkpoint()) - self.begin)
    }

    async fn stop(self) -> Result<()> {
        Ok(self.jobs.shutdown().await?)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    contest::serve(Obix { url: contest::database_url()?, open: Mutex::default() }).await
}
