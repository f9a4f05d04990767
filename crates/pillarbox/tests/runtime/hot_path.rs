use pillarbox::outbox::State;
use pillarbox::store::Placement;
use pillarbox::{CommitError, Outbox, StartError};
use tokio::sync::mpsc;

use super::support::*;
use pillarbox::prelude::{Context, Message, MessageId, OutboxAdmin, Raw, Runtime};
use pillarbox_core::admin::MessageName;
use pillarbox_testing::MemoryStore;
use std::time::Duration;

const GRACE: Duration = Duration::from_secs(60);

async fn state_of(outbox: &Outbox<MemoryStore>, id: MessageId) -> State {
    outbox.store().get(MessageName::Message(id)).await.unwrap().unwrap().state
}

/// HOT-03, OBX-057, BUS-08: the very bytes that were given, without a claim.
#[tokio::test]
async fn a_committed_message_is_handled_with_its_payload_still_in_memory() {
    let outbox = memory();
    let (sender, mut handled) = mpsc::unbounded_channel();
    let runtime = quiet(&outbox)
        .on_topic("order.*", move |message: Raw, cx: Context| {
            let sender = sender.clone();
            async move {
                sender.send((message.payload().clone(), cx.attempt()))?;
                Ok(())
            }
        })
        .start()
        .await
        .unwrap();
    let message = Message::new("order.created", "a payload of some length");
    let (id, address) = (message.id(), message.payload().as_ptr());

    let mut tx = outbox.begin().await.unwrap();
    let answer = tx.enqueue(message).await.unwrap();
    assert!(matches!(answer.placement, Placement::Leased(_)), "{answer:?}");
    let before = runtime.stats();
    assert_eq!((before.hot_depth, before.held_count, before.started_count), (0, 0, 0), "nothing before the commit");
    tx.commit().await.unwrap();

    let (payload, attempt) = handled.recv().await.unwrap();
    assert_eq!((payload.as_ptr(), attempt), (address, 1));
    runtime.idle().await;
    assert_eq!(state_of(&outbox, id).await, State::Done);
    assert_eq!((runtime.stats().hot_count, runtime.stats().claimed_count), (1, 0));
}

/// HOT-03, H29: a room of one shows that each of them gave its reservation back.
#[tokio::test]
async fn what_is_not_committed_is_not_handed_over() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox).hot_capacity(1), "order", &stage).start().await.unwrap();
    let enqueued = async || {
        let mut tx = outbox.begin().await.unwrap();
        let answer = tx.enqueue(Message::new("order", "")).await.unwrap();
        assert!(matches!(answer.placement, Placement::Leased(_)), "the room is free again: {answer:?}");
        tx
    };

    enqueued().await.rollback().await.unwrap();
    drop(enqueued().await);
    let mut tx = enqueued().await;
    tx.conn().spoil();
    assert!(matches!(tx.commit().await, Err(CommitError::RolledBack(_))));
    for is_stored in [false, true] {
        let mut tx = enqueued().await;
        tx.conn().lose_answer(is_stored);
        assert!(matches!(tx.commit().await, Err(CommitError::Unknown(_))));
    }

    enqueued().await.commit().await.unwrap();
    director.began().await;
    director.go(1);
    runtime.idle().await;
    assert!(!director.has_more());
    assert_eq!((runtime.stats().hot_count, runtime.stats().done_count), (1, 1));
}

/// HOT-03, H1, H23: the answer to the commit was lost, and the lease heals it.
#[tokio::test]
async fn a_message_whose_commit_was_not_heard_is_found_after_its_lease() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    let message = Message::new("order", "");
    let id = message.id();
    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue(message).await.unwrap();
    tx.conn().lose_answer(true);
    tx.commit().await.unwrap_err();
    runtime.idle().await;
    assert_eq!(state_of(&outbox, id).await, State::Processing);

    outbox.store().database().advance(Duration::from_secs(31));
    outbox.nudge();
    assert_eq!(director.began().await, id);
    director.go(1);
    runtime.idle().await;
    assert_eq!(state_of(&outbox, id).await, State::Done);
}

/// HOT-04, HOT-07, HOT-20: those that find no room are stored all the same, and the poller brings them.
#[tokio::test]
async fn a_full_hot_queue_never_fails_the_writer() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox).hot_capacity(2).worker_count(1), "order", &stage).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let answers = tx.enqueue_all(messages("order", 5)).await.unwrap();
    let leased = answers.iter().map(|answer| matches!(answer.placement, Placement::Leased(_)));
    assert_eq!(leased.collect::<Vec<_>>(), [true, true, false, false, false]);
    tx.commit().await.unwrap();
    director.go(5);
    for _ in 0..5 {
        director.began().await;
    }
    runtime.idle().await;
    let stats = runtime.stats();
    assert_eq!((stats.hot_count, stats.hot_dropped_count, stats.claimed_count, stats.done_count), (2, 3, 3, 5));
}

