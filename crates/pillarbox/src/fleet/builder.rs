//! Tells a fleet where its stores are, and how much of everything they share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::inbox::InboxOptions;
use pillarbox_core::store::StoreOptions;
use pillarbox_core::{Discovery, Invalid, Problem, RoutingKey, Selection, StoreId, WithInbox};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::member::{InboxHandle, Member, OutboxHandle};
use super::refresh::Refresher;
use super::{Fleet, Inner, Shared};
use crate::builder::{OneStore, RuntimeBuilder};
use crate::config::{INTERVAL_MAX, WORKERS_MAX, count_within, time_within};
use crate::connect::Store;
use crate::crew::{self, Crew};
use crate::inbox::Inbox;
use crate::outbox::Outbox;
use crate::renewer::Renewer;
use crate::runtime::{StartError, lasting};
use crate::turns::Turns;

/// A [`RuntimeBuilder`] for a [fleet](Fleet): handlers and settings are said once, for all stores.
///
/// Settings of queues and claims are those of each store; `worker_count` is that of the whole fleet. Polls back off to
/// `idle_interval` while a store has nothing, at once if it had nothing from the start; leases that ran out are looked for
/// every minute unless set, and done messages every five.
pub type FleetBuilder = RuntimeBuilder<ManyStores>;

/// What a fleet runs on.
pub struct ManyStores {
    pub(super) discovery: Option<Arc<dyn Discovery>>,
    given: BTreeMap<RoutingKey, (Option<OutboxHandle>, Option<InboxHandle>)>,
    problems: Vec<Problem>,
    selection: Selection,
    connections_max: usize,
    call_time_max: Duration,
    pub(super) settings: Settings,
}

/// How discovered stores are opened and let go.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) served: Served,
    pub(super) store_options: StoreOptions,
    pub(super) inbox_options: InboxOptions,
    pub(super) refresh_interval: Duration,
    pub(super) drain_grace: Duration,
    pub(super) opens_max: usize,
}

/// Which messages of discovered stores are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Served {
    /// Those of their outboxes.
    #[default]
    Outboxes,
    /// Those of their inboxes, which are opened, and deployed as the options say.
    Inboxes,
    /// All.
    Both,
}

impl Served {
    pub(super) fn has_outboxes(self) -> bool {
        self != Self::Inboxes
    }

    pub(super) fn has_inboxes(self) -> bool {
        self != Self::Outboxes
    }
}

impl ManyStores {
    pub(super) fn builder() -> FleetBuilder {
        let settings = Settings {
            served: Served::default(),
            store_options: StoreOptions::default(),
            inbox_options: InboxOptions::default(),
            refresh_interval: Duration::from_secs(300),
            drain_grace: Duration::from_secs(30),
            opens_max: 16,
        };
        let mut builder = RuntimeBuilder::on_target(Self {
            discovery: None,
            given: BTreeMap::new(),
            problems: Vec::new(),
            selection: Selection::default(),
            connections_max: 16,
            call_time_max: Duration::from_secs(10),
            settings,
        });
        let config = &mut builder.config;
        config.reap_interval = Duration::from_secs(60);
        config.purge_interval = Duration::from_secs(300);
        config.outage_max = Duration::from_secs(5);
        config.backs_off = true;
        config.listens = false;
        builder
    }

    fn give(&mut self, key: Result<RoutingKey, Invalid>, outbox: Option<OutboxHandle>, inbox: Option<InboxHandle>) {
        let key = match key {
            Ok(key) => key,
            Err(invalid) => return self.problems.extend_from_slice(invalid.problems()),
        };
        let given = self.given.entry(key.clone()).or_default();
        if (outbox.is_some() && given.0.is_some()) || (inbox.is_some() && given.1.is_some()) {
            self.problems.push(Problem::malformed("routing_key", format!("`{key}` was given twice")));
            return;
        }
        given.0 = given.0.take().or(outbox);
        given.1 = given.1.take().or(inbox);
    }

    fn check(&self) -> Result<(), Invalid> {
        let mut problems = self.problems.clone();
        let second = Duration::from_secs(1);
        count_within("connections_max", self.connections_max, 1, WORKERS_MAX, &mut problems);
        time_within("call_time_max", self.call_time_max, second, INTERVAL_MAX, &mut problems);
        time_within("refresh_interval", self.settings.refresh_interval, second, INTERVAL_MAX, &mut problems);
        Invalid::unless_empty(problems)
    }
}

/// The stores of a fleet, and what they share.
impl FleetBuilder {
    /// Serves the stores that a discovery finds, and asks it again every [`refresh_interval`](Self::refresh_interval).
    ///
    /// Each is named after its key in logs and metrics. While the discovery fails, those that are known are kept.
    pub fn discover(mut self, discovery: impl Discovery) -> Self {
        self.on.discovery = Some(Arc::new(discovery));
        self
    }

    /// Serves the messages of this outbox under a key, whatever a discovery says.
    pub fn store<S: Store>(mut self, key: impl TryInto<RoutingKey, Error = Invalid>, outbox: &Outbox<S>) -> Self {
        self.on.give(key.try_into(), Some(OutboxHandle::of(outbox)), None);
        self
    }

    /// Serves the messages of this inbox under a key, perhaps that of its outbox, whatever a discovery says.
    pub fn inbox<S: WithInbox>(mut self, key: impl TryInto<RoutingKey, Error = Invalid>, inbox: &Inbox<S>) -> Self {
        self.on.give(key.try_into(), None, Some(InboxHandle::of(inbox)));
        self
    }

