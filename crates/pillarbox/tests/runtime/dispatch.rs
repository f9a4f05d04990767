use std::sync::{Arc, Mutex};
use std::time::Duration;

use pillarbox::UnknownTopics;
use pillarbox::outbox::State;
use pillarbox::prelude::{Batch, Context, Failure, Handled, Message, Route};
use pillarbox_core::OutboxAdmin;

use super::support::*;

/// HOT-08: one worker, so that the order of beginning is the order of the queues.
#[tokio::test]
async fn hot_and_cold_messages_are_drained_two_to_one() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let builder = on_stage(quiet(&outbox).worker_count(1).store_call_count(1), "hot", &stage);
    let runtime = on_stage(on_stage(builder, "cold", &stage), "first", &stage).start().await.unwrap();
    outbox.enqueue_now(Message::new("first", "")).await.unwrap();
    director.began().await;

    let mut plain = outbox.store().database().begin();
    let cold = messages("cold", 3);
    outbox.enqueue_all(&mut plain, cold.clone()).await.unwrap();
    plain.commit();
    assert_eq!(runtime.poll_once().await.unwrap(), 3);
    let hot = messages("hot", 4);
    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue_all(hot.clone()).await.unwrap();
    tx.commit().await.unwrap();

    director.go(8);
    let mut order = Vec::new();
    for _ in 0..7 {
        let id = director.began().await;
        order.push(if hot.iter().any(|message| message.id() == id) { 'h' } else { 'c' });
    }
    // The very first message was a hot one.
    assert_eq!(order.iter().collect::<String>(), "hchhchc");
}

/// HOT-09, OBX-060.
#[tokio::test]
async fn as_many_handlers_run_as_there_are_workers() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox).worker_count(3), "work", &stage).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue_all(messages("work", 20)).await.unwrap();
    tx.commit().await.unwrap();
    for _ in 0..3 {
        director.began().await;
    }
    assert_eq!(runtime.stats().running_count, 3);
    director.go(20);
    runtime.idle().await;
    assert_eq!((director.most_at_once(), runtime.stats().done_count), (3, 20));
}

/// HOT-09, H33: a slow route with a limit takes no worker from the others.
#[tokio::test]
async fn a_route_with_a_limit_leaves_the_workers_to_others() {
    let outbox = memory();
    let ((slow, mut slow_director), (fast, mut fast_director)) = (stage(), stage());
    let route = Route::topic("slow").concurrency_max(1).to(move |cx: Context| slow.clone().play(cx));
    let runtime = on_stage(quiet(&outbox).worker_count(2).route(route), "fast", &fast).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue_all(messages("slow", 5)).await.unwrap();
    tx.enqueue_all(messages("fast", 5)).await.unwrap();
    tx.commit().await.unwrap();
    slow_director.began().await;
    fast_director.go(5);
    for _ in 0..5 {
        fast_director.began().await;
    }
    slow_director.go(5);
    runtime.idle().await;
    assert_eq!((slow_director.most_at_once(), runtime.stats().done_count), (1, 10));
}

#[tokio::test]
async fn a_batch_handler_gets_what_waits_and_answers_for_each() {
    let outbox = memory();
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sizes);
    let runtime = quiet(&outbox)
        .on_batch("audit", 4, move |batch: Batch| {
            let seen = Arc::clone(&seen);
            async move {
                seen.lock().unwrap().push(batch.len());
                let mut outcome = batch.outcome();
                outcome.set(0, Handled::dead("the first one is bad"));
                Ok(outcome)
            }
        })
        .worker_count(1)
        .start()
        .await
        .unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue_all(messages("audit", 10)).await.unwrap();
    tx.commit().await.unwrap();
    runtime.idle().await;
    assert_eq!(*sizes.lock().unwrap(), [4, 4, 2]);
    assert_eq!((runtime.stats().done_count, runtime.stats().dead_count), (7, 3));
}

/// HOT-05, HOT-19, OBX-059, H22: its lease ran out, and we claim it again ourselves while it still runs here.
#[tokio::test]
async fn a_message_is_never_run_twice_at_once() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "work", &stage).start().await.unwrap();
    let id = outbox.enqueue_now(Message::new("work", "")).await.unwrap().message_id;
    assert_eq!(director.began().await, id);
    runtime.stats();
    outbox.store().database().advance(Duration::from_secs(31));
    assert_eq!(runtime.poll_once().await.unwrap(), 1, "the store hands it out again");
    assert_eq!((runtime.stats().doubled_count, runtime.stats().started_count), (1, 1));
    assert!(!director.has_more());
    director.go(2);
    runtime.idle().await;
    assert_eq!(runtime.stats().lease_lost_count, 1, "the first verdict came too late");
    outbox.store().database().advance(Duration::from_secs(2));
    outbox.nudge();
    runtime.idle().await;
    assert_eq!((director.most_at_once(), runtime.stats().done_count), (1, 1));
}

