//! What others do with the tables of PostgreSQL by plain SQL: other languages, a DBA with the printed script, rows by hand.

use std::time::Duration;

use pillarbox_core::admin::{Filter, Replay};
use pillarbox_core::schema::SchemaStatus;
use pillarbox_core::store::{Enqueue, OutboxStore, Settlement};
use pillarbox_core::{OutboxAdmin, SchemaAdmin, Settled, Verdict};
use pillarbox_testing::{Harness, assert_contract_message, code_blocks, contract_key_hash, run};
use sqlx::postgres::{PgConnectOptions, PgDatabaseError};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::harness::{Direct, PostgresHarness, Route, always_everything, claim, messages};

const CONTRACT: &str = include_str!("../../../../docs/sql-contract.md");

const HOUR: Duration = Duration::from_secs(3600);

/// OBX-095, OBX-101, OBX-105: another language takes part through functions alone.
#[test]
fn another_language_can_enqueue_and_work_through_functions() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let owner = "'11111111-1111-1111-1111-111111111111'";
        for topic in ["ack", "abandon", "fail", "crash"] {
            harness
                .run(&format!(
                    "SELECT {{schema}}.enqueue('{topic}', '{{}}', key => '{topic}', headers => '{{\"a\": \"b\"}}')"
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
            let claimed = store.claim(owned.clone()).await.unwrap();
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
        assert_eq!(store.replay(&Replay::dead(Filter::all(), 10)).await.unwrap().count, 1);
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

/// The statements of the document, on the tables of this test, and a connection of a program that has an `orders` table.
async fn contract(harness: &PostgresHarness, role: &str) -> (Vec<String>, PgConnection) {
    let schema = harness.naming.schema().as_str();
    let blocks = code_blocks(CONTRACT, "sql postgres").into_iter().map(|block| {
        let block =
            block.replace("'pillarbox.pillarbox.", &format!("'pillarbox;{schema}.")).replace("shop_writer", role);
        block.replace("pillarbox.", &format!("{schema}.")).replace("SCHEMA pillarbox ", &format!("SCHEMA {schema} "))
    });
    let blocks = blocks.map(|block| block.replace("'pillarbox;", "'pillarbox."));
    let mut user = PgConnection::connect(&Direct::url()).await.unwrap();
    let setup = format!("SET search_path = {schema}; CREATE TABLE orders (id bigint PRIMARY KEY, total_cents bigint)");
    sqlx::raw_sql(AssertSqlSafe(setup)).execute(&mut user).await.unwrap();
    (blocks.collect(), user)
}

/// OBX-095, OBX-101: what the document says a program may do, it can do, word by word.
#[test]
fn every_statement_of_the_contract_runs_as_written() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let role = format!("w_{}", harness.naming.schema());
        harness.run(&format!("CREATE ROLE {role}")).await;
        let (blocks, mut user) = contract(&harness, &role).await;
        let mut wakeups = harness.store().listen().await.unwrap().unwrap();
        for block in blocks {
            sqlx::raw_sql(AssertSqlSafe(block)).execute(&mut user).await.unwrap();
        }
        wakeups.next().await.unwrap();
        assert_contract_message(harness.store()).await;
        let hashes = "SELECT count(*) FROM {schema}.outbox_shelf WHERE key_hash = ".to_owned();
        assert_eq!(harness.number(&(hashes + &contract_key_hash().to_string())).await, 2, "orders 1 and 2");
        assert_eq!(harness.number("SELECT count(*) FROM {schema}.orders").await, 3);
        let total = harness.store().overview().await.unwrap().total();
        assert_eq!((total.done, total.pending + total.processing), (1, 3), "order 1 was acknowledged");
        harness.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    });
}

