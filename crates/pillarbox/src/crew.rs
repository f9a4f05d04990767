//! The workers of a fleet: each serves every store, and stores that have work take turns.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use tokio_util::task::TaskTracker;

use crate::dispatcher::Engine;
use crate::flight::Flight;
use crate::queue::Work;
use crate::worker::WORK_IN_A_ROW_MAX;

/// The stores that have work, in the order of their turns, and the workers that have none.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Arc<Desk>>,
    idle: Vec<(usize, Waker)>,
    is_closed: bool,
}

/// One store's place: what its queue wakes instead of a worker.
#[derive(Debug)]
pub(crate) struct Desk {
    engine: Arc<Engine>,
    /// Counts the pieces of work that are under way.
    running: TaskTracker,
    crew: Weak<Crew>,
    is_ready: AtomicBool,
}

impl Crew {
    /// Serves this store from now on, until its queue is closed. Handlers that run hold a token of the tracker.
    pub(crate) fn serve(self: &Arc<Self>, engine: Arc<Engine>, running: TaskTracker) {
        let desk = Desk { engine, running, crew: Arc::downgrade(self), is_ready: AtomicBool::new(false) };
        self.ready(Arc::new(desk));
    }

    /// Lets the workers go once they have nothing to do.
    pub(crate) fn close(&self) {
        let idle = {
            let mut state = self.lock();
            state.is_closed = true;
            std::mem::take(&mut state.idle)
        };
        idle.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// A store may have work.
    fn ready(&self, desk: Arc<Desk>) {
        if desk.is_ready.swap(true, Ordering::AcqRel) {
            return;
        }
        let waker = {
            let mut state = self.lock();
            state.ready.push_back(desk);
            state.idle.pop()
        };
        if let Some((_, waker)) = waker {
            waker.wake();
        }
    }

    /// Waits for a store that may have work; none when the crew is let go.
    async fn next(&self, worker: usize) -> Option<Arc<Desk>> {
        poll_fn(|task| {
            let mut state = self.lock();
            if let Some(desk) = state.ready.pop_front() {
                return Poll::Ready(Some(desk));
            }
            if state.is_closed {
                return Poll::Ready(None);
            }
            match state.idle.iter_mut().find(|(number, _)| *number == worker) {
                Some((_, waker)) => waker.clone_from(task.waker()),
                None => state.idle.push((worker, task.waker().clone())),
            }
            Poll::Pending
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes one piece of work from each store in turn, and runs it.
pub(crate) async fn run(crew: Arc<Crew>, number: usize) {
    let mut in_a_row = 0;
    while let Some(desk) = crew.next(number).await {
        // Counted before it is taken: a shutdown that closes the queue waits for it.
        let token = desk.running.token();
        if let Some(work) = desk.take() {
            crew.ready(Arc::clone(&desk));
            desk.engine.handle(work).await;
        }
        drop(token);
        in_a_row += 1;
        if in_a_row >= WORK_IN_A_ROW_MAX {
            in_a_row = 0;
            tokio::task::yield_now().await;
        }
    }
}

impl Desk {
    /// The next piece of work, if there is one; otherwise the queue wakes this desk as soon as there is.
    fn take(self: &Arc<Self>) -> Option<Work<Arc<Flight>>> {
        // A wake-up that comes from here on is another one.
        self.is_ready.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(self));
        match pin!(self.engine.queue.next(0)).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(work) => work,
            Poll::Pending => None,
        }
    }
}

impl Wake for Desk {
    fn wake(self: Arc<Self>) {
        if let Some(crew) = self.crew.upgrade() {
            crew.ready(self);
        }
    }
}
