//! What only MySQL and MariaDB can do to a transaction that the store began.

use std::time::Duration;

use pillarbox_core::lease::Claim;
use pillarbox_core::store::{Claimed, Enqueue, Settlement, StoreOptions};
use pillarbox_core::{
    CommitError, ErrorKind, Isolation, Message, OutboxAdmin as _, OutboxStore as _, OwnerToken, Savepoint, Settled,
    StoreTransaction as _, Transactional as _, Verdict,
};
use pillarbox_mysql::{MysqlStore, MysqlTransaction};
use pillarbox_testing::Harness as _;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use crate::harness::{MysqlHarness, url};

const LEASE: Duration = Duration::from_secs(300);

/// Far more than anything takes that need not wait.
const PATIENCE: Duration = Duration::from_secs(20);

const LEVELS: [(Isolation, &str); 3] = [
    (Isolation::Serializable, "SERIALIZABLE"),
    (Isolation::ReadCommitted, "READ COMMITTED"),
    (Isolation::RepeatableRead, "REPEATABLE READ"),
];

async fn start() -> MysqlHarness {
    MysqlHarness::start(StoreOptions { rescan_interval: Duration::ZERO, ..StoreOptions::default() }).await
}

fn messages(count: u32) -> Vec<Message> {
    (0..count).map(|number| Message::new("topic", number.to_string())).collect()
}

/// Stores messages and claims them.
async fn claimed(store: &MysqlStore, owner: OwnerToken, count: u32) -> Vec<Claimed> {
    store.enqueue(Enqueue::pending(&messages(count))).await.unwrap();
    store.claim(Claim::new(owner, LEASE, count).unwrap()).await.unwrap()
}

fn verdicts() -> [Verdict; 2] {
    [Verdict::Ack, Verdict::Fail { reason: "why".into() }]
}

/// Which level the transaction has, by what it does: no variable tells of the one that is open.
async fn level_of(h: &MysqlHarness, tx: &mut MysqlTransaction) -> &'static str {
    let read = "SELECT note FROM {s}_deadlock WHERE id = 1";
    sqlx::raw_sql(AssertSqlSafe(h.named(read))).execute(tx.connection()).await.unwrap();
    let take = AssertSqlSafe(h.named(&format!("{read} FOR UPDATE NOWAIT")));
    if sqlx::raw_sql(take).execute(h.user()).await.is_err() {
        return "SERIALIZABLE";
    }
    let count = h.named("SELECT COUNT(*) FROM {s}_business");
    let mut seen = Vec::new();
    for _ in 0..2 {
        let row = sqlx::raw_sql(AssertSqlSafe(count.clone())).fetch_one(tx.connection()).await.unwrap();
        seen.push(row.try_get_unchecked::<i64, _>(0).unwrap());
        h.run("INSERT INTO {s}_business () VALUES ()").await;
    }
    if seen[0] == seen[1] { "REPEATABLE READ" } else { "READ COMMITTED" }
}

/// The server says that a transaction has the level that was asked for, and none leaks into the next one. BUS-11, H14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_has_the_level_that_was_asked_for() {
    let h = start().await;
    for _ in 0..3 {
        for (level, name) in LEVELS.into_iter().chain([(Isolation::OfDatabase, "REPEATABLE READ")]) {
            let mut tx = h.store().begin_at(level).await.unwrap();
            assert_eq!(level_of(&h, &mut tx).await, name);
            tx.commit().await.unwrap();
            let settings = StoreOptions { isolation: level, ..StoreOptions::default() };
            let mut tx = h.connect(settings).await.unwrap().begin().await.unwrap();
            assert_eq!(level_of(&h, &mut tx).await, name);
            tx.rollback().await.unwrap();
        }
    }
}

/// At no level does a begin commit what somebody left open on pooled connections, however many of them. BUS-11, H31.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_level_commits_what_was_left_open() {
    for (level, _) in LEVELS {
        let h = start().await;
        let mut left = Vec::new();
        for _ in 0..4 {
            let mut connection = h.store().pool().acquire().await.unwrap();
            let leave = h.named("START TRANSACTION; INSERT INTO {s}_business () VALUES ()");
            sqlx::raw_sql(AssertSqlSafe(leave)).execute(&mut *connection).await.unwrap();
            left.push(connection);
        }
        drop(left);
        for _ in 0..8 {
            h.store().begin_at(level).await.unwrap().commit().await.unwrap();
        }
        assert_eq!(h.business_row_count().await, 0, "{level:?}");
    }
}

