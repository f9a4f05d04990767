//! From a commit to the queue, in memory: which messages are born leased, and what happens once they are committed.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use pillarbox_core::lease::{Held, Lease};
use pillarbox_core::message::When;
use pillarbox_core::outbox::Verdict;
use pillarbox_core::store::{Enqueued, Placement, Settlement};
use pillarbox_core::{InboxStore, Message, MessageId, OutboxStore, StoreError, Transactional, WithInbox};

use crate::ballast::fitting;
use crate::clock::Tick;
use crate::context::{Context, Delivery};
use crate::dispatcher::Engine;
use crate::flight::Flight;
use crate::nudge::Others;
use crate::outbox::Outbox;
use crate::queue::Path;
use crate::runtime::StartError;
use crate::settler::Batch;
use crate::telemetry::{Announced, Telemetry};
use crate::transactional::{OfInbox, OfOutbox, Transactions};

/// What all handles on one outbox share: its store, and the runtime that is attached to it.
pub(crate) struct Hub {
    pub(crate) store: Arc<dyn OutboxStore>,
    /// Where the store is the queue of an inbox.
    pub(crate) ledger: Option<Arc<dyn InboxStore>>,
    /// Begins the transactions of handlers.
    pub(crate) transactions: Arc<dyn Transactions>,
    pub(crate) others: Arc<Others>,
    pub(crate) telemetry: Telemetry,
    engine: RwLock<Option<Arc<Engine>>>,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("store", self.store.id()).finish_non_exhaustive()
    }
}

impl Hub {
    pub(crate) fn new<S: Transactional>(store: Arc<S>) -> Arc<Self> {
        Self::of(Arc::clone(&store) as Arc<dyn OutboxStore>, None, Arc::new(OfOutbox(store)))
    }

    /// The hub of an inbox's queue.
    pub(crate) fn of_inbox<S: WithInbox>(outbox: Outbox<S>, ledger: &Arc<S::Inbox>) -> Arc<Self> {
        let transactions = OfInbox { outbox, queue: Arc::new(S::queue_of(ledger)) };
        Self::of(ledger.queue(), Some(Arc::clone(ledger) as Arc<dyn InboxStore>), Arc::new(transactions))
    }

    fn of(
        store: Arc<dyn OutboxStore>,
        ledger: Option<Arc<dyn InboxStore>>,
        transactions: Arc<dyn Transactions>,
    ) -> Arc<Self> {
        let (telemetry, others) = (Telemetry::new(store.id()), Others::new(Arc::clone(&store)));
        Arc::new(Self { store, ledger, transactions, others, telemetry, engine: RwLock::new(None) })
    }

    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        self.engine.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Messages go to this runtime from now on. An outbox serves one at a time.
    pub(crate) fn attach(&self, engine: &Arc<Engine>) -> Result<(), StartError> {
        let mut attached = self.engine.write().unwrap_or_else(PoisonError::into_inner);
        if attached.is_some() {
            return Err(StartError::AlreadyAttached);
        }
        *attached = Some(Arc::clone(engine));
        Ok(())
    }

    pub(crate) fn detach(&self, engine: &Arc<Engine>) {
        let mut attached = self.engine.write().unwrap_or_else(PoisonError::into_inner);
        if attached.as_ref().is_some_and(|attached| Arc::ptr_eq(attached, engine)) {
            *attached = None;
        }
    }

    pub(crate) fn nudge(&self) {
        if let Some(engine) = self.engine() {
            engine.nudge();
        }
        self.others.wake();
    }
}

/// What one transaction leaves to be done after its commit. Dropping it gives its room back: nothing happens then.
#[derive(Debug)]
pub(crate) struct Handover {
    hub: Arc<Hub>,
    engine: Option<Arc<Engine>>,
    reserved: usize,
    entries: Vec<Entry>,
    pending: Vec<Stored>,
    delays: Vec<Duration>,
    wakes_us: bool,
    wakes_others: bool,
}

/// What is told of a message that was stored for whoever claims it, once it is committed. Its content is not kept so long.
#[derive(Debug)]
struct Stored {
    topic: String,
    id: MessageId,
    correlation_id: Option<String>,
}

#[derive(Debug)]
struct Entry {
    message: Message,
    held: Held,
    route: usize,
    leased_at: Tick,
}

/// The messages of one call: those that are born leased, each with its route, and those that are not.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    pub(crate) leased: Vec<Message>,
    pub(crate) pending: Vec<Message>,
    routes: Vec<usize>,
    /// For each message in the caller's order, whether it is among the leased.
    order: Vec<bool>,
    leased_at: Tick,
}

