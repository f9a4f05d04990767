//! Hazards of MySQL and MariaDB.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::admin::MessageName;
use pillarbox_core::lease::{Claim, Lease};
use pillarbox_core::retention::{PurgeLimit, Retention};
use pillarbox_core::store::{Enqueue, EnqueueIn as _, Placement, Settlement, StoreOptions};
use pillarbox_core::{ErrorKind, Message, OutboxAdmin as _, OutboxStore as _, OwnerToken, Settled, State, StoreError};
use pillarbox_mysql::MysqlStore;
use pillarbox_testing::{Harness as _, TripCounter, batches_of_every_kind};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection, Row as _};

use crate::harness::{MysqlHarness, url};

const LEASE: Duration = Duration::from_secs(300);

const ISOLATIONS: [&str; 4] = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

pub(crate) async fn start() -> MysqlHarness {
    start_with(Retention::default()).await
}

async fn start_with(retention: Retention) -> MysqlHarness {
    let options = StoreOptions { retention, rescan_interval: Duration::ZERO, ..StoreOptions::default() };
    MysqlHarness::start(options).await
}

pub(crate) async fn connection() -> MySqlConnection {
    MySqlConnection::connect(&url()).await.unwrap()
}

pub(crate) async fn run(connection: &mut MySqlConnection, sql: String) {
    connection.execute(AssertSqlSafe(sql)).await.unwrap();
}

pub(crate) fn claim(owner: OwnerToken, limit: u32) -> Claim {
    Claim::new(owner, LEASE, limit).unwrap()
}

/// Both ways in: one message takes a routine, several an insert; and both kinds of servers.
async fn enqueue_each_way(
    h: &MysqlHarness,
    connection: &mut MySqlConnection,
) -> Vec<Result<Vec<pillarbox_core::store::Enqueued>, StoreError>> {
    let mut answers = Vec::new();
    for store in [h.store().clone(), h.store().as_on_mysql()] {
        for count in [1, 3] {
            let batch = vec_of(count);
            answers.push(store.enqueue_in(&mut *connection, Enqueue::pending(&batch)).await);
        }
    }
    answers
}

pub(crate) fn vec_of(count: usize) -> Vec<Message> {
    (0..count).map(|_| Message::new("t", "p")).collect()
}

fn is_refused(answer: &Result<Vec<pillarbox_core::store::Enqueued>, StoreError>) -> bool {
    answer.as_ref().is_err_and(|e| e.kind() == ErrorKind::Rejected && e.to_string().contains("no transaction is open"))
}

