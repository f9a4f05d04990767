//! The real binary, as a user meets it: what it prints, where, and how it exits.
#![expect(clippy::unwrap_used, reason = "tests, and the helpers they share")]

#[path = "cli/brokers.rs"]
mod brokers;
#[path = "cli/dead.rs"]
mod dead;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/environment.rs"]
mod environment;
#[path = "cli/errors.rs"]
mod errors;
#[path = "cli/inbox.rs"]
mod inbox;
#[path = "cli/instances.rs"]
mod instances;
#[path = "cli/languages.rs"]
mod languages;
#[path = "cli/list.rs"]
mod list;
#[path = "cli/pauses.rs"]
mod pauses;
#[path = "cli/relay.rs"]
mod relay;
#[path = "cli/reload.rs"]
mod reload;
#[path = "cli/replay.rs"]
mod replay;
#[path = "cli/status.rs"]
mod status;
#[cfg(target_os = "linux")]
#[path = "cli/terminal.rs"]
mod terminal;
#[path = "cli/tools.rs"]
mod tools;
#[path = "cli/transports.rs"]
mod transports;
#[path = "cli/undecodable.rs"]
mod undecodable;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use pillarbox::prelude::*;
use pillarbox::sqlite::SqliteStore;
use serde_json::Value;
use tempfile::TempDir;

fn pillarbox(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
    for name in ["DATABASE_URL", "PILLARBOX_CONFIG", "PILLARBOX_TO"] {
        command.env_remove(name);
    }
    command.args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// The only line on standard error, of a command that failed.
fn complaint(output: &Output) -> &str {
    let stderr = std::str::from_utf8(&output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("pillarbox: "), "{stderr}");
    assert!(output.stdout.is_empty(), "{}", stdout(output));
    stderr.trim_end()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// A directory of its own for each test, and an address in it.
fn fresh() -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("shop.db").display());
    (directory, url)
}

async fn store_with(url: &str, messages: &[Message]) -> SqliteStore {
    let store = SqliteStore::connect(url, StoreOptions::default()).await.unwrap();
    store.enqueue(Enqueue::pending(messages)).await.unwrap();
    store
}

async fn claim_all(store: &SqliteStore, lease: Duration) -> (OwnerToken, Vec<pillarbox::store::Claimed>) {
    let owner = OwnerToken::new();
    (owner, store.claim(Claim::new(owner, lease, 100).unwrap()).await.unwrap())
}

/// The rows of the demo's last table: topic, and orders, messages, done, dead, effects, delivered twice.
fn books(text: &str) -> Vec<(&str, Vec<u64>)> {
    let rows = text.lines().skip_while(|line| *line != "The books").skip(2).take_while(|line| !line.is_empty());
    let cells = rows.map(|row| row.split_whitespace());
    cells.map(|mut cells| (cells.next().unwrap(), cells.map(|cell| cell.parse().unwrap()).collect())).collect()
}

/// HOT-23: the embedded demo. However it is interleaved, the numbers are those of the script; of the killed worker's four
/// running handlers each is delivered again.
#[test]
fn the_demo_kills_a_worker_and_loses_nothing() {
    for seed in ["7", "8"] {
        let output = pillarbox(&["demo", "--quick", "--seed", seed]);
        let text = stdout(&output);
        assert_eq!(code(&output), 0, "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty());
        let books = books(text);
        let [("order.placed", shipping), ("receipt.due", mailing)] = &books[..] else { panic!("{text}") };
        assert_eq!(shipping[..5], [45, 45, 45, 0, 45], "{text}");
        assert_eq!(mailing[..5], [45, 45, 44, 1, 44], "{text}");
        assert!(shipping[5] >= 4, "{text}");
        for words in
            ["SIGKILL", "2 attempts failed", "dead letter (no such mailbox)", "Nothing lost, nothing done twice"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains('\x1b') && !text.contains('\r'), "colours are for terminals only");
    }
}

#[test]
fn the_demo_fails_when_its_books_do_not_add_up() {
    let table = [
        ("lose-order", "= 44 orders"),
        ("lose-message", "messages to ship"),
        ("lose-effect", "45 done = 44 effects"),
        ("ship-twice", "45 done = 46 effects"),
    ];
    // All at once: each waits a second for leases to run out.
    let started = table.map(|(sabotage, words)| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
        command.args(["demo", "--quick", "--sabotage", sabotage]).stdout(Stdio::piped()).stderr(Stdio::piped());
        (sabotage, words, command.spawn().unwrap())
    });
    for (sabotage, words, demo) in started {
        let output = demo.wait_with_output().unwrap();
        let text = stdout(&output);
        assert_eq!(code(&output), 1, "{sabotage}: {text}");
        assert_eq!(output.stderr, b"pillarbox: the demo failed: the books do not add up\n");
        let found = text.lines().find(|line| line.contains("✗ does not add up") && line.contains(words));
        assert!(found.is_some(), "{sabotage}: {text}");
        assert!(!text.contains("Nothing lost"), "{text}");
    }
}

