//! A running runtime: its tasks, and the handle on them.

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use pillarbox_core::{Invalid, StoreError, StoreId};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::builder::RuntimeBuilder;
use crate::dispatcher::Engine;
use crate::hot_path::Hub;
use crate::membership::attendance;
use crate::outbox::Outbox;
use crate::plan::Plan;
use crate::renewer::Renewer;
use crate::shutdown::ShutdownReport;
use crate::stats::Stats;
use crate::telemetry::TARGET;
use crate::{housekeeping, listener, obedience, poller, worker};

/// Handles the messages of one outbox in this process. Cheap to clone; when the last handle is dropped it stops.
///
/// ```
/// use std::time::Duration;
/// use pillarbox::prelude::*;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = Outbox::connect("sqlite::memory:").await?;
/// let runtime = Runtime::builder(&outbox)
///     .on_topic("greeting", async |message: Raw| {
///         println!("{}", String::from_utf8_lossy(message.payload()));
///         Ok(())
///     })
///     .start()
///     .await?;
/// outbox.enqueue_now(Message::new("greeting", "hello")).await?;
/// # runtime.idle().await;
/// let report = runtime.shutdown(Duration::from_secs(5)).await;
/// assert_eq!(report.unsettled, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Runtime {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) workers: TaskTracker,
    pub(crate) others: TaskTracker,
    /// Ends every task but the workers, and the renewer's thread.
    pub(crate) stop: CancellationToken,
    pub(crate) renewer_ended: CancellationToken,
    pub(crate) report: OnceCell<ShutdownReport>,
}

/// Why a runtime did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Something that the builder was told is wrong; everything is named.
    #[error("the runtime cannot start: {0}")]
    Invalid(#[from] Invalid),
    /// Another runtime runs on this outbox: one process needs one per outbox.
    #[error("another runtime is attached to this outbox: shut it down first, or open the store a second time")]
    AlreadyAttached,
    /// The builder belongs to no outbox.
    #[error("the builder belongs to no outbox: begin with `Runtime::builder(&outbox)`")]
    NoOutbox,
    /// Two stores of a fleet have the same name.
    #[error("two stores of the fleet are called `{0}`: give each a name of its own with `StoreOptions::store_id`")]
    SameStoreId(StoreId),
    /// There is no tokio runtime to run in.
    #[error("a runtime starts inside of a tokio runtime, and there is none")]
    NoTokio,
    /// The thread that renews leases could not be started.
    #[error("the thread that renews leases could not be started: {0}")]
    Thread(#[source] io::Error),
}

impl Runtime {
    /// Begins to describe a runtime for this outbox.
    pub fn builder<S: ?Sized>(outbox: &Outbox<S>) -> RuntimeBuilder {
        Self::builder_of(outbox.hub())
    }

    pub(crate) fn builder_of(hub: &Arc<Hub>) -> RuntimeBuilder {
        let mut builder = RuntimeBuilder::new();
        builder.on.hub = Some(Arc::clone(hub));
        builder
    }

    /// Accepts nothing new, gives back at once what has not begun, waits up to `grace` for handlers that run, then stops
    /// them. Nothing is lost: what is not settled is taken over by others when its lease has run out.
    ///
    /// A second call waits for the first one, and answers the same.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        *self.inner.report.get_or_init(|| self.inner.shut_down(grace)).await
    }

    /// Claims now, beside the poller; how many messages came. None when there is no room for them in memory.
    pub async fn poll_once(&self) -> Result<usize, StoreError> {
        self.inner.engine.poll_once().await
    }

    /// What the runtime has done and is doing.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.inner.engine)
    }

    /// Waits until nothing waits in memory, runs or is unsettled, and a claim that began after this call found nothing.
    ///
    /// Messages that are due later do not count. For tests, instead of sleeping.
    pub async fn idle(&self) {
        self.inner.engine.idle().await;
    }
}