/// H8: workers, producers and purges at once surface no deadlock and lose nothing, whatever the producers' isolation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_producers_and_purges_surface_no_deadlock() {
    let h = Arc::new(start_with(Retention::Message(Duration::ZERO)).await);
    let producers: Vec<_> = (0..8)
        .map(|number| {
            let h = Arc::clone(&h);
            tokio::spawn(async move {
                let mut sent = Vec::new();
                for round in 0..20 {
                    let isolation = ISOLATIONS[1 + (number + round) % 2];
                    let mut tx = h.user().acquire().await.unwrap();
                    run(&mut tx, format!("SET TRANSACTION ISOLATION LEVEL {isolation}")).await;
                    let mut tx = tx.begin().await.unwrap();
                    let batch = vec_of(1 + round % 4);
                    let answer = h.store().enqueue_in(&mut tx, Enqueue::pending(&batch)).await.unwrap();
                    assert!(answer.iter().all(|one| one.placement.work_id().is_some()));
                    tx.commit().await.unwrap();
                    sent.extend(batch.iter().map(Message::id));
                }
                sent
            })
        })
        .collect();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let workers: Vec<_> = (0..16)
        .map(|_| {
            let (h, stopped) = (Arc::clone(&h), stopped.clone());
            tokio::spawn(async move {
                let (owner, mut seen, mut held) = (OwnerToken::new(), Vec::new(), Vec::new());
                loop {
                    let last = *stopped.borrow();
                    let exchanged = h.store().exchange(&held, claim(owner, 5)).await.unwrap();
                    assert!(exchanged.settled.iter().all(|settled| *settled == Settled::Applied));
                    held = exchanged.claimed.iter().map(|one| Settlement::ack(one.held)).collect();
                    seen.extend(exchanged.claimed.iter().map(|one| one.message.as_ref().unwrap().id()));
                    h.store().purge(PurgeLimit::new(50).unwrap()).await.unwrap();
                    if last && held.is_empty() {
                        return seen;
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let mut sent = HashSet::new();
    for producer in producers {
        sent.extend(producer.await.unwrap());
    }
    stop.send(true).unwrap();
    let mut seen = Vec::new();
    for worker in workers {
        seen.extend(worker.await.unwrap());
    }
    assert_eq!(seen.len(), sent.len(), "nothing is handed out twice");
    assert_eq!(seen.into_iter().collect::<HashSet<_>>(), sent);
}

/// H8: the claim walks the primary key; nothing is sorted and no table is read whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_claim_sorts_nothing() {
    let h = start().await;
    h.store().enqueue(Enqueue::pending(&vec_of(500))).await.unwrap();
    h.run("ANALYZE TABLE {t}").await;
    let routines = include_str!("../../migrations/0002_outbox_routines.sql");
    let body = &routines[routines.find("claim_rows`(").unwrap()..];
    let values = [
        ("p_floor", "0"),
        ("v_first", "1"),
        ("v_last", "400"),
        ("v_taken", "10"),
        ("p_lost_leases_max", "5"),
        ("p_left_out", "x'006100'"),
        ("v_room", "10"),
        ("v_now", "UTC_TIMESTAMP(6)"),
        ("v_until", "NULL"),
    ];
    // What locks the rows, what leases them where they stand beside each other, what leases them where they do not.
    for (start, table_count) in
        [("SELECT COUNT(*), MIN(c.`id`)", 1), ("UPDATE `pillarbox_outbox` FORCE INDEX", 1), ("UPDATE (", 2)]
    {
        let statement = &body[body.find(start).unwrap()..];
        let statement = &statement[..statement.find(';').unwrap()];
        let mut sql =
            statement.replace("INTO v_taken, v_first, v_last, v_keys", "").replace("`pillarbox_outbox`", "`{t}`");
        sql = sql.replace("p_owner", "NULL").replace("p_fence", "1");
        for (name, value) in values {
            sql = sql.replace(name, value);
        }
        let rows = sqlx::raw_sql(AssertSqlSafe(h.named(&format!("EXPLAIN {sql}")))).fetch_all(h.user()).await.unwrap();
        let plan: Vec<(String, String, String)> = rows
            .iter()
            .map(|row| {
                let text = |name: &str| row.try_get_unchecked::<Option<String>, _>(name).unwrap().unwrap_or_default();
                (text("table"), text("key"), text("Extra"))
            })
            .collect();
        let is_walk = |extra: &str| !extra.contains("filesort") && !extra.contains("temporary");
        assert!(plan.iter().all(|(_, _, extra)| is_walk(extra)), "{plan:?}");
        let tables: Vec<_> = plan.iter().filter(|(table, ..)| !table.starts_with('<')).collect();
        assert_eq!(tables.len(), table_count, "{plan:?}");
        assert!(tables.iter().all(|(_, key, _)| key == "PRIMARY"), "{plan:?}");
    }
}

/// H8: a claim that has not been committed hides its own rows and no others, and nobody waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_worker_gets_what_is_free() {
    let h = start().await;
    h.store().enqueue(Enqueue::pending(&vec_of(20))).await.unwrap();
    let mut slow = connection().await;
    run(&mut slow, h.named("START TRANSACTION; CALL {t}_claim_rows(x'01', 1, 60000000, 10, 0, 5, 1, NULL, NULL)"))
        .await;
    let got = h.store().claim(claim(OwnerToken::new(), 20)).await.unwrap();
    assert_eq!(got.len(), 10);
    run(&mut slow, "ROLLBACK".into()).await;
    assert_eq!(h.store().claim(claim(OwnerToken::new(), 20)).await.unwrap().len(), 10);
}

/// H9: after a deadlock the server has ended the transaction; an enqueue refuses, and nothing is committed alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_ghost_after_a_deadlock() {
    let h = start().await;
    h.run("INSERT INTO {s}_business (id) VALUES (1), (2)").await;
    let update = |id: i32| h.named(&format!("UPDATE {{s}}_business SET note = note + 1 WHERE id = {id}"));
    let (mut one, mut two) = (connection().await, connection().await);
    // The heavier transaction wins: the other one is the victim, whichever the server picks.
    let mut one_tx = one.begin().await.unwrap();
    let mut two_tx = two.begin().await.unwrap();
    one_tx.execute(AssertSqlSafe(update(1))).await.unwrap();
    two_tx.execute(AssertSqlSafe(update(2))).await.unwrap();
    let (first, second) =
        tokio::join!(one_tx.execute(AssertSqlSafe(update(2))), two_tx.execute(AssertSqlSafe(update(1))));
    let mut victim = if first.is_err() { one_tx } else { two_tx };
    assert!(first.is_err() != second.is_err());
    let answers = enqueue_each_way(&h, &mut victim).await;
    assert!(answers.iter().all(is_refused), "{answers:?}");
    victim.commit().await.unwrap();
    assert_eq!(h.number("SELECT COUNT(*) FROM {t}").await, 0);
    assert_eq!(h.number("SELECT COUNT(*) FROM {t}_shelf").await, 0);
}

/// H9: a lock wait timeout undoes one statement; the transaction goes on, and the message belongs to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_timeout_leaves_the_transaction_open() {
    let h = start().await;
    h.run("INSERT INTO {s}_business (id) VALUES (1)").await;
    let update = h.named("UPDATE {s}_business SET note = 1 WHERE id = 1");
    let (mut holder, mut waiter) = (connection().await, connection().await);
    let mut holder = holder.begin().await.unwrap();
    holder.execute(AssertSqlSafe(update.clone())).await.unwrap();
    run(&mut waiter, "SET SESSION innodb_lock_wait_timeout = 1".into()).await;
    let mut waiter = waiter.begin().await.unwrap();
    waiter.execute(AssertSqlSafe(update)).await.unwrap_err();
    let answers = enqueue_each_way(&h, &mut waiter).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    waiter.rollback().await.unwrap();
    assert_eq!(h.number("SELECT COUNT(*) FROM {t}").await, 0);
}

/// H9: a transaction that the caller ended by hand is noticed too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_ghost_after_a_commit_by_hand() {
    let h = start().await;
    let mut user = connection().await;
    let refused = h.store().enqueue_in(&mut user, Enqueue::pending(&vec_of(1))).await;
    assert!(is_refused(&refused));
    let mut tx = user.begin().await.unwrap();
    tx.execute("COMMIT").await.unwrap();
    let answers = enqueue_each_way(&h, &mut tx).await;
    assert!(answers.iter().all(is_refused), "{answers:?}");
    tx.rollback().await.unwrap();
    assert_eq!(h.number("SELECT COUNT(*) FROM {t}").await, 0);
}

