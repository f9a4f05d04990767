//! What any outbox must do at the least: the user's transaction with one plain insert more. Nobody reads the rows.

use std::sync::Arc;

use contest::{About, BUSINESS_CLEAR, BUSINESS_INSERT, BUSINESS_PAYLOAD, BUSINESS_TABLE, Contestant, Progress, Result};
use sqlx::{Connection as _, Executor as _, PgConnection};

struct Bare {
    url: String,
}

impl Bare {
    async fn run(&self, statements: &[&'static str]) -> Result<()> {
        let mut connection = PgConnection::connect(&self.url).await?;
        for statement in statements {
            connection.execute(*statement).await?;
        }
        Ok(connection.close().await?)
    }
}

impl Contestant for Bare {
    type Writer = Writer;
    type Workers = Nobody;

    fn about(&self) -> About {
        About {
            name: "bare".into(),
            version: "-".into(),
            language: "sql".into(),
            settings: "a table of (id bigserial primary key, payload text); enqueue only".into(),
        }
    }

    async fn prepare(&self) -> Result<()> {
        let table = "CREATE TABLE plain (id bigserial PRIMARY KEY, payload text NOT NULL)";
        self.run(&["DROP TABLE IF EXISTS business, plain", BUSINESS_TABLE, table]).await
    }

    async fn clear(&self) -> Result<()> {
        self.run(&[BUSINESS_CLEAR, "TRUNCATE plain"]).await
    }

    async fn fill(&self, _: u64) -> Result<()> {
        Err("it only writes".into())
    }

    async fn writer(&self) -> Result<Writer> {
        Ok(Writer(PgConnection::connect(&self.url).await?))
    }

    async fn start(&self, _: Arc<Progress>) -> Result<Nobody> {
        Err("it only writes".into())
    }
}

struct Writer(PgConnection);

impl contest::Writer for Writer {
    async fn write(&mut self, payloads: Vec<String>) -> Result<()> {
        let mut tx = self.0.begin().await?;
        sqlx::query(BUSINESS_INSERT).bind(BUSINESS_PAYLOAD).execute(&mut *tx).await?;
        let one = "INSERT INTO plain (payload) VALUES ($1)";
        let many = "INSERT INTO plain (payload) SELECT * FROM unnest($1::text[])";
        match payloads.as_slice() {
            [payload] => sqlx::query(one).bind(payload).execute(&mut *tx).await?,
            payloads => sqlx::query(many).bind(payloads).execute(&mut *tx).await?,
        };
        Ok(tx.commit().await?)
    }
}

/// There are no workers.
struct Nobody;

impl contest::Workers for Nobody {
    async fn settled(&self) -> Result<u64> {
        Ok(0)
    }

    async fn stop(self) -> Result<()> {
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    contest::serve(Bare { url: contest::database_url()? }).await
}
