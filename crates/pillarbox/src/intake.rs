//! From a broker into the inbox: what comes is stored first, and acknowledged afterwards.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use pillarbox_core::inbox::{InboxStore, Incoming, Reception, WithInbox};
use pillarbox_core::{BrokerError, Delivered, Intaken, Invalid, StoreError, Subscription};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::{dice, spread};
use crate::config::count_within;
use crate::inbox::Inbox;
use crate::runtime::StartError;
use crate::telemetry::TARGET;

/// The first and the longest pause after something went wrong.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How much an intake takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntakeOptions {
    /// Deliveries that are stored in one transaction at the most; 1 to 10000.
    pub batch_max: usize,
}

impl IntakeOptions {
    /// The largest batch.
    pub const BATCH_MAX: usize = 10_000;

    fn validate(self) -> Result<(), Invalid> {
        let mut problems = Vec::new();
        count_within("batch_max", self.batch_max, 1, Self::BATCH_MAX, &mut problems);
        Invalid::unless_empty(problems)
    }
}

impl Default for IntakeOptions {
    fn default() -> Self {
        Self { batch_max: 100 }
    }
}

/// Takes the deliveries of a broker into an inbox, in a task of its own, until it is shut down or dropped.
///
/// The broker is told to forget a delivery after the transaction that stores it is committed. A crash in between makes it come
/// again, and the inbox knows it then: nothing is lost, and nothing is handled twice.
pub struct Intake {
    counters: Arc<Counters>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// What an intake has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IntakeStats {
    /// Deliveries that were new, and are stored.
    pub stored_count: u64,
    /// Deliveries that the inbox knew already.
    pub duplicate_count: u64,
    /// Deliveries that the inbox can never take.
    pub refused_count: u64,
    /// Calls to the broker or the inbox that failed.
    pub failure_count: u64,
}

#[derive(Default)]
struct Counters {
    stored: AtomicU64,
    duplicate: AtomicU64,
    refused: AtomicU64,
    failures: AtomicU64,
}

impl<S: WithInbox> Inbox<S> {
    /// Takes in what a broker delivers, for the handlers of a [`runtime`](Self::runtime).
    pub fn intake(&self, subscription: impl Subscription) -> Result<Intake, StartError> {
        self.intake_with(subscription, IntakeOptions::default())
    }

    /// Like [`intake`](Self::intake), with settings of your own.
    pub fn intake_with(&self, subscription: impl Subscription, options: IntakeOptions) -> Result<Intake, StartError> {
        options.validate()?;
        let handle = Handle::try_current().map_err(|_| StartError::NoTokio)?;
        let (counters, stop) = (Arc::new(Counters::default()), CancellationToken::new());
        let worker = Worker {
            subscription,
            inbox: self.clone(),
            batch_max: options.batch_max.min(self.store().queue().options().limits.batch_max),
            counters: Arc::clone(&counters),
            stop: stop.clone(),
            failures_in_a_row: 0,
        };
        Ok(Intake { counters, stop, task: Some(handle.spawn(worker.run())) })
    }
}

impl Intake {
    /// What it has done so far.
    pub fn stats(&self) -> IntakeStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IntakeStats {
            stored_count: count(&self.counters.stored),
            duplicate_count: count(&self.counters.duplicate),
            refused_count: count(&self.counters.refused),
            failure_count: count(&self.counters.failures),
        }
    }

    /// Takes nothing new, ends what is under way, and answers what was done. What was delivered and not stored comes again.
    pub async fn shutdown(mut self) -> IntakeStats {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            // It ends by itself; a panic in it has been logged.
            let _ = task.await;
        }
        self.stats()
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Intake").field(&self.stats()).finish()
    }
}

struct Worker<B, S: WithInbox> {
    subscription: B,
    inbox: Inbox<S>,
    batch_max: usize,
    counters: Arc<Counters>,
    stop: CancellationToken,
    failures_in_a_row: u32,
}

