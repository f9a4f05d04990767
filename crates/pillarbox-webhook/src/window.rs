//! How far a signed time may lie from now, in both directions.

use std::time::{Duration, SystemTime};

use crate::refusal::Refusal;

/// A time that the sender signed, in whole seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64);

impl Stamp {
    /// Reads decimal digits and nothing else: no sign, no space, no fraction.
    pub fn parse(text: &str) -> Option<Self> {
        // The parser of the standard library would take a leading plus.
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().ok().map(Self)).flatten()
    }
}

/// The distance from now at which a stamp is still believed; 300 seconds unless set.
///
/// It bounds for how long a captured request can be sent again. Within it the inbox answers that it knows the message
/// already; its retention, 30 days by default, must stay longer than twice the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(Duration);

impl Window {
    /// A window of this size, before and after now.
    pub const fn new(tolerance: Duration) -> Self {
        Self(tolerance)
    }

    /// Refuses stamps outside the window; its edges belong to it.
    pub fn check(self, stamp: Stamp, now: SystemTime) -> Result<(), Refusal> {
        // A clock before 1970 is wrong by decades: nothing is near to it.
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let stamp = Duration::from_secs(stamp.0);
        if now.abs_diff(stamp) <= self.0 {
            Ok(())
        } else if stamp < now {
            Err(Refusal::TooOld)
        } else {
            Err(Refusal::TooFarAhead)
        }
    }
}

impl Default for Window {
    fn default() -> Self {
        Self(Duration::from_secs(300))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H56.
    #[test]
    fn the_window_ends_at_300_seconds_both_ways() {
        let stamp = 1_700_000_000;
        let table = [
            (-301_000, Err(Refusal::TooFarAhead)),
            (-300_001, Err(Refusal::TooFarAhead)),
            (-300_000, Ok(())),
            (0, Ok(())),
            (999, Ok(())),
            (300_000, Ok(())),
            (300_001, Err(Refusal::TooOld)),
            (301_000, Err(Refusal::TooOld)),
        ];
        for (later_millis, expected) in table {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(stamp);
            let by = Duration::from_millis(i64::unsigned_abs(later_millis));
            let now = if later_millis < 0 { now - by } else { now + by };
            assert_eq!(Window::default().check(Stamp(stamp), now), expected, "{later_millis} ms");
        }
    }

    /// H56: numbers near the limits do not wrap.
    #[test]
    fn absurd_times_are_refused() {
        let (zero, max) = (Stamp::parse("0").unwrap(), Stamp::parse("18446744073709551615").unwrap());
        let (now, epoch) = (SystemTime::now(), SystemTime::UNIX_EPOCH);
        assert_eq!(Window::default().check(zero, now), Err(Refusal::TooOld));
        assert_eq!(Window::default().check(max, now), Err(Refusal::TooFarAhead));
        assert_eq!(Window::default().check(max, epoch - Duration::from_secs(1)), Err(Refusal::TooFarAhead));
        assert_eq!(Window::new(Duration::MAX).check(max, now), Ok(()));
    }

    #[test]
    fn a_stamp_is_digits_and_nothing_else() {
        for text in ["", "+1", "-1", " 1", "1 ", "1.0", "1e9", "0x1", "١", "18446744073709551616", "NaN"] {
            assert_eq!(Stamp::parse(text), None, "{text:?}");
        }
        assert_eq!(Stamp::parse("0001"), Some(Stamp(1)));
    }
}
