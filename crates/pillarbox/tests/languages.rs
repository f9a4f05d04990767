//! Programs in Python and Node enqueue in transactions of their own, and a runtime handles what they wrote.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pillarbox::WithInbox;
use pillarbox::prelude::*;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use tokio::sync::mpsc;

/// Two orders that were committed, with one between them that was rolled back.
const COMMITTED: [i64; 2] = [1, 3];
const ROLLED_BACK: i64 = 2;

/// A program, and the source that it names in a header.
#[derive(Clone, Copy)]
enum Language {
    Python,
    Node,
}

impl Language {
    fn source(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
        }
    }

    fn command(self) -> Command {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        match self {
            Self::Python => {
                let mut python = Command::new(variable("PILLARBOX_TEST_PYTHON"));
                python.arg(examples.join("python/order.py"));
                python
            }
            Self::Node => {
                let mut node = Command::new("node");
                node.env("NODE_PATH", variable("PILLARBOX_TEST_NODE_PATH")).arg(examples.join("node/order.js"));
                node
            }
        }
    }

    /// What the program says of its work.
    fn place(self, url: &str, order: i64, rollback: bool) -> String {
        let mut command = self.command();
        command.arg(url).args(["--id", &order.to_string()]);
        if rollback {
            command.arg("--rollback");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`, or `cargo xtask languages`"))
}

/// Lets the program work, then a runtime, and compares what was written with what was delivered.
async fn deliver<S: WithInbox + OutboxAdmin>(language: Language, url: &str, outbox: &Outbox<S>) {
    for (order, rollback) in [(COMMITTED[0], false), (ROLLED_BACK, true), (COMMITTED[1], false)] {
        let said = language.place(url, order, rollback);
        let (end, count) = if rollback { ("rolled back", 0) } else { ("committed", 1) };
        let expected = format!("order {order}: {end}; the database has {count} order and {count} message of it\n");
        assert_eq!(said, expected);
    }
    let (delivered, mut messages) = mpsc::unbounded_channel();
    let runtime = Runtime::builder(outbox)
        .on_topic("order.created", move |message: Raw| {
            let told = delivered.send((*message).clone());
            async move { told.map_err(|_| Failure::dead("the test is over")) }
        })
        .start()
        .await
        .unwrap();
    for order in COMMITTED {
        let message = messages.recv().await.unwrap();
        let payload: serde_json::Value = serde_json::from_slice(message.payload()).unwrap();
        assert_eq!(payload, serde_json::json!({ "id": order, "total_cents": 999 }));
        assert_eq!(message.get_key(), Some("customer-7"));
        assert_eq!(message.get_correlation_id(), Some(format!("request-{order}").as_str()));
        assert_eq!(message.get_content_type(), Some("application/json"));
        let headers: Vec<_> = message.get_headers().iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(headers, [("attempt", "1"), ("source", language.source())]);
    }
    assert_eq!(runtime.shutdown(Duration::from_secs(30)).await.unsettled, 0);
    let total = outbox.store().overview().await.unwrap().total();
    assert_eq!((total.pending + total.processing + total.dead, total.done), (0, 2), "a rollback leaves nothing");
}

/// A database of its own on a server, and the address of both.
fn of_its_own(variable_name: &str) -> (String, String, String) {
    let server = variable(variable_name);
    let database = format!("l_{}", &MessageId::new().as_uuid().simple().to_string()[16..]);
    let url = format!("{}/{database}", server.rsplit_once('/').unwrap().0);
    (server, url, database)
}

async fn on_postgres(language: Language) {
    let (server, url, database) = of_its_own("PILLARBOX_TEST_POSTGRES_URL");
    let mut admin = PgConnection::connect(&server).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {database}"))).execute(&mut admin).await.unwrap();
    let outbox = Outbox::postgres(&url).await.unwrap();
    deliver(language, &url, &outbox).await;
    let orders: Vec<i64> =
        sqlx::query_scalar("SELECT id FROM orders ORDER BY id").fetch_all(outbox.store().pool()).await.unwrap();
    assert_eq!(orders, COMMITTED);
    outbox.store().pool().close().await;
    let drop = format!("DROP DATABASE {database} WITH (FORCE)");
    sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut admin).await.unwrap();
}

async fn on_mariadb(language: Language) {
    let (server, url, database) = of_its_own("PILLARBOX_TEST_MYSQL_URL");
    let mut admin = MySqlConnection::connect(&server).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {database}"))).execute(&mut admin).await.unwrap();
    let outbox = Outbox::mysql(&url).await.unwrap();
    deliver(language, &url, &outbox).await;
    let orders: Vec<i64> =
        sqlx::query_scalar("SELECT id FROM orders ORDER BY id").fetch_all(outbox.store().pool()).await.unwrap();
    assert_eq!(orders, COMMITTED);
    outbox.store().pool().close().await;
    sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE {database}"))).execute(&mut admin).await.unwrap();
}

/// BUS-12, OBX-095: psycopg.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_commits_an_order_and_its_message_on_postgres() {
    on_postgres(Language::Python).await;
}

/// BUS-12, OBX-095: PyMySQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_commits_an_order_and_its_message_on_mariadb() {
    on_mariadb(Language::Python).await;
}

/// BUS-12: the standard library's sqlite3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_commits_an_order_and_its_message_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("shop.db");
    let url = format!("sqlite:{}", file.display());
    let outbox = Outbox::sqlite(&url).await.unwrap();
    deliver(Language::Python, &url, &outbox).await;
    let orders: Vec<i64> =
        sqlx::query_scalar("SELECT id FROM orders ORDER BY id").fetch_all(outbox.store().pool()).await.unwrap();
    assert_eq!(orders, COMMITTED);
}

/// BUS-12, OBX-095: pg.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_commits_an_order_and_its_message_on_postgres() {
    on_postgres(Language::Node).await;
}

/// BUS-12, OBX-095: mysql2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_commits_an_order_and_its_message_on_mariadb() {
    on_mariadb(Language::Node).await;
}