#[test]
fn the_demo_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
    command.args(["demo", "--quick"]).env("TMPDIR", directory.path()).env("TMP", directory.path());
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn migrate_prints_checks_and_applies() {
    let (directory, url) = fresh();
    let file = directory.path().join("shop.db");

    let printed = pillarbox(&["migrate", "--print", "--url", &url]);
    assert_eq!(code(&printed), 0);
    assert!(stdout(&printed).contains("CREATE TABLE"), "{}", stdout(&printed));
    assert!(!file.exists(), "printing creates no file");

    let missing = pillarbox(&["migrate", "--check", "--url", &url]);
    assert_eq!(code(&missing), 1);
    assert!(complaint(&missing).contains("cannot be opened"));
    assert!(!file.exists(), "checking creates no file");

    let applied = pillarbox(&["migrate", "--url", &url]);
    assert_eq!(code(&applied), 0);
    assert!(stdout(&applied).starts_with("store sqlite:shop.db: tables created, version "), "{}", stdout(&applied));
    let again = pillarbox(&["migrate", "--url", &url]);
    assert_eq!(code(&again), 0);
    assert!(stdout(&again).starts_with("store sqlite:shop.db: nothing to do, "), "{}", stdout(&again));
    assert_eq!(code(&pillarbox(&["migrate", "--check", "--url", &url])), 0);
    let json = pillarbox(&["migrate", "--check", "--json", "--url", &url]);
    let json: Value = serde_json::from_str(stdout(&json)).unwrap();
    assert_eq!(json["tables"][0]["store"], "sqlite:shop.db");
}

/// What is printed for the DBA does what `migrate` does.
#[tokio::test]
async fn the_printed_script_makes_the_tables() {
    let (directory, url) = fresh();
    let script = pillarbox(&["migrate", "--print", "--url", &url]).stdout;
    let script = String::from_utf8(script).unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(directory.path().join("shop.db"));
    let pool = sqlx::SqlitePool::connect_with(options.create_if_missing(true)).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(&pool).await.unwrap();
    pool.close().await;
    assert_eq!(code(&pillarbox(&["migrate", "--check", "--url", &url])), 0);
}

#[test]
fn other_names_are_other_tables() {
    let (_directory, url) = fresh();
    assert_eq!(code(&pillarbox(&["migrate", "--url", &url, "--schema", "shop", "--table", "mail"])), 0);
    assert_eq!(code(&pillarbox(&["migrate", "--check", "--url", &url, "--schema", "shop", "--table", "mail"])), 0);
    let missing = pillarbox(&["migrate", "--check", "--url", &url]);
    assert_eq!(code(&missing), 1);
    assert!(complaint(&missing).contains("run `pillarbox migrate`"));
    let refused = pillarbox(&["migrate", "--url", &url, "--table", "a;drop"]);
    assert_eq!(code(&refused), 2);
    assert!(complaint(&refused).contains("table must be"));
}

#[tokio::test]
async fn status_counts_by_topic() {
    let (_directory, url) = fresh();
    let orders = ["order.created", "order.created", "order.\x1b[2Jpaid"].map(|topic| Message::new(topic, ""));
    let store = store_with(&url, &orders).await;
    let (owner, claimed) = claim_all(&store, Duration::from_secs(600)).await;
    store.settle(owner, &[Settlement::ack(claimed[0].held)]).await.unwrap();

    let json = pillarbox(&["status", "--json", "--url", &url]);
    assert_eq!(code(&json), 0);
    let status: Value = serde_json::from_str(stdout(&json)).unwrap();
    assert_eq!(status["health"], "fine");
    assert_eq!(status["active_lease_count"], 2);
    assert_eq!(status["total"]["done"], 1);
    let created = status["topics"].as_array().unwrap().iter().find(|topic| topic["topic"] == "order.created").unwrap();
    assert_eq!((&created["processing"], &created["done"]), (&Value::from(1), &Value::from(1)));

    let text = pillarbox(&["status", "--url", &url]);
    assert_eq!(code(&text), 0);
    assert!(stdout(&text).starts_with("store sqlite:shop.db   pending 0   in flight 2   dead 0   ✓ fine\n"));
    assert!(stdout(&text).contains("order.\\u{1b}[2Jpaid"), "{}", stdout(&text));
    assert!(!stdout(&text).contains('\x1b'));
}

#[tokio::test]
async fn dead_messages_are_critical() {
    let (_directory, url) = fresh();
    let store = store_with(&url, &[Message::new("order.created", "")]).await;
    let (owner, claimed) = claim_all(&store, Duration::from_secs(600)).await;
    let verdict = pillarbox::Verdict::Fail { reason: "no such customer".into() };
    store.settle(owner, &[Settlement { held: claimed[0].held, verdict }]).await.unwrap();

    let output = pillarbox(&["status", "--url", &url]);
    assert_eq!(code(&output), 4);
    assert!(stdout(&output).contains("dead 1   ✗ critical: dead > 0\n"), "{}", stdout(&output));
}