/// H14: a known message is a duplicate at every isolation level, alone and in a batch, wherever it stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_messages_are_duplicates_at_every_isolation() {
    let h = start().await;
    let live = Message::new("t", "");
    let done = Message::new("t", "");
    let waiting = Message::new("t", "").delay(Duration::from_secs(3600));
    h.store().enqueue(Enqueue::pending(std::slice::from_ref(&done))).await.unwrap();
    let owner = OwnerToken::new();
    let held = h.store().claim(claim(owner, 1)).await.unwrap()[0].held;
    h.store().settle(owner, &[Settlement::ack(held)]).await.unwrap();
    h.store().enqueue(Enqueue::pending(&[live.clone(), waiting.clone()])).await.unwrap();
    for isolation in ISOLATIONS {
        for store in [h.store().clone(), h.store().as_on_mysql()] {
            let mut user = connection().await;
            run(&mut user, format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")).await;
            let mut tx = user.begin().await.unwrap();
            for known in [&live, &done, &waiting] {
                let alone = store.enqueue_in(&mut tx, Enqueue::pending(std::slice::from_ref(known))).await.unwrap();
                assert_eq!(alone[0].placement, Placement::Duplicate, "{isolation}");
            }
            let fresh = Message::new("t", "");
            let batch = [live.clone(), fresh.clone(), done.clone(), fresh.clone(), waiting.clone()];
            let answers = store.enqueue_in(&mut tx, Enqueue::pending(&batch)).await.unwrap();
            let new: Vec<_> = answers.iter().map(|one| one.placement != Placement::Duplicate).collect();
            assert_eq!(new, [false, true, false, false, false], "{isolation}");
            tx.commit().await.unwrap();
            let stored = h.store().get(MessageName::Message(fresh.id())).await.unwrap().unwrap();
            assert_eq!(stored.state, State::Pending);
        }
    }
    assert_eq!(h.number("SELECT COUNT(*) FROM {t}").await, 9);
}

