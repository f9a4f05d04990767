//! Connections that were used a moment ago, for whoever needs one next.
//!
//! The driver's pool asks every connection whether it is alive when it comes back, and again before it hands it out. For a
//! transaction of four statements that is half as much again. And it hands out the one that was not used for longest, so that
//! every session has to plan every statement. A connection whose transaction has just been committed is in order: it waits here for
//! a moment, the last one is taken first, and what nobody wants goes back to the pool.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx::{Connection as _, PgConnection, PgPool, Postgres, SqlStr};
use sqlx_core::transaction::TransactionManager;
use tokio::runtime::{Handle, Id};

/// How long a connection waits for its next user.
const IDLE_MAX: Duration = Duration::from_millis(50);

/// How long it is passed on without a look at it: the pool knows how old a connection may become.
const PASSED_ON_MAX: Duration = Duration::from_secs(10);

/// The connections of one pool that wait. None do where the pool's owner may want something done between two users.
pub(crate) struct Kept {
    pool: PgPool,
    is_on: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// The one that came last stands last, and is taken first.
    connections: Vec<Spare>,
    /// The runtime of the last task that looks after them.
    watched: Option<Id>,
}

struct Spare {
    connection: PoolConnection<Postgres>,
    /// When the pool handed it out.
    lent_at: Instant,
    idle_since: Instant,
    /// Where it was used last. Another runtime may not hear what it says, and can be gone.
    runtime: Handle,
}

impl Spare {
    /// Gives it back to the pool, wherever the caller is: the driver needs a runtime for that, if only one that has ended.
    fn leave(self) {
        let Self { connection, runtime, .. } = self;
        let _entered = runtime.enter();
        drop(connection);
    }

    fn is_fresh(&self, runtime: &Handle) -> bool {
        self.idle_since.elapsed() < IDLE_MAX && self.runtime.id() == runtime.id()
    }
}

impl Kept {
    pub(crate) fn of(pool: PgPool, is_on: bool) -> Arc<Self> {
        Arc::new(Self { pool, is_on: AtomicBool::new(is_on), waiting: Mutex::default() })
    }

    pub(crate) fn switch_on(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// One that waits, for whoever closes what nobody uses.
    pub(crate) fn take(&self) -> Option<PoolConnection<Postgres>> {
        self.take_spare().map(|spare| spare.connection)
    }

    /// Begins a transaction, on a connection that waits where there is one.
    pub(crate) async fn begin(self: &Arc<Self>, statement: Option<SqlStr>) -> Result<Session, sqlx::Error> {
        // It may have died in that moment. Nothing has happened on it yet: the pool finds another one.
        if let Some(mut spare) = self.take_spare() {
            if PgTransactionManager::begin(&mut spare.connection, statement.clone()).await.is_ok() {
                return Ok(self.session(spare.connection, spare.lent_at));
            }
            spare.connection.close_on_drop();
        }
        let mut session = self.from_pool().await?;
        PgTransactionManager::begin(&mut session, statement).await?;
        Ok(session)
    }

    /// A connection for a statement that stands alone. Where such a one fails nobody knows what has happened, so one that waits is
    /// tested, as the pool would have done.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Result<Session, sqlx::Error> {
        while let Some(mut spare) = self.take_spare() {
            if !self.pool.options().get_test_before_acquire() || spare.connection.ping().await.is_ok() {
                return Ok(self.session(spare.connection, spare.lent_at));
            }
            spare.connection.close_on_drop();
        }
        self.from_pool().await
    }

    async fn from_pool(self: &Arc<Self>) -> Result<Session, sqlx::Error> {
        Ok(self.session(self.pool.acquire().await?, Instant::now()))
    }

    fn session(self: &Arc<Self>, connection: PoolConnection<Postgres>, lent_at: Instant) -> Session {
        Session { connection: Some(connection), lent_at, kept: Arc::clone(self) }
    }

