//! Open-loop pacing: when a transaction is due does not depend on how long the earlier ones took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// A schedule that many writers share: each takes the next number and waits until it is due.
#[derive(Debug)]
pub(crate) struct Pace {
    next: AtomicU64,
    count: u64,
    start: Instant,
    /// Nothing is written after it, also when the writers are late.
    end: Instant,
    rate: f64,
}

impl Pace {
    pub(crate) fn new(rate: f64, seconds: f64) -> Self {
        let start = Instant::now();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of messages")]
        let count = (rate * seconds).max(0.0) as u64;
        Self { next: AtomicU64::new(0), count, start, end: start + Duration::from_secs_f64(seconds), rate }
    }

    /// As many as there is time for at the rate.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The number of the next transaction, once it is due. None when the time is over.
    pub(crate) async fn next(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.count {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let due = self.start + Duration::from_secs_f64(number as f64 / self.rate);
        // The timer has steps of a millisecond; what is due already does not wait for the next one.
        if due > Instant::now() {
            sleep_until(due).await;
        }
        (Instant::now() < self.end).then_some(number)
    }

    /// Waits for the end of the time.
    pub(crate) async fn end(&self) {
        sleep_until(self.end).await;
    }
}
