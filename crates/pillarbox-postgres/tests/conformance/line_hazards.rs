//! Connections that go to whoever waits for one, past the pool.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use pillarbox_core::store::{BoxFuture, Enqueue, OutboxStore as _};
use pillarbox_core::{CommitError, OutboxAdmin, StoreError, StoreTransaction, Transactional};
use pillarbox_postgres::{PostgresStore, PostgresTransaction};
use pillarbox_testing::{Harness, run};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Postgres, Row};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::harness::{Direct, PostgresHarness, Route, claim, messages};
use crate::kept_hazards::{beside, options, pid, start, transact};

/// A store with so many connections, which it passes on; and how often its pool was asked.
async fn counting(h: &PostgresHarness, connections_max: u32) -> (PostgresStore, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let options = options(connections_max).before_acquire(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(true) })
    });
    (beside(h, options.connect(&Direct::url()).await.unwrap()).await.reusing_connections(), asked)
}

/// The same for futures that outlive the place where they were made.
async fn leaked(h: &PostgresHarness, connections_max: u32) -> &'static PostgresStore {
    Box::leak(Box::new(counting(h, connections_max).await.0))
}

/// Writes, and stores a message last: then the commit has nothing to ask.
async fn write(store: &PostgresStore, tx: &mut PostgresTransaction) {
    sqlx::raw_sql("CREATE TEMPORARY TABLE written (id int) ON COMMIT DROP").execute(tx.connection()).await.unwrap();
    tx.enqueue(store, Enqueue::pending(&messages(1)).owned()).await.unwrap();
}

async fn shown(tx: &mut PostgresTransaction, setting: &str) -> String {
    sqlx::raw_sql(AssertSqlSafe(format!("SHOW {setting}"))).fetch_one(tx.connection()).await.unwrap().get(0)
}

/// A connection that was lent for long goes back: on a slow machine it takes a few tries to see one that was not.
const TRIES_MAX: u64 = 200;

/// Where the pool has nothing left, the first who waits for a transaction has it begun by the commit of another, past the pool;
/// nothing that one has set for itself comes with it. BUS-11.
#[test]
fn whoever_waits_has_what_another_is_done_with() {
    run(|| async {
        let h = start().await;
        let (store, asked) = counting(&h, 1).await;
        for _ in 0..TRIES_MAX {
            let mut first = store.begin().await.unwrap();
            let before = asked.load(Ordering::SeqCst);
            sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SET LOCAL work_mem = '1MB'")
                .execute(first.connection())
                .await
                .unwrap();
            write(&store, &mut first).await;
            let mut second = store.begin();
            assert_waits(second.as_mut());
            first.commit().await.unwrap();
            let is_past_the_pool = asked.load(Ordering::SeqCst) == before;
            let committed = moment(&h).await;
            let mut second = second.await.unwrap();
            let has_begun = began_at(&mut second).await <= committed;
            assert_eq!(shown(&mut second, "transaction_isolation").await, "read committed");
            assert_ne!(shown(&mut second, "work_mem").await, "1MB");
            write(&store, &mut second).await;
            second.commit().await.unwrap();
            if has_begun {
                assert!(is_past_the_pool);
                return;
            }
        }
        panic!("no commit has begun a transaction");
    });
}

/// Microseconds, by the server's clock.
async fn moment(h: &PostgresHarness) -> i64 {
    h.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await
}

async fn began_at(tx: &mut PostgresTransaction) -> i64 {
    let began = "SELECT (extract(epoch FROM now()) * 1000000)::bigint";
    sqlx::raw_sql(began).fetch_one(tx.connection()).await.unwrap().get(0)
}