/// Verdicts in a transaction mean the same on MySQL, which cannot do all that MariaDB can; where the server has ended the
/// transaction they are refused, because they would stand alone. BUS-03, H9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_verdict_stands_alone_after_the_transaction_has_ended() {
    let h = start().await;
    let owner = OwnerToken::new();
    for store in [h.store().clone(), h.store().as_on_mysql()] {
        for verdict in verdicts() {
            let asked = [Settlement { held: claimed(&store, owner, 1).await[0].held, verdict }];
            let mut tx = store.begin().await.unwrap();
            h.roll_back_behind(&mut tx).await;
            let refused = tx.settle(&store, owner, &asked).await.unwrap_err();
            assert!(refused.to_string().contains("no transaction is open"), "{refused}");
            assert!(matches!(tx.commit().await, Err(CommitError::RolledBack(_))));
            let mut tx = store.begin().await.unwrap();
            assert_eq!(tx.settle(&store, owner, &asked).await.unwrap(), [Settled::Applied]);
            tx.commit().await.unwrap();
        }
    }
    let total = h.store().overview().await.unwrap().total();
    assert_eq!((total.done, total.dead, total.processing), (2, 2, 0));
}

/// A savepoint that went with a deadlock says so in words about the transaction, and nothing is committed. BUS-03, H9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_that_went_with_a_deadlock_is_explained() {
    let h = start().await;
    let mut tx = h.store().begin().await.unwrap();
    tx.savepoint(Savepoint::Set(1)).await.unwrap();
    h.spoil(&mut tx).await;
    let gone = tx.savepoint(Savepoint::RollBack(1)).await.unwrap_err();
    assert!(gone.to_string().contains("after a deadlock the server has rolled it back"), "{gone}");
    assert!(matches!(tx.commit().await, Err(CommitError::RolledBack(_))));
}

/// An open transaction that has settled holds up nobody who wants other messages, at any level: not producers, not claims, not
/// other settlements. Not either when it was told that its lease is lost. BUS-03, BUS-11, H8, H14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_verdict_holds_up_nobody_else() {
    let h = start().await;
    let (owner, other) = (OwnerToken::new(), h.connect(StoreOptions::default()).await.unwrap());
    for (level, _) in LEVELS {
        for verdict in verdicts() {
            let held = claimed(h.store(), owner, 3).await;
            let mut tx = h.store().begin_at(level).await.unwrap();
            let asked = [Settlement { held: held[1].held, verdict: verdict.clone() }];
            assert_eq!(tx.settle(h.store(), owner, &asked).await.unwrap(), [Settled::Applied]);
            let rest = [Settlement::ack(held[0].held), Settlement { held: held[2].held, verdict }];
            let work = async {
                assert_eq!(other.settle(owner, &rest).await.unwrap(), [Settled::Applied; 2]);
                let next = claimed(&other, owner, 2).await;
                let acks: Vec<_> = next.iter().map(|one| Settlement::ack(one.held)).collect();
                assert_eq!(other.settle(owner, &acks).await.unwrap(), [Settled::Applied; 2]);
            };
            tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("{level:?}: nobody need wait"));
            tx.commit().await.unwrap();
        }
    }
}

