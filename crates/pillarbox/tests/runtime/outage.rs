use std::time::Duration;

use pillarbox::Outbox;
use pillarbox::prelude::{Context, Enqueue, Message, OutboxAdmin, OutboxStore};

use super::support::*;

/// H18, H20, HOT-25: verdicts of handlers that ended meanwhile are kept and written when the store is back.
#[tokio::test]
async fn an_outage_of_the_store_loses_nothing() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "work", &stage).start().await.unwrap();
    store.memory.enqueue(Enqueue::pending(&messages("work", 10))).await.unwrap();
    outbox.nudge();
    for _ in 0..4 {
        director.began().await;
    }
    store.set_down(true);
    director.go(10);
    store.wait_for(|counts| counts.failures >= 3).await;
    assert!(runtime.stats().is_store_out);
    assert!(runtime.stats().unsettled_count > 0);
    store.set_down(false);
    runtime.idle().await;
    let stats = runtime.stats();
    assert_eq!((stats.done_count, stats.started_count, stats.lease_lost_count), (10, 10, 0));
    assert!(!stats.is_store_out);
}

/// H20: a store that is away when the runtime starts is no reason to give up.
#[tokio::test]
async fn a_runtime_waits_for_its_store() {
    let store = Watched::new();
    store.memory.enqueue(Enqueue::pending(&messages("work", 3))).await.unwrap();
    store.set_down(true);
    let outbox = Outbox::new(store.clone());
    let runtime = quiet(&outbox).on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    store.wait_for(|counts| counts.failures >= 2).await;
    store.set_down(false);
    runtime.idle().await;
    assert_eq!(runtime.stats().done_count, 3);
}

/// BUS-07, H23: what a process left that died is taken over when its leases have run out.
#[tokio::test]
async fn what_a_dead_process_left_is_taken_over() {
    let store = Watched::new();
    let first = Outbox::new(store.clone());
    let (stuck, mut stuck_director) = stage();
    let dying = on_stage(quiet(&first).worker_count(1), "work", &stuck).start().await.unwrap();
    for _ in 0..3 {
        first.enqueue_now(Message::new("work", "")).await.unwrap();
    }
    stuck_director.began().await;
    drop(dying);

    let second = Outbox::new(store.another());
    let runtime = quiet(&second).on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    runtime.idle().await;
    assert_eq!(runtime.stats().claimed_count, 0, "their leases still run");
    store.memory.database().advance(Duration::from_secs(31));
    second.nudge();
    runtime.idle().await;
    assert_eq!(runtime.stats().done_count, 3);
    assert_eq!(store.memory.overview().await.unwrap().total().done, 3);
}

/// OBX-053, BUS-07: the reaper runs by itself, and what it frees is handled.
#[tokio::test]
async fn leases_that_ran_out_are_reaped() {
    let outbox = memory();
    let stale = pillarbox::lease::Claim::new(pillarbox::OwnerToken::new(), Duration::from_secs(1), 5).unwrap();
    outbox.store().enqueue(Enqueue::pending(&messages("other", 5))).await.unwrap();
    outbox.store().claim(stale).await.unwrap();
    outbox.store().database().advance(Duration::from_secs(2));
    let builder = quiet(&outbox).reap_interval(Duration::from_millis(1)).purge_interval(Duration::from_millis(1));
    // Without routes nothing is claimed: only the reaper can have freed them.
    let _runtime = builder.start().await.unwrap();
    while outbox.store().overview().await.unwrap().expired_lease_count > 0 {
        tokio::task::yield_now().await;
    }
}

/// BUS-09, WRK-09: what is past its retention is removed by every runtime, without being asked.
#[tokio::test]
async fn done_messages_are_removed_in_time() {
    let outbox = memory();
    let id = outbox.enqueue_now(Message::new("order", "")).await.unwrap().message_id;
    assert_eq!(
        quiet(&outbox).on_topic("order", async |_: Context| Ok(())).inline().unwrap().drain().await.unwrap().done,
        1
    );
    let name = pillarbox::admin::MessageName::Message(id);
    assert!(outbox.store().get(name).await.unwrap().is_some());
    outbox.store().database().advance(pillarbox::retention::KEEP_DEFAULT + Duration::from_secs(1));
    let _runtime = quiet(&outbox).purge_interval(Duration::from_millis(1)).start().await.unwrap();
    while outbox.store().get(name).await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
}

/// WRK-09, WRK-11: results of receptors that are past the retention are forgotten too.
#[tokio::test]
async fn old_results_of_receptors_are_forgotten_in_time() {
    let outbox = memory();
    let coordinator = outbox.coordinator().await.unwrap();
    let (message_id, outcome) = (pillarbox::MessageId::new(), pillarbox::progress::Outcome::Done);
    let result = pillarbox::progress::ReceptorResult { message_id, receptor: "mail".into(), outcome };
    let batch = pillarbox::WorkBatch::new(pillarbox::OwnerToken::new()).receptor(result);
    coordinator.process(batch).await.unwrap();
    assert_eq!(coordinator.progress().receptors_of(message_id).await.unwrap().len(), 1);
    outbox.store().database().advance(pillarbox::retention::KEEP_DEFAULT + Duration::from_secs(1));
    let _runtime = quiet(&outbox).purge_interval(Duration::from_millis(1)).start().await.unwrap();
    while !coordinator.progress().receptors_of(message_id).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
}
