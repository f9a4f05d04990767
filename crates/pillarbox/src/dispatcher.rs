//! The heart of a runtime: what is held, what waits, what is on its way to the store. Its loops live in other files.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox_core::lease::{Held, Lease};
use pillarbox_core::order::goes_on;
use pillarbox_core::outbox::{Settled, Verdict};
use pillarbox_core::retry::RetryPolicy;
use pillarbox_core::store::Claimed;
use pillarbox_core::{AttemptEnd, InboxStore, Invalid, Message, OutboxStore, OwnerToken, decide};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::ballast::PayloadSize;
use crate::breadth::Breadth;
use crate::breaker::Pauses;
use crate::calls::Calls;
use crate::clock::{Clock, Tick, dice};
use crate::config::UnknownTopics;
use crate::context::{Context, Delivery};
use crate::expiry::DatabaseClock;
use crate::flight::{Flight, Flights};
use crate::hot_path::Hub;
use crate::obedience::Obedience;
use crate::pauses::RoutePauses;
use crate::plan::{Plan, PlannedRoute, RouteHandler};
use crate::queue::{Lane, Path, Queue};
use crate::run::{Cut, given_back};
use crate::schedule::{Schedule, Timing};
use crate::settler::{Batch, Verdicts};
use crate::stats::Counters;
use crate::telemetry::Telemetry;

/// How long a message waits that is held here already, and one that is left to other processes.
const DOUBLED_DELAY: Duration = Duration::from_secs(1);
const LEFT_DELAY: Duration = Duration::from_secs(30);

/// What all tasks of one runtime share.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn OutboxStore>,
    /// Where the store is the queue of an inbox.
    pub(crate) ledger: Option<Arc<dyn InboxStore>>,
    pub(crate) owner: OwnerToken,
    pub(crate) plan: Plan,
    pub(crate) clock: Clock,
    pub(crate) queue: Queue<Arc<Flight>>,
    pub(crate) flights: Flights,
    pub(crate) verdicts: Verdicts,
    pub(crate) pauses: RoutePauses,
    pub(crate) obedience: Obedience,
    pub(crate) database_clock: DatabaseClock,
    pub(crate) counters: Counters,
    pub(crate) calls: Calls,
    /// Something was settled, claimed or ended: those who wait for quiet look again.
    pub(crate) changed: Notify,
    /// Cuts running handlers short.
    pub(crate) abort: CancellationToken,
    schedule: Mutex<Schedule>,
    payload_size: Mutex<PayloadSize>,
    breadth: Mutex<Breadth>,
    loops: Notify,
    is_closing: AtomicBool,
}

