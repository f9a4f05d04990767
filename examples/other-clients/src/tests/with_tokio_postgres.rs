//! tokio-postgres.

use pillarbox::postgres::PostgresStore;
use tokio_postgres::{Client, NoTls, Transaction};

use super::*;

struct TokioPostgres {
    tx: Transaction<'static>,
}

impl Session for TokioPostgres {
    type Store = PostgresStore;

    const ERRORS_ABORT: bool = true;

    async fn open(_: &Place, options: StoreOptions) -> Result<Outbox<PostgresStore>, StoreError> {
        Outbox::postgres_with(&url("PILLARBOX_TEST_POSTGRES_URL"), options).await
    }

    async fn begin(_: &Place) -> Self {
        let (client, connection) = tokio_postgres::connect(&url("PILLARBOX_TEST_POSTGRES_URL"), NoTls).await.unwrap();
        tokio::spawn(connection);
        let client: &'static mut Client = Box::leak(Box::new(client));
        Self { tx: client.transaction().await.unwrap() }
    }

    async fn run(&mut self, sql: &str) -> Result<(), String> {
        self.tx.batch_execute(sql).await.map_err(|error| error.to_string())
    }

    async fn enqueue(
        &mut self,
        outbox: &Outbox<PostgresStore>,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, StoreError> {
        match &messages[..] {
            [message] => Ok(vec![outbox.enqueue(&mut self.tx, message.clone()).await?]),
            _ => outbox.enqueue_all(&self.tx, messages).await,
        }
    }

    async fn commit(self) {
        self.tx.commit().await.unwrap();
    }

    async fn rollback(self) {
        self.tx.rollback().await.unwrap();
    }
}

scenarios! { TokioPostgres }
