//! graphile_worker, the port of Graphile Worker to Rust.

use std::sync::Arc;
use std::time::Duration;

use contest::{About, Batches, Contestant, Progress, Recent, Result, Workers, Writer};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker, WorkerContext, WorkerOptions,
    WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection as _, Executor as _};
use tokio::task::JoinHandle;

const CONCURRENCY: usize = 100;
const LOCAL_QUEUE: usize = 1000;
const LOCAL_QUEUES: usize = 2;
const DELAY: Duration = Duration::from_millis(5);
const CONNECTIONS: u32 = 20;
const FILLERS: u64 = 4;
const FILL_BATCH: u64 = 1000;
/// More than the local queues and the completions under way can hold.
const RECENT: usize = 8192;
const SCHEMA: &str = "graphile_worker";

#[tokio::main]
async fn main() -> Result<()> {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect_lazy(&contest::database_url()?)?;
    contest::serve(GraphileWorker { pool }).await
}

#[derive(Serialize, Deserialize)]
struct Message {
    n: u64,
    pad: String,
}

/// What handlers are given.
#[derive(Clone, Debug)]
struct Seen {
    progress: Arc<Progress>,
    recent: Arc<Recent<i64>>,
}

impl TaskHandler for Message {
    const IDENTIFIER: &'static str = "contest";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(seen) = context.get_ext::<Seen>() {
            seen.recent.push(*context.job().id());
            seen.progress.handle_number(self.n);
        }
        Ok::<(), String>(())
    }
}

struct GraphileWorker {
    pool: PgPool,
}

impl GraphileWorker {
    fn utils(&self) -> WorkerUtils {
        WorkerUtils::new(self.pool.clone(), SCHEMA)
    }
}

impl Contestant for GraphileWorker {
    type Writer = Client;
    type Workers = Running;

    fn about(&self) -> About {
        About {
            name: "graphile_worker".to_owned(),
            version: "0.14.1".to_owned(),
            language: "rust".to_owned(),
            settings: format!(
                "concurrency {CONCURRENCY}, {LOCAL_QUEUES} local queues of {LOCAL_QUEUE}, \
                 {DELAY:?} between polls and completions"
            ),
        }
    }

    async fn prepare(&self) -> Result<()> {
        self.pool.execute("DROP SCHEMA IF EXISTS graphile_worker CASCADE").await?;
        self.pool.execute("DROP TABLE IF EXISTS business").await?;
        self.pool.execute(contest::BUSINESS_TABLE).await?;
        self.utils().migrate().await?;
        Ok(())
    }

    async fn clear(&self) -> Result<()> {
        self.pool.execute("TRUNCATE graphile_worker._private_jobs CASCADE").await?;
        self.pool.execute(contest::BUSINESS_CLEAR).await?;
        Ok(())
    }

    async fn fill(&self, count: u64) -> Result<()> {
        let utils = self.utils();
        contest::in_batches(Batches { count, size: FILL_BATCH, at_once: FILLERS }, move |payloads| {
            let utils = utils.clone();
            async move {
                let batch: Result<Vec<_>> = payloads.into_iter().map(spec).collect();
                utils.add_raw_jobs(&batch?).await?;
                Ok(())
            }
        })
        .await
    }

    async fn writer(&self) -> Result<Client> {
        Ok(Client { connection: PgConnection::connect(&contest::database_url()?).await?, utils: self.utils() })
    }

    async fn start(&self, progress: Arc<Progress>) -> Result<Running> {
        let seen = Seen { progress, recent: Arc::new(Recent::of(RECENT)) };
        let worker = WorkerOptions::default()
            .schema(SCHEMA)
            .pg_pool(self.pool.clone())
            .concurrency(CONCURRENCY)
            .poll_interval(DELAY)
            .complete_job_batch_delay(DELAY)
            .local_queue(LocalQueueConfig::default().with_size(LOCAL_QUEUE).with_queue_count(LOCAL_QUEUES))
            .listen_os_shutdown_signals(false)
            .add_extension(seen.clone())
            .define_job::<Message>()
            .init()
            .await?;
        let worker = Arc::new(worker);
        let running = tokio::spawn({
            let worker = Arc::clone(&worker);
            async move { worker.run().await.map_err(Into::into) }
        });
        Ok(Running { pool: self.pool.clone(), seen, worker, running })
    }
}

struct Client {
    connection: PgConnection,
    utils: WorkerUtils,
}

impl Writer for Client {
    async fn write(&mut self, payloads: Vec<String>) -> Result<()> {
        let mut transaction = self.connection.begin().await?;
        sqlx::query(contest::BUSINESS_INSERT).bind(contest::BUSINESS_PAYLOAD).execute(&mut *transaction).await?;
        let mut utils = self.utils.clone().with_executor(&mut transaction);
        if let [payload] = &payloads[..] {
            let payload: serde_json::Value = serde_json::from_str(payload)?;
            utils.add_raw_job(Message::IDENTIFIER, payload, JobSpec::default()).await?;
        } else {
            let batch: Result<Vec<_>> = payloads.into_iter().map(spec).collect();
            utils.add_raw_jobs(&batch?).await?;
        }
        drop(utils);
        transaction.commit().await?;
        Ok(())
    }
}

fn spec(payload: String) -> Result<RawJobSpec> {
    let identifier = Message::IDENTIFIER.to_owned();
    Ok(RawJobSpec { identifier, payload: serde_json::from_str(&payload)?, spec: JobSpec::default() })
}

struct Running {
    pool: PgPool,
    seen: Seen,
    worker: Arc<Worker>,
    running: JoinHandle<Result<()>>,
}

impl Workers for Running {
    /// Settled messages are gone; those that were handled long ago are settled before the recent ones.
    async fn settled(&self) -> Result<u64> {
        let handled = self.seen.progress.handled();
        let open: i64 = sqlx::query_scalar("SELECT count(*) FROM graphile_worker._private_jobs WHERE id = ANY($1)")
            .bind(self.seen.recent.ids())
            .fetch_one(&self.pool)
            .await?;
        Ok(handled.saturating_sub(u64::try_from(open)?))
    }

    async fn stop(self) -> Result<()> {
        self.worker.request_shutdown();
        self.running.await?
    }
}
