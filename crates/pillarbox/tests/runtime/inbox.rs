//! Messages that come in, on every backend: what takes effect, and how often. An effect is a message in the outbox.

use std::time::Duration;

use pillarbox::inbox::ContentHash;
use pillarbox::prelude::{Consumed, Context, InboxStore, Incoming, Message, OutboxAdmin, Receipt};
use pillarbox::{ConsumeError, Tx, WithInbox};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::acceptance::{Backend, on_every_backend, outbox};

const LEASE: Duration = Duration::from_secs(60);

fn receipt() -> Receipt {
    Receipt::new("stripe", "evt_1")
}

async fn effect<S: WithInbox>(tx: &mut Tx<S>) -> Result<u8, pillarbox::StoreError> {
    tx.enqueue(Message::new("invoice.paid", "1")).await?;
    Ok(7)
}

async fn effects(store: &impl OutboxAdmin) -> u64 {
    store.overview().await.unwrap().total().pending
}

/// IBX-001, WRK-10, BUS-03: the second delivery of a message finds the record that was committed with the first one's effects.
async fn a_message_is_consumed_once<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    assert_eq!(inbox.consume(receipt(), effect).await.unwrap(), Consumed::Done(7));
    assert_eq!(inbox.consume(receipt(), effect).await.unwrap(), Consumed::Duplicate);
    assert_eq!(inbox.consume(Receipt::new("STRIPE", "evt_1"), effect).await.unwrap(), Consumed::Done(7));
    assert_eq!(effects(outbox.store()).await, 2);
    assert!(inbox.store().already_processed(&receipt()).await.unwrap().is_processed());
}

/// BUS-03: a handler that fails leaves neither its effects nor the record of the message.
async fn a_failed_consume_leaves_nothing<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    let failed = inbox
        .consume(receipt(), async |tx| {
            effect(tx).await.unwrap();
            Err::<(), _>("no")
        })
        .await;
    assert!(matches!(failed, Err(ConsumeError::Handler("no"))), "{failed:?}");
    assert_eq!(effects(outbox.store()).await, 0);
    assert_eq!(inbox.store().get("stripe", "evt_1").await.unwrap(), None);
    assert_eq!(inbox.consume(receipt(), effect).await.unwrap(), Consumed::Done(7));
    assert_eq!(effects(outbox.store()).await, 1);
}

/// H14: many deliveries at the same moment have one effect.
async fn deliveries_at_the_same_moment_have_one_effect<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    let mut deliveries = JoinSet::new();
    for _ in 0..32 {
        let inbox = inbox.clone();
        deliveries.spawn(async move { inbox.consume(receipt(), effect).await.unwrap() });
    }
    let ended = deliveries.join_all().await;
    assert_eq!(ended.iter().filter(|ended| **ended == Consumed::Done(7)).count(), 1);
    assert_eq!(ended.iter().filter(|ended| **ended == Consumed::Duplicate).count(), 31);
    assert_eq!(effects(outbox.store()).await, 1);
}

/// IBX-078: under a lease, others learn at once that somebody is at it; a failure gives the lease back.
async fn a_lease_tells_others_that_somebody_is_at_it<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    let failed = inbox.consume_leased(receipt(), LEASE, async |_| Err::<u8, _>("no")).await;
    assert!(matches!(failed, Err(ConsumeError::Handler("no"))), "{failed:?}");
    // The lease is committed before the handler begins, and no write is in its transaction yet.
    let lease = pillarbox::lease::Lease::new(pillarbox::OwnerToken::new(), LEASE).unwrap();
    assert_eq!(inbox.store().lease(&receipt(), lease).await.unwrap().registered, pillarbox::inbox::Registered::New);
    assert_eq!(inbox.consume_leased(receipt(), LEASE, effect).await.unwrap(), Consumed::InProgress);
    assert_eq!(inbox.consume(receipt(), effect).await.unwrap(), Consumed::InProgress);
    assert!(inbox.store().release(&receipt(), lease).await.unwrap());
    assert_eq!(inbox.consume_leased(receipt(), LEASE, effect).await.unwrap(), Consumed::Done(7));
    assert_eq!(inbox.consume_leased(receipt(), LEASE, effect).await.unwrap(), Consumed::Duplicate);
    assert_eq!(effects(outbox.store()).await, 1);
}

/// IBX-078, H14: nobody waits for a consumer that holds a lease. When it has outlived the lease, another one may take the message
/// over, and its own transaction is rolled back on its fence.
async fn nobody_waits_for_a_leased_consumer<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    let others = inbox.clone();
    let consumed = inbox.consume_leased(receipt(), LEASE, async |tx| {
        assert_eq!(others.consume_leased(receipt(), LEASE, effect).await.unwrap(), Consumed::InProgress);
        assert_eq!(others.consume(receipt(), effect).await.unwrap(), Consumed::InProgress);
        effect(tx).await
    });
    assert_eq!(timeout(LEASE, consumed).await.expect("nobody waits").unwrap(), Consumed::Done(7));
    assert_eq!(effects(outbox.store()).await, 1);

    let other = || Receipt::new("stripe", "evt_2");
    let outlived = inbox.consume_leased(other(), Duration::from_millis(1), async |tx| {
        effect(tx).await?;
        while others.consume(other(), effect).await.unwrap() != Consumed::Done(7) {
            tokio::task::yield_now().await;
        }
        Ok::<_, pillarbox::StoreError>(7)
    });
    assert_eq!(timeout(LEASE, outlived).await.expect("nobody waits").unwrap(), Consumed::Duplicate);
    assert_eq!(effects(outbox.store()).await, 2, "the zombie's effect is gone");
}