impl<B: Subscription, S: WithInbox> Worker<B, S> {
    async fn run(mut self) {
        let stop = self.stop.clone();
        while !stop.is_cancelled() {
            let next = contained(self.subscription.next(self.batch_max));
            let delivered = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                delivered = next => delivered,
            };
            match delivered {
                Ok(delivered) => self.take_in(delivered).await,
                Err(error) => self.failed("the broker cannot be asked for messages", &error).await,
            }
        }
    }

    /// Stores what came, however long that takes, and then tells the broker.
    async fn take_in(&mut self, delivered: Vec<Delivered<B::Tag>>) {
        let limits = self.inbox.store().queue().options().limits.clone();
        let (mut outcomes, mut tags, mut incoming) = (Vec::new(), Vec::new(), Vec::new());
        for Delivered { tag, incoming: one } in delivered {
            match Incoming::check_all(std::slice::from_ref(&one), &limits) {
                Ok(()) => {
                    tags.push(tag);
                    incoming.push(one);
                }
                Err(invalid) => {
                    self.refused(&one, &invalid);
                    outcomes.push((tag, Intaken::Refused(invalid)));
                }
            }
        }
        // A subscription may bring more than it was asked for.
        let mut tags = tags.into_iter();
        for part in incoming.chunks(self.batch_max) {
            let stored = self.store_part(part).await;
            outcomes.extend(tags.by_ref().zip(stored));
        }
        let told = contained(self.subscription.settle(outcomes)).await;
        match told {
            Ok(()) => self.failures_in_a_row = 0,
            Err(error) => {
                self.failed("the broker cannot be told what is stored, and will deliver it again", &error).await;
            }
        }
    }

    /// Stores messages in one transaction; where the database rejects one of them, each in a transaction of its own.
    async fn store_part(&mut self, part: &[Incoming]) -> Vec<Intaken> {
        let error = match self.store(part).await {
            Ok(outcome) => return vec![outcome; part.len()],
            Err(error) => error,
        };
        let mut outcomes = vec![Intaken::Later; part.len()];
        if part.len() > 1 {
            for (one, outcome) in part.iter().zip(&mut outcomes) {
                *outcome = self.store(std::slice::from_ref(one)).await.unwrap_or(Intaken::Later);
            }
        }
        self.failed("the inbox rejects what a broker delivered, which will come again", &error).await;
        outcomes
    }

    /// Tries until they are stored, until it is told to stop, or until the store says that trying is of no use.
    async fn store(&mut self, incoming: &[Incoming]) -> Result<Intaken, StoreError> {
        loop {
            match self.inbox.receive(incoming).await {
                Ok(received) => {
                    let new = received.iter().filter(|one| one.outcome == Reception::Queued).count();
                    add(&self.counters.stored, new);
                    add(&self.counters.duplicate, received.len() - new);
                    return Ok(Intaken::Stored);
                }
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => self.failed("the inbox cannot store what a broker delivered; trying on", &error).await,
            }
            if self.stop.is_cancelled() {
                return Ok(Intaken::Later);
            }
        }
    }

    fn refused(&self, one: &Incoming, invalid: &Invalid) {
        add(&self.counters.refused, 1);
        let (source, store) = (one.receipt().source(), self.inbox.store().id().as_str());
        tracing::error!(target: TARGET, source, store, error = %invalid, "a delivery can never be stored and is rejected");
    }

    /// Says so once in a row, and waits a little, longer each time.
    async fn failed(&mut self, what: &str, error: &(dyn fmt::Display + Sync)) {
        add(&self.counters.failures, 1);
        if self.failures_in_a_row == 0 {
            tracing::warn!(target: TARGET, %error, store = self.inbox.store().id().as_str(), "{what}");
        }
        let plain = PAUSE_FIRST.saturating_mul(1 << self.failures_in_a_row.min(20)).min(PAUSE_MAX);
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        let _ = tokio::time::timeout(spread(plain, dice()), self.stop.cancelled()).await;
    }
}

/// A panic of the subscription is an error and no more.
async fn contained<T>(call: impl Future<Output = Result<T, BrokerError>>) -> Result<T, BrokerError> {
    AssertUnwindSafe(call).catch_unwind().await.unwrap_or_else(|_| Err(BrokerError::new("the subscription panicked")))
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}
