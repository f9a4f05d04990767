//! Where a claim starts to look: above what was claimed before, and from the start now and then.
//!
//! Rows that were claimed and settled leave traces in an index for as long as somebody holds an old snapshot open. A claim
//! that starts above them does not meet them. It is a hint, not a cursor: messages become visible out of order, are given
//! back, or lose their lease, so every now and then a claim looks at everything.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::id::WorkId;
use crate::partition::Served;

/// The floor of one store handle.
#[derive(Debug, Default)]
pub struct Floor {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    above: i64,
    looked_at_everything: Option<Instant>,
    /// How long the last look at everything took.
    look_took: Duration,
    is_looking: bool,
    keyed_at: Option<Instant>,
    served: Option<Served>,
}

/// How long after a message with a key was claimed a claim looks at everything more often.
const KEYED_FOR: Duration = Duration::from_secs(60);

/// The least time between two such looks, and what part of the time they may take.
const KEYED_PAUSE: Duration = Duration::from_millis(10);
const KEYED_SHARE: u32 = 10;

impl Floor {
    /// The row above which a claim at `now` starts; zero to look at everything.
    pub fn start(&self, now: Instant, rescan_interval: Duration) -> i64 {
        let mut state = self.state();
        let since = |moment: Option<Instant>| moment.map(|moment| now.saturating_duration_since(moment));
        let mut interval = rescan_interval;
        if since(state.keyed_at).is_some_and(|since| since < KEYED_FOR) {
            // What waits behind a message of its key comes free below the floor, whoever settles that one.
            interval = interval.min(KEYED_PAUSE.max(state.look_took * KEYED_SHARE));
        }
        state.is_looking = since(state.looked_at_everything).is_none_or(|since| since >= interval);
        if !state.is_looking {
            return state.above;
        }
        state.looked_at_everything = Some(now);
        0
    }

    /// Notes which partitions the next claim serves. Where these are others than before, their messages may lie below the floor.
    pub fn serve(&self, served: Option<&Served>) {
        let mut state = self.state();
        if state.served.as_ref() != served {
            state.served = served.cloned();
            state.looked_at_everything = None;
        }
    }

    /// Notes what a claim brought by `now`: the highest row, whether the batch was full, and whether any message has a key.
    pub fn claimed(&self, now: Instant, highest: Option<WorkId>, full: bool, keyed: bool) {
        let mut state = self.state();
        if std::mem::take(&mut state.is_looking) {
            state.look_took =
                state.looked_at_everything.map(|began| now.saturating_duration_since(began)).unwrap_or_default();
        }
        if keyed {
            state.keyed_at = Some(now);
        }
        let Some(highest) = highest else { return };
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
    use crate::partition::PartitionCount;

    const PACE: Duration = Duration::from_secs(2);

    fn row(id: i64) -> Option<WorkId> {
        Some(WorkId::from_i64(id))
    }

    #[test]
    fn claims_start_above_the_last_one_until_it_is_time_to_look_at_everything() {
        let (floor, start) = (Floor::default(), Instant::now());
        assert_eq!(floor.start(start, PACE), 0);
        floor.claimed(Instant::now(), row(50), true, false);
        assert_eq!(floor.start(start + PACE / 2, PACE), 50);
        assert_eq!(floor.start(start + PACE, PACE), 0);
        assert_eq!(floor.start(start + PACE + PACE / 2, PACE), 50);
    }

    #[test]
    fn without_an_interval_every_claim_looks_at_everything() {
        let (floor, now) = (Floor::default(), Instant::now());
        floor.claimed(Instant::now(), row(50), true, false);
        assert_eq!(floor.start(now, Duration::ZERO), 0);
        assert_eq!(floor.start(now, Duration::ZERO), 0);
    }

    #[test]
    fn other_partitions_are_looked_for_at_once() {
        let (floor, now) = (Floor::default(), Instant::now());
        let served = |wanted: u32| Served::only(PartitionCount::default(), |partition| partition.get() == wanted);
        for (next, start) in [(None, 0), (None, 50), (Some(1), 0), (Some(1), 50), (Some(2), 0), (None, 0)] {
            floor.serve(next.map(served).as_ref());
            assert_eq!(floor.start(now, PACE), start, "{next:?}");
            floor.claimed(now, row(50), true, false);
        }
    }

    #[test]
    fn what_was_given_back_is_found_at_once() {
        let (floor, now) = (Floor::default(), Instant::now());
        floor.start(now, PACE);
        floor.claimed(Instant::now(), row(50), true, false);
        floor.given_back(row(20));
        assert_eq!(floor.start(now, PACE), 19);
        floor.given_back(row(30));
        assert_eq!(floor.start(now, PACE), 19);
    }

    #[test]
    fn a_full_batch_from_below_lowers_the_floor_and_a_thin_one_does_not() {
        let (floor, now) = (Floor::default(), Instant::now());
        floor.start(now, PACE);
        floor.claimed(Instant::now(), row(5000), true, false);
        floor.claimed(Instant::now(), row(10), false, false);
        assert_eq!(floor.start(now, PACE), 5000);
        floor.claimed(Instant::now(), row(500), true, false);
        assert_eq!(floor.start(now, PACE), 500);
        floor.claimed(Instant::now(), None, false, false);
        assert_eq!(floor.start(now, PACE), 500);
    }

    /// H34: what waits behind its key is not left to the slow pace.
    #[test]
    fn with_keys_claims_look_at_everything_more_often_but_not_all_the_time() {
        let (floor, start) = (Floor::default(), Instant::now());
        let ms = Duration::from_millis;
        assert_eq!(floor.start(start, PACE), 0);
        floor.claimed(start + ms(3), row(50), true, true);
        assert_eq!(floor.start(start + ms(29), PACE), 50);
        assert_eq!(floor.start(start + ms(30), PACE), 0, "ten times as long as it took");
        floor.claimed(start + ms(30), None, false, false);
        assert_eq!(floor.start(start + ms(39), PACE), 50, "quick ones have a least pause too");
        assert_eq!(floor.start(start + ms(40), PACE), 0);
        floor.claimed(start + ms(40), None, false, false);
        let later = start + KEYED_FOR + ms(40);
        assert_eq!(floor.start(later, PACE), 0);
        assert_eq!(floor.start(later + PACE / 2, PACE), 50);
    }
}
