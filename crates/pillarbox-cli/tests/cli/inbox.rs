//! The inbox beside the outbox: its tables, its state, its messages.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::AnyInbox;
use pillarbox::inbox::{ContentHash, InboxOptions};
use pillarbox::naming::Naming;
use pillarbox::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use super::{code, complaint, fresh, pillarbox, stdout};

/// Where the tables of one test are.
pub(super) struct Place {
    url: String,
    schema: String,
    _folder: Option<TempDir>,
}

impl Place {
    /// One on every kind of database.
    pub(super) fn everywhere() -> [Self; 3] {
        [Self::sqlite(), Self::server("PILLARBOX_TEST_POSTGRES_URL"), Self::server("PILLARBOX_TEST_MYSQL_URL")]
    }

    pub(super) fn sqlite() -> Self {
        let (folder, url) = fresh();
        Self { url, schema: "pillarbox".into(), _folder: Some(folder) }
    }

    pub(super) fn server(name: &str) -> Self {
        let url = std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"));
        let schema = format!("c_{}", &MessageId::new().as_uuid().simple().to_string()[16..]);
        Self { url, schema, _folder: None }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    pub(super) fn kind(&self) -> &str {
        self.url.split(':').next().unwrap()
    }

    /// What plain SQL calls a table.
    pub(super) fn table(&self, name: &str) -> String {
        let joint = if self.kind() == "postgres" { "." } else { "_" };
        format!("{}{joint}{name}", self.schema)
    }

    /// Runs a plain statement here, as somebody in a database's own client does.
    pub(super) async fn sql(&self, statement: &str) {
        let (sqlite, postgres, mysql) =
            (pillarbox::sqlite::read_texts, pillarbox::postgres::read_texts, pillarbox::mysql::read_texts);
        let done = match self.kind() {
            "sqlite" => sqlite(&self.url, statement).await,
            "postgres" => postgres(&self.url, statement).await,
            _ => mysql(&self.url, statement).await,
        };
        done.unwrap();
    }

    /// Runs the command here; its exit code and what it prints.
    pub(super) fn run(&self, arguments: &[&str]) -> (i32, String) {
        let output = pillarbox(&[arguments, &["--url", &self.url, "--schema", &self.schema]].concat());
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        (code(&output), stdout(&output).to_owned())
    }

    pub(super) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["--json"]].concat()).1).unwrap()
    }

    /// The one line of a command that fails, and its exit code.
    pub(super) fn refused(&self, arguments: &[&str]) -> (i32, String) {
        let output = pillarbox(&[arguments, &["--url", &self.url, "--schema", &self.schema]].concat());
        (code(&output), complaint(&output).to_owned())
    }

    pub(super) async fn inbox(&self) -> Arc<dyn AnyInbox> {
        self.store().await.open_inbox(InboxOptions::default()).await.unwrap()
    }

    pub(super) async fn store(&self) -> Arc<dyn Store> {
        let naming = Naming::new(self.schema.as_str(), "outbox").unwrap();
        // What is replayed stands before what was claimed last: every claim looks at everything.
        let (schema, rescan_interval) = (SchemaPolicy::Check, Duration::ZERO);
        let options = StoreOptions { naming, schema, rescan_interval, ..StoreOptions::default() };
        pillarbox::connect(&self.url, options).await.unwrap()
    }
}

fn incoming(id: &str, content: &str) -> Incoming {
    let receipt = Receipt::new("stripe", id).hash(ContentHash::new("sha256", content));
    Incoming::new(receipt, Message::new("stripe.paid", content.to_owned()))
}

async fn fail_one(inbox: &dyn AnyInbox, reason: &str) {
    let (queue, owner) = (inbox.queue(), OwnerToken::new());
    let claimed = queue.claim(Claim::new(owner, Duration::from_secs(600), 1).unwrap()).await.unwrap();
    let verdict = pillarbox::Verdict::Fail { reason: reason.into() };
    queue.settle(owner, &[Settlement { held: claimed[0].held, verdict }]).await.unwrap();
}

