//! Where a claim starts to look: above what was claimed before, and from the start now and then.
//!
//! Rows that were claimed and settled leave traces in an index for as long as somebody holds an old snapshot open. A claim
//! that starts above them does not meet them. It is a hint, not a cursor: messages become visible out of order, are given
//! back, or lose their lease, so every now and then a claim looks at everything.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::id::WorkId;

/// The floor of one store handle.
#[derive(Debug, Default)]
pub struct Floor {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    above: i64,
    looked_at_everything: Option<Instant>,
}

impl Floor {
    /// The row above which a claim at `now` starts; zero to look at everything.
    pub fn start(&self, now: Instant, rescan_interval: Duration) -> i64 {
        let mut state = self.state();
        let fresh =
            state.looked_at_everything.is_some_and(|before| now.saturating_duration_since(before) < rescan_interval);
        if fresh {
            return state.above;
        }
        state.looked_at_everything = Some(now);
        0
    }

    /// Notes what a claim brought: the highest row, and whether the batch was full.
    pub fn claimed(&self, highest: Option<WorkId>, full: bool) {
        let Some(highest) = highest else { return };
        let mut state = self.state();
        // A full batch may have left rows behind it, also below where the floor was.
        state.above = if full { highest.as_i64() } else { state.above.max(highest.as_i64()) };
    }

    /// Notes that a row can be claimed again.
    pub fn given_back(&self, lowest: Option<WorkId>) {
        let Some(lowest) = lowest else { return };
        let mut state = self.state();
        state.above = state.above.min(lowest.as_i64() - 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Duration = Duration::from_secs(2);

    fn row(id: i64) -> Option<WorkId> {
        Some(WorkId::from_i64(id))
    }

    #[test]
    fn claims_start_above_the_last_one_until_it_is_time_to_look_at_everything() {
        let (floor, start) = (Floor::default(), Instant::now());
        assert_eq!(floor.start(start, PACE), 0);
        floor.claimed(row(50), true);
        assert_eq!(floor.start(start + PACE / 2, PACE), 50);
        assert_eq!(floor.start(start + PACE, PACE), 0);
        assert_eq!(floor.start(start + PACE + PACE / 2, PACE), 50);
    }

    #[test]
    fn without_an_interval_every_claim_looks_at_everything() {
        let (floor, now) = (Floor::default(), Instant::now());
        floor.claimed(row(50), true);
        assert_eq!(floor.start(now, Duration::ZERO), 0);
        assert_eq!(floor.start(now, Duration::ZERO), 0);
    }

    #[test]
    fn what_was_given_back_is_found_at_once() {
        let (floor, now) = (Floor::default(), Instant::now());
        floor.start(now, PACE);
        floor.claimed(row(50), true);
        floor.given_back(row(20));
        assert_eq!(floor.start(now, PACE), 19);
        floor.given_back(row(30));
        assert_eq!(floor.start(now, PACE), 19);
    }

    #[test]
    fn a_full_batch_from_below_lowers_the_floor_and_a_thin_one_does_not() {
        let (floor, now) = (Floor::default(), Instant::now());
        floor.start(now, PACE);
        floor.claimed(row(5000), true);
        floor.claimed(row(10), false);
        assert_eq!(floor.start(now, PACE), 5000);
        floor.claimed(row(500), true);
        assert_eq!(floor.start(now, PACE), 500);
        floor.claimed(None, false);
        assert_eq!(floor.start(now, PACE), 500);
    }
}
