//! What only SQLite can do to a message. The numbers of hazards are those of `docs/requirements.md`.

use std::time::Duration;

use pillarbox_core::admin::{Filter, MessageName, OutboxAdmin};
use pillarbox_core::lease::Claim;
use pillarbox_core::outbox::{Settled, Verdict};
use pillarbox_core::retention::PurgeLimit;
use pillarbox_core::schema::SchemaPolicy;
use pillarbox_core::store::{Enqueue, EnqueueIn, OutboxStore, Placement, Reap, Settlement, StoreOptions};
use pillarbox_core::{ErrorKind, Message, OwnerToken, SchemaAdmin, State};
use pillarbox_sqlite::SqliteStore;
use pillarbox_testing::Harness;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

use crate::harness::SqliteHarness;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) async fn start() -> SqliteHarness {
    SqliteHarness::start(StoreOptions::default()).await
}

pub(crate) fn claim(owner: OwnerToken, limit: u32) -> Claim {
    Claim::new(owner, HOUR, limit).unwrap()
}

pub(crate) async fn enqueue(store: &SqliteStore, count: usize) {
    let messages: Vec<_> = (0..count).map(|number| Message::new("t", number.to_string())).collect();
    store.enqueue(Enqueue::pending(&messages)).await.unwrap();
}

/// Lets the disk be nearly full for this connection.
async fn limit_pages(connection: &mut SqliteConnection) {
    let pages: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(&mut *connection).await.unwrap();
    let limit = format!("PRAGMA max_page_count = {}", pages + 2);
    sqlx::raw_sql(AssertSqlSafe(limit)).execute(connection).await.unwrap();
}

#[test]
fn the_handle_can_be_shared_freely() {
    fn check<T: Clone + Send + Sync + 'static>() {}
    check::<SqliteStore>();
}

/// H10: SQLite rolls back by itself when the disk is full; what follows must not become a ghost message.
#[tokio::test]
async fn no_ghost_message_after_sqlite_rolled_back_by_itself() {
    let harness = start().await;
    let mut connection = harness.user().acquire().await.unwrap();
    limit_pages(&mut connection).await;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
    sqlx::query("INSERT INTO business (note) VALUES ('x')").execute(&mut *tx).await.unwrap();
    let full = sqlx::query("INSERT INTO business (note) VALUES (randomblob(1000000))").execute(&mut *tx).await;
    assert!(full.unwrap_err().to_string().contains("full"));

    let refused = harness.store().enqueue_in(&mut tx, Enqueue::pending(&[Message::new("t", "ghost")])).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Rejected);
    assert!(refused.to_string().contains("rolled this transaction back"), "{refused}");
    assert!(tx.commit().await.is_err());
    drop(connection);

    assert_eq!(harness.business_row_count().await, 0);
    assert_eq!(harness.store().overview().await.unwrap().total().pending, 0);
}

/// H10: the enqueue itself fills the disk. SQLite then undoes the statement alone; the transaction is whole and stays so.
#[tokio::test]
async fn an_enqueue_that_fills_the_disk_is_atomic_with_the_business_row() {
    let harness = start().await;
    let store = harness.store();
    let mut connection = harness.user().acquire().await.unwrap();
    limit_pages(&mut connection).await;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
    sqlx::query("INSERT INTO business (note) VALUES ('x')").execute(&mut *tx).await.unwrap();
    let large = [Message::new("t", ""), Message::new("t", vec![1; 1_000_000])];
    let refused = store.enqueue_in(&mut tx, Enqueue::pending(&large)).await.unwrap_err();
    assert_eq!((refused.kind(), refused.code()), (ErrorKind::Unavailable, Some("13")));
    let again = store.enqueue_in(&mut tx, Enqueue::pending(&[Message::new("t", "")])).await;
    let committed = tx.commit().await;
    assert_eq!(again.is_ok(), committed.is_ok());
    let pending = store.overview().await.unwrap().total().pending;
    assert_eq!(pending > 0, committed.is_ok());
    assert_eq!(harness.business_row_count().await > 0, committed.is_ok());
}

