//! How a runtime ends.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::dispatcher::Engine;
use crate::run::given_back;
use crate::runtime::Inner;
use crate::telemetry::TARGET;

/// Time for what must still be done when the grace is over: to stop handlers, and to write the last verdicts.
const STOP_TIME: Duration = Duration::from_millis(400);

/// The same for the last verdicts of a store in a fleet: all stores write theirs at once, and take turns.
const FLEET_SETTLE_TIME: Duration = Duration::from_secs(4);

/// Nobody waits longer than a day, and the sum with now must not overflow.
const GRACE_MAX: Duration = Duration::from_secs(24 * 3600);

/// What became of the messages that a runtime held when it was shut down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Handlers that ended by themselves within the grace.
    pub finished: u64,
    /// Messages that had not begun, and were given back at once without spending an attempt.
    pub released: u64,
    /// Handlers that were cut short when the grace was over; their messages were given back without spending an attempt.
    pub interrupted: u64,
    /// Messages that could not be given back or settled, because the store was away or a handler blocks its thread. Others
    /// take them over when their leases have run out.
    pub unsettled: u64,
}

impl ShutdownReport {
    /// Of two runtimes together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            finished: self.finished.saturating_add(other.finished),
            released: self.released.saturating_add(other.released),
            interrupted: self.interrupted.saturating_add(other.interrupted),
            unsettled: self.unsettled.saturating_add(other.unsettled),
        }
    }
}

impl Inner {
    /// Ends everything. May be dropped and begun again.
    pub(crate) async fn shut_down(&self, grace: Duration) -> ShutdownReport {
        let engine = &self.engine;
        let deadline = Instant::now() + grace.min(GRACE_MAX);
        self.hub.detach(engine);
        let ended_before = engine.begin_shutdown();
        engine.plan.member.leave();
        self.workers.close();
        self.others.close();
        if !until(deadline, self.workers.wait()).await {
            engine.abort.cancel();
            until(Instant::now() + STOP_TIME, self.workers.wait()).await;
        }
        engine.plan.scope.token.cancel();
        let settle_time = if engine.plan.turns.is_some() { FLEET_SETTLE_TIME } else { STOP_TIME };
        until(Instant::now() + settle_time, engine.all_settled()).await;
        until(Instant::now() + STOP_TIME, engine.tell_others()).await;
        until(Instant::now() + STOP_TIME, engine.plan.member.has_left()).await;
        self.stop.cancel();
        until(Instant::now() + STOP_TIME, self.others.wait()).await;
        until(Instant::now() + STOP_TIME, self.renewer_ended.cancelled()).await;
        let report = engine.report(ended_before);
        tracing::info!(target: TARGET, store = engine.store.id().as_str(), ?report, "shut down");
        report
    }
}

impl Engine {
    /// Closes everything, and gives back what has not begun. How many attempts had ended before.
    fn begin_shutdown(&self) -> u64 {
        self.close();
        let ended_before = self.counters.ended_count();
        let batch = given_back(self.queue.close());
        self.counters.shut_out(batch.len());
        self.settle_all(batch);
        ended_before
    }

    /// Waits until every verdict is written and no call to the store is under way.
    async fn all_settled(&self) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.verdicts.unwritten() == 0 && self.calls.count() == 0 {
                return;
            }
            self.wake_loop();
            changed.await;
        }
    }

    /// What was given back is there for others: they need not wait for their next poll.
    async fn tell_others(&self) {
        if self.counters.has_given_back()
            && let Err(error) = self.store.wake_others().await
        {
            tracing::debug!(target: TARGET, %error, store = self.store.id().as_str(), "others were not woken; they will poll");
        }
    }

    fn report(&self, ended_before: u64) -> ShutdownReport {
        let interrupted = self.counters.interrupted_count();
        let ended = self.counters.ended_count().saturating_sub(ended_before);
        let stuck = self.verdicts.unwritten() + self.counters.running();
        ShutdownReport {
            finished: ended.saturating_sub(interrupted),
            released: self.counters.shut_out_count(),
            interrupted,
            unsettled: u64::try_from(stuck).unwrap_or(u64::MAX),
        }
    }
}

/// Waits up to the deadline; whether it was in time.
async fn until(deadline: Instant, work: impl Future<Output = ()>) -> bool {
    timeout_at(deadline, work).await.is_ok()
}
