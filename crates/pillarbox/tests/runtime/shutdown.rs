use std::time::Duration;

use pillarbox::Outbox;
use pillarbox::outbox::State;
use pillarbox::prelude::{Context, Message, OutboxAdmin, Runtime};
use pillarbox::store::Placement;
use tokio::sync::mpsc;

use super::support::*;

const GRACE: Duration = Duration::from_secs(60);

/// One handler runs, and so many wait.
async fn busy(store: &Watched, stage: &Stage, director: &mut Director, waiting: usize) -> (Outbox<Watched>, Runtime) {
    let outbox = Outbox::new(store.clone());
    let runtime = on_stage(quiet(&outbox).worker_count(1), "work", stage).start().await.unwrap();
    runtime.idle().await;
    outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    director.began().await;
    for _ in 0..waiting {
        outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    }
    (outbox, runtime)
}

/// HOT-13, H32: those that wait are free before the one that runs has ended.
#[tokio::test]
async fn what_has_not_begun_is_given_back_at_once() {
    let store = Watched::new();
    let (stage, mut director) = stage();
    let (outbox, runtime) = busy(&store, &stage, &mut director, 5).await;
    let ending = runtime.clone();
    let shutdown = tokio::spawn(async move { ending.shutdown(GRACE).await });
    store.wait_for(|counts| counts.verdicts == 5).await;
    let counts = store.memory.overview().await.unwrap().total();
    assert_eq!((counts.pending, counts.processing), (5, 1));
    let late = outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    assert!(matches!(late.placement, Placement::Pending(_)), "nothing new is accepted");

    director.go(1);
    let report = shutdown.await.unwrap();
    assert_eq!((report.finished, report.released, report.interrupted, report.unsettled), (1, 5, 0, 0));
    let counts = store.memory.overview().await.unwrap().total();
    assert_eq!((counts.pending, counts.processing, counts.done), (6, 0, 1));
    assert!(!director.has_more());
    assert_eq!(store.state_of(late.message_id).await, (State::Pending, 0));
}

/// HOT-13, H32: the token is cancelled, the future dropped, the message free, the attempt not spent.
#[tokio::test]
async fn a_handler_that_outlives_the_grace_is_stopped_and_its_message_given_back() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let (began, mut has_begun) = mpsc::unbounded_channel();
    let runtime = quiet(&outbox)
        .on_topic("work", move |cx: Context| {
            let began = began.clone();
            async move {
                began.send(cx)?;
                std::future::pending::<()>().await;
                Ok(())
            }
        })
        .start()
        .await
        .unwrap();
    let id = outbox.enqueue_now(Message::new("work", "")).await.unwrap().message_id;
    let cx = has_begun.recv().await.unwrap();
    let token = cx.cancellation().clone();
    let report = runtime.shutdown(Duration::ZERO).await;
    assert_eq!((report.finished, report.released, report.interrupted, report.unsettled), (0, 0, 1, 0));
    assert!(token.is_cancelled());
    assert_eq!(store.state_of(id).await, (State::Pending, 0));
}

/// H32: a handler that blocks its thread cannot be stopped; the shutdown ends all the same, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_does_not_hold_up_the_shutdown() {
    let outbox = memory();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Arc::new(std::sync::Mutex::new(blocked));
    let (began, mut has_begun) = mpsc::unbounded_channel();
    let runtime = quiet(&outbox)
        .worker_count(1)
        .on_topic("work", move |_: Context| {
            let (blocked, began) = (blocked.clone(), began.clone());
            async move {
                began.send(())?;
                let _ = blocked.lock().unwrap().recv();
                Ok(())
            }
        })
        .start()
        .await
        .unwrap();
    outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    has_begun.recv().await.unwrap();
    let report = runtime.shutdown(Duration::ZERO).await;
    assert_eq!((report.finished, report.interrupted, report.unsettled), (0, 0, 1));
    drop(release);
}

