use std::time::Duration;

use pillarbox::Outbox;
use pillarbox::prelude::{Context, Enqueue, Message, OutboxStore};

use super::support::*;
use super::witness::Witness;

/// HOT-10, BUS-05: with no poll in sight, the nudge alone brings what another writer stored.
#[tokio::test]
async fn a_nudge_wakes_the_poller() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "work", &stage).start().await.unwrap();
    runtime.idle().await;
    outbox.store().enqueue(Enqueue::pending(&messages("work", 1))).await.unwrap();
    outbox.nudge();
    director.began().await;
    director.go(1);
    runtime.idle().await;
}

/// HOT-10, BUS-05: and without a nudge the next poll does.
#[tokio::test]
async fn what_nobody_told_about_is_found_by_the_next_poll() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let builder = quiet(&outbox).poll_interval(Duration::from_millis(1));
    let runtime = on_stage(builder, "work", &stage).start().await.unwrap();
    runtime.idle().await;
    outbox.store().enqueue(Enqueue::pending(&messages("work", 1))).await.unwrap();
    director.began().await;
    director.go(1);
    runtime.idle().await;
}

/// HOT-10.
#[tokio::test]
async fn a_poll_can_be_made_by_hand() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let (stage, mut director) = stage();
    let builder = quiet(&outbox).cold_capacity(3).worker_count(1);
    let runtime = on_stage(builder, "work", &stage).start().await.unwrap();
    runtime.idle().await;
    store.memory.enqueue(Enqueue::pending(&messages("work", 9))).await.unwrap();
    assert_eq!(runtime.poll_once().await.unwrap(), 3, "as many as there is room for");
    director.began().await;
    assert_eq!(runtime.poll_once().await.unwrap(), 1);
    assert_eq!(runtime.poll_once().await.unwrap(), 0, "no room");
    director.go(9);
    runtime.idle().await;
    assert_eq!(runtime.stats().done_count, 9);
}

/// HOT-07, H38: large payloads are claimed by their bytes, and those of a commit that do not fit are left to the poller.
#[tokio::test]
async fn no_more_bytes_are_held_than_there_is_room_for() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let builder = quiet(&outbox).claim_limit(2).worker_count(1).held_bytes_max(10_000);
    let runtime = on_stage(builder, "work", &stage).start().await.unwrap();
    runtime.idle().await;
    let large = || Message::new("work", vec![b'x'; 4000]);
    let batch: Vec<_> = std::iter::repeat_with(large).take(9).collect();
    outbox.store().enqueue(Enqueue::pending(&batch)).await.unwrap();
    let mut claimed = Vec::new();
    for _ in 0..4 {
        claimed.push(runtime.poll_once().await.unwrap());
    }
    assert_eq!(claimed, [1, 1, 1, 0]);
    outbox.enqueue_now(large()).await.unwrap();
    director.began().await;
    let stats = runtime.stats();
    assert_eq!((stats.claimed_count, stats.hot_dropped_count), (3, 1));
    director.go(10);
    runtime.idle().await;
    assert_eq!(runtime.stats().done_count, 10, "room is used again");
}

/// HOT-07, HOT-10, H38: no claim without room, and room is used again.
#[tokio::test]
async fn a_backlog_larger_than_the_queue_is_drained_within_its_bounds() {
    let store = Watched::new();
    store.memory.enqueue(Enqueue::pending(&messages("work", 500))).await.unwrap();
    let outbox = Outbox::new(store.clone());
    let (stage, mut director) = stage();
    let builder = quiet(&outbox).cold_capacity(20).claim_limit(50);
    let runtime = on_stage(builder, "work", &stage).start().await.unwrap();
    for _ in 0..500 {
        director.began().await;
        let stats = runtime.stats();
        assert!(stats.cold_depth <= 20, "{stats:?}");
        director.go(1);
    }
    runtime.idle().await;
    assert_eq!(runtime.stats().done_count, 500);
}

/// BUS-05, OBX-103, H5, H35: another process without a runtime wakes this one, which otherwise would not look for a day.
#[tokio::test]
async fn other_processes_wake_the_poller() {
    let store = Watched::with(WakeupMode::Works);
    let outbox = Outbox::new(store.clone());
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "work", &stage).start().await.unwrap();
    store.wait_for(|counts| counts.wakes >= 1).await;
    while !runtime.stats().has_wakeups {
        tokio::task::yield_now().await;
    }
    runtime.idle().await;
    let elsewhere = store.another();
    let writer = Outbox::new(elsewhere.clone());
    let id = writer.enqueue_now(Message::new("work", "")).await.unwrap().message_id;
    assert_eq!(director.began().await, id);
    director.go(1);
    runtime.idle().await;
    assert_eq!(elsewhere.counts().wakes, 1);
}