/// A transaction never begins before somebody wanted it: its time stands in the user's rows. BUS-11.
#[test]
fn a_transaction_is_no_older_than_the_wish_for_it() {
    run(|| async {
        let h = Arc::new(start().await);
        let (store, _) = counting(&h, 2).await;
        let tasks = (0..8).map(|_| {
            let (store, h) = (store.clone(), Arc::clone(&h));
            tokio::spawn(async move {
                for _ in 0..20 {
                    let wanted = moment(&h).await;
                    let mut tx = store.begin().await.unwrap();
                    assert!(began_at(&mut tx).await >= wanted);
                    write(&store, &mut tx).await;
                    tx.commit().await.unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(h.store().overview().await.unwrap().total().pending, 160);
    });
}

/// A commit that hangs until it is let go, and is to begin a transaction for somebody who waits; and another transaction.
struct Promise {
    gate: PoolConnection<Postgres>,
    schema: String,
    slow: JoinHandle<Result<(), CommitError>>,
    second: PostgresTransaction,
    waits: BoxFuture<'static, Result<PostgresTransaction, StoreError>>,
}

impl Promise {
    async fn made(h: &PostgresHarness, store: &'static PostgresStore) -> Self {
        let setup = "CREATE TABLE {schema}.slow (id int);
            CREATE FUNCTION {schema}.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                PERFORM pg_advisory_xact_lock_shared(hashtext('{schema}'));
                RETURN NULL;
            END $$;
            CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON {schema}.slow DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION {schema}.wait()";
        h.run(setup).await;
        for _ in 0..TRIES_MAX {
            let (promise, pid) = Self::tried(h, store).await;
            let commits =
                format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND query LIKE 'COMMIT; BEGIN%'");
            if h.number(&commits).await == 1 {
                return promise;
            }
            promise.let_go().await;
        }
        panic!("no commit has begun a transaction");
    }

    async fn tried(h: &PostgresHarness, store: &'static PostgresStore) -> (Self, i32) {
        let (mut first, mut second) = (store.begin().await.unwrap(), store.begin().await.unwrap());
        let mut gate = h.pool.acquire().await.unwrap();
        let schema = h.naming.schema().as_str().to_owned();
        let lock = AssertSqlSafe(format!("SELECT pg_advisory_lock(hashtext('{schema}'))"));
        sqlx::raw_sql(lock).execute(&mut *gate).await.unwrap();
        let insert = AssertSqlSafe(format!("INSERT INTO {schema}.slow VALUES (1)"));
        sqlx::raw_sql(insert).execute(first.connection()).await.unwrap();
        let pid = pid(&mut first).await;
        write(store, &mut second).await;
        write(store, &mut first).await;
        let mut waits = store.begin();
        assert_waits(waits.as_mut());
        let slow = tokio::spawn(first.commit());
        let hangs =
            format!("SELECT count(*) FROM pg_locks WHERE pid = {pid} AND locktype = 'advisory' AND NOT granted");
        while h.number(&hangs).await == 0 {}
        (Self { gate, schema, slow, second, waits }, pid)
    }

    async fn let_go(self) {
        open(self.gate, &self.schema).await;
        self.slow.await.unwrap().unwrap();
        self.second.rollback().await.unwrap();
        self.waits.await.unwrap().rollback().await.unwrap();
    }
}

async fn open(mut gate: PoolConnection<Postgres>, schema: &str) {
    let unlock = AssertSqlSafe(format!("SELECT pg_advisory_unlock(hashtext('{schema}'))"));
    sqlx::raw_sql(unlock).execute(&mut *gate).await.unwrap();
}

fn assert_waits<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) {
    assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// The same where a commit takes long, and who waited for its connection has had another one meanwhile. BUS-11.
#[test]
fn a_slow_commit_begins_nothing_for_those_who_come_later() {
    run(|| async {
        let h = start().await;
        let store = leaked(&h, 2).await;
        let Promise { gate, schema, slow, second, waits } = Promise::made(&h, store).await;
        second.commit().await.unwrap();
        let waited = waits.await.unwrap();
        let mut late = store.begin();
        let wanted = moment(&h).await;
        assert_waits(late.as_mut());
        open(gate, &schema).await;
        slow.await.unwrap().unwrap();
        assert!(began_at(&mut late.await.unwrap()).await >= wanted);
        drop(waited);
    });
}

/// Whoever is promised the connection of a commit that hangs has another one, however many come behind. H35.
#[test]
fn a_commit_that_hangs_keeps_nobody_waiting() {
    run(|| async {
        let h = start().await;
        let store = leaked(&h, 2).await;
        let Promise { gate, schema, slow, second, waits } = Promise::made(&h, store).await;
        let (ends, tasks) = crowd(store, 4);
        second.commit().await.unwrap();
        waits.await.unwrap().rollback().await.unwrap();
        ends.store(true, Ordering::SeqCst);
        for task in tasks {
            task.await.unwrap();
        }
        open(gate, &schema).await;
        slow.await.unwrap().unwrap();
    });
}

/// So many that transact until they are told to end.
fn crowd(store: &PostgresStore, count: usize) -> (Arc<AtomicBool>, Vec<tokio::task::JoinHandle<()>>) {
    let ends = Arc::new(AtomicBool::new(false));
    let tasks = (0..count).map(|_| {
        let (store, ends) = (store.clone(), Arc::clone(&ends));
        tokio::spawn(async move {
            while !ends.load(Ordering::SeqCst) {
                transact(&store).await;
            }
        })
    });
    (Arc::clone(&ends), tasks.collect())
}

/// A claim that waits is not overtaken by transactions that came later. H35.
#[test]
fn the_first_in_the_line_is_the_first_to_go() {
    run(|| async {
        let h = start().await;
        let (store, _) = counting(&h, 1).await;
        let mut first = store.begin().await.unwrap();
        write(&store, &mut first).await;
        let (mut call, mut later) = (store.claim(claim(1)), store.begin());
        assert_waits(call.as_mut());
        assert_waits(later.as_mut());
        first.commit().await.unwrap();
        // Had the other one the connection, this would wait in vain: nobody drives it.
        assert_eq!(call.await.unwrap().len(), 1);
        later.await.unwrap().rollback().await.unwrap();
    });
}

/// A way to the server that ends behind the answer to a commit that begins another transaction, while it is told to.
struct Cutter {
    url: String,
    is_on: Arc<AtomicBool>,
    has_cut: Arc<AtomicBool>,
}

impl Cutter {
    async fn start() -> Self {
        let url = Direct::url();
        let (before, rest) = url.split_once('@').unwrap();
        let (server, database) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{before}@{}/{database}", listener.local_addr().unwrap());
        let (is_on, has_cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (server, passes, cuts) = (server.to_owned(), Arc::clone(&is_on), Arc::clone(&has_cut));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let upstream = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(pass(client, upstream, Arc::clone(&passes), Arc::clone(&cuts)));
            }
        });
        Self { url, is_on, has_cut }
    }
}

async fn pass(client: TcpStream, server: TcpStream, is_on: Arc<AtomicBool>, has_cut: Arc<AtomicBool>) {
    let ((mut asked, mut told), (mut answered, mut asks)) = (client.into_split(), server.into_split());
    let is_asked = Arc::new(AtomicBool::new(false));
    let asks_it = Arc::clone(&is_asked);
    let up = tokio::spawn(async move {
        let (mut piece, mut question) = (vec![0; 64 << 10], Finder::of(b"COMMIT; BEGIN"));
        while let Ok(size @ 1..) = asked.read(&mut piece).await {
            if question.find(&piece[..size]).is_some() && is_on.load(Ordering::SeqCst) {
                asks_it.store(true, Ordering::SeqCst);
            }
            asks.write_all(&piece[..size]).await.unwrap();
        }
    });
    let (mut piece, mut answer) = (vec![0; 64 << 10], Finder::of(b"COMMIT\0"));
    while let Ok(size @ 1..) = answered.read(&mut piece).await {
        let cut = answer.find(&piece[..size]).filter(|_| is_asked.load(Ordering::SeqCst));
        if cut.is_some() {
            has_cut.store(true, Ordering::SeqCst);
        }
        told.write_all(&piece[..cut.unwrap_or(size)]).await.unwrap();
        if cut.is_some() {
            break;
        }
    }
    up.abort();
}

/// Finds bytes in a stream that comes in pieces.
struct Finder {
    wanted: &'static [u8],
    seen: Vec<u8>,
}

impl Finder {
    fn of(wanted: &'static [u8]) -> Self {
        Self { wanted, seen: Vec::new() }
    }

    /// Where they end in this piece.
    fn find(&mut self, piece: &[u8]) -> Option<usize> {
        let before = self.seen.len();
        self.seen.extend_from_slice(piece);
        let at = self.seen.windows(self.wanted.len()).position(|window| window == self.wanted);
        self.seen.drain(..self.seen.len().saturating_sub(self.wanted.len() - 1));
        at.map(|at| at + self.wanted.len() - before)
    }
}

/// Once the server has said that it has committed, nothing that follows makes a failure of it: what was written is not written
/// again. H1.
#[test]
fn what_fails_behind_a_commit_does_not_undo_it() {
    run(|| async {
        let h = start().await;
        let cutter = Cutter::start().await;
        let store = beside(&h, options(1).connect(&cutter.url).await.unwrap()).await.reusing_connections();
        let mut written = 0;
        while !cutter.has_cut.load(Ordering::SeqCst) {
            assert!(written < TRIES_MAX, "no commit has begun a transaction");
            let mut first = store.begin().await.unwrap();
            write(&store, &mut first).await;
            let mut second = store.begin();
            assert_waits(second.as_mut());
            cutter.is_on.store(true, Ordering::SeqCst);
            let committed = first.commit().await;
            cutter.is_on.store(false, Ordering::SeqCst);
            committed.unwrap();
            let mut second = second.await.unwrap();
            write(&store, &mut second).await;
            second.commit().await.unwrap();
            written += 2;
            assert_eq!(h.store().overview().await.unwrap().total().pending, written);
        }
    });
}

/// Commits that fail, sessions that end and waiters that give up: whoever waits on has a connection in the end, and none is lost.
/// H1, H11, H31.
#[test]
fn those_who_wait_outlive_the_failures_of_others() {
    run(|| async {
        let h = start().await;
        h.run("CREATE TABLE {schema}.late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)").await;
        h.run("INSERT INTO {schema}.late VALUES (1)").await;
        let (store, _) = counting(&h, 1).await;
        for way in 0..3 {
            let mut first = store.begin().await.unwrap();
            let (mut given_up, mut second) = (store.claim(claim(1)), store.begin());
            assert_waits(given_up.as_mut());
            assert_waits(second.as_mut());
            drop(given_up);
            let pid = pid(&mut first).await;
            if way == 0 {
                let late = AssertSqlSafe(format!("INSERT INTO {}.late VALUES (1)", h.naming.schema()));
                sqlx::raw_sql(late).execute(first.connection()).await.unwrap();
            }
            write(&store, &mut first).await;
            if way == 1 {
                let end = AssertSqlSafe(format!("SELECT pg_terminate_backend({pid}, 30000)"));
                sqlx::raw_sql(end).execute(&h.pool).await.unwrap();
            }
            assert_eq!(first.commit().await.is_ok(), way == 2);
            let mut second = second.await.unwrap();
            write(&store, &mut second).await;
            second.commit().await.unwrap();
        }
        assert_eq!(h.store().overview().await.unwrap().total().pending, 4);
        store.pool().close().await;
        assert_eq!(store.pool().size(), 0);
    });
}

/// Transactions that hand the only connection to each other leave it to those who ask the pool, and to calls of the store. H35.
#[test]
fn a_line_that_never_ends_lets_others_in() {
    run(|| async {
        let h = start().await;
        let (store, _) = counting(&h, 1).await;
        let (ends, tasks) = crowd(&store, 4);
        for _ in 0..5 {
            let mut own = store.pool().acquire().await.unwrap();
            sqlx::raw_sql("SELECT").execute(&mut *own).await.unwrap();
            drop(own);
            store.overview().await.unwrap();
        }
        ends.store(true, Ordering::SeqCst);
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// What the pool's owner has it call, and panics, costs the one for whom it was called, and nobody else in the line. H30.
#[test]
fn a_hook_that_panics_costs_one_of_them() {
    run(|| async {
        let h = start().await;
        let panics = Arc::new(AtomicBool::new(false));
        let hook = Arc::clone(&panics);
        let options = options(1).before_acquire(move |_, _| {
            assert!(!hook.swap(false, Ordering::SeqCst), "as the test wants it");
            Box::pin(async { Ok(true) })
        });
        let store = beside(&h, options.connect(&Direct::url()).await.unwrap()).await.reusing_connections();
        let first = store.begin().await.unwrap();
        let (mut second, mut third) = (store.claim(claim(1)), store.begin());
        assert_waits(second.as_mut());
        assert_waits(third.as_mut());
        panics.store(true, Ordering::SeqCst);
        first.rollback().await.unwrap();
        assert!(second.await.is_err());
        third.await.unwrap().rollback().await.unwrap();
    });
}

/// A runtime that ends in the middle of everything ends: what comes back in that moment finds no lock that is held. H32.
#[test]
fn a_runtime_ends_while_connections_come_back() {
    let harness = std::sync::Mutex::new(None);
    run(|| async {
        *harness.lock().unwrap() = Some(start().await);
    });
    let h = harness.lock().unwrap().take().unwrap();
    for connections_max in [1, 2, 4].into_iter().cycle().take(30) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let (store, _) = counting(&h, connections_max).await;
            let done = Arc::new(tokio::sync::Semaphore::new(0));
            for _ in 0..4 {
                let (store, done) = (store.clone(), Arc::clone(&done));
                tokio::spawn(async move {
                    loop {
                        transact(&store).await;
                        done.add_permits(1);
                    }
                });
            }
            let _ = done.acquire_many(8).await.unwrap();
        });
        drop(runtime);
    }
    drop(h);
}

/// A call that was given a connection, and is dropped where no runtime is, gives it back. H31.
#[test]
fn a_call_is_given_up_anywhere() {
    let harness = std::sync::Mutex::new(None);
    run(|| async {
        *harness.lock().unwrap() = Some(start().await);
    });
    let h = harness.lock().unwrap().take().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = runtime.block_on(leaked(&h, 1));
    for _ in 0..10 {
        let mut call = store.claim(claim(1));
        runtime.block_on(async {
            let mut first = store.begin().await.unwrap();
            write(store, &mut first).await;
            assert_waits(call.as_mut());
            first.commit().await.unwrap();
        });
        drop(call);
        runtime.block_on(async { store.begin().await.unwrap().rollback().await.unwrap() });
    }
    runtime.block_on(store.pool().close());
    drop(h);
}
