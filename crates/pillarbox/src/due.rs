//! When messages that this runtime put off become due: hints for the poller, never more.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Tick;

/// Due times that are remembered; further ones are found by the regular polls.
const COUNT_MAX: usize = 1024;

/// The coming due times, close ones merged.
#[derive(Debug, Default)]
pub(crate) struct DueTimes {
    ticks: BTreeSet<Tick>,
}

impl DueTimes {
    /// Remembers that something is due after `delay`.
    pub(crate) fn add(&mut self, now: Tick, delay: Duration) {
        self.ticks.insert(merged(now, delay));
        if self.ticks.len() > COUNT_MAX {
            self.ticks.pop_last();
        }
    }

    /// The earliest due time.
    pub(crate) fn first(&self) -> Option<Tick> {
        self.ticks.first().copied()
    }

    /// Forgets everything that is due by now; whether there was anything.
    pub(crate) fn take(&mut self, now: Tick) -> bool {
        let mut any = false;
        while self.ticks.first().is_some_and(|first| *first <= now) {
            self.ticks.pop_first();
            any = true;
        }
        any
    }
}

/// Rounded up, so that nothing is looked for too early: to a millisecond, or to 1/64 of a long delay.
fn merged(now: Tick, delay: Duration) -> Tick {
    let step = u64::try_from((delay / 64).max(Duration::from_millis(1)).as_nanos()).unwrap_or(u64::MAX);
    match now.after(delay).as_nanos().div_ceil(step).checked_mul(step) {
        Some(nanos) => Tick::from_nanos(nanos),
        None => Tick::NEVER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(millis: u64) -> Tick {
        Tick::default().after(MS * u32::try_from(millis).unwrap())
    }

    #[test]
    fn due_times_come_in_their_order_and_once() {
        let mut due = DueTimes::default();
        for delay in [30, 10, 20] {
            due.add(at(5), MS * delay);
        }
        assert_eq!(due.first(), Some(at(15)));
        assert!(!due.take(at(14)));
        assert!(due.take(at(25)));
        assert_eq!(due.first(), Some(at(35)));
        assert!(!due.take(at(25)));
    }

    #[test]
    fn nothing_is_looked_for_too_early() {
        for delay in [Duration::ZERO, MS / 3, MS * 7, Duration::from_secs(3601), Duration::from_secs(1 << 33)] {
            let now = at(123).after(Duration::from_nanos(77));
            assert!(merged(now, delay) >= now.after(delay), "{delay:?}");
            assert!(merged(now, delay).since(now.after(delay)) <= (delay / 64).max(MS), "{delay:?}");
        }
        assert_eq!(merged(at(1), Duration::MAX), Tick::NEVER);
    }

    /// H38: what is remembered is bounded, and the earliest are kept.
    #[test]
    fn many_due_times_are_bounded() {
        let mut due = DueTimes::default();
        for delay in (0..10_000_u32).rev() {
            due.add(at(0), MS * delay);
        }
        assert!(due.ticks.len() <= COUNT_MAX);
        assert_eq!(due.first(), Some(at(0)));
    }
}
