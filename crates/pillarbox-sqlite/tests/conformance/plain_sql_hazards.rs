//! What others do with the tables of SQLite by plain SQL: a DBA with the printed script, rows by hand.

use std::time::Duration;

use pillarbox_core::schema::SchemaPolicy;
use pillarbox_core::store::{Enqueue, OutboxStore, Settlement, StoreOptions};
use pillarbox_core::{Message, OutboxAdmin, OwnerToken, SchemaAdmin, Settled};
use pillarbox_sqlite::SqliteStore;
use pillarbox_testing::Harness;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use crate::hazards::{claim, enqueue, start};

const HOUR: Duration = Duration::from_secs(3600);

/// The printed script makes the same tables when a DBA runs it.
#[tokio::test]
async fn the_script_deploys_by_hand() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/script.db", directory.path().display());
    let script = SqliteStore::connect("sqlite::memory:", StoreOptions::default()).await.unwrap().schema_script();
    let create = SqliteConnectOptions::new().filename(directory.path().join("script.db")).create_if_missing(true);
    let mut connection = SqliteConnection::connect_with(&create).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let check = StoreOptions { schema: SchemaPolicy::Check, ..StoreOptions::default() };
    let store = SqliteStore::connect(&url, check).await.unwrap();
    enqueue(&store, 1).await;
    assert_eq!(store.claim(claim(OwnerToken::new(), 9)).await.unwrap().len(), 1);
}

/// A foreign row under a message id that the shelf knows already can be settled, and blocks no claim.
#[tokio::test]
async fn a_foreign_duplicate_blocks_nothing() {
    let harness = start().await;
    let store = harness.store();
    let owner = OwnerToken::new();
    let waiting = Message::new("t", "").delay(HOUR);
    store.enqueue(Enqueue::pending(&[waiting.clone(), Message::new("t", "")])).await.unwrap();
    let done = store.claim(claim(owner, 1)).await.unwrap();
    store.settle(owner, &[Settlement::ack(done[0].held)]).await.unwrap();
    harness.run("INSERT INTO {t} (message_id, topic, payload) SELECT message_id, topic, x'' FROM {t}_shelf").await;
    harness.advance(HOUR * 2).await;

    let claimed = store.claim(claim(owner, 10)).await.unwrap();
    assert_eq!(claimed.len(), 2, "the shelved one waits behind its live twin");
    let verdicts: Vec<_> = claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
    assert_eq!(store.settle(owner, &verdicts).await.unwrap(), [Settled::Applied; 2]);
    assert_eq!(store.overview().await.unwrap().total().done, 2);
}