/// A verdict sees what is, not what a snapshot of a stricter level shows: a message that was taken over is lost. BUS-11, H14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_does_not_look_at_the_snapshot() {
    let h = start().await;
    let (zombie, heir) = (OwnerToken::new(), OwnerToken::new());
    for (level, _) in [LEVELS[1], LEVELS[2]] {
        for verdict in verdicts() {
            let before = claimed(h.store(), zombie, 1).await[0].held;
            let mut tx = h.store().begin_at(level).await.unwrap();
            let look = AssertSqlSafe(h.named("SELECT COUNT(*) FROM {t}"));
            sqlx::raw_sql(look).fetch_one(tx.connection()).await.unwrap();
            h.advance(LEASE).await;
            let after = h.store().claim(Claim::new(heir, LEASE, 1).unwrap()).await.unwrap()[0].held;
            let asked = |held| [Settlement { held, verdict: verdict.clone() }];
            assert_eq!(tx.settle(h.store(), zombie, &asked(before)).await.unwrap(), [Settled::LeaseLost], "{level:?}");
            assert_eq!(tx.settle(h.store(), heir, &asked(after)).await.unwrap(), [Settled::Applied], "{level:?}");
            tx.commit().await.unwrap();
        }
    }
    let total = h.store().overview().await.unwrap().total();
    assert_eq!((total.done, total.dead, total.processing), (2, 2, 0));
}

/// A settle that waited too long for a lock has failed: a conflict, after which nothing of the transaction is committed, although
/// the server would. BUS-03, H9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_that_waited_too_long_is_a_conflict() {
    let h = start().await;
    let owner = OwnerToken::new();
    for verdict in verdicts() {
        let held = claimed(h.store(), owner, 1).await[0].held;
        let mut first = h.store().begin().await.unwrap();
        assert_eq!(first.settle(h.store(), owner, &[Settlement::ack(held)]).await.unwrap(), [Settled::Applied]);
        let mut second = h.store().begin().await.unwrap();
        h.write_row_on(&mut second).await;
        sqlx::raw_sql("SET SESSION innodb_lock_wait_timeout = 1").execute(second.connection()).await.unwrap();
        let refused = second.settle(h.store(), owner, &[Settlement { held, verdict }]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert!(matches!(second.commit().await, Err(CommitError::RolledBack(_))));
        first.commit().await.unwrap();
    }
    assert_eq!(h.business_row_count().await, 0);
    assert_eq!(h.store().overview().await.unwrap().total().done, 2);
}

/// Where sessions begin without autocommit nobody can tell a lost transaction from the next one: such a pool is refused. H9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_without_autocommit_are_refused() {
    let h = start().await;
    let address = h.store().pool().connect_options();
    let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(1).after_connect(|connection, _| {
        Box::pin(async move { sqlx::raw_sql("SET autocommit = 0").execute(connection).await.map(drop) })
    });
    let pool = pool.connect_with(address.as_ref().clone()).await.unwrap();
    let refused = MysqlStore::with_pool(pool, h.store().options().clone()).await.unwrap_err();
    assert!(refused.to_string().contains("autocommit"), "{refused}");
}

/// H9: MySQL has no variable to ask, and is asked in another way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_proved_on_mysql_too() {
    let h = start().await;
    let store = h.store().as_on_mysql();
    let mut tx = store.begin().await.unwrap();
    h.write_row_on(&mut tx).await;
    tx.commit().await.unwrap();
    assert_eq!(h.business_row_count().await, 1);
    let mut tx = store.begin().await.unwrap();
    tx.enqueue(&store, Enqueue::pending(&messages(1))).await.unwrap();
    h.roll_back_behind(&mut tx).await;
    let ended = tx.commit().await;
    assert!(matches!(&ended, Err(CommitError::RolledBack(error)) if error.to_string().contains("no transaction")));
    assert_eq!(h.number("SELECT COUNT(*) FROM {t}").await, 0);
}

/// H31: a plain beginning would commit what somebody left open on the pooled connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_commits_nothing_that_was_left_open() {
    let h = start().await;
    let single = sqlx::mysql::MySqlPoolOptions::new().max_connections(1).connect(&url()).await.unwrap();
    let options = StoreOptions { naming: h.store().options().naming.clone(), ..StoreOptions::default() };
    let store = MysqlStore::with_pool(single.clone(), options).await.unwrap();
    let left = h.named("START TRANSACTION; INSERT INTO {s}_business () VALUES ()");
    single.execute(AssertSqlSafe(left)).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    tx.enqueue(&store, Enqueue::pending(&messages(1))).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(h.business_row_count().await, 0);
    assert_eq!(h.number("SELECT COUNT(*) FROM {t}").await, 1);
}
