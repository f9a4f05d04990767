//! The acceptance scenarios of the contract, on every backend. Each runs on tables of its own.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillarbox::naming::Naming;
use pillarbox::outbox::State;
use pillarbox::prelude::{
    Context, Failure, Message, MessageId, Meta, Outbox, OutboxAdmin, Raw, SchemaPolicy, StoreOptions, TypeName,
};
use pillarbox::store::Placement;
use pillarbox::{StoreError, WithInbox};
use pillarbox_core::admin::{MessageName, StoredMessage};
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::support::{attempts, on_stage, quiet, stage};

/// Runs scenarios on every backend, in a module each.
macro_rules! on_every_backend {
    ($($scenario:ident)*) => {
        on_every_backend! { @ memory Memory, $($scenario)* }
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
                    super::$scenario::<crate::acceptance::$backend>().await;
                }
            )*
        }
    };
}

pub(crate) use on_every_backend;

/// A store that the scenarios run on.
pub(crate) trait Backend: 'static {
    type Store: WithInbox + OutboxAdmin + Clone;

    fn open(options: StoreOptions, folder: &Path) -> impl Future<Output = Result<Self::Store, StoreError>>;

    /// Lets time pass where it does not pass by itself.
    fn advance(_: &Self::Store, _: Duration) {}
}

pub(crate) struct Memory;

impl Backend for Memory {
    type Store = pillarbox_testing::MemoryStore;

    async fn open(options: StoreOptions, _: &Path) -> Result<Self::Store, StoreError> {
        Ok(pillarbox_testing::MemoryStore::new(options))
    }

    fn advance(store: &Self::Store, by: Duration) {
        store.database().advance(by);
    }
}

pub(crate) struct Sqlite;

impl Backend for Sqlite {
    type Store = pillarbox::sqlite::SqliteStore;

    async fn open(options: StoreOptions, folder: &Path) -> Result<Self::Store, StoreError> {
        Self::Store::connect(&format!("sqlite:{}", folder.join("shop.db").display()), options).await
    }
}

#[cfg(feature = "postgres")]
pub(crate) struct Postgres;

#[cfg(feature = "postgres")]
impl Backend for Postgres {
    type Store = pillarbox::postgres::PostgresStore;

    async fn open(options: StoreOptions, _: &Path) -> Result<Self::Store, StoreError> {
        Self::Store::connect(&url("PILLARBOX_TEST_POSTGRES_URL"), options).await
    }
}

#[cfg(feature = "mysql")]
pub(crate) struct Mysql;

#[cfg(feature = "mysql")]
impl Backend for Mysql {
    type Store = pillarbox::mysql::MysqlStore;

    async fn open(options: StoreOptions, _: &Path) -> Result<Self::Store, StoreError> {
        Self::Store::connect(&url("PILLARBOX_TEST_MYSQL_URL"), options).await
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn url(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"))
}

pub(crate) async fn outbox<B: Backend>() -> (Outbox<B::Store>, TempDir) {
    let schema = format!("r_{}", &MessageId::new().as_uuid().simple().to_string()[16..]);
    let naming = Naming::new(schema, "outbox").unwrap();
    let options = StoreOptions { naming, schema: SchemaPolicy::Deploy, ..StoreOptions::default() };
    let folder = tempfile::tempdir().unwrap();
    (Outbox::new(B::open(options, folder.path()).await.unwrap()), folder)
}

pub(crate) async fn stored<S: OutboxAdmin>(outbox: &Outbox<S>, id: MessageId) -> Option<StoredMessage> {
    outbox.store().get(MessageName::Message(id)).await.unwrap()
}

/// HOT-24, HOT-01, HOT-02: scenario 18.1, atomicity.
async fn a_rolled_back_message_is_not_there<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let id = tx.enqueue(Message::new("order", "")).await.unwrap().message_id;
    tx.rollback().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let dropped = tx.enqueue(Message::new("order", "")).await.unwrap().message_id;
    drop(tx);
    runtime.idle().await;
    assert!(stored(&outbox, id).await.is_none());
    assert!(stored(&outbox, dropped).await.is_none());
    assert!(!director.has_more());
    assert_eq!(runtime.stats().started_count, 0);
}

/// HOT-24, HOT-03: scenario 18.2, commit and fast path.
async fn a_committed_message_takes_the_hot_path<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let (sender, mut handled) = mpsc::unbounded_channel();
    let runtime = quiet(&outbox)
        .on_topic("order", move |message: Raw| {
            let sender = sender.clone();
            async move {
                sender.send(message.payload().clone())?;
                Ok(())
            }
        })
        .start()
        .await
        .unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let id = tx.enqueue(Message::new("order", "bytes")).await.unwrap().message_id;
    tx.commit().await.unwrap();
    assert_eq!(handled.recv().await.unwrap(), "bytes");
    runtime.idle().await;
    assert_eq!(stored(&outbox, id).await.unwrap().state, State::Done);
    assert_eq!((runtime.stats().hot_count, runtime.stats().claimed_count), (1, 0));
}

