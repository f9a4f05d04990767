//! What the workers have done so far.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::payload::number;

/// A moment that was not seen yet.
const NEVER: i64 = i64::MIN;

/// Counts what was handled, and keeps when each handler began where somebody wants to know.
#[derive(Debug)]
pub struct Progress {
    handled: AtomicU64,
    settled: AtomicU64,
    goal: AtomicU64,
    reached: Notify,
    epoch: Instant,
    /// By number of the message; empty when nobody wants to know.
    begun: Vec<AtomicI64>,
}

impl Progress {
    pub(crate) fn of(timed: u64) -> Self {
        let slots = usize::try_from(timed).unwrap_or(0);
        Self {
            handled: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            goal: AtomicU64::new(u64::MAX),
            reached: Notify::new(),
            epoch: Instant::now(),
            begun: (0..slots).map(|_| AtomicI64::new(NEVER)).collect(),
        }
    }

    /// The handler of one message has begun; as no-op it is over at once.
    pub fn handle(&self, payload: &[u8]) {
        if !self.begun.is_empty() {
            self.begin(number(payload));
        }
        self.count_handled(1);
    }

    /// As [`Progress::handle`], where the number in the payload (its member `n`) is read already.
    pub fn handle_number(&self, number: u64) {
        if !self.begun.is_empty() {
            self.begin(Some(number));
        }
        self.count_handled(1);
    }

    /// So many more are settled. For workers that settle by themselves and know at once; [`Progress::settled`] has the sum.
    pub fn settle(&self, count: u64) {
        self.settled.fetch_add(count, Ordering::AcqRel);
    }

    /// The sum of what [`Progress::settle`] was told.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// How many were handled.
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.handled.load(Ordering::Acquire)
    }

    fn begin(&self, number: Option<u64>) {
        let slot = number.and_then(|number| self.begun.get(usize::try_from(number).ok()?));
        if let Some(slot) = slot {
            // The first time counts: a message may come twice.
            let _ = slot.compare_exchange(NEVER, self.now(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn count_handled(&self, count: u64) {
        let handled = self.handled.fetch_add(count, Ordering::AcqRel) + count;
        if handled >= self.goal.load(Ordering::Relaxed) {
            self.reached.notify_one();
        }
    }

    /// Waits until so many were handled; false when they were not in time.
    pub(crate) async fn reach(&self, count: u64, patience: Duration) -> bool {
        self.goal.store(count, Ordering::SeqCst);
        let wait = async {
            while self.handled() < count {
                // A handler that counted before the goal was set rings no bell.
                let _ = tokio::time::timeout(Duration::from_millis(5), self.reached.notified()).await;
            }
        };
        tokio::time::timeout(patience, wait).await.is_ok()
    }

    /// Nanoseconds since this was made.
    pub(crate) fn now(&self) -> i64 {
        i64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }

    /// When the handler of the n-th message began.
    pub(crate) fn begun(&self, number: u64) -> Option<i64> {
        let at = self.begun.get(usize::try_from(number).ok()?)?.load(Ordering::Relaxed);
        (at != NEVER).then_some(at)
    }
}
