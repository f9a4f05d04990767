//! The test double, as a user's test meets it.
#![expect(clippy::unwrap_used, reason = "tests, and the helpers they share")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillarbox::Drained;
use pillarbox::outbox::State as MessageState;
use pillarbox::prelude::*;
use pillarbox_testing::{assert_enqueued, assert_not_enqueued, memory};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct OrderCreated {
    id: i64,
    customer: String,
}

impl Event for OrderCreated {
    const TOPIC: &str = "order.created";
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Payment {
    Taken { order: i64 },
    Refused(i64),
}

impl Event for Payment {
    const TOPIC: &str = "payment";
}

fn order(id: i64) -> OrderCreated {
    OrderCreated { id, customer: "canary".to_owned() }
}

/// What an assertion that fails says.
fn said(failing: impl FnOnce()) -> String {
    let panicked = catch_unwind(AssertUnwindSafe(failing)).unwrap_err();
    panicked.downcast_ref::<String>().unwrap().clone()
}

#[tokio::test]
async fn a_committed_message_is_found_by_pattern_and_by_topic() {
    let outbox = memory();
    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue(order(1)).await.unwrap();
    tx.enqueue(Payment::Taken { order: 1 }).await.unwrap();
    assert_not_enqueued!(outbox, OrderCreated { .. });
    tx.commit().await.unwrap();

    assert_enqueued!(outbox, OrderCreated { id: 1, .. });
    assert_enqueued!(outbox, OrderCreated { customer, .. } if customer.len() == 6);
    assert_enqueued!(outbox, Payment::Taken { order: 1 });
    assert_enqueued!(outbox, topic = "payment");
    assert_not_enqueued!(outbox, OrderCreated { id: 2, .. });
    assert_not_enqueued!(outbox, Payment::Refused(_));
    assert_not_enqueued!(outbox, topic = "order.cancelled");
    assert_eq!(outbox.enqueued::<OrderCreated>(), [order(1)]);
}

/// A rollback, and a transaction that is dropped.
#[tokio::test]
async fn what_is_not_committed_was_not_enqueued() {
    let outbox = memory();
    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue(order(1)).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.enqueue(order(2)).await.unwrap();
    drop(tx);
    assert_not_enqueued!(outbox, topic = "order.created");
    assert!(outbox.messages().is_empty());
}

/// H54: the payload's text is in none of the complaints.
#[tokio::test]
async fn a_failed_assertion_names_topics_and_never_payloads() {
    let outbox = memory();
    let nothing = said(|| assert_enqueued!(outbox, topic = "order.created"));
    assert_eq!(nothing, "no message of topic `order.created` was enqueued; nothing was enqueued");

    for id in [1, 2] {
        outbox.enqueue_now(order(id)).await.unwrap();
    }
    outbox.enqueue_now(Message::new("payment", "canary")).await.unwrap();
    let table = [
        (
            said(|| assert_enqueued!(outbox, OrderCreated { id: 3, .. })),
            "no message of topic `order.created` matches `OrderCreated { id: 3, .. }`",
        ),
        (
            said(|| assert_enqueued!(outbox, OrderCreated { id, .. } if *id > 3)),
            "no message of topic `order.created` matches `OrderCreated { id, .. } if *id > 3`",
        ),
        (said(|| assert_enqueued!(outbox, topic = "order.paid")), "no message of topic `order.paid` was enqueued"),
        (
            said(|| assert_not_enqueued!(outbox, OrderCreated { id: 1, .. })),
            "1 of topic `order.created` match `OrderCreated { id: 1, .. }`",
        ),
        (said(|| assert_not_enqueued!(outbox, topic = "order.created")), "2 of topic `order.created` were enqueued"),
    ];
    for (said, complaint) in table {
        assert_eq!(said, format!("{complaint}; enqueued were 2 × `order.created`, 1 × `payment`"));
    }
    let unreadable = said(|| assert_enqueued!(outbox, Payment::Refused(_)));
    assert!(unreadable.contains("of topic `payment` cannot be read as"), "{unreadable}");
    assert!(!unreadable.contains("canary"), "{unreadable}");
}

#[tokio::test]
async fn a_drain_runs_every_due_handler_and_what_they_enqueue() {
    let outbox = memory();
    let kept = outbox.clone();
    let outbox = outbox.handlers(|runtime| {
        runtime
            .on(move |placed: Payload<OrderCreated>| {
                let outbox = kept.clone();
                async move {
                    outbox.enqueue_now(Payment::Taken { order: placed.id }).await?;
                    Ok(())
                }
            })
            .on(async |_: Payload<Payment>| Ok(()))
    });
    outbox.enqueue_now(order(7)).await.unwrap();
    outbox.enqueue_now(Message::new("unknown", "")).await.unwrap();
    assert_eq!(outbox.drain().await.done, 2);
    assert_enqueued!(outbox, OrderCreated { id: 7, .. });
    assert_enqueued!(outbox, Payment::Taken { order: 7 });
    let states: Vec<_> = outbox.messages().iter().map(|stored| stored.state).collect();
    assert_eq!(states, [MessageState::Done, MessageState::Pending, MessageState::Done]);
}

#[tokio::test]
async fn time_passes_when_the_test_says_so() {
    let outbox = memory().handlers(|runtime| {
        runtime.on(async |_: Payload<OrderCreated>, attempt: Attempt| match attempt.0 {
            1 => Handled::retry_after(Duration::from_secs(60), "busy"),
            _ => Handled::done(),
        })
    });
    let delayed = order(1).to_message().unwrap().delay(Duration::from_secs(3600));
    outbox.enqueue_now(delayed).await.unwrap();
    assert_eq!(outbox.drain().await, Drained::default());
    outbox.advance(Duration::from_secs(3600));
    assert_eq!(outbox.drain().await.retried, 1);
    assert_eq!(outbox.drain().await, Drained::default());
    outbox.advance(Duration::from_secs(60));
    assert_eq!(outbox.drain().await.done, 1);
}

/// The pause of a route is time like any other.
#[tokio::test]
async fn a_destination_that_was_down_is_probed_when_its_pause_is_over() {
    let is_up = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_up);
    let outbox = memory().handlers(|runtime| {
        runtime.on_topic("mail", move |_: Raw| {
            let is_up = seen.load(Ordering::SeqCst);
            async move { if is_up { Handled::done() } else { Handled::unavailable("no route to host") } }
        })
    });
    for _ in 0..3 {
        outbox.enqueue_now(Message::new("mail", "")).await.unwrap();
    }
    let drained = outbox.drain().await;
    assert_eq!((drained.done, drained.retried, drained.dead), (0, 0, 0));
    is_up.store(true, Ordering::SeqCst);
    assert_eq!(outbox.drain().await.done, 0);
    outbox.advance(Duration::from_secs(60));
    assert_eq!(outbox.drain().await.done, 3);
}

#[tokio::test]
async fn handlers_that_contradict_each_other_are_refused_in_words() {
    let refused = said(|| {
        let _ = memory().handlers(|runtime| {
            runtime.on_topic("mail", async |_: Raw| Ok(())).on_topic("mail", async |_: Raw| Ok(()))
        });
    });
    assert!(refused.contains("the handlers are refused") && refused.contains("mail"), "{refused}");
}

#[tokio::test]
async fn without_handlers_a_drain_touches_nothing() {
    let outbox = memory();
    outbox.enqueue_now(order(1)).await.unwrap();
    assert_eq!(outbox.drain().await, Drained::default());
    let stored = outbox.messages().remove(0);
    assert_eq!((stored.state, stored.attempts), (MessageState::Pending, 0));
}
