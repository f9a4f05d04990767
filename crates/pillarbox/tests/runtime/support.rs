//! A store that counts, fails and holds back calls; and short words for what every test does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use pillarbox::instance::InstanceRecord;
use pillarbox::lease::{Claim, Held};
use pillarbox::prelude::*;
use pillarbox::retention::PurgeLimit;
use pillarbox::schema::SchemaStatus;
use pillarbox::store::{BoxFuture, Claimed, Enqueued, Exchanged, GuardPlan, Reap, Reaped};
use pillarbox::{CommitError, Instance, InstanceId, InstanceStore, PauseStore, StoreId, Transactional};
use pillarbox_core::admin::MessageName;
use pillarbox_core::{Savepoint, StoreTransaction, Wakeups};
use pillarbox_testing::{MemoryDatabase, MemoryStore, MemoryTransaction};
use tokio::sync::{Notify, Semaphore, broadcast, mpsc};

/// An interval that no test lives to see.
pub(crate) const NEVER: Duration = Duration::from_secs(24 * 3600);

/// A memory store whose calls are counted, and can fail or wait.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) memory: MemoryStore,
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) is_down: AtomicBool,
    pub(crate) cannot_renew: AtomicBool,
    /// Whether its clock can be read.
    pub(crate) tells_time: AtomicBool,
    pub(crate) cannot_tell: AtomicBool,
    pub(crate) counts: Mutex<Counts>,
    changed: Notify,
    changed_for_threads: Condvar,
    /// Claims wait for one of these.
    pub(crate) claims: Semaphore,
    pub(crate) wakeups: WakeupMode,
    bell: broadcast::Sender<()>,
    pace: Arc<Pace>,
}

/// The calls of one store, or of many together.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// How often a call lets other tasks run before it does anything.
    pub(crate) yields: AtomicUsize,
    now: AtomicUsize,
    pub(crate) most_at_once: AtomicUsize,
    pub(crate) total: AtomicUsize,
    /// The stores that were claimed from, in their order.
    pub(crate) claims: Mutex<Vec<String>>,
}

impl Pace {
    async fn enter(&self) -> Entered<'_> {
        self.total.fetch_add(1, Ordering::SeqCst);
        self.most_at_once.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let entered = Entered(self);
        for _ in 0..self.yields.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        entered
    }
}

struct Entered<'a>(&'a Pace);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) claims: usize,
    pub(crate) settles: usize,
    /// Exchanges that settled something.
    pub(crate) exchanges: usize,
    pub(crate) verdicts: usize,
    pub(crate) failures: usize,
    pub(crate) renewals: usize,
    pub(crate) refused_renewals: usize,
    pub(crate) wakes: usize,
    pub(crate) heartbeats: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeupMode {
    None,
    Works,
    Deaf,
}

impl Watched {
    pub(crate) fn new() -> Self {
        Self::with(WakeupMode::None)
    }

    pub(crate) fn with(wakeups: WakeupMode) -> Self {
        Self::on(&MemoryDatabase::new(), wakeups, broadcast::Sender::new(16), StoreOptions::default(), Arc::default())
    }

    /// One of many, whose calls are counted together.
    pub(crate) fn named(name: &str, pace: &Arc<Pace>) -> Self {
        let options = StoreOptions { store_id: Some(StoreId::new(name).unwrap()), ..StoreOptions::default() };
        let (database, bell) = (MemoryDatabase::new(), broadcast::Sender::new(16));
        Self::on(&database, WakeupMode::None, bell, options, Arc::clone(pace))
    }

    /// Another process on the same database.
    pub(crate) fn another(&self) -> Self {
        let (options, bell) = (self.memory.options().clone(), self.shared.bell.clone());
        Self::on(self.memory.database(), self.shared.wakeups, bell, options, Arc::default())
    }