/// H14: an open transaction that has enqueued does not hold up settlements at the server's default isolation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_producer_does_not_hold_up_settlements() {
    let h = start().await;
    h.store().enqueue(Enqueue::pending(&vec_of(3))).await.unwrap();
    let mut user = connection().await;
    let mut tx = user.begin().await.unwrap();
    for answer in enqueue_each_way(&h, &mut tx).await {
        answer.unwrap();
    }
    let owner = OwnerToken::new();
    let claimed = h.store().claim(claim(owner, 10)).await.unwrap();
    assert_eq!(claimed.len(), 3);
    let acks: Vec<_> = claimed.iter().map(|one| Settlement::ack(one.held)).collect();
    let settled = tokio::time::timeout(Duration::from_secs(20), h.store().settle(owner, &acks)).await;
    assert_eq!(settled.expect("nobody waits").unwrap(), [Settled::Applied; 3]);
    tx.rollback().await.unwrap();
}

/// H9, H14: nor does it where one of the acknowledged rows is somebody else's by now, which is told of that one alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_producer_does_not_hold_up_settlements_of_which_one_was_lost() {
    let h = start().await;
    h.store().enqueue(Enqueue::pending(&vec_of(3))).await.unwrap();
    let owner = OwnerToken::new();
    let claimed = h.store().claim(claim(owner, 3)).await.unwrap();
    let lost = claimed[1].held.work_id;
    h.run(&format!("UPDATE {{t}} SET owner_token = x'{}' WHERE id = {lost}", "07".repeat(16))).await;
    let mut user = connection().await;
    let mut tx = user.begin().await.unwrap();
    for answer in enqueue_each_way(&h, &mut tx).await {
        answer.unwrap();
    }
    let acks: Vec<_> = claimed.iter().map(|one| Settlement::ack(one.held)).collect();
    let settled = tokio::time::timeout(Duration::from_secs(20), h.store().settle(owner, &acks)).await;
    let settled = settled.expect("nobody waits").unwrap();
    assert_eq!(settled, [Settled::Applied, Settled::LeaseLost, Settled::Applied]);
    assert_eq!(h.number("SELECT COUNT(*) FROM {t}").await, 1);
    tx.rollback().await.unwrap();
}

/// H48, H50, H51: time zone, sql_mode and character set of the caller's session change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_callers_session_settings_do_not_matter() {
    let h = start().await;
    let sessions = [
        "SET SESSION time_zone = '-03:00'",
        "SET SESSION sql_mode = ''",
        "SET SESSION sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,NO_AUTO_VALUE_ON_ZERO'",
        "SET SESSION sql_mode = 'TRADITIONAL'",
        "SET NAMES latin1",
        "SET SESSION group_concat_max_len = 16",
    ];
    let at = std::time::SystemTime::UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_999);
    for session in sessions {
        for store in [h.store().clone(), h.store().as_on_mysql()] {
            let mut user = connection().await;
            run(&mut user, session.into()).await;
            let mut tx = user.begin().await.unwrap();
            let make = || {
                Message::new("caf\u{e9} \\' \u{1F4EE} ", "")
                    .key("K ")
                    .occurred_at(at)
                    .expires_in(LEASE)
                    .header("h", "\u{1F4EE}\"\\")
            };
            let one = [make()];
            let many = [make(), make().delay(Duration::from_secs(60)), make().due_at(at)];
            store.enqueue_in(&mut tx, Enqueue::pending(&one)).await.unwrap();
            let answers =
                store.enqueue_in(&mut tx, Enqueue::leased(&many, claim(OwnerToken::new(), 1).lease())).await.unwrap();
            let leased: Vec<_> = answers.iter().map(|one| matches!(one.placement, Placement::Leased(_))).collect();
            assert_eq!(leased, [true, false, true], "{session}");
            tx.commit().await.unwrap();
            for message in one.iter().chain(&many) {
                let stored = h.store().get(MessageName::Message(message.id())).await.unwrap().unwrap();
                let read = stored.message.unwrap();
                assert_eq!(read.topic(), message.topic(), "{session}");
                assert_eq!(read.get_key(), Some("K "));
                assert_eq!(read.get_headers(), message.get_headers());
                assert_eq!(read.get_occurred_at(), message.get_occurred_at());
                let age = stored.created_at.elapsed().unwrap_or_default();
                assert!(age < Duration::from_secs(600), "{session}: {age:?}");
            }
        }
    }
}