/// H10, H18: the store's own transaction meets a full disk, says so, and works again once there is room.
#[tokio::test]
async fn the_store_recovers_from_a_full_disk() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    let store = SqliteStore::with_pool(pool, StoreOptions::default()).await.unwrap();
    sqlx::raw_sql("PRAGMA max_page_count = 1").execute(store.pool()).await.unwrap();
    for _ in 0..3 {
        let full = store.enqueue(Enqueue::pending(&[Message::new("t", vec![1; 100_000])])).await.unwrap_err();
        assert_eq!(full.kind(), ErrorKind::Unavailable);
        assert!(full.to_string().contains("database or disk is full"), "{full}");
    }
    sqlx::raw_sql("PRAGMA max_page_count = 1000000").execute(store.pool()).await.unwrap();
    store.enqueue(Enqueue::pending(&[Message::new("t", vec![1; 100_000])])).await.unwrap();
    assert_eq!(store.claim(claim(OwnerToken::new(), 10)).await.unwrap().len(), 1);
}

/// HOT-01: a connection on which no transaction is open is refused, and left as it was.
#[tokio::test]
async fn a_connection_without_a_transaction_is_refused() {
    let harness = start().await;
    let mut connection = harness.user().acquire().await.unwrap();
    let refused = harness.store().enqueue_in(&mut *connection, Enqueue::pending(&[Message::new("t", "")])).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Rejected);
    assert!(!connection.is_in_transaction());
    let mut tx = connection.begin().await.unwrap();
    let placed = harness.store().enqueue_in(&mut *tx, Enqueue::pending(&[Message::new("t", "")])).await.unwrap();
    assert!(matches!(placed[0].placement, Placement::Pending(_)));
    tx.commit().await.unwrap();
}

/// H12: a transaction that read first and lost its snapshot is the user's; the error says how to begin it.
#[tokio::test]
async fn a_deferred_transaction_that_lost_its_snapshot_is_a_conflict() {
    let harness = start().await;
    let mut tx = harness.user().begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM business").fetch_one(&mut *tx).await.unwrap();
    enqueue(harness.store(), 1).await;
    let lost = harness.store().enqueue_in(&mut tx, Enqueue::pending(&[Message::new("t", "")])).await.unwrap_err();
    assert_eq!((lost.kind(), lost.code()), (ErrorKind::Conflict, Some("517")));
    assert!(lost.to_string().contains("BEGIN IMMEDIATE"), "{lost}");
    tx.rollback().await.unwrap();
    assert_eq!(harness.store().overview().await.unwrap().total().pending, 1);
}

/// H12: eight writers with pools of their own beside a reader that never ends; no BUSY reaches anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_and_a_long_reader_see_no_busy() {
    const ROUNDS: u64 = 40;
    let harness = start().await;
    enqueue(harness.store(), 1).await;
    let mut reader = harness.user().begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM business").fetch_one(&mut *reader).await.unwrap();

    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = harness.connect(StoreOptions::default()).await.unwrap();
        writers.spawn(async move {
            let owner = OwnerToken::new();
            let mut acked = 0u64;
            for _ in 0..ROUNDS {
                enqueue(&store, 5).await;
                let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
                sqlx::query("INSERT INTO business (note) VALUES ('x')").execute(&mut *tx).await.unwrap();
                store.enqueue_in(&mut tx, Enqueue::pending(&[Message::new("t", "")])).await.unwrap();
                tx.commit().await.unwrap();
                let claimed = store.claim(claim(owner, 6)).await.unwrap();
                let verdicts: Vec<_> = claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
                let settled = store.settle(owner, &verdicts).await.unwrap();
                acked += settled.iter().map(|settled| u64::from(*settled == Settled::Applied)).sum::<u64>();
                store.reap(Reap::default()).await.unwrap();
            }
            acked
        });
    }
    let acked: u64 = writers.join_all().await.into_iter().sum();
    reader.rollback().await.unwrap();
    let total = harness.store().overview().await.unwrap().total();
    assert_eq!((total.done, total.processing), (acked, 0));
    assert_eq!(acked + total.pending, 1 + 8 * ROUNDS * 6);
    assert_eq!(harness.business_row_count().await, 8 * ROUNDS);
}

