//! Those who wait for a connection while the pool has none left.
//!
//! They stand in one line. As many tasks as may have a connection wait at the pool for them, so that they have their turns among
//! the pool's own users. Meanwhile whoever is done with a connection gives it to the first in the line.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;

use super::{Kept, Session};

/// What somebody in the line needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A connection.
    Idle,
    /// A connection, and nothing stands against a transaction on it with the settings of its session.
    Begun,
}

/// What somebody gets.
pub(super) enum Given {
    /// The pool has handed it out just now, and tested it where it does so.
    Pooled(Session),
    /// Somebody was done with it a moment ago. Nothing is open on it.
    Used(Session),
    /// A transaction has just begun on it, in which nothing has happened.
    Begun(Session),
}

struct Waiter {
    need: Need,
    since: Instant,
    /// A connection of another runtime is of no use.
    runtime: Id,
    /// The commit under way that begins a transaction for this one.
    promise: Option<u64>,
    gives: oneshot::Sender<Result<Given, sqlx::Error>>,
}

impl Waiter {
    /// Back, where it has gone.
    fn given(self, given: Given) -> Option<Given> {
        self.gives.send(Ok(given)).err()?.ok()
    }
}

/// The first come first.
#[derive(Default)]
pub(super) struct Line {
    waiters: VecDeque<Waiter>,
    promised_count: u64,
    /// The runtime of each task that waits at the pool.
    seekers: Vec<Id>,
}

impl Line {
    fn is_waited_for(&self, runtime: Id) -> bool {
        self.waiters.iter().any(|waiter| waiter.runtime == runtime && !waiter.gives.is_closed())
    }

    /// Marks the first for whom nothing is under way, where a commit can begin its transaction.
    fn promise(&mut self, runtime: Id) -> Option<u64> {
        self.waiters.retain(|waiter| !waiter.gives.is_closed());
        let first = self.waiters.iter_mut().find(|waiter| waiter.runtime == runtime && waiter.promise.is_none())?;
        if first.need != Need::Begun {
            return None;
        }
        self.promised_count += 1;
        first.promise = Some(self.promised_count);
        first.promise
    }

    fn take(&mut self, is_meant: impl Fn(&Waiter) -> bool) -> Option<Waiter> {
        let at = self.waiters.iter().position(is_meant)?;
        self.waiters.remove(at)
    }

    /// Who is meant by a promise; where that one has had another connection, the first who waited already when the commit was sent:
    /// for somebody who came later the transaction would be older than the wish for it.
    fn take_promised(&mut self, promise: &Promise) -> Option<Waiter> {
        self.take(|waiter| waiter.promise == Some(promise.number)).or_else(|| {
            self.take(|waiter| {
                let may_have_it = waiter.need == Need::Begun && waiter.since <= promise.since;
                may_have_it && waiter.runtime == promise.runtime && waiter.promise.is_none()
            })
        })
    }

    /// How many of a runtime wait, and how many tasks at the pool for them.
    fn counts(&self, runtime: Id) -> (usize, usize) {
        let waiting = self.waiters.iter().filter(|waiter| waiter.runtime == runtime).count();
        (waiting, self.seekers.iter().filter(|seeker| **seeker == runtime).count())
    }

    fn end_seeker(&mut self, runtime: Id) {
        if let Some(at) = self.seekers.iter().position(|seeker| *seeker == runtime) {
            self.seekers.swap_remove(at);
        }
    }
}

impl Kept {
    pub(super) fn is_waited_for(&self, runtime: Id) -> bool {
        self.line().is_waited_for(runtime)
    }

    /// Waits until a connection comes, from the pool or from somebody who is done with it.
    pub(super) async fn stand_in_line(self: &Arc<Self>, need: Need) -> Result<Given, sqlx::Error> {
        let runtime = Handle::current();
        let (gives, gets) = oneshot::channel();
        let seeks = {
            let mut line = self.line();
            let waiter = Waiter { need, since: Instant::now(), runtime: runtime.id(), promise: None, gives };
            line.waiters.push_back(waiter);
            let (waiting, seeking) = line.counts(runtime.id());
            let seeks = seeking < waiting.min(self.pool.options().get_max_connections() as usize);
            if seeks {
                line.seekers.push(runtime.id());
            }
            seeks
        };
        // Not under the lock: a runtime that shuts down drops a task where it is spawned.
        if seeks {
            runtime.spawn(seek(Seeker { kept: Arc::clone(self), runtime: runtime.id(), is_through: false }));
        }
        match tokio::time::timeout(self.pool.options().get_acquire_timeout(), gets).await {
            Ok(Ok(given)) => given,
            // The tasks that wait at the pool ended with their runtime.
            Ok(Err(_)) => Err(sqlx::Error::WorkerCrashed),
            Err(_) => Err(sqlx::Error::PoolTimedOut),
        }
    }