/// HOT-24, HOT-04: scenario 18.3, queue overflow.
async fn what_the_hot_queue_cannot_hold_is_handled_by_the_poller<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let (stage, mut director) = stage();
    let builder = quiet(&outbox).hot_capacity(1).worker_count(1);
    let runtime = on_stage(builder, "order", &stage).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let batch = [Message::new("order", "1"), Message::new("order", "2")];
    let answers = tx.enqueue_all(batch).await.unwrap();
    assert!(matches!(answers[0].placement, Placement::Leased(_)));
    assert!(matches!(answers[1].placement, Placement::Pending(_)), "the row is there, and new");
    tx.commit().await.unwrap();
    director.go(2);
    let mut seen = [director.began().await, director.began().await];
    seen.sort();
    assert_eq!(seen, [answers[0].message_id, answers[1].message_id]);
    runtime.idle().await;
    assert_eq!(stored(&outbox, answers[1].message_id).await.unwrap().state, State::Done);
    assert_eq!((runtime.stats().hot_dropped_count, runtime.stats().claimed_count), (1, 1));
}

/// HOT-24, HOT-12, OBX-061, OBX-064: scenario 18.4, retry and dead.
async fn a_message_that_fails_is_retried_and_then_dead<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let (sender, mut failed) = mpsc::unbounded_channel();
    let runtime = quiet(&outbox)
        .poll_interval(Duration::from_millis(5))
        .retry(attempts(3))
        .on_topic("order", move |cx: Context| {
            let sender = sender.clone();
            async move {
                sender.send(cx.attempt())?;
                Err(Failure::retry("not today"))
            }
        })
        .start()
        .await
        .unwrap();
    let id = outbox.enqueue_now(Message::new("order", "")).await.unwrap().message_id;
    for attempt in 1..=3 {
        assert_eq!(failed.recv().await.unwrap(), attempt);
    }
    runtime.idle().await;
    let message = stored(&outbox, id).await.unwrap();
    assert_eq!((message.state, message.attempts), (State::Dead, 3));
    assert_eq!(message.last_error.as_deref(), Some("not today"));
    assert_eq!((runtime.stats().retried_count, runtime.stats().dead_count), (2, 1));
}

#[derive(Clone, Copy)]
enum Happened {
    OrderPlaced,
}

impl TypeName for Happened {
    fn type_name(&self) -> &str {
        match self {
            Self::OrderPlaced => "OrderPlaced",
        }
    }
}

#[derive(Clone, Copy)]
enum Thing {
    Order,
}

impl TypeName for Thing {
    fn type_name(&self) -> &str {
        match self {
            Self::Order => "Order",
        }
    }
}

/// HOT-24, HOT-17, HOT-18: scenarios 18.5 and 18.6, types that are enums.
async fn enums_name_message_and_aggregate_types<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let (sender, mut handled) = mpsc::unbounded_channel();
    let global = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&global);
    let runtime = quiet(&outbox)
        .on_type(Thing::Order, Happened::OrderPlaced, move |meta: Meta| {
            let sender = sender.clone();
            async move {
                sender.send((meta.aggregate_type().to_owned(), meta.message_type().map(str::to_owned)))?;
                Ok(())
            }
        })
        .on_message_type(Happened::OrderPlaced, move |_: Context| {
            let seen = Arc::clone(&seen);
            async move {
                seen.store(true, Ordering::SeqCst);
                Ok(())
            }
        })
        .start()
        .await
        .unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let message = Message::new("shop", "").message_type(Happened::OrderPlaced.type_name());
    tx.enqueue(message.aggregate_type(Thing::Order.type_name())).await.unwrap();
    tx.enqueue(Message::new("shop", "").message_type(Happened::OrderPlaced.type_name())).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(handled.recv().await.unwrap(), ("Order".to_owned(), Some("OrderPlaced".to_owned())));
    runtime.idle().await;
    assert!(global.load(Ordering::SeqCst), "the short form registers for messages of no aggregate");
    assert_eq!(runtime.stats().done_count, 2);
}

/// BUS-07, H23: what a runtime left that went away without a word is handled by the next one.
async fn what_was_given_back_is_handled_elsewhere<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let (stage, mut director) = stage();
    let first = on_stage(quiet(&outbox).worker_count(1), "order", &stage).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let answers = tx.enqueue_all([Message::new("order", "1"), Message::new("order", "2")]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(director.began().await, answers[0].message_id);
    let report = first.shutdown(Duration::ZERO).await;
    assert_eq!((report.interrupted, report.released, report.unsettled), (1, 1, 0));
    let second = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    director.go(2);
    second.idle().await;
    for answer in answers {
        let message = stored(&outbox, answer.message_id).await.unwrap();
        assert_eq!((message.state, message.attempts), (State::Done, 1));
    }
}

on_every_backend! {
    a_rolled_back_message_is_not_there
    a_committed_message_takes_the_hot_path
    what_the_hot_queue_cannot_hold_is_handled_by_the_poller
    a_message_that_fails_is_retried_and_then_dead
    enums_name_message_and_aggregate_types
    what_was_given_back_is_handled_elsewhere
}

/// BUS-05, H5, H29: a writer without a runtime wakes another process through the server; nobody polls.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn postgres_wakes_the_runtime_of_another_process() {
    let (outbox, folder) = outbox::<Postgres>().await;
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    while !runtime.stats().has_wakeups {
        tokio::task::yield_now().await;
    }
    runtime.idle().await;
    let options = pillarbox::OutboxStore::options(outbox.store()).clone();
    let writer = Outbox::new(Postgres::open(options, folder.path()).await.unwrap());
    let mut tx = writer.begin().await.unwrap();
    let id = tx.enqueue(Message::new("order", "")).await.unwrap().message_id;
    tx.commit().await.unwrap();
    assert_eq!(director.began().await, id);
    director.go(1);
    runtime.idle().await;
    assert_eq!(stored(&outbox, id).await.unwrap().state, State::Done);
}
