//! What others do with the tables of MySQL and MariaDB by plain SQL: other languages, a DBA with the printed script.

use pillarbox_core::store::Enqueue;
use pillarbox_core::{OutboxAdmin as _, OutboxStore as _, OwnerToken, SchemaAdmin as _};
use pillarbox_testing::{Harness as _, assert_contract_message, code_blocks, contract_key_hash};
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection, Row as _};

use crate::harness::{MysqlHarness, url};
use crate::hazards::{claim, connection, run, start, vec_of};

const CONTRACT: &str = include_str!("../../../../docs/sql-contract.md");

/// Another language gets along with plain SQL: enqueue, claim, ack, abandon, fail, reap. OBX-095, OBX-101.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_routines_serve_other_languages() {
    let h = start().await;
    let mut user = connection().await;
    let call = |sql: &str| AssertSqlSafe(h.named(sql));
    user.execute(call("CALL {t}_enqueue('t', 'p', NULL, NULL)")).await.unwrap_err();
    run(&mut user, "START TRANSACTION".into()).await;
    let named = "JSON_OBJECT('message_id', '10000000-0000-0000-0000-000000000000')";
    for options in [named, named, "NULL", "'{}'", "'{\"headers\": {\"a\": \"b\"}}'", "'{\"delay_seconds\": 3600}'"] {
        user.execute(call(&format!("CALL {{t}}_enqueue('t', 'p', 'k', {options})"))).await.unwrap();
    }
    // A claim would commit the caller's transaction; it refuses instead.
    user.execute(call("CALL {t}_claim(x'AA', 60, 10)")).await.unwrap_err();
    run(&mut user, "COMMIT".into()).await;
    let rows = sqlx::raw_sql(call("CALL {t}_claim(x'AA', 60, 10)")).fetch_all(&mut user).await.unwrap();
    let held: Vec<(i64, i64)> = rows
        .iter()
        .map(|row| (row.try_get_unchecked("id").unwrap(), row.try_get_unchecked("fence").unwrap()))
        .collect();
    assert_eq!(held.len(), 4);
    let applied = async |user: &mut MySqlConnection, sql: String| {
        sqlx::raw_sql(AssertSqlSafe(h.named(&sql))).fetch_all(user).await.unwrap().len()
    };
    let [(a, fence), (b, _), (c, _), (d, _)] = held[..] else { panic!("four rows") };
    assert_eq!(applied(&mut user, format!("CALL {{t}}_ack(x'BB', {a}, {fence})")).await, 0);
    assert_eq!(applied(&mut user, format!("CALL {{t}}_ack(x'AA', {a}, {fence})")).await, 1);
    assert_eq!(applied(&mut user, format!("CALL {{t}}_ack(x'AA', {a}, {fence})")).await, 0);
    assert_eq!(applied(&mut user, format!("CALL {{t}}_abandon(x'AA', {b}, {fence}, 60, 'why \"so\"')")).await, 1);
    assert_eq!(applied(&mut user, format!("CALL {{t}}_fail(x'AA', {c}, {fence}, NULL)")).await, 1);
    h.run(&format!("UPDATE {{t}} SET locked_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE id = {d}")).await;
    let reaped = sqlx::raw_sql(call("CALL {t}_reap(NULL, 1000)")).fetch_all(&mut user).await.unwrap();
    assert_eq!(reaped[0].try_get_unchecked::<i64, _>("released").unwrap(), 1);
    let total = h.store().overview().await.unwrap().total();
    assert_eq!((total.pending, total.processing, total.done, total.dead), (3, 0, 1, 1));
}

/// The printed script runs as it stands in the vendor's client, twice, and leaves what a deployment leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_runs_in_the_client() {
    let h = start().await;
    h.run("DROP TABLE {t}, {t}_shelf, {t}_lane, {t}_claimed, {s}_schema_version").await;
    let good: sqlx::mysql::MySqlConnectOptions = url().parse().unwrap();
    for _ in 0..2 {
        let mut client = std::process::Command::new("mariadb")
            .args(["--no-defaults", "--protocol=tcp", "-h", good.get_host(), "-P", &good.get_port().to_string()])
            .args(["-u", good.get_username(), good.get_database().unwrap()])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("the mariadb client is installed");
        std::io::Write::write_all(client.stdin.as_mut().unwrap(), h.store().schema_script().as_bytes()).unwrap();
        assert!(client.wait().unwrap().success());
    }
    h.store().check_schema().await.unwrap().require_current().unwrap();
    h.store().enqueue(Enqueue::pending(&vec_of(2))).await.unwrap();
    assert_eq!(h.store().claim(claim(OwnerToken::new(), 5)).await.unwrap().len(), 2);
}

/// The statements of the document, on the tables of this test, with an `orders` table for them.
async fn contract(h: &MysqlHarness) -> Vec<String> {
    h.run("CREATE TABLE {s}_orders (id BIGINT PRIMARY KEY, total_cents BIGINT)").await;
    let ours = |block: String| {
        let block = block.replace("pillarbox_outbox", "{t}").replace("orders (", "{s}_orders (");
        h.named(&block.replace("shop_writer", "'{s}'@'%'"))
    };
    code_blocks(CONTRACT, "sql mysql").into_iter().map(ours).collect()
}

