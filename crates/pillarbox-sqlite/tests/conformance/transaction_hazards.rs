//! What only SQLite can do to a transaction that the store began.

use std::time::Duration;

use pillarbox_core::lease::Claim;
use pillarbox_core::store::{Enqueue, OutboxStore, Settlement, StoreOptions};
use pillarbox_core::{
    CommitError, ErrorKind, Isolation, Message, OutboxAdmin, OwnerToken, Savepoint, Settled, StoreTransaction,
    Transactional, Verdict,
};
use pillarbox_sqlite::SqliteStore;
use pillarbox_testing::Harness;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Connection, SqliteConnection};

use crate::harness::SqliteHarness;
use crate::hazards::start;

const HOUR: Duration = Duration::from_secs(3600);

/// Whatever level is asked for, the transaction is the only writer from its beginning, hence serializable. BUS-11, H12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_level_is_the_only_writer() {
    let h = SqliteHarness::start(StoreOptions::default()).await;
    let connect = SqliteStore::connect_options(&h.url()).unwrap().busy_timeout(Duration::ZERO);
    let mut other = SqliteConnection::connect_with(&connect).await.unwrap();
    for level in [Isolation::OfDatabase, Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let tx = h.store().begin_at(level).await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap_err();
        tx.commit().await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE; ROLLBACK").execute(&mut other).await.unwrap();
    }
}

/// A savepoint outside of a transaction would begin one: after SQLite has rolled back by itself it is refused. BUS-03, H10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_begins_no_transaction() {
    let h = SqliteHarness::start(StoreOptions::default()).await;
    for savepoint in [Savepoint::Set(1), Savepoint::Release(1), Savepoint::RollBack(1)] {
        let mut tx = h.store().begin().await.unwrap();
        h.write_row_on(&mut tx).await;
        h.spoil(&mut tx).await;
        let refused = tx.savepoint(savepoint).await.unwrap_err();
        assert!(refused.to_string().contains("rolled this transaction back by itself"), "{refused}");
        assert!(matches!(tx.commit().await, Err(CommitError::RolledBack(_))));
    }
    assert_eq!(h.business_row_count().await, 0);
}

/// In memory, where there is one connection, verdicts and savepoints work in a transaction as in a file. BUS-03, H12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_in_memory_takes_verdicts() {
    let store = SqliteStore::connect("sqlite::memory:", StoreOptions::default()).await.unwrap();
    let owner = OwnerToken::new();
    let batch = [Message::new("topic", "1"), Message::new("topic", "2")];
    store.enqueue(Enqueue::pending(&batch)).await.unwrap();
    let held = store.claim(Claim::new(owner, HOUR, 2).unwrap()).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    assert_eq!(tx.settle(&store, owner, &[Settlement::ack(held[0].held)]).await.unwrap(), [Settled::Applied]);
    tx.savepoint(Savepoint::Set(1)).await.unwrap();
    let failed = Settlement { held: held[1].held, verdict: Verdict::Fail { reason: "why".into() } };
    assert_eq!(tx.settle(&store, owner, &[failed]).await.unwrap(), [Settled::Applied]);
    tx.savepoint(Savepoint::RollBack(1)).await.unwrap();
    tx.commit().await.unwrap();
    let total = store.overview().await.unwrap().total();
    assert_eq!((total.done, total.processing, total.dead), (1, 1, 0));
}

/// A verdict that is written in a transaction moves the guard of the clock as every other write does. BUS-03, H25.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_in_a_transaction_remembers_the_clock() {
    let h = SqliteHarness::start(StoreOptions::default()).await;
    let owner = OwnerToken::new();
    h.store().enqueue(Enqueue::pending(&[Message::new("topic", "")])).await.unwrap();
    let held = h.store().claim(Claim::new(owner, HOUR, 1).unwrap()).await.unwrap()[0].held;
    let clock = "SELECT at FROM {t}_clock";
    let before = h.number(clock).await;
    let mut tx = h.store().begin().await.unwrap();
    assert_eq!(tx.settle(h.store(), owner, &[Settlement::ack(held)]).await.unwrap(), [Settled::Applied]);
    tx.commit().await.unwrap();
    assert!(h.number(clock).await > before);
}

