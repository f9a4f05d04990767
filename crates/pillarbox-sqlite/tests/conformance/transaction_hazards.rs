//! What only SQLite can do to a transaction that the store began.

use std::time::Duration;

use pillarbox_core::lease::Claim;
use pillarbox_core::store::{Enqueue, OutboxStore, Settlement, StoreOptions};
use pillarbox_core::{
    CommitError, Isolation, Message, OutboxAdmin, OwnerToken, Savepoint, Settled, StoreTransaction, Transactional,
    Verdict,
};
use pillarbox_sqlite::SqliteStore;
use pillarbox_testing::Harness;
use sqlx::{Connection, SqliteConnection};

use crate::harness::SqliteHarness;

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
