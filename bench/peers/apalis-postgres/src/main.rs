//! apalis with its PostgreSQL storage.

use std::sync::Arc;
use std::time::Duration;

use apalis::prelude::{
    BackendExt as _, BoxDynError, Data, TaskBuilder, TaskId, WorkerBuilder, WorkerBuilderExt as _, WorkerContext,
};
use apalis_postgres::queries::push_tasks;
use apalis_postgres::{Config, PgTask, PostgresStorage};
use contest::{About, Batches, Contestant, Progress, Recent, Result, Workers, Writer};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection as _, Executor as _};
use tokio::task::JoinSet;

const QUEUE: &str = "contest";
const WORKERS: usize = 4;
const BATCH: usize = 500;
const CONCURRENCY: usize = 50;
const POLL: Duration = Duration::from_millis(100);
const CONNECTIONS: u32 = 20;
const FILLERS: u64 = 4;
const FILL_BATCH: u64 = 1000;
/// More than the workers can hold.
const RECENT: usize = 8192;

#[tokio::main]
async fn main() -> Result<()> {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect_lazy(&contest::database_url()?)?;
    contest::serve(Apalis { pool }).await
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Message {
    n: u64,
    pad: String,
}

/// What handlers are given.
#[derive(Clone, Debug)]
struct Seen {
    progress: Arc<Progress>,
    recent: Arc<Recent<String>>,
}

async fn handle(message: Message, id: TaskId, seen: Data<Seen>) -> std::result::Result<(), BoxDynError> {
    seen.recent.push(id.to_string());
    seen.progress.handle_number(message.n);
    Ok(())
}

struct Apalis {
    pool: PgPool,
}

impl Contestant for Apalis {
    type Writer = Client;
    type Workers = Running;

    fn about(&self) -> About {
        About {
            name: "apalis-postgres".to_owned(),
            version: "1.0.0".to_owned(),
            language: "rust".to_owned(),
            settings: format!(
                "{WORKERS} workers, batch {BATCH}, concurrency {CONCURRENCY}, LISTEN and a poll every {POLL:?}"
            ),
        }
    }

    async fn prepare(&self) -> Result<()> {
        self.pool.execute("DROP SCHEMA IF EXISTS apalis CASCADE").await?;
        self.pool.execute("DROP TABLE IF EXISTS business").await?;
        self.pool.execute(contest::BUSINESS_TABLE).await?;
        PostgresStorage::setup(&self.pool).await?;
        Ok(())
    }

    async fn clear(&self) -> Result<()> {
        self.pool.execute("TRUNCATE apalis.jobs, apalis.workers").await?;
        self.pool.execute(contest::BUSINESS_CLEAR).await?;
        Ok(())
    }

    async fn fill(&self, count: u64) -> Result<()> {
        let pool = self.pool.clone();
        contest::in_batches(Batches { count, size: FILL_BATCH, at_once: FILLERS }, move |payloads| {
            let pool = pool.clone();
            async move {
                let mut connection = pool.acquire().await?;
                push_tasks(&mut *connection, QUEUE, payloads.into_iter().map(task).collect()).await?;
                Ok(())
            }
        })
        .await
    }

    async fn writer(&self) -> Result<Client> {
        Ok(Client(PgConnection::connect(&contest::database_url()?).await?))
    }

    async fn start(&self, progress: Arc<Progress>) -> Result<Running> {
        let seen = Seen { progress, recent: Arc::new(Recent::of(RECENT)) };
        let mut running = JoinSet::new();
        let mut contexts = Vec::new();
        for number in 0..WORKERS {
            let context = WorkerContext::new(&format!("contest-{number}"));
            let config = Config::default().queue(QUEUE).batch_size(BATCH);
            let backend =
                PostgresStorage::<Message>::new(&self.pool).with_config(config).with_pubsub().poll_with_interval(POLL);
            let worker =
                WorkerBuilder::new(&context).backend(backend).data(seen.clone()).concurrency(CONCURRENCY).build(handle);
            running.spawn(async move { worker.run().await.map_err(Into::into) });
            contexts.push(context);
        }
        Ok(Running { pool: self.pool.clone(), seen, contexts, running })
    }
}

fn task(payload: String) -> PgTask {
    TaskBuilder::new(payload.into_bytes()).build()
}

struct Client(PgConnection);

impl Writer for Client {
    async fn write(&mut self, payloads: Vec<String>) -> Result<()> {
        let mut transaction = self.0.begin().await?;
        sqlx::query(contest::BUSINESS_INSERT).bind(contest::BUSINESS_PAYLOAD).execute(&mut *transaction).await?;
        push_tasks(&mut *transaction, QUEUE, payloads.into_iter().map(task).collect()).await?;
        transaction.commit().await?;
        Ok(())
    }
}

struct Running {
    pool: PgPool,
    seen: Seen,
    contexts: Vec<WorkerContext>,
    running: JoinSet<Result<()>>,
}

impl Workers for Running {
    /// Settled messages stay, marked; those that were handled long ago are settled before the recent ones.
    async fn settled(&self) -> Result<u64> {
        let handled = self.seen.progress.handled();
        let open: i64 = sqlx::query_scalar("SELECT count(*) FROM apalis.jobs WHERE id = ANY($1) AND status <> 'Done'")
            .bind(self.seen.recent.ids())
            .fetch_one(&self.pool)
            .await?;
        Ok(handled.saturating_sub(u64::try_from(open)?))
    }

    async fn stop(self) -> Result<()> {
        for context in &self.contexts {
            context.stop()?;
        }
        self.running.join_all().await.into_iter().collect()
    }
}
