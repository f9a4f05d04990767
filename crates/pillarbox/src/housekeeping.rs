//! What every process does for all others: freeing leases that ran out, burying what expired, removing what is old. Beside
//! that it looks after the database's clock.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::clock::{Reading, jump};
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::{OutboxStore, StoreError};
use tokio::time::{Instant, sleep_until};

use crate::clock::{dice, spread};
use crate::dispatcher::Engine;
use crate::telemetry::TARGET;

/// Purge calls in a row; what is left waits for the next interval.
const PURGES_MAX: u32 = 100;

/// How long a reap or purge of a store in a fleet may take: many short calls, of which each takes effect.
const TIME_MAX: Duration = Duration::from_secs(300);

/// Reaps and purges at their intervals, spread over the processes. Errors are logged; the next interval tries again.
pub(crate) async fn run(engine: Arc<Engine>) {
    let (reap_every, purge_every) = (engine.plan.config.reap_interval, engine.plan.config.purge_interval);
    let mut reap_at = Instant::now() + reap_every.mul_f64(dice());
    let mut purge_at = Instant::now() + purge_every.mul_f64(dice());
    // An idle store of a fleet should cost little: there the looks take turns.
    let takes_turns = engine.plan.turns.is_some();
    let (mut last, mut is_clocks_turn) = (None, false);
    loop {
        sleep_until(reap_at.min(purge_at)).await;
        if reap_at <= Instant::now() {
            tell(&engine, "reap", engine.in_turn(engine.reap()).await);
            if !takes_turns || !is_clocks_turn {
                tell(&engine, "a look at the oldest message", engine.in_turn(engine.look_at_oldest()).await);
            }
            if !takes_turns || is_clocks_turn {
                tell(&engine, "a look at the clock", engine.in_turn(engine.look_at_clock(&mut last)).await);
            }
            is_clocks_turn = !is_clocks_turn;
            reap_at = next(reap_every);
        }
        if purge_at <= Instant::now() {
            tell(&engine, "purge", engine.in_turn(engine.purge()).await);
            purge_at = next(purge_every);
        }
    }
}

impl Engine {
    /// Waits for a turn among the stores of a fleet, where the store is one of them.
    async fn in_turn(&self, call: impl Future<Output = Result<(), StoreError>>) -> Result<(), StoreError> {
        let mut turn = self.turn();
        self.take_turn(&mut turn).await;
        turn.call_within(Some(TIME_MAX), call).await
    }

    /// Puts right what nobody else will; whether anything came free is told to the poller.
    pub(crate) async fn reap(&self) -> Result<(), StoreError> {
        let reaped = self.store.reap_all(self.plan.config.order.after_dead).await?;
        self.telemetry().reaped(&reaped);
        if reaped.released > 0 {
            self.nudge();
        }
        Ok(())
    }

    /// Tells how long the oldest message has waited, also while nothing is claimed here.
    async fn look_at_oldest(&self) -> Result<(), StoreError> {
        let waited = self.store.oldest_pending().await?;
        self.telemetry().oldest_age(waited.unwrap_or_default());
        Ok(())
    }

    /// Reads the database's clock, and tells when it was set since the last reading.
    async fn look_at_clock(&self, last: &mut Option<Reading>) -> Result<(), StoreError> {
        let Some(reading) = self.read_clock().await? else { return Ok(()) };
        if let Some(jump) = last.replace(reading).and_then(|before| jump(before, reading)) {
            self.telemetry().clock_jumped(jump);
        }
        Ok(())
    }

    /// Removes done messages that are past the retention, batch after batch, and then results of receptors.
    pub(crate) async fn purge(&self) -> Result<(), StoreError> {
        let limit = PurgeLimit::default();
        for _ in 0..PURGES_MAX {
            let count = match &self.ledger {
                Some(ledger) => ledger.purge(limit).await?,
                None => self.store.purge(limit).await?,
            };
            if count > 0 {
                self.telemetry().purged(count);
            }
            if count < u64::from(limit.get()) {
                break;
            }
            tokio::task::yield_now().await;
        }
        match &self.ledger {
            Some(_) => Ok(()),
            None => purge_results(&*self.store).await,
        }
    }
}

/// Forgets old results of receptors, batch after batch, where the store keeps any.
pub(crate) async fn purge_results(store: &dyn OutboxStore) -> Result<(), StoreError> {
    let (Some(progress), limit) = (store.progress(), PurgeLimit::default()) else { return Ok(()) };
    for _ in 0..PURGES_MAX {
        if progress.purge(limit).await? < u64::from(limit.get()) {
            break;
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn next(every: Duration) -> Instant {
    Instant::now() + spread(every, dice())
}

fn tell(engine: &Engine, what: &str, result: Result<(), StoreError>) {
    if let Err(error) = result {
        tracing::warn!(target: TARGET, %error, store = engine.store.id().as_str(), "{what} failed; the next one tries again");
    }
}
