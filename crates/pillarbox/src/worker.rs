//! Workers: each takes one piece of work at a time, runs it, and sends the verdict on its way.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use pillarbox_core::AttemptEnd;
use pillarbox_core::outbox::Verdict;

use crate::attempt::{self, Ended};
use crate::breaker::{Admission, News};
use crate::clock::{Tick, dice};
use crate::dispatcher::Engine;
use crate::expiry::EXPIRED_DELAY;
use crate::flight::Flight;
use crate::pauses::Change;
use crate::plan::{PlannedRoute, RouteHandler};
use crate::queue::{Entries, Work};

/// Pieces of work after which a worker lets other tasks of its thread run.
pub(crate) const WORK_IN_A_ROW_MAX: u32 = 64;

/// Takes and runs work until the queue is closed.
pub(crate) async fn run(engine: Arc<Engine>, number: usize) {
    let mut in_a_row = 0;
    while let Some(work) = engine.queue.next(number).await {
        engine.handle(work).await;
        in_a_row += 1;
        if in_a_row >= WORK_IN_A_ROW_MAX {
            in_a_row = 0;
            tokio::task::yield_now().await;
        }
    }
}

impl Engine {
    /// Runs one piece of work. Never panics.
    pub(crate) async fn handle(&self, work: Work<Arc<Flight>>) {
        if work.made_room {
            self.wake_loop();
        }
        self.know_pauses().await;
        self.know_time(work.entries.as_slice()).await;
        match work.entries {
            Entries::One(flight) => self.handle_one(flight).await,
            Entries::Batch(flights) => self.handle_batch(work.route, flights).await,
        }
        let route = &self.plan.routes[work.route];
        if route.concurrency_max.is_some() || matches!(route.handler, RouteHandler::Batch { .. }) {
            self.queue.finished(work.route);
        }
    }

    async fn handle_one(&self, flight: Arc<Flight>) {
        let Some(admission) = self.admit(flight.route, std::slice::from_ref(&flight)) else { return };
        let attempt = attempt::run(&self.plan, flight.route, &flight.cx);
        let ended = self.unless_cut_short(1, attempt).await;
        let pause = self.learn(flight.route, admission, ended.as_ref().map(Ended::unavailable));
        if let Some(verdict) = self.conclude(&flight, ended, pause, SystemTime::now()) {
            self.settle(&flight, verdict);
        }
    }

    async fn handle_batch(&self, route: usize, mut flights: Vec<Arc<Flight>>) {
        let now = self.clock.now();
        flights.retain(|flight| self.may_start(flight, now));
        let Some(admission) = self.admit(route, &flights) else { return };
        let contexts = flights.iter().map(|flight| flight.cx.clone()).collect();
        let ended = self.unless_cut_short(flights.len(), attempt::run_batch(&self.plan, route, contexts)).await;
        let unavailable = ended.as_ref().map(|ended| ended.iter().find_map(Ended::unavailable));
        let pause = self.learn(route, admission, unavailable);
        let mut ended = ended.map(Vec::into_iter);
        let (now, mut verdicts) = (SystemTime::now(), Vec::with_capacity(flights.len()));
        for flight in flights {
            if let Some(verdict) = self.conclude(&flight, ended.as_mut().and_then(Iterator::next), pause, now) {
                verdicts.push((flight, verdict));
            }
        }
        self.settle_together(verdicts);
    }

    /// Whether enough of the lease is left, and of the message's own time; otherwise it is given back, or forgotten when it is
    /// not ours any more.
    fn may_start(&self, flight: &Arc<Flight>, now: Tick) -> bool {
        let is_held = flight.may_start(now, self.plan.config.lease);
        if is_held && !self.has_expired(flight, now) {
            return true;
        }
        self.counters.not_started();
        if flight.is_lost() {
            flight.ended();
            self.flights.remove([flight]);
            self.follow(flight, &Verdict::Release { delay: Duration::ZERO });
            self.changed.notify_waiters();
        } else {
            let delay = if is_held { EXPIRED_DELAY } else { Duration::ZERO };
            self.settle(flight, Verdict::Release { delay });
        }
        false
    }