    /// Whether a commit should begin a transaction for somebody else.
    pub(super) fn promise(self: &Arc<Self>, runtime: Id) -> Option<Promise> {
        let number = self.line().promise(runtime)?;
        Some(Promise { kept: Arc::clone(self), number, runtime, since: Instant::now() })
    }

    /// Gives a connection on which nothing is open to the first for whom no transaction begins just now; back, where there is none.
    pub(super) fn give_used(&self, mut session: Session, runtime: Id) -> Option<Session> {
        loop {
            let waiter = self.line().take(|waiter| waiter.runtime == runtime && waiter.promise.is_none());
            let Some(waiter) = waiter else { return Some(session) };
            let (Given::Pooled(back) | Given::Used(back) | Given::Begun(back)) = waiter.given(Given::Used(session))?;
            session = back;
        }
    }

    /// What the pool answered goes to the very first. Whether it is to be asked again.
    fn serve(self: &Arc<Self>, answer: Result<PoolConnection<Postgres>, sqlx::Error>, runtime: Id) -> bool {
        let first = || self.line().take(|waiter| waiter.runtime == runtime);
        match answer {
            Ok(connection) => {
                let mut left = Some(Given::Pooled(self.session(connection, Instant::now())));
                while let Some(given) = left.take() {
                    match (first(), given) {
                        (Some(waiter), given) => left = waiter.given(given),
                        (None, Given::Pooled(session) | Given::Used(session) | Given::Begun(session)) => {
                            session.passes_on();
                        }
                    }
                }
            }
            // It was asked before those came who wait now, each with a time of its own.
            Err(sqlx::Error::PoolTimedOut) => {}
            Err(error) => drop(first().map(|waiter| waiter.gives.send(Err(error)))),
        }
        let mut line = self.line();
        line.waiters.retain(|waiter| !waiter.gives.is_closed());
        let (waiting, seeking) = line.counts(runtime);
        if waiting < seeking {
            line.end_seeker(runtime);
        }
        waiting >= seeking
    }
}

/// A commit under way begins a transaction for somebody in the line.
pub(super) struct Promise {
    kept: Arc<Kept>,
    number: u64,
    runtime: Id,
    since: Instant,
}

impl Promise {
    /// Gives the transaction to somebody who waits for one. Where nobody does any more, it is rolled back.
    pub(super) fn keep(self, session: Session) {
        let mut left = Some(Given::Begun(session));
        while let Some(begun) = left.take() {
            let Some(waiter) = self.kept.line().take_promised(&self) else { return };
            left = waiter.given(begun);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let mut line = self.kept.line();
        line.waiters
            .iter_mut()
            .filter(|waiter| waiter.promise == Some(self.number))
            .for_each(|waiter| waiter.promise = None);
    }
}

/// Waits at the pool for those of one runtime, one connection at a time.
async fn seek(mut seeker: Seeker) {
    let pool = seeker.kept.pool.clone();
    loop {
        // The pool calls what its owner has given it to call. Where that panics, one of them hears of it, as without a line.
        let answer = AssertUnwindSafe(pool.acquire()).catch_unwind().await;
        if !seeker.kept.serve(answer.unwrap_or(Err(sqlx::Error::WorkerCrashed)), seeker.runtime) {
            break;
        }
    }
    seeker.is_through = true;
}

struct Seeker {
    kept: Arc<Kept>,
    runtime: Id,
    is_through: bool,
}

impl Drop for Seeker {
    fn drop(&mut self) {
        // The runtime has ended before: nobody of it waits on.
        if !self.is_through {
            let mut line = self.kept.line();
            line.end_seeker(self.runtime);
            line.waiters.retain(|waiter| waiter.runtime != self.runtime);
        }
    }
}
