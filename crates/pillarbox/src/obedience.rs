//! What an operator paused: read now and then, and before a message begins on knowledge that is too old.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use pillarbox_core::pause::{Halt, PauseRecord};
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::{Instance, LeftOut, StoreError, Verdict};
use tokio::sync::{Mutex, Notify};
use tokio::time::{sleep, timeout};

use crate::builder::RuntimeBuilder;
use crate::clock::{Tick, dice, spread};
use crate::dispatcher::Engine;
use crate::pauses::Change;
use crate::telemetry::TARGET;

/// How long a message waits whose route is paused, where a claim cannot be told to leave it out.
const PUT_OFF: Duration = Duration::from_secs(15);

/// How long a message that could begin waits for the list; then what is known counts.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How often the list is read while nothing begins, as a multiple of the time within which pauses are obeyed: with a pause, whose
/// end nobody else tells of, and without one.
const LOOK_PAUSED: u32 = 2;
const LOOK_IDLE: u32 = 10;

/// The least time between two looks because of wake-ups: one may mean no more than that messages wait.
const LOOK_GAP: Duration = Duration::from_millis(500);

/// Pauses by an operator. Off unless [`obey_pauses`](Self::obey_pauses) is called: then nothing is asked for.
impl<On> RuntimeBuilder<On> {
    /// Begins no message of a route that `pillarbox pause` names, until `pillarbox resume` does. Routes are named by
    /// [`Route::name`](crate::Route::name), or by what they match.
    ///
    /// What runs already runs to its end. The messages stay pending where they are, spend no attempt, keep the order of their
    /// keys, and do not lie in the way of other routes. They are not handed over hot.
    ///
    /// Nothing begins on knowledge that is older than `within`; so the list is read that often while there is something to do,
    /// every ten times as long while there is not, and every two times while a route is paused. While the list cannot be
    /// read, what is known counts. It is a table that the first pause deploys; without it nothing is paused.
    ///
    /// An [instance](Self::instance) also tells in the list of instances which routes it has, and which it paused by itself.
    pub fn obey_pauses(mut self, within: Duration) -> Self {
        self.config.obey_within = Some(within);
        self
    }
}

/// What is known of an operator's pauses.
#[derive(Debug)]
pub(crate) struct Obedience {
    within: Option<Duration>,
    /// A nanosecond behind the moment when the list was read, or could not be; zero for never.
    looked_at: AtomicU64,
    /// Topics that claims leave out.
    left_out: RwLock<LeftOut>,
    is_any_paused: AtomicBool,
    list: Mutex<List>,
    news: Notify,
}

/// What is known of the table.
#[derive(Debug, Default)]
struct List {
    is_there: bool,
    has_failed: bool,
}

impl Obedience {
    pub(crate) fn new(within: Option<Duration>) -> Self {
        Self {
            within,
            looked_at: AtomicU64::new(0),
            left_out: RwLock::default(),
            is_any_paused: AtomicBool::new(false),
            list: Mutex::default(),
            news: Notify::new(),
        }
    }

    /// Somebody may have paused or resumed a route.
    pub(crate) fn hear(&self) {
        if self.within.is_some() {
            self.news.notify_one();
        }
    }

    /// The topics that a claim leaves where they are.
    pub(crate) fn left_out(&self) -> LeftOut {
        match self.within {
            Some(_) => self.left_out.read().unwrap_or_else(PoisonError::into_inner).clone(),
            None => LeftOut::default(),
        }
    }

    fn is_stale(&self, now: Tick) -> bool {
        let Some(within) = self.within else { return false };
        match self.looked_at.load(Ordering::Acquire) {
            0 => true,
            looked_at => now.since(Tick::from_nanos(looked_at - 1)) >= within,
        }
    }

    /// Whether nothing is known yet.
    fn is_unread(&self) -> bool {
        self.within.is_some() && self.looked_at.load(Ordering::Acquire) == 0
    }

    fn looked(&self, now: Tick) {
        self.looked_at.store(now.as_nanos().saturating_add(1), Ordering::Release);
    }

    /// The least time between two looks because of wake-ups.
    fn gap(&self) -> Duration {
        self.within.unwrap_or_default().min(LOOK_GAP)
    }

    fn next_look(&self) -> Duration {
        let times = if self.is_any_paused.load(Ordering::Acquire) { LOOK_PAUSED } else { LOOK_IDLE };
        spread(self.within.unwrap_or_default() * times, dice())
    }
}

/// Reads the list for as long as the runtime lives: at its start, now and then, and after a wake-up.
pub(crate) async fn run(engine: Arc<Engine>) {
    loop {
        let mut turn = engine.turn();
        engine.take_turn(&mut turn).await;
        let read = turn.call(async {
            engine.read_pauses(&mut *engine.obedience.list.lock().await).await;
            Ok(())
        });
        if let Err(error) = read.await {
            engine.not_read(&error, &mut *engine.obedience.list.lock().await);
        }
        drop(turn);
        let next_look = sleep(engine.obedience.next_look());
        sleep(engine.obedience.gap()).await;
        tokio::select! {
            () = next_look => {}
            () = engine.obedience.news.notified() => {}
        }
    }
}

