//! What only PostgreSQL can do to a transaction that the store began.

use std::time::Duration;

use pillarbox_core::lease::{Claim, Lease};
use pillarbox_core::schema::SchemaPolicy;
use pillarbox_core::store::{Claimed, Enqueue, OutboxStore, Settlement, StoreOptions};
use pillarbox_core::{
    CommitError, ErrorKind, Isolation, Message, OutboxAdmin, OwnerToken, Settled, StoreTransaction, Transactional,
};
use pillarbox_postgres::{PostgresStore, PostgresTransaction};
use pillarbox_testing::{Harness, run};
use sqlx::{AssertSqlSafe, Row};

use crate::harness::{Direct, Pooler, PostgresHarness, Route, always_everything, messages, pool, with_session};

const HOUR: Duration = Duration::from_secs(3600);

/// Stores messages and claims them.
async fn claimed(store: &PostgresStore, owner: OwnerToken, count: u32) -> Vec<Claimed> {
    let messages: Vec<_> = (0..count).map(|number| Message::new("topic", number.to_string())).collect();
    store.enqueue(Enqueue::pending(&messages)).await.unwrap();
    store.claim(Claim::new(owner, HOUR, count).unwrap()).await.unwrap()
}

async fn level_of(tx: &mut PostgresTransaction) -> String {
    let row = sqlx::raw_sql("SHOW transaction_isolation").fetch_one(tx.connection()).await.unwrap();
    row.get(0)
}

async fn levels_are_as_asked_for<R: Route>() {
    let h = PostgresHarness::<R>::start(StoreOptions::default()).await;
    for _ in 0..3 {
        for (level, name) in [
            (Isolation::Serializable, "serializable"),
            (Isolation::OfDatabase, "read committed"),
            (Isolation::RepeatableRead, "repeatable read"),
            (Isolation::ReadCommitted, "read committed"),
        ] {
            let mut tx = h.store().begin_at(level).await.unwrap();
            assert_eq!(level_of(&mut tx).await, name);
            tx.commit().await.unwrap();
            let settings = StoreOptions { isolation: level, ..StoreOptions::default() };
            let mut tx = h.connect(settings).await.unwrap().begin().await.unwrap();
            assert_eq!(level_of(&mut tx).await, name);
            tx.rollback().await.unwrap();
        }
    }
}

/// The server says that a transaction has the level that was asked for, and none leaks into the next one. BUS-11, H14.
#[test]
fn a_transaction_has_the_level_that_was_asked_for() {
    run(levels_are_as_asked_for::<Direct>);
}

/// The same through a pooler, which hands each transaction to another session. BUS-11, H7, H14.
#[test]
fn a_transaction_has_the_level_that_was_asked_for_through_a_pooler() {
    run(levels_are_as_asked_for::<Pooler>);
}

/// A message whose row was touched after the snapshot, even by its own renewal, is a conflict at the levels that keep one: it is
/// not tried again in the same transaction, and nothing of that is committed. BUS-03, BUS-11, H14.
#[test]
fn a_row_that_changed_behind_a_snapshot_is_a_conflict() {
    run(|| async {
        let h = PostgresHarness::<Direct>::start(StoreOptions::default()).await;
        let owner = OwnerToken::new();
        for level in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
            let held = claimed(h.store(), owner, 1).await[0].held;
            let mut tx = h.store().begin_at(level).await.unwrap();
            h.write_row_on(&mut tx).await;
            h.store().renew(owner, &[held], HOUR).await.unwrap();
            let settled = tx.settle(h.store(), owner, &[Settlement::ack(held)]).await;
            if level == Isolation::ReadCommitted {
                assert_eq!(settled.unwrap(), [Settled::Applied]);
                tx.commit().await.unwrap();
                continue;
            }
            let error = settled.unwrap_err();
            assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, Some("40001")), "{level:?}");
            assert!(matches!(tx.commit().await, Err(CommitError::RolledBack(_))));
            assert_eq!(h.store().settle(owner, &[Settlement::ack(held)]).await.unwrap(), [Settled::Applied]);
        }
        assert_eq!(h.business_row_count().await, 1);
    });
}

