//! What others do with the tables of SQLite by plain SQL: a DBA with the printed script, rows by hand.

use std::time::Duration;

use pillarbox_core::schema::SchemaPolicy;
use pillarbox_core::store::{Enqueue, OutboxStore, Settlement, StoreOptions};
use pillarbox_core::{Message, OutboxAdmin, OwnerToken, SchemaAdmin, Settled};
use pillarbox_sqlite::SqliteStore;
use pillarbox_testing::{Harness, assert_contract_message, code_blocks};
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

/// What the document says a program may do, it can do, word by word, also twice. OBX-094.
#[tokio::test]
async fn every_statement_of_the_contract_runs_as_written() {
    let harness = start().await;
    harness.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, total_cents INTEGER)").await;
    let blocks = code_blocks(include_str!("../../../../docs/sql-contract.md"), "sql sqlite");
    let full = |block: &&String| block.contains("message_id");
    for block in blocks.iter().chain(blocks.iter().filter(full)) {
        harness.run("DELETE FROM orders").await;
        let block = AssertSqlSafe(harness.named(&block.replace("pillarbox_outbox", "{t}")));
        let mut user = harness.user().acquire().await.unwrap();
        sqlx::raw_sql(block).execute(&mut *user).await.unwrap();
    }
    assert_contract_message(harness.store()).await;
    assert_eq!(harness.store().overview().await.unwrap().total().pending, 2);
    let claimed = harness.store().claim(claim(OwnerToken::new(), 9)).await.unwrap();
    assert_eq!(claimed.len(), 1, "the other one is not due yet");
    let message = claimed[0].message.as_ref().unwrap();
    assert_eq!((message.payload().as_ref(), message.get_key()), (&b"{\"id\": 1}"[..], Some("customer-7")));
}

/// The strict table refuses what is missing or of a wrong type, and names the column.
#[tokio::test]
async fn the_table_names_the_column_that_is_wrong() {
    let harness = start().await;
    let table = [
        ("payload", "'p'", "topic"),
        ("topic", "'t'", "payload"),
        ("topic, payload, message_id", "'t', 'p', 'not bytes'", "message_id"),
        ("topic, payload, due_at", "'t', 'p', 'tomorrow'", "due_at"),
        ("topic, payload, headers", "'t', 'p', x'00'", "headers"),
    ];
    for (columns, values, named) in table {
        let insert = format!("INSERT INTO {{t}} ({columns}) VALUES ({values})");
        let insert = AssertSqlSafe(harness.named(&insert));
        let refused = sqlx::raw_sql(insert).execute(harness.user()).await.unwrap_err();
        assert!(refused.to_string().contains(&format!(".{named}")), "{refused}");
    }
}

/// SQLite takes texts that are no UTF-8: such a row is handed out as one that nobody can read, with the name of the column, and the
/// rows beside it whole. One with a NUL inside, or a quotation mark, can be read. HOT-11, BUS-10.
#[tokio::test]
async fn a_text_that_is_not_utf_8_is_named() {
    let columns = ["topic", "content_type", "correlation_id", "tenant_id", "message_type", "headers"];
    let harness = start().await;
    for column in columns {
        let rest = if column == "topic" { "" } else { ", topic" };
        let value = if column == "topic" { "" } else { ", 'foreign'" };
        let insert = format!(
            "INSERT INTO {{t}} ({column}{rest}, payload, aggregate_id) VALUES (CAST(x'66ff' AS TEXT){value}, x'', 'a \"b\"')"
        );
        harness.run(&insert).await;
    }
    harness
        .run("INSERT INTO {t} (topic, payload, causation_id) VALUES ('foreign', x'00', CAST(x'610062' AS TEXT))")
        .await;
    let claimed = harness.store().claim(claim(OwnerToken::new(), 99)).await.unwrap();
    let (readable, spoilt) = claimed.split_last().unwrap();
    let spoilt: Vec<_> = spoilt.iter().map(|one| one.message.as_ref().unwrap_err().column).collect();
    assert_eq!(spoilt, columns);
    assert_eq!(readable.message.as_ref().unwrap().get_causation_id(), Some("a\0b"));
}
