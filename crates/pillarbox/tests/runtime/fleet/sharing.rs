//! What stores of a fleet do not do to each other when they begin, end and are many.

use std::time::Duration;

use pillarbox::prelude::*;
use pillarbox::{Fleet, Instance, InstanceId, this_process};
use tokio::time::Instant;

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

/// Waits until the fleet sees exactly these instances in every store.
async fn sees(fleet: &Fleet, instances: &[&Instance]) {
    let mut ids: Vec<InstanceId> = instances.iter().map(|instance| instance.id()).collect();
    ids.sort_unstable();
    for key in fleet.stores() {
        let mut assignment = fleet.assignment(&key).unwrap();
        assignment.wait_for(|assignment| assignment.instances() == ids).await.unwrap();
    }
}

/// WRK-03: a fleet that comes or stops is noticed in all of its stores long before the next heartbeat, because one of them is watched
/// for all; also by a store that it joins or leaves last. Time is the test's.
#[tokio::test(start_paused = true)]
async fn a_fleet_that_stops_is_missed_in_every_store() {
    const HOUR: Duration = Duration::from_secs(3600);
    let outboxes = ["a", "b", "c"].map(memory_named);
    let start = async |instance: &Instance| {
        let mut builder = quiet_fleet().instance(instance.clone()).heartbeat(HOUR, 3 * HOUR);
        for outbox in &outboxes {
            let name = outbox.store().id().clone();
            builder = builder.store(name.as_str(), &Outbox::new(outbox.store().clone()));
        }
        builder.on_topic("work", async |_: Context| Handled::done()).start().await.unwrap()
    };
    let [a, b] = ["a", "b"].map(this_process);
    let staying = start(&a).await;
    sees(&staying, &[&a]).await;
    let began = Instant::now();
    let stopping = start(&b).await;
    sees(&staying, &[&a, &b]).await;
    // Seen to leave where nobody looks, and then where somebody does.
    for outbox in outboxes.iter().rev() {
        outbox.store().instances().unwrap().leave(b.id()).await.unwrap();
    }
    stopping.shutdown(Duration::ZERO).await;
    sees(&staying, &[&a]).await;
    assert!(began.elapsed() < HOUR / 2, "nobody waited for a heartbeat");
    assert!(staying.assignment("nowhere").is_err());
}

/// The same where the store that is watched sees it first, and the others later.
#[tokio::test(start_paused = true)]
async fn what_is_said_of_an_instance_is_looked_for_until_it_is_true() {
    const HOUR: Duration = Duration::from_secs(3600);
    let outboxes = ["a", "b"].map(memory_named);
    let [me, other] = ["me", "other"].map(this_process);
    let lists = outboxes.each_ref().map(|outbox| outbox.store().instances().unwrap());
    let mut builder = quiet_fleet().instance(me.clone()).heartbeat(HOUR, 3 * HOUR);
    for outbox in &outboxes {
        builder = builder.store(outbox.store().id().as_str(), outbox);
    }
    let fleet = builder.on_topic("work", async |_: Context| Handled::done()).start().await.unwrap();
    sees(&fleet, &[&me]).await;
    for list in &lists {
        list.heartbeat(&other).await.unwrap();
    }
    sees(&fleet, &[&me, &other]).await;
    let began = Instant::now();
    lists[0].leave(other.id()).await.unwrap();
    let mut watched = fleet.assignment("a").unwrap();
    watched.wait_for(|assignment| assignment.instances().len() == 1).await.unwrap();
    // The other store was told by now, and has looked in vain.
    tokio::time::advance(Duration::from_secs(3)).await;
    lists[1].leave(other.id()).await.unwrap();
    sees(&fleet, &[&me]).await;
    assert!(began.elapsed() < HOUR / 2, "nobody waited for a heartbeat");
}
