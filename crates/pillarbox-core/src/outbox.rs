//! The outbox machine: which states there are, and the one function that decides what becomes of a message.
//!
//! ```text
//!            claim                 ack
//! pending ──────────▶ processing ───────▶ done ──(purge)──▶ gone
//!    ▲                    │   │
//!    └── abandon, release ┘   └─ fail, expiry, too many lost leases ─▶ dead ──(replay)──▶ pending
//! ```

use std::borrow::Cow;
use std::time::Duration;

use crate::message::HORIZON_MAX;
use crate::retry::RetryPolicy;

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Waits to be claimed, now or when it is due.
    Pending,
    /// Leased to an owner.
    Processing,
    /// Handled; kept as long as the retention says.
    Done,
    /// Given up; waits for an operator.
    Dead,
}

impl State {
    /// Every state, in the order of a message's life.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Processing, Self::Done, Self::Dead];

    /// The word used in tables, metrics and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }

    /// The state for a word from a table.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// How one attempt to handle a message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The handler is through.
    Succeeded,
    /// It failed in a way that another attempt may mend.
    FailedTransient(String),
    /// It failed in a way that no attempt can mend.
    FailedPermanent(String),
    /// It failed and named the time to wait itself.
    RetryAfter(Duration, String),
    /// It was not really tried (destination down, shutdown, rate limit): no attempt is spent.
    Deferred(Duration),
    /// The lease ran out: the worker may have died of it. Counts how often that has happened, this time included.
    LeaseExpired {
        /// Leases of this message that ran out so far.
        lost_lease_count: u32,
    },
}

/// What becomes of a claimed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is done.
    Ack,
    /// Another attempt after the delay; this one is spent.
    Abandon {
        /// Time to wait, from the database's now.
        delay: Duration,
        /// Why; at most [`REASON_CHARS_MAX`] characters are stored.
        reason: String,
    },
    /// The lease is given back after the delay; no attempt is spent.
    Release {
        /// Time to wait, from the database's now.
        delay: Duration,
    },
    /// It is dead.
    Fail {
        /// Why; at most [`REASON_CHARS_MAX`] characters are stored.
        reason: String,
    },
}

impl Verdict {
    /// The delay that the verdict asks for, bounded so that every database can add it to its clock.
    pub fn delay(&self) -> Duration {
        match self {
            Self::Ack | Self::Fail { .. } => Duration::ZERO,
            Self::Abandon { delay, .. } | Self::Release { delay } => (*delay).min(HORIZON_MAX),
        }
    }

    /// The reason as it is stored: cut to size, without NUL, which databases refuse, and none when empty.
    pub fn reason(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Ack | Self::Release { .. } => None,
            Self::Abandon { reason, .. } | Self::Fail { reason } => stored_reason(reason),
        }
    }
}

/// Characters of an error text that are stored.
pub const REASON_CHARS_MAX: usize = 4000;

/// The reason of a message that was not handled before it expired.
pub const REASON_EXPIRED: &str = "expired: expires_at passed before it was handled";

/// The reason of a message whose leases ran out too often.
pub const REASON_LEASES_LOST: &str = "lease lost too often: its workers stopped without settling it";

/// Decides what becomes of a message after an attempt. `attempts` counts this one; `jitter` is in `[0, 1)`.
pub fn decide(attempts: u32, end: AttemptEnd, policy: &RetryPolicy, jitter: f64) -> Verdict {
    match end {
        AttemptEnd::Succeeded => Verdict::Ack,
        AttemptEnd::FailedPermanent(reason) => Verdict::Fail { reason },
        AttemptEnd::FailedTransient(reason) if policy.is_exhausted(attempts) => Verdict::Fail { reason },
        AttemptEnd::FailedTransient(reason) => Verdict::Abandon { delay: policy.delay(attempts, jitter), reason },
        AttemptEnd::RetryAfter(_, reason) if policy.is_exhausted(attempts) => Verdict::Fail { reason },
        AttemptEnd::RetryAfter(delay, reason) => Verdict::Abandon { delay, reason },
        AttemptEnd::Deferred(delay) => Verdict::Release { delay },
        AttemptEnd::LeaseExpired { lost_lease_count } if lost_lease_count > policy.lost_leases_max() => {
            Verdict::Fail { reason: REASON_LEASES_LOST.into() }
        }
        // The attempt was counted when the message was claimed and stays spent.
        AttemptEnd::LeaseExpired { .. } => Verdict::Abandon { delay: Duration::ZERO, reason: String::new() },
    }
}

