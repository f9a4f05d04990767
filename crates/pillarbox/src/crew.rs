//! The workers of a fleet: each serves every store, and stores that have work take turns.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use tokio_util::task::TaskTracker;

use crate::dispatcher::Engine;
use crate::flight::Flight;
use crate::queue::Work;
use crate::worker::WORK_IN_A_ROW_MAX;

/// A store may have so many workers for each that would be free: one alone three in four, two three in seven each, and so on.
/// Whoever has slow handlers and a long backlog would have all of them otherwise, and nobody can take a worker back.
const SHARE: usize = 3;

/// The stores that have work, in the order of their turns, and the workers that have none.
#[derive(Debug)]
pub(crate) struct Crew {
    worker_count: usize,
    state: Mutex<State>,
    desk_count: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Arc<Desk>>,
    /// Stores that have their share of the workers, until one of those is free.
    held: Vec<Arc<Desk>>,
    idle: Vec<(usize, Waker)>,
    busy_count: usize,
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
    /// Workers that it has; changed under the lock of the crew.
    worker_count: AtomicUsize,
}

/// Whether a store that has so many workers may have one more of those that are free, which whoever asks is.
fn may_take(has: usize, free: usize, is_alone: bool) -> bool {
    is_alone || has == 0 || has < SHARE.saturating_mul(free.saturating_sub(1))
}

impl Crew {
    pub(crate) fn new(worker_count: usize) -> Self {
        Self { worker_count, state: Mutex::default(), desk_count: AtomicUsize::new(0) }
    }

    /// Serves this store from now on, until its queue is closed. Handlers that run hold a token of the tracker.
    pub(crate) fn serve(self: &Arc<Self>, engine: Arc<Engine>, running: TaskTracker) {
        self.desk_count.fetch_add(1, Ordering::AcqRel);
        self.ready(Arc::new(Desk {
            engine,
            running,
            crew: Arc::downgrade(self),
            is_ready: AtomicBool::new(false),
            worker_count: AtomicUsize::new(0),
        }));
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

    /// Waits for a store that may have work and another worker; none when the crew is let go.
    async fn next(&self, worker: usize) -> Option<Shift<'_>> {
        poll_fn(|task| {
            let mut state = self.lock();
            let free = self.worker_count.saturating_sub(state.busy_count);
            let is_alone = self.desk_count.load(Ordering::Acquire) <= 1;
            while let Some(desk) = state.ready.pop_front() {
                if may_take(desk.worker_count.load(Ordering::Relaxed), free, is_alone) {
                    state.busy_count += 1;
                    desk.worker_count.fetch_add(1, Ordering::Relaxed);
                    return Poll::Ready(Some(Shift { crew: self, desk }));
                }
                state.held.push(desk);
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

/// A worker that a store has.
struct Shift<'a> {
    crew: &'a Crew,
    desk: Arc<Desk>,
}

/// The worker is free: whoever had his share may look again.
impl Drop for Shift<'_> {
    fn drop(&mut self) {
        let mut state = self.crew.lock();
        state.busy_count -= 1;
        self.desk.worker_count.fetch_sub(1, Ordering::Relaxed);
        let held = std::mem::take(&mut state.held);
        let wakers: Vec<_> = held.iter().filter_map(|_| state.idle.pop()).collect();
        state.ready.extend(held);
        drop(state);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// Takes one piece of work from each store in turn, and runs it.
pub(crate) async fn run(crew: Arc<Crew>, number: usize) {
    let mut in_a_row = 0;
    while let Some(shift) = crew.next(number).await {
        let desk = &shift.desk;
        // Counted before it is taken: a shutdown that closes the queue waits for it.
        let token = desk.running.token();
        if let Some(work) = desk.take() {
            crew.ready(Arc::clone(desk));
            desk.engine.handle(work).await;
        }
        drop(token);
        drop(shift);
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

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(crew) = self.crew.upgrade() {
            crew.desk_count.fetch_sub(1, Ordering::AcqRel);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores ask in turn until none gets any more; what each has then.
    fn shared(workers: usize, stores: usize) -> Vec<usize> {
        let mut has = vec![0; stores];
        loop {
            let before = has.clone();
            for store in 0..stores {
                let free = workers - has.iter().sum::<usize>();
                if free > 0 && may_take(has[store], free, stores == 1) {
                    has[store] += 1;
                }
            }
            if has == before {
                return has;
            }
        }
    }

    /// OBX-069: whoever keeps all that he gets leaves some to the others.
    #[test]
    fn stores_that_keep_their_workers_leave_some_to_others() {
        assert_eq!(shared(4, 1), [4], "nobody else is there");
        assert_eq!(shared(4, 2), [2, 1]);
        assert_eq!((shared(16, 2), shared(16, 3), shared(1, 2)), (vec![7, 6], vec![5, 5, 4], vec![1, 0]));
        for workers in 2..100 {
            let mut has = 0;
            while may_take(has, workers - has, false) {
                has += 1;
            }
            assert!(has < workers && has >= workers / 2, "{has} of {workers}");
        }
    }
}
