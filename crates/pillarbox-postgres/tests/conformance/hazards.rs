//! Hazards that only PostgreSQL has, and PostgreSQL's side of those that all databases share.

use std::collections::HashSet;
use std::time::Duration;

use pillarbox_core::lease::{Claim, Lease};
use pillarbox_core::schema::SchemaPolicy;
use pillarbox_core::store::{Claimed, Enqueue, Exchanged, OutboxStore, Placement, Reap, Settlement, StoreOptions};
use pillarbox_core::{EnqueueIn, ErrorKind, Message, OutboxAdmin, OwnerToken, Settled};
use pillarbox_postgres::PostgresStore;
use pillarbox_testing::{Harness, TripCounter, batches_of_every_kind, run};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::harness::{Direct, Pooler, PostgresHarness, Route, always_everything, claim, messages, pool, with_session};

const HOUR: Duration = Duration::from_secs(3600);

/// H3: whatever plan the planner picks, a claim brings no more than its limit.
#[test]
fn a_claim_never_exceeds_its_limit_under_hostile_plans() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        harness.store().enqueue(Enqueue::pending(&messages(200))).await.unwrap();
        let hostile: [&[(&str, &str)]; 4] = [
            &[("enable_hashjoin", "off"), ("enable_material", "off"), ("enable_sort", "off")],
            &[("enable_indexscan", "off"), ("enable_bitmapscan", "off"), ("enable_tidscan", "off")],
            &[("enable_seqscan", "off"), ("enable_nestloop", "off"), ("plan_cache_mode", "force_generic_plan")],
            &[("plan_cache_mode", "force_custom_plan"), ("enable_mergejoin", "off")],
        ];
        let mut seen = HashSet::new();
        for settings in hostile {
            let store = with_session(&harness, settings).await;
            for _ in 0..8 {
                let claimed = store.claim(claim(3)).await.unwrap();
                assert_eq!(claimed.len(), 3, "{settings:?}");
                assert!(claimed.iter().all(|claimed| seen.insert(claimed.held.work_id)), "{settings:?}");
            }
        }
    });
}

/// H6: leases change rows within their page, and no plan of the hot path scans a table, also when it was made while the
/// tables were empty.
#[test]
fn leases_are_hot_updates_and_no_plan_scans_a_table() {
    no_plan_scans_a_table(u32::MAX, 1500);
}

/// H6: the same for leases of stretches, which change no row.
#[test]
fn leases_of_stretches_change_no_row_and_no_plan_scans_a_table() {
    no_plan_scans_a_table(16, 0);
}

fn no_plan_scans_a_table(stretch_min: u32, update_count: i64) {
    run(move || async move {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let schema = harness.naming.schema().to_string();
        let connect: PgConnectOptions = Direct::url().parse().unwrap();
        let single = PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap();
        let options =
            StoreOptions { naming: harness.naming.clone(), schema: SchemaPolicy::Assume, ..always_everything() };
        let store = PostgresStore::with_pool(single.clone(), options).await.unwrap();
        store.lease_stretches_from(stretch_min);
        for _ in 0..8 {
            assert_eq!(store.claim(claim(500)).await.unwrap().len(), 0);
        }
        let before = table_statistics(&single, &schema).await;
        let owned = claim(500);
        for chunk in messages(5000).chunks(1000) {
            store.enqueue(Enqueue::pending(chunk)).await.unwrap();
        }
        let claimed = store.claim(owned.clone()).await.unwrap();
        let settlements: Vec<_> = claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
        store.settle(owned.owner(), &settlements).await.unwrap();
        let claimed = store.claim(owned.clone()).await.unwrap();
        let settlements: Vec<_> = claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
        assert_eq!(store.exchange(&settlements, owned.clone()).await.unwrap().claimed.len(), 500);
        let after = table_statistics(&single, &schema).await;
        assert_eq!(after.scans, before.scans, "a plan scans a whole table");
        assert_eq!(after.updates - before.updates, update_count);
        assert_eq!(
            after.hot_updates - before.hot_updates,
            update_count,
            "a lease must not touch an index of the hot table"
        );
    });
}