/// What a settlement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The verdict stands in the database.
    Applied,
    /// Nothing was changed: the message is unknown, settled already, or leased to another owner or claim.
    LeaseLost,
}

pub(crate) fn stored_reason(reason: &str) -> Option<Cow<'_, str>> {
    if reason.is_empty() {
        return None;
    }
    let end = reason.char_indices().nth(REASON_CHARS_MAX).map_or(reason.len(), |(at, _)| at);
    let cut = &reason[..end];
    Some(if cut.contains('\0') { cut.replace('\0', "\u{FFFD}").into() } else { cut.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> RetryPolicy {
        RetryPolicy::default().attempts_max(3).lost_leases_max_of(2)
    }

    #[test]
    fn every_end_has_its_verdict() {
        let why = || "why".to_owned();
        let minute = Duration::from_secs(60);
        let fail = |reason: &str| Verdict::Fail { reason: reason.into() };
        let lost = |lost_lease_count| AttemptEnd::LeaseExpired { lost_lease_count };
        let at_once = Verdict::Abandon { delay: Duration::ZERO, reason: String::new() };
        let table = [
            (1, AttemptEnd::Succeeded, Verdict::Ack),
            (9, AttemptEnd::Succeeded, Verdict::Ack),
            (1, AttemptEnd::FailedPermanent(why()), fail("why")),
            (1, AttemptEnd::FailedTransient(why()), Verdict::Abandon { delay: policy().delay(1, 0.5), reason: why() }),
            (2, AttemptEnd::FailedTransient(why()), Verdict::Abandon { delay: policy().delay(2, 0.5), reason: why() }),
            (3, AttemptEnd::FailedTransient(why()), fail("why")),
            (u32::MAX, AttemptEnd::FailedTransient(why()), fail("why")),
            (1, AttemptEnd::RetryAfter(minute, why()), Verdict::Abandon { delay: minute, reason: why() }),
            (3, AttemptEnd::RetryAfter(minute, why()), fail("why")),
            (1, AttemptEnd::Deferred(minute), Verdict::Release { delay: minute }),
            (9, AttemptEnd::Deferred(minute), Verdict::Release { delay: minute }),
            (1, lost(1), at_once.clone()),
            (9, lost(2), at_once),
            (1, lost(3), fail(REASON_LEASES_LOST)),
        ];
        for (attempts, end, verdict) in table {
            assert_eq!(decide(attempts, end.clone(), &policy(), 0.5), verdict, "attempt {attempts}, {end:?}");
        }
    }

    #[test]
    fn a_reason_is_cut_at_4000_characters_on_a_character_boundary() {
        let verdict = Verdict::Fail { reason: "ü".repeat(4001) };
        assert_eq!(verdict.reason().unwrap().chars().count(), 4000);
        assert_eq!(Verdict::Fail { reason: String::new() }.reason(), None);
        assert_eq!(Verdict::Fail { reason: "short".into() }.reason(), Some("short".into()));
        assert_eq!(Verdict::Fail { reason: "a\0b".into() }.reason(), Some("a\u{FFFD}b".into()));
    }

    #[test]
    fn a_delay_is_bounded() {
        assert_eq!(Verdict::Release { delay: Duration::MAX }.delay(), HORIZON_MAX);
    }

    #[test]
    fn states_and_their_words_are_one_to_one() {
        for state in State::ALL {
            assert_eq!(State::from_word(state.as_str()), Some(state));
        }
        assert_eq!(State::from_word("DONE"), None);
    }
}