impl Handover {
    pub(crate) fn new(hub: Arc<Hub>) -> Self {
        let engine = hub.engine();
        Self {
            hub,
            engine,
            reserved: 0,
            entries: Vec::new(),
            pending: Vec::new(),
            delays: Vec::new(),
            wakes_us: false,
            wakes_others: false,
        }
    }

    /// The lease for messages that are born leased.
    pub(crate) fn lease(&self) -> Result<Lease, StoreError> {
        match &self.engine {
            Some(engine) => Ok(engine.lease()?),
            None => Err(StoreError::rejected("no runtime is attached")),
        }
    }

    /// Sorts messages that are about to be stored, and sets room aside for those that can be handled right after.
    pub(crate) fn sort(&mut self, messages: Vec<Message>) -> Sorted {
        let engine = self.engine.as_ref();
        let routes: Vec<Option<usize>> =
            messages.iter().map(|message| engine.and_then(|engine| engine.hot_route(message))).collect();
        let asked = routes.iter().flatten().count();
        let granted = match engine {
            Some(engine) if asked > 0 => {
                let hot = messages.iter().zip(&routes).filter(|(_, route)| route.is_some());
                let sizes = hot.map(|(message, _)| message.payload().len());
                engine.queue.reserve(Path::Hot, fitting(engine.free_bytes(), sizes))
            }
            _ => 0,
        };
        self.reserved += granted;
        if let Some(engine) = engine
            && granted < asked
        {
            engine.hot_full(asked - granted);
            (self.wakes_us, self.wakes_others) = (true, true);
        }
        let mut sorted = Sorted::default();
        for (message, route) in messages.into_iter().zip(routes) {
            match route {
                Some(route) if sorted.leased.len() < granted => {
                    sorted.routes.push(route);
                    sorted.leased.push(message);
                    sorted.order.push(true);
                }
                _ => {
                    self.note_pending(&message, route);
                    sorted.pending.push(message);
                    sorted.order.push(false);
                }
            }
        }
        // Read before the store is asked: the lease cannot have begun earlier.
        sorted.leased_at = self.engine.as_ref().map(|engine| engine.clock.now()).unwrap_or_default();
        sorted
    }

    /// Takes note of those that were born leased.
    pub(crate) fn stored(&mut self, sorted: &mut Sorted, answers: &[Enqueued]) {
        for ((message, route), answer) in sorted.leased.drain(..).zip(sorted.routes.drain(..)).zip(answers) {
            match answer.placement {
                Placement::Leased(held) => {
                    self.entries.push(Entry { message, held, route, leased_at: sorted.leased_at });
                }
                Placement::Pending(_) => {
                    self.wakes_us = true;
                    self.pending.push(Stored::of(&message));
                }
                Placement::Duplicate => {}
            }
        }
    }

    /// Takes note of those that were stored for whoever claims them.
    pub(crate) fn stored_pending(&mut self, messages: &[Message], answers: &[Enqueued]) {
        let is_new = |answer: &Enqueued| answer.placement != Placement::Duplicate;
        let new = messages.iter().zip(answers).filter(|(_, answer)| is_new(answer));
        self.pending.extend(new.map(|(message, _)| Stored::of(message)));
    }

    /// Takes note of many that were stored for whoever claims them, and none of which came by the hot path.
    pub(crate) fn stored_plain(&mut self, messages: &[Message], answers: &[Enqueued]) {
        for message in messages {
            self.note_pending(message, None);
        }
        self.stored_pending(messages, answers);
    }

    /// How much there is so far.
    pub(crate) fn mark(&self) -> Mark {
        Mark { entries: self.entries.len(), pending: self.pending.len(), delays: self.delays.len() }
    }

    /// Forgets what came after the mark: it was rolled back.
    pub(crate) fn forget_since(&mut self, mark: Mark) {
        self.entries.truncate(mark.entries);
        self.pending.truncate(mark.pending);
        self.delays.truncate(mark.delays);
    }

    /// The transaction is committed: messages are told of and go to the workers, and whoever else should know is told.
    pub(crate) fn committed(mut self) {
        let telemetry = &self.hub.telemetry;
        self.entries.iter().for_each(|entry| telemetry.enqueued(&Announced::of(&entry.message)));
        self.pending.iter().for_each(|stored| telemetry.enqueued(&stored.announced()));
        let entries = std::mem::take(&mut self.entries);
        if let Some(engine) = self.engine.clone() {
            let unused = std::mem::take(&mut self.reserved).saturating_sub(entries.len());
            engine.give_back(Path::Hot, unused);
            engine.hand_over(entries);
            for delay in std::mem::take(&mut self.delays) {
                engine.due_in(delay);
            }
            if self.wakes_us {
                engine.nudge();
            }
        }
        if self.wakes_others {
            self.nudge_newcomer();
            self.hub.others.wake();
        }
    }

