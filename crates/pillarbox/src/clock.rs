//! Time and dice: the only place of the runtime that reads them. What is decided gets both as arguments.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// A moment on the clock of one runtime: nanoseconds since it began, never set back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(u64);

impl Tick {
    /// Later than anything that is waited for.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The moment the clock began.
    pub(crate) const fn from_zero() -> Self {
        Self(0)
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time that has passed since `earlier`; none when that lies ahead.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    pub(crate) fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The clock of one runtime.
#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now() }
    }

    pub(crate) fn now(&self) -> Tick {
        Tick::default().after(self.began.elapsed())
    }

    /// The instant of a tick, for timers; none when it never comes.
    pub(crate) fn instant(&self, tick: Tick) -> Option<Instant> {
        if tick == Tick::NEVER { None } else { self.began.checked_add(Duration::from_nanos(tick.0)) }
    }
}

/// A number in `[0, 1)`, drawn anew with every call.
pub(crate) fn dice() -> f64 {
    // Every `RandomState` has keys of its own, so that the hash of nothing differs each time.
    let drawn = RandomState::new().hash_one(()) >> 32;
    f64::from(u32::try_from(drawn).unwrap_or_default()) / (f64::from(u32::MAX) + 1.0)
}

/// Spreads a duration evenly over `[0.9, 1.1)` of itself, so that many processes do not act in step.
pub(crate) fn spread(plain: Duration, dice: f64) -> Duration {
    plain.mul_f64(0.9 + 0.2 * dice.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_saturate() {
        let second = Duration::from_secs(1);
        assert_eq!(Tick::NEVER.after(second), Tick::NEVER);
        assert_eq!(Tick::default().since(Tick::NEVER), Duration::ZERO);
        assert_eq!(Tick::default().after(second).since(Tick::default()), second);
        assert_eq!(Tick::default().after(Duration::MAX), Tick::NEVER);
        assert_eq!(Clock::start().instant(Tick::NEVER), None);
    }

    #[test]
    fn dice_stay_in_range_and_differ() {
        let drawn: Vec<f64> = (0..1000).map(|_| dice()).collect();
        assert!(drawn.iter().all(|value| (0.0..1.0).contains(value)));
        let mut sorted = drawn;
        sorted.sort_by(f64::total_cmp);
        sorted.dedup();
        assert!(sorted.len() > 900, "{} different of 1000", sorted.len());
        assert!(sorted[0] < 0.1 && sorted[sorted.len() - 1] > 0.9);
    }
}
