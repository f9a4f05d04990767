//! Hazards that only PostgreSQL has, and PostgreSQL's side of those that all databases share.

use std::collections::HashSet;
use std::time::Duration;

use pillarbox_core::admin::Filter;
use pillarbox_core::lease::Claim;
use pillarbox_core::schema::{SchemaPolicy, SchemaStatus};
use pillarbox_core::store::{Claimed, Enqueue, OutboxStore, Reap, Settlement, StoreOptions};
use pillarbox_core::{
    CommitError, EnqueueIn, ErrorKind, Message, OutboxAdmin, OwnerToken, SchemaAdmin, Settled, StoreTransaction,
    Transactional, Verdict,
};
use pillarbox_postgres::PostgresStore;
use pillarbox_testing::{Harness, run, use_everything};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::harness::{Direct, Pooler, PostgresHarness, Route, encrypted_url, fresh_naming, pool};

const HOUR: Duration = Duration::from_secs(3600);

fn always_everything() -> StoreOptions {
    StoreOptions { rescan_interval: Duration::ZERO, ..StoreOptions::default() }
}

fn messages(count: usize) -> Vec<Message> {
    (0..count).map(|number| Message::new("topic", number.to_string())).collect()
}

fn claim(limit: u32) -> Claim {
    Claim::new(OwnerToken::new(), HOUR, limit).unwrap()
}

/// A store on the tables of the harness whose sessions begin with these settings.
async fn with_session(harness: &PostgresHarness, settings: &[(&'static str, &'static str)]) -> PostgresStore {
    let connect: PgConnectOptions = Direct::url().parse().unwrap();
    let pool = PgPoolOptions::new().max_connections(4).connect_with(connect.options(settings.iter().copied()));
    let options = StoreOptions { naming: harness.naming.clone(), schema: SchemaPolicy::Check, ..always_everything() };
    PostgresStore::with_pool(pool.await.unwrap(), options).await.unwrap()
}

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
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let schema = harness.naming.schema().to_string();
        let connect: PgConnectOptions = Direct::url().parse().unwrap();
        let single = PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap();
        let options =
            StoreOptions { naming: harness.naming.clone(), schema: SchemaPolicy::Assume, ..always_everything() };
        let store = PostgresStore::with_pool(single.clone(), options).await.unwrap();
        for _ in 0..8 {
            assert_eq!(store.claim(claim(500)).await.unwrap().len(), 0);
        }
        let before = table_statistics(&single, &schema).await;
        let owned = claim(500);
        for chunk in messages(5000).chunks(1000) {
            store.enqueue(Enqueue::pending(chunk)).await.unwrap();
        }
        let claimed = store.claim(owned).await.unwrap();
        let settlements: Vec<_> = claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
        store.settle(owned.owner(), &settlements).await.unwrap();
        let claimed = store.claim(owned).await.unwrap();
        let settlements: Vec<_> = claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
        assert_eq!(store.exchange(&settlements, owned).await.unwrap().claimed.len(), 500);
        let after = table_statistics(&single, &schema).await;
        assert_eq!(after.scans, before.scans, "a plan scans a whole table");
        assert_eq!(after.updates - before.updates, 1500);
        assert_eq!(after.hot_updates - before.hot_updates, 1500, "a lease must not touch an index of the hot table");
    });
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

/// E16, OBX-106: PostgreSQL prints failing rows into its errors; ours do not repeat them.
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

/// OBX-104, H64: a role that may only read and write the tables runs everything but the deployment.
#[test]
fn a_role_with_the_four_rights_is_enough() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let role = format!("r_{}", harness.naming.schema());
        harness
            .run(&format!(
                "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {{schema}} TO {role};
                 GRANT SELECT, INSERT, UPDATE, DELETE ON {{schema}}.outbox, {{schema}}.outbox_shelf TO {role};
                 GRANT SELECT ON {{schema}}.schema_version TO {role}; GRANT USAGE ON SEQUENCE {{schema}}.outbox_id TO {role}"
            ))
            .await;
        let connect: PgConnectOptions = Direct::url().parse().unwrap();
        let pool = PgPoolOptions::new().max_connections(2).connect_with(connect.username(&role)).await.unwrap();
        let options =
            StoreOptions { naming: harness.naming.clone(), schema: SchemaPolicy::Deploy, ..always_everything() };
        let store = PostgresStore::with_pool(pool, options).await.unwrap();
        store.enqueue(Enqueue::pending(&messages(3))).await.unwrap();
        let owned = claim(2);
        let held: Vec<_> = store.claim(owned).await.unwrap().iter().map(|claimed| claimed.held).collect();
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

