use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pillarbox::Outbox;
use pillarbox::prelude::{Context, Message, Route};
use tokio::sync::mpsc;

use super::support::*;

const SHORT: Duration = Duration::from_millis(100);

/// H22, WRK-04: the handler runs for several leases, and nobody takes the message over.
#[tokio::test]
async fn the_lease_of_a_long_handler_is_renewed() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox).lease(SHORT), "work", &stage).start().await.unwrap();
    outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    director.began().await;
    store.wait_for(|counts| counts.renewals >= 3).await;
    assert!(runtime.stats().renewed_count >= 2);
    director.go(1);
    runtime.idle().await;
    assert_eq!((runtime.stats().done_count, runtime.stats().lease_lost_count), (1, 0));
}

/// H27: both threads of the program are blocked, and go on only when leases were renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_every_thread_do_not_starve_the_renewals() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let blocking = store.clone();
    let runtime = quiet(&outbox)
        .lease(SHORT)
        .worker_count(2)
        .on_topic("work", move |_: Context| {
            let store = blocking.clone();
            async move {
                store.block_until(|counts| counts.renewals >= 3);
                Ok(())
            }
        })
        .start()
        .await
        .unwrap();
    for _ in 0..2 {
        outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    }
    runtime.idle().await;
    assert_eq!((runtime.stats().done_count, runtime.stats().lease_lost_count), (2, 0));
}

/// H26: it waited too long, and its lease could not be renewed. It is given back, and costs no attempt.
#[tokio::test]
async fn a_buffered_message_whose_lease_is_nearly_over_is_not_started() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox).lease(SHORT).worker_count(1), "work", &stage).start().await.unwrap();
    store.shared.cannot_renew.store(true, Ordering::SeqCst);
    outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    director.began().await;
    let second = outbox.enqueue_now(Message::new("work", "")).await.unwrap().message_id;
    // Renewals are tried every 5 ms once 60 % of the lease are over.
    store.wait_for(|counts| counts.refused_renewals >= 20).await;
    assert_eq!(runtime.stats().not_started_count, 0);
    store.shared.cannot_renew.store(false, Ordering::SeqCst);
    director.go(2);
    assert_eq!(director.began().await, second);
    runtime.idle().await;
    assert!(runtime.stats().not_started_count >= 1);
    assert_eq!(store.state_of(second).await.1, 1, "no attempt was spent");
}

/// H26: what waits is renewed like what runs.
#[tokio::test]
async fn the_leases_of_messages_that_wait_are_renewed() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox).lease(SHORT).worker_count(1), "work", &stage).start().await.unwrap();
    for _ in 0..3 {
        outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    }
    director.began().await;
    store.wait_for(|counts| counts.renewals >= 4).await;
    director.go(3);
    runtime.idle().await;
    assert_eq!((runtime.stats().done_count, runtime.stats().lease_lost_count), (3, 0));
}

/// H22, OBX-057: somebody else has the message now; the handler is told, and its verdict changes nothing.
#[tokio::test]
async fn a_handler_whose_lease_is_lost_is_told() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let (sender, mut cancelled) = mpsc::unbounded_channel();
    let (began, mut has_begun) = mpsc::unbounded_channel();
    let runtime = quiet(&outbox)
        .lease(SHORT)
        .on_topic("work", move |cx: Context| {
            let (sender, began) = (sender.clone(), began.clone());
            async move {
                began.send(())?;
                cx.cancellation().cancelled().await;
                sender.send(cx.message_id())?;
                Ok(())
            }
        })
        .start()
        .await
        .unwrap();
    let id = outbox.enqueue_now(Message::new("work", "")).await.unwrap().message_id;
    has_begun.recv().await.unwrap();
    store.memory.database().advance(Duration::from_secs(60));
    let thief = pillarbox::lease::Claim::new(pillarbox::OwnerToken::new(), Duration::from_secs(600), 1).unwrap();
    assert_eq!(pillarbox::OutboxStore::claim(&store.memory, thief).await.unwrap().len(), 1);
    assert_eq!(cancelled.recv().await.unwrap(), id);
    runtime.idle().await;
    assert!(runtime.stats().lease_lost_count >= 1);
    assert_eq!(store.state_of(id).await.0, pillarbox::outbox::State::Processing, "the thief holds it");
}

/// H27, H28: a handler that blocks its thread for ever cannot be stopped, but its message is free again some day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_beyond_its_time_loses_its_lease() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let (began, mut has_begun) = mpsc::unbounded_channel();
    let route = Route::topic("work").run_time_max(Duration::from_millis(1)).to(move |cx: Context| {
        let (blocked, began) = (Arc::clone(&blocked), began.clone());
        async move {
            began.send(cx.clone())?;
            let _ = blocked.lock().unwrap().recv();
            Ok(())
        }
    });
    let runtime = quiet(&outbox).lease(SHORT).worker_count(1).route(route).start().await.unwrap();
    outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    let cx = has_begun.recv().await.unwrap();
    cx.cancellation().cancelled().await;
    let renewals = store.counts().renewals;
    drop(release);
    runtime.idle().await;
    assert!(store.counts().renewals <= renewals + 1, "it was given up");
    assert_eq!(runtime.stats().done_count, 1, "nobody took it over, and so the late verdict stands");
}
