//! What is measured: a store, or hand-written SQL that does the same work.

use std::future::Future;

/// Messages claimed at once.
pub(crate) const BATCH: usize = 500;

/// Messages in one transaction of a batched enqueue.
pub(crate) const ENQUEUE_BATCH: usize = 1000;

/// One contender. All methods do whole runs, so that nothing but the work itself is in the loop.
pub(crate) trait Subject: Clone + Send + Sync + 'static {
    /// Empties the tables and lets the database settle.
    fn clear(&self) -> impl Future<Output = ()> + Send;

    /// Puts messages there, as fast as possible; not measured.
    fn fill(&self, count: usize) -> impl Future<Output = ()> + Send;

    /// Enqueues each message in a transaction of its own.
    fn enqueue_single(&self, count: usize) -> impl Future<Output = ()> + Send;

    /// Enqueues [`ENQUEUE_BATCH`] messages per transaction.
    fn enqueue_batched(&self, count: usize) -> impl Future<Output = ()> + Send;

    /// Claims and settles, in two round trips, until `count` are done or none is left; answers how many.
    fn drain(&self, count: usize) -> impl Future<Output = usize> + Send;

    /// Settles one batch and claims the next in one round trip; answers how many.
    fn drain_by_exchange(&self, count: usize) -> impl Future<Output = usize> + Send;
}

/// 200 bytes of JSON.
pub(crate) fn payload() -> Vec<u8> {
    let mut payload = br#"{"order":4711,"customer":"c-19","lines":[{"sku":"A-1","count":2}],"note":""#.to_vec();
    payload.resize(198, b'x');
    payload.extend_from_slice(b"\"}");
    payload
}

/// The topic of every message.
pub(crate) const TOPIC: &str = "order.created";
