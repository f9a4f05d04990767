//! The outbox of one database as the broker of an inbox in another.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox_core::inbox::{Incoming, Receipt};
use pillarbox_core::lease::{Claim, Held};
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::store::{Claimed, Settlement};
use pillarbox_core::{
    AfterDead, BrokerError, Delivered, Intaken, Invalid, OutboxStore, OwnerToken, StoreError, Subscription, Verdict,
    Wakeups,
};
use tokio::time::Instant;

use crate::config::{INTERVAL_MAX, LEASE_MIN, time_within};
use crate::housekeeping::purge_results;
use crate::outbox::Outbox;

/// How often the outbox is tidied up.
const TIDY_INTERVAL: Duration = Duration::from_secs(30);

/// Moves the messages of an outbox into the inbox of another database, through [`Inbox::intake`](crate::Inbox::intake).
///
/// Each message is known there by the bridge's source and its own id, so that it takes effect once, whatever dies on the way.
/// It takes every message of the outbox, and reaps and purges there: give it one that no runtime runs on.
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use pillarbox::prelude::*;
/// use pillarbox::Bridge;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shop = Outbox::sqlite("sqlite::memory:").await?;
/// let billing = Outbox::sqlite("sqlite::memory:").await?;
/// let inbox = billing.inbox().await?;
/// shop.enqueue_now(Message::new("order.created", "1")).await?;
///
/// let runtime = inbox.runtime().on_topic("order.*", async |message: Raw| {
///     println!("{} from the shop", message.topic());
///     Ok(())
/// });
/// let runtime = runtime.start().await?;
/// let intake = inbox.intake(Bridge::new("shop", &shop)?)?;
/// # while intake.stats().stored_count == 0 { tokio::task::yield_now().await; }
/// # runtime.idle().await;
/// # assert_eq!(runtime.stats().done_count, 1);
/// intake.shutdown().await;
/// # Ok(())
/// # }
/// # }
/// ```
#[derive(Debug)]
pub struct Bridge {
    source: String,
    store: Arc<dyn OutboxStore>,
    owner: OwnerToken,
    lease: Duration,
    poll_interval: Duration,
    wakeups: Listening,
    tidy_at: Instant,
}

/// The store's wake-ups, as far as they have been subscribed to.
enum Listening {
    NotYet,
    Subscribed(Box<dyn Wakeups>),
    Never,
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotYet => "NotYet",
            Self::Subscribed(_) => "Subscribed",
            Self::Never => "Never",
        })
    }
}

impl Bridge {
    /// A bridge from an outbox; `source` is what the inbox calls it, and stays the same for good.
    pub fn new<S: ?Sized>(source: impl Into<String>, outbox: &Outbox<S>) -> Result<Self, Invalid> {
        let source = source.into();
        Receipt::new(source.clone(), "any").check()?;
        Ok(Self {
            source,
            store: Arc::clone(&outbox.hub().store),
            owner: OwnerToken::new(),
            lease: Duration::from_secs(30),
            poll_interval: Duration::from_millis(500),
            wakeups: Listening::NotYet,
            tidy_at: Instant::now(),
        })
    }

    /// How long a message stays ours, and how often to look when nobody wakes us; 30 s and 500 ms unless set.
    pub fn timing(mut self, lease: Duration, poll_interval: Duration) -> Result<Self, Invalid> {
        let mut problems = Vec::new();
        time_within("lease", lease, LEASE_MIN, INTERVAL_MAX, &mut problems);
        time_within("poll_interval", poll_interval, Duration::from_millis(1), INTERVAL_MAX, &mut problems);
        Invalid::unless_empty(problems)?;
        (self.lease, self.poll_interval) = (lease, poll_interval);
        Ok(self)
    }

    async fn claim(&mut self, limit: usize) -> Result<Vec<Delivered<Held>>, StoreError> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let claimed = self.store.claim(Claim::new(self.owner, self.lease, limit)?).await?;
        let mut delivered = Vec::with_capacity(claimed.len());
        let mut unreadable = Vec::new();
        for Claimed { held, message, .. } in claimed {
            match message {
                Ok(message) => {
                    let receipt = Receipt::new(self.source.clone(), message.id().to_string());
                    delivered.push(Delivered { tag: held, incoming: Incoming::new(receipt, message) });
                }
                Err(error) => {
                    unreadable.push(Settlement { held, verdict: Verdict::Fail { reason: error.to_string() } });
                }
            }
        }
        if !unreadable.is_empty() {
            self.store.settle(self.owner, &unreadable).await?;
        }
        Ok(delivered)
    }

    /// Does what a runtime would do for the outbox: frees leases that ran out, buries what expired, removes what is old.
    async fn tidy(&mut self) -> Result<(), StoreError> {
        if self.tidy_at <= Instant::now() {
            self.tidy_at = Instant::now() + TIDY_INTERVAL;
            self.store.reap_all(AfterDead::default()).await?;
            self.store.purge(PurgeLimit::default()).await?;
            purge_results(&*self.store).await?;
        }
        Ok(())
    }

    /// Until somebody says that messages wait, or it is time to look again.
    async fn wait(&mut self) {
        if let Listening::NotYet = self.wakeups {
            self.wakeups = match self.store.listen().await {
                Ok(Some(wakeups)) => Listening::Subscribed(wakeups),
                Ok(None) | Err(_) => Listening::Never,
            };
        }
        let wakeups = &mut self.wakeups;
        let woken = async {
            match wakeups {
                Listening::Subscribed(wakeups) => wakeups.next().await,
                _ => std::future::pending().await,
            }
        };
        // A subscription that broke is made anew: it may have missed something, so the next look comes at once.
        if let Ok(Err(_)) = tokio::time::timeout(self.poll_interval, woken).await {
            self.wakeups = Listening::NotYet;
        }
    }
}

#[async_trait]
impl Subscription for Bridge {
    type Tag = Held;

    async fn next(&mut self, limit: usize) -> Result<Vec<Delivered<Held>>, BrokerError> {
        loop {
            self.tidy().await.map_err(BrokerError::new)?;
            let delivered = self.claim(limit).await.map_err(BrokerError::new)?;
            if !delivered.is_empty() {
                return Ok(delivered);
            }
            self.wait().await;
        }
    }

    async fn settle(&mut self, outcomes: Vec<(Held, Intaken)>) -> Result<(), BrokerError> {
        let verdict = |outcome: Intaken| match outcome {
            Intaken::Stored => Verdict::Ack,
            Intaken::Later => Verdict::Release { delay: Duration::ZERO },
            Intaken::Refused(invalid) => Verdict::Fail { reason: invalid.to_string() },
        };
        let settlements: Vec<_> =
            outcomes.into_iter().map(|(held, outcome)| Settlement { held, verdict: verdict(outcome) }).collect();
        // A lease that was lost meanwhile makes the message come again, and the inbox knows it.
        self.store.settle(self.owner, &settlements).await.map(drop).map_err(BrokerError::new)
    }
}
