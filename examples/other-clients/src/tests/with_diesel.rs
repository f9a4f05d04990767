//! diesel-async.

use diesel_async::{AnsiTransactionManager, AsyncConnection, AsyncMysqlConnection, AsyncPgConnection};
use diesel_async::{SimpleAsyncConnection, TransactionManager};
use pillarbox::mysql::MysqlStore;
use pillarbox::postgres::PostgresStore;

use super::*;

/// The same for both databases, but for the types.
macro_rules! session {
    ($module:ident, $connection:ty, $store:ty, $open:ident, $variable:literal, $aborts:literal) => {
        mod $module {
            use super::*;

            struct Diesel {
                connection: $connection,
            }

            impl Session for Diesel {
                type Store = $store;

                const ERRORS_ABORT: bool = $aborts;

                async fn open(_: &Place, options: StoreOptions) -> Result<Outbox<$store>, StoreError> {
                    Outbox::$open(&url($variable), options).await
                }

                async fn begin(_: &Place) -> Self {
                    let mut connection = <$connection>::establish(&url($variable)).await.unwrap();
                    AnsiTransactionManager::begin_transaction(&mut connection).await.unwrap();
                    Self { connection }
                }

                async fn run(&mut self, sql: &str) -> Result<(), String> {
                    self.connection.batch_execute(sql).await.map_err(|error| error.to_string())
                }

                async fn enqueue(
                    &mut self,
                    outbox: &Outbox<$store>,
                    messages: Vec<Message>,
                ) -> Result<Vec<Enqueued>, StoreError> {
                    outbox.enqueue_all(&mut self.connection, messages).await
                }

                async fn commit(mut self) {
                    AnsiTransactionManager::commit_transaction(&mut self.connection).await.unwrap();
                }

                async fn rollback(mut self) {
                    AnsiTransactionManager::rollback_transaction(&mut self.connection).await.unwrap();
                }
            }

            scenarios! { Diesel }

            /// BUS-12: the closure that diesel's users write.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_transaction_of_diesel_takes_messages() {
                let (_, outbox) = start::<Diesel>().await;
                let mut connection = <$connection>::establish(&url($variable)).await.unwrap();
                for fails in [true, false] {
                    let placed: Result<(), Box<dyn std::error::Error + Send + Sync>> = connection
                        .transaction(async |connection| {
                            outbox.enqueue(&mut *connection, Message::new("order.created", "1")).await?;
                            if fails { Err("the card was declined".into()) } else { Ok(()) }
                        })
                        .await;
                    assert_eq!(placed.is_err(), fails);
                }
                assert_eq!(outbox.store().overview().await.unwrap().total().pending, 1);
            }

            /// BUS-12: what would be committed alone is refused.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_connection_without_a_transaction_is_refused() {
                let (_, outbox) = start::<Diesel>().await;
                let mut connection = <$connection>::establish(&url($variable)).await.unwrap();
                let refused = outbox.enqueue(&mut connection, Message::new("t", "")).await.unwrap_err();
                assert!(refused.to_string().contains("no transaction is open"), "{refused}");
                assert_eq!(outbox.store().overview().await.unwrap().total().pending, 0);
            }
        }
    };
}

session!(postgres, AsyncPgConnection, PostgresStore, postgres_with, "PILLARBOX_TEST_POSTGRES_URL", true);
session!(mysql, AsyncMysqlConnection, MysqlStore, mysql_with, "PILLARBOX_TEST_MYSQL_URL", false);
