//! When the destination of a route is away: the route pauses, one message probes, everything flows again by itself.
//!
//! ```text
//!            unavailable                pause over
//! closed ──────────────────▶ open ──────────────────▶ probing
//!    ▲                        ▲                         │  │
//!    │                        └── unavailable: longer ──┘  │
//!    └────────────────── anything else ────────────────────┘
//! ```

use std::time::Duration;

use crate::clock::{Tick, spread};

/// How long a route pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pauses {
    pub(crate) first: Duration,
    pub(crate) max: Duration,
}

/// Where the breaker of one route stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Breaker {
    /// Messages run.
    #[default]
    Closed,
    /// No message runs before `until`.
    Open { until: Tick, pause: Duration },
    /// One message runs, to see.
    Probing { pause: Duration },
}

/// What a message may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Run.
    Run,
    /// Run, and tell how it went: all others wait for that.
    Probe,
    /// Come again after this time.
    Wait(Duration),
}

/// What was learnt about the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A message found it away.
    Unavailable,
    /// The probe found it away.
    ProbeUnavailable,
    /// The probe got an answer of any kind.
    ProbeAnswered,
    /// The probe told nothing: it was given back before it ran, or cut short.
    ProbeLost,
}

impl Breaker {
    /// Asks for one message.
    pub(crate) fn admit(self, now: Tick) -> (Self, Admission) {
        match self {
            Self::Closed => (self, Admission::Run),
            Self::Open { until, pause } if until <= now => (Self::Probing { pause }, Admission::Probe),
            Self::Open { until, .. } => (self, Admission::Wait(until.since(now))),
            Self::Probing { pause } => (self, Admission::Wait(pause)),
        }
    }

    /// The state after the news. What messages that began before the pause report changes nothing.
    pub(crate) fn next(self, news: News, now: Tick, dice: f64, pauses: Pauses) -> Self {
        let open = |pause: Duration| Self::Open { until: now.after(spread(pause, dice)), pause };
        match (self, news) {
            (Self::Closed, News::Unavailable) => open(pauses.first.min(pauses.max)),
            (Self::Probing { pause }, News::ProbeUnavailable) => open(pause.saturating_mul(2).min(pauses.max)),
            (Self::Probing { .. }, News::ProbeAnswered) => Self::Closed,
            (Self::Probing { pause }, News::ProbeLost) => Self::Open { until: now, pause },
            (state, _) => state,
        }
    }

    /// When the next probe may run; none while messages run, or while a probe does.
    pub(crate) fn probe_at(self) -> Option<Tick> {
        match self {
            Self::Open { until, .. } => Some(until),
            Self::Closed | Self::Probing { .. } => None,
        }
    }

    pub(crate) fn is_closed(self) -> bool {
        self == Self::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PAUSES: Pauses = Pauses { first: SECOND, max: Duration::from_secs(3) };

    fn at(seconds: u32) -> Tick {
        Tick::default().after(SECOND * seconds)
    }

    fn open(until: u32, pause: u32) -> Breaker {
        Breaker::Open { until: at(until), pause: SECOND * pause }
    }

    fn probing(pause: u32) -> Breaker {
        Breaker::Probing { pause: SECOND * pause }
    }

    /// HOT-05, H33: every state × every event, at second 10 and without jitter.
    #[test]
    fn every_state_knows_what_news_mean() {
        use Breaker::Closed;
        use News::{ProbeAnswered, ProbeLost, ProbeUnavailable, Unavailable};
        let table = [
            (Closed, Unavailable, open(11, 1)),
            (Closed, ProbeUnavailable, Closed),
            (Closed, ProbeAnswered, Closed),
            (Closed, ProbeLost, Closed),
            (open(12, 2), Unavailable, open(12, 2)),
            (open(12, 2), ProbeUnavailable, open(12, 2)),
            (open(12, 2), ProbeAnswered, open(12, 2)),
            (open(12, 2), ProbeLost, open(12, 2)),
            (probing(1), Unavailable, probing(1)),
            (probing(1), ProbeUnavailable, open(12, 2)),
            (probing(2), ProbeUnavailable, open(13, 3)),
            (probing(3), ProbeUnavailable, open(13, 3)),
            (probing(1), ProbeAnswered, Closed),
            (probing(2), ProbeLost, open(10, 2)),
        ];
        for (state, news, expected) in table {
            assert_eq!(state.next(news, at(10), 0.5, PAUSES), expected, "{state:?}, {news:?}");
        }
    }

    #[test]
    fn one_message_probes_and_the_others_wait() {
        assert_eq!(Breaker::Closed.admit(at(1)), (Breaker::Closed, Admission::Run));
        assert_eq!(open(5, 2).admit(at(4)), (open(5, 2), Admission::Wait(SECOND)));
        let (probing, admission) = open(5, 2).admit(at(5));
        assert_eq!(admission, Admission::Probe);
        assert_eq!(probing.admit(at(5)), (probing, Admission::Wait(SECOND * 2)));
    }

    #[test]
    fn a_pause_grows_to_its_limit_and_is_spread() {
        let pauses = Pauses { first: SECOND, max: SECOND * 30 };
        let mut state = Breaker::Closed.next(News::Unavailable, at(0), 0.0, pauses);
        let mut seen = Vec::new();
        for _ in 0..7 {
            let Breaker::Open { until, pause } = state else { panic!("{state:?}") };
            seen.push(pause.as_secs());
            state = state.admit(until).0.next(News::ProbeUnavailable, at(0), 0.0, pauses);
        }
        assert_eq!(seen, [1, 2, 4, 8, 16, 30, 30]);
        let early = Breaker::Closed.next(News::Unavailable, at(0), 0.0, pauses).probe_at();
        let late = Breaker::Closed.next(News::Unavailable, at(0), 0.999, pauses).probe_at();
        assert!(early < late);
    }
}
