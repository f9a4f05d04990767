//! Workers that are killed with SIGKILL at named points: whatever they held is handled by another process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

/// Runs scenarios on every backend, in a module each.
macro_rules! on_every_backend {
    ($($scenario:ident)*) => {
        on_every_backend! { @ sqlite Sqlite, $($scenario)* }
        #[cfg(feature = "postgres")]
        on_every_backend! { @ postgres Postgres, $($scenario)* }
        #[cfg(feature = "mysql")]
        on_every_backend! { @ mysql Mysql, $($scenario)* }
    };
    (@ $module:ident $backend:ident, $($scenario:ident)*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    super::$scenario::<crate::$backend>().await;
                }
            )*
        }
    };
}

#[cfg(all(feature = "postgres", feature = "mysql"))]
mod fleet;
mod halting;
mod intake;
mod survivor;
mod transactional;
#[cfg(feature = "webhook")]
mod webhook;
mod worker;

use std::future::Future;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use pillarbox::WithInbox;
use pillarbox::admin::{Filter, ListQuery, StoredMessage};
use pillarbox::naming::Naming;
use pillarbox::outbox::State;
use pillarbox::prelude::*;
use pillarbox::retention::KEEP_DEFAULT;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use halting::Point;
use worker::{WORKER, Worker, reached};

const TOPIC: &str = "order";

/// Messages in every test.
const COUNT: usize = 5;

/// The lease of the workers that are killed.
const LEASE: Duration = Duration::from_secs(1);

/// How often the process that takes over looks.
const POLL: Duration = Duration::from_millis(50);

/// How long it may take until everything is taken over; the promise, not what is usual.
const TAKE_OVER: Duration = LEASE.saturating_add(POLL).saturating_add(Duration::from_secs(1));

/// Far longer than it takes: a test that hangs says so.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the tables of one test are.
struct Place {
    url: String,
    schema: String,
}

trait Backend: 'static {
    const NAME: &str;
    type Store: WithInbox + OutboxAdmin;

    fn url(folder: &TempDir) -> String;
    fn open(place: &Place) -> impl Future<Output = Self::Store> + Send;
}

struct Sqlite;

impl Backend for Sqlite {
    const NAME: &str = "sqlite";
    type Store = pillarbox::sqlite::SqliteStore;

    fn url(folder: &TempDir) -> String {
        format!("sqlite:{}", folder.path().join("shop.db").display())
    }

    async fn open(place: &Place) -> Self::Store {
        Self::Store::connect(&place.url, options(place)).await.unwrap()
    }
}

#[cfg(feature = "postgres")]
struct Postgres;

#[cfg(feature = "postgres")]
impl Backend for Postgres {
    const NAME: &str = "postgres";
    type Store = pillarbox::postgres::PostgresStore;

    fn url(_: &TempDir) -> String {
        server("PILLARBOX_TEST_POSTGRES_URL")
    }

    async fn open(place: &Place) -> Self::Store {
        Self::Store::connect(&place.url, options(place)).await.unwrap()
    }
}

#[cfg(feature = "mysql")]
struct Mysql;

#[cfg(feature = "mysql")]
impl Backend for Mysql {
    const NAME: &str = "mysql";
    type Store = pillarbox::mysql::MysqlStore;

    fn url(_: &TempDir) -> String {
        server("PILLARBOX_TEST_MYSQL_URL")
    }