    /// The one that came last, if it can be used here and now; what cannot goes back.
    fn take_spare(&self) -> Option<Spare> {
        let runtime = Handle::try_current().ok()?;
        while !self.pool.is_closed() {
            let spare = self.lock().connections.pop()?;
            if spare.is_fresh(&runtime) {
                return Some(spare);
            }
            spare.leave();
        }
        None
    }

    /// Keeps a connection on which nothing is open, or lets it go back to the pool.
    fn keep(self: &Arc<Self>, connection: PoolConnection<Postgres>, lent_at: Instant) {
        let now = Instant::now();
        if !self.is_on() || self.pool.is_closed() || now - lent_at > PASSED_ON_MAX || !self.has_room() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let mut waiting = self.lock();
        // A task ends with its runtime, and stands still where nobody drives that: each has its own.
        if waiting.watched != Some(runtime.id()) {
            waiting.watched = Some(runtime.id());
            runtime.spawn(watch(Watch { kept: Arc::downgrade(self), runtime: runtime.clone() }, self.pool.clone()));
        }
        waiting.connections.push(Spare { connection, lent_at, idle_since: now, runtime });
    }

    /// Whether others can have a connection of the pool without this one. Those who wait there are served in their order.
    fn has_room(&self) -> bool {
        self.pool.size() < self.pool.options().get_max_connections() || self.pool.num_idle() > 0
    }

    /// Gives back those of a runtime that are not fresh, or all of them; whether any are left.
    fn tidy(&self, runtime: &Handle, all: bool) -> bool {
        let mut waiting = self.lock();
        let is_its_own = |spare: &Spare| spare.runtime.id() == runtime.id();
        let goes = |spare: &mut Spare| is_its_own(spare) && (all || !spare.is_fresh(runtime));
        let gone: Vec<_> = waiting.connections.extract_if(.., goes).collect();
        let any_left = waiting.connections.iter().any(is_its_own);
        if !any_left && waiting.watched == Some(runtime.id()) {
            waiting.watched = None;
        }
        drop(waiting);
        gone.into_iter().for_each(Spare::leave);
        any_left
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let waiting = std::mem::take(self.waiting.get_mut().unwrap_or_else(PoisonError::into_inner));
        waiting.connections.into_iter().for_each(Spare::leave);
    }
}

/// Brings connections back to the pool until none waits.
async fn watch(watch: Watch, pool: PgPool) {
    loop {
        let is_closed = pool.close_event().do_until(tokio::time::sleep(IDLE_MAX)).await.is_err();
        let Some(kept) = watch.kept.upgrade() else { return };
        if !kept.tidy(&watch.runtime, is_closed) {
            return;
        }
    }
}

/// Looks after the connections that were used on one runtime. None waits on when it ends, also with its runtime.
struct Watch {
    kept: Weak<Kept>,
    runtime: Handle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.upgrade() {
            kept.tidy(&self.runtime, true);
        }
    }
}

/// A connection of the pool. Dropping it rolls back what is open, and gives it back.
pub(crate) struct Session {
    /// None only at its end.
    connection: Option<PoolConnection<Postgres>>,
    lent_at: Instant,
    kept: Arc<Kept>,
}

impl Session {
    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        PgTransactionManager::commit(&mut self).await?;
        self.passes_on();
        Ok(())
    }

    /// Everything that was asked was answered: the next one can have the connection as it is.
    pub(crate) fn passes_on(mut self) {
        if let Some(connection) = self.connection.take_if(|connection| !connection.is_in_transaction()) {
            self.kept.keep(connection, self.lent_at);
        }
    }

    pub(crate) async fn rollback(mut self) -> Result<(), sqlx::Error> {
        PgTransactionManager::rollback(&mut self).await
    }
}

impl Deref for Session {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.connection.as_ref().expect("a session has its connection until it ends")
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("a session has its connection until it ends")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection {
            // Sent before anything else on this connection, at the latest when the pool tests it.
            PgTransactionManager::start_rollback(connection);
        }
    }
}
