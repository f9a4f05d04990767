//! Many stores, one runtime: outboxes and inboxes alike, found by keys, discovered while it runs.

mod builder;
mod files;
pub(crate) mod member;
mod refresh;
mod tenants;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::join_all;
use pillarbox_core::{Assignment, Invalid, RoutingKey, StoreError, StoreId};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::builder::{OneStore, RuntimeBuilder};
use crate::crew::Crew;
use crate::hot_path::Hub;
use crate::renewer::Renewer;
use crate::router::{RouteError, Router};
use crate::runtime::{Inner as RuntimeInner, Runtime, StartError};
use crate::shutdown::ShutdownReport;
use crate::turns::Turns;

pub use builder::{FleetBuilder, ManyStores, Served};
pub use files::SqliteFiles;
pub use member::FleetStats;
use member::{Member, Running};
pub use refresh::{RefreshError, Refreshed};
pub use tenants::Tenants;

/// Time for workers to end once every store is shut down.
const STOP_TIME: Duration = Duration::from_millis(400);

/// Handles the messages of many stores in this process, with one set of handlers. Cheap to clone; when the last handle is
/// dropped it stops.
///
/// All stores share the workers, the budget of calls and one thread that renews leases; each has its own leases, its own pace
/// while it is idle and its own breaker: a database that is away does not slow the others. Where many stores have messages they
/// take turns.
///
/// ```
/// use std::time::Duration;
/// use pillarbox::prelude::*;
/// use pillarbox::{Fleet, Selection, SqliteFiles};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # std::fs::write(folder.path().join("tenant-7.db"), "")?;
/// let fleet = Fleet::builder()
///     .discover(SqliteFiles::in_folder(folder.path()))
///     .selection(Selection::RoundRobin)
///     .on_topic("greeting", async |message: Raw, cx: Context| {
///         println!("{:?}: {}", cx.routing_key(), String::from_utf8_lossy(message.payload()));
///         Ok(())
///     })
///     .start()
///     .await?;
/// fleet.router().outbox("tenant-7")?.enqueue_now(Message::new("greeting", "hello")).await?;
/// # fleet.idle().await;
/// # assert_eq!(fleet.stats("tenant-7")?.outbox.unwrap().done_count, 1);
/// fleet.shutdown(Duration::from_secs(5)).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Fleet {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// Where the task that refreshes is asked.
    asks: mpsc::Sender<Ask>,
    workers: TaskTracker,
    /// Ends the task that refreshes.
    stop_refresh: CancellationToken,
    /// Ends the thread that renews.
    stop: CancellationToken,
    report: OnceCell<ShutdownReport>,
}

type Ask = oneshot::Sender<Result<Refreshed, RefreshError>>;

/// What all stores of a fleet share, and the stores.
pub(crate) struct Shared {
    handlers: RuntimeBuilder<()>,
    turns: Arc<Turns>,
    crew: Arc<Crew>,
    renewer: Renewer,
    handle: Handle,
    members: RwLock<BTreeMap<RoutingKey, Arc<Member>>>,
    /// Those that were removed and are not through yet.
    leaving: Mutex<Vec<Arc<Member>>>,
}

impl Fleet {
    /// Begins to describe a fleet.
    pub fn builder() -> FleetBuilder {
        ManyStores::builder()
    }

    /// Finds outboxes and inboxes by their keys.
    pub fn router(&self) -> Router {
        Router { shared: Arc::clone(&self.inner.shared) }
    }

    /// Asks the discovery now, and waits until new stores are served and those that are no more are drained.
    ///
    /// Runs to its end, also when the future is dropped. Without a discovery nothing changes.
    pub async fn refresh(&self) -> Result<Refreshed, RefreshError> {
        let (sender, answer) = oneshot::channel();
        self.inner.asks.send(sender).await.map_err(|_| RefreshError::Closed)?;
        answer.await.map_err(|_| RefreshError::Closed)?
    }

    /// The keys of all stores that are served, sorted.
    pub fn stores(&self) -> Vec<RoutingKey> {
        self.inner.shared.keys()
    }

    /// What was done and is being done with one store.
    pub fn stats(&self, key: impl TryInto<RoutingKey, Error = Invalid>) -> Result<FleetStats, RouteError> {
        let key = key.try_into()?;
        let member = self.inner.shared.member(&key);
        Ok(member.ok_or(RouteError::Unknown(key))?.stats())
    }

    /// Which partitions of one store belong to which instance, as [`Runtime::assignment`] tells of one. Of its outbox, or of its
    /// inbox where only that is served.
    pub fn assignment(
        &self,
        key: impl TryInto<RoutingKey, Error = Invalid>,
    ) -> Result<watch::Receiver<Assignment>, RouteError> {
        let key = key.try_into()?;
        let running = self.inner.shared.member(&key).map(|member| member.running());
        let runtime = running.and_then(|running| running.outbox.or(running.inbox));
        Ok(runtime.ok_or(RouteError::Unknown(key))?.assignment())
    }

