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
    pool: PgPool,
    outbox: Mutex<Option<Outbox<Order>>>,
}

impl Obix {
    async fn outbox(&self) -> Result<Outbox<Order>> {
        let mut outbox = self.outbox.lock().await;
        if outbox.is_none() {
            let (pool, handle) = (self.pool.clone(), tokio::runtime::Handle::current());
            // The compiler cannot see that its start may move between threads.
            let opened = tokio::task::spawn_blocking(move || {
                handle.block_on(async move { Outbox::init(&pool, MailboxConfig::builder().build()).await })
            });
            *outbox = Some(opened.await??);
        }
        Ok(outbox.clone().ok_or("there is no outbox")?)
    }
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

    async fn prepare(&self) -> Result<()> {
        *self.outbox.lock().await = None;
        self.pool.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await?;
        self.pool.execute(BUSINESS_TABLE).await?;
        sqlx::raw_sql(include_str!(concat!(env!("OUT_DIR"), "/migrations.sql"))).execute(&self.pool).await?;
        self.outbox().await?;
        Ok(())
    }

    /// A log with a hole is not empty: its reader waits for what is missing. So it starts anew.
    async fn clear(&self) -> Result<()> {
        self.prepare().await
    }

    async fn fill(&self, count: u64) -> Result<()> {
        let outbox = self.outbox().await?;
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
        Ok(Writer(self.outbox().await?))
    }

    async fn start(&self, progress: Arc<Progress>) -> Result<Workers> {
        let outbox = self.outbox().await?;
        let config = job::JobSvcConfig::builder().pool(self.pool.clone()).build()?;
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
    let connect = PgPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(false);
    let pool = connect.connect(&contest::database_url()?).await?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(pool.acquire().await?);
    }
    drop(connections);
    contest::serve(Obix { pool, outbox: Mutex::default() }).await
}