    fn on(
        database: &MemoryDatabase,
        wakeups: WakeupMode,
        bell: broadcast::Sender<()>,
        options: StoreOptions,
        pace: Arc<Pace>,
    ) -> Self {
        let shared = Shared {
            is_down: AtomicBool::new(false),
            cannot_renew: AtomicBool::new(false),
            tells_time: AtomicBool::new(false),
            cannot_tell: AtomicBool::new(false),
            counts: Mutex::default(),
            changed: Notify::new(),
            changed_for_threads: Condvar::new(),
            claims: Semaphore::new(Semaphore::MAX_PERMITS),
            wakeups,
            bell,
            pace,
        };
        Self { memory: database.connect(options).unwrap(), shared: Arc::new(shared) }
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.shared.counts.lock().unwrap()
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.shared.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Lets no claim through any more.
    pub(crate) fn hold_claims(&self) {
        self.shared.claims.forget_permits(usize::MAX);
    }

    /// Waits until the calls so far are as the test wants them.
    pub(crate) async fn wait_for(&self, is_met: impl Fn(Counts) -> bool) {
        loop {
            let changed = self.shared.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if is_met(self.counts()) {
                return;
            }
            changed.await;
        }
    }

    /// The same for a thread that must not run a task.
    pub(crate) fn block_until(&self, is_met: impl Fn(Counts) -> bool) {
        let counts = self.shared.counts.lock().unwrap();
        drop(self.shared.changed_for_threads.wait_while(counts, |counts| !is_met(*counts)).unwrap());
    }

    /// The only message, wherever it stands.
    pub(crate) async fn state_of(&self, id: MessageId) -> (pillarbox::outbox::State, u32) {
        let stored = self.memory.get(MessageName::Message(id)).await.unwrap().unwrap();
        (stored.state, stored.attempts)
    }

    fn count(&self, act: impl FnOnce(&mut Counts)) {
        act(&mut self.shared.counts.lock().unwrap());
        self.shared.changed.notify_waiters();
        self.shared.changed_for_threads.notify_all();
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.shared.is_down.load(Ordering::SeqCst) {
            self.count(|counts| counts.failures += 1);
            return Err(StoreError::unavailable("the test says so"));
        }
        Ok(())
    }

    fn exchanged(&self, settlements: &[Settlement]) {
        self.count(|counts| {
            counts.exchanges += usize::from(!settlements.is_empty());
            counts.verdicts += settlements.len();
        });
    }

    async fn pass_claim(&self) -> Result<(), StoreError> {
        self.shared.claims.acquire().await.unwrap().forget();
        self.count(|counts| counts.claims += 1);
        self.shared.pace.claims.lock().unwrap().push(self.memory.id().to_string());
        self.check()
    }
}

#[pillarbox::async_trait]
impl OutboxStore for Watched {
    fn id(&self) -> &StoreId {
        self.memory.id()
    }

    fn options(&self) -> &StoreOptions {
        self.memory.options()
    }

    async fn enqueue(&self, enqueue: Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
        self.memory.enqueue(enqueue).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, StoreError> {
        let _call = self.shared.pace.enter().await;
        self.pass_claim().await?;
        self.memory.claim(claim).await
    }

    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        let _call = self.shared.pace.enter().await;
        self.check()?;
        let settled = self.memory.settle(owner, settlements).await;
        self.count(|counts| {
            counts.settles += 1;
            counts.verdicts += settlements.len();
        });
        settled
    }

    async fn exchange(&self, settlements: &[Settlement], claim: Claim) -> Result<Exchanged, StoreError> {
        let _call = self.shared.pace.enter().await;
        self.pass_claim().await?;
        let exchanged = self.memory.exchange(settlements, claim).await;
        self.exchanged(settlements);
        exchanged
    }

    async fn renew(&self, owner: OwnerToken, held: &[Held], lease: Duration) -> Result<Vec<Settled>, StoreError> {
        if self.shared.cannot_renew.load(Ordering::SeqCst) {
            self.count(|counts| counts.refused_renewals += 1);
            return Err(StoreError::unavailable("the test says so"));
        }
        let renewed = self.memory.renew(owner, held, lease).await;
        self.count(|counts| counts.renewals += 1);
        renewed
    }

    async fn reap(&self, reap: Reap) -> Result<Reaped, StoreError> {
        let _call = self.shared.pace.enter().await;
        self.memory.reap(reap).await
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        let _call = self.shared.pace.enter().await;
        self.memory.purge(limit).await
    }