    /// Which messages of discovered stores are handled; those of their outboxes unless set.
    pub fn serve(mut self, served: Served) -> Self {
        self.on.settings.served = served;
        self
    }

    /// How stores take turns when more of them wait than may be asked at one time; round-robin unless set.
    pub fn selection(mut self, selection: Selection) -> Self {
        self.on.selection = selection;
        self.config.drains = selection == Selection::DrainFirst;
        self
    }

    /// Calls to all stores together at one time, and connections of all discovered stores together, idle ones among them; 16
    /// unless set. Where a store needs one more, one that was not used for longest is closed, so with more busy stores than
    /// connections most calls connect anew. Connections of a store that the program gave are the program's to limit.
    ///
    /// A call that gets no answer for a second lends its place to others, so that a database that is away does not stop them;
    /// there are never more than as many of these again. A store that is known to be away is tried outside of the budget, one
    /// call at a time; so are renewals of leases, which cannot wait (four connections, closed when they are through), and what
    /// handlers and other tasks ask of a store, whose connections are closed at the next turn of any store; and on MySQL the lock
    /// under which a store deploys its tables while it is opened.
    pub fn connections_max(mut self, connections_max: usize) -> Self {
        self.on.connections_max = connections_max;
        self
    }

    /// How long a call to a store may take before the store counts as away; 10 s unless set.
    pub fn call_time_max(mut self, call_time_max: Duration) -> Self {
        self.on.call_time_max = call_time_max;
        self
    }

    /// How often the discovery is asked; every 5 minutes unless set, and twice a minute while a store cannot be opened.
    pub fn refresh_interval(mut self, refresh_interval: Duration) -> Self {
        self.on.settings.refresh_interval = refresh_interval;
        self
    }

    /// How long handlers of a store that was removed may go on; 30 s unless set.
    pub fn drain_grace(mut self, drain_grace: Duration) -> Self {
        self.on.settings.drain_grace = drain_grace;
        self
    }

    /// How discovered stores are opened: limits, retention, and whether their tables are deployed. Each gets a name of its own.
    pub fn store_options(mut self, store_options: StoreOptions) -> Self {
        self.on.settings.store_options = store_options;
        self
    }

    /// How the inboxes of discovered stores are opened.
    pub fn inbox_options(mut self, inbox_options: InboxOptions) -> Self {
        self.on.settings.inbox_options = inbox_options;
        self
    }

    /// Subscribes to the wake-ups of other processes, where a store has them: one more connection for each store. Without,
    /// what other processes write is found by the next poll.
    pub fn wakeups(mut self) -> Self {
        self.config.listens = true;
        self
    }

    /// Names everything that would keep it from starting, as far as that can be told without any I/O.
    pub fn check(&self) -> Result<(), Invalid> {
        self.on.check()?;
        let nowhere = StoreId::new("fleet")?;
        self.again_on(OneStore::default()).into_plan(nowhere, None)?;
        Ok(())
    }

    /// Checks everything, opens what a first discovery finds, and starts. Messages are handled from now on.
    ///
    /// Stores that cannot be opened, and a discovery that fails, keep nothing from starting: both are tried again.
    pub async fn start(self) -> Result<Fleet, StartError> {
        self.check()?;
        let handle = Handle::try_current().map_err(|_| StartError::NoTokio)?;
        let stop = CancellationToken::new();
        let renewer = Renewer::start(stop.clone()).map_err(StartError::Thread)?;
        let handlers = self.again_on(());
        let ManyStores { discovery, given, selection, connections_max, call_time_max, mut settings, .. } = self.on;
        settings.opens_max = connections_max.div_ceil(2);
        let (asks, asked) = mpsc::channel(1);
        let crew = Arc::new(Crew::new(handlers.config.worker_count));
        let fleet = Fleet {
            inner: Arc::new(Inner {
                shared: Arc::new(Shared {
                    handlers,
                    turns: Turns::new(selection, connections_max, call_time_max),
                    crew,
                    renewer,
                    handle: handle.clone(),
                    members: Default::default(),
                    leaving: Default::default(),
                }),
                asks,
                workers: TaskTracker::new(),
                stop_refresh: CancellationToken::new(),
                stop,
                report: OnceCell::new(),
            }),
        };
        // From here on a failure drops the fleet, which lets go of everything.
        fleet.inner.spawn_workers(&handle);
        for (key, (outbox, inbox)) in given {
            fleet.inner.shared.join(&key, Member::given(outbox, inbox), Served::Both)?;
        }
        let refresher = Refresher::new(Arc::clone(&fleet.inner.shared), discovery, settings);
        handle.spawn(refresher.run(asked, fleet.inner.stop_refresh.clone()));
        // What went wrong has been logged.
        let _ = fleet.refresh().await;
        Ok(fleet)
    }
}

impl Inner {
    fn spawn_workers(&self, handle: &Handle) {
        for number in 0..self.shared.handlers.config.worker_count {
            let crew = Arc::clone(&self.shared.crew);
            self.workers.spawn_on(lasting(None, move || crew::run(Arc::clone(&crew), number)), handle);
        }
    }
}

impl fmt::Debug for ManyStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManyStores")
            .field("given", &self.given.keys().collect::<Vec<_>>())
            .field("selection", &self.selection)
            .field("connections_max", &self.connections_max)
            .finish_non_exhaustive()
    }
}