/// H6: the server compiles nothing of the hot path, however large it takes the tables for. It would do so at each call anew.
#[test]
fn no_call_of_the_hot_path_is_compiled() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        for chunk in messages(5000).chunks(1000) {
            harness.store().enqueue(Enqueue::pending(chunk)).await.unwrap();
        }
        let connect: PgConnectOptions = Direct::url().parse().unwrap();
        // Above what a call of a function is thought to cost, and below what a claim is.
        let connect = connect.options([("jit", "on"), ("jit_above_cost", "100")]);
        let single = PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap();
        let options =
            StoreOptions { naming: harness.naming.clone(), schema: SchemaPolicy::Assume, ..always_everything() };
        let store = PostgresStore::with_pool(single, options).await.unwrap();
        let owned = claim(500);
        let claimed = store.claim(owned.clone()).await.unwrap();
        let settlements: Vec<_> = claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
        let Exchanged { claimed, .. } = store.exchange(&settlements, owned.clone()).await.unwrap();
        let settlements: Vec<_> = claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
        store.settle(owned.owner(), &settlements).await.unwrap();
        assert!(!has_compiled(store.pool()).await, "a statement of the hot path was compiled");
        let large = "SELECT sum(a * b) FROM generate_series(1, 300) AS a, generate_series(1, 300) AS b";
        sqlx::query(large).fetch_one(store.pool()).await.unwrap();
        assert!(has_compiled(store.pool()).await, "the server compiles, and it can be seen");
    });
}

/// Whether the only session of a pool has loaded the compiler, which it does at the first use.
async fn has_compiled(pool: &sqlx::PgPool) -> bool {
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(pool).await.unwrap();
    std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().contains("llvmjit")
}

#[derive(Debug)]
struct Statistics {
    scans: i64,
    updates: i64,
    hot_updates: i64,
}

async fn table_statistics(pool: &sqlx::PgPool, schema: &str) -> Statistics {
    let mut connection = pool.acquire().await.unwrap();
    sqlx::raw_sql("SELECT pg_stat_force_next_flush()").execute(&mut *connection).await.unwrap();
    let row = sqlx::query(
        "SELECT sum(seq_scan)::bigint, sum(n_tup_upd)::bigint, sum(n_tup_hot_upd)::bigint
         FROM pg_stat_user_tables WHERE schemaname = $1 AND relname LIKE 'outbox%'",
    )
    .bind(schema)
    .fetch_one(&mut *connection)
    .await
    .unwrap();
    Statistics { scans: row.get(0), updates: row.get(1), hot_updates: row.get(2) }
}

/// H7: a store that was not told of the pooler finds out by itself and goes on.
#[test]
fn a_store_that_meets_a_pooler_unprepared_recovers() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let options =
            StoreOptions { naming: harness.naming.clone(), schema: SchemaPolicy::Assume, ..always_everything() };
        let store = PostgresStore::with_pool(pool(&Pooler::url()).await, options).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let store = store.clone();
            tasks.spawn(async move {
                for message in messages(10) {
                    store.enqueue(Enqueue::pending(&[message])).await.unwrap();
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert_eq!(store.overview().await.unwrap().total().pending, 120);
    });
}

/// H11: after an error that the caller swallowed, enqueue says so; what such a commit "commits" is nothing.
#[test]
fn an_aborted_transaction_takes_no_message() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let mut tx = harness.begin().await;
        sqlx::query("SELECT 1 / 0").execute(&mut *tx).await.unwrap_err();
        let refused = harness.store().enqueue_in(&mut tx, Enqueue::pending(&messages(1))).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Rejected);
        assert!(refused.to_string().contains("roll it back"), "{refused}");
        let _ = tx.commit().await;
        assert_eq!(harness.store().overview().await.unwrap().total().pending, 0);
    });
}

/// HOT-01: a connection on which no transaction is open is refused before anything is sent.
#[test]
fn a_connection_without_a_transaction_is_refused() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let mut connection = harness.pool.acquire().await.unwrap();
        let batch = messages(1);
        let refused = harness.store().enqueue_in(&mut *connection, Enqueue::pending(&batch)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Rejected);
        assert!(refused.to_string().contains("no transaction"), "{refused}");
        let mut tx = connection.begin().await.unwrap();
        harness.store().enqueue_in(&mut *tx, Enqueue::pending(&batch)).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(harness.store().overview().await.unwrap().total().pending, 1);
    });
}

/// H14: on every isolation level that a database may have as its default, each message is handed out once and no race surfaces.
#[test]
fn every_isolation_level_hands_out_each_message_once() {
    run(|| async {
        for level in ["read committed", "repeatable read", "serializable"] {
            let harness = PostgresHarness::<Direct>::start(always_everything()).await;
            harness.store().enqueue(Enqueue::pending(&messages(300))).await.unwrap();
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..4 {
                let store = with_session(&harness, &[("default_transaction_isolation", level)]).await;
                tasks.spawn(drain(store));
            }
            let mut seen = HashSet::new();
            while let Some(task) = tasks.join_next().await {
                for claimed in task.unwrap() {
                    assert!(seen.insert(claimed.held.work_id), "{level}");
                }
            }
            assert_eq!(seen.len(), 300, "{level}");
        }
    });
}

