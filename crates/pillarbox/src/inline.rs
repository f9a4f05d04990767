//! Handling in the caller's own task: no background, no waiting. For tests and for programs that end by themselves.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::{MessageId, StoreError};

use crate::builder::RuntimeBuilder;
use crate::dispatcher::Engine;
use crate::hot_path::Hub;
use crate::runtime::StartError;
use crate::stats::Stats;

/// How often one message may come back within one drain: whoever comes back for ever would never let it end.
const ROUNDS_MAX: u32 = 1000;

/// Runs handlers when it is told to, in the caller's task, exactly as a [`Runtime`](crate::Runtime) would.
pub struct Inline {
    engine: Arc<Engine>,
    /// Kept for the transactions of handlers.
    _hub: Arc<Hub>,
}

/// What one [`drain`](Inline::drain) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Attempts that were begun.
    pub attempts: u64,
    /// Messages that are done.
    pub done: u64,
    /// Messages that wait for another attempt.
    pub retried: u64,
    /// Messages that were given up.
    pub dead: u64,
    /// Messages given back without spending an attempt.
    pub released: u64,
}

impl RuntimeBuilder {
    /// Checks everything like [`start`](Self::start), and starts nothing: [`Inline::drain`] runs what is due.
    pub fn inline(mut self) -> Result<Inline, StartError> {
        let hub = self.on.hub.take().ok_or(StartError::NoOutbox)?;
        let plan = self.plan_on(&hub)?;
        Ok(Inline { engine: Arc::new(Engine::new(&hub, plan)), _hub: hub })
    }
}

impl Inline {
    /// Claims and handles every message that is due, also those that handlers enqueue meanwhile, until none is left.
    ///
    /// A message that comes back again and again without ever being done is an error in the end.
    pub async fn drain(&self) -> Result<Drained, StoreError> {
        let before = Stats::of(&self.engine);
        let mut seen: HashMap<MessageId, u32> = HashMap::new();
        loop {
            let claimed = self.engine.poll_once().await?;
            while let Some(work) = self.engine.queue.try_next() {
                for flight in work.entries.as_slice() {
                    let count = seen.entry(flight.cx.message_id()).or_default();
                    *count += 1;
                    if *count > ROUNDS_MAX {
                        return Err(endless(flight.cx.message_id()));
                    }
                }
                self.engine.handle(work).await;
            }
            self.engine.settle_now().await?;
            if claimed == 0 {
                return Ok(Drained::between(&before, &Stats::of(&self.engine)));
            }
        }
    }

    /// Brings the pauses of routes whose destination is down so much nearer to their end, for tests whose time is not the
    /// machine's.
    pub fn advance(&self, by: Duration) {
        self.engine.pauses.shorten(by);
    }

    /// What all drains did together.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.engine)
    }
}

impl Drained {
    fn between(before: &Stats, after: &Stats) -> Self {
        Self {
            attempts: after.started_count - before.started_count,
            done: after.done_count - before.done_count,
            retried: after.retried_count - before.retried_count,
            dead: after.dead_count - before.dead_count,
            released: after.released_count - before.released_count,
        }
    }
}

impl fmt::Debug for Inline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inline").field("engine", &self.engine).finish_non_exhaustive()
    }
}

fn endless(message_id: MessageId) -> StoreError {
    StoreError::rejected(format!("message {message_id} came back {ROUNDS_MAX} times in one drain: it would never end"))
}
