//! Connections that were used a moment ago, for whoever needs one next.
//!
//! The driver's pool asks every connection whether it is alive when it comes back, and again before it hands it out. For a
//! transaction of four statements that is half as much again. And it hands out the one that was not used for longest, so that
//! every session has to plan every statement. A connection whose transaction has just been committed is in order: it waits here for
//! a moment, the last one is taken first, and what nobody wants goes back to the pool. Where the pool has none left, it goes to
//! the first who waits for one, and if that is for a transaction, the commit has begun it.

mod line;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx::{Connection as _, PgConnection, PgPool, Postgres, SqlStr};
use sqlx_core::transaction::TransactionManager;
use tokio::runtime::{Handle, Id};

use line::{Given, Line, Need};

/// How long a connection waits for its next user.
const IDLE_MAX: Duration = Duration::from_millis(50);

/// How long it is passed on without a look at it: the pool knows how old a connection may become.
const PASSED_ON_MAX: Duration = Duration::from_secs(10);

/// How long it is handed from one to the next while the pool has none left, where others may be waiting, too. With a larger pool
/// longer: one of them comes back often enough.
const HANDED_ON_MIN: Duration = Duration::from_millis(50);
const HANDED_ON_EACH: Duration = Duration::from_millis(10);

/// Commits, and begins the next transaction in the same round trip. Not `AND CHAIN`: the next one does not want what this one had
/// set for itself. The server stops at the first that fails.
const COMMIT_AND_BEGIN: &str = "COMMIT; BEGIN";

