//! What others do with the tables of MySQL and MariaDB by plain SQL: other languages, a DBA with the printed script.

use pillarbox_core::store::Enqueue;
use pillarbox_core::{OutboxAdmin as _, OutboxStore as _, OwnerToken, SchemaAdmin as _};
use pillarbox_testing::Harness as _;
use sqlx::{AssertSqlSafe, Executor as _, MySqlConnection, Row as _};

use crate::harness::url;
use crate::hazards::{claim, connection, run, start, vec_of};

/// Another language gets along with plain SQL: enqueue, claim, ack, abandon, fail, reap. OBX-095, OBX-101.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_routines_serve_other_languages() {
    let h = start().await;
    let mut user = connection().await;
    let call = |sql: &str| AssertSqlSafe(h.named(sql));
    user.execute(call("CALL {t}_enqueue(NULL, 't', 'p', NULL, NULL, NULL, NULL, NULL, 0)")).await.unwrap_err();
    run(&mut user, "START TRANSACTION".into()).await;
    for (id, delay) in [("x'10'", 0), ("x'10'", 0), ("NULL", 0), ("NULL", 0), ("NULL", 0), ("NULL", 3600)] {
        let sql =
            format!("CALL {{t}}_enqueue({id}, 't', 'p', 'type', 'k', 'c', 'text/plain', '{{\"a\":\"b\"}}', {delay})");
        user.execute(call(&sql)).await.unwrap();
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
    h.run("DROP TABLE {t}, {t}_shelf, {s}_schema_version").await;
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
