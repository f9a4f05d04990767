//! What becomes of messages that are done.

use std::time::Duration;

use crate::message::HORIZON_MAX;
use crate::problem::{Invalid, Problem};

/// How long done messages are kept when nothing else is said.
pub const KEEP_DEFAULT: Duration = Duration::from_secs(7 * 24 * 3600);

/// What becomes of a message when it is acknowledged. `docs/benchmarks.md` has the measured price of each.
///
/// Keeping anything has a second use: a message that is enqueued again after an unknown commit is recognised
/// as a duplicate even when it has been handled in the meantime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// It is deleted: the cheapest. Nothing can be looked up or replayed.
    Delete,
    /// A receipt without payload, headers and tracing fields is kept for a time.
    Receipt(Duration),
    /// The whole message is kept for a time.
    Message(Duration),
}

impl Retention {
    /// How long done messages stay; nothing when they are deleted at once.
    pub fn keeps_for(self) -> Option<Duration> {
        match self {
            Self::Delete => None,
            Self::Receipt(time) | Self::Message(time) => Some(time.min(HORIZON_MAX)),
        }
    }

    /// How long results of receptors stay: as long as done messages, and at least [`KEEP_DEFAULT`]. A message of another
    /// queue may still be tried again, and a receptor whose part was forgotten would do it twice.
    pub fn keeps_results_for(self) -> Duration {
        self.keeps_for().unwrap_or_default().max(KEEP_DEFAULT)
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self::Message(KEEP_DEFAULT)
    }
}

/// Rows that one purge call removes at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeLimit(u32);

impl PurgeLimit {
    /// The largest batch: longer ones hold locks too long.
    pub const MAX: u32 = 10_000;

    /// Takes 1 to 10,000.
    pub fn new(limit: u32) -> Result<Self, Invalid> {
        if (1..=Self::MAX).contains(&limit) {
            return Ok(Self(limit));
        }
        let missed = if limit == 0 { 1 } else { u64::from(Self::MAX) };
        Err(Problem::out_of_range("limit", missed, format!("must be 1 to {}, is {limit}", Self::MAX)).into())
    }

    /// The number itself.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl Default for PurgeLimit {
    fn default() -> Self {
        Self(Self::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_messages_are_kept_for_seven_days_by_default() {
        assert_eq!(Retention::default().keeps_for(), Some(Duration::from_secs(604_800)));
        assert_eq!(Retention::Delete.keeps_for(), None);
        assert_eq!(Retention::Delete.keeps_results_for(), KEEP_DEFAULT);
        assert_eq!(Retention::Receipt(2 * KEEP_DEFAULT).keeps_results_for(), 2 * KEEP_DEFAULT);
    }

    #[test]
    fn purges_are_bounded() {
        assert!(PurgeLimit::new(0).is_err());
        assert!(PurgeLimit::new(PurgeLimit::MAX + 1).is_err());
        assert_eq!(PurgeLimit::new(1).unwrap().get(), 1);
    }
}