/// IBX-073, IBX-076: what was received goes to a handler, which sees who sent it; the same delivery again does not.
async fn a_received_message_is_handled_once<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    let (sender, mut handled) = mpsc::unbounded_channel();
    let runtime = inbox
        .runtime()
        .on_topic("stripe.*", move |cx: Context| {
            sender.send((cx.topic().to_owned(), cx.payload().clone(), cx.receipt())).unwrap();
            async { Ok(()) }
        })
        .start()
        .await
        .unwrap();
    let incoming = || [Incoming::new(receipt(), Message::new("stripe.paid", "{}"))];
    for _ in 0..2 {
        inbox.receive(&incoming()).await.unwrap();
        runtime.idle().await;
    }
    let (topic, payload, from) = handled.recv().await.unwrap();
    assert_eq!((topic.as_str(), &payload[..]), ("stripe.paid", &b"{}"[..]));
    assert_eq!(
        from.map(|from| (from.source().to_owned(), from.message_id().to_owned())),
        Some(("stripe".into(), "evt_1".into()))
    );
    assert!(handled.is_empty(), "a duplicate is not handled");
    assert!(inbox.store().already_processed(&receipt()).await.unwrap().is_processed());
    assert_eq!(inbox.consume(receipt(), effect).await.unwrap(), Consumed::Duplicate);
    runtime.shutdown(Duration::ZERO).await;
}

/// IBX-008, IBX-026: whoever consumes a known message with another content leaves a trace for the operator, once each time.
async fn a_consumed_duplicate_is_remembered<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    let hashed = |bytes: &str| receipt().hash(ContentHash::new("sha256", bytes.as_bytes()));
    assert_eq!(inbox.consume(hashed("one"), effect).await.unwrap(), Consumed::Done(7));
    let first = inbox.store().get("stripe", "evt_1").await.unwrap().unwrap();
    assert_eq!(inbox.consume(hashed("two"), effect).await.unwrap(), Consumed::Duplicate);
    assert_eq!(inbox.consume_leased(hashed("three"), LEASE, effect).await.unwrap(), Consumed::Duplicate);
    let last = inbox.store().get("stripe", "evt_1").await.unwrap().unwrap();
    assert_eq!((first.mismatch_count, last.mismatch_count, last.hash), (0, 2, first.hash));
    assert!(last.last_seen_at > first.last_seen_at);
    let other = |bytes: &str| Receipt::new("stripe", "evt_2").hash(ContentHash::new("sha256", bytes.as_bytes()));
    inbox.already_processed(&other("one")).await.unwrap();
    assert_eq!(inbox.consume_leased(other("two"), LEASE, effect).await.unwrap(), Consumed::Done(7));
    assert_eq!(inbox.store().get("stripe", "evt_2").await.unwrap().unwrap().mismatch_count, 1);
}

/// IBX-009, IBX-010: a receipt that cannot be one is refused with every field, before any transaction begins.
async fn a_senseless_receipt_is_refused<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    let (ran, mut has_run) = oneshot::channel::<()>();
    let refused = inbox
        .consume(Receipt::new("", ""), async move |_| {
            ran.send(()).unwrap();
            Ok::<_, pillarbox::StoreError>(())
        })
        .await;
    let Err(ConsumeError::Store(error)) = refused else { panic!("{refused:?}") };
    let fields: Vec<_> = error.problems().iter().map(pillarbox::Problem::field).collect();
    assert_eq!(fields, ["source", "message_id"]);
    assert!(has_run.try_recv().is_err());
}

on_every_backend! {
    a_message_is_consumed_once
    a_failed_consume_leaves_nothing
    deliveries_at_the_same_moment_have_one_effect
    a_lease_tells_others_that_somebody_is_at_it
    a_received_message_is_handled_once
    a_consumed_duplicate_is_remembered
    a_senseless_receipt_is_refused
}

/// Not on SQLite, which has one writer at a time.
mod beside_an_open_transaction {
    use crate::acceptance;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn in_memory() {
        super::nobody_waits_for_a_leased_consumer::<acceptance::Memory>().await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_postgres() {
        super::nobody_waits_for_a_leased_consumer::<acceptance::Postgres>().await;
    }

    #[cfg(feature = "mysql")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_mysql() {
        super::nobody_waits_for_a_leased_consumer::<acceptance::Mysql>().await;
    }
}
