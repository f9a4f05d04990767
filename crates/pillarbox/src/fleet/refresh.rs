//! Asks the discovery, and follows its answer: new stores are served, those that are no more are drained, the others are
//! not touched.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::{FutureExt, StreamExt, stream};
use pillarbox_core::discovery::changes;
use pillarbox_core::store::StoreOptions;
use pillarbox_core::{Discovery, DiscoveryError, RoutingKey, StoreError, StoreId, StorePlace};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::builder::Settings;
use super::member::{IntoFleet, Member};
use super::{Ask, Shared};
use crate::clock::{dice, spread};
use crate::connect::open;
use crate::telemetry::TARGET;
use crate::turns::Turn;

/// How long a discovery may take, and the opening of one store, its tables included.
const DISCOVERY_TIME_MAX: Duration = Duration::from_secs(30);
const OPEN_TIME_MAX: Duration = Duration::from_secs(30);

/// How soon to try again while something is missing.
const AGAIN: Duration = Duration::from_secs(30);

/// What a refresh did, each in the order of the keys.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Refreshed {
    /// Stores that are served from now on.
    pub added: Vec<RoutingKey>,
    /// Stores that were found elsewhere than before, and are served there from now on.
    pub changed: Vec<RoutingKey>,
    /// Stores that are no more; they were drained.
    pub removed: Vec<RoutingKey>,
    /// Stores that were not touched.
    pub kept: Vec<RoutingKey>,
    /// Stores that could not be opened, and why. They are tried again, and served where they were until then.
    pub failed: Vec<(RoutingKey, StoreError)>,
}

/// Why a refresh changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefreshError {
    /// The discovery failed; the stores that are known are kept.
    #[error("the stores could not be discovered: {0}")]
    Discovery(#[from] DiscoveryError),
    /// The fleet is shut down.
    #[error("the fleet is shut down")]
    Closed,
}

/// The task that refreshes.
pub(super) struct Refresher {
    shared: Arc<Shared>,
    discovery: Option<Arc<dyn Discovery>>,
    settings: Settings,
}

impl Refresher {
    pub(super) fn new(shared: Arc<Shared>, discovery: Option<Arc<dyn Discovery>>, settings: Settings) -> Self {
        Self { shared, discovery, settings }
    }

