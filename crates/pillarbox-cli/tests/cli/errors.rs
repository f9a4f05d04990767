//! What goes wrong with a database, each as one line that says what failed, where, and what to do.

use super::inbox::Place;
use super::{code, complaint, fresh, pillarbox};

fn server(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"))
}

/// The address of a server with another user, and another database.
fn altered(url: &str, user: &str, database: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, place) = rest.split_once('@').unwrap();
    let (host, _) = place.split_once('/').unwrap();
    format!("{scheme}://{user}@{host}/{database}")
}

fn host(url: &str) -> &str {
    url.split_once('@').unwrap().1.split('/').next().unwrap()
}

/// H54, H62: host and port are named, the password never.
#[test]
fn every_trouble_with_a_server_is_one_clear_line() {
    let [postgres, mysql] = ["PILLARBOX_TEST_POSTGRES_URL", "PILLARBOX_TEST_MYSQL_URL"].map(server);
    let read_only = format!("{postgres}?options=-c%20default_transaction_read_only%3Don");
    let table = [
        (
            "postgres://user:canary@no-such-host.invalid/shop".to_owned(),
            "no-such-host.invalid:5432",
            "check that the host's name is right",
        ),
        (
            "mysql://user:canary@no-such-host.invalid/shop".to_owned(),
            "no-such-host.invalid:3306",
            "check that the host's name is right",
        ),
        (
            "postgres://user:canary@127.0.0.1:1/shop".to_owned(),
            "127.0.0.1:1",
            "nothing listens there; check host and port",
        ),
        (
            "mysql://user:canary@127.0.0.1:1/shop".to_owned(),
            "127.0.0.1:1",
            "nothing listens there; check host and port",
        ),
        (
            altered(&postgres, "nobody:canary", "postgres"),
            host(&postgres),
            "refused user or password: check both in the address",
        ),
        (altered(&mysql, "pillarbox:canary", "pillarbox"), host(&mysql), "check user name and password in the address"),
        (
            altered(&postgres, "postgres:canary", "no_such_database"),
            host(&postgres),
            "create it first, or correct the address",
        ),
        (altered(&mysql, "pillarbox", "no_such_database"), host(&mysql), "does not exist: create it first"),
        (read_only, host(&postgres), "the database is read-only: connect to the primary"),
    ];
    for (url, place, words) in table {
        let output = pillarbox(&["migrate", "--url", &url, "--schema", "c_never_made"]);
        assert_eq!(code(&output), 1, "{words}");
        let line = complaint(&output);
        assert!(line.starts_with(&format!("pillarbox: the store at --url ({place}): ")), "{line}");
        assert!(line.contains(words), "{words}: {line}");
        assert!(!line.contains("canary"), "{line}");
    }
}

#[test]
fn missing_tables_are_told_by_every_command() {
    for place in Place::everywhere() {
        if place.url().starts_with("sqlite") {
            std::fs::write(place.url().strip_prefix("sqlite:").unwrap(), "").unwrap();
        }
        let commands: [&[&str]; 8] = [
            &["status"],
            &["list", "--state", "dead"],
            &["show", "1"],
            &["dead", "list", "--by", "error"],
            &["dead", "replay", "--yes"],
            &["replay", "--delivered", "--since", "1h"],
            &["purge"],
            &["instances"],
        ];
        for command in commands {
            let (exit, line) = place.refused(command);
            assert!(
                exit == 1 && line.contains("the tables do not exist: run `pillarbox migrate`"),
                "{command:?}: {line}"
            );
        }
        let (exit, text) = place.run(&["doctor"]);
        assert!(
            exit == 4 && text.contains("✗ schema: there are no tables\n  fix: run `pillarbox migrate`\n"),
            "{text}"
        );
    }
}

#[test]
fn a_file_that_must_not_be_written_is_told() {
    let (_folder, url) = fresh();
    assert_eq!(code(&pillarbox(&["migrate", "--url", &url])), 0);
    let output = pillarbox(&["migrate", "--inbox", "--url", &format!("{url}?mode=ro")]);
    assert_eq!(code(&output), 1);
    let line = complaint(&output);
    assert!(line.contains("(shop.db): the SQLite file must not be written: check its rights"), "{line}");
}

/// A disk of its own for the process, too small for the tables.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told() {
    let (folder, url) = fresh();
    let script = r#"mount -t tmpfs -o size=80k tmpfs "$1" && exec "$2" migrate --url "$3""#;
    let mut command = std::process::Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(folder.path());
    let output = command.arg(env!("CARGO_BIN_EXE_pillarbox")).arg(&url).output().unwrap();
    assert_eq!(code(&output), 1, "{}", String::from_utf8_lossy(&output.stderr));
    let line = complaint(&output);
    assert!(line.contains("(shop.db): the database or disk is full: free space on the disk"), "{line}");
}