/// H12, H23: real processes on one file, one of them killed in the middle; nobody sees BUSY, nothing is lost.
///
/// The test starts itself again; the variable tells a child which file to write to.
#[tokio::test]
async fn processes_share_a_file_and_survive_a_kill() {
    const CHILD: &str = "PILLARBOX_TEST_SQLITE_CHILD";
    const ROUNDS: usize = 50;
    if let Ok(url) = std::env::var(CHILD) {
        let (url, rounds) = url.rsplit_once(' ').unwrap();
        let store = SqliteStore::connect(url, StoreOptions::default()).await.unwrap();
        let owner = OwnerToken::new();
        for _ in 0..rounds.parse().unwrap() {
            enqueue(&store, 2).await;
            let claimed = store.claim(claim(owner, 1)).await.unwrap();
            let acks: Vec<_> = claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
            store.settle(owner, &acks).await.unwrap();
        }
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/shared.db", directory.path().display());
    let start = |rounds: usize| {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "hazards::processes_share_a_file_and_survive_a_kill"])
            .env(CHILD, format!("{url} {rounds}"))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut victim = start(usize::MAX);
    let mut writers: Vec<_> = (0..4).map(|_| start(ROUNDS)).collect();
    assert!(writers.remove(0).wait().unwrap().success());
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(writers.iter_mut().all(|writer| writer.wait().unwrap().success()));

    let store = SqliteStore::connect(&url, StoreOptions::default()).await.unwrap();
    let total = store.overview().await.unwrap().total();
    assert!(total.pending + total.processing + total.done >= (4 * ROUNDS * 2) as u64);
    assert!(total.processing <= 1, "only the victim can have left a lease");
    let sound: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(store.pool()).await.unwrap();
    assert_eq!(sound, "ok");
}

/// H12: a log that a long reader made grow shrinks below 64 MiB once the reader is gone.
#[tokio::test]
async fn the_log_is_cut_back() {
    let harness = start().await;
    let store = harness.store();
    let mut reader = harness.user().begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM business").fetch_one(&mut *reader).await.unwrap();
    for _ in 0..10 {
        let messages: Vec<_> = (0..8).map(|_| Message::new("t", vec![7; 1_000_000])).collect();
        store.enqueue(Enqueue::pending(&messages)).await.unwrap();
    }
    let log = harness.file().with_file_name("outbox.db-wal");
    assert!(log.metadata().unwrap().len() > 64 << 20);
    reader.rollback().await.unwrap();
    enqueue(store, 1).await;
    enqueue(store, 1).await;
    assert!(log.metadata().unwrap().len() <= 64 << 20);
}

/// An idle runtime writes nothing: the version of the data, as another connection sees it, does not move.
#[tokio::test]
async fn an_idle_store_does_not_write() {
    let harness = start().await;
    let store = harness.store();
    let owner = OwnerToken::new();
    let delayed = Message::new("t", "").delay(HOUR);
    store.enqueue(Enqueue::pending(&[Message::new("t", ""), delayed])).await.unwrap();
    let claimed = store.claim(claim(owner, 10)).await.unwrap();
    assert_eq!(claimed.len(), 1);

    let mut watcher = harness.user().acquire().await.unwrap();
    let mut version = async || {
        let row = sqlx::query("PRAGMA data_version").fetch_one(&mut *watcher).await.unwrap();
        row.get::<i64, _>(0)
    };
    let before = version().await;
    for _ in 0..3 {
        assert!(store.claim(claim(owner, 10)).await.unwrap().is_empty());
        assert!(store.exchange(&[], claim(owner, 10)).await.unwrap().claimed.is_empty());
        assert_eq!(store.reap_all(Default::default()).await.unwrap(), Default::default());
        assert_eq!(store.purge(PurgeLimit::default()).await.unwrap(), 0);
        assert!(store.clock().await.unwrap().is_some());
        assert!(store.settle(owner, &[]).await.unwrap().is_empty());
        store.overview().await.unwrap();
        store.deploy_schema().await.unwrap();
    }
    assert_eq!(version().await, before);
    store.settle(owner, &[Settlement::ack(claimed[0].held)]).await.unwrap();
    assert_ne!(version().await, before);
}