/// A settle in a transaction of a store that was not told of the pooler fails as a whole or stands; the store finds out and
/// goes on. BUS-03, H7.
#[test]
fn a_settle_that_meets_a_pooler_unprepared_is_whole_or_refused() {
    run(|| async {
        let h = PostgresHarness::<Direct>::start(StoreOptions::default()).await;
        let options = StoreOptions {
            naming: h.naming.clone(),
            schema: SchemaPolicy::Assume,
            rescan_interval: Duration::ZERO,
            ..StoreOptions::default()
        };
        let store = PostgresStore::with_pool(pool(&Pooler::url()).await, options).await.unwrap();
        let owner = OwnerToken::new();
        let mut tasks = tokio::task::JoinSet::new();
        for one in claimed(h.store(), owner, 60).await {
            let store = store.clone();
            tasks.spawn(async move {
                loop {
                    let mut tx = store.begin().await.unwrap();
                    match tx.settle(&store, owner, &[Settlement::ack(one.held)]).await {
                        Ok(settled) => {
                            assert_eq!(settled, [Settled::Applied]);
                            return tx.commit().await.unwrap();
                        }
                        Err(error) => assert!(error.is_transient(), "{error}"),
                    }
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert_eq!(h.store().overview().await.unwrap().total().done, 60);
    });
}

/// Verdicts find their rows by the primary key and scan nothing, also in a transaction. BUS-03, H6.
#[test]
fn a_verdict_in_a_transaction_scans_no_table() {
    run(|| async {
        let h = PostgresHarness::<Direct>::start(StoreOptions::default()).await;
        let owner = OwnerToken::new();
        let acks: Vec<_> = claimed(h.store(), owner, 50).await.iter().map(|one| Settlement::ack(one.held)).collect();
        let mut tx = h.store().begin().await.unwrap();
        // What the session did before may not have been counted yet.
        let before = scan_count(&h, &mut tx).await;
        for ack in acks {
            assert_eq!(tx.settle(h.store(), owner, &[ack]).await.unwrap(), [Settled::Applied]);
        }
        assert_eq!(scan_count(&h, &mut tx).await, before);
        tx.commit().await.unwrap();
    });
}

async fn scan_count(h: &PostgresHarness, tx: &mut PostgresTransaction) -> i64 {
    let scans = "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_xact_user_tables
                 WHERE schemaname = '{schema}' AND relname LIKE 'outbox%'";
    let scans = AssertSqlSafe(scans.replace("{schema}", h.naming.schema().as_str()));
    sqlx::query(scans).fetch_one(tx.connection()).await.unwrap().get(0)
}

/// H11: what the server finds wrong only when it commits is a rollback, said as one.
#[test]
fn a_constraint_that_fails_at_the_commit_is_a_rollback() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        harness
            .run("CREATE TABLE {schema}.late (id int PRIMARY KEY, other int REFERENCES {schema}.late DEFERRABLE INITIALLY DEFERRED)")
            .await;
        let mut tx = harness.store().begin().await.unwrap();
        let insert = format!("INSERT INTO {}.late VALUES (1, 2)", harness.naming.schema());
        sqlx::query(AssertSqlSafe(insert)).execute(tx.connection()).await.unwrap();
        tx.enqueue(harness.store(), Enqueue::pending(&messages(1))).await.unwrap();
        let Err(CommitError::RolledBack(error)) = tx.commit().await else { panic!("must be rolled back") };
        assert_eq!((error.kind(), error.code()), (ErrorKind::Rejected, Some("23503")));
        assert_eq!(harness.number("SELECT count(*) FROM {schema}.late").await, 0);
        assert_eq!(harness.store().overview().await.unwrap().total().pending, 0);
    });
}

/// H14: of two transactions that cannot both be true, the later commit is a rollback that may be tried again.
#[test]
fn a_serialization_failure_at_the_commit_is_a_rollback() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let store = with_session(&harness, &[("default_transaction_isolation", "serializable")]).await;
        let schema = harness.naming.schema();
        let (mut one, mut two) = (store.begin().await.unwrap(), store.begin().await.unwrap());
        for tx in [&mut one, &mut two] {
            let read = format!("SELECT count(*) FROM {schema}.business");
            sqlx::query(AssertSqlSafe(read)).fetch_one(tx.connection()).await.unwrap();
            let write = format!("INSERT INTO {schema}.business DEFAULT VALUES");
            sqlx::query(AssertSqlSafe(write)).execute(tx.connection()).await.unwrap();
        }
        one.commit().await.unwrap();
        let Err(CommitError::RolledBack(error)) = two.commit().await else { panic!("must be rolled back") };
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(harness.business_row_count().await, 1);
    });
}

/// A message that was enqueued after the user's transaction was rolled back by hand stands alone, and the commit says that the
/// transaction is gone: also where its row's number was the first of a new stretch of the sequence, which gives even a lone statement
/// the number of a transaction before it writes. H9, H11.
#[test]
fn a_commit_tells_that_the_transaction_was_gone_before_the_message() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        for (count, is_known) in [(1, false), (2, false), (1, true)].repeat(40) {
            let mut tx = harness.store().begin().await.unwrap();
            harness.write_row_on(&mut tx).await;
            harness.roll_back_behind(&mut tx).await;
            let messages = messages(count);
            let enqueue = Enqueue::pending(&messages);
            tx.enqueue(harness.store(), if is_known { enqueue } else { enqueue.owned() }).await.unwrap();
            let ended = tx.commit().await;
            assert!(matches!(ended, Err(CommitError::Unknown(_))), "{ended:?}");
        }
        assert_eq!(harness.business_row_count().await, 0);
    });
}

/// Where a message follows the user's own rows, its statement shows that the transaction is open, and the commit need not ask.
/// Where it may be gone without anybody having noticed, the commit asks. H9.
#[test]
fn a_commit_asks_only_where_nothing_has_shown_that_the_transaction_is_open() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let lease = Lease::new(OwnerToken::new(), HOUR).unwrap();
        let (one, two, known) = (messages(1), messages(2), messages(1));
        let (unwritten, before) = (messages(1), messages(1));
        for (enqueue, is_last, writes, is_plain) in [
            (Enqueue::pending(&one).owned(), true, true, true),
            (Enqueue::leased(&two, lease).owned(), true, true, true),
            (Enqueue::pending(&known), true, true, true),
            (Enqueue::pending(&unwritten).owned(), true, false, false),
            (Enqueue::pending(&before).owned(), false, true, false),
        ] {
            let mut tx = harness.store().begin().await.unwrap();
            let session = harness.session_of(&mut tx).await.unwrap();
            if writes && is_last {
                harness.write_row_on(&mut tx).await;
            }
            tx.enqueue(harness.store(), enqueue).await.unwrap();
            if writes && !is_last {
                harness.write_row_on(&mut tx).await;
            }
            tx.commit().await.unwrap();
            // Where it asks, a rollback of nothing follows.
            let plain = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {session} AND query = 'COMMIT'");
            assert_eq!(harness.number(&plain).await == 1, is_plain, "last: {is_last}, writes: {writes}");
        }
    });
}