    /// Whether these messages of one route may begin; otherwise they are given back.
    fn admit(&self, route: usize, flights: &[Arc<Flight>]) -> Option<Admission> {
        let [first, ..] = flights else { return None };
        if matches!(self.plan.routes[route].handler, RouteHandler::One(_)) && !self.may_start(first, self.clock.now()) {
            return None;
        }
        if self.pauses.is_told(route) {
            for flight in flights {
                self.settle(flight, self.put_off(flight.cx.message().topic()));
            }
            return None;
        }
        let now = self.clock.now();
        let admission = self.pauses.admit(route, now);
        if let Admission::Wait(pause) = admission {
            for flight in flights {
                // A little later than the probe, and not all at once.
                let delay = pause + pause.mul_f64(0.25 * dice()) + Duration::from_millis(1);
                self.settle(flight, Verdict::Release { delay });
            }
            return None;
        }
        flights.iter().for_each(|flight| flight.started(now));
        self.counters.started(flights.len());
        Some(admission)
    }

    /// Waits for the attempt; none when the shutdown's grace ends first.
    async fn unless_cut_short<T>(&self, count: usize, attempt: impl Future<Output = T>) -> Option<T> {
        let ended = {
            let mut attempt = pin!(attempt);
            let mut cut_short = None;
            poll_fn(|task| {
                // Handlers that are through at once never register for the end of the grace.
                if let Poll::Ready(ended) = attempt.as_mut().poll(task) {
                    return Poll::Ready(Some(ended));
                }
                let cut_short = cut_short.get_or_insert_with(|| Box::pin(self.abort.cancelled()));
                cut_short.as_mut().poll(task).map(|()| None)
            })
            .await
        };
        self.counters.ended(count);
        if ended.is_none() {
            self.counters.interrupted(count);
        }
        ended
    }

    /// Tells the route's breaker how it went; how long the route pauses if its destination is away. None when the attempt was
    /// cut short, and within it why the destination is away.
    fn learn(&self, route: usize, admission: Admission, unavailable: Option<Option<&str>>) -> Duration {
        let news = match (admission, unavailable.map(|why| why.is_some())) {
            (Admission::Probe, None) => News::ProbeLost,
            (Admission::Probe, Some(true)) => News::ProbeUnavailable,
            (Admission::Probe, Some(false)) => News::ProbeAnswered,
            (_, Some(true)) => News::Unavailable,
            _ => return Duration::ZERO,
        };
        let now = self.clock.now();
        let meters = &self.plan.routes[route].meters;
        let change = self.pauses.learn(route, news, now, dice(), unavailable.flatten());
        if change != Change::None {
            meters.paused(self.pauses.is_paused(route));
        }
        if change == Change::Resumed {
            self.nudge();
        }
        self.pauses.pause_left(route, now)
    }

    /// Decides what becomes of the message; nothing more, where that is committed already. `pause` is what the route has left of
    /// a pause.
    fn conclude(
        &self,
        flight: &Arc<Flight>,
        ended: Option<Ended>,
        pause: Duration,
        now: SystemTime,
    ) -> Option<Verdict> {
        let route = &self.plan.routes[flight.route];
        Some(match ended {
            None => {
                flight.cx.cancel();
                Verdict::Release { delay: Duration::ZERO }
            }
            Some(Ended::Unavailable(_)) => Verdict::Release { delay: pause },
            Some(Ended::Committed) => {
                end_to_end(flight, route, now);
                self.committed(flight);
                return None;
            }
            Some(Ended::End(end)) => {
                if end == AttemptEnd::Succeeded {
                    end_to_end(flight, route, now);
                }
                self.decide(flight.cx.attempt(), end, &route.retry)
            }
        })
    }
}

fn end_to_end(flight: &Flight, route: &PlannedRoute, now: SystemTime) {
    if let Ok(age) = now.duration_since(flight.cx.created_at()) {
        route.meters.end_to_end_took(age);
    }
}
