//! Where a connection stands, and until when its client may keep it waiting. Pure: the time comes in.

use std::time::Duration;

use tokio::time::Instant;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the head of a request, from its first byte, or from the beginning of the connection.
    pub(crate) header: Duration,
    /// From one byte of an answer to the next, and then to the next request.
    pub(crate) idle: Duration,
    /// For anything, while somebody else waits to be let in.
    pub(crate) grace: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A head is on its way.
    Head { until: Instant },
    /// A head is here. Its body has arrived or nobody wants it (`is_whole`); its handler has answered (`is_answered`).
    Request { is_whole: bool, is_answered: bool },
    /// The answer goes out, then nothing happens until the next head begins.
    Rest { until: Instant },
}

impl Stage {
    pub(crate) fn accepted(now: Instant, patience: &Patience) -> Self {
        Self::Head { until: now + patience.header }
    }

    /// Bytes came in. More of the same head buy no more time: who sends a byte now and then would have it for ever.
    pub(crate) fn heard(self, now: Instant, patience: &Patience) -> Self {
        match self {
            Self::Rest { .. } => Self::accepted(now, patience),
            Self::Head { .. } | Self::Request { .. } => self,
        }
    }

    /// Bytes went out.
    pub(crate) fn told(self, now: Instant, patience: &Patience) -> Self {
        match self {
            Self::Rest { .. } => Self::Rest { until: now + patience.idle },
            Self::Head { .. } | Self::Request { .. } => self,
        }
    }

    /// A head is complete.
    pub(crate) fn begun(self) -> Self {
        Self::Request { is_whole: false, is_answered: false }
    }

    /// The body is complete or dropped.
    pub(crate) fn whole(self, now: Instant, patience: &Patience) -> Self {
        match self {
            Self::Request { is_answered, .. } => Self::request(true, is_answered, now, patience),
            Self::Head { .. } | Self::Rest { .. } => self,
        }
    }

    /// The handler has answered, perhaps before the whole body was there.
    pub(crate) fn answered(self, now: Instant, patience: &Patience) -> Self {
        match self {
            Self::Request { is_whole, .. } => Self::request(is_whole, true, now, patience),
            Self::Head { .. } | Self::Rest { .. } => self,
        }
    }

    fn request(is_whole: bool, is_answered: bool, now: Instant, patience: &Patience) -> Self {
        if is_whole && is_answered {
            return Self::Rest { until: now + patience.idle };
        }
        Self::Request { is_whole, is_answered }
    }

    /// When the connection is closed if nothing happens. The time of a body is the handler's to limit.
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Head { until } | Self::Rest { until } => Some(until),
            Self::Request { .. } => None,
        }
    }

    /// Whether the next move is ours: everything has come in, and the handler is at work.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Request { is_whole: true, is_answered: false })
    }

    /// Whether a new wait begins between these two; a body is the same wait as the head before it.
    pub(crate) fn begins_wait_after(self, before: Self) -> bool {
        match self {
            Self::Head { .. } => !matches!(before, Self::Head { .. }),
            Self::Rest { .. } => !matches!(before, Self::Rest { .. }),
            Self::Request { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience =
        Patience { header: Duration::from_secs(10), idle: Duration::from_secs(60), grace: Duration::ZERO };

    const BODY: Stage = Stage::Request { is_whole: false, is_answered: false };
    const WORK: Stage = Stage::Request { is_whole: true, is_answered: false };
    const EARLY: Stage = Stage::Request { is_whole: false, is_answered: true };

    fn head(until: Instant) -> Stage {
        Stage::Head { until }
    }

    fn rest(until: Instant) -> Stage {
        Stage::Rest { until }
    }

    /// H59: every stage and everything that can happen to it.
    #[test]
    fn each_stage_leads_where_the_table_says() {
        let start = Instant::now();
        let now = start + Duration::from_secs(3);
        let (header, idle) = (now + PATIENCE.header, now + PATIENCE.idle);
        // Stage, then: heard, told, begun, whole, answered.
        let table = [
            (head(start), [head(start), head(start), BODY, head(start), head(start)]),
            (rest(start), [head(header), rest(idle), BODY, rest(start), rest(start)]),
            (BODY, [BODY, BODY, BODY, WORK, EARLY]),
            (WORK, [WORK, WORK, BODY, WORK, rest(idle)]),
            (EARLY, [EARLY, EARLY, BODY, rest(idle), EARLY]),
        ];
        for (stage, expected) in table {
            let found = [
                stage.heard(now, &PATIENCE),
                stage.told(now, &PATIENCE),
                stage.begun(),
                stage.whole(now, &PATIENCE),
                stage.answered(now, &PATIENCE),
            ];
            assert_eq!(found, expected, "{stage:?}");
        }
    }

    /// H59.
    #[test]
    fn only_a_handler_at_work_is_not_waited_for() {
        let now = Instant::now();
        for (stage, is_ours, is_bounded) in [
            (head(now), false, true),
            (rest(now), false, true),
            (BODY, false, false),
            (EARLY, false, false),
            (WORK, true, false),
        ] {
            assert_eq!((stage.is_ours(), stage.deadline().is_some()), (is_ours, is_bounded), "{stage:?}");
        }
    }

    /// H59: neither a slow head nor a slow body looks younger than it is.
    #[test]
    fn a_wait_begins_with_a_head_and_with_an_answer() {
        let now = Instant::now();
        assert!(head(now).begins_wait_after(rest(now)) && rest(now).begins_wait_after(WORK));
        assert!(rest(now).begins_wait_after(EARLY));
        for (stage, before) in [(head(now), head(now)), (BODY, head(now)), (EARLY, BODY), (rest(now), rest(now))] {
            assert!(!stage.begins_wait_after(before), "{stage:?}");
        }
    }
}
