//! What waits in memory to be handled: the hot and the cold queue, both bounded, and the workers that wait for them.
//!
//! One short lock guards everything, and a worker registers for a wake-up under it. So nobody sleeps while work waits.

mod lanes;

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

use lanes::Lanes;
pub(crate) use lanes::{Entries, Lane, Path, Work};

/// Mutual exclusion around a value. A trait, so that a model checker can bring its own.
pub(crate) trait Guarded<T> {
    fn new(value: T) -> Self;
    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R;
}

impl<T> Guarded<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Mutex::new(value)
    }

    fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        // Nothing that can panic half-way runs under the lock: what is inside is whole.
        act(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The queue of one runtime.
#[derive(Debug)]
pub(crate) struct Queue<E, G = Mutex<Waiting<E>>> {
    guarded: G,
    _entries: std::marker::PhantomData<fn() -> E>,
}

/// The lanes, and who waits for them.
#[derive(Debug)]
pub(crate) struct Waiting<E> {
    lanes: Lanes<E>,
    idle: Vec<(usize, Waker)>,
}

/// How many entries wait in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depths {
    pub(crate) hot: usize,
    pub(crate) cold: usize,
}

impl<E, G: Guarded<Waiting<E>>> Queue<E, G> {
    /// A queue of two bounded lanes, and a lane of its own for every route that needs one.
    pub(crate) fn new(hot_capacity: usize, cold_capacity: usize, routes: Vec<Lane>) -> Self {
        let lanes = Lanes::new(hot_capacity, cold_capacity, routes);
        Self { guarded: G::new(Waiting { lanes, idle: Vec::new() }), _entries: std::marker::PhantomData }
    }

    /// Sets room aside for up to `count` entries; how much there was. Whoever reserves must push or give back.
    pub(crate) fn reserve(&self, path: Path, count: usize) -> usize {
        self.guarded.with(|waiting| waiting.lanes.reserve(path, count))
    }

    /// Sets room aside for at least `least` and up to `most` cold entries. When there is too little,
    /// [`next`](Self::next) tells as soon as there is enough.
    pub(crate) fn reserve_cold(&self, least: usize, most: usize) -> usize {
        self.guarded.with(|waiting| waiting.lanes.reserve_cold(least, most))
    }

    /// Gives reserved room back; whether that made room in the cold queue that somebody waits for. Said once.
    #[must_use = "whoever waits for room must be woken"]
    pub(crate) fn give_back(&self, path: Path, count: usize) -> bool {
        self.guarded.with(|waiting| {
            waiting.lanes.give_back(path, count);
            path == Path::Cold && waiting.lanes.take_room_news()
        })
    }

    /// Puts entries, each with its route, into room that was reserved, and wakes as many workers as there is work for.
    ///
    /// After [`close`](Self::close) they come back to the caller.
    pub(crate) fn push(&self, path: Path, entries: Vec<(usize, E)>) -> Vec<(usize, E)> {
        let (refused, wakers) = self.guarded.with(|waiting| {
            if waiting.lanes.is_closed() {
                waiting.lanes.give_back(path, entries.len());
                return (entries, Vec::new());
            }
            let mut work = 0;
            for (route, entry) in entries {
                work += usize::from(waiting.lanes.push(path, route, entry));
            }
            (Vec::new(), waiting.wakers(work))
        });
        wakers.into_iter().for_each(Waker::wake);
        refused
    }

    /// A handler of a route with a lane of its own is through: the next one may run.
    pub(crate) fn finished(&self, route: usize) {
        let wakers = self.guarded.with(|waiting| {
            let work = usize::from(waiting.lanes.finished(route));
            waiting.wakers(work)
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The next piece of work, if there is one now.
    pub(crate) fn try_next(&self) -> Option<Work<E>> {
        self.guarded.with(|waiting| waiting.lanes.pop())
    }

    /// Waits for the next piece of work; none after [`close`](Self::close). Each worker has a number of its own.
    pub(crate) async fn next(&self, worker: usize) -> Option<Work<E>> {
        poll_fn(|task| {
            self.guarded.with(|waiting| match waiting.lanes.pop() {
                Some(work) => Poll::Ready(Some(work)),
                None if waiting.lanes.is_closed() => Poll::Ready(None),
                None => {
                    waiting.register(worker, task.waker());
                    Poll::Pending
                }
            })
        })
        .await
    }

    /// Takes everything that waits, and lets every worker go.
    pub(crate) fn close(&self) -> Vec<E> {
        let (entries, idle) = self.guarded.with(|waiting| (waiting.lanes.close(), std::mem::take(&mut waiting.idle)));
        idle.into_iter().for_each(|(_, waker)| waker.wake());
        entries
    }

    pub(crate) fn depths(&self) -> Depths {
        self.guarded.with(|waiting| waiting.lanes.depths())
    }
}

impl<E> Waiting<E> {
    fn register(&mut self, worker: usize, waker: &Waker) {
        match self.idle.iter_mut().find(|(number, _)| *number == worker) {
            Some((_, registered)) => registered.clone_from(waker),
            None => self.idle.push((worker, waker.clone())),
        }
    }

    /// The last ones to fall asleep are woken first: their caches are warm.
    fn wakers(&mut self, count: usize) -> Vec<Waker> {
        let kept = self.idle.len().saturating_sub(count);
        self.idle.split_off(kept).into_iter().map(|(_, waker)| waker).collect()
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