/// HOT-03: only what can be handled now, here, is born leased; answers keep the caller's order.
#[tokio::test]
async fn a_message_that_must_not_run_now_is_not_leased() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    let batch = [
        Message::new("order", "").delay(Duration::from_secs(60)),
        Message::new("order", ""),
        Message::new("elsewhere", ""),
        Message::new("order", ""),
    ];
    let ids = batch.each_ref().map(Message::id);
    let mut tx = outbox.begin().await.unwrap();
    let answers = tx.enqueue_all(batch).await.unwrap();
    assert_eq!(answers.iter().map(|answer| answer.message_id).collect::<Vec<_>>(), ids);
    let leased = answers.iter().map(|answer| matches!(answer.placement, Placement::Leased(_)));
    assert_eq!(leased.collect::<Vec<_>>(), [false, true, false, true]);
    tx.commit().await.unwrap();
    assert_eq!([director.began().await, director.began().await], [ids[1], ids[3]]);
    director.go(2);
    runtime.shutdown(GRACE).await;
    assert_eq!(state_of(&outbox, ids[0]).await, State::Pending);
}

#[tokio::test]
async fn a_message_that_was_stored_before_is_not_handed_over_again() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox).hot_capacity(1), "order", &stage).start().await.unwrap();
    let message = Message::new("order", "");
    for expected in [1, 1] {
        let mut tx = outbox.begin().await.unwrap();
        tx.enqueue(message.clone()).await.unwrap();
        tx.commit().await.unwrap();
        director.go(1);
        runtime.idle().await;
        assert_eq!(runtime.stats().started_count, expected);
    }
    director.began().await;
    assert!(!director.has_more());
    assert!(matches!(outbox.enqueue_now(Message::new("order", "")).await.unwrap().placement, Placement::Leased(_)));
}

/// HOT-03: without a transaction of one's own.
#[tokio::test]
async fn a_lone_message_takes_the_hot_path_too() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    let answer = outbox.enqueue_now(Message::new("order", "")).await.unwrap();
    assert_eq!(director.began().await, answer.message_id);
    director.go(1);
    runtime.idle().await;
    assert_eq!(runtime.stats().hot_count, 1);
}

/// HOT-02, BUS-05: the commit is the user's own; the nudge is all it takes.
#[tokio::test]
async fn a_message_of_a_plain_transaction_is_handled_after_a_nudge() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    runtime.idle().await;
    let mut tx = outbox.store().database().begin();
    let first = outbox.enqueue(&mut tx, Message::new("order", "")).await.unwrap();
    let rest = outbox.enqueue_all(&mut tx, messages("order", 2)).await.unwrap();
    assert!(rest.iter().chain([&first]).all(|answer| matches!(answer.placement, Placement::Pending(_))));
    tx.commit();
    outbox.nudge();
    director.go(3);
    runtime.idle().await;
    assert_eq!(director.began().await, first.message_id);
    assert_eq!(runtime.stats().done_count, 3);
}

#[tokio::test]
async fn an_outbox_serves_one_runtime_at_a_time() {
    let outbox = memory();
    let first = quiet(&outbox).start().await.unwrap();
    assert!(matches!(quiet(&outbox.clone()).start().await, Err(StartError::AlreadyAttached)));
    first.shutdown(GRACE).await;
    let second = quiet(&outbox).start().await.unwrap();
    drop(second);
    quiet(&outbox).start().await.expect("a dropped runtime leaves the outbox free");
}

#[tokio::test]
async fn what_is_wrong_with_a_builder_is_all_named() {
    let outbox = memory();
    let refused = Runtime::builder(&outbox).worker_count(0).hot_capacity(0).start().await.unwrap_err();
    let StartError::Invalid(invalid) = &refused else { panic!("{refused}") };
    let fields: Vec<_> = invalid.problems().iter().map(pillarbox::Problem::field).collect();
    assert_eq!(fields, ["worker_count", "hot_capacity"]);
    quiet(&outbox).start().await.expect("a refused builder attaches nothing");
}

/// HOT-13: the outbox outlives its runtime; an open transaction notices nothing.
#[tokio::test]
async fn a_transaction_that_outlives_the_runtime_gives_its_messages_back() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let first = tx.enqueue(Message::new("order", "")).await.unwrap().message_id;
    runtime.shutdown(GRACE).await;
    let second = tx.enqueue(Message::new("order", "")).await.unwrap();
    assert!(matches!(second.placement, Placement::Pending(_)));
    tx.commit().await.unwrap();
    let next = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    director.go(2);
    let mut seen = vec![];
    while seen.len() < 2 {
        outbox.nudge();
        seen.push(director.began().await);
    }
    seen.sort();
    assert_eq!(seen, [first, second.message_id]);
    next.idle().await;
    assert_eq!(outbox.store().overview().await.unwrap().total().done, 2);
}

/// BUS-05: a runtime that starts while a transaction is open hears of its messages.
#[tokio::test]
async fn a_transaction_that_began_before_the_runtime_wakes_it() {
    let outbox = memory();
    let mut tx = outbox.begin().await.unwrap();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    runtime.idle().await;
    let answer = tx.enqueue(Message::new("order", "")).await.unwrap();
    assert!(matches!(answer.placement, Placement::Pending(_)));
    tx.commit().await.unwrap();
    assert_eq!(director.began().await, answer.message_id);
    director.go(1);
    runtime.idle().await;
}

/// HOT-21: the address alone says which database it is.
#[tokio::test]
async fn an_outbox_of_any_database_has_a_runtime() {
    let outbox = Outbox::connect("sqlite::memory:").await.unwrap();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    outbox.enqueue_now(Message::new("order", "")).await.unwrap();
    director.began().await;
    director.go(1);
    runtime.idle().await;
    assert_eq!(outbox.store().overview().await.unwrap().total().done, 1);
    assert!(!outbox.store().id().as_str().is_empty());
}
