//! The work coordinator beside the runtimes of its process.

use std::time::Duration;

use pillarbox::prelude::{Incoming, Message, OwnerToken, Receipt};
use pillarbox::{QueueWork, WorkBatch};

use super::support::{hushed, memory, on_stage, quiet, stage};

/// WRK-01: what a coordinator stores is handled in this process at once, without a poll.
#[tokio::test]
async fn what_a_coordinator_stores_wakes_the_runtimes_of_this_process() {
    let outbox = memory();
    let inbox = outbox.inbox().await.unwrap();
    let coordinator = inbox.coordinator().await.unwrap();
    let (sending, mut sent) = stage();
    let (receiving, mut received) = stage();
    let sender = on_stage(quiet(&outbox), "order.created", &sending).start().await.unwrap();
    let receiver = on_stage(hushed(inbox.runtime()), "invoice.paid", &receiving).start().await.unwrap();
    sender.idle().await;
    receiver.idle().await;
    let (order, invoice) = (Message::new("order.created", "1"), Message::new("invoice.paid", "1"));
    let batch = WorkBatch::new(OwnerToken::new()).enqueue(order.clone());
    let batch = batch.receive(Incoming::new(Receipt::new("stripe", "evt_1"), invoice));
    let done = coordinator.process(batch).await.unwrap();
    assert_eq!(sent.began().await, order.id());
    assert_eq!(received.began().await, done.received[0].message_id);
    sent.go(2);
    received.go(1);
    let mut tx = outbox.begin().await.unwrap();
    let order = Message::new("order.created", "2");
    coordinator.process_in(&mut tx, WorkBatch::new(OwnerToken::new()).enqueue(order.clone())).await.unwrap();
    assert!(!sent.has_more(), "nothing before the commit");
    tx.commit().await.unwrap();
    assert_eq!(sent.began().await, order.id());
    sender.shutdown(Duration::from_secs(10)).await;
    receiver.shutdown(Duration::from_secs(10)).await;
}

/// WRK-01: what a coordinator holds no runtime handles, and the other way round.
#[tokio::test]
async fn a_coordinator_and_a_runtime_share_a_queue() {
    let outbox = memory();
    let coordinator = outbox.coordinator().await.unwrap();
    let mine = Message::new("order.created", "1");
    let owner = OwnerToken::new();
    let batch = WorkBatch::new(owner).enqueue(mine.clone()).outbox(QueueWork::new().claim(1));
    let held = coordinator.process(batch).await.unwrap().outbox.claimed[0].held;
    let (playing, mut played) = stage();
    let runtime = on_stage(quiet(&outbox), "order.created", &playing).start().await.unwrap();
    let theirs = Message::new("order.created", "2");
    let claim = |work: QueueWork| WorkBatch::new(owner).outbox(work.claim(10));
    outbox.enqueue_now(theirs.clone()).await.unwrap();
    assert_eq!(played.began().await, theirs.id());
    let done = coordinator.process(claim(QueueWork::new().complete(held))).await.unwrap();
    assert_eq!(done.outbox.claimed, []);
    played.go(1);
    runtime.shutdown(Duration::from_secs(10)).await;
    assert!(!played.has_more());
}
