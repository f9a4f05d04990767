//! Messages that this runtime holds: one record each, from the moment they are leased until their verdict is written.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use pillarbox_core::MessageId;
use pillarbox_core::lease::{Held, may_start, should_renew};
use pillarbox_core::message::When;

use crate::clock::Tick;
use crate::context::Context;

/// A message that is held.
pub(crate) struct Flight {
    pub(crate) cx: Context,
    pub(crate) held: Held,
    pub(crate) route: usize,
    /// When it expires, where it counts from the moment that it was stored here; never where it names an instant.
    pub(crate) expires_at: Tick,
    leased_at: AtomicU64,
    started_at: AtomicU64,
    phase: AtomicU8,
    is_lost: AtomicBool,
    is_given_up: AtomicBool,
    /// The next message of its run.
    next: Mutex<Option<Arc<Flight>>>,
    /// Whether its run was cut, known to all messages of the run; none where it is alone.
    run_is_cut: OnceLock<Arc<AtomicBool>>,
}

/// How far a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits in the queue.
    Waiting,
    /// Its handler runs.
    Running,
    /// Its handler has ended, or never begins; the verdict is on its way.
    Ended,
}

impl Flight {
    /// A message whose lease began at `leased_at` at the earliest.
    pub(crate) fn new(cx: Context, held: Held, route: usize, leased_at: Tick) -> Arc<Self> {
        let expires_at = match cx.message().expires() {
            Some(When::After(lives)) => leased_at.after(lives),
            Some(When::At(_)) | None => Tick::NEVER,
        };
        Arc::new(Self {
            cx,
            held,
            route,
            expires_at,
            leased_at: AtomicU64::new(leased_at.as_nanos()),
            started_at: AtomicU64::new(0),
            phase: AtomicU8::new(Phase::Waiting as u8),
            is_lost: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            next: Mutex::new(None),
            run_is_cut: OnceLock::new(),
        })
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Waiting,
            1 => Phase::Running,
            _ => Phase::Ended,
        }
    }

    pub(crate) fn started(&self, now: Tick) {
        self.started_at.store(now.as_nanos(), Ordering::Relaxed);
        self.phase.store(Phase::Running as u8, Ordering::Release);
    }

    pub(crate) fn ended(&self) {
        self.phase.store(Phase::Ended as u8, Ordering::Release);
    }

    /// Whether enough of the lease is left to begin, and nobody else has an earlier message of its run.
    pub(crate) fn may_start(&self, now: Tick, lease: Duration) -> bool {
        !self.is_lost() && !self.is_cut() && may_start(lease, now.since(self.leased_at()))
    }

    pub(crate) fn renewed(&self, leased_at: Tick) {
        self.leased_at.store(leased_at.as_nanos(), Ordering::Relaxed);
    }

    /// Somebody else has it: whatever still runs here should stop, and nothing of its run may follow.
    pub(crate) fn lost(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
        self.cut_run();
        self.cx.cancel();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// No message of its run begins from now on.
    pub(crate) fn cut_run(&self) {
        if let Some(is_cut) = self.run_is_cut.get() {
            is_cut.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.run_is_cut.get().is_some_and(|is_cut| is_cut.load(Ordering::Relaxed))
    }

    /// This one follows when it is done.
    pub(crate) fn set_next(&self, next: Arc<Self>) {
        let run_is_cut = self.run_is_cut.get_or_init(Arc::default);
        // A message is in one run.
        let _ = next.run_is_cut.set(Arc::clone(run_is_cut));
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    pub(crate) fn take_next(&self) -> Option<Arc<Self>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How long its handler has been running.
    pub(crate) fn running_for(&self, now: Tick) -> Option<Duration> {
        let started_at = Tick::from_nanos(self.started_at.load(Ordering::Relaxed));
        (self.phase() == Phase::Running).then(|| now.since(started_at))
    }

    /// Its lease is renewed no longer; true the first time.
    pub(crate) fn give_up(&self) -> bool {
        !self.is_given_up.swap(true, Ordering::Relaxed)
    }

    fn bytes(&self) -> usize {
        self.cx.message().payload().len()
    }

    fn is_due(&self, now: Tick, lease: Duration) -> bool {
        !self.is_lost() && should_renew(lease, now.since(self.leased_at()))
    }

    fn leased_at(&self) -> Tick {
        Tick::from_nanos(self.leased_at.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").field("cx", &self.cx).field("phase", &self.phase()).finish_non_exhaustive()
    }
}

/// Everything that is held, by message: one message is never in here twice.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    by_message: Mutex<HashMap<MessageId, Arc<Flight>>>,
    /// Of their payloads; changed under the lock.
    bytes: AtomicUsize,
}

impl Flights {
    /// Takes flights in. Those whose message is waiting or running here already come back: it must not run twice at once.
    pub(crate) fn admit(&self, flights: &mut Vec<Arc<Flight>>) -> Vec<Arc<Flight>> {
        let mut by_message = self.lock();
        let (mut doubled, mut bytes) = (Vec::new(), self.bytes());
        flights.retain(|flight| match by_message.entry(flight.cx.message_id()) {
            Entry::Vacant(free) => {
                bytes += flight.bytes();
                free.insert(Arc::clone(flight));
                true
            }
            Entry::Occupied(mut taken) if taken.get().phase() == Phase::Ended => {
                bytes = (bytes + flight.bytes()).saturating_sub(taken.get().bytes());
                taken.insert(Arc::clone(flight));
                true
            }
            Entry::Occupied(_) => {
                doubled.push(Arc::clone(flight));
                false
            }
        });
        self.bytes.store(bytes, Ordering::Relaxed);
        doubled
    }

    /// Forgets flights whose verdict is written. Another claim of the same message stays.
    pub(crate) fn remove<'a>(&self, flights: impl IntoIterator<Item = &'a Arc<Flight>>) {
        let mut by_message = self.lock();
        let mut bytes = self.bytes();
        for flight in flights {
            if let Entry::Occupied(taken) = by_message.entry(flight.cx.message_id())
                && Arc::ptr_eq(taken.get(), flight)
            {
                bytes = bytes.saturating_sub(flight.bytes());
                taken.remove();
            }
        }
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// The bytes of all payloads that are held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Those whose lease should be renewed.
    pub(crate) fn due(&self, now: Tick, lease: Duration) -> Vec<Arc<Flight>> {
        self.lock().values().filter(|flight| flight.is_due(now, lease)).cloned().collect()
    }

    /// Whether one of those that are not through yet is such.
    pub(crate) fn any_under_way(&self, is_such: impl Fn(&Flight) -> bool) -> bool {
        self.lock().values().any(|flight| flight.phase() != Phase::Ended && is_such(flight))
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MessageId, Arc<Flight>>> {
        self.by_message.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