/// H10: a commit that SQLite refuses leaves the transaction open; it is rolled back, and its connection stays in order.
#[tokio::test]
async fn a_commit_that_fails_is_a_rollback() {
    let harness = start().await;
    harness
        .run("CREATE TABLE late (id INTEGER PRIMARY KEY, other INTEGER REFERENCES late DEFERRABLE INITIALLY DEFERRED)")
        .await;
    for _ in 0..10 {
        let mut tx = harness.store().begin().await.unwrap();
        sqlx::query("INSERT INTO late VALUES (1, 2)").execute(tx.connection()).await.unwrap();
        tx.enqueue(harness.store(), Enqueue::pending(&[Message::new("t", "")])).await.unwrap();
        let Err(CommitError::RolledBack(error)) = tx.commit().await else { panic!("must be rolled back") };
        assert_eq!(error.kind(), ErrorKind::Rejected);
        assert_eq!(harness.number("SELECT count(*) FROM late").await, 0);
        assert_eq!(harness.store().overview().await.unwrap().total().pending, 0);
    }
}

/// H12: a transaction waits for another process's writes, also where the connection itself would not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_waits_for_other_writers() {
    let harness = start().await;
    let connect = SqliteStore::connect_options(&harness.url()).unwrap().busy_timeout(Duration::ZERO);
    let store = SqliteStore::connect_with(connect, StoreOptions::default()).await.unwrap();
    let other = harness.user().begin_with("BEGIN IMMEDIATE").await.unwrap();
    let begin = tokio::spawn({
        let store = store.clone();
        async move { store.begin().await.unwrap().commit().await.unwrap() }
    });
    // Reads go by the writer; after one of them the other task has met it.
    for _ in 0..20 {
        store.overview().await.unwrap();
    }
    assert!(!begin.is_finished());
    other.rollback().await.unwrap();
    begin.await.unwrap();
}

/// H12, H31: in memory there is one connection. The store's calls wait for an open transaction, and not for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_in_memory_keeps_the_store_waiting() {
    let memory = SqlitePoolOptions::new().max_connections(1).acquire_timeout(Duration::from_millis(50));
    let pool = memory.connect("sqlite::memory:").await.unwrap();
    let store = SqliteStore::with_pool(pool, StoreOptions::default()).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    tx.enqueue(&store, Enqueue::pending(&[Message::new("t", "")])).await.unwrap();
    assert_eq!(store.overview().await.unwrap_err().kind(), ErrorKind::Unavailable);
    tx.commit().await.unwrap();
    assert_eq!(store.overview().await.unwrap().total().pending, 1);
}

/// H10: a connection that a user's transaction has spoiled is not begun on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_passes_over_spoiled_connections() {
    let harness = start().await;
    let store = harness.store();
    for _ in 0..4 {
        let mut tx = store.pool().begin().await.unwrap();
        let twice = sqlx::query("INSERT OR ROLLBACK INTO business (id) VALUES (-1), (-1)");
        twice.execute(&mut *tx).await.unwrap_err();
        // The driver's own rollback fails now, and it counts an open transaction for ever.
        drop(tx);
    }
    for _ in 0..10 {
        store.begin().await.unwrap().commit().await.unwrap();
    }
}

/// H10: whichever way a transaction ends that SQLite has rolled back by itself, the pool is in order for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spoiled_transaction_leaves_the_pool_in_order() {
    let harness = start().await;
    let store = harness.store();
    for _ in 0..10 {
        let mut tx = store.begin().await.unwrap();
        harness.spoil(&mut tx).await;
        let ended = tx.commit().await;
        assert!(matches!(ended, Err(CommitError::RolledBack(_))), "{ended:?}");
        let mut tx = store.begin().await.unwrap();
        harness.spoil(&mut tx).await;
        tx.rollback().await.unwrap();
        let mut tx = store.begin().await.unwrap();
        harness.spoil(&mut tx).await;
        drop(tx);
        store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap().commit().await.unwrap();
    }
}
