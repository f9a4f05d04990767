//! Calls to many stores at one time: so many and no more, and the selection decides whose turn is next.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox_core::selection::{LastTurn, Selection};
use pillarbox_core::{StoreError, StoreId};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::connections::{Connections, Seat};
use crate::membership::lookout::Lookout;

/// How long a call may go without an answer before others stop waiting for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The turns of all stores of a fleet.
#[derive(Debug)]
pub(crate) struct Turns {
    selection: Selection,
    calls_max: usize,
    /// A call without an answer is given up after this time.
    pub(crate) call_time_max: Duration,
    /// Those of the stores that the fleet opened.
    pub(crate) connections: Arc<Connections>,
    /// Who of them looks for instances that come and go.
    pub(crate) lookout: Lookout,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// Calls that lent their place to others because no answer comes.
    overdue: usize,
    last: Option<LastTurn>,
    waiting: BTreeMap<StoreId, VecDeque<oneshot::Sender<Permit>>>,
}

impl Turns {
    pub(crate) fn new(selection: Selection, calls_max: usize, call_time_max: Duration) -> Arc<Self> {
        let connections = Connections::new(calls_max);
        let lookout = Lookout::default();
        Arc::new(Self { selection, calls_max, call_time_max, connections, lookout, state: Mutex::default() })
    }

    /// Enters the competition, and leaves the place of the last turn to whoever wins it: perhaps the same store.
    fn ask(self: &Arc<Self>, store: &StoreId, before: Option<Permit>) -> oneshot::Receiver<Permit> {
        let (sender, receiver) = oneshot::channel();
        let granted = {
            let mut state = self.lock();
            state.waiting.entry(store.clone()).or_default().push_back(sender);
            if let Some(permit) = before {
                state.leave(&permit.disarmed());
            }
            self.grant(&mut state)
        };
        hand_out(granted);
        receiver
    }

    fn release(self: &Arc<Self>, place: &Place) {
        let granted = {
            let mut state = self.lock();
            state.leave(place);
            self.grant(&mut state)
        };
        hand_out(granted);
    }

    /// Lets others have the place of a call that gets no answer. There are no more such calls than there are places.
    fn lend(self: &Arc<Self>, permit: &mut Permit) {
        let granted = {
            let mut state = self.lock();
            if permit.place.is_lent || state.overdue >= self.calls_max {
                return;
            }
            permit.place.is_lent = true;
            state.overdue += 1;
            state.running = state.running.saturating_sub(1);
            self.grant(&mut state)
        };
        hand_out(granted);
    }

    fn grant(self: &Arc<Self>, state: &mut State) -> Vec<(oneshot::Sender<Permit>, Permit)> {
        let mut granted = Vec::new();
        while state.running < self.calls_max {
            let Some((store, sender)) = state.next(self.selection) else { break };
            state.running += 1;
            let place = Place { store, found: None, is_lent: false };
            granted.push((sender, Permit { place, turns: Some(Arc::clone(self)) }));
        }
        granted
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whoever's turn it is, of those that still wait.
    fn next(&mut self, selection: Selection) -> Option<(StoreId, oneshot::Sender<Permit>)> {
        loop {
            let next = match self.waiting.len() {
                // Mostly a single one waits: no list is made for it.
                0 | 1 => self.waiting.keys().next(),
                _ => selection.next(&self.waiting.keys().collect::<Vec<_>>(), self.last.as_ref()),
            };
            let store = next?.clone();
            let queue = self.waiting.get_mut(&store)?;
            let sender = queue.pop_front();
            if queue.is_empty() {
                self.waiting.remove(&store);
            }
            if let Some(sender) = sender.filter(|sender| !sender.is_closed()) {
                self.last = Some(LastTurn::after(self.last.take(), &store));
                return Some((store, sender));
            }
        }
    }

    fn leave(&mut self, place: &Place) {
        let count = if place.is_lent { &mut self.overdue } else { &mut self.running };
        *count = count.saturating_sub(1);
        if let (Some(last), Some(found)) = (&mut self.last, place.found)
            && last.store == place.store
        {
            last.found = found;
        }
    }
}

/// One that nobody waits for any more comes back when it is dropped: outside of the lock.
fn hand_out(granted: Vec<(oneshot::Sender<Permit>, Permit)>) {
    for (sender, permit) in granted {
        drop(sender.send(permit));
    }
}

#[derive(Clone, Debug)]
struct Place {
    store: StoreId,
    /// Unknown of a call that does not look for anything.
    found: Option<bool>,
    is_lent: bool,
}

/// The right to one call. Goes back when it is dropped.
#[derive(Debug)]
struct Permit {
    place: Place,
    /// None once it is settled otherwise.
    turns: Option<Arc<Turns>>,
}

impl Permit {
    fn disarmed(mut self) -> Place {
        self.turns = None;
        self.place.clone()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.release(&self.place);
        }
    }
}

/// One loop's part in the turns of its fleet. Outside of a fleet every call has its turn at once, and takes what it takes.
#[derive(Debug)]
pub(crate) struct Turn {
    store: StoreId,
    turns: Option<Arc<Turns>>,
    permit: Option<Permit>,
    seat: Option<Seat>,
}

impl Turn {
    pub(crate) fn new(store: &StoreId, turns: Option<&Arc<Turns>>) -> Self {
        Self { store: store.clone(), turns: turns.cloned(), permit: None, seat: None }
    }

    /// Waits for a turn. One that is still held goes back first, and competes with all others.
    pub(crate) async fn take(&mut self) {
        let Some(turns) = &self.turns else { return };
        self.seat = None;
        self.permit = turns.ask(&self.store, self.permit.take()).await.ok();
        self.seat = turns.connections.seat(&self.store).await;
    }

    /// Lets others have their turn.
    pub(crate) fn give_back(&mut self) {
        self.seat = None;
        self.permit = None;
    }

    /// Whether the call found anything.
    pub(crate) fn found(&mut self, found: bool) {
        if let Some(permit) = &mut self.permit {
            permit.place.found = Some(found);
        }
    }

    /// Makes the call, with the time limit of the fleet.
    pub(crate) async fn call<T>(&mut self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let limit = self.turns.as_ref().map(|turns| turns.call_time_max);
        self.call_within(limit, call).await
    }

    /// Makes the call, with a time limit of its own. While no answer comes, its place is lent to others.
    pub(crate) async fn call_within<T>(
        &mut self,
        limit: Option<Duration>,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let (Some(turns), Some(limit)) = (&self.turns, limit) else { return call.await };
        let mut call = pin!(call);
        if let Ok(answer) = timeout(PATIENCE.min(limit), &mut call).await {
            return answer;
        }
        if let Some(permit) = &mut self.permit {
            turns.lend(permit);
        }
        let answer = timeout(limit.saturating_sub(PATIENCE), call).await;
        answer.unwrap_or_else(|_| Err(StoreError::unavailable(format!("no answer within {limit:?}"))))
    }
}

#[cfg(test)]
mod tests;
