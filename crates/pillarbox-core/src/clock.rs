//! Whether a database's clock was set: what it showed at two moments, beside a clock that nobody can set.

use std::time::{Duration, SystemTime};

/// What a database's clock may gain or lose between two readings before that counts as a jump.
///
/// Leases last about as long. A clock that is slewed, a call that is slow, or a leap second stay below it.
pub const JUMP_MIN: Duration = Duration::from_secs(30);

/// What a database's clock showed, and when it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it showed.
    pub shown: SystemTime,
    /// When the question was sent, on a clock of the reader's that is never set: so long after its beginning.
    pub asked: Duration,
    /// When the answer had come, on the same clock.
    pub answered: Duration,
}

impl Reading {
    /// What the clock shows at a later moment of the reader's clock, at the latest, unless it was set meanwhile.
    pub fn latest(&self, now: Duration) -> SystemTime {
        self.shown.checked_add(now.saturating_sub(self.asked)).unwrap_or(self.shown)
    }
}

/// A clock went on by something else than the time that had passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// By so much more, at the least.
    Ahead(Duration),
    /// By so much less, at the least.
    Back(Duration),
}

/// Whether the clock jumped between two readings. The time that the calls took is in favour of the clock: a slow call is none.
pub fn jump(before: Reading, after: Reading) -> Option<Jump> {
    let least = after.asked.saturating_sub(before.answered);
    let most = after.answered.saturating_sub(before.asked);
    let jump = match after.shown.duration_since(before.shown) {
        Ok(gone) if gone > most => Jump::Ahead(gone - most),
        Ok(gone) => Jump::Back(least.saturating_sub(gone)),
        Err(turned) => Jump::Back(least.saturating_add(turned.duration())),
    };
    let (Jump::Ahead(by) | Jump::Back(by)) = jump;
    (by > JUMP_MIN).then_some(jump)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(shown: u64, asked: u64, answered: u64) -> Reading {
        let [asked, answered] = [asked, answered].map(Duration::from_secs);
        Reading { shown: SystemTime::UNIX_EPOCH + Duration::from_secs(shown), asked, answered }
    }

    /// H25.
    #[test]
    fn a_jump_is_what_the_time_between_does_not_explain() {
        let (ahead, back) =
            (|by| Some(Jump::Ahead(Duration::from_secs(by))), |by| Some(Jump::Back(Duration::from_secs(by))));
        let before = reading(10_000, 100, 102);
        let table = [
            ("as much as passed", reading(10_030, 130, 132), None),
            ("nothing passed", before, None),
            ("a little ahead", reading(10_062, 130, 132), None),
            ("ahead", reading(10_630, 130, 130), ahead(600)),
            ("just ahead", reading(10_063, 130, 132), ahead(31)),
            ("a little back", reading(9_998, 130, 132), None),
            ("back", reading(9_400, 102, 102), back(600)),
            ("back while time passed", reading(9_430, 132, 140), back(600)),
            ("standing still", reading(10_000, 133, 133), back(31)),
            ("standing still for a moment", reading(10_000, 132, 132), None),
            ("a slow call, read at its beginning", reading(10_030, 130, 1_000), None),
            ("a slow call, read at its end", reading(10_900, 130, 1_000), None),
            ("a reader that stood still", reading(13_600, 103, 103), ahead(3_597)),
        ];
        for (what, after, expected) in table {
            assert_eq!(jump(before, after), expected, "{what}");
        }
    }

    /// H24: the clock may have been read as soon as it was asked.
    #[test]
    fn what_a_clock_shows_later_counts_from_the_question() {
        let shown = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for (now, latest) in [(100, 10_000), (102, 10_002), (160, 10_060), (0, 10_000)] {
            assert_eq!(reading(10_000, 100, 102).latest(Duration::from_secs(now)), shown(latest), "{now}");
        }
        assert_eq!(reading(10_000, 0, 0).latest(Duration::MAX), shown(10_000));
    }

    #[test]
    fn no_reading_is_out_of_range() {
        let extremes = [reading(0, 0, u64::MAX), reading(1 << 40, u64::MAX, 0), reading(1 << 40, 0, 0)];
        for before in extremes {
            for after in extremes {
                let _ = jump(before, after);
            }
        }
    }
}
