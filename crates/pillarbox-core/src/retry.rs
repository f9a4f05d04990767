//! How long to wait before the next attempt, and when to give up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The time to wait after a failed attempt.
///
/// `attempts` counts the attempt that failed (1 for the first); `jitter` is drawn by the caller from `[0, 1)`.
/// Whatever a backoff returns, [`RetryPolicy::delay`] makes it at least [`DELAY_MIN`].
pub trait Backoff: fmt::Debug + Send + Sync {
    /// The delay before the next attempt.
    fn delay(&self, attempts: u32, jitter: f64) -> Duration;
}

/// No retry comes sooner than this: a delay of zero is a hot loop.
pub const DELAY_MIN: Duration = Duration::from_millis(1);

/// `min(max, base · 2^(attempts − 1)) · j` with `j` in `[0.5, 1.5)`: the default, 200 ms up to 60 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jittered {
    /// The delay after the first failure, before jitter.
    pub base: Duration,
    /// The largest delay before jitter.
    pub max: Duration,
}

impl Default for Jittered {
    fn default() -> Self {
        Self { base: Duration::from_millis(200), max: Duration::from_secs(60) }
    }
}

impl Backoff for Jittered {
    fn delay(&self, attempts: u32, jitter: f64) -> Duration {
        let plain = doubled(self.base, attempts.saturating_sub(1)).min(self.max);
        spread(plain, jitter).unwrap_or(self.max)
    }
}

/// `min(2^attempts seconds, max)`: predictable, without jitter; the preset goes up to 60 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowersOfTwo {
    /// The largest delay.
    pub max: Duration,
}

impl Default for PowersOfTwo {
    fn default() -> Self {
        Self { max: Duration::from_secs(60) }
    }
}

impl Backoff for PowersOfTwo {
    fn delay(&self, attempts: u32, _jitter: f64) -> Duration {
        doubled(Duration::from_secs(1), attempts).min(self.max)
    }
}

/// How often and how soon a message is tried again.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    attempts_max: u32,
    lost_leases_max: u32,
    backoff: Arc<dyn Backoff>,
}

impl RetryPolicy {
    /// Attempts before a message is dead, at least 1; 10 unless set.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.attempts_max = attempts_max.max(1);
        self
    }

    /// Leases that may run out before a message is dead, because it kills its workers; 5 unless set.
    #[must_use]
    pub fn lost_leases_max_of(mut self, lost_leases_max: u32) -> Self {
        self.lost_leases_max = lost_leases_max;
        self
    }

    /// The formula for the delay.
    #[must_use]
    pub fn backoff(mut self, backoff: impl Backoff + 'static) -> Self {
        self.backoff = Arc::new(backoff);
        self
    }

    /// Whether this failed attempt was the last one.
    pub fn is_exhausted(&self, attempts: u32) -> bool {
        attempts >= self.attempts_max
    }

    /// The delay before the next attempt, never zero.
    pub fn delay(&self, attempts: u32, jitter: f64) -> Duration {
        self.backoff.delay(attempts, jitter).max(DELAY_MIN)
    }

    /// Leases that may run out before a message is dead.
    pub fn lost_leases_max(&self) -> u32 {
        self.lost_leases_max
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts_max: 10, lost_leases_max: LOST_LEASES_MAX, backoff: Arc::new(Jittered::default()) }
    }
}

/// Leases of one message that may run out before it is dead, unless set otherwise.
pub const LOST_LEASES_MAX: u32 = 5;

/// Multiplies by `0.5 + jitter` in whole millionths: floating point loses what long delays need.
fn spread(plain: Duration, jitter: f64) -> Option<Duration> {
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.5 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=1,000,000")]
    let millionths = 500_000 + (jitter * 1_000_000.0) as u128;
    let nanos = plain.as_nanos().checked_mul(millionths)? / 1_000_000;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, u32::try_from(nanos % 1_000_000_000).ok()?))
}

fn doubled(base: Duration, times: u32) -> Duration {
    match 1_u32.checked_shl(times) {
        Some(factor) => base.saturating_mul(factor),
        None if base.is_zero() => base,
        None => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_default_doubles_from_200_ms_to_60_s() {
        let delays: Vec<_> = (1..=10).map(|n| RetryPolicy::default().delay(n, 0.5).as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000]);
    }

    #[test]
    fn jitter_spreads_from_half_to_one_and_a_half() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay(1, 0.0), Duration::from_millis(100));
        assert!(policy.delay(1, 0.999_999) < Duration::from_millis(300));
    }

    #[test]
    fn the_preset_is_powers_of_two_up_to_a_minute() {
        let policy = RetryPolicy::default().backoff(PowersOfTwo::default());
        let delays: Vec<_> = (0..=8).map(|n| policy.delay(n, 0.9).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn ten_attempts_by_default() {
        assert!(!RetryPolicy::default().is_exhausted(9));
        assert!(RetryPolicy::default().is_exhausted(10));
        assert!(RetryPolicy::default().attempts_max(0).is_exhausted(1));
    }

    /// H36: a backoff that wraps to zero is a hot loop in the release build.
    #[test]
    fn delays_never_wrap_never_vanish_and_never_panic() {
        proptest!(ProptestConfig::with_cases(2_000), |(
            attempts in any::<u32>(), base in any::<u64>(), max in any::<u64>(), jitter in any::<f64>()
        )| {
            let (base, max) = (Duration::from_nanos(base), Duration::from_nanos(max));
            let ceiling = (max.saturating_mul(3) / 2).max(DELAY_MIN) + Duration::from_micros(1);
            for policy in [
                RetryPolicy::default().backoff(Jittered { base, max }),
                RetryPolicy::default().backoff(PowersOfTwo { max }),
            ] {
                let delay = policy.delay(attempts, jitter);
                prop_assert!(delay >= DELAY_MIN);
                prop_assert!(delay <= ceiling, "{delay:?} > {ceiling:?}");
                let later = policy.delay(attempts.saturating_add(1), jitter);
                prop_assert!(later >= delay, "not monotone: {delay:?} then {later:?}");
            }
        });
    }

    #[test]
    fn extreme_values_saturate() {
        let policy = RetryPolicy::default().backoff(Jittered { base: Duration::MAX, max: Duration::MAX });
        for jitter in [0.0, 0.5, 1.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(policy.delay(u32::MAX, jitter) > Duration::from_secs(1));
        }
    }
}
