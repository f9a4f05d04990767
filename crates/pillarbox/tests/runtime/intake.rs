//! From a broker into the inbox, on every backend. The broker is the outbox of a database of its own.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pillarbox::lease::Held;
use pillarbox::prelude::*;
use pillarbox::{Bridge, BrokerError, Delivered, IntakeOptions, Intaken, Subscription};
use tokio::sync::mpsc;

use super::acceptance::{Backend, on_every_backend, outbox};
use super::support::{memory, messages};

const COUNT: usize = 30;

/// A bridge that looks into the inbox before it acknowledges, and sometimes forgets to.
struct Suspicious<I> {
    bridge: Bridge,
    inbox: Arc<I>,
    names: Vec<(Held, String)>,
    forgets: usize,
    acks: mpsc::UnboundedSender<usize>,
}

#[pillarbox::async_trait]
impl<I: InboxStore> Subscription for Suspicious<I> {
    type Tag = Held;

    async fn next(&mut self, limit: usize) -> Result<Vec<Delivered<Held>>, BrokerError> {
        let delivered = self.bridge.next(limit).await?;
        let name = |one: &Delivered<Held>| (one.tag, one.incoming.receipt().message_id().to_owned());
        self.names.extend(delivered.iter().map(name));
        Ok(delivered)
    }

    async fn settle(&mut self, mut outcomes: Vec<(Held, Intaken)>) -> Result<(), BrokerError> {
        for (tag, outcome) in &mut outcomes {
            let (_, name) = self.names.iter().find(|(known, _)| known == tag).unwrap();
            let record = self.inbox.get("shop", name).await.unwrap();
            assert!(record.is_some(), "acknowledged before it is stored");
            assert_eq!(*outcome, Intaken::Stored);
            if self.forgets > 0 {
                self.forgets -= 1;
                *outcome = Intaken::Later;
            }
        }
        let count = outcomes.len();
        self.bridge.settle(outcomes).await?;
        self.acks.send(count).unwrap();
        Ok(())
    }
}

/// H45, H40: a delivery is acknowledged after its commit; one whose acknowledgement is lost comes again and has no second effect.
async fn the_broker_hears_of_it_after_the_commit<B: Backend>() {
    let shop = memory();
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    for message in messages("order", COUNT) {
        shop.enqueue_now(message).await.unwrap();
    }
    let (sender, mut handled) = mpsc::unbounded_channel();
    let runtime = inbox
        .runtime()
        .on_topic("order", move |message: Raw| {
            sender.send(message.payload().clone()).unwrap();
            async { Ok(()) }
        })
        .start()
        .await
        .unwrap();
    let (acks, mut acked) = mpsc::unbounded_channel();
    let bridge = Bridge::new("shop", &shop).unwrap();
    let names = Vec::new();
    let subscription = Suspicious { bridge, inbox: Arc::clone(inbox.store()), names, forgets: 7, acks };
    let intake = inbox.intake_with(subscription, IntakeOptions { batch_max: 8 }).unwrap();
    let mut count = 0;
    while count < COUNT + 7 {
        count += acked.recv().await.unwrap();
    }
    let stats = intake.shutdown().await;
    assert_eq!((stats.stored_count, stats.duplicate_count, stats.refused_count), (COUNT as u64, 7, 0));
    runtime.idle().await;
    let mut payloads = HashSet::new();
    while let Ok(payload) = handled.try_recv() {
        assert!(payloads.insert(payload), "handled twice");
    }
    assert_eq!(payloads.len(), COUNT);
    assert_eq!(shop.store().overview().await.unwrap().total().pending, 0);
}

on_every_backend! {
    the_broker_hears_of_it_after_the_commit
}

/// H47: what the inbox can never take does not hold up the rest, and lies dead where it came from; a batch may be larger than
/// the inbox takes at once.
#[tokio::test]
async fn a_delivery_that_cannot_be_stored_is_rejected() {
    let shop = memory();
    let limits = pillarbox::Limits { batch_max: 2, payload_bytes_max: 10, ..pillarbox::Limits::default() };
    let options = StoreOptions { limits, ..StoreOptions::default() };
    let billing = Outbox::new(pillarbox_testing::MemoryStore::new(options));
    let inbox = billing.inbox().await.unwrap();
    for payload in ["1", "2", "far too long for it", "4", "5"] {
        shop.enqueue_now(Message::new("order", payload)).await.unwrap();
    }
    let intake = inbox.intake(Bridge::new("shop", &shop).unwrap()).unwrap();
    while shop.store().overview().await.unwrap().total().pending
        + shop.store().overview().await.unwrap().total().processing
        > 0
    {
        tokio::task::yield_now().await;
    }
    let stats = intake.shutdown().await;
    assert_eq!((stats.stored_count, stats.refused_count), (4, 1));
    let total = shop.store().overview().await.unwrap().total();
    assert_eq!((total.done, total.dead), (4, 1));
}

/// Fails and panics at first.
struct Shaky {
    bridge: Bridge,
    calls: Arc<AtomicUsize>,
}

#[pillarbox::async_trait]
impl Subscription for Shaky {
    type Tag = Held;

    async fn next(&mut self, limit: usize) -> Result<Vec<Delivered<Held>>, BrokerError> {
        match self.calls.fetch_add(1, Ordering::SeqCst) {
            0 => Err(BrokerError::new("not yet")),
            1 => panic!("in a subscription"),
            _ => self.bridge.next(limit).await,
        }
    }

    async fn settle(&mut self, outcomes: Vec<(Held, Intaken)>) -> Result<(), BrokerError> {
        self.bridge.settle(outcomes).await
    }
}

/// H43: a broker that is away, or a subscription that panics, is asked again.
#[tokio::test]
async fn an_intake_goes_on_after_failures() {
    let (shop, billing) = (memory(), memory());
    let inbox = billing.inbox().await.unwrap();
    shop.enqueue_now(Message::new("order", "1")).await.unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let intake = inbox.intake(Shaky { bridge: Bridge::new("shop", &shop).unwrap(), calls }).unwrap();
    while shop.store().overview().await.unwrap().total().done == 0 {
        tokio::task::yield_now().await;
    }
    let stats = intake.shutdown().await;
    assert_eq!((stats.stored_count, stats.failure_count), (1, 2));
}

#[tokio::test]
async fn senseless_settings_are_refused() {
    let (shop, billing) = (memory(), memory());
    let inbox = billing.inbox().await.unwrap();
    let refused = inbox.intake_with(Bridge::new("shop", &shop).unwrap(), IntakeOptions { batch_max: 0 }).unwrap_err();
    assert!(refused.to_string().contains("batch_max must be 1 to 10000"), "{refused}");
    assert_eq!(Bridge::new("", &shop).unwrap_err().problems()[0].field(), "source");
    let refused =
        Bridge::new("shop", &shop).unwrap().timing(std::time::Duration::ZERO, std::time::Duration::ZERO).unwrap_err();
    let fields: Vec<_> = refused.problems().iter().map(pillarbox::Problem::field).collect();
    assert_eq!(fields, ["lease", "poll_interval"]);
}
