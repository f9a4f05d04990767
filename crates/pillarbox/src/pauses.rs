//! Which routes pause: because their destination is away, or because an operator said so.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox_core::pause::Halt;

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
    /// An operator paused it.
    is_told: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    breaker: Breaker,
    /// Since when the destination is away, and what was last heard of it.
    away: Option<(Tick, String)>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

    /// Whether an operator paused the route.
    pub(crate) fn is_told(&self, route: usize) -> bool {
        self.routes.get(route).is_some_and(|slot| slot.is_told.load(Ordering::Acquire))
    }

    /// Learns what an operator wants of a route.
    pub(crate) fn tell(&self, route: usize, is_told: bool) -> Change {
        let Some(slot) = self.routes.get(route) else { return Change::None };
        let state = slot.lock();
        if slot.is_told.swap(is_told, Ordering::AcqRel) == is_told {
            return Change::None;
        }
        self.count(slot, &state);
        if is_told { Change::Paused } else { Change::Resumed }
    }

    /// Takes note of whether the route runs, for both of its reasons.
    fn count(&self, slot: &Slot, state: &State) {
        let is_paused = !state.breaker.is_closed() || slot.is_told.load(Ordering::Acquire);
        match (slot.is_paused.swap(is_paused, Ordering::AcqRel), is_paused) {
            (false, true) => drop(self.paused_count.fetch_add(1, Ordering::AcqRel)),
            (true, false) => drop(self.paused_count.fetch_sub(1, Ordering::AcqRel)),
            _ => {}
        }
    }

    /// Asks for one message, or one batch.
    pub(crate) fn admit(&self, route: usize, now: Tick) -> Admission {
        let Some(slot) = self.routes.get(route) else { return Admission::Run };
        if !slot.is_paused.load(Ordering::Acquire) {
            return Admission::Run;
        }
        let mut state = slot.lock();
        let (next, admission) = state.breaker.admit(now);
        state.breaker = next;
        admission
    }

    /// Learns something about the destination of a route, and why it is away if it is.
    pub(crate) fn learn(&self, route: usize, news: News, now: Tick, dice: f64, why: Option<&str>) -> Change {
        let Some(slot) = self.routes.get(route) else { return Change::None };
        let mut state = slot.lock();
        let next = state.breaker.next(news, now, dice, self.pauses);
        let change = match (state.breaker.is_closed(), next.is_closed()) {
            (true, false) => Change::Paused,
            (false, true) => Change::Resumed,
            _ => Change::None,
        };
        state.breaker = next;
        if next.is_closed() {
            state.away = None;
        } else if let Some(why) = why {
            let since = state.away.as_ref().map_or(now, |(since, _)| *since);
            state.away = Some((since, why.chars().take(Halt::REASON_CHARS_MAX).collect()));
        }
        self.count(slot, &state);
        change
    }

    /// The routes whose destination is away, with their places.
    pub(crate) fn halts(&self, now: Tick) -> Vec<(usize, Halt)> {
        let halt = |(route, slot): (usize, &Slot)| {
            let state = slot.lock();
            let (since, reason) = state.away.clone()?;
            let probe_in = state.breaker.probe_at().map(|at| at.since(now)).unwrap_or_default();
            Some((route, Halt { route: String::new(), lasts: now.since(since), probe_in, reason }))
        };
        self.routes.iter().enumerate().filter_map(halt).collect()
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
        let breaker = slot.map(|slot| slot.lock().breaker);
        match breaker {
            Some(Breaker::Open { until, .. }) => until.since(now),
            Some(Breaker::Probing { pause }) => pause,
            Some(Breaker::Closed) | None => Duration::ZERO,
        }
    }

    /// Brings every pause so much nearer to its end.
    pub(crate) fn shorten(&self, by: Duration) {
        for slot in &self.routes {
            if let Breaker::Open { until, .. } = &mut slot.lock().breaker {
                *until = until.before(by);
            }
        }
    }

    pub(crate) fn paused(&self) -> Vec<usize> {
        (0..self.routes.len()).filter(|route| self.is_paused(*route)).collect()
    }

    fn probes(&self) -> impl Iterator<Item = Tick> {
        // An operator's pause is not probed.
        self.routes.iter().map(|slot| match (slot.is_told.load(Ordering::Acquire), slot.lock().breaker) {
            (true, _) => Tick::NEVER,
            (false, Breaker::Closed) => Tick::from_zero(),
            (false, open) => open.probe_at().unwrap_or(Tick::NEVER),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const WHY: Option<&str> = Some("refused");

    fn at(seconds: u32) -> Tick {
        Tick::default().after(SECOND * seconds)
    }

    /// H33: the others keep flowing, and when none flows the store is asked for probes only.
    #[test]
    fn claims_stop_only_while_every_route_pauses() {
        let pauses = RoutePauses::new(2, Pauses { first: SECOND, max: SECOND * 8 });
        assert_eq!(pauses.learn(0, News::Unavailable, at(0), 0.5, WHY), Change::Paused);
        assert_eq!(pauses.learn(0, News::Unavailable, at(0), 0.5, WHY), Change::None);
        assert!(pauses.is_paused(0) && !pauses.is_paused(1));
        assert_eq!(pauses.may_claim_at(), at(0));
        assert_eq!(pauses.claim_limit(200, at(0)), 200);

        pauses.learn(1, News::Unavailable, at(4), 0.5, WHY);
        assert_eq!(pauses.paused(), [0, 1]);
        assert_eq!(pauses.may_claim_at(), at(1));
        assert_eq!(pauses.claim_limit(200, at(1)), 1);
        assert_eq!(pauses.claim_limit(200, at(5)), 2);

        assert_eq!(pauses.admit(0, at(5)), Admission::Probe);
        assert_eq!(pauses.may_claim_at(), at(5));
        assert_eq!(pauses.admit(1, at(5)), Admission::Probe);
        assert_eq!(pauses.may_claim_at(), Tick::NEVER, "both probes run");
        assert_eq!(pauses.learn(1, News::ProbeAnswered, at(6), 0.5, WHY), Change::Resumed);
        assert_eq!(pauses.may_claim_at(), at(0));
    }

    /// A route pauses while one of its reasons lasts, and only its destination is probed.
    #[test]
    fn an_operators_pause_stands_beside_that_of_the_breaker() {
        let pauses = RoutePauses::new(2, Pauses { first: SECOND, max: SECOND });
        assert_eq!([pauses.tell(0, true), pauses.tell(0, true)], [Change::Paused, Change::None]);
        assert!(pauses.is_paused(0) && pauses.is_told(0) && !pauses.is_paused(1));
        assert_eq!(pauses.may_claim_at(), at(0));
        pauses.learn(0, News::Unavailable, at(1), 0.5, WHY);
        pauses.learn(1, News::Unavailable, at(2), 0.5, WHY);
        assert_eq!(pauses.may_claim_at(), at(3), "the first route is not probed");
        let halts: Vec<_> = pauses.halts(at(4)).into_iter().map(|(route, halt)| (route, halt.lasts)).collect();
        assert_eq!(halts, [(0, SECOND * 3), (1, SECOND * 2)]);
        pauses.tell(1, true);
        assert_eq!(pauses.may_claim_at(), Tick::NEVER);
        assert_eq!(pauses.tell(0, false), Change::Resumed);
        assert!(pauses.is_paused(0), "its destination is still away");
        pauses.admit(0, at(5));
        assert_eq!(pauses.learn(0, News::ProbeAnswered, at(5), 0.5, None), Change::Resumed);
        assert_eq!((pauses.paused(), pauses.halts(at(6)).len()), (vec![1], 1));
        assert_eq!(pauses.may_claim_at(), at(0));
    }

    #[test]
    fn a_runtime_without_routes_claims_nothing() {
        assert_eq!(RoutePauses::new(0, Pauses { first: SECOND, max: SECOND }).may_claim_at(), Tick::NEVER);
    }
}