async fn drain(store: PostgresStore) -> Vec<Claimed> {
    let mut all = Vec::new();
    let mut settlements = Vec::new();
    loop {
        let exchanged = store.exchange(&settlements, claim(7)).await.unwrap();
        if exchanged.claimed.is_empty() {
            return all;
        }
        settlements.clear();
        all.extend(exchanged.claimed);
    }
}

/// H54, OBX-106: PostgreSQL prints failing rows into its errors; ours do not repeat them.
#[test]
fn a_payload_never_appears_in_an_error() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        harness.run("ALTER TABLE {schema}.outbox ADD CHECK (payload <> 'canary')").await;
        let message = Message::new("topic", "canary").header("secret", "canary");
        let error = harness.store().enqueue(Enqueue::pending(&[message])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected);
        assert_eq!(error.code(), Some("23514"));
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    });
}

/// H20: sessions that the server kills cost an error that says to wait, never a message.
#[test]
fn killed_sessions_lose_nothing() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let connect: PgConnectOptions = Direct::url().parse().unwrap();
        let doomed = harness.naming.schema().to_string();
        let pool =
            PgPoolOptions::new().max_connections(3).connect_with(connect.application_name(&doomed)).await.unwrap();
        let options =
            StoreOptions { naming: harness.naming.clone(), schema: SchemaPolicy::Assume, ..always_everything() };
        let store = PostgresStore::with_pool(pool, options).await.unwrap();
        let batch = messages(60);
        for (number, message) in batch.iter().enumerate() {
            if number % 3 == 0 {
                harness
                    .run(&format!(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{doomed}'"
                    ))
                    .await;
            }
            // Unknown whether it was stored: the same message again is stored once.
            while let Err(error) = store.enqueue(Enqueue::pending(std::slice::from_ref(message))).await {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            }
        }
        assert_eq!(store.overview().await.unwrap().total().pending, 60);
    });
}

/// H20: a statement that the server's time limit stops is reported as such and took no effect.
#[test]
fn a_servers_time_limit_is_unavailable_not_rejected() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let store = with_session(&harness, &[("statement_timeout", "200ms")]).await;
        let mut blocker = harness.begin().await;
        let sql = format!("LOCK TABLE {}.outbox IN ACCESS EXCLUSIVE MODE", harness.naming.schema());
        sqlx::query(AssertSqlSafe(sql)).execute(&mut *blocker).await.unwrap();
        let error = store.enqueue(Enqueue::pending(&messages(1))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        blocker.rollback().await.unwrap();
        assert_eq!(store.overview().await.unwrap().total().pending, 0);
    });
}

/// H17: a read-only server, such as a standby, is unavailable for writing, and the error says what to do.
#[test]
fn a_read_only_server_is_named() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let store = with_session(&harness, &[("default_transaction_read_only", "on")]).await;
        let error = store.claim(claim(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("primary"), "{error}");
    });
}

/// H2: a message whose transaction committed late, below the floor of the claims, is found at the next look at everything.
#[test]
fn a_late_commit_below_the_floor_is_found() {
    run(|| async {
        let options = StoreOptions { rescan_interval: Duration::from_millis(1), ..StoreOptions::default() };
        let harness = PostgresHarness::<Direct>::start(options).await;
        let store = harness.store();
        let mut late = harness.begin().await;
        store.enqueue_in(&mut late, Enqueue::pending(&messages(1))).await.unwrap();
        store.enqueue(Enqueue::pending(&messages(5))).await.unwrap();
        assert_eq!(store.claim(claim(5)).await.unwrap().len(), 5);
        late.commit().await.unwrap();
        let mut found = Vec::new();
        while found.is_empty() {
            found = store.claim(claim(5)).await.unwrap();
        }
        assert_eq!(found.len(), 1);
    });
}

/// H50: the session's time zone and style of dates change nothing.
#[test]
fn session_time_zones_change_nothing() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let at = std::time::SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
        let message = Message::new("topic", "").occurred_at(at).due_at(at).expires_in(HOUR);
        let zones = ["America/Sao_Paulo", "Asia/Kathmandu", "Pacific/Kiritimati"];
        for zone in zones {
            let store = with_session(&harness, &[("TimeZone", zone), ("DateStyle", "German")]).await;
            let message = message.clone().with_id(pillarbox_core::MessageId::new());
            store.enqueue(Enqueue::pending(&[message])).await.unwrap();
            let claimed = store.claim(claim(10)).await.unwrap();
            assert_eq!(claimed.len(), 1, "{zone}");
            assert_eq!(claimed[0].message.as_ref().unwrap().get_occurred_at(), Some(at), "{zone}");
        }
    });
}

