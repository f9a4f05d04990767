//! SeaORM.

use pillarbox::mysql::MysqlStore;
use pillarbox::postgres::PostgresStore;
use pillarbox::sqlite::SqliteStore;
use sea_orm::{ConnectionTrait, Database, DatabaseTransaction, TransactionTrait};

use super::*;

/// The same for all databases, but for the store.
macro_rules! session {
    ($module:ident, $store:ty, $open:ident, $url:expr, $aborts:literal) => {
        mod $module {
            use super::*;

            struct SeaOrm {
                tx: DatabaseTransaction,
            }

            impl Session for SeaOrm {
                type Store = $store;

                const ERRORS_ABORT: bool = $aborts;

                async fn open(place: &Place, options: StoreOptions) -> Result<Outbox<$store>, StoreError> {
                    let url: fn(&Place) -> String = $url;
                    Outbox::$open(&url(place), options).await
                }

                async fn begin(place: &Place) -> Self {
                    let url: fn(&Place) -> String = $url;
                    let database = Database::connect(url(place)).await.unwrap();
                    Self { tx: database.begin().await.unwrap() }
                }

                async fn run(&mut self, sql: &str) -> Result<(), String> {
                    self.tx.execute_unprepared(sql).await.map(drop).map_err(|error| error.to_string())
                }

                async fn enqueue(
                    &mut self,
                    outbox: &Outbox<$store>,
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

            scenarios! { SeaOrm }
        }
    };
}

session!(postgres, PostgresStore, postgres_with, |_| url("PILLARBOX_TEST_POSTGRES_URL"), true);
session!(mysql, MysqlStore, mysql_with, |_| url("PILLARBOX_TEST_MYSQL_URL"), false);
session!(sqlite, SqliteStore, sqlite_with, Place::sqlite, false);

/// BUS-12: SeaORM's transactions do not tell in their type which database they are of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_another_database_is_refused_by_postgres_and_sqlite() {
    let place = Place::new();
    let outbox = Outbox::sqlite(&place.sqlite()).await.unwrap();
    let database = Database::connect(url("PILLARBOX_TEST_POSTGRES_URL")).await.unwrap();
    let mut tx = database.begin().await.unwrap();
    let refused = outbox.enqueue(&mut tx, Message::new("t", "")).await.unwrap_err();
    assert!(refused.to_string().contains("SQLite"), "{refused}");
    let other = Database::connect(place.sqlite()).await.unwrap();
    let other = other.begin().await.unwrap();
    let outbox = Outbox::postgres_with(&url("PILLARBOX_TEST_POSTGRES_URL"), place.options()).await.unwrap();
    let refused = outbox.enqueue(&other, Message::new("t", "")).await.unwrap_err();
    assert!(refused.to_string().contains("PostgreSQL"), "{refused}");
}
