//! The same work without a relay: hand-written statements and the same transport, in one program that can do nothing else.
//!
//! What lies between it and the figure from memory is what a lease and a deletion of each message cost in the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use pillarbox::Transport;
use pillarbox::transports::{Settings, transport_from_url};
use pillarbox_core::message::Message;
use pillarbox_core::{MessageId, Parcel};
use pillarbox_testing::source::Source;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use stations::Broker;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{BATCH, CALLS, Outbox};
use crate::postgres::{Keep, Raw};
use crate::subject::Subject as _;

/// Claims at one time: while one is with the broker, the database works on another.
const CLAIMS: usize = 2;

/// Messages per second, from a start with connections that stand to the last deletion.
pub(super) async fn rate<B: Broker + Source>(outbox: &Outbox, count: usize, keep: Keep) -> f64 {
    outbox.clear().await;
    outbox.fill(count).await;
    outbox.0.settle_down().await;
    let broker = B::open().await;
    let destination = broker.place("bench").await;
    let transport = transport_from_url(&broker.url(), &Settings::new()).unwrap();
    transport.probe().await.unwrap();
    let hand = Raw::open_with(&outbox.0, keep, BATCH * CALLS).await;
    let floor = Arc::new(AtomicI64::new(0));
    let start = Instant::now();
    let loops: JoinSet<()> = (0..CLAIMS)
        .map(|_| relay(hand.clone(), Arc::clone(&transport), destination.clone(), Arc::clone(&floor)))
        .collect();
    loops.join_all().await;
    let elapsed = start.elapsed();
    assert_eq!(broker.left(&destination).await, count);
    assert!(!outbox.0.has_messages().await, "everything is settled");
    transport.close().await;
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let messages = count as f64;
    messages / elapsed.as_secs_f64()
}

async fn relay(hand: Raw, transport: Arc<dyn Transport>, destination: String, floor: Arc<AtomicI64>) {
    let owner = Uuid::new_v4();
    for fence in 1.. {
        let rows = hand.claim(owner, fence, floor.load(Ordering::Relaxed)).await;
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let Some(&last) = ids.iter().max() else { return };
        floor.fetch_max(last, Ordering::Relaxed);
        let messages: Arc<Vec<Message>> = Arc::new(rows.iter().map(read).collect());
        drop(rows);
        let calls: JoinSet<()> = (0..ids.len())
            .step_by(BATCH)
            .map(|from| deliver(Arc::clone(&transport), destination.clone(), Arc::clone(&messages), from))
            .collect();
        calls.join_all().await;
        assert_eq!(hand.ack(owner, fence, &ids).await, ids.len(), "all that was claimed is settled");
    }
}

async fn deliver(transport: Arc<dyn Transport>, destination: String, messages: Arc<Vec<Message>>, from: usize) {
    let batch = &messages[from..messages.len().min(from + BATCH)];
    let parcels: Vec<_> = batch.iter().map(|message| Parcel::new(destination.as_str(), message)).collect();
    let results = transport.deliver(&parcels).await;
    assert!(results.iter().all(Result::is_ok), "everything is taken");
}

/// Only what these messages have.
fn read(row: &PgRow) -> Message {
    Message::new(row.get::<String, _>(2), row.get::<Vec<u8>, _>(3))
        .with_id(MessageId::from_uuid(row.get(1)).unwrap())
        .content_type(row.get::<String, _>(18))
}