/// H32: a second signal changes nothing.
#[tokio::test]
async fn a_second_shutdown_is_harmless() {
    let store = Watched::new();
    let (stage, mut director) = stage();
    let (_outbox, runtime) = busy(&store, &stage, &mut director, 2).await;
    let ending = runtime.clone();
    let first = tokio::spawn(async move { ending.shutdown(GRACE).await });
    store.wait_for(|counts| counts.verdicts == 2).await;
    director.go(1);
    let second = runtime.shutdown(Duration::ZERO).await;
    assert_eq!(first.await.unwrap(), second);
    assert_eq!((second.finished, second.released), (1, 2));
    assert_eq!(runtime.shutdown(GRACE).await, second);
}

/// H18, H32: what cannot be written is counted, and heals when its lease has run out.
#[tokio::test]
async fn a_shutdown_without_its_store_ends_and_says_what_is_open() {
    let store = Watched::new();
    let (stage, mut director) = stage();
    let (_outbox, runtime) = busy(&store, &stage, &mut director, 2).await;
    store.set_down(true);
    director.go(1);
    let report = runtime.shutdown(GRACE).await;
    assert_eq!((report.finished, report.released, report.unsettled), (1, 2, 3));
    assert_eq!(store.memory.overview().await.unwrap().total().processing, 3);
}

/// H32: dropping it stops everything; the outbox goes on without a runtime.
#[tokio::test]
async fn a_dropped_runtime_stops() {
    let store = Watched::new();
    let (stage, mut director) = stage();
    let (outbox, runtime) = busy(&store, &stage, &mut director, 2).await;
    let clone = runtime.clone();
    drop(runtime);
    outbox.nudge();
    clone.poll_once().await.unwrap();
    drop(clone);
    director.go(9);
    let late = outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    assert!(matches!(late.placement, Placement::Pending(_)));
    store.wait_for(|counts| counts.wakes >= 1).await;
    assert!(!director.has_more());
    assert_eq!(store.memory.overview().await.unwrap().total().processing, 3, "leases heal by running out");
}

/// H32: others are told of what was given back, so that they need not wait for their next poll.
#[tokio::test]
async fn what_was_given_back_is_handled_by_another_process_at_once() {
    let store = Watched::with(WakeupMode::Works);
    let other = Outbox::new(store.another());
    let taking_over = quiet(&other).on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    while !taking_over.stats().has_wakeups {
        tokio::task::yield_now().await;
    }
    let (stage, mut director) = stage();
    let (_outbox, runtime) = busy(&store, &stage, &mut director, 3).await;
    let report = runtime.shutdown(Duration::ZERO).await;
    assert_eq!((report.released, report.interrupted), (3, 1));
    while taking_over.stats().done_count < 4 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.memory.overview().await.unwrap().total().done, 4);
}

/// HOT-13: an answer to a claim that comes after the shutdown began is given back.
#[tokio::test]
async fn a_claim_that_was_under_way_is_given_back() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let (stage, mut director) = stage();
    let builder = on_stage(quiet(&outbox), "work", &stage);
    let runtime = builder.store_call_count(1).start().await.unwrap();
    runtime.idle().await;
    store.hold_claims();
    let id = {
        let mut plain = store.another();
        plain.shared = store.shared.clone();
        let elsewhere = Outbox::new(plain);
        elsewhere.enqueue_now(Message::new("work", "")).await.unwrap().message_id
    };
    outbox.nudge();
    let ending = runtime.clone();
    let shutdown = tokio::spawn(async move { ending.shutdown(GRACE).await });
    while !shutdown.is_finished() {
        store.shared.claims.add_permits(1);
        tokio::task::yield_now().await;
    }
    let report = shutdown.await.unwrap();
    assert_eq!(report.unsettled, 0);
    let (state, _) = store.state_of(id).await;
    assert!(matches!(state, State::Pending) || (state == State::Done && director.has_more()), "{state:?}, {report:?}");
}

/// H32: a program that waits for the signal hears it.
#[cfg(unix)]
#[tokio::test]
async fn sigterm_is_heard() {
    let mut terminated = Box::pin(pillarbox::signal::terminated());
    tokio::select! {
        biased;
        () = &mut terminated => panic!("nobody has sent a signal yet"),
        () = std::future::ready(()) => {}
    }
    let pid = std::process::id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    terminated.await;
}