    /// Waits until no store has anything to do, as [`Runtime::idle`] does for one. For tests, instead of sleeping.
    pub async fn idle(&self) {
        let started = |members: &[Arc<Member>]| members.iter().map(|member| member.started_count()).sum::<u64>();
        loop {
            let members = self.inner.shared.all();
            let before = started(&members);
            for member in &members {
                member.idle().await;
            }
            // A handler of one store may have written to another that was idle before.
            if started(&members) == before {
                return;
            }
        }
    }

    /// Shuts every store down at the same time, as [`Runtime::shutdown`] does for one; the sum of their reports.
    ///
    /// A second call waits for the first one, and answers the same.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        *self.inner.report.get_or_init(|| self.inner.shut_down(grace)).await
    }
}

impl Inner {
    /// Ends everything. May be dropped and begun again.
    async fn shut_down(&self, grace: Duration) -> ShutdownReport {
        self.stop_refresh.cancel();
        self.asks.closed().await;
        let members = self.shared.all();
        let ended = join_all(members.iter().map(|member| member.shut_down(grace))).await;
        self.shared.crew.close();
        self.workers.close();
        // A handler that blocks its thread keeps its worker; nobody waits for it.
        let _ = timeout(STOP_TIME, self.workers.wait()).await;
        self.stop.cancel();
        ended.into_iter().fold(ShutdownReport::default(), ShutdownReport::plus)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop_refresh.cancel();
        for member in self.shared.all() {
            member.runs(Running::default());
        }
        self.shared.crew.close();
        self.stop.cancel();
    }
}

impl Shared {
    pub(crate) fn keys(&self) -> Vec<RoutingKey> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    pub(crate) fn member(&self, key: &RoutingKey) -> Option<Arc<Member>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Everybody, those that are leaving included.
    fn all(&self) -> Vec<Arc<Member>> {
        let mut all: Vec<_> = self.leaving.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.extend(self.members.read().unwrap_or_else(PoisonError::into_inner).values().cloned());
        all
    }

    /// Serves a store from now on. What was there under its key is answered: it must be let go.
    fn join(&self, key: &RoutingKey, member: Member, served: Served) -> Result<Option<Arc<Member>>, StartError> {
        self.check_names(key, &member)?;
        let [outbox, inbox] = member.hubs();
        let start = |hub: Option<&Arc<Hub>>, is_served: bool| {
            hub.filter(|_| is_served).map(|hub| self.start(key, hub)).transpose()
        };
        let outbox = start(outbox, served.has_outboxes())?;
        let inbox = start(inbox, served.has_inboxes())?;
        member.runs(Running { outbox, inbox });
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        Ok(members.insert(key.clone(), Arc::new(member)))
    }

    /// Takes a store out of the router's sight; it is drained by whoever asked.
    fn remove(&self, key: &RoutingKey) -> Option<Arc<Member>> {
        self.members.write().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    /// Drains a store and stops its runtimes. Its messages stay where they are.
    async fn let_go(&self, member: Arc<Member>, grace: Duration) {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&member));
        member.shut_down(grace).await;
        if let Some(pooled) = &member.pooled {
            pooled.close_idle().await;
        }
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| !Arc::ptr_eq(one, &member));
    }

    fn start(&self, key: &RoutingKey, hub: &Arc<Hub>) -> Result<Runtime, StartError> {
        let on = OneStore { hub: None, key: Some(key.clone()), turns: Some(Arc::clone(&self.turns)) };
        let plan = self.handlers.again_on(on).plan_on(hub)?;
        let inner = RuntimeInner::attached(Arc::clone(hub), plan)?;
        inner.spawn_loops(&self.handle, &self.renewer);
        self.crew.serve(Arc::clone(&inner.engine), inner.workers.clone());
        Ok(Runtime { inner: Arc::new(inner) })
    }

    /// Names stand in logs and metrics, and decide whose turn it is: two stores of one name could not be told apart.
    fn check_names(&self, key: &RoutingKey, member: &Member) -> Result<(), StartError> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let others = || members.iter().filter(|(other, _)| *other != key).flat_map(|(_, other)| other.store_ids());
        match member.store_ids().find(|id| others().any(|other| other == *id)) {
            Some(id) => Err(StartError::SameStoreId(StoreId::clone(id))),
            None => Ok(()),
        }
    }
}

impl From<StartError> for StoreError {
    fn from(error: StartError) -> Self {
        Self::rejected(error.to_string())
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("stores", &self.stores()).finish_non_exhaustive()
    }
}