/// OBX-095, OBX-101, OBX-105: another language takes part through functions alone.
#[test]
fn another_language_can_enqueue_and_work_through_functions() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let owner = "'11111111-1111-1111-1111-111111111111'";
        for topic in ["ack", "abandon", "fail", "crash"] {
            harness
                .run(&format!(
                    "SELECT {{schema}}.enqueue('{topic}', '{{}}', key => 'k', headers => '{{\"a\": \"b\"}}')"
                ))
                .await;
        }
        harness.run("SELECT {schema}.enqueue('later', '{}', delay => interval '1 hour')").await;
        let claimed = format!("SELECT count(*) FROM {{schema}}.claim({owner}, interval '1 hour', 10)");
        assert_eq!(harness.number(&claimed).await, 4);
        assert_eq!(harness.number(&claimed).await, 0);
        let ids = |topic: &str| format!("ARRAY(SELECT id FROM {{schema}}.outbox WHERE topic = '{topic}')");
        let call = async |call: String| harness.number(&format!("SELECT {{schema}}.{call}::bigint")).await;
        assert_eq!(call(format!("ack({owner}, {})", ids("ack"))).await, 1);
        assert_eq!(call(format!("ack({owner}, {})", ids("ack"))).await, 0);
        assert_eq!(call(format!("ack(gen_random_uuid(), {})", ids("fail"))).await, 0);
        assert_eq!(call(format!("abandon({owner}, {}, 'not now')", ids("abandon"))).await, 1);
        assert_eq!(call(format!("fail({owner}, {}, 'never')", ids("fail"))).await, 1);
        assert_eq!(call("reap()".into()).await, 0);
        harness.advance(HOUR + HOUR).await;
        assert_eq!(call("reap()".into()).await, 1);
        // What the functions wrote, the library reads.
        let mut topics: Vec<_> = harness
            .store()
            .claim(claim(10))
            .await
            .unwrap()
            .iter()
            .map(|claimed| (claimed.message.as_ref().unwrap().topic().to_owned(), claimed.attempts))
            .collect();
        topics.sort();
        assert_eq!(topics, [("abandon".to_owned(), 2), ("crash".to_owned(), 2), ("later".to_owned(), 1)]);
        let total = harness.store().overview().await.unwrap().total();
        assert_eq!((total.done, total.dead, total.processing), (1, 1, 3));
    });
}

/// A row that was inserted by hand under an id that is done, dead or waiting already moves on like any other.
#[test]
fn a_foreign_row_under_a_known_id_is_never_stuck() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let store = harness.store();
        let batch = messages(4);
        let verdicts = [
            Verdict::Ack,
            Verdict::Fail { reason: "no".into() },
            Verdict::Abandon { delay: HOUR, reason: "later".into() },
            Verdict::Release { delay: HOUR },
        ];
        for _ in 0..2 {
            for message in &batch {
                let id = message.id();
                harness
                    .run(&format!(
                        "INSERT INTO {{schema}}.outbox (message_id, topic, payload) VALUES ('{id}', 't', '')"
                    ))
                    .await;
            }
            let owned = claim(10);
            let claimed = store.claim(owned).await.unwrap();
            assert_eq!(claimed.len(), 4);
            let settlements: Vec<_> = claimed
                .iter()
                .zip(&verdicts)
                .map(|(claimed, verdict)| Settlement { held: claimed.held, verdict: verdict.clone() })
                .collect();
            assert_eq!(store.settle(owned.owner(), &settlements).await.unwrap(), [Settled::Applied; 4]);
        }
        // Two wait on the shelf; the same two inserted by hand are claimed with them, each once.
        for message in &batch[2..] {
            let id = message.id();
            harness
                .run(&format!("INSERT INTO {{schema}}.outbox (message_id, topic, payload) VALUES ('{id}', 't', '')"))
                .await;
        }
        harness.advance(HOUR + HOUR).await;
        assert_eq!(store.claim(claim(10)).await.unwrap().len(), 2);
        assert_eq!(store.replay(&Filter::all(), 10).await.unwrap(), 1);
    });
}