/// A settlement that applies to nothing writes nothing either.
#[tokio::test]
async fn an_empty_exchange_does_not_write() {
    let harness = start().await;
    let store = harness.store();
    let owner = OwnerToken::new();
    enqueue(store, 1).await;
    let first = store.claim(claim(owner, 1)).await.unwrap();
    store.settle(owner, &[Settlement::ack(first[0].held)]).await.unwrap();
    let mut watcher = harness.user().acquire().await.unwrap();
    let mut version =
        async || sqlx::query_scalar::<_, i64>("PRAGMA data_version").fetch_one(&mut *watcher).await.unwrap();
    let before = version().await;
    let exchanged = store.exchange(&[Settlement::ack(first[0].held)], claim(owner, 1)).await.unwrap();
    assert_eq!(exchanged.settled, [Settled::LeaseLost]);
    assert_eq!(version().await, before);
}

/// H1: everything is still there when the file is opened again.
#[tokio::test]
async fn a_file_keeps_everything() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/kept.db", directory.path().display());
    let owner = OwnerToken::new();
    let first = SqliteStore::connect(&url, StoreOptions::default()).await.unwrap();
    enqueue(&first, 4).await;
    let claimed = first.claim(claim(owner, 3)).await.unwrap();
    let dead = Settlement { held: claimed[1].held, verdict: Verdict::Fail { reason: "a\0b".into() } };
    first.settle(owner, &[Settlement::ack(claimed[0].held), dead]).await.unwrap();
    first.pool().close().await;
    drop(first);

    let check = StoreOptions { schema: SchemaPolicy::Check, ..StoreOptions::default() };
    let second = SqliteStore::connect(&url, check).await.unwrap();
    assert_eq!(second.id().as_str(), "sqlite:kept.db");
    let total = second.overview().await.unwrap().total();
    assert_eq!((total.pending, total.processing, total.done, total.dead), (1, 1, 1, 1));
    let dead = second.get(MessageName::Work(claimed[1].held.work_id)).await.unwrap().unwrap();
    assert_eq!((dead.state, dead.last_error.as_deref()), (State::Dead, Some("a\u{FFFD}b")));
    assert_eq!(second.settle(owner, &[Settlement::ack(claimed[2].held)]).await.unwrap(), [Settled::Applied]);
}

/// Ids are never used again, also when the newest row is gone and the file was opened anew.
#[tokio::test]
async fn ids_are_never_used_again() {
    let harness = start().await;
    let owner = OwnerToken::new();
    let mut last = 0;
    for _ in 0..3 {
        let store = harness.connect(StoreOptions::default()).await.unwrap();
        enqueue(&store, 1).await;
        let claimed = store.claim(claim(owner, 1)).await.unwrap();
        store
            .settle(owner, &[Settlement { held: claimed[0].held, verdict: Verdict::Fail { reason: "x".into() } }])
            .await
            .unwrap();
        assert_eq!(store.delete(&Filter::all(), 10).await.unwrap(), 1);
        let id = claimed[0].held.work_id.as_i64();
        assert!(id > last);
        last = id;
    }
}