    /// Refreshes when it is asked, and at its interval, until it is told to stop.
    pub(super) async fn run(self, mut asked: mpsc::Receiver<Ask>, stop: CancellationToken) {
        let mut pause = self.settings.refresh_interval;
        loop {
            let ask = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                ask = asked.recv() => ask,
                () = sleep(spread(pause, dice())), if self.discovery.is_some() => None,
            };
            let refreshed = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                refreshed = self.refresh() => refreshed,
            };
            let is_whole = refreshed.as_ref().is_ok_and(|refreshed| refreshed.failed.is_empty());
            pause = if is_whole { self.settings.refresh_interval } else { self.settings.refresh_interval.min(AGAIN) };
            if let Some(ask) = ask {
                // Whoever asked may have stopped waiting.
                let _ = ask.send(refreshed);
            }
        }
    }

    async fn refresh(&self) -> Result<Refreshed, RefreshError> {
        let Some(discovery) = &self.discovery else { return Ok(Refreshed::default()) };
        let found = discovered(discovery.as_ref()).await.inspect_err(|error| {
            let count = self.shared.keys().len();
            tracing::warn!(target: TARGET, %error, count, "stores could not be discovered: those that are known are kept");
        })?;
        let changes = changes(&self.known(), self.without_given(found));
        for key in &changes.ambiguous {
            let store = key.as_str();
            tracing::warn!(target: TARGET, store, "a store was discovered in two places: nothing is done about it");
        }
        let before: Vec<_> = changes.changed.iter().map(|place| place.key().clone()).collect();
        let places = changes.added.into_iter().chain(changes.changed);
        let opening = stream::iter(places.map(|place| self.take_in(place))).buffer_unordered(self.settings.opens_max);
        let draining = join_all(changes.removed.iter().map(|key| self.let_go(key)));
        let (opened, _) = join(opening.collect::<Vec<_>>(), draining).await;

        let mut refreshed = Refreshed { removed: changes.removed, kept: changes.kept, ..Refreshed::default() };
        for (key, opened) in opened {
            match opened {
                Ok(()) if before.contains(&key) => refreshed.changed.push(key),
                Ok(()) => refreshed.added.push(key),
                Err(error) => refreshed.failed.push((key, error)),
            }
        }
        refreshed.added.sort_unstable();
        refreshed.changed.sort_unstable();
        refreshed.failed.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        Ok(refreshed)
    }

    /// What was discovered before and is served.
    fn known(&self) -> BTreeMap<RoutingKey, StorePlace> {
        let places = self.shared.keys().into_iter().filter_map(|key| {
            let place = self.shared.member(&key)?.place.clone()?;
            Some((key, place))
        });
        places.collect()
    }

    /// What the program gave stays as it is.
    fn without_given(&self, mut found: Vec<StorePlace>) -> Vec<StorePlace> {
        found.retain(|place| {
            let is_given = self.shared.member(place.key()).is_some_and(|member| member.place.is_none());
            if is_given {
                let store = place.key().as_str();
                tracing::warn!(target: TARGET, store, "a store was discovered that the program gave: it stays");
            }
            !is_given
        });
        found
    }

    /// Opens a store and serves it; the one that was under its key until now is drained.
    async fn take_in(&self, place: StorePlace) -> (RoutingKey, Result<(), StoreError>) {
        let key = place.key().clone();
        let opened = match timeout(OPEN_TIME_MAX, AssertUnwindSafe(self.open(place)).catch_unwind()).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(StoreError::rejected("the store panicked while it was opened")),
            Err(_) => Err(StoreError::unavailable(format!("the store could not be opened within {OPEN_TIME_MAX:?}"))),
        };
        let joined = opened.and_then(|member| Ok(self.shared.join(&key, member, self.settings.served)?));
        match joined {
            Ok(before) => {
                tracing::info!(target: TARGET, store = key.as_str(), "a store joined the fleet");
                if let Some(before) = before {
                    self.shared.let_go(before, self.settings.drain_grace).await;
                }
                (key, Ok(()))
            }
            Err(error) => {
                tracing::warn!(target: TARGET, %error, store = key.as_str(), "a store cannot be served; trying again later");
                (key, Err(error))
            }
        }
    }

    async fn open(&self, place: StorePlace) -> Result<Member, StoreError> {
        if let Some(problem) = place.problem() {
            return Err(StoreError::rejected(problem.to_owned()));
        }
        let base = &self.settings.store_options;
        let id = StoreId::new(place.key().as_str())?;
        let options = StoreOptions {
            store_id: Some(id.clone()),
            naming: place.get_naming().unwrap_or(&base.naming).clone(),
            ..base.clone()
        };
        let turns = &self.shared.turns;
        let pooled = turns.connections.join(&id);
        let mut turn = Turn::new(&id, Some(turns));
        turn.take().await;
        let opening = async {
            let opened = open(place.address(), options, IntoFleet).await?;
            pooled.opened(Arc::clone(&opened.outbox.any.hub().store));
            let inbox = match self.settings.served.has_inboxes() {
                true => Some((opened.open_inbox)(self.settings.inbox_options.clone()).await?),
                false => None,
            };
            Ok((opened.outbox, inbox))
        };
        let (outbox, inbox) = turn.call_within(Some(OPEN_TIME_MAX), opening).await?;
        if let Some(inbox) = &inbox {
            pooled.named(inbox.any.hub().store.id());
        }
        Ok(Member::opened(place, outbox, inbox, pooled))
    }

    async fn let_go(&self, key: &RoutingKey) {
        let Some(member) = self.shared.remove(key) else { return };
        tracing::info!(target: TARGET, store = key.as_str(), "a store leaves the fleet: what runs may end");
        self.shared.let_go(member, self.settings.drain_grace).await;
    }
}

/// Asks; neither a panic nor a hung answer is more than an error.
async fn discovered(discovery: &dyn Discovery) -> Result<Vec<StorePlace>, DiscoveryError> {
    let asked = AssertUnwindSafe(async { discovery.discover().await }).catch_unwind();
    match timeout(DISCOVERY_TIME_MAX, asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(DiscoveryError::new("the discovery panicked")),
        Err(_) => Err(DiscoveryError::new(format!("no answer within {DISCOVERY_TIME_MAX:?}"))),
    }
}