    async fn oldest_pending(&self) -> Result<Option<Duration>, StoreError> {
        self.memory.oldest_pending().await
    }

    async fn clock(&self) -> Result<Option<SystemTime>, StoreError> {
        if self.shared.cannot_tell.load(Ordering::SeqCst) {
            return Err(StoreError::unavailable("the test says so"));
        }
        Ok(self.shared.tells_time.load(Ordering::SeqCst).then(|| self.memory.database().now()))
    }

    async fn detached(&self) -> Result<Arc<dyn OutboxStore>, StoreError> {
        Ok(Arc::new(self.clone()))
    }

    async fn wake_others(&self) -> Result<(), StoreError> {
        self.count(|counts| counts.wakes += 1);
        if self.shared.wakeups == WakeupMode::Works {
            let _ = self.shared.bell.send(());
        }
        Ok(())
    }

    async fn listen(&self) -> Result<Option<Box<dyn Wakeups>>, StoreError> {
        match self.shared.wakeups {
            WakeupMode::None => Ok(None),
            WakeupMode::Works | WakeupMode::Deaf => Ok(Some(Box::new(Bell(self.shared.bell.subscribe())))),
        }
    }

    fn pauses(&self) -> Option<Arc<dyn PauseStore>> {
        self.memory.pauses()
    }

    fn instances(&self) -> Option<Arc<dyn InstanceStore>> {
        Some(Arc::new(WatchedInstances { list: self.memory.instances()?, watched: self.clone() }))
    }
}

/// A list of instances whose heartbeats are counted, and fail while the store is down.
#[derive(Debug)]
struct WatchedInstances {
    list: Arc<dyn InstanceStore>,
    watched: Watched,
}

#[pillarbox::async_trait]
impl InstanceStore for WatchedInstances {
    async fn heartbeat(&self, instance: &Instance) -> Result<(), StoreError> {
        self.watched.check()?;
        self.list.heartbeat(instance).await?;
        self.watched.count(|counts| counts.heartbeats += 1);
        Ok(())
    }

    async fn leave(&self, id: InstanceId) -> Result<bool, StoreError> {
        self.watched.check()?;
        self.list.leave(id).await
    }

    async fn live(&self, stale_after: Duration) -> Result<Vec<InstanceRecord>, StoreError> {
        self.watched.check()?;
        self.list.live(stale_after).await
    }

    async fn forget(&self, stale_after: Duration, limit: PurgeLimit) -> Result<u64, StoreError> {
        self.list.forget(stale_after, limit).await
    }
}

#[pillarbox::async_trait]
impl SchemaAdmin for WatchedInstances {
    async fn deploy_schema(&self) -> Result<u32, StoreError> {
        self.list.deploy_schema().await
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        self.list.check_schema().await
    }

    fn schema_script(&self) -> String {
        self.list.schema_script()
    }
}

impl Transactional for Watched {
    type Transaction = WatchedTransaction;

    fn begin_at(&self, isolation: Isolation) -> BoxFuture<'_, Result<WatchedTransaction, StoreError>> {
        Box::pin(async move {
            self.check()?;
            Ok(WatchedTransaction { tx: self.memory.begin_at(isolation).await?, watched: self.clone() })
        })
    }
}

/// A transaction of the memory store, which fails while the store is down.
pub(crate) struct WatchedTransaction {
    tx: MemoryTransaction,
    watched: Watched,
}

impl StoreTransaction<Watched> for WatchedTransaction {
    type Connection = MemoryTransaction;

    fn connection(&mut self) -> &mut MemoryTransaction {
        &mut self.tx
    }