impl Engine {
    /// Reads the list if what is known is too old for a message to begin on it.
    pub(crate) async fn know_pauses(&self) {
        let now = self.clock.now();
        if !self.obedience.is_stale(now) {
            return;
        }
        let read = async {
            let mut list = self.obedience.list.lock().await;
            // Somebody else may have read it meanwhile.
            if self.obedience.is_stale(now) {
                self.read_pauses(&mut list).await;
            }
        };
        if timeout(ANSWER_WITHIN, read).await.is_err() {
            self.obedience.looked(self.clock.now());
        }
    }

    /// Reads the list before the first claim: what was paused before the start is not even claimed.
    pub(crate) async fn know_first_pauses(&self) {
        if self.obedience.is_unread() {
            self.know_pauses().await;
        }
    }

    /// Reads the list, and acts on it.
    async fn read_pauses(&self, list: &mut List) {
        match self.paused(list).await {
            Ok(paused) => {
                list.has_failed = false;
                self.obey(&paused);
            }
            Err(error) => self.not_read(&error, list),
        }
        self.obedience.looked(self.clock.now());
    }

    async fn paused(&self, list: &mut List) -> Result<Vec<PauseRecord>, StoreError> {
        let Some(pauses) = self.store.pauses() else { return Ok(Vec::new()) };
        if !list.is_there {
            let found = pauses.check_schema().await?;
            if found == SchemaStatus::Missing {
                return Ok(Vec::new());
            }
            found.require_current()?;
            list.is_there = true;
        }
        let paused = pauses.paused().await;
        list.is_there = paused.is_ok();
        paused
    }

    fn not_read(&self, error: &StoreError, list: &mut List) {
        if !std::mem::replace(&mut list.has_failed, true) {
            let store = self.store.id().as_str();
            tracing::warn!(target: TARGET, %error, store, "the pauses of routes cannot be read: what was known counts");
        }
    }

    /// Pauses and resumes routes, and says which topics claims leave out.
    fn obey(&self, paused: &[PauseRecord]) {
        let mut has_resumed = false;
        for (index, route) in self.plan.routes.iter().enumerate() {
            let pause = paused.iter().find(|record| record.pause.route() == route.name);
            let change = self.pauses.tell(index, pause.is_some());
            let (store, name) = (self.store.id().as_str(), route.name.as_str());
            match change {
                Change::None => continue,
                Change::Paused => tracing::info!(target: TARGET, store, route = name, "the route was paused"),
                Change::Resumed => tracing::info!(target: TARGET, store, route = name, "the route was resumed"),
            }
            has_resumed |= change == Change::Resumed;
            route.meters.paused(self.pauses.is_paused(index));
        }
        let any = (0..self.plan.routes.len()).any(|route| self.pauses.is_told(route));
        self.obedience.is_any_paused.store(any, Ordering::Release);
        {
            let mut left_out = self.obedience.left_out.write().unwrap_or_else(PoisonError::into_inner);
            let known: BTreeSet<&str> = self.plan.table.topics().chain(left_out.topics()).collect();
            *left_out = LeftOut::new(known.into_iter().filter(|topic| self.is_all_paused(topic)).map(str::to_owned));
        }
        if has_resumed {
            self.nudge();
        }
    }

    /// The verdict on a message whose route an operator paused: it spends no attempt, and stays where it was where claims can
    /// leave it out.
    pub(crate) fn put_off(&self, topic: &str) -> Verdict {
        let delay = if self.leaves_out(topic) { Duration::ZERO } else { spread(PUT_OFF, dice()) };
        Verdict::Release { delay }
    }

    /// Whether claims leave messages of this topic out; those that have been seen are learnt.
    fn leaves_out(&self, topic: &str) -> bool {
        if self.plan.config.order.in_sequence {
            return false;
        }
        let mut left_out = self.obedience.left_out.write().unwrap_or_else(PoisonError::into_inner);
        if !left_out.has(topic)
            && self.is_all_paused(topic)
            && let Some(more) = left_out.and(topic)
        {
            *left_out = more;
        }
        left_out.has(topic)
    }

    /// Whether every message of a topic belongs to a route that is paused.
    fn is_all_paused(&self, topic: &str) -> bool {
        let takers = self.plan.table.takers(topic);
        takers.is_some_and(|takers| takers.into_iter().all(|route| self.pauses.is_told(route)))
    }

    /// An instance with what it tells of its routes.
    pub(crate) fn introduced(&self, instance: &Instance) -> Instance {
        if self.obedience.within.is_none() {
            return instance.clone();
        }
        let routes: Vec<&str> = self.plan.routes.iter().map(|route| route.name.as_str()).collect();
        let named = |(route, halt): (usize, Halt)| Halt { route: routes[route].to_owned(), ..halt };
        let halts: Vec<Halt> = self.pauses.halts(self.clock.now()).into_iter().map(named).collect();
        instance.clone().telling(&routes, &halts)
    }
}
