//! What a runtime has done and is doing, as numbers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox_core::outbox::Verdict;

use crate::clock::Tick;
use crate::dispatcher::Engine;

/// A snapshot of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages that wait in memory after their commit.
    pub hot_depth: usize,
    /// Claimed messages that wait in memory.
    pub cold_depth: usize,
    /// Handlers that run now.
    pub running_count: usize,
    /// Messages whose lease this runtime holds: waiting, running, or not yet settled.
    pub held_count: usize,
    /// Verdicts that are not written yet.
    pub unsettled_count: usize,
    /// Messages handed over in memory after their commit.
    pub hot_count: u64,
    /// Messages that found the hot queue full and were left to the poller.
    pub hot_dropped_count: u64,
    /// Messages claimed from the store.
    pub claimed_count: u64,
    /// Attempts that were begun.
    pub started_count: u64,
    /// Messages that are done.
    pub done_count: u64,
    /// Messages given back for another attempt.
    pub retried_count: u64,
    /// Messages that were given up.
    pub dead_count: u64,
    /// Messages given back without spending an attempt.
    pub released_count: u64,
    /// Verdicts that came too late: somebody else had taken the message over.
    pub lease_lost_count: u64,
    /// Messages that were not begun because too little of their lease was left, or because they had expired.
    pub not_started_count: u64,
    /// Messages that came a second time while they were held here.
    pub doubled_count: u64,
    /// Leases that were renewed.
    pub renewed_count: u64,
    /// Whether other processes can wake this one; otherwise it polls.
    pub has_wakeups: bool,
    /// Whether the store is away.
    pub is_store_out: bool,
    /// Routes that pause because their destination is down, or because an operator said so.
    pub paused_routes: Vec<String>,
}

impl Stats {
    pub(crate) fn of(engine: &Engine) -> Self {
        let counters = &engine.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let depths = engine.queue.depths();
        let (is_store_out, has_wakeups) = {
            let schedule = engine.schedule();
            (schedule.is_out(), schedule.has_wakeups())
        };
        Self {
            hot_depth: depths.hot,
            cold_depth: depths.cold,
            running_count: counters.running(),
            held_count: engine.flights.len(),
            unsettled_count: engine.verdicts.unwritten(),
            hot_count: count(&counters.hot),
            hot_dropped_count: count(&counters.hot_dropped),
            claimed_count: count(&counters.claimed),
            started_count: count(&counters.started),
            done_count: count(&counters.done),
            retried_count: count(&counters.retried),
            dead_count: count(&counters.dead),
            released_count: count(&counters.released),
            lease_lost_count: count(&counters.lease_lost),
            not_started_count: count(&counters.not_started),
            doubled_count: count(&counters.doubled),
            renewed_count: count(&counters.renewed),
            has_wakeups,
            is_store_out,
            paused_routes: engine.pauses.paused().iter().map(|route| engine.plan.routes[*route].name.clone()).collect(),
        }
    }
}

/// Counts that only grow, and the handlers that run.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    hot: AtomicU64,
    hot_dropped: AtomicU64,
    claimed: AtomicU64,
    started: AtomicU64,
    ended: AtomicU64,
    done: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    released: AtomicU64,
    lease_lost: AtomicU64,
    not_started: AtomicU64,
    doubled: AtomicU64,
    renewed: AtomicU64,
    /// Messages that a shutdown gave back: unstarted, come too late, cut short.
    shut_out: AtomicU64,
    refused: AtomicU64,
    interrupted: AtomicU64,
    running: AtomicUsize,
    /// When the last line about a full hot queue was written.
    warned_at: AtomicU64,
}

impl Counters {
    pub(crate) fn hot(&self, count: usize) {
        add(&self.hot, count);
    }

    pub(crate) fn hot_dropped(&self, count: usize) {
        add(&self.hot_dropped, count);
    }

    /// Whether a line about a full hot queue may be written: one a second.
    pub(crate) fn may_warn(&self, now: Tick) -> bool {
        let last = self.warned_at.load(Ordering::Relaxed);
        let is_time = last == 0 || now.since(Tick::from_nanos(last)) >= Duration::from_secs(1);
        let set = |last| self.warned_at.compare_exchange(last, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
        is_time && set(last).is_ok()
    }

    pub(crate) fn claimed(&self, count: usize) {
        add(&self.claimed, count);
    }

    pub(crate) fn started(&self, count: usize) {
        add(&self.started, count);
        self.running.fetch_add(count, Ordering::AcqRel);
    }

    pub(crate) fn ended(&self, count: usize) {
        add(&self.ended, count);
        self.running.fetch_sub(count, Ordering::AcqRel);
    }

    pub(crate) fn ended_count(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    pub(crate) fn settled(&self, verdict: &Verdict) {
        add(
            match verdict {
                Verdict::Ack => &self.done,
                Verdict::Abandon { .. } => &self.retried,
                Verdict::Fail { .. } => &self.dead,
                Verdict::Release { .. } => &self.released,
            },
            1,
        );
    }

    pub(crate) fn lease_lost(&self) {
        add(&self.lease_lost, 1);
    }

    pub(crate) fn not_started(&self) {
        add(&self.not_started, 1);
    }

    pub(crate) fn doubled(&self) {
        add(&self.doubled, 1);
    }

    pub(crate) fn renewed(&self, count: usize) {
        add(&self.renewed, count);
    }

    /// A shutdown gave these back before they began.
    pub(crate) fn shut_out(&self, count: usize) {
        add(&self.shut_out, count);
    }

    /// One came while the shutdown was under way, and was given back.
    pub(crate) fn refused(&self) {
        add(&self.refused, 1);
    }

    /// Whether a shutdown gave anything back.
    pub(crate) fn has_given_back(&self) -> bool {
        [&self.shut_out, &self.refused, &self.interrupted].iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    pub(crate) fn shut_out_count(&self) -> u64 {
        self.shut_out.load(Ordering::Relaxed)
    }

    pub(crate) fn interrupted(&self, count: usize) {
        add(&self.interrupted, count);
    }

    pub(crate) fn interrupted_count(&self) -> u64 {
        self.interrupted.load(Ordering::Relaxed)
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}
