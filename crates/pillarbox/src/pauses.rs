//! The breakers of all routes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::breaker::{Admission, Breaker, News, Pauses};
use crate::clock::Tick;

/// Which routes pause, and until when.
#[derive(Debug)]
pub(crate) struct RoutePauses {
    routes: Vec<Slot>,
    paused_count: AtomicUsize,
    pauses: Pauses,
}

#[derive(Debug, Default)]
struct Slot {
    /// Spares every message of a route that runs the lock.
    is_paused: AtomicBool,
    breaker: Mutex<Breaker>,
}

/// What news did to a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It pauses now, and did not before.
    Paused,
    /// It runs again.
    Resumed,
    /// It is as it was.
    None,
}

impl RoutePauses {
    pub(crate) fn new(route_count: usize, pauses: Pauses) -> Self {
        let routes = std::iter::repeat_with(Slot::default).take(route_count).collect();
        Self { routes, paused_count: AtomicUsize::new(0), pauses }
    }

    /// Whether messages of the route should not be begun.
    pub(crate) fn is_paused(&self, route: usize) -> bool {
        self.routes.get(route).is_some_and(|slot| slot.is_paused.load(Ordering::Acquire))
    }

    /// Asks for one message, or one batch.
    pub(crate) fn admit(&self, route: usize, now: Tick) -> Admission {
        let Some(slot) = self.routes.get(route) else { return Admission::Run };
        if !slot.is_paused.load(Ordering::Acquire) {
            return Admission::Run;
        }
        let mut breaker = slot.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, admission) = breaker.admit(now);
        *breaker = next;
        admission
    }

    /// Learns something about a route.
    pub(crate) fn learn(&self, route: usize, news: News, now: Tick, dice: f64) -> Change {
        let Some(slot) = self.routes.get(route) else { return Change::None };
        let mut breaker = slot.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let next = breaker.next(news, now, dice, self.pauses);
        let change = match (breaker.is_closed(), next.is_closed()) {
            (true, false) => Change::Paused,
            (false, true) => Change::Resumed,
            _ => Change::None,
        };
        *breaker = next;
        match change {
            Change::Paused => drop(self.paused_count.fetch_add(1, Ordering::AcqRel)),
            Change::Resumed => drop(self.paused_count.fetch_sub(1, Ordering::AcqRel)),
            Change::None => {}
        }
        slot.is_paused.store(!next.is_closed(), Ordering::Release);
        change
    }

    /// When a claim makes sense: now, unless every route pauses. A runtime without routes claims nothing.
    pub(crate) fn may_claim_at(&self) -> Tick {
        if self.routes.is_empty() {
            return Tick::NEVER;
        }
        if self.paused_count.load(Ordering::Acquire) < self.routes.len() {
            return Tick::from_zero();
        }
        self.probes().min().unwrap_or(Tick::NEVER)
    }

    /// How many messages a claim should bring: while every route pauses, one for each that may be probed.
    pub(crate) fn claim_limit(&self, limit: usize, now: Tick) -> usize {
        if self.paused_count.load(Ordering::Acquire) < self.routes.len() {
            return limit;
        }
        self.probes().filter(|at| *at <= now).count().clamp(1, limit)
    }

    /// How long until the route may be probed.
    pub(crate) fn pause_left(&self, route: usize, now: Tick) -> Duration {
        let slot = self.routes.get(route);
        let breaker = slot.map(|slot| *slot.breaker.lock().unwrap_or_else(PoisonError::into_inner));
        match breaker {
            Some(Breaker::Open { until, .. }) => until.since(now),
            Some(Breaker::Probing { pause }) => pause,
            Some(Breaker::Closed) | None => Duration::ZERO,
        }
    }

    /// Brings every pause so much nearer to its end.
    pub(crate) fn shorten(&self, by: Duration) {
        for slot in &self.routes {
            let mut breaker = slot.breaker.lock().unwrap_or_else(PoisonError::into_inner);
            if let Breaker::Open { until, .. } = &mut *breaker {
                *until = until.before(by);
            }
        }
    }

    pub(crate) fn paused(&self) -> Vec<usize> {
        (0..self.routes.len()).filter(|route| self.is_paused(*route)).collect()
    }

    fn probes(&self) -> impl Iterator<Item = Tick> {
        let state = |slot: &Slot| *slot.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        self.routes.iter().map(state).map(|breaker| match breaker {
            Breaker::Closed => Tick::from_zero(),
            open => open.probe_at().unwrap_or(Tick::NEVER),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Tick {
        Tick::default().after(SECOND * seconds)
    }

    /// H33: the others keep flowing, and when none flows the store is asked for probes only.
    #[test]
    fn claims_stop_only_while_every_route_pauses() {
        let pauses = RoutePauses::new(2, Pauses { first: SECOND, max: SECOND * 8 });
        assert_eq!(pauses.learn(0, News::Unavailable, at(0), 0.5), Change::Paused);
        assert_eq!(pauses.learn(0, News::Unavailable, at(0), 0.5), Change::None);
        assert!(pauses.is_paused(0) && !pauses.is_paused(1));
        assert_eq!(pauses.may_claim_at(), at(0));
        assert_eq!(pauses.claim_limit(200, at(0)), 200);

        pauses.learn(1, News::Unavailable, at(4), 0.5);
        assert_eq!(pauses.paused(), [0, 1]);
        assert_eq!(pauses.may_claim_at(), at(1));
        assert_eq!(pauses.claim_limit(200, at(1)), 1);
        assert_eq!(pauses.claim_limit(200, at(5)), 2);

        assert_eq!(pauses.admit(0, at(5)), Admission::Probe);
        assert_eq!(pauses.may_claim_at(), at(5));
        assert_eq!(pauses.admit(1, at(5)), Admission::Probe);
        assert_eq!(pauses.may_claim_at(), Tick::NEVER, "both probes run");
        assert_eq!(pauses.learn(1, News::ProbeAnswered, at(6), 0.5), Change::Resumed);
        assert_eq!(pauses.may_claim_at(), at(0));
    }

    #[test]
    fn a_runtime_without_routes_claims_nothing() {
        assert_eq!(RoutePauses::new(0, Pauses { first: SECOND, max: SECOND }).may_claim_at(), Tick::NEVER);
    }
}