/// H54: an address that does not work gives one clear line, without the password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_address_is_explained_without_the_password() {
    let good: sqlx::mysql::MySqlConnectOptions = url().parse().unwrap();
    let (host, port) = (good.get_host().to_owned(), good.get_port());
    let database = good.get_database().unwrap().to_owned();
    let table = [
        (format!("mysql://nobody:canary@{host}:{port}/{database}"), ErrorKind::Rejected, "password"),
        (format!("mysql://nobody:canary@{host}:1/{database}"), ErrorKind::Unavailable, "reached"),
        (
            format!("mysql://{}:@{host}:{port}/no_such_canary", good.get_username()),
            ErrorKind::Rejected,
            "does not exist",
        ),
        ("not an address canary".into(), ErrorKind::Rejected, "mysql://"),
    ];
    for (address, kind, words) in table {
        let started = std::time::Instant::now();
        let error = MysqlStore::connect(&address, StoreOptions::default()).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert_eq!(error.kind(), kind, "{shown}");
        assert!(shown.contains(words) && !shown.contains("canary") && !error.to_string().contains('\n'), "{shown}");
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}

/// H31: a pooled connection that somebody left inside a transaction is closed, and his work is not committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dirty_connection_is_not_used() {
    let h = start().await;
    let mut left = Vec::new();
    for _ in 0..4 {
        let mut connection = h.store().pool().acquire().await.unwrap();
        run(&mut connection, h.named("START TRANSACTION; INSERT INTO {s}_business () VALUES ()")).await;
        left.push(connection);
    }
    drop(left);
    for _ in 0..8 {
        h.store().claim(claim(OwnerToken::new(), 1)).await.unwrap();
        h.store().enqueue(Enqueue::pending(&vec_of(1))).await.unwrap();
    }
    assert_eq!(h.business_row_count().await, 0);
}

/// A batch takes one round trip, whatever its messages are and whoever knows their ids; also where the server is MySQL. Each goes
/// twice: the first time its statement may have to be prepared.
#[tokio::test]
async fn a_batch_takes_one_round_trip() {
    let h = start().await;
    let counter = TripCounter::to(&url()).await;
    let mut connection = MySqlConnection::connect(counter.address()).await.unwrap();
    let lease = Lease::new(OwnerToken::new(), LEASE).unwrap();
    for store in [h.store().clone(), h.store().as_on_mysql()] {
        for count in [1, 2, 33, 100, 900] {
            for (kind, known) in (0..4).flat_map(|kind| [(kind, false), (kind, true)]) {
                for leased in [false, true] {
                    let mut trips = Vec::new();
                    let mut name = "";
                    for _ in 0..2 {
                        let (called, batch) = batches_of_every_kind(count).swap_remove(kind);
                        name = called;
                        let enqueue = if leased { Enqueue::leased(&batch, lease) } else { Enqueue::pending(&batch) };
                        let enqueue = if known { enqueue } else { enqueue.owned() };
                        let mut tx = connection.begin().await.unwrap();
                        let before = counter.count();
                        let answers = store.enqueue_in(&mut tx, enqueue).await.unwrap();
                        trips.push(counter.count() - before);
                        assert!(answers.iter().all(|answer| answer.placement.work_id().is_some()), "{name}");
                        tx.rollback().await.unwrap();
                    }
                    assert_eq!(trips[1], 1, "{count} {name}, known: {known}, leased: {leased}");
                }
            }
        }
    }
}

/// A batch of which some messages were stored before stores the others: those that wait, on the shelf or not, and those that ended.
#[tokio::test]
async fn a_batch_with_known_messages_stores_the_others() {
    let h = start().await;
    let mut connection = connection().await;
    for store in [h.store().clone(), h.store().as_on_mysql()] {
        let batch: Vec<_> = (0..80)
            .map(|index| match index % 3 {
                0 => Message::new("t", "p").delay(LEASE),
                1 => Message::new("t", "p").expires_in(LEASE),
                _ => Message::new("t", "p"),
            })
            .collect();
        store.enqueue(Enqueue::pending(&batch[..40])).await.unwrap();
        // A dozen of them end.
        let owner = OwnerToken::new();
        let held: Vec<_> = store.claim(claim(owner, 12)).await.unwrap().iter().map(|one| one.held).collect();
        let ends: Vec<_> = held.iter().map(|held| Settlement::ack(*held)).collect();
        store.settle(owner, &ends).await.unwrap();
        for _ in 0..2 {
            let mut tx = connection.begin().await.unwrap();
            let answers = store.enqueue_in(&mut tx, Enqueue::pending(&batch)).await.unwrap();
            let is_new: Vec<_> = answers.iter().map(|answer| answer.placement.work_id().is_some()).collect();
            assert_eq!(is_new, [[false; 40], [true; 40]].concat());
            tx.rollback().await.unwrap();
        }
        let rows = "SELECT (SELECT COUNT(*) FROM {t}) + (SELECT COUNT(*) FROM {t}_shelf)";
        assert_eq!(h.number(rows).await % 40, 0);
    }
}
