//! awa on its queue storage, the engine that a new installation gets.

use std::sync::Arc;
use std::time::Duration;

use awa::model::insert::params_with;
use awa::{Client, InsertOpts, InsertParams, JobArgs, JobResult, QueueConfig, QueueStorage, QueueStorageConfig};
use contest::{
    About, BUSINESS_CLEAR, BUSINESS_INSERT, BUSINESS_PAYLOAD, BUSINESS_TABLE, Contestant, Progress, Result, payload,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Connection as _, Executor as _, PgConnection};

const QUEUE: &str = "contest";
const WORKERS: u32 = 256;

/// As its documents advise for a queue that many write to.
const SHARDS: i16 = 8;

const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Deserialize, JobArgs, Serialize)]
struct Order {
    n: u64,
    pad: String,
}

struct Awa {
    url: String,
    pool: PgPool,
    storage: Arc<QueueStorage>,
}

impl Contestant for Awa {
    type Writer = Writer;
    type Workers = Workers;

    fn about(&self) -> About {
        About {
            name: "awa".into(),
            version: "0.6.9".into(),
            language: "rust".into(),
            settings: format!(
                "{WORKERS} workers, {SHARDS} enqueue shards, claims of 512, no deadlines, woken by notifications, else every {POLL:?}"
            ),
        }
    }

    async fn prepare(&self) -> Result<()> {
        self.pool.execute("DROP SCHEMA IF EXISTS awa CASCADE; DROP TABLE IF EXISTS business").await?;
        self.pool.execute(BUSINESS_TABLE).await?;
        let (pool, storage) = (self.pool.clone(), Arc::clone(&self.storage));
        let handle = tokio::runtime::Handle::current();
        // Its migrations cannot move between threads.
        let migrated = tokio::task::spawn_blocking(move || {
            handle.block_on(async move {
                awa::migrations::run(&pool).await?;
                storage.install(&pool).await
            })
        });
        migrated.await??;
        let shards = "INSERT INTO awa.queue_meta (queue, enqueue_shards) VALUES ($1, $2)
            ON CONFLICT (queue) DO UPDATE SET enqueue_shards = excluded.enqueue_shards";
        sqlx::query(shards).bind(QUEUE).bind(SHARDS).execute(&self.pool).await?;
        Ok(())
    }

    async fn clear(&self) -> Result<()> {
        self.pool.execute(BUSINESS_CLEAR).await?;
        Ok(self.storage.reset(&self.pool).await?)
    }

    async fn fill(&self, count: u64) -> Result<()> {
        let mut first = 0;
        while first < count {
            let end = count.min(first + 1000);
            let params = all_params((first..end).map(payload))?;
            self.storage.enqueue_params_copy(&self.pool, &params).await?;
            first = end;
        }
        Ok(())
    }

    async fn writer(&self) -> Result<Writer> {
        Ok(Writer(PgConnection::connect(&self.url).await?))
    }

    async fn start(&self, progress: Arc<Progress>) -> Result<Workers> {
        let begin = completed(&self.pool).await?;
        let config = QueueConfig {
            max_workers: WORKERS,
            poll_interval: POLL,
            deadline_duration: Duration::ZERO,
            ..QueueConfig::default()
        };
        let handler = move |order: Order, _: &awa::JobContext| {
            progress.handle_number(order.n);
            async { Ok(JobResult::Completed) }
        };
        let builder = Client::builder(self.pool.clone()).queue(QUEUE, config);
        let client = builder.register::<Order, _, _>(handler).build()?;
        client.start().await?;
        Ok(Workers { client, pool: self.pool.clone(), begin })
    }
}

fn options() -> InsertOpts {
    InsertOpts { queue: QUEUE.into(), ..InsertOpts::default() }
}

fn all_params(payloads: impl Iterator<Item = String>) -> Result<Vec<InsertParams>> {
    payloads.map(|payload| Ok(params_with(&serde_json::from_str::<Order>(&payload)?, options())?)).collect()
}

struct Writer(PgConnection);

/// Tries of a transaction that lost a race for the first row of a queue.
const TRIES: usize = 5;

impl contest::Writer for Writer {
    async fn write(&mut self, payloads: Vec<String>) -> Result<()> {
        for _ in 1..TRIES {
            match self.once(&payloads).await {
                Err(error) if error.to_string().contains("unique conflict") => {}
                done => return done,
            }
        }
        self.once(&payloads).await
    }
}

impl Writer {
    async fn once(&mut self, payloads: &[String]) -> Result<()> {
        let mut tx = self.0.begin().await?;
        sqlx::query(BUSINESS_INSERT).bind(BUSINESS_PAYLOAD).execute(&mut *tx).await?;
        if let [payload] = payloads {
            awa::insert_with(&mut *tx, &serde_json::from_str::<Order>(payload)?, options()).await?;
        } else {
            awa::insert_many(&mut *tx, &all_params(payloads.iter().cloned())?).await?;
        }
        Ok(tx.commit().await?)
    }
}

struct Workers {
    client: Client,
    pool: PgPool,
    begin: i64,
}

/// Its own exact count takes seconds, which would count as time of the drain.
const COMPLETED: &str = "SELECT ((SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)
    + (SELECT count(*) FROM awa.done_entries)
    + (SELECT coalesce(sum(pruned_completed_count), 0) FROM awa.queue_terminal_rollups))::bigint";

async fn completed(pool: &PgPool) -> Result<i64> {
    Ok(sqlx::query_scalar(COMPLETED).fetch_one(pool).await?)
}

impl contest::Workers for Workers {
    async fn settled(&self) -> Result<u64> {
        Ok(u64::try_from(completed(&self.pool).await? - self.begin)?)
    }

    async fn stop(self) -> Result<()> {
        self.client.shutdown(Duration::from_secs(10)).await;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = contest::database_url()?;
    let pool = PgPoolOptions::new().max_connections(20).connect(&url).await?;
    let storage = Arc::new(QueueStorage::new(QueueStorageConfig::default())?);
    contest::serve(Awa { url, pool, storage }).await
}
