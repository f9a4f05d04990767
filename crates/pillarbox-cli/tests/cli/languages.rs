//! Programs in Python and Node enqueue in transactions of their own, and the relay delivers what they wrote.

use std::process::Command;

use pillarbox::prelude::*;
use serde_json::json;

use super::relay::Running;
use super::{fresh, pillarbox};

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
        let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
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

/// Deploys the tables, lets the program work, then a relay, and compares what was written with what was delivered.
async fn deliver(language: Language, url: &str) {
    assert!(pillarbox(&["migrate", "--url", url]).status.success());
    for (order, rollback) in [(COMMITTED[0], false), (ROLLED_BACK, true), (COMMITTED[1], false)] {
        let said = language.place(url, order, rollback);
        let (end, count) = if rollback { ("rolled back", 0) } else { ("committed", 1) };
        let expected = format!("order {order}: {end}; the database has {count} order and {count} message of it\n");
        assert_eq!(said, expected);
    }
    let mut relay = Running::start(&["--url", url, "--to", "-", "--destination", "-", "--listen", "off"]);
    relay.says();
    for order in COMMITTED {
        let delivered = relay.delivered();
        let payload: serde_json::Value = serde_json::from_str(delivered["payload"].as_str().unwrap()).unwrap();
        assert_eq!(payload, json!({ "id": order, "total_cents": 999 }));
        assert_eq!(delivered["topic"], "order.created");
        assert_eq!(delivered["key"], "customer-7");
        assert_eq!(delivered["correlation_id"], format!("request-{order}"));
        assert_eq!(delivered["content_type"], "application/json");
        assert_eq!(delivered["headers"], json!({ "attempt": "1", "source": language.source() }));
    }
    relay.end();
    let store = pillarbox::connect(url, StoreOptions::default()).await.unwrap();
    let total = store.overview().await.unwrap().total();
    assert_eq!((total.pending + total.processing + total.dead, total.done), (0, 2), "a rollback leaves nothing");
}

/// The orders that the program's own table has.
const ORDERS: &str = "SELECT CAST(id AS CHAR(1)) FROM orders ORDER BY id";

fn assert_committed(orders: Vec<Vec<Option<String>>>) {
    assert_eq!(orders, COMMITTED.map(|order| vec![Some(order.to_string())]));
}

/// A database of its own on a server, and the address of both.
fn of_its_own(variable_name: &str) -> (String, String, String) {
    let server = variable(variable_name);
    let database = format!("l_{}", &MessageId::new().as_uuid().simple().to_string()[16..]);
    let url = format!("{}/{database}", server.rsplit_once('/').unwrap().0);
    (server, url, database)
}

async fn on_postgres(language: Language) {
    use pillarbox::postgres::read_texts;
    let (server, url, database) = of_its_own("PILLARBOX_TEST_POSTGRES_URL");
    read_texts(&server, &format!("CREATE DATABASE {database}")).await.unwrap();
    deliver(language, &url).await;
    assert_committed(read_texts(&url, ORDERS).await.unwrap());
    read_texts(&server, &format!("DROP DATABASE {database} WITH (FORCE)")).await.unwrap();
}

async fn on_mariadb(language: Language) {
    use pillarbox::mysql::read_texts;
    let (server, url, database) = of_its_own("PILLARBOX_TEST_MYSQL_URL");
    read_texts(&server, &format!("CREATE DATABASE {database}")).await.unwrap();
    deliver(language, &url).await;
    assert_committed(read_texts(&url, ORDERS).await.unwrap());
    read_texts(&server, &format!("DROP DATABASE {database}")).await.unwrap();
}

/// BUS-12, OBX-095: psycopg.
#[tokio::test(flavor = "multi_thread")]
async fn python_commits_an_order_and_its_message_on_postgres() {
    on_postgres(Language::Python).await;
}

/// BUS-12, OBX-095: PyMySQL.
#[tokio::test(flavor = "multi_thread")]
async fn python_commits_an_order_and_its_message_on_mariadb() {
    on_mariadb(Language::Python).await;
}

/// BUS-12: the standard library's sqlite3.
#[tokio::test(flavor = "multi_thread")]
async fn python_commits_an_order_and_its_message_on_sqlite() {
    let (_directory, url) = fresh();
    deliver(Language::Python, &url).await;
    assert_committed(pillarbox::sqlite::read_texts(&url, ORDERS).await.unwrap());
}

/// BUS-12, OBX-095: pg.
#[tokio::test(flavor = "multi_thread")]
async fn node_commits_an_order_and_its_message_on_postgres() {
    on_postgres(Language::Node).await;
}

/// BUS-12, OBX-095: mysql2.
#[tokio::test(flavor = "multi_thread")]
async fn node_commits_an_order_and_its_message_on_mariadb() {
    on_mariadb(Language::Node).await;
}