/// OBX-091: what is printed for a DBA deploys the same tables.
#[test]
fn the_printed_script_deploys_what_the_program_expects() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let script = harness.store().schema_script();
        harness.run("DROP SCHEMA {schema} CASCADE").await;
        assert_eq!(harness.store().check_schema().await.unwrap(), SchemaStatus::Missing);
        harness.run(&script).await;
        assert!(matches!(harness.store().check_schema().await.unwrap(), SchemaStatus::Current(_)));
        harness.store().enqueue(Enqueue::pending(&messages(1))).await.unwrap();
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

/// OBX-107, IBX-128, H63: by an address that demands encryption, everything works, and the server says of every connection
/// that it is encrypted: those of the pool, of a transaction, of a detached handle, and the one that listens.
#[test]
fn an_address_that_demands_encryption_gets_nothing_else() {
    run(|| async {
        let naming = fresh_naming();
        let address = format!("{}&application_name={}", encrypted_url(), naming.schema());
        let options = StoreOptions { naming: naming.clone(), ..always_everything() };
        let store = PostgresStore::connect(&address, options).await.unwrap();
        use_everything(&store).await.unwrap();
        let detached = store.detached().await.unwrap();
        detached.claim(claim(1)).await.unwrap();
        let mut subscription = store.listen().await.unwrap().unwrap();
        let mut tx = store.begin().await.unwrap();
        let connections = "
            SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE ssl AND query LIKE 'LISTEN%'), count(*)
            FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = $1";
        let row = sqlx::query(connections).bind(naming.schema().as_str()).fetch_one(tx.connection()).await.unwrap();
        let (encrypted, listening, all): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        assert!(encrypted >= 3 && listening >= 1, "{encrypted} encrypted, {listening} of them listen");
        assert_eq!(encrypted, all);
        tx.commit().await.unwrap();
        store.wake_others().await.unwrap();
        subscription.next().await.unwrap();
    });
}

/// OBX-107, IBX-128, H63: a server that offers no encryption is refused by an address that demands it.
#[test]
fn nothing_falls_back_to_plain_text() {
    run(|| async {
        let plain = Pooler::url();
        PgConnection::connect(&format!("{plain}?sslmode=prefer")).await.unwrap().close().await.unwrap();
        for mode in ["require", "verify-ca", "verify-full"] {
            let refused = unencrypted(&format!("{plain}?sslmode={mode}")).await;
            assert!(refused.contains("server offers none"), "{mode}: {refused}");
        }
    });
}

/// OBX-107, IBX-128, H63: a certificate that the given root did not sign, or that is another host's, is refused.
#[test]
fn a_certificate_that_is_not_trusted_is_refused() {
    run(|| async {
        let good = encrypted_url();
        let elsewhere = good.replace("127.0.0.1", "0.0.0.0");
        let name_unchecked = elsewhere.replace("verify-full", "verify-ca");
        PgConnection::connect(&name_unchecked).await.unwrap().close().await.unwrap();
        let untrusted = [
            good.split("&sslrootcert").next().unwrap().to_owned(),
            good.replace("server.crt", "stranger.crt"),
            elsewhere,
        ];
        for address in untrusted {
            let refused = unencrypted(&address).await;
            assert!(refused.contains("not trusted"), "{address}: {refused}");
        }
        let refused = refusal(&good.replace("server.crt", "no_such.crt")).await;
        assert!(refused.contains("certificate file"), "{refused}");
    });
}

async fn unencrypted(address: &str) -> String {
    let refused = refusal(address).await;
    assert!(refused.contains("no encrypted connection"), "{refused}");
    refused
}

/// Why no connection comes about; the password is not part of it.
async fn refusal(address: &str) -> String {
    let address = format!("{address}&password=canary");
    let error = PostgresStore::connect(&address, StoreOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("canary"), "{shown}");
    shown
}
