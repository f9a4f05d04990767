//! One store of a fleet: its handles, and the runtimes on it.

use std::any::{Any, type_name};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use pillarbox_core::inbox::InboxOptions;
use pillarbox_core::store::BoxFuture;
use pillarbox_core::{StoreError, StoreId, StorePlace, WithInbox};

use crate::connect::{Opened, Store};
use crate::connections::Pooled;
use crate::hot_path::Hub;
use crate::inbox::{Inbox, RoutedInbox};
use crate::outbox::Outbox;
use crate::runtime::Runtime;
use crate::shutdown::ShutdownReport;
use crate::stats::Stats;

/// A store of a fleet.
pub(crate) struct Member {
    /// Where discovery found it; none for one that the program gave.
    pub(crate) place: Option<StorePlace>,
    pub(crate) outbox: Option<OutboxHandle>,
    pub(crate) inbox: Option<InboxHandle>,
    /// Its part in the budget of connections; none for a store that the program gave, whose connections are the program's.
    pub(crate) pooled: Option<Pooled>,
    running: Mutex<Running>,
}

/// The runtimes of a member, by side.
#[derive(Clone, Default)]
pub(crate) struct Running {
    pub(crate) outbox: Option<Runtime>,
    pub(crate) inbox: Option<Runtime>,
}

/// An outbox, with and without its type.
#[derive(Clone)]
pub(crate) struct OutboxHandle {
    pub(crate) any: Outbox<dyn Store>,
    pub(crate) typed: Arc<dyn Any + Send + Sync>,
    pub(crate) store_type: &'static str,
}

/// An inbox, with and without its type.
#[derive(Clone)]
pub(crate) struct InboxHandle {
    pub(crate) any: RoutedInbox,
    pub(crate) typed: Arc<dyn Any + Send + Sync>,
    pub(crate) store_type: &'static str,
}

impl OutboxHandle {
    pub(crate) fn of<S: Store>(outbox: &Outbox<S>) -> Self {
        Self { any: outbox.erased(), typed: Arc::new(outbox.clone()), store_type: type_name::<S>() }
    }
}

impl InboxHandle {
    pub(crate) fn of<S: WithInbox>(inbox: &Inbox<S>) -> Self {
        Self { any: inbox.erased(), typed: Arc::new(inbox.clone()), store_type: type_name::<S>() }
    }
}

/// A store that was opened while its type was known, and the way to its inbox.
pub(crate) struct OpenedStore {
    pub(crate) outbox: OutboxHandle,
    pub(crate) open_inbox: OpenInbox,
}

type OpenInbox = Box<dyn FnOnce(InboxOptions) -> BoxFuture<'static, Result<InboxHandle, StoreError>> + Send>;

/// Takes a store for a fleet.
pub(crate) struct IntoFleet;

impl Opened for IntoFleet {
    type Open = OpenedStore;

    fn take<S: Store + WithInbox>(self, store: S) -> OpenedStore {
        let outbox = Outbox::new(store);
        let handle = OutboxHandle::of(&outbox);
        let open_inbox: OpenInbox =
            Box::new(move |options| Box::pin(async move { Ok(InboxHandle::of(&outbox.inbox_with(options).await?)) }));
        OpenedStore { outbox: handle, open_inbox }
    }
}

impl Member {
    /// One that the program gave.
    pub(crate) fn given(outbox: Option<OutboxHandle>, inbox: Option<InboxHandle>) -> Self {
        Self { place: None, outbox, inbox, pooled: None, running: Mutex::default() }
    }

    /// One that was discovered and opened.
    pub(crate) fn opened(place: StorePlace, outbox: OutboxHandle, inbox: Option<InboxHandle>, pooled: Pooled) -> Self {
        Self { place: Some(place), outbox: Some(outbox), inbox, pooled: Some(pooled), running: Mutex::default() }
    }

    /// The hubs of both sides.
    pub(crate) fn hubs(&self) -> [Option<&Arc<Hub>>; 2] {
        [self.outbox.as_ref().map(|outbox| outbox.any.hub()), self.inbox.as_ref().map(|inbox| inbox.any.hub())]
    }

    /// The names of its stores in logs and metrics.
    pub(crate) fn store_ids(&self) -> impl Iterator<Item = &StoreId> {
        self.hubs().into_iter().flatten().map(|hub| hub.store.id())
    }

    pub(crate) fn runs(&self, running: Running) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = running;
    }

    pub(crate) fn running(&self) -> Running {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shuts both sides down at the same time.
    pub(crate) async fn shut_down(&self, grace: Duration) -> ShutdownReport {
        let running = self.running();
        let both = [running.outbox, running.inbox].into_iter().flatten();
        let ended = join_all(both.map(|runtime| async move { runtime.shutdown(grace).await })).await;
        ended.into_iter().fold(ShutdownReport::default(), ShutdownReport::plus)
    }

    /// Waits until both sides have nothing to do.
    pub(crate) async fn idle(&self) {
        let running = self.running();
        for runtime in [running.outbox, running.inbox].into_iter().flatten() {
            runtime.idle().await;
        }
    }

    /// Attempts that were begun, on both sides.
    pub(crate) fn started_count(&self) -> u64 {
        let FleetStats { outbox, inbox } = self.stats();
        [outbox, inbox].into_iter().flatten().map(|stats| stats.started_count).sum()
    }

    pub(crate) fn stats(&self) -> FleetStats {
        let running = self.running();
        let stats = |runtime: Option<Runtime>| runtime.map(|runtime| runtime.stats());
        FleetStats { outbox: stats(running.outbox), inbox: stats(running.inbox) }
    }
}

/// What a fleet has done and is doing with the store of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetStats {
    /// With its outbox, if that is served.
    pub outbox: Option<Stats>,
    /// With its inbox, if that is served.
    pub inbox: Option<Stats>,
}
