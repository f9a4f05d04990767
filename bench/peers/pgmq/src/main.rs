//! pgmq: its SQL, installed from its crate without the extension, called as its documents show.

use std::sync::Arc;
use std::time::Duration;

use contest::{
    About, BUSINESS_CLEAR, BUSINESS_INSERT, BUSINESS_PAYLOAD, BUSINESS_TABLE, Contestant, Progress, Result, payload,
};
use pgmq::install::install_sql_from_embedded;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::sync::watch;
use tokio::task::JoinSet;

const WORKERS: usize = 4;
const BATCH: i32 = 500;

/// How long a message is out of sight of other readers, in seconds.
const HIDDEN: i32 = 30;

/// Between two reads that found nothing.
const PAUSE: Duration = Duration::from_millis(5);

const SEND_ALL: &str = "SELECT pgmq.send_batch('contest', $1::jsonb[])";
const READ: &str = "SELECT msg_id, message::text FROM pgmq.read('contest', $1, $2)";
const DELETE: &str = "SELECT count(*) FROM pgmq.delete('contest', $1::bigint[])";

struct Pgmq {
    url: String,
    pool: PgPool,
}

impl Contestant for Pgmq {
    type Writer = Writer;
    type Workers = Workers;

    fn about(&self) -> About {
        About {
            name: "pgmq".into(),
            version: "1.11.1 (crate 0.33.7)".into(),
            language: "sql".into(),
            settings: format!("read + delete, {WORKERS} workers, batch {BATCH}, polled every {PAUSE:?}"),
        }
    }

    async fn prepare(&self) -> Result<()> {
        self.pool.execute("DROP SCHEMA IF EXISTS pgmq CASCADE; DROP TABLE IF EXISTS business").await?;
        self.pool.execute(BUSINESS_TABLE).await?;
        install_sql_from_embedded(&self.pool).await?;
        self.pool.execute("SELECT pgmq.create('contest')").await?;
        Ok(())
    }

    async fn clear(&self) -> Result<()> {
        self.pool.execute(BUSINESS_CLEAR).await?;
        self.pool.execute("SELECT pgmq.purge_queue('contest')").await?;
        Ok(())
    }

    async fn fill(&self, count: u64) -> Result<()> {
        let mut first = 0;
        while first < count {
            let end = count.min(first + 1000);
            let payloads: Vec<String> = (first..end).map(payload).collect();
            sqlx::query(SEND_ALL).bind(payloads).execute(&self.pool).await?;
            first = end;
        }
        Ok(())
    }

    async fn writer(&self) -> Result<Writer> {
        Ok(Writer(PgConnection::connect(&self.url).await?))
    }

    async fn start(&self, progress: Arc<Progress>) -> Result<Workers> {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for _ in 0..WORKERS {
            let connection = PgConnection::connect(&self.url).await?;
            tasks.spawn(work(connection, Arc::clone(&progress), stopped.clone()));
        }
        Ok(Workers { progress, stop, tasks })
    }
}

async fn work(mut connection: PgConnection, progress: Arc<Progress>, stopped: watch::Receiver<bool>) -> Result<()> {
    while !*stopped.borrow() {
        let read = sqlx::query_as(READ).bind(HIDDEN).bind(BATCH);
        let messages: Vec<(i64, String)> = read.fetch_all(&mut connection).await?;
        if messages.is_empty() {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        messages.iter().for_each(|(_, message)| progress.handle(message.as_bytes()));
        let ids: Vec<i64> = messages.iter().map(|(id, _)| *id).collect();
        let deleted: i64 = sqlx::query_scalar(DELETE).bind(ids).fetch_one(&mut connection).await?;
        progress.settle(u64::try_from(deleted)?);
    }
    Ok(connection.close().await?)
}

struct Writer(PgConnection);

impl contest::Writer for Writer {
    async fn write(&mut self, payloads: Vec<String>) -> Result<()> {
        let mut tx = self.0.begin().await?;
        sqlx::query(BUSINESS_INSERT).bind(BUSINESS_PAYLOAD).execute(&mut *tx).await?;
        match payloads.as_slice() {
            [payload] => sqlx::query("SELECT pgmq.send('contest', $1::jsonb)").bind(payload).execute(&mut *tx).await?,
            payloads => sqlx::query(SEND_ALL).bind(payloads).execute(&mut *tx).await?,
        };
        Ok(tx.commit().await?)
    }
}

struct Workers {
    progress: Arc<Progress>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<Result<()>>,
}

impl contest::Workers for Workers {
    async fn settled(&self) -> Result<u64> {
        Ok(self.progress.settled())
    }

    async fn stop(self) -> Result<()> {
        self.stop.send_replace(true);
        self.tasks.join_all().await.into_iter().collect()
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = contest::database_url()?;
    let pool = PgPoolOptions::new().max_connections(2).connect(&url).await?;
    contest::serve(Pgmq { url, pool }).await
}
