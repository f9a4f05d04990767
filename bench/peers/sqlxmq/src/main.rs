//! sqlxmq.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use contest::{About, Batches, Contestant, Progress, Result, Workers, Writer};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection as _, Executor as _};
use sqlxmq::{CurrentJob, JobBuilder, JobRunnerHandle, JobRunnerOptions};

const NAME: &str = "contest";
const CONCURRENCY_MIN: usize = 500;
const CONCURRENCY_MAX: usize = 1000;
const CONNECTIONS: u32 = 40;
const FILLERS: u64 = 4;
const FILL_BATCH: u64 = 1000;
/// Its function for many messages, with what its builder fills in for one; the builder itself sends one at a time.
const ENQUEUE_ALL: &str = "SELECT mq_insert(array_agg((uuid_generate_v4(), interval '0', 4, interval '1 second',
    '', '', NULL, false, $2, payload, NULL)::mq_new_t)) FROM unnest($1::text[]) AS payload";
/// A row of the library's own, which the others refer to.
const ROOT: &str = "INSERT INTO mq_msgs (id, channel_name, channel_args, after_message_id)
    VALUES (uuid_nil(), '', '', NULL)";
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<()> {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect_lazy(&contest::database_url()?)?;
    contest::serve(Sqlxmq { pool }).await
}

struct Sqlxmq {
    pool: PgPool,
}

impl Contestant for Sqlxmq {
    type Writer = Client;
    type Workers = Running;

    fn about(&self) -> About {
        About {
            name: "sqlxmq".to_owned(),
            version: "0.6.0".to_owned(),
            language: "rust".to_owned(),
            settings: format!("concurrency {CONCURRENCY_MIN} to {CONCURRENCY_MAX}, {CONNECTIONS} connections"),
        }
    }

    async fn prepare(&self) -> Result<()> {
        self.pool.execute("DROP SCHEMA public CASCADE").await?;
        self.pool.execute("CREATE SCHEMA public").await?;
        self.pool.execute(contest::BUSINESS_TABLE).await?;
        Migrator::new(Path::new(env!("SQLXMQ_MIGRATIONS"))).await?.run(&self.pool).await?;
        Ok(())
    }

    async fn clear(&self) -> Result<()> {
        self.pool.execute("TRUNCATE mq_payloads, mq_msgs").await?;
        self.pool.execute(ROOT).await?;
        self.pool.execute(contest::BUSINESS_CLEAR).await?;
        Ok(())
    }

    async fn fill(&self, count: u64) -> Result<()> {
        let pool = self.pool.clone();
        contest::in_batches(Batches { count, size: FILL_BATCH, at_once: FILLERS }, move |payloads| {
            let pool = pool.clone();
            async move {
                sqlx::query(ENQUEUE_ALL).bind(payloads).bind(NAME).execute(&pool).await?;
                Ok(())
            }
        })
        .await
    }

    async fn writer(&self) -> Result<Client> {
        Ok(Client(PgConnection::connect(&contest::database_url()?).await?))
    }

    async fn start(&self, progress: Arc<Progress>) -> Result<Running> {
        let runner = JobRunnerOptions::new(&self.pool, {
            let progress = Arc::clone(&progress);
            move |message| {
                tokio::spawn(handle(message, Arc::clone(&progress)));
            }
        })
        .set_concurrency(CONCURRENCY_MIN, CONCURRENCY_MAX)
        .run()
        .await?;
        Ok(Running { runner, progress })
    }
}

async fn handle(mut message: CurrentJob, progress: Arc<Progress>) {
    progress.handle(message.raw_json().unwrap_or_default().as_bytes());
    match message.complete().await {
        Ok(()) => progress.settle(1),
        Err(error) => eprintln!("a message could not be completed: {error}"),
    }
}

struct Client(PgConnection);

impl Writer for Client {
    async fn write(&mut self, payloads: Vec<String>) -> Result<()> {
        let mut transaction = self.0.begin().await?;
        sqlx::query(contest::BUSINESS_INSERT).bind(contest::BUSINESS_PAYLOAD).execute(&mut *transaction).await?;
        if let [payload] = &payloads[..] {
            JobBuilder::new(NAME).set_raw_json(payload).spawn(&mut *transaction).await?;
        } else {
            sqlx::query(ENQUEUE_ALL).bind(payloads).bind(NAME).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}

struct Running {
    runner: JobRunnerHandle,
    progress: Arc<Progress>,
}

impl Workers for Running {
    async fn settled(&self) -> Result<u64> {
        Ok(self.progress.settled())
    }

    async fn stop(mut self) -> Result<()> {
        self.runner.stop().await;
        self.runner.wait_jobs_finish(PATIENCE).await;
        Ok(())
    }
}