    fn enqueue_checked<'a>(
        &'a mut self,
        store: &'a Watched,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>> {
        StoreTransaction::enqueue_checked(&mut self.tx, &store.memory, enqueue)
    }

    fn settle_planned<'a>(
        &'a mut self,
        store: &'a Watched,
        owner: OwnerToken,
        plan: &'a GuardPlan<'a, Settlement>,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        match self.watched.check() {
            Ok(()) => StoreTransaction::settle_planned(&mut self.tx, &store.memory, owner, plan),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn savepoint(&mut self, savepoint: Savepoint) -> BoxFuture<'_, Result<(), StoreError>> {
        StoreTransaction::savepoint(&mut self.tx, savepoint)
    }

    fn commit(self) -> BoxFuture<'static, Result<(), CommitError>> {
        StoreTransaction::commit(self.tx)
    }

    fn rollback(self) -> BoxFuture<'static, Result<(), StoreError>> {
        StoreTransaction::rollback(self.tx)
    }
}

struct Bell(broadcast::Receiver<()>);

#[pillarbox::async_trait]
impl Wakeups for Bell {
    async fn next(&mut self) -> Result<(), StoreError> {
        match self.0.recv().await {
            Ok(()) | Err(broadcast::error::RecvError::Lagged(_)) => Ok(()),
            Err(broadcast::error::RecvError::Closed) => Err(StoreError::unavailable("the bell is gone")),
        }
    }
}

/// An outbox on a memory store of its own.
pub(crate) fn memory() -> Outbox<MemoryStore> {
    Outbox::new(MemoryStore::new(StoreOptions::default()))
}

/// A builder that neither polls nor cleans up by itself: tests nudge.
pub(crate) fn quiet<S: ?Sized>(outbox: &Outbox<S>) -> RuntimeBuilder {
    hushed(Runtime::builder(outbox))
}

/// The same for any builder.
pub(crate) fn hushed<On>(builder: RuntimeBuilder<On>) -> RuntimeBuilder<On> {
    builder.poll_interval(NEVER).idle_interval(NEVER).reap_interval(NEVER).purge_interval(NEVER)
}

/// Where a handler stands: it tells that it has begun, and waits until it is let go.
#[derive(Clone)]
pub(crate) struct Stage {
    began: mpsc::UnboundedSender<MessageId>,
    go: Arc<Semaphore>,
    at_once: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

/// The test's side of a stage.
pub(crate) struct Director {
    began: mpsc::UnboundedReceiver<MessageId>,
    go: Arc<Semaphore>,
    most: Arc<AtomicUsize>,
}

pub(crate) fn stage() -> (Stage, Director) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (go, most) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let stage = Stage { began: sender, go: Arc::clone(&go), at_once: Arc::default(), most: Arc::clone(&most) };
    (stage, Director { began: receiver, go, most })
}

impl Stage {
    /// What a handler does: begin, wait, end.
    pub(crate) async fn play(self, cx: Context) -> HandlerResult {
        let at_once = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(at_once, Ordering::SeqCst);
        self.began.send(cx.message_id()).unwrap();
        let permit = self.go.acquire().await;
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        permit?.forget();
        Ok(())
    }
}

impl Director {
    /// Waits for the next handler to begin.
    pub(crate) async fn began(&mut self) -> MessageId {
        self.began.recv().await.unwrap()
    }

    /// Lets so many handlers end.
    pub(crate) fn go(&self, count: usize) {
        self.go.add_permits(count);
    }

    /// The most handlers that ran at one time.
    pub(crate) fn most_at_once(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    /// Whether a handler has begun that the test has not seen yet.
    pub(crate) fn has_more(&mut self) -> bool {
        !self.began.is_empty()
    }
}

/// A builder with one route, `work`, that plays on the stage.
pub(crate) fn on_stage<On>(builder: RuntimeBuilder<On>, topic: &str, stage: &Stage) -> RuntimeBuilder<On> {
    let stage = stage.clone();
    builder.on_topic(topic, move |cx: Context| stage.clone().play(cx))
}

/// Messages of one topic.
pub(crate) fn messages(topic: &str, count: usize) -> Vec<Message> {
    (0..count).map(|number| Message::new(topic, number.to_string())).collect()
}

/// A policy that gives up after so many attempts, and tries again after a millisecond.
pub(crate) fn attempts(count: u32) -> pillarbox::retry::RetryPolicy {
    let soon = pillarbox::retry::Jittered { base: Duration::from_millis(1), max: Duration::from_millis(1) };
    pillarbox::retry::RetryPolicy::default().attempts_max(count).backoff(soon)
}
