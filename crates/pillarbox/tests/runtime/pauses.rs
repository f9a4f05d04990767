use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox::Outbox;
use pillarbox::outbox::State;
use pillarbox::prelude::{Context, Handled, Message, RuntimeBuilder};
use pillarbox_testing::MemoryStore;

use super::support::*;

#[derive(Clone, Default)]
struct Destination {
    is_up: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    reached: Arc<AtomicUsize>,
}

impl Destination {
    async fn send(self, _: Context) -> pillarbox::HandlerResult {
        if self.is_up.load(Ordering::SeqCst) {
            self.reached.fetch_add(1, Ordering::SeqCst);
            return Handled::done();
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        Handled::unavailable("connection refused")
    }
}

fn builder(outbox: &Outbox<MemoryStore>, destination: &Destination) -> RuntimeBuilder {
    let destination = destination.clone();
    // Each poll moves the memory store's clock by a millisecond, so that what was put off comes back.
    quiet(outbox)
        .poll_interval(Duration::from_millis(1))
        .pause_first(Duration::from_millis(2))
        .pause_max(Duration::from_millis(8))
        .on_topic("bus", move |cx: Context| destination.clone().send(cx))
}

/// H33, HOT-05: an outage spends no attempts, and everything flows again by itself.
#[tokio::test]
async fn while_a_destination_is_down_its_messages_wait_and_spend_nothing() {
    let outbox = memory();
    let destination = Destination::default();
    let runtime = builder(&outbox, &destination).retry(attempts(1)).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let answers = tx.enqueue_all(messages("bus", 50)).await.unwrap();
    tx.commit().await.unwrap();
    while destination.refused.load(Ordering::SeqCst) < 5 {
        tokio::task::yield_now().await;
    }
    assert_eq!(runtime.stats().paused_routes, ["bus"]);
    destination.is_up.store(true, Ordering::SeqCst);
    while runtime.stats().done_count < 50 {
        runtime.idle().await;
    }
    let stats = runtime.stats();
    assert_eq!((stats.dead_count, stats.retried_count), (0, 0));
    assert_eq!(destination.reached.load(Ordering::SeqCst), 50);
    assert!(stats.paused_routes.is_empty());
    for answer in answers {
        let name = pillarbox_core::admin::MessageName::Message(answer.message_id);
        let stored = pillarbox::OutboxAdmin::get(outbox.store(), name).await.unwrap().unwrap();
        assert_eq!((stored.state, stored.attempts), (State::Done, 1));
    }
}

/// H33: other routes notice nothing, and new messages of the paused one are not born leased.
#[tokio::test]
async fn a_paused_route_holds_up_no_other() {
    let outbox = memory();
    let destination = Destination::default();
    let builder = builder(&outbox, &destination).on_topic("other", async |_: Context| Ok(()));
    let runtime = builder.pause_first(NEVER).pause_max(NEVER).start().await.unwrap();
    outbox.enqueue_now(Message::new("bus", "")).await.unwrap();
    while runtime.stats().paused_routes.is_empty() {
        tokio::task::yield_now().await;
    }
    let answer = outbox.enqueue_now(Message::new("bus", "")).await.unwrap();
    assert!(matches!(answer.placement, pillarbox::store::Placement::Pending(_)));
    for _ in 0..20 {
        outbox.enqueue_now(Message::new("other", "")).await.unwrap();
    }
    while runtime.stats().done_count < 20 {
        runtime.idle().await;
    }
    runtime.idle().await;
    assert_eq!(destination.refused.load(Ordering::SeqCst), 1);
}

/// H35: a store full of messages for a destination that is down is left alone.
#[tokio::test]
async fn while_every_route_pauses_nothing_is_claimed() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let destination = Destination::default();
    let refusing = destination.clone();
    let runtime = quiet(&outbox)
        .pause_first(NEVER)
        .pause_max(NEVER)
        .on_topic("bus", move |cx: Context| refusing.clone().send(cx))
        .start()
        .await
        .unwrap();
    runtime.idle().await;
    outbox.enqueue_now(Message::new("bus", "")).await.unwrap();
    store.wait_for(|counts| counts.verdicts == 1).await;
    let claims = store.counts().claims;
    outbox.enqueue_now(Message::new("bus", "")).await.unwrap();
    outbox.nudge();
    outbox.enqueue_now(Message::new("elsewhere", "")).await.unwrap();
    store.wait_for(|counts| counts.wakes >= 1).await;
    assert_eq!(store.counts().claims, claims);
    assert_eq!(destination.refused.load(Ordering::SeqCst), 1);
}