/// WRK-07, H2, H34: a message that is committed late waits for a later one of its key that an open claim has woken.
#[test]
fn what_comes_late_waits_for_one_that_an_open_claim_wakes() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let store = harness.store();
        let keyed = || Message::new("t", "").key("a");
        let mut early = harness.begin().await;
        store.enqueue_in(&mut early, Enqueue::pending(&[keyed()])).await.unwrap();
        store.enqueue(Enqueue::pending(&[keyed().delay(HOUR)])).await.unwrap();
        harness.advance(HOUR).await;
        let mut slow = harness.begin().await;
        let wake =
            "SELECT count(*) FROM {schema}.outbox_claim(gen_random_uuid(), 1, 60000000, 10, 0, 5, 1, NULL, NULL, NULL)";
        let wake = wake.replace("{schema}", &harness.naming.schema().to_string());
        let woken: i64 = sqlx::query_scalar(AssertSqlSafe(wake)).fetch_one(&mut *slow).await.unwrap();
        assert_eq!(woken, 1);
        early.commit().await.unwrap();
        assert!(store.claim(claim(10)).await.unwrap().is_empty(), "the later one is as good as held");
        slow.commit().await.unwrap();
        assert!(store.claim(claim(10)).await.unwrap().is_empty(), "the later one is held");
    });
}

/// OBX-104, H64: a role that may only read and write the tables runs everything but the deployment.
#[test]
fn a_role_with_the_four_rights_is_enough() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let role = format!("r_{}", harness.naming.schema());
        harness
            .run(&format!(
                "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {{schema}} TO {role};
                 GRANT SELECT, INSERT, UPDATE, DELETE ON {{schema}}.outbox, {{schema}}.outbox_shelf,
                    {{schema}}.outbox_lease TO {role};
                 GRANT SELECT ON {{schema}}.outbox_live TO {role};
                 GRANT SELECT ON {{schema}}.schema_version TO {role}; GRANT USAGE ON SEQUENCE {{schema}}.outbox_id, {{schema}}.outbox_claimed TO {role}"
            ))
            .await;
        let connect: PgConnectOptions = Direct::url().parse().unwrap();
        let pool = PgPoolOptions::new().max_connections(2).connect_with(connect.username(&role)).await.unwrap();
        let options =
            StoreOptions { naming: harness.naming.clone(), schema: SchemaPolicy::Deploy, ..always_everything() };
        let store = PostgresStore::with_pool(pool, options).await.unwrap();
        store.enqueue(Enqueue::pending(&messages(3))).await.unwrap();
        let owned = claim(2);
        let held: Vec<_> = store.claim(owned.clone()).await.unwrap().iter().map(|claimed| claimed.held).collect();
        store.renew(owned.owner(), &held, HOUR).await.unwrap();
        let next = Claim::new(owned.owner(), HOUR, 1).unwrap();
        let settled = store.exchange(&[Settlement::ack(held[0]), Settlement::ack(held[1])], next).await.unwrap();
        assert_eq!(settled.settled, [Settled::Applied; 2]);
        store.reap(Reap::default()).await.unwrap();
        store.purge(Default::default()).await.unwrap();
        assert_eq!(store.overview().await.unwrap().total().done, 2);
        store.pool().close().await;
        harness.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    });
}

/// A wrong address, user or database is one clear line, without the password.
#[test]
fn connection_errors_say_what_is_wrong() {
    run(|| async {
        let direct = Direct::url();
        let wrong_database = format!("{}/no_such_database?password=canary", direct.rsplit_once('/').unwrap().0);
        let table = [
            ("postgres://user:canary@127.0.0.1:1/db".to_owned(), "cannot be reached"),
            (wrong_database, "does not exist"),
            ("postgres://canary@[".to_owned(), "malformed"),
        ];
        for (url, words) in table {
            let error = PostgresStore::connect(&url, StoreOptions::default()).await.unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    });
}

#[test]
fn handles_can_be_shared_between_tasks() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<PostgresStore>();
}