impl Engine {
    pub(crate) fn new(hub: &Hub, plan: Plan) -> Self {
        let config = &plan.config;
        let lane = |route: &PlannedRoute| match (&route.handler, route.concurrency_max) {
            (RouteHandler::One(_), None) => Lane::Shared,
            (RouteHandler::One(_), Some(concurrency_max)) => Lane::Own { concurrency_max, batch_max: None },
            (RouteHandler::Batch { size_max, .. }, limit) => {
                Lane::Own { concurrency_max: limit.unwrap_or(usize::MAX), batch_max: Some(*size_max) }
            }
        };
        let timing = Timing {
            poll_interval: config.poll_interval,
            idle_interval: config.idle_interval,
            settle_interval: config.settle_interval,
            call_count: config.store_call_count,
            outage_max: config.outage_max,
            backs_off: config.backs_off,
            drains: config.drains,
        };
        Self {
            owner: plan.scope.owner,
            clock: Clock::start(),
            queue: Queue::new(config.hot_capacity, config.cold_capacity, plan.routes.iter().map(lane).collect()),
            flights: Flights::default(),
            verdicts: Verdicts::default(),
            pauses: RoutePauses::new(plan.routes.len(), Pauses { first: config.pause_first, max: config.pause_max }),
            obedience: Obedience::new(config.obey_within),
            database_clock: DatabaseClock::default(),
            counters: Counters::default(),
            calls: Calls::default(),
            changed: Notify::new(),
            abort: CancellationToken::new(),
            schedule: Mutex::new(Schedule::new(timing)),
            payload_size: Mutex::default(),
            breadth: Mutex::default(),
            loops: Notify::new(),
            is_closing: AtomicBool::new(false),
            store: Arc::clone(&hub.store),
            ledger: hub.ledger.clone(),
            plan,
        }
    }

    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.plan.scope.telemetry
    }

    /// A lease for messages that are about to be written.
    pub(crate) fn lease(&self) -> Result<Lease, Invalid> {
        Lease::new(self.owner, self.plan.config.lease)
    }

    /// The schedule; held for as long as it takes to look at it.
    pub(crate) fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of payloads that may be taken in besides those that are held.
    pub(crate) fn free_bytes(&self) -> usize {
        self.plan.config.held_bytes_max.saturating_sub(self.flights.bytes())
    }

    /// Messages that a claim can take in, by the bytes that are free; 0 while there are none.
    pub(crate) fn affordable(&self, limit: usize) -> usize {
        self.payload_size().affordable(self.free_bytes(), self.plan.config.store_call_count, limit)
    }

    /// What was claimed last.
    pub(crate) fn breadth(&self) -> MutexGuard<'_, Breadth> {
        self.breadth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn payload_size(&self) -> MutexGuard<'_, PayloadSize> {
        self.payload_size.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one loop look at the schedule again.
    pub(crate) fn wake_loop(&self) {
        self.loops.notify_one();
    }

    /// Waits for [`wake_loop`](Self::wake_loop); one that came before counts.
    pub(crate) async fn loop_woken(&self) {
        self.loops.notified().await;
    }

    /// Gives reserved room back, and wakes a loop that waits for it.
    pub(crate) fn give_back(&self, path: Path, count: usize) {
        if count > 0 && self.queue.give_back(path, count) {
            self.wake_loop();
        }
    }

    /// Messages wait in the store.
    pub(crate) fn nudge(&self) {
        self.schedule().nudge();
        self.wake_loop();
    }

    /// Messages in the store become due after `delay`.
    pub(crate) fn due_in(&self, delay: Duration) {
        let now = self.clock.now();
        self.schedule().comes_back(now, delay);
        self.wake_loop();
    }

    /// Nothing new from here on.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.schedule().close();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// The route of a message that may be handled here as soon as it is committed. One that must wait for others, as
    /// messages with a key must, is claimed instead: the store knows whose turn it is.
    pub(crate) fn hot_route(&self, message: &Message) -> Option<usize> {
        let route = self.plan.route_of(message)?;
        let is_free = !message.is_delayed() && self.lane_of(message).is_none();
        (is_free && !self.pauses.is_paused(route) && !self.is_closing()).then_some(route)
    }

    /// Takes claimed messages in. `reserved` places of the cold queue were set aside for them.
    pub(crate) fn take_in(&self, claimed: Vec<Claimed>, leased_at: Tick, reserved: usize) {
        self.counters.claimed(claimed.len());
        self.telemetry().claimed(claimed.len());
        let bytes =
            claimed.iter().filter_map(|claimed| claimed.message.as_ref().ok()).map(|message| message.payload().len());
        self.payload_size().saw(claimed.len(), bytes.sum());
        let (mut aside, mut cut) = (Batch::default(), Cut::default());
        let mut flights = Vec::with_capacity(claimed.len());
        for claimed in claimed {
            let lane = claimed.message.as_ref().ok().and_then(|message| self.lane_of(message)).map(str::to_owned);
            if cut.is_behind(lane.as_deref()) {
                aside.push(claimed.held, Verdict::Release { delay: Duration::ZERO }, None);
                continue;
            }
            match self.sorted(claimed, leased_at) {
                Ok(flight) => flights.push(flight),
                Err((held, verdict)) => {
                    if !goes_on(&verdict, self.plan.config.order.after_dead) {
                        cut.note(lane.as_deref());
                    }
                    aside.push(held, verdict, None);
                }
            }
        }
        self.give_back(Path::Cold, reserved.saturating_sub(flights.len()));
        self.enter(Path::Cold, flights, aside);
    }

    /// Puts flights into the room that was reserved for them, and settles what cannot go in.
    pub(crate) fn enter(&self, path: Path, mut flights: Vec<Arc<Flight>>, mut aside: Batch) {
        let doubled = self.flights.admit(&mut flights);
        self.give_back(path, doubled.len());
        let mut cut = Cut::default();
        for flight in doubled {
            self.counters.doubled();
            cut.note(self.lane_of(flight.cx.message()));
            aside.push(flight.held, Verdict::Release { delay: DOUBLED_DELAY }, None);
        }
        let is_behind = |flight: &mut Arc<Flight>| cut.is_behind(self.lane_of(flight.cx.message()));
        let behind = given_back(flights.extract_if(.., is_behind));
        self.give_back(path, behind.len());
        aside.append(behind);
        let entries = self.linked(flights).into_iter().map(|flight| (flight.route, flight)).collect();
        let refused = self.queue.push(path, entries);
        aside.append(self.refused(refused.into_iter().map(|(_, flight)| flight)));
        self.settle_all(aside);
    }

    /// Sends a verdict on its way.
    pub(crate) fn settle(&self, flight: &Arc<Flight>, verdict: Verdict) {
        flight.ended();
        let ends_run = self.follow(flight, &verdict);
        if self.verdicts.push(flight.held, verdict, Some(Arc::clone(flight)), ends_run) || self.frees_claims(flight) {
            self.wake_loop();
        }
    }

    /// Sends the verdicts of one batch on their way, so that one call takes them all.
    pub(crate) fn settle_together(&self, verdicts: Vec<(Arc<Flight>, Verdict)>) {
        let (mut batch, mut frees_claims) = (Batch::of(verdicts.len()), false);
        for (flight, verdict) in verdicts {
            flight.ended();
            batch.ends_run |= self.follow(&flight, &verdict);
            frees_claims |= self.frees_claims(&flight);
            batch.push(flight.held, verdict, Some(flight));
        }
        if self.verdicts.push_all(batch) || frees_claims {
            self.wake_loop();
        }
    }

    /// Whether claims have waited for this message, the last one with a key.
    fn frees_claims(&self, flight: &Flight) -> bool {
        self.lane_of(flight.cx.message()).is_some() && self.breadth().is_narrow() && !self.holds_keys()
    }

    /// Whether messages with keys are being handled, or wait for it.
    pub(crate) fn holds_keys(&self) -> bool {
        self.flights.any_under_way(|flight| self.lane_of(flight.cx.message()).is_some())
    }

    /// Takes note of a message that is done by its own transaction.
    pub(crate) fn committed(&self, flight: &Arc<Flight>) {
        flight.ended();
        let was_full = self.free_bytes() == 0;
        self.flights.remove([flight]);
        if was_full || self.frees_claims(flight) {
            self.wake_loop();
        }
        self.counters.settled(&Verdict::Ack);
        if self.follow(flight, &Verdict::Ack) {
            self.nudge();
        }
        self.changed.notify_waiters();
    }

    /// Sends many verdicts on their way.
    pub(crate) fn settle_all(&self, batch: Batch) {
        if self.verdicts.push_all(batch) {
            self.wake_loop();
        }
    }

    /// Takes note of what the store said to a batch of verdicts.
    pub(crate) fn applied(&self, batch: Batch, answers: &[Settled]) {
        let now = self.clock.now();
        let count = batch.len();
        self.flights.remove(batch.flights.iter().flatten());
        for (index, settlement) in batch.settlements.iter().enumerate() {
            if answers.get(index) == Some(&Settled::LeaseLost) {
                self.counters.lease_lost();
                let flight = batch.flights.get(index).and_then(Option::as_ref);
                // The next one of its run may be in the queue already, or running: it is the last one that does.
                flight.inspect(|flight| flight.cut_run());
                self.telemetry().lease_lost(flight.map(|flight| flight.cx.message_id()));
                continue;
            }
            self.counters.settled(&settlement.verdict);
            match settlement.verdict {
                Verdict::Abandon { delay, .. } | Verdict::Release { delay } => self.schedule().comes_back(now, delay),
                Verdict::Fail { .. } => self.count_dead(batch.flights.get(index).and_then(Option::as_ref)),
                Verdict::Ack => {}
            }
        }
        self.verdicts.written(count);
    }

    /// A message is dead by our verdict: one of a route, or one that none would take.
    fn count_dead(&self, flight: Option<&Arc<Flight>>) {
        match flight {
            Some(flight) => self.plan.routes[flight.route].meters.dead(),
            None => self.telemetry().dead(1),
        }
    }

    /// Sees to it that gauges follow.
    pub(crate) fn tell_depths(&self) {
        let depths = self.queue.depths();
        self.telemetry().depths(depths.hot, depths.cold, self.counters.running());
    }

    /// A flight for a message that can be handled, or the verdict on one that cannot.
    fn sorted(&self, claimed: Claimed, leased_at: Tick) -> Result<Arc<Flight>, (Held, Verdict)> {
        let Claimed { held, attempts, lost_lease_count, created_at, last_error, message } = claimed;
        let message = match message {
            Ok(message) => message,
            Err(undecodable) => return Err((held, Verdict::Fail { reason: undecodable.to_string() })),
        };
        let Some(route) = self.plan.route_of(&message) else {
            return Err((held, self.verdict_without_handler(&message, attempts)));
        };
        if self.pauses.is_told(route) {
            return Err((held, self.put_off(message.topic())));
        }
        let delivery = Delivery { message, held, attempt: attempts, lost_lease_count, created_at, last_error };
        let cx = Context::new(delivery, Arc::clone(&self.plan.scope));
        Ok(Flight::new(cx, held, route, leased_at))
    }

    fn verdict_without_handler(&self, message: &Message, attempts: u32) -> Verdict {
        let policy = self.plan.unknown_topics;
        self.telemetry().no_handler(message, policy);
        let reason = || format!("no handler for topic `{}`", message.topic());
        match policy {
            UnknownTopics::Retry => {
                let end = AttemptEnd::FailedTransient(reason());
                self.decide(attempts, end, &self.plan.config.retry)
            }
            UnknownTopics::Dead => Verdict::Fail { reason: reason() },
            UnknownTopics::Leave => Verdict::Release { delay: LEFT_DELAY },
        }
    }

    /// What becomes of a message; a backoff of the user's that panics counts as one of a second.
    pub(crate) fn decide(&self, attempts: u32, end: AttemptEnd, retry: &RetryPolicy) -> Verdict {
        if end == AttemptEnd::Succeeded {
            return Verdict::Ack;
        }
        let decided = catch_unwind(AssertUnwindSafe(|| decide(attempts, end, retry, dice())));
        decided.unwrap_or_else(|_| Verdict::Abandon {
            delay: Duration::from_secs(1),
            reason: "the backoff of the retry policy panicked".into(),
        })
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("store", self.store.id()).field("plan", &self.plan).finish_non_exhaustive()
    }
}