/// IBX-114, IBX-115, IBX-116.
fn migrate_creates_an_inbox_when_it_is_asked_to(place: &Place) {
    assert_eq!(place.run(&["migrate"]).1.lines().count(), 1);
    let (exit, status) = place.run(&["status"]);
    assert_eq!((exit, status.lines().count()), (0, 1), "no inbox is no problem: {status}");
    assert_eq!(place.json(&["status"])["inbox"], Value::Null);
    assert_eq!(place.run(&["migrate", "--check"]).1.lines().count(), 1);
    let (exit, refused) = place.refused(&["migrate", "--check", "--inbox"]);
    assert_eq!(exit, 1);
    assert!(refused.contains("/inbox: the tables do not exist") && refused.contains("--inbox"), "{refused}");

    let (_, created) = place.run(&["migrate", "--inbox"]);
    let lines: Vec<_> = created.lines().collect();
    assert!(lines[0].contains(": nothing to do, "), "{created}");
    assert!(lines[1].contains("/inbox: tables created, version "), "{created}");
    // What is there is looked after without being named.
    for arguments in [&["migrate"][..], &["migrate", "--check"], &["migrate", "--check", "--inbox"]] {
        assert_eq!(place.run(arguments).1.lines().count(), 2, "{arguments:?}");
    }
}

/// IBX-008: counts, records, mismatches and the dead of an inbox, through the commands of the outbox.
async fn an_inbox_is_looked_at_and_put_right(place: &Place) {
    place.run(&["migrate", "--inbox"]);
    let inbox = place.inbox().await;
    inbox.receive(&[incoming("evt_1", "canary")]).await.unwrap();
    fail_one(&*inbox, "no such invoice").await;
    inbox.receive(&[incoming("evt_2", "canary")]).await.unwrap();
    inbox.already_processed(incoming("evt_2", "another").receipt()).await.unwrap();

    let (exit, status) = place.run(&["status"]);
    assert_eq!(exit, 4, "{status}");
    let line = status.lines().find(|line| line.contains("/inbox   ")).unwrap();
    assert!(line.contains("pending 1 (oldest") && line.contains("in flight 0"), "{line}");
    assert!(line.ends_with("dead 1   mismatches 1   ✗ critical: dead > 0"), "{line}");
    let status = place.json(&["status"]);
    assert_eq!((&status["health"], &status["inbox"]["health"]), (&"fine".into(), &"critical".into()));
    assert_eq!((&status["inbox"]["mismatch_count"], &status["inbox"]["total"]["dead"]), (&1.into(), &1.into()));

    let record = place.json(&["inbox", "get", "stripe", "evt_1"]);
    assert_eq!((&record["state"], &record["last_error"]), (&"dead".into(), &"no such invoice".into()));
    let (exit, text) = place.run(&["inbox", "get", "stripe", "evt_2"]);
    assert_eq!(exit, 0);
    for line in ["message id   evt_2", "state        processing", "hash         sha256", "mismatches   1"] {
        assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
    }
    assert!(!text.contains("canary"), "{text}");
    let mismatches = place.json(&["inbox", "mismatches"]);
    assert_eq!(mismatches["messages"].as_array().unwrap().len(), 1);
    assert_eq!(mismatches["messages"][0]["message_id"], "evt_2");

    let dead = place.json(&["dead", "list", "--inbox"]);
    assert_eq!(dead["messages"][0]["receipt"], serde_json::json!({ "source": "stripe", "message_id": "evt_1" }));
    assert!(place.run(&["dead", "list"]).1.lines().count() == 1, "the outbox has none");
    assert!(place.run(&["dead", "replay", "--inbox"]).1.contains("would replay 1 message (since "));
    assert!(place.run(&["dead", "replay", "--inbox", "--yes"]).1.ends_with("/inbox: replayed 1 message\n"));
    assert_eq!(place.json(&["inbox", "get", "stripe", "evt_1"])["state"], "processing");
    fail_one(&*inbox, "no such invoice").await;
    place.run(&["dead", "delete", "--inbox", "--yes"]);
    assert_eq!(place.json(&["inbox", "get", "stripe", "evt_1"])["state"], "done", "given up for good");
    assert_eq!(place.run(&["status"]).0, 0);
}

macro_rules! on_every_database {
    ($($name:ident: $place:expr,)*) => {$(
        mod $name {
            use super::Place;

            #[test]
            fn migrate_creates_an_inbox_when_it_is_asked_to() {
                super::migrate_creates_an_inbox_when_it_is_asked_to(&$place);
            }

            #[tokio::test]
            async fn an_inbox_is_looked_at_and_put_right() {
                super::an_inbox_is_looked_at_and_put_right(&$place).await;
            }
        }
    )*};
}