/// H48: file names with characters that mean something in an address or in SQL.
#[tokio::test]
async fn odd_file_names_work() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["with space.db", "quest?ion#hash.db", "100%.db", "quote'\"`.db", "größe 📮.db", "semi;colon&amp=.db"]
    {
        let path = directory.path().join(name);
        let encoded: String =
            path.to_str().unwrap().replace('%', "%25").replace('?', "%3F").replace('#', "%23").replace(' ', "%20");
        let store = SqliteStore::connect(&format!("sqlite:{encoded}"), StoreOptions::default()).await.unwrap();
        enqueue(&store, 1).await;
        assert!(path.exists(), "{name}");
        assert_eq!(store.id().as_str(), format!("sqlite:{name}"));
        let plain = SqliteConnectOptions::new().filename(&path);
        let other = SqliteStore::connect_with(plain, StoreOptions::default()).await.unwrap();
        assert_eq!(other.claim(claim(OwnerToken::new(), 10)).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_database_in_memory_works_and_is_nobody_elses() {
    let store = SqliteStore::connect("sqlite::memory:", StoreOptions::default()).await.unwrap();
    let other = SqliteStore::connect("sqlite::memory:", StoreOptions::default()).await.unwrap();
    let owner = OwnerToken::new();
    enqueue(&store, 100).await;
    let claims = futures_util::future::join_all((0..10).map(|_| store.claim(claim(owner, 10)))).await;
    let held: Vec<_> = claims.into_iter().flat_map(Result::unwrap).map(|claimed| claimed.held).collect();
    assert_eq!(held.len(), 100);
    let exchanged =
        store.exchange(&held.iter().copied().map(Settlement::ack).collect::<Vec<_>>(), claim(owner, 1)).await;
    assert!(exchanged.unwrap().settled.iter().all(|settled| *settled == Settled::Applied));
    assert_eq!(store.overview().await.unwrap().total().done, 100);
    assert_eq!(other.overview().await.unwrap().total().done, 0);
    assert_eq!(store.id().as_str(), "sqlite:memory");
}

#[tokio::test]
async fn wrong_addresses_and_files_are_refused_with_clear_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| format!("sqlite:{}/{name}", directory.path().display());
    std::fs::write(directory.path().join("text.db"), "this is no database, only a text that is long enough".repeat(99))
        .unwrap();
    let table = [
        ("postgres://localhost/x".to_owned(), ErrorKind::Rejected, "starts with `sqlite:`"),
        (path("text.db"), ErrorKind::Rejected, "not an SQLite database"),
        (path("missing/x.db"), ErrorKind::Unavailable, "cannot be opened"),
        (path("missing.db?mode=rw"), ErrorKind::Unavailable, "cannot be opened"),
    ];
    for (url, kind, words) in table {
        let error = SqliteStore::connect(&url, StoreOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let assume = StoreOptions { schema: SchemaPolicy::Assume, ..StoreOptions::default() };
    let store = SqliteStore::connect(&path("empty.db"), assume).await.unwrap();
    let error = store.claim(claim(OwnerToken::new(), 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("pillarbox migrate"), "{error}");
}

/// Many programs open a new file at once; SQLite does not wait by itself while WAL is turned on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_instances_can_create_one_file_at_once() {
    for _ in 0..10 {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/new.db", directory.path().display());
        let connects = (0..8).map(|_| {
            let url = url.clone();
            tokio::spawn(async move { SqliteStore::connect(&url, StoreOptions::default()).await.map(drop) })
        });
        for connected in futures_util::future::join_all(connects).await {
            connected.unwrap().unwrap();
        }
    }
}

/// H31: calls that are dropped at any moment leave no transaction open and no lock behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_leave_nothing_open() {
    let harness = start().await;
    let store = harness.store();
    let owner = OwnerToken::new();
    for round in 0..200u64 {
        let patience = Duration::from_micros(round * 10);
        let _ = tokio::time::timeout(patience, store.enqueue(Enqueue::pending(&[Message::new("t", "")]))).await;
        let _ = tokio::time::timeout(patience, store.claim(claim(owner, 1))).await;
        let _ = tokio::time::timeout(patience, store.overview()).await;
    }
    enqueue(store, 1).await;
    harness.run("INSERT INTO business (note) VALUES ('the write lock is free')").await;
    let total = store.overview().await.unwrap().total();
    assert!(total.pending + total.processing > 0);
}