/// OBX-104, H54: the rights of the document are enough to write, and not to read what others wrote.
#[test]
fn a_writer_with_the_rights_of_the_contract_writes_and_reads_nothing() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let role = format!("w_{}", harness.naming.schema());
        harness.run(&format!("CREATE ROLE {role} LOGIN")).await;
        let (blocks, _) = contract(&harness, &role).await;
        let rights = blocks.iter().find(|block| block.starts_with("GRANT")).unwrap();
        harness.run(rights).await;
        harness.run(&format!("GRANT INSERT ON {{schema}}.orders TO {role}")).await;
        let connect: PgConnectOptions = Direct::url().parse().unwrap();
        let mut user = PgConnection::connect_with(&connect.username(&role)).await.unwrap();
        let path = format!("SET search_path = {}", harness.naming.schema());
        sqlx::raw_sql(AssertSqlSafe(path)).execute(&mut user).await.unwrap();
        for block in blocks.iter().filter(|block| block.starts_with("BEGIN")) {
            sqlx::raw_sql(AssertSqlSafe(block.clone())).execute(&mut user).await.unwrap();
        }
        for touch in ["SELECT payload FROM", "UPDATE", "DELETE FROM"] {
            let touch = format!("{touch} outbox {}", if touch == "UPDATE" { "SET topic = ''" } else { "" });
            let refused = sqlx::raw_sql(AssertSqlSafe(touch)).execute(&mut user).await.unwrap_err();
            assert!(refused.to_string().contains("permission denied"), "{refused}");
        }
        assert_contract_message(harness.store()).await;
        user.close().await.unwrap();
        harness.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    });
}

/// OBX-095, H54: the function refuses what the library refuses, names field and limit, and never repeats a value.
#[test]
fn the_function_names_the_field_that_is_wrong() {
    run(|| async {
        let harness = PostgresHarness::<Direct>::start(always_everything()).await;
        let mut user = PgConnection::connect(&Direct::url()).await.unwrap();
        let table = [
            ("'', 'p'", "topic", "must not be empty"),
            ("NULL, 'p'", "topic", "must not be empty"),
            ("'t', NULL::bytea", "payload", "must not be null"),
            ("'t', repeat('canary', 200000)", "payload", "must have at most 1048576 bytes, has 1200000"),
            ("repeat('canary', 50), 'p'", "topic", "must have at most 255 characters, has 300"),
            ("'t', 'p', repeat('canary', 50)", "key", "must have at most 255 characters, has 300"),
            ("'t', 'p', tenant_id => repeat('canary', 50)", "tenant_id", "at most 255 characters, has 300"),
            ("'t', 'p', content_type => repeat('canary', 50)", "content_type", "at most 255 characters, has 300"),
            ("'t', 'p', message_id => '00000000-0000-0000-0000-000000000000'", "message_id", "nil UUID"),
            ("'t', 'p', headers => '[\"canary\"]'", "headers", "must be a JSON object"),
            ("'t', 'p', headers => '{\"canary\": {}}'", "headers", "not text, number or truth value"),
            ("'t', 'p', headers => '{\"\": \"canary\"}'", "headers", "must not have an empty name"),
            (
                "'t', 'p', headers => jsonb_build_object('a', repeat('canary', 20000))",
                "headers",
                "must have at most 65536 bytes, has 120001",
            ),
            ("'t', 'p', delay => interval '11 years'", "delay", "must lie within 316224000 seconds"),
            ("'t', 'p', expires_in => interval '11 years'", "expires_in", "must lie within 316224000 seconds"),
            ("'t', 'p', delay => interval '1 h', expires_in => interval '1 h'", "expires_in", "after the due time"),
            ("'t', 'p', priority => 40000", "priority", "must be -32768 to 32767"),
            ("'t', 'p', occurred_at => '1969-12-31'", "occurred_at", "1970 to 2199"),
        ];
        for (arguments, field, words) in table {
            let call = format!("SELECT {}.enqueue({arguments})", harness.naming.schema());
            let refused = sqlx::raw_sql(AssertSqlSafe(call)).execute(&mut user).await.unwrap_err();
            let refused = refused.as_database_error().unwrap().downcast_ref::<PgDatabaseError>();
            assert_eq!((refused.code(), refused.column()), ("23514", Some(field)), "{refused:?}");
            assert!(refused.message().starts_with(field) && refused.message().contains(words), "{refused:?}");
            assert!(!format!("{refused:?}").contains("canary"), "{refused:?}");
        }
        assert_eq!(harness.number("SELECT count(*) FROM {schema}.outbox").await, 0);
    });
}
