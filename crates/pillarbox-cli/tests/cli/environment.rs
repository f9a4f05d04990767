//! What the environment tells a relay, beside flags and files.

use super::relay::{EVERYTHING, Running, config};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_file_of_a_relay_may_come_from_the_environment() {
    let (directory, url) = fresh();
    store_with(&url, &[Message::new("order.created", "1")]).await;
    let path = config(&directory, &url, EVERYTHING);
    let mut relay = Running::start_in(&[("PILLARBOX_CONFIG", &path)], &[]);
    assert_eq!(relay.delivered()["topic"], "order.created");
    assert!(relay.says().starts_with("relay: 1 store, 1 transport, 1 route; metrics on http://"));
    relay.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_and_the_broker_may_come_from_the_environment() {
    let (_directory, url) = fresh();
    store_with(&url, &[Message::new("order.created", "1")]).await;
    let variables = [("DATABASE_URL", url.as_str()), ("PILLARBOX_TO", "-")];
    let mut relay = Running::start_in(&variables, &["--destination", "-", "--listen", "off"]);
    assert_eq!(relay.delivered()["topic"], "order.created");
    relay.says();
    relay.end();
}

/// A variable that is set for something else is in nobody's way.
#[tokio::test(flavor = "multi_thread")]
async fn flags_come_before_files_of_the_environment_and_files_before_its_broker() {
    let (directory, url) = fresh();
    store_with(&url, &[Message::new("order.created", "1")]).await;
    let path = config(&directory, &url, EVERYTHING);
    let check = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
        command.args(["relay", "--check"]).args(arguments).env_remove("DATABASE_URL");
        command.envs(variables.iter().copied()).output().unwrap()
    };
    let elsewhere = [("PILLARBOX_TO", "gopher://nowhere"), ("DATABASE_URL", "oracle:nowhere")];
    let fine = "1 store, 1 transport, 1 route: fine\n";
    assert_eq!(stdout(&check(&elsewhere, &["--config", &path])), fine);
    assert_eq!(stdout(&check(&[&elsewhere[..], &[("PILLARBOX_CONFIG", &path)]].concat(), &[])), fine);
    let no_file = [("PILLARBOX_CONFIG", "no-such-file.toml")];
    assert_eq!(stdout(&check(&no_file, &["--url", &url, "--to", "-"])), fine);
    assert!(complaint(&check(&no_file, &[])).contains("no-such-file.toml"));

    let mut relay = Running::start_in(&elsewhere, &["--config", &path]);
    assert_eq!(relay.delivered()["topic"], "order.created");
    relay.says();
    relay.end();
    assert_eq!(code(&check(&[], &["--config", &path, "--topic", "a"])), 2, "a file names its own routes");
}
