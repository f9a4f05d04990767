//! What is counted is what happened: messages that are committed, and messages that died.

use std::time::Duration;

use pillarbox::lease::Claim;
use pillarbox::prelude::*;
use pillarbox::{OwnerToken, UnknownTopics, WorkBatch};
use pillarbox_testing::{Harness, MemoryHarness};

use super::support::*;
use super::tally::Tally;
use super::witness::Witness;

const DEAD: &str = "pillarbox_dead_total store=memory";
const ENQUEUED: &str = "pillarbox_enqueued_total store=memory";

/// HOT-20: whoever makes a message dead counts it: for a handler, for want of one, for a row that nobody can read, by a reap.
#[tokio::test]
async fn every_message_that_dies_is_counted_once() {
    let tally = Tally::default();
    let _recorder = metrics::set_default_local_recorder(&tally);
    let harness = MemoryHarness::start(StoreOptions { lost_leases_max: 0, ..StoreOptions::default() }).await;
    let outbox = Outbox::new(harness.store().clone());
    let store = outbox.store();
    store.enqueue(Enqueue::pending(&[Message::new("killer", "")])).await.unwrap();
    store.claim(Claim::new(OwnerToken::new(), Duration::from_secs(1), 1).unwrap()).await.unwrap();
    store.enqueue(Enqueue::pending(&[Message::new("late", "").expires_in(Duration::from_secs(1))])).await.unwrap();
    store.database().advance(Duration::from_secs(2));
    harness.insert_foreign_row("order", Some("no headers")).await;
    store.enqueue(Enqueue::pending(&[Message::new("order", ""), Message::new("unknown", "")])).await.unwrap();
    let runtime = quiet(&outbox)
        .reap_interval(Duration::from_millis(1))
        .unknown_topics(UnknownTopics::Dead)
        .on_topic("order", async |_: Context| Handled::dead("no such order"))
        .start()
        .await
        .unwrap();
    while store.overview().await.unwrap().total().dead < 5 {
        tokio::task::yield_now().await;
    }
    runtime.idle().await;
    runtime.shutdown(Duration::from_secs(60)).await;
    assert_eq!(tally.count(&format!("{DEAD},route=order")), 1, "given up by its handler");
    assert_eq!(tally.count(DEAD), 4, "lease lost too often, expired, unreadable, no handler");
}

/// HOT-20, H22: somebody else has the message, and the verdict changes nothing.
#[tokio::test]
async fn a_verdict_that_came_too_late_counts_nobody_dead() {
    let tally = Tally::default();
    let _recorder = metrics::set_default_local_recorder(&tally);
    let outbox = memory();
    let (stage, mut director) = stage();
    let builder = quiet(&outbox).on_topic("work", move |cx: Context| {
        let stage = stage.clone();
        async move {
            stage.play(cx).await?;
            Handled::dead("too late")
        }
    });
    let runtime = builder.start().await.unwrap();
    outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    director.began().await;
    outbox.store().database().advance(Duration::from_secs(60));
    let thief = Claim::new(OwnerToken::new(), Duration::from_secs(600), 1).unwrap();
    assert_eq!(outbox.store().claim(thief).await.unwrap().len(), 1);
    director.go(1);
    runtime.idle().await;
    assert_eq!(runtime.stats().lease_lost_count, 1);
    assert_eq!(tally.count(&format!("{DEAD},route=work")), 0);
}

/// HOT-20, OBX-085: neither what was rolled back nor what was known already.
#[tokio::test]
async fn what_is_committed_counts_as_enqueued() {
    let (tally, witness) = (Tally::default(), Witness::default());
    let (_recorder, _watch) = (metrics::set_default_local_recorder(&tally), witness.watch());
    let outbox = memory();
    let known = Message::new("order", "").correlation_id("known");
    let told = || (tally.count(ENQUEUED), witness.lines().iter().filter(|line| line.contains("enqueued")).count());
    let runtime = quiet(&outbox).on_topic("hot", async |_: Context| Ok(())).start().await.unwrap();

    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue_all([known.clone(), Message::new("hot", "")]).await.unwrap();
    let undone = tx.nested(async |tx: &mut Tx<_>| {
        tx.enqueue_all(["hot", "order"].map(|topic| Message::new(topic, ""))).await?;
        Err::<(), _>(StoreError::rejected("the test says so"))
    });
    undone.await.unwrap_err();
    assert_eq!(told(), (0, 0), "nothing is committed yet");
    tx.commit().await.unwrap();
    assert_eq!(told(), (2, 2), "without the part that was undone");

    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue_all([Message::new("hot", ""), Message::new("order", "")]).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue(known.clone()).await.unwrap();
    tx.commit().await.unwrap();
    outbox.enqueue_now(known.clone()).await.unwrap();
    assert_eq!(told(), (2, 2), "rolled back, and known");
    outbox.enqueue_now(Message::new("order", "")).await.unwrap();
    assert_eq!(told(), (3, 3));

    let coordinator = outbox.coordinator().await.unwrap();
    let batch = || WorkBatch::new(OwnerToken::new()).enqueue(known.clone());
    coordinator.process(batch()).await.unwrap();
    coordinator.process(batch().enqueue(Message::new("order", ""))).await.unwrap();
    assert_eq!(told(), (4, 4));
    runtime.shutdown(Duration::ZERO).await;
}

/// HOT-20, H24: by the database's clock, years behind this machine's, and also where nothing is claimed.
#[tokio::test]
async fn the_age_of_the_oldest_message_is_what_the_database_says() {
    let tally = Tally::default();
    let _recorder = metrics::set_default_local_recorder(&tally);
    let outbox = memory();
    let store = outbox.store();
    store.enqueue(Enqueue::pending(&[Message::new("nobody", "")])).await.unwrap();
    store.database().advance(Duration::from_secs(90));
    // Without routes it claims nothing.
    let _runtime = quiet(&outbox).reap_interval(Duration::from_millis(1)).start().await.unwrap();
    let age = || tally.level("pillarbox_oldest_age_seconds store=memory");
    while age() < 90.0 {
        tokio::task::yield_now().await;
    }
    assert!(age() < 900.0, "{}", age());
    store.claim(Claim::new(OwnerToken::new(), Duration::from_secs(3600), 1).unwrap()).await.unwrap();
    while age() > 0.0 {
        tokio::task::yield_now().await;
    }
}

/// HOT-20, OBX-085: nobody sees the commit of a transaction of the program's own.
#[tokio::test]
async fn what_is_stored_in_a_transaction_of_the_programs_own_counts_at_once() {
    let tally = Tally::default();
    let _recorder = metrics::set_default_local_recorder(&tally);
    let outbox = memory();
    let known = Message::new("order", "").correlation_id("known");
    let mut plain = outbox.store().database().begin();
    outbox.enqueue(&mut plain, known.clone()).await.unwrap();
    outbox.enqueue(&mut plain, known.clone()).await.unwrap();
    outbox.enqueue_all(&mut plain, [known.clone(), Message::new("order", "")]).await.unwrap();
    assert_eq!(tally.count(ENQUEUED), 2, "each message once");
    plain.commit();
}