/// H30, OBX-056: a panic is a failed attempt, and the only worker lives on.
#[tokio::test]
async fn a_panic_is_a_failed_attempt_and_the_worker_lives() {
    let outbox = memory();
    let runtime = quiet(&outbox)
        .worker_count(1)
        .retry(attempts(1))
        .on_topic("bad", async |_: Context| panic!("the test says so"))
        .on_topic("good", async |_: Context| Ok(()))
        .start()
        .await
        .unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue_all(messages("bad", 3)).await.unwrap();
    tx.enqueue_all(messages("good", 3)).await.unwrap();
    tx.commit().await.unwrap();
    runtime.idle().await;
    assert_eq!((runtime.stats().dead_count, runtime.stats().done_count), (3, 3));
}

/// H30: the same for a backoff of the user's own.
#[tokio::test]
async fn a_backoff_that_panics_harms_nobody() {
    #[derive(Debug)]
    struct Bad;
    impl pillarbox::retry::Backoff for Bad {
        fn delay(&self, _: u32, _: f64) -> Duration {
            panic!("the test says so")
        }
    }
    let outbox = memory();
    let runtime = quiet(&outbox)
        .worker_count(1)
        .retry(pillarbox::retry::RetryPolicy::default().backoff(Bad))
        .on_topic("bad", async |_: Context| Err(Failure::retry("no")))
        .on_topic("good", async |_: Context| Ok(()))
        .start()
        .await
        .unwrap();
    outbox.enqueue_now(Message::new("bad", "")).await.unwrap();
    outbox.enqueue_now(Message::new("good", "")).await.unwrap();
    runtime.idle().await;
    assert_eq!((runtime.stats().retried_count, runtime.stats().done_count), (1, 1));
}

/// H28: the attempt is counted, and the worker is free for the next one.
#[tokio::test]
async fn a_handler_that_hangs_is_a_failed_attempt() {
    let outbox = memory();
    let hangs = Route::topic("hangs").run_time_max(Duration::from_millis(5)).to(async |_: Context| {
        std::future::pending::<()>().await;
        Ok(())
    });
    let runtime = quiet(&outbox).worker_count(1).retry(attempts(1)).route(hangs).start().await.unwrap();
    let id = outbox.enqueue_now(Message::new("hangs", "")).await.unwrap().message_id;
    runtime.idle().await;
    let stored = outbox.store().get(pillarbox_core::admin::MessageName::Message(id)).await.unwrap().unwrap();
    assert_eq!((stored.state, stored.attempts), (State::Dead, 1));
    assert!(stored.last_error.unwrap().contains("ran longer"));
}

/// OBX-055, OBX-064, H33.
#[tokio::test]
async fn a_message_without_a_handler_follows_the_policy() {
    let table = [
        (UnknownTopics::Retry, State::Pending, 1),
        (UnknownTopics::Dead, State::Dead, 1),
        (UnknownTopics::Leave, State::Pending, 0),
    ];
    for (policy, state, attempts) in table {
        let outbox = memory();
        let builder = quiet(&outbox).unknown_topics(policy).on_topic("known", async |_: Context| Ok(()));
        let runtime = builder.start().await.unwrap();
        let id = outbox.enqueue_now(Message::new("unknown", "")).await.unwrap().message_id;
        let known = outbox.enqueue_now(Message::new("known", "")).await.unwrap().message_id;
        outbox.nudge();
        runtime.idle().await;
        let get =
            async |id| outbox.store().get(pillarbox_core::admin::MessageName::Message(id)).await.unwrap().unwrap();
        let stored = get(id).await;
        assert_eq!((stored.state, stored.attempts), (state, attempts), "{policy:?}");
        assert_eq!(get(known).await.state, State::Done, "others flow");
    }
}

/// HOT-11: dead at once, with the reason, and the loop goes on.
#[tokio::test]
async fn a_row_that_cannot_be_read_is_dead_at_once() {
    use pillarbox_testing::{Harness, MemoryHarness};
    let harness = MemoryHarness::start(pillarbox::store::StoreOptions::default()).await;
    harness.insert_foreign_row("work", Some("no headers")).await;
    let outbox = pillarbox::Outbox::new(harness.store().clone());
    let runtime = quiet(&outbox).on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    runtime.idle().await;
    assert_eq!((runtime.stats().dead_count, runtime.stats().done_count), (1, 1));
}