#[tokio::test]
async fn leases_that_ran_out_are_a_warning() {
    let (_directory, url) = fresh();
    let store = store_with(&url, &[Message::new("order.created", "")]).await;
    claim_all(&store, Duration::from_micros(1)).await;
    // SQLite's time has whole milliseconds: asked until the lease has run out.
    while store.overview().await.unwrap().expired_lease_count == 0 {}

    let output = pillarbox(&["status", "--json", "--url", &url]);
    assert_eq!(code(&output), 3);
    assert_eq!(serde_json::from_str::<Value>(stdout(&output)).unwrap()["health"], "warning");
}

#[test]
fn the_address_may_come_from_the_environment() {
    let (_directory, url) = fresh();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
        command.args(arguments).env("DATABASE_URL", &url).output().unwrap()
    };
    assert_eq!(code(&run(&["migrate"])), 0);
    assert_eq!(code(&run(&["status"])), 0);
    assert!(!stdout(&run(&["status", "--help"])).contains("shop.db"), "help shows no address");
}

#[test]
fn missing_tables_say_what_to_run() {
    let (directory, url) = fresh();
    std::fs::write(directory.path().join("shop.db"), "").unwrap();
    let output = pillarbox(&["status", "--url", &url]);
    assert_eq!(code(&output), 1);
    assert!(complaint(&output).contains("run `pillarbox migrate`"));
}

/// H54: one line that says what is wrong, never the address, which may hold a password.
#[test]
fn a_wrong_address_is_one_clear_line_without_its_password() {
    let table = [
        ("oracle://user:canary@db/shop", 2, "no backend serves `oracle:` addresses"),
        ("user:canary@db/shop", 2, "does not say which database"),
        ("postgres://user:canary@127.0.0.1:1/shop", 1, "cannot be reached"),
        ("mysql://user:canary@127.0.0.1:1/shop", 1, "cannot be reached"),
        ("postgres://user:canary@127.0.0.1:port/shop", 1, "malformed"),
        ("sqlite:no/such/canary/shop.db", 1, "cannot be opened"),
    ];
    for (url, exit, words) in table {
        for command in ["status", "migrate"] {
            let output = pillarbox(&[command, "--url", url]);
            assert_eq!(code(&output), exit, "{command} {url}");
            let complaint = complaint(&output);
            assert!(complaint.contains(words), "{complaint}");
            assert!(complaint.contains("--url") && !complaint.contains("canary"), "{complaint}");
        }
    }
}

/// The addresses in it are examples, and those are shown.
#[test]
fn every_command_explains_itself() {
    let mut commands = vec![Vec::new()];
    let mut seen = 0;
    while let Some(command) = commands.pop() {
        let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let output = pillarbox(&arguments);
        assert_eq!(code(&output), 0, "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        let help = stdout(&output);
        assert!(help.contains("Usage: pillarbox"), "{arguments:?}");
        let below = help.split_once("Commands:\n").map(|(_, list)| list).unwrap_or_default();
        for line in below.lines().take_while(|line| line.starts_with("  ")) {
            let Some((name, about)) = line.trim().split_once("  ") else { continue };
            assert!(!about.trim().is_empty(), "{name} has no explanation");
            if name != "help" {
                commands.push(command.iter().cloned().chain([name.to_owned()]).collect());
            }
        }
        seen += 1;
    }
    assert!(seen > 25, "{seen} commands");
}

#[test]
fn wrong_use_exits_with_2() {
    for arguments in [&["frobnicate"][..], &["migrate", "--print", "--check"], &["status", "--nonsense"], &[]] {
        let output = pillarbox(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(stdout(&output).is_empty());
    }
    let output = pillarbox(&["status"]);
    assert_eq!(code(&output), 2);
    assert!(complaint(&output).contains("give --url or set DATABASE_URL"));
}

/// H54: who forgets `--url` does not find the password in a log.
#[test]
fn an_address_in_the_wrong_place_is_not_repeated() {
    for arguments in [["status", "postgres://user:canary@db/shop"], ["postgres://user:canary@db/shop", "status"]] {
        let output = pillarbox(&arguments);
        assert_eq!(code(&output), 2);
        let complaint = complaint(&output);
        assert!(complaint.contains("--url <URL>") && !complaint.contains("canary"), "{complaint}");
    }
}

#[test]
fn a_file_that_is_no_database_is_named_as_such() {
    let (directory, url) = fresh();
    let file: &Path = &directory.path().join("shop.db");
    std::fs::write(file, "not a database, but long enough to be looked at as one by the library").unwrap();
    let output = pillarbox(&["status", "--url", &url]);
    assert_eq!(code(&output), 1);
    assert!(complaint(&output).contains("not an SQLite database"));
}