impl RuntimeBuilder {
    /// Checks everything, and starts. Messages are handled from now on.
    pub async fn start(mut self) -> Result<Runtime, StartError> {
        let hub = self.on.hub.take().ok_or(StartError::NoOutbox)?;
        let plan = self.plan_on(&hub)?;
        let handle = Handle::try_current().map_err(|_| StartError::NoTokio)?;
        let inner = Inner::attached(hub, plan)?;
        // From here on a failure drops `inner`, which detaches it.
        let renewer = Renewer::start(inner.stop.clone()).map_err(StartError::Thread)?;
        inner.spawn_workers(&handle);
        inner.spawn_loops(&handle, &renewer);
        Ok(Runtime { inner: Arc::new(inner) })
    }
}

impl Inner {
    /// A runtime that does nothing yet: messages of its hub go to it.
    pub(crate) fn attached(hub: Arc<Hub>, plan: Plan) -> Result<Self, StartError> {
        let engine = Arc::new(Engine::new(&hub, plan));
        hub.attach(&engine)?;
        Ok(Self {
            engine,
            hub,
            workers: TaskTracker::new(),
            others: TaskTracker::new(),
            stop: CancellationToken::new(),
            renewer_ended: CancellationToken::new(),
            report: OnceCell::new(),
        })
    }

    fn spawn_workers(&self, handle: &Handle) {
        for number in 0..self.engine.plan.config.worker_count {
            let (engine, store) = (Arc::clone(&self.engine), Some(self.engine.store.id().clone()));
            self.workers.spawn_on(lasting(store, move || worker::run(Arc::clone(&engine), number)), handle);
        }
    }

    /// Everything but the workers.
    pub(crate) fn spawn_loops(&self, handle: &Handle, renewer: &Renewer) {
        renewer.serve(Arc::clone(&self.engine), self.stop.clone(), self.renewer_ended.clone());
        let config = &self.engine.plan.config;
        for _ in 0..config.store_call_count {
            self.spawn(poller::run, handle);
        }
        self.spawn(housekeeping::run, handle);
        if config.listens {
            self.spawn(listener::run, handle);
        }
        if config.obey_within.is_some() {
            self.spawn(obedience::run, handle);
        }
        if self.engine.plan.member.settings.is_some() {
            self.spawn(attendance::run, handle);
        }
    }

    fn spawn<F>(&self, task: impl Fn(Arc<Engine>) -> F + Send + 'static, handle: &Handle)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (engine, stop) = (Arc::clone(&self.engine), self.stop.clone());
        let store = Some(engine.store.id().clone());
        let task = async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = lasting(store, move || task(Arc::clone(&engine))) => {}
            }
        };
        self.others.spawn_on(task, handle);
    }
}

/// Begins a task again that panicked. No code of ours should; subscribers, recorders and stores of others may. The workers of
/// a fleet belong to no store.
pub(crate) async fn lasting<F: Future<Output = ()>>(store: Option<StoreId>, task: impl Fn() -> F) {
    while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
        let store = store.as_ref().map(StoreId::as_str);
        tracing::error!(target: TARGET, store, "a task of the runtime panicked and begins again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.hub.detach(&self.engine);
        self.engine.close();
        self.engine.abort.cancel();
        self.engine.plan.scope.token.cancel();
        drop(self.engine.queue.close());
        self.stop.cancel();
    }
}

impl Engine {
    /// Waits until nothing is under way, and a claim that began after this call found nothing.
    pub(crate) async fn idle(&self) {
        let mut mark = self.schedule().began_count();
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            let is_quiet = self.is_quiet();
            let found_nothing = self.schedule().is_empty_since(mark);
            if is_quiet && (found_nothing || self.never_claims()) {
                return;
            }
            if !is_quiet {
                // What is under way may enqueue more: only a later claim counts.
                mark = self.schedule().began_count();
            } else if !self.schedule().is_wanted() {
                self.nudge();
            }
            changed.await;
        }
    }

    /// Whether no claim will begin by itself: on the way out, without routes, or while an operator pauses all of them.
    fn never_claims(&self) -> bool {
        self.is_closing() || (0..self.plan.routes.len()).all(|route| self.pauses.is_told(route))
    }

    /// Whether nothing waits in memory, runs, or is on its way to the store.
    pub(crate) fn is_quiet(&self) -> bool {
        self.flights.len() == 0 && self.verdicts.unwritten() == 0 && self.calls.count() == 0
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("engine", &self.inner.engine).finish_non_exhaustive()
    }
}