    async fn open(place: &Place) -> Self::Store {
        Self::Store::connect(&place.url, options(place)).await.unwrap()
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn server(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"))
}

/// Tables of their own for one test.
fn fresh_place<B: Backend>() -> (Place, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let schema = format!("k_{}", &MessageId::new().as_uuid().simple().to_string()[16..]);
    (Place { url: B::url(&folder), schema }, folder)
}

/// Messages are kept whole, so that the tests can look at them afterwards; nobody is blamed for the kills.
fn options(place: &Place) -> StoreOptions {
    let naming = Naming::new(place.schema.as_str(), "outbox").unwrap();
    let retention = Retention::Message(KEEP_DEFAULT);
    StoreOptions { naming, retention, lost_leases_max: u32::MAX, ..StoreOptions::default() }
}

/// Tables, what a killed worker left in them, and the outbox of another process.
struct Scene<B: Backend> {
    outbox: Outbox<B::Store>,
    _folder: TempDir,
}

impl<B: Backend> Scene<B> {
    /// Messages wait; a worker takes them and is killed at the point.
    async fn after_a_kill(point: Point, waiting: usize) -> Self {
        let (place, folder) = fresh_place::<B>();
        let outbox = Outbox::new(B::open(&place).await);
        for number in 0..waiting {
            outbox.enqueue_now(Message::new(TOPIC, number.to_string())).await.unwrap();
        }
        let mut worker = Worker::start::<B>(WORKER, &place, Some(&point.to_string()));
        timeout(PATIENCE, reached(&mut worker, point)).await.expect("the worker reaches its point");
        assert_eq!(worker.kill().signal(), Some(9), "it was killed, and did not end by itself");
        Self { outbox, _folder: folder }
    }

    async fn stored(&self, state: State) -> Vec<StoredMessage> {
        let query = ListQuery { state, filter: Filter::default(), after: None, limit: 100 };
        self.outbox.store().list(&query).await.unwrap().messages
    }

    /// Another process takes over: waits until it has begun `count` attempts and has nothing left to do.
    async fn take_over(&self, count: usize) -> Vec<u32> {
        let (sender, mut began) = mpsc::unbounded_channel();
        let runtime = Runtime::builder(&self.outbox)
            .poll_interval(POLL)
            .idle_interval(POLL)
            .on_topic(TOPIC, move |attempt: Attempt| {
                sender.send(attempt.0).unwrap();
                async { Ok(()) }
            })
            .start()
            .await
            .unwrap();
        let deadline = Instant::now() + TAKE_OVER;
        let mut attempts = Vec::new();
        for _ in 0..count {
            attempts.push(timeout_at(deadline, began.recv()).await.expect("it is taken over in time").unwrap());
        }
        runtime.idle().await;
        assert!(began.is_empty(), "nothing more than what was left");
        runtime.shutdown(Duration::ZERO).await;
        attempts
    }

    /// Every message is done once, with this many attempts and lost leases.
    async fn all_are_done(&self, count: usize, attempts: u32, lost_leases: u32) {
        let done = self.stored(State::Done).await;
        let counted: Vec<_> = done.iter().map(|message| (message.attempts, message.lost_lease_count)).collect();
        assert_eq!(counted, vec![(attempts, lost_leases); count]);
        for state in [State::Pending, State::Processing, State::Dead] {
            assert!(self.stored(state).await.is_empty(), "{state:?}");
        }
    }
}

/// H23, BUS-07: claimed, and killed before any handler began.
async fn messages_that_were_only_claimed_are_taken_over<B: Backend>() {
    let scene = Scene::<B>::after_a_kill(Point::Claimed, COUNT).await;
    assert_eq!(scene.stored(State::Processing).await.len(), COUNT);
    assert_eq!(scene.take_over(COUNT).await, [2; COUNT]);
    scene.all_are_done(COUNT, 2, 1).await;
}

/// H23, BUS-07: killed inside of a handler, while others wait in its memory.
async fn a_message_whose_handler_was_killed_is_handled_again<B: Backend>() {
    let scene = Scene::<B>::after_a_kill(Point::InHandler, COUNT).await;
    assert_eq!(scene.stored(State::Processing).await.len(), COUNT);
    assert_eq!(scene.take_over(COUNT).await, [2; COUNT]);
    scene.all_are_done(COUNT, 2, 1).await;
}

/// H23, BUS-07, H7: the effect took place, the verdict was never written: at least once means twice here.
async fn a_message_that_was_handled_but_not_settled_is_handled_again<B: Backend>() {
    let scene = Scene::<B>::after_a_kill(Point::BeforeSettle, COUNT).await;
    assert_eq!(scene.stored(State::Processing).await.len(), COUNT);
    assert_eq!(scene.take_over(COUNT).await, [2; COUNT]);
    scene.all_are_done(COUNT, 2, 1).await;
}

/// H23, H7: the verdict was written, and its writer never learned of it.
async fn a_message_that_was_settled_is_not_handled_again<B: Backend>() {
    let scene = Scene::<B>::after_a_kill(Point::AfterSettle, 1).await;
    scene.all_are_done(1, 1, 0).await;
    assert_eq!(scene.take_over(0).await, [0; 0]);
    scene.all_are_done(1, 1, 0).await;
}

/// H23, HOT-03: committed and born leased, killed before they were handed over in memory.
async fn messages_committed_but_not_handed_over_are_taken_over<B: Backend>() {
    let scene = Scene::<B>::after_a_kill(Point::Committed, 0).await;
    assert_eq!(scene.stored(State::Processing).await.len(), COUNT, "born leased, and in the database");
    assert_eq!(scene.take_over(COUNT).await, [2; COUNT]);
    scene.all_are_done(COUNT, 2, 1).await;
}

/// H23, HOT-13: whatever is left when a shutdown is cut short stays in the database.
async fn messages_of_a_shutdown_that_was_killed_are_taken_over<B: Backend>() {
    let scene = Scene::<B>::after_a_kill(Point::ShuttingDown, COUNT).await;
    assert_eq!(scene.stored(State::Processing).await.len(), COUNT);
    assert_eq!(scene.take_over(COUNT).await, [2; COUNT]);
    scene.all_are_done(COUNT, 2, 1).await;
}

on_every_backend! {
    messages_that_were_only_claimed_are_taken_over
    a_message_whose_handler_was_killed_is_handled_again
    a_message_that_was_handled_but_not_settled_is_handled_again
    a_message_that_was_settled_is_not_handled_again
    messages_committed_but_not_handed_over_are_taken_over
    messages_of_a_shutdown_that_was_killed_are_taken_over
}
