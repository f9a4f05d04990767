use std::time::Duration;

use pillarbox::Outbox;
use pillarbox::prelude::{Context, Enqueue, Message, OutboxAdmin, OutboxStore};

use super::support::*;

/// WRK-01, OBX-099: a backlog is drained by calls that settle one batch and claim the next.
#[tokio::test]
async fn settlements_ride_with_the_next_claim() {
    let store = Watched::new();
    store.memory.enqueue(Enqueue::pending(&messages("work", 1000))).await.unwrap();
    let outbox = Outbox::new(store.clone());
    let builder = quiet(&outbox).claim_limit(50).settle_interval(Duration::from_millis(100));
    let runtime = builder.on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    runtime.idle().await;
    let counts = store.counts();
    assert_eq!((counts.verdicts, runtime.stats().done_count), (1000, 1000));
    assert!(counts.exchanges > 0, "{counts:?}");
    assert!(counts.settles + counts.claims < 100, "{counts:?}");
}

/// HOT-25, BUS-08.
#[tokio::test]
async fn a_lone_message_is_settled_by_a_call_of_its_own() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let builder = quiet(&outbox).settle_interval(Duration::from_secs(1));
    let runtime = builder.on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    runtime.idle().await;
    let before = store.counts();
    outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    store.wait_for(|counts| counts.verdicts == 1).await;
    let after = store.counts();
    assert_eq!((after.settles - before.settles, after.claims - before.claims), (1, 0));
}

/// HOT-12, OBX-061, OBX-064, OBX-065: tried as often as the policy says, then dead.
#[tokio::test]
async fn a_message_that_always_fails_is_dead_after_its_last_attempt() {
    let outbox = memory();
    let builder = quiet(&outbox).poll_interval(Duration::from_millis(1)).retry(attempts(3));
    let runtime = builder
        .on_topic("work", async |cx: Context| Err(pillarbox::Failure::retry(format!("attempt {}", cx.attempt()))))
        .start()
        .await
        .unwrap();
    let id = outbox.enqueue_now(Message::new("work", "")).await.unwrap().message_id;
    let stored = loop {
        runtime.idle().await;
        let stored = outbox.store().get(pillarbox_core::admin::MessageName::Message(id)).await.unwrap().unwrap();
        if stored.state == pillarbox::outbox::State::Dead {
            break stored;
        }
    };
    assert_eq!((stored.attempts, stored.last_error.as_deref()), (3, Some("attempt 3")));
    assert_eq!((runtime.stats().retried_count, runtime.stats().dead_count), (2, 1));
}