/// OBX-095, OBX-101: what the document says a program may do, it can do, word by word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_of_the_contract_runs_as_written() {
    let h = start().await;
    h.run("CREATE USER '{s}'@'%'").await;
    let mut user = connection().await;
    let mut hash = None;
    for block in contract(&h).await {
        let rows = sqlx::raw_sql(AssertSqlSafe(block)).fetch_all(&mut user).await.unwrap();
        hash = rows.iter().find_map(|row| row.try_get_unchecked::<i64, _>("hash").ok()).or(hash);
    }
    assert_eq!(hash, Some(contract_key_hash()));
    assert_contract_message(h.store()).await;
    assert_eq!(h.number(&format!("SELECT count(*) FROM {{t}} WHERE key_hash = {}", contract_key_hash())).await, 1);
    assert_eq!(h.number("SELECT count(*) FROM {s}_orders").await, 2);
    let total = h.store().overview().await.unwrap().total();
    assert_eq!(
        (total.processing, total.pending),
        (2, 2),
        "order 1 and the payment were claimed, 4 comes after 1, 2 waits"
    );
    h.run("DROP USER '{s}'@'%'").await;
}

/// OBX-104, OBX-105: the rights of the document are enough to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_with_the_rights_of_the_contract_writes() {
    let h = start().await;
    h.run("CREATE USER '{s}'@'%'").await;
    let blocks = contract(&h).await;
    let rights = blocks.iter().find(|block| block.starts_with("GRANT")).unwrap();
    h.run(rights).await;
    h.run("GRANT INSERT ON {s}_orders TO '{s}'@'%'").await;
    let connect: MySqlConnectOptions = url().parse().unwrap();
    let mut user = MySqlConnection::connect_with(&connect.username(&h.named("{s}"))).await.unwrap();
    for block in blocks.into_iter().filter(|block| block.starts_with("START")) {
        run(&mut user, block).await;
    }
    user.execute(AssertSqlSafe(h.named("CALL {t}_claim(x'AA', 60, 10)"))).await.unwrap_err();
    assert_contract_message(h.store()).await;
    let claimed = h.store().claim(claim(OwnerToken::new(), 5)).await.unwrap();
    assert_eq!(claimed.len(), 2, "order 1 and the payment; 4 comes after 1, 2 waits");
    user.close().await.unwrap();
    h.run("DROP USER '{s}'@'%'").await;
}

/// OBX-095, H54: the procedure refuses what the library refuses, names field and limit, never repeats a value, and leaves the
/// transaction whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_procedure_names_the_field_that_is_wrong() {
    let h = start().await;
    let mut user = connection().await;
    let long = "REPEAT('canary', 50)";
    let table = [
        ("'', 'p', NULL, NULL".to_owned(), "topic must not be empty"),
        ("NULL, 'p', NULL, NULL".to_owned(), "topic must not be empty"),
        ("'t', NULL, NULL, NULL".to_owned(), "payload must not be null"),
        (
            "'t', REPEAT('canary', 200000), NULL, NULL".to_owned(),
            "payload must have at most 1048576 bytes, has 1200000",
        ),
        (format!("{long}, 'p', NULL, NULL"), "topic must have at most 255 characters, has 300"),
        (format!("'t', 'p', {long}, NULL"), "key must have at most 255 characters, has 300"),
        ("'t', 'p', CONCAT('canary', CHAR(0)), NULL".to_owned(), "key must not contain the character NUL"),
        (
            format!("'t', 'p', 'k', JSON_OBJECT('tenant_id', {long})"),
            "tenant_id must have at most 255 characters, has 300",
        ),
        ("'t', 'p', 'k', 'canary'".to_owned(), "options must be JSON"),
        ("'t', 'p', 'k', '[1]'".to_owned(), "options must be a JSON object"),
        ("'t', 'p', 'k', '{\"delay\": 5}'".to_owned(), "options must not have the name \"delay\""),
        ("'t', 'p', 'k', '{\"tenant_id\": 5}'".to_owned(), "tenant_id must be text"),
        ("'t', 'p', 'k', '{\"delay_seconds\": \"canary\"}'".to_owned(), "delay_seconds must be a number"),
        ("'t', 'p', 'k', '{\"delay_seconds\": 1e9}'".to_owned(), "delay_seconds must lie within 316224000 seconds"),
        (
            "'t', 'p', 'k', '{\"delay_seconds\": 5, \"expires_in_seconds\": 5}'".to_owned(),
            "expires_in_seconds must lie after the due time",
        ),
        ("'t', 'p', 'k', '{\"priority\": 40000}'".to_owned(), "priority must be -32768 to 32767"),
        ("'t', 'p', 'k', '{\"message_id\": \"canary\"}'".to_owned(), "message_id must be a UUID"),
        ("'t', 'p', 'k', '{\"headers\": \"canary\"}'".to_owned(), "headers must be a JSON object"),
        (
            "'t', 'p', 'k', '{\"headers\": {\"canary\": {}}}'".to_owned(),
            "headers must not have a value that is not text, number or truth value",
        ),
        ("'t', 'p', 'k', '{\"headers\": {\"\": \"canary\"}}'".to_owned(), "headers must not have an empty name"),
        (
            "'t', 'p', 'k', JSON_OBJECT('headers', JSON_OBJECT('a', REPEAT('canary', 20000)))".to_owned(),
            "headers must have at most 65536 bytes, has 120001",
        ),
    ];
    run(&mut user, "START TRANSACTION".into()).await;
    for (arguments, words) in table {
        let call = AssertSqlSafe(h.named(&format!("CALL {{t}}_enqueue({arguments})")));
        let refused = sqlx::raw_sql(call).execute(&mut user).await.unwrap_err();
        let refused = refused.as_database_error().unwrap().downcast_ref::<MySqlDatabaseError>();
        assert_eq!((refused.number(), refused.message()), (30002, words));
    }
    run(&mut user, h.named("CALL {t}_enqueue('t', 'p', 'k', '{}')")).await;
    run(&mut user, "COMMIT".into()).await;
    assert_eq!(h.number("SELECT count(*) FROM {t}").await, 1);
}
