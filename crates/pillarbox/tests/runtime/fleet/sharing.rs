//! What stores of a fleet do not do to each other when they begin, end and are many.

use std::time::Duration;

use pillarbox::prelude::*;

use super::support::*;
use crate::support::{messages, on_stage, stage};

/// BUS-07, H23: nothing is lost when two hundred stores are shut down at once, and all of them are free again.
#[tokio::test]
async fn a_fleet_of_two_hundred_stores_is_shut_down_at_once() {
    let outboxes: Vec<_> = (0..200).map(|number| memory_named(&format!("store-{number:03}"))).collect();
    let (stage, mut director) = stage();
    let mut builder = on_stage(quiet_fleet().worker_count(10), "work", &stage);
    for outbox in &outboxes {
        outbox.store().enqueue(Enqueue::pending(&messages("work", 3))).await.unwrap();
        builder = builder.store(outbox.store().id().as_str(), outbox);
    }
    let fleet = builder.start().await.unwrap();
    for _ in 0..10 {
        director.began().await;
    }
    while fleet.stores().iter().any(|key| fleet.stats(key).unwrap().outbox.unwrap().claimed_count < 3) {
        tokio::task::yield_now().await;
    }
    let ending = {
        let fleet = fleet.clone();
        tokio::spawn(async move { fleet.shutdown(Duration::from_secs(60)).await })
    };
    // What waits in memory is given back first.
    while fleet.stores().iter().any(|key| fleet.stats(key).unwrap().outbox.unwrap().cold_depth > 0) {
        tokio::task::yield_now().await;
    }
    director.go(10);
    let report = ending.await.unwrap();
    assert_eq!((report.finished, report.released, report.interrupted, report.unsettled), (10, 590, 0, 0));
    let mut counts = (0, 0);
    for outbox in &outboxes {
        let total = outbox.store().overview().await.unwrap().total();
        counts = (counts.0 + total.done, counts.1 + total.pending);
    }
    assert_eq!(counts, (10, 590));
    assert_eq!(fleet.shutdown(Duration::ZERO).await, report, "a second call answers the same");
    drop(Runtime::builder(&outboxes[0]).start().await.unwrap());
}

/// Handlers that run when the grace is over are cut short, and their messages are free at once.
#[tokio::test]
async fn handlers_that_outlast_the_grace_give_their_messages_back() {
    let outbox = memory_named("eu");
    let (stage, mut director) = stage();
    let fleet = on_stage(quiet_fleet().store("eu", &outbox), "work", &stage).start().await.unwrap();
    let id = fleet.router().outbox("eu").unwrap().enqueue_now(Message::new("work", "")).await.unwrap().message_id;
    assert_eq!(director.began().await, id);
    let report = fleet.shutdown(Duration::ZERO).await;
    assert_eq!((report.interrupted, report.unsettled), (1, 0));
    let total = outbox.store().overview().await.unwrap().total();
    assert_eq!((total.pending, total.processing), (1, 0));
}

/// BUS-07: leases are renewed for every store of the fleet, by the one thread that they share.
#[tokio::test]
async fn leases_of_all_stores_are_renewed() {
    let outboxes: Vec<_> = (0..5).map(|number| memory_named(&format!("store-{number}"))).collect();
    let (stage, mut director) = stage();
    let mut builder = on_stage(quiet_fleet().worker_count(5).lease(Duration::from_millis(100)), "work", &stage);
    for outbox in &outboxes {
        builder = builder.store(outbox.store().id().as_str(), outbox);
    }
    let fleet = builder.start().await.unwrap();
    for outbox in &outboxes {
        fleet
            .router()
            .outbox(outbox.store().id().as_str())
            .unwrap()
            .enqueue_now(Message::new("work", ""))
            .await
            .unwrap();
        director.began().await;
    }
    while fleet.stores().iter().any(|key| fleet.stats(key).unwrap().outbox.unwrap().renewed_count < 3) {
        tokio::task::yield_now().await;
    }
    director.go(5);
    fleet.idle().await;
    for key in fleet.stores() {
        let stats = fleet.stats(&key).unwrap().outbox.unwrap();
        assert_eq!((stats.done_count, stats.lease_lost_count), (1, 0));
    }
}
