//! The ceiling: messages that lie in memory, through the transport that the relay uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use pillarbox::Transport;
use pillarbox::transports::{Settings, transport_from_url};
use pillarbox_core::Parcel;
use pillarbox_core::message::Message;
use pillarbox_testing::source::Source;
use stations::Broker;
use tokio::task::JoinSet;

use super::{BATCH, CALLS};
use crate::store::message;

/// Messages per second of a transport that has connected.
pub(super) async fn rate<B: Broker + Source>(count: usize) -> f64 {
    let broker = B::open().await;
    let destination = broker.place("bench").await;
    let transport = transport_from_url(&broker.url(), &Settings::new()).unwrap();
    transport.probe().await.unwrap();
    let messages: Arc<Vec<Message>> = Arc::new((0..count).map(|_| message()).collect());
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let calls: JoinSet<()> = (0..CALLS)
        .map(|_| call(Arc::clone(&transport), destination.clone(), Arc::clone(&messages), Arc::clone(&next)))
        .collect();
    calls.join_all().await;
    let elapsed = start.elapsed();
    assert_eq!(broker.left(&destination).await, count);
    transport.close().await;
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let messages = count as f64;
    messages / elapsed.as_secs_f64()
}

async fn call(transport: Arc<dyn Transport>, destination: String, messages: Arc<Vec<Message>>, next: Arc<AtomicUsize>) {
    loop {
        let from = next.fetch_add(BATCH, Ordering::Relaxed).min(messages.len());
        let batch = &messages[from..messages.len().min(from + BATCH)];
        if batch.is_empty() {
            return;
        }
        let parcels: Vec<_> = batch.iter().map(|message| Parcel::new(destination.as_str(), message)).collect();
        let results = transport.deliver(&parcels).await;
        assert!(results.iter().all(Result::is_ok), "everything is taken");
    }
}