/// H5: a thousand nudges are few wake-ups, and one comes after the last.
#[tokio::test]
async fn nudges_are_gathered_and_never_lost() {
    let store = Watched::with(WakeupMode::Works);
    let outbox = Outbox::new(store.clone());
    for _ in 0..1000 {
        outbox.nudge();
    }
    store.wait_for(|counts| counts.wakes >= 2).await;
    let before = store.counts().wakes;
    assert!(before < 100, "{before}");
    let sync = outbox.clone();
    std::thread::spawn(move || sync.nudge()).join().unwrap();
    store.wait_for(|counts| counts.wakes > before).await;
}

/// H7, H29: wake-ups that never arrive are noticed, and the poller does without.
#[tokio::test]
async fn a_deaf_subscription_falls_back_to_polling() {
    let store = Watched::with(WakeupMode::Deaf);
    let outbox = Outbox::new(store.clone());
    let (stage, mut director) = stage();
    let builder = quiet(&outbox).poll_interval(Duration::from_millis(1));
    let runtime = on_stage(builder, "work", &stage).start().await.unwrap();
    store.wait_for(|counts| counts.wakes >= 1).await;
    assert!(!runtime.stats().has_wakeups);
    store.memory.enqueue(Enqueue::pending(&messages("work", 1))).await.unwrap();
    director.began().await;
    director.go(1);
    runtime.idle().await;
}

/// H7: that wake-ups never arrive is said in one line, however often they are tried again.
#[tokio::test(start_paused = true)]
async fn a_deaf_subscription_is_reported_once() {
    let witness = Witness::default();
    let _watch = witness.watch();
    let store = Watched::with(WakeupMode::Deaf);
    let outbox = Outbox::new(store.clone());
    let runtime = quiet(&outbox).on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    store.wait_for(|counts| counts.wakes >= 3).await;
    let lines = witness.lines();
    let said: Vec<_> = lines.iter().filter(|line| line.starts_with("WARN wake-ups do not arrive")).collect();
    assert_eq!(said.len(), 1, "{lines:?}");
    assert!(said[0].contains("store="), "{said:?}");
    runtime.shutdown(Duration::ZERO).await;
}

/// A runtime without handlers is a writer: it takes nothing from those who have some.
#[tokio::test]
async fn a_runtime_without_routes_claims_nothing() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let runtime = quiet(&outbox).poll_interval(Duration::from_millis(1)).start().await.unwrap();
    let id = outbox.enqueue_now(Message::new("work", "")).await.unwrap().message_id;
    outbox.nudge();
    store.wait_for(|counts| counts.wakes >= 1).await;
    runtime.shutdown(Duration::ZERO).await;
    assert_eq!(store.counts().claims, 0);
    assert_eq!(store.state_of(id).await.1, 0);
}

/// OBX-099: handlers that are always ready leave room for other tasks on a single thread.
#[tokio::test]
async fn ready_handlers_do_not_monopolise_the_thread() {
    let outbox = memory();
    outbox.store().enqueue(Enqueue::pending(&messages("work", 5000))).await.unwrap();
    let builder = quiet(&outbox).worker_count(1).cold_capacity(5000).claim_limit(5000);
    let runtime = builder.on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    let mut turns = 0;
    while runtime.stats().started_count < 5000 {
        tokio::task::yield_now().await;
        turns += 1;
    }
    assert!(turns > 50, "this task had {turns} turns while 5000 handlers ran");
    runtime.idle().await;
}

/// HOT-10, WRK-04: nobody polls, but the runtime knows what it was told to put off.
#[tokio::test]
async fn a_delayed_message_is_handled_when_it_is_due() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "work", &stage).start().await.unwrap();
    runtime.idle().await;
    let delayed = Message::new("work", "").delay(Duration::from_millis(1));
    let id = outbox.enqueue_now(delayed).await.unwrap().message_id;
    assert_eq!(director.began().await, id);
    director.go(1);
    runtime.idle().await;
    assert_eq!(runtime.stats().claimed_count, 1);
}
