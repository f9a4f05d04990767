//! Runs whose first message hangs or is taken over: what would have followed it is given back, and not handled here.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pillarbox::outbox::State;
use pillarbox::prelude::{
    Claim, Context, Enqueue, Message, MessageId, Outbox, OutboxStore, OwnerToken, Route, RuntimeBuilder,
};
use tokio::sync::mpsc;

use super::support::*;

/// Short by the process's clock, so that leases are soon renewed. The database's clock stands still unless a test moves it.
const SHORT: Duration = Duration::from_millis(100);

/// Longer than any lease of these tests.
const LATER: Duration = Duration::from_secs(3600);

/// Messages of one key.
async fn keyed(outbox: &Outbox<Watched>, count: usize) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for number in 0..count {
        ids.push(outbox.enqueue_now(Message::new("work", number.to_string()).key("k")).await.unwrap().message_id);
    }
    ids
}

/// Another process takes only the first of the messages over, whose leases have all run out.
async fn take_first_over(store: &Watched) {
    store.memory.database().advance(LATER);
    let thief = Claim::new(OwnerToken::new(), LATER, 1).unwrap();
    assert_eq!(store.memory.claim(thief).await.unwrap().len(), 1);
}

/// These wait for whoever comes next, and no attempt was spent on them.
async fn are_free(store: &Watched, ids: &[MessageId]) {
    for id in ids {
        assert_eq!(store.state_of(*id).await, (State::Pending, 0));
    }
}

/// Blocks its thread with the first message until the sender is dropped; a thread that is blocked cannot be stopped.
fn blocking(
    builder: RuntimeBuilder,
) -> (RuntimeBuilder, std::sync::mpsc::Sender<()>, mpsc::UnboundedReceiver<Context>) {
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let (began, has_begun) = mpsc::unbounded_channel();
    let route = Route::topic("work").run_time_max(Duration::from_millis(1)).to(move |cx: Context| {
        let (blocked, began) = (Arc::clone(&blocked), began.clone());
        async move {
            began.send(cx)?;
            let _ = blocked.lock().unwrap().recv();
            Ok(())
        }
    });
    (builder.lease(SHORT).worker_count(1).route(route), release, has_begun)
}

/// A second process takes everything over, in its order, while the first one is still blocked.
async fn what_hangs_is_taken_over(ordered: fn(RuntimeBuilder) -> RuntimeBuilder) {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let ids = keyed(&outbox, 3).await;
    let (builder, release, mut has_begun) = blocking(quiet(&outbox));
    let hung = ordered(builder).start().await.unwrap();
    let cx = has_begun.recv().await.unwrap();
    store.hold_claims();
    cx.cancellation().cancelled().await;
    store.wait_for(|counts| counts.verdicts >= 2).await;
    are_free(&store, &ids[1..]).await;
    assert_eq!(store.state_of(ids[0]).await, (State::Processing, 1), "its lease is left to run out");

    store.memory.database().advance(LATER);
    let (stage, mut director) = stage();
    director.go(ids.len());
    let other = on_stage(ordered(quiet(&Outbox::new(store.another()))), "work", &stage).start().await.unwrap();
    for id in ids {
        assert_eq!(director.began().await, id);
    }
    other.idle().await;
    assert_eq!(other.stats().done_count, 3);
    store.shared.claims.add_permits(100);
    drop(release);
    hung.idle().await;
    assert_eq!((hung.stats().started_count, hung.stats().done_count), (1, 0), "its late verdict changes nothing");
}

/// H28, WRK-07: messages behind a hung one are not kept from everybody for as long as its process lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_whose_handler_hangs_is_taken_over() {
    what_hangs_is_taken_over(|builder| builder).await;
}

/// H28, BUS-06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequence_whose_handler_hangs_is_taken_over() {
    what_hangs_is_taken_over(RuntimeBuilder::in_sequence).await;
}

/// H28: the room that was kept for the rest of a run is there for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hung_handler_keeps_waiting_leaves_its_room() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    keyed(&outbox, 3).await;
    let (builder, release, mut has_begun) = blocking(quiet(&outbox).cold_capacity(3));
    let runtime = builder.start().await.unwrap();
    has_begun.recv().await.unwrap().cancellation().cancelled().await;
    store.wait_for(|counts| counts.verdicts >= 2).await;
    store.enqueue(Enqueue::pending(&messages("work", 3))).await.unwrap();
    outbox.nudge();
    while runtime.stats().cold_depth < 3 {
        tokio::task::yield_now().await;
    }
    drop(release);
    runtime.idle().await;
    assert_eq!(runtime.stats().done_count, 6);
}

/// H22, WRK-07: somebody else has the first one now, so the others are not for us, though nobody has taken them yet.
#[tokio::test]
async fn a_run_whose_first_message_is_lost_does_not_go_on() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let ids = keyed(&outbox, 3).await;
    let (began, mut has_begun) = mpsc::unbounded_channel();
    let (first, (stage, director)) = (ids[0], stage());
    let builder = quiet(&outbox).lease(SHORT).on_topic("work", move |cx: Context| {
        let (began, stage) = (began.clone(), stage.clone());
        async move {
            began.send(cx.clone())?;
            if cx.message_id() == first { stage.play(cx).await } else { Ok(()) }
        }
    });
    let runtime = builder.start().await.unwrap();
    let cx = has_begun.recv().await.unwrap();
    take_first_over(&store).await;
    cx.cancellation().cancelled().await;
    store.wait_for(|counts| counts.verdicts >= 2).await;
    are_free(&store, &ids[1..]).await;
    director.go(1);
    runtime.idle().await;
    assert!(has_begun.try_recv().is_err(), "nothing of its run began");
    are_free(&store, &ids[1..]).await;
    assert_eq!(store.state_of(ids[0]).await.0, State::Processing, "the thief holds it");
}

/// H22, WRK-07: the same where only the answer to its verdict tells.
#[tokio::test]
async fn a_run_whose_first_verdict_comes_too_late_does_not_go_on() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let ids = keyed(&outbox, 3).await;
    let other = outbox.enqueue_now(Message::new("work", "")).await.unwrap().message_id;
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox).worker_count(1), "work", &stage).start().await.unwrap();
    assert_eq!(director.began().await, ids[0]);
    take_first_over(&store).await;
    director.go(1);
    // It stood in the queue before the second of the run did, and keeps the only worker busy.
    assert_eq!(director.began().await, other);
    while runtime.stats().lease_lost_count == 0 {
        tokio::task::yield_now().await;
    }
    director.go(3);
    runtime.idle().await;
    assert!(!director.has_more(), "nothing of its run began");
    are_free(&store, &ids[1..]).await;
    assert_eq!((runtime.stats().done_count, runtime.stats().not_started_count), (1, 1));
}