/// BUS-05, H7: a process behind a pooler cannot listen, and says so; what it sends is heard by those that can.
#[test]
fn a_wake_up_sent_through_a_pooler_is_heard() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let options =
            StoreOptions { naming: harness.naming.clone(), schema: SchemaPolicy::Assume, ..always_everything() };
        let behind = PostgresStore::behind_pooler(pool(&Pooler::url()).await, options).await.unwrap();
        assert!(behind.listen().await.unwrap().is_none());
        let mut subscription = harness.store().listen().await.unwrap().unwrap();
        behind.wake_others().await.unwrap();
        subscription.next().await.unwrap();
    });
}

/// H27, H35: a detached handle has two connections at the most, and takes none from the store.
#[test]
fn a_detached_handle_has_few_connections() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let schema = harness.naming.schema().as_str();
        let connect: PgConnectOptions = Direct::url().parse().unwrap();
        let single = PgPoolOptions::new().max_connections(1).connect_lazy_with(connect.application_name(schema));
        let options =
            StoreOptions { naming: harness.naming.clone(), schema: SchemaPolicy::Assume, ..always_everything() };
        let store = PostgresStore::with_pool(single, options).await.unwrap();
        let _whole_pool = store.pool().acquire().await.unwrap();
        let detached = store.detached().await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let detached = detached.clone();
            tasks.spawn(async move { detached.claim(claim(1)).await });
        }
        while let Some(task) = tasks.join_next().await {
            assert_eq!(task.unwrap().unwrap(), []);
        }
        let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}'";
        assert!((2..=3).contains(&harness.number(count).await));
    });
}

/// H8: a batch of more than one statement meets a transaction that takes the same messages in the opposite order. The server
/// ends the batch, which begins again, as a single statement would.
#[test]
fn a_batch_of_many_statements_survives_a_deadlock() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(StoreOptions::default()).await;
        let [first, last] = ["first", "last"].map(|topic| Message::new(topic, ""));
        let filler = (0..33).map(|_| Message::new("filler", vec![0; 1024 * 1024]));
        let batch: Vec<_> = [first.clone()].into_iter().chain(filler).chain([last.clone()]).collect();

        let mut tx = harness.store().pool().begin().await.unwrap();
        // Only the other side looks for deadlocks in time, and so is the one that is ended.
        sqlx::query("SET LOCAL deadlock_timeout = '60s'").execute(&mut *tx).await.unwrap();
        harness.store().enqueue_in(&mut tx, Enqueue::pending(std::slice::from_ref(&last))).await.unwrap();
        let own: String = sqlx::query_scalar("SELECT pg_current_xact_id()::text").fetch_one(&mut *tx).await.unwrap();
        let store = harness.store().clone();
        let whole = tokio::spawn(async move { store.enqueue(Enqueue::pending(&batch)).await });
        let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND transactionid::text = $1)";
        while !sqlx::query_scalar::<_, bool>(waits).bind(&own).fetch_one(harness.store().pool()).await.unwrap() {
            tokio::task::yield_now().await;
        }
        harness.store().enqueue_in(&mut tx, Enqueue::pending(std::slice::from_ref(&first))).await.unwrap();
        tx.commit().await.unwrap();

        let answers = whole.await.unwrap().unwrap();
        let duplicates = answers.iter().filter(|answer| answer.placement == Placement::Duplicate).count();
        assert_eq!((answers.len(), duplicates), (35, 2), "each message is stored once");
    });
}

/// A batch takes one round trip, whatever its messages are and whoever knows their ids. Each goes twice: the first time its
/// statement is prepared.
#[test]
fn a_batch_takes_one_round_trip() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let counter = TripCounter::to(&Direct::url()).await;
        let mut connection = PgConnection::connect(counter.address()).await.unwrap();
        let lease = Lease::new(OwnerToken::new(), HOUR).unwrap();
        for count in [1, 2, 33, 500] {
            for (kind, known) in (0..4).flat_map(|kind| [(kind, false), (kind, true)]) {
                for leased in [false, true] {
                    let (mut trips, mut name) = (Vec::new(), "");
                    for _ in 0..2 {
                        let (called, batch) = batches_of_every_kind(count).swap_remove(kind);
                        name = called;
                        let enqueue = if leased { Enqueue::leased(&batch, lease) } else { Enqueue::pending(&batch) };
                        let enqueue = if known { enqueue } else { enqueue.owned() };
                        let mut tx = connection.begin().await.unwrap();
                        let before = counter.count();
                        harness.store().enqueue_in(&mut tx, enqueue).await.unwrap();
                        trips.push(counter.count() - before);
                        tx.rollback().await.unwrap();
                    }
                    assert_eq!(trips[1], 1, "{count} {name}, known: {known}, leased: {leased}");
                }
            }
        }
    });
}