on_every_database! {
    sqlite: Place::sqlite(),
    postgres: Place::server("PILLARBOX_TEST_POSTGRES_URL"),
    mysql: Place::server("PILLARBOX_TEST_MYSQL_URL"),
}

/// What is printed for the DBA does what `migrate --inbox` does, with the list of instances and without.
#[tokio::test]
async fn the_printed_script_makes_the_tables_of_an_inbox() {
    for tables in [&["--inbox"][..], &["--inbox", "--instances"]] {
        let (directory, url) = fresh();
        let script = pillarbox(&[&["migrate", "--print", "--url", &url], tables].concat()).stdout;
        let script = String::from_utf8(script).unwrap();
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(directory.path().join("shop.db"));
        let pool = sqlx::SqlitePool::connect_with(options.create_if_missing(true)).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(&pool).await.unwrap();
        pool.close().await;
        assert_eq!(code(&pillarbox(&[&["migrate", "--check", "--url", &url], tables].concat())), 0);
    }
}

#[test]
fn an_inbox_may_have_another_name() {
    let place = Place::sqlite();
    place.run(&["migrate", "--inbox", "--inbox-table", "mail"]);
    assert!(place.run(&["status", "--inbox-table", "mail"]).1.contains("store sqlite:shop.db/mail   "));
    assert_eq!(place.json(&["status"])["inbox"], Value::Null);
    let (exit, refused) = place.refused(&["migrate", "--inbox-table", "outbox"]);
    assert_eq!(exit, 2);
    assert!(refused.contains("table must not be the outbox's own"), "{refused}");
}

#[test]
fn a_missing_inbox_says_what_to_run() {
    let place = Place::sqlite();
    place.run(&["migrate"]);
    for command in [&["inbox", "get", "stripe", "evt_1"][..], &["inbox", "mismatches"], &["dead", "list", "--inbox"]] {
        let (exit, refused) = place.refused(command);
        assert_eq!(exit, 1, "{command:?}");
        assert!(refused.contains("has no inbox `inbox`"), "{refused}");
        assert!(refused.contains("--inbox-table") && refused.contains("`pillarbox migrate --inbox`"), "{refused}");
    }
}

#[test]
fn an_unknown_message_is_a_failure_and_a_senseless_name_is_wrong_use() {
    let place = Place::sqlite();
    place.run(&["migrate", "--inbox"]);
    let (exit, refused) = place.refused(&["inbox", "get", "stripe", "evt\u{1b}_1"]);
    assert_eq!(exit, 1);
    assert!(refused.contains(r#"no message "evt\u{1b}_1" of "stripe""#), "{refused}");
    let (exit, refused) = place.refused(&["inbox", "get", "", "evt_1"]);
    assert_eq!(exit, 2);
    assert!(refused.contains("source must not be empty"), "{refused}");
    assert_eq!(place.refused(&["inbox", "mismatches", "--limit", "0"]).0, 2);
}

/// H62: what a sender calls its messages does not steer the terminal of whoever looks at them.
#[tokio::test]
async fn names_and_errors_of_senders_are_shown_not_obeyed() {
    let place = Place::sqlite();
    place.run(&["migrate", "--inbox"]);
    let inbox = place.inbox().await;
    for id in ["\x1b[2J1", "\u{202e}2"] {
        inbox.receive(&[incoming(id, "canary"), incoming(id, "another")]).await.unwrap();
        fail_one(&*inbox, "\x1b[31m\nred").await;
    }
    let texts = [
        place.run(&["inbox", "get", "stripe", "\x1b[2J1"]).1,
        place.run(&["inbox", "mismatches", "--limit", "1"]).1,
        place.run(&["inbox", "mismatches", "--after", "stripe", "\x1b[2J1"]).1,
        place.run(&["dead", "list", "--inbox"]).1,
        place.run(&["dead", "list", "--inbox", "--json"]).1,
    ];
    for text in &texts {
        assert!(!text.contains(['\x1b', '\u{202e}']) && !text.contains("another"), "{text}");
    }
    assert!(texts[1].ends_with("more: add --after 'stripe' '\\u{1b}[2J1'\n"), "{}", texts[1]);
    assert!(texts[2].contains("\\u{202e}2") && !texts[2].contains("[2J1"), "{}", texts[2]);
    assert!(texts[3].contains("\\u{1b}[31m\\nred"), "{}", texts[3]);
}