/// The connections of one pool that wait. None do where the pool's owner may want something done between two users.
pub(crate) struct Kept {
    pool: PgPool,
    is_on: AtomicBool,
    waiting: Mutex<Waiting>,
    line: Mutex<Line>,
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
        Arc::new(Self { pool, is_on: AtomicBool::new(is_on), waiting: Mutex::default(), line: Mutex::default() })
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
        let since = Instant::now();
        let need = if statement.is_none() { Need::Begun } else { Need::Idle };
        let mut session = match self.given(need).await? {
            Given::Begun(session) => return Ok(session),
            Given::Pooled(session) => session,
            Given::Used(mut session) => {
                if PgTransactionManager::begin(&mut session, statement.clone()).await.is_ok() {
                    return Ok(session);
                }
                // It may have died in that moment. Nothing has happened on it yet: the pool finds another one.
                session.closes();
                self.from_pool_since(since).await?
            }
        };
        PgTransactionManager::begin(&mut session, statement).await?;
        Ok(session)
    }

    /// A connection for a statement that stands alone. Where such a one fails nobody knows what has happened, so one that was used a
    /// moment ago is tested, as the pool would have done.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Result<Session, sqlx::Error> {
        let since = Instant::now();
        match self.given(Need::Idle).await? {
            Given::Pooled(session) | Given::Begun(session) => Ok(session),
            Given::Used(mut session) => {
                if !self.pool.options().get_test_before_acquire() || session.ping().await.is_ok() {
                    return Ok(session);
                }
                session.closes();
                self.from_pool_since(since).await
            }
        }
    }

    /// One that waits, one of the pool's, or one that somebody is done with, whichever comes first.
    async fn given(self: &Arc<Self>, need: Need) -> Result<Given, sqlx::Error> {
        if let Some(Spare { connection, lent_at, .. }) = self.take_spare() {
            return Ok(Given::Used(self.session(connection, lent_at)));
        }
        let must_wait = || !self.has_room() || self.is_waited_for(Handle::current().id());
        if self.is_on() && must_wait() && !self.pool.is_closed() {
            return self.stand_in_line(need).await;
        }
        Ok(Given::Pooled(self.from_pool().await?))
    }

    async fn from_pool(self: &Arc<Self>) -> Result<Session, sqlx::Error> {
        Ok(self.session(self.pool.acquire().await?, Instant::now()))
    }

    /// For somebody who has waited since then.
    async fn from_pool_since(self: &Arc<Self>, since: Instant) -> Result<Session, sqlx::Error> {
        let left = self.pool.options().get_acquire_timeout().saturating_sub(since.elapsed());
        tokio::time::timeout(left, self.from_pool()).await.map_err(|_| sqlx::Error::PoolTimedOut)?
    }

    fn session(self: &Arc<Self>, connection: PoolConnection<Postgres>, lent_at: Instant) -> Session {
        let runtime = Handle::try_current().ok();
        Session { connection: Some(connection), lent_at, runtime, kept: Arc::clone(self) }
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

    /// Keeps a connection on which nothing is open, or lets it go back to the pool. Where others need it, it stays only until its last
    /// user has gone on, who may want it again at once.
    fn keep(self: &Arc<Self>, connection: PoolConnection<Postgres>, lent_at: Instant) {
        let idle_since = Instant::now();
        if !self.is_on() || self.pool.is_closed() || idle_since - lent_at > PASSED_ON_MAX {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let is_wanted = !self.has_room() || self.is_waited_for(runtime.id());
        if is_wanted && idle_since - lent_at > self.handed_on_max() {
            return;
        }
        let is_watched = {
            let mut waiting = self.lock();
            waiting.connections.push(Spare { connection, lent_at, idle_since, runtime: runtime.clone() });
            // A task ends with its runtime, and stands still where nobody drives that: each has its own.
            waiting.watched.replace(runtime.id()) == Some(runtime.id())
        };
        // Not under the lock: a runtime that shuts down drops a task where it is spawned, and that one tidies up.
        if !is_watched {
            runtime.spawn(watch(Watch { kept: Arc::downgrade(self), runtime: runtime.clone() }, self.pool.clone()));
        }
        if is_wanted {
            runtime.spawn(leave_soon(Arc::downgrade(self), idle_since));
        }
    }

    /// Whether others can have a connection of the pool without this one. Those who wait there are served in their order.
    fn has_room(&self) -> bool {
        self.pool.size() < self.pool.options().get_max_connections() || self.pool.num_idle() > 0
    }

    /// Whether it may be handed to somebody who waits, past the pool.
    fn may_hand_on(&self, session: &Session) -> bool {
        session.lent_at.elapsed() < self.handed_on_max() && !self.pool.is_closed()
    }

    fn handed_on_max(&self) -> Duration {
        HANDED_ON_MIN.max(HANDED_ON_EACH * self.pool.options().get_max_connections())
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Brings a connection back to the pool that nobody has taken by the next turn.
async fn leave_soon(kept: Weak<Kept>, idle_since: Instant) {
    tokio::task::yield_now().await;
    let Some(kept) = kept.upgrade() else { return };
    let spare = kept.lock().connections.extract_if(.., |spare| spare.idle_since == idle_since).next();
    spare.into_iter().for_each(Spare::leave);
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
    runtime: Option<Handle>,
    kept: Arc<Kept>,
}

impl Session {
    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        let is_outermost = PgTransactionManager::get_transaction_depth(&self) == 1;
        let promise = match is_outermost && self.kept.may_hand_on(&self) {
            true => self.kept.promise(Handle::current().id()),
            false => None,
        };
        let Some(promise) = promise else {
            PgTransactionManager::commit(&mut self).await?;
            self.passes_on();
            return Ok(());
        };
        if self.commit_and_begin().await? {
            promise.keep(self);
        }
        Ok(())
    }

    /// Whether another transaction has begun, too. What is answered first counts: with that the commit has taken effect, whatever
    /// becomes of the rest, be it a cancellation that the server has held back until then.
    async fn commit_and_begin(&mut self) -> Result<bool, sqlx::Error> {
        let mut answers = sqlx::raw_sql(COMMIT_AND_BEGIN).execute_many(&mut **self);
        if answers.try_next().await?.is_none() {
            return Err(sqlx::Error::Protocol("the server has not answered a COMMIT".into()));
        }
        let has_begun = matches!(answers.try_next().await, Ok(Some(_)));
        Ok(has_begun && matches!(answers.try_next().await, Ok(None)))
    }

    /// Everything that was asked was answered: the next one can have the connection as it is.
    pub(crate) fn passes_on(mut self) {
        if self.is_in_transaction() {
            return;
        }
        let kept = Arc::clone(&self.kept);
        if kept.may_hand_on(&self)
            && let Ok(runtime) = Handle::try_current()
        {
            match kept.give_used(self, runtime.id()) {
                Some(back) => self = back,
                None => return,
            }
        }
        if let Some(connection) = self.connection.take() {
            kept.keep(connection, self.lent_at);
        }
    }

    fn closes(mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.close_on_drop();
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
        if let Some(mut connection) = self.connection.take() {
            // Sent before anything else on this connection, at the latest when the pool tests it.
            PgTransactionManager::start_rollback(&mut connection);
            // It can be dropped anywhere, with a call that was given up.
            let _entered = self.runtime.as_ref().map(Handle::enter);
            drop(connection);
        }
    }
}
