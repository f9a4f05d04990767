//! What looks after the store itself: doctor, bench, top, and what makes the command at home on a machine.

use pillarbox::prelude::*;
use serde_json::Value;

use super::inbox::Place;
use super::{code, complaint, pillarbox, stdout};

fn health(findings: &Value, check: &str) -> String {
    let found = findings["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == check);
    found.map_or("missing", |finding| finding["health"].as_str().unwrap()).to_owned()
}

/// H7, H58: what can be known of every database, each with what to do where it is wrong.
#[test]
fn the_doctor_looks_at_everything() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        let (exit, text) = place.run(&["doctor"]);
        let found = place.json(&["doctor"]);
        for check in ["schema", "clock", "privileges", "isolation"] {
            assert_eq!(health(&found, check), "fine", "{text}");
        }
        assert_eq!(health(&found, "inbox"), "unknown", "{text}");
        let is_server = !place.url().starts_with("sqlite");
        for check in ["connections", "encryption", "primary"] {
            assert_eq!(health(&found, check), if is_server { "fine" } else { "missing" }, "{check}: {text}");
        }
        let wakeups = if place.url().starts_with("postgres") { "fine" } else { "unknown" };
        assert_eq!(health(&found, "wake-ups"), wakeups, "{text}");
        assert_ne!(health(&found, "durability"), "missing", "{text}");
        for finding in found["findings"].as_array().unwrap() {
            let is_wrong = ["warning", "critical"].contains(&finding["health"].as_str().unwrap());
            assert_eq!(finding["fix"].is_string(), is_wrong, "{finding}");
        }
        let expected = match found["health"].as_str().unwrap() {
            "critical" => 4,
            "warning" => 3,
            _ => 0,
        };
        assert_eq!(exit, expected, "{text}");
        place.run(&["migrate", "--inbox"]);
        assert_eq!(health(&place.json(&["doctor"]), "inbox"), "fine");
    }
}

/// H54: so is a file that must not be written.
#[test]
fn the_doctor_finds_a_file_that_must_not_be_written() {
    let place = Place::sqlite();
    place.run(&["migrate"]);
    let output = pillarbox(&["doctor", "--url", &format!("{}?mode=ro", place.url())]);
    assert_eq!(code(&output), 4, "{}", stdout(&output));
    assert!(stdout(&output).contains("✗ privileges: the SQLite file must not be written"), "{}", stdout(&output));
}

/// H7: behind a pooler in transaction mode a LISTEN is taken and never answered.
#[test]
fn the_doctor_finds_a_pooler_that_swallows_wakeups() {
    let place = Place::server("PILLARBOX_TEST_PGBOUNCER_URL");
    place.run(&["migrate"]);
    let (_, text) = place.run(&["doctor"]);
    assert!(text.contains("! wake-ups: LISTEN is dead, as behind a transaction pooler ("), "{text}");
    assert!(text.contains("  fix: connect the runtime directly"), "{text}");
}

/// H54: rights that are missing are named, and only they.
#[tokio::test]
async fn the_doctor_names_missing_rights() {
    let place = Place::server("PILLARBOX_TEST_POSTGRES_URL");
    place.run(&["migrate"]);
    let (schema, user) = (place.schema(), format!("{}_clerk", place.schema()));
    let grant = format!(
        "DO $$ BEGIN \
         CREATE ROLE {user} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {user}; \
         GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA {schema} TO {user}; \
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {user}; END $$"
    );
    pillarbox::postgres::read_texts(place.url(), &grant).await.unwrap();
    let url = place.url().replacen("postgres@", &format!("{user}@"), 1);
    let output = pillarbox(&["doctor", "--url", &url, "--schema", schema]);
    assert_eq!(code(&output), 4, "{}", stdout(&output));
    let line = stdout(&output).lines().find(|line| line.contains("privileges")).unwrap();
    for right in ["UPDATE", "DELETE"] {
        for table in ["outbox", "outbox_shelf", "outbox_lease"] {
            assert!(line.contains(&format!("{right} ON {schema}.{table}")), "{line}");
        }
    }
    assert!(!line.contains("INSERT") && !line.contains("SELECT") && !line.contains("SCHEMA"), "{line}");
}

/// The bench leaves the user's own tables alone, and nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bench_measures_in_tables_of_its_own() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        let store = place.store().await;
        store.enqueue(Enqueue::pending(&[Message::new("mine", "")])).await.unwrap();
        let (exit, text) = place.run(&["bench", "--messages", "200", "--batch", "50"]);
        assert_eq!(exit, 0, "{text}");
        for words in ["messages/s", "enqueue, one by one", "enqueue, in batches", "claim and settle", "batches of 50"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let json = place.json(&["bench", "--messages", "20"]);
        assert_eq!(json["measured"].as_array().unwrap().len(), 3);
        assert_eq!(store.overview().await.unwrap().total().pending, 1, "the user's messages are untouched");
        let made = json["schema"].as_str().unwrap();
        let (url, query) = (place.url(), format!("LIKE '{made}%'"));
        let left = match url.split(':').next().unwrap() {
            "postgres" => {
                let query = format!("SELECT nspname::text FROM pg_namespace WHERE nspname {query}");
                pillarbox::postgres::read_texts(url, &query).await.unwrap()
            }
            "mysql" => {
                let query = format!(
                    "SELECT CAST(TABLE_NAME AS CHAR) FROM information_schema.TABLES WHERE TABLE_NAME {query} UNION ALL \
                     SELECT CAST(ROUTINE_NAME AS CHAR) FROM information_schema.ROUTINES WHERE ROUTINE_NAME {query}"
                );
                pillarbox::mysql::read_texts(url, &query).await.unwrap()
            }
            _ => {
                let query = format!("SELECT name FROM sqlite_master WHERE name {query}");
                pillarbox::sqlite::read_texts(url, &query).await.unwrap()
            }
        };
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn top_needs_a_terminal() {
    let output = pillarbox(&["top", "--url", "sqlite:nothing.db"]);
    assert_eq!(code(&output), 2);
    assert!(complaint(&output).contains("needs a terminal to draw on: use `pillarbox status`"));
}

#[test]
fn completions_and_manual_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = pillarbox(&["completions", shell]);
        assert_eq!(code(&output), 0);
        for command in ["doctor", "dead", "replay"] {
            assert!(stdout(&output).contains(command), "{shell}: {command}");
        }
    }
    let page = pillarbox(&["man"]);
    assert!(stdout(&page).contains(".TH pillarbox 1") && stdout(&page).contains("Exit codes"), "{}", stdout(&page));
    let folder = tempfile::tempdir().unwrap();
    let output = pillarbox(&["man", "--dir", folder.path().to_str().unwrap()]);
    assert_eq!(code(&output), 0);
    for page in ["pillarbox.1", "pillarbox-doctor.1", "pillarbox-dead-list.1"] {
        assert!(folder.path().join(page).exists(), "{page}");
    }
    let missing = pillarbox(&["man", "--dir", "no/such/folder"]);
    assert_eq!(code(&missing), 1);
    assert!(complaint(&missing).contains("the manual cannot be written to no/such/folder"));
}

#[test]
fn the_help_has_the_exit_codes() {
    let output = pillarbox(&["--help"]);
    for line in ["  0  fine", "  1  failed", "  2  wrong use", "  3  warning", "  4  critical"] {
        assert!(stdout(&output).contains(line), "{}", stdout(&output));
    }
}