    /// A runtime that was attached after the transaction began does not know of these messages yet.
    fn nudge_newcomer(&self) {
        if let Some(engine) = self.hub.engine()
            && self.engine.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &engine))
        {
            engine.nudge();
        }
    }

    fn note_pending(&mut self, message: &Message, hot_route: Option<usize>) {
        let Some(engine) = self.engine.as_ref().filter(|engine| !engine.is_closing()) else {
            self.wakes_others |= !message.is_delayed();
            return;
        };
        let route = hot_route.or_else(|| engine.plan.route_of(message));
        match (message.is_delayed(), route) {
            (true, Some(_)) => self.delays.extend(message.due().map(delay_of)),
            (true, None) => {}
            (false, Some(_)) if !engine.serves(message) => self.wakes_others = true,
            // Who runs a route that pauses looks for its messages by itself.
            (false, Some(route)) if engine.pauses.is_paused(route) => {}
            (false, Some(_)) => self.wakes_us = true,
            (false, None) => self.wakes_others = true,
        }
    }
}

/// How much a transaction had stored at some moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    entries: usize,
    pending: usize,
    delays: usize,
}

impl Stored {
    fn of(message: &Message) -> Self {
        let Announced { topic, id, correlation_id } = Announced::of(message);
        Self { topic: topic.to_owned(), id, correlation_id: correlation_id.map(str::to_owned) }
    }

    fn announced(&self) -> Announced<'_> {
        Announced { topic: &self.topic, id: self.id, correlation_id: self.correlation_id.as_deref() }
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        if let Some(engine) = &self.engine {
            engine.give_back(Path::Hot, self.reserved);
        }
    }
}

impl Sorted {
    /// The answers for both parts, in the caller's order.
    pub(crate) fn in_order(&self, leased: Vec<Enqueued>, pending: Vec<Enqueued>) -> Vec<Enqueued> {
        if pending.is_empty() {
            return leased;
        }
        let (mut leased, mut pending) = (leased.into_iter(), pending.into_iter());
        let next = |is_leased: &bool| if *is_leased { leased.next() } else { pending.next() };
        self.order.iter().filter_map(next).collect()
    }
}

impl Engine {
    /// Takes committed messages in, into the room that was reserved for them.
    fn hand_over(self: &Arc<Self>, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        if self.is_closing() {
            self.give_back(Path::Hot, entries.len());
            return self.release_late(entries);
        }
        self.counters.hot(entries.len());
        self.telemetry().hot_enqueued(entries.len());
        let created_at = SystemTime::now();
        let flights = entries.into_iter().map(|entry| {
            let Entry { message, held, .. } = entry;
            let delivery = Delivery { message, held, attempt: 1, lost_lease_count: 0, created_at, last_error: None };
            let cx = Context::new(delivery, Arc::clone(&self.plan.scope));
            Flight::new(cx, held, entry.route, entry.leased_at)
        });
        self.enter(Path::Hot, flights.collect(), Batch::default());
    }

    /// The runtime has gone while the transaction was open: its messages are free again at once, if the store can be asked.
    fn release_late(&self, entries: Vec<Entry>) {
        let release =
            |entry: Entry| Settlement { held: entry.held, verdict: Verdict::Release { delay: Duration::ZERO } };
        let settlements: Vec<_> = entries.into_iter().map(release).collect();
        let (store, owner) = (Arc::clone(&self.store), self.owner);
        // Without an async runtime, or without the store, the leases run out by themselves.
        if let Ok(handle) = tokio::runtime::Handle::try_current() {
            handle.spawn(async move { drop(store.settle(owner, &settlements).await) });
        }
    }

    /// Messages found the hot queue full.
    fn hot_full(&self, count: usize) {
        self.counters.hot_dropped(count);
        let now = self.clock.now();
        self.telemetry().hot_dropped(count, self.counters.may_warn(now));
    }
}

fn delay_of(due: When) -> Duration {
    match due {
        When::After(delay) => delay,
        When::At(at) => at.duration_since(SystemTime::now()).unwrap_or_default(),
    }
}
