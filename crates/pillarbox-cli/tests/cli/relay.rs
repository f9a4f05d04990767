//! `pillarbox relay` and `routes`: real processes, ended by real signals.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdout};

use super::*;

/// A relay that runs, with its two streams; killed when it is dropped.
pub(super) struct Running {
    pub(super) child: Child,
    lines: BufReader<ChildStdout>,
    words: BufReader<ChildStderr>,
}

impl Running {
    pub(super) fn start(arguments: &[&str]) -> Self {
        Self::start_in(&[], arguments)
    }

    /// With variables of the environment.
    pub(super) fn start_in(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
        for name in ["DATABASE_URL", "PILLARBOX_CONFIG", "PILLARBOX_TO"] {
            command.env_remove(name);
        }
        command.arg("relay").args(arguments).envs(variables.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let words = BufReader::new(child.stderr.take().unwrap());
        Self { child, lines, words }
    }

    /// The next message that it delivered to standard output.
    pub(super) fn delivered(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// The next line that it says about itself; those of its log are passed over.
    pub(super) fn says(&mut self) -> String {
        self.logs(|line| line.starts_with("relay: "))
    }

    /// The next line on standard error that is meant.
    pub(super) fn logs(&mut self, is_meant: impl Fn(&str) -> bool) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.words.read_line(&mut line).unwrap(), 0, "it has ended");
            if is_meant(&line) {
                return line;
            }
        }
    }

    pub(super) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Asks it to end; what it says of it then.
    pub(super) fn end(&mut self) -> String {
        self.signal("TERM");
        assert!(self.says().starts_with("relay: ending"));
        let ended = self.says();
        assert!(ended.starts_with("relay: ended"), "{ended}");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where health and metrics are, by the first line of a relay.
pub(super) fn address(said: &str) -> &str {
    said.split("http://").nth(1).unwrap().split('/').next().unwrap()
}

pub(super) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: relay\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub(super) fn config(directory: &TempDir, url: &str, routes: &str) -> String {
    let path = directory.path().join("pillarbox.toml");
    let text = format!(
        "[relay]\nlisten = \"127.0.0.1:0\"\npoll_interval = \"20ms\"\n[stores.shop]\nurl = \"{url}\"\n[transports.out]\nurl = \"stdout:\"\n{routes}"
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

pub(super) const EVERYTHING: &str = "[[routes]]\nto = \"out\"\ndestination = \"-\"\n";

/// BUS-02, WRK-12, H32: what was stored is delivered, health and metrics are served, and SIGTERM ends it in order.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_delivers_until_it_is_told_to_end() {
    let (directory, url) = fresh();
    let store = store_with(&url, &[Message::new("order.created", "one").key("k").correlation_id("c")]).await;
    let path = config(&directory, &url, EVERYTHING);
    let mut relay = Running::start(&["--config", &path]);
    let first = relay.says();
    assert!(first.starts_with("relay: 1 store, 1 transport, 1 route; metrics on http://127.0.0.1:"), "{first}");
    let message = relay.delivered();
    assert_eq!((&message["topic"], &message["payload"]), (&"order.created".into(), &"one".into()));
    store.enqueue(Enqueue::pending(&[Message::new("order.paid", "two")])).await.unwrap();
    assert_eq!(relay.delivered()["topic"], "order.paid");

    let address = address(&first);
    let metrics = get(address, "/metrics");
    assert!(metrics.contains("pillarbox_handled_total{"), "{metrics}");
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
    let ready = get(address, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("\"store\":\"shop\""), "{ready}");

    relay.end();
    assert_eq!(store.overview().await.unwrap().total().done, 2);
}

/// WRK-09: what is left of a delivered message is a setting.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_keeps_what_it_is_told_to() {
    for (keep, left) in [("nothing", None), ("receipt", Some(true)), ("message", Some(false))] {
        let (directory, url) = fresh();
        let message = Message::new("order.created", "one");
        let store = store_with(&url, std::slice::from_ref(&message)).await;
        let path = config(&directory, &url, EVERYTHING);
        let text = std::fs::read_to_string(&path).unwrap().replace("[relay]", &format!("[relay]\nkeep = \"{keep}\""));
        std::fs::write(&path, text).unwrap();
        let mut relay = Running::start(&["--config", &path]);
        relay.says();
        assert_eq!(relay.delivered()["payload"], "one");
        relay.end();
        let kept = store.get(pillarbox::admin::MessageName::Message(message.id())).await.unwrap();
        assert_eq!(kept.map(|kept| kept.is_receipt), left, "{keep}");
    }
}

/// SIGHUP reads the routes again; a file that is wrong changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_reads_its_routes_again() {
    let (directory, url) = fresh();
    let store = store_with(&url, &[Message::new("new", "1"), Message::new("old", "2")]).await;
    let path = config(&directory, &url, &format!("{EVERYTHING}topic = \"old\"\n"));
    let mut relay = Running::start(&["--config", &path]);
    relay.says();
    assert_eq!(relay.delivered()["topic"], "old", "the other has no route, and waits");
    config(&directory, &url, "[[routes]]\nto = \"nobody\"\n");
    relay.signal("HUP");
    let refused = relay.says();
    assert!(refused.contains("goes on as before") && refused.contains("route 1 goes to `nobody`"), "{refused}");
    config(&directory, &url, EVERYTHING);
    relay.signal("HUP");
    assert!(relay.says().starts_with("relay: changes over"));
    assert!(relay.says().starts_with("relay: read again: 1 store"));
    assert_eq!(relay.delivered()["topic"], "new");
    drop(store);
}

/// H40: a relay that is killed half-way loses nothing; what comes twice has the same id.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_relay_loses_nothing() {
    let (directory, url) = fresh();
    let messages: Vec<_> = (0..200).map(|number| Message::new("t", number.to_string())).collect();
    let store = store_with(&url, &messages).await;
    let path = config(&directory, &url, &format!("{EVERYTHING}batch = 10\n"));
    let text = std::fs::read_to_string(&path).unwrap().replace("[relay]\n", "[relay]\nlease = \"1s\"\n");
    std::fs::write(&path, text).unwrap();
    let mut relay = Running::start(&["--config", &path]);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..25 {
        seen.insert(relay.delivered()["id"].to_string());
    }
    relay.child.kill().unwrap();
    relay.child.wait().unwrap();
    // What it had written before it died was delivered, too.
    for line in relay.lines.by_ref().lines() {
        if let Ok(message) = serde_json::from_str::<Value>(&line.unwrap()) {
            seen.insert(message["id"].to_string());
        }
    }
    let mut relay = Running::start(&["--config", &path]);
    while seen.len() < 200 {
        seen.insert(relay.delivered()["id"].to_string());
    }
    drop(store);
}

/// Without a file: a database and a broker are enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_can_be_told_by_flags() {
    let (_directory, url) = fresh();
    store_with(&url, &[Message::new("a.b", "1"), Message::new("c", "2")]).await;
    let mut relay =
        Running::start(&["--url", &url, "--to", "-", "--topic", "a.*", "--destination", "-", "--listen", "off"]);
    assert_eq!(relay.delivered()["topic"], "a.b");
    assert!(relay.says().ends_with("; no metrics\n"));
    let refused = pillarbox(&["relay"]);
    assert_eq!(code(&refused), 2);
    assert!(complaint(&refused).contains("--config"));
}

/// Everything that is wrong with a file is said in one line, without secrets, before anything starts.
#[test]
fn a_wrong_file_is_refused_in_one_line() {
    let (directory, _) = fresh();
    let table = [
        ("[[routes]]\nto = \"out\"\ntopic = \"a..b\"\n", "empty segment"),
        ("[[routes]]\nto = \"other\"\n", "the transports are: out"),
        ("", "routes"),
        ("[transports.x]\nurl = \"gopher://user:canary@h\"\n[[routes]]\nto = \"x\"\n", "begin with one of"),
        (&format!("{EVERYTHING}{EVERYTHING}"), "match the same messages"),
    ];
    for (routes, complaint_part) in table {
        let path = config(&directory, "sqlite::memory:", routes);
        let output = pillarbox(&["relay", "--config", &path]);
        assert_eq!(code(&output), 2, "{routes}");
        let complaint = complaint(&output);
        assert!(complaint.contains(complaint_part) && !complaint.contains("canary"), "{complaint}");
    }
    let missing = pillarbox(&["relay", "--config", "no-such-file.toml"]);
    assert!(complaint(&missing).contains("no-such-file.toml"));
}

/// The file that is shipped is one that works.
#[test]
fn the_shipped_file_is_fine() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/pillarbox.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
    command.args(["relay", "--check", "--config", path]);
    command.env("SHOP_PASSWORD", "x").env("WEBHOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let output = command.output().unwrap();
    assert_eq!(stdout(&output), "1 store, 2 transports, 2 routes: fine\n", "{output:?}");
}

/// One relay serves all stores of its file, and tells of each whether it is up.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_serves_every_store_of_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let places = super::inbox::Place::everywhere();
    let mut text = "[relay]\nlisten = \"127.0.0.1:0\"\npoll_interval = \"20ms\"\n".to_owned();
    for (number, place) in places.iter().enumerate() {
        place.run(&["migrate"]);
        let message = Message::new("order.created", number.to_string());
        place.store().await.enqueue(Enqueue::pending(&[message])).await.unwrap();
        let (url, schema) = (place.url(), place.schema());
        text += &format!("[stores.shop-{number}]\nurl = \"{url}\"\nschema = \"{schema}\"\n");
    }
    let path = directory.path().join("pillarbox.toml");
    std::fs::write(&path, format!("{text}[transports.out]\nurl = \"stdout:\"\n{EVERYTHING}")).unwrap();
    let mut relay = Running::start(&["--config", &path.display().to_string()]);
    let said = relay.says();
    assert!(said.starts_with("relay: 3 stores, 1 transport, 1 route; "), "{said}");
    let mut payloads = [(); 3].map(|()| relay.delivered()["payload"].as_str().unwrap().to_owned());
    payloads.sort_unstable();
    assert_eq!(payloads, ["0", "1", "2"]);
    let ready = get(address(&said), "/readyz");
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    for number in 0..3 {
        assert!(ready.contains(&format!("\"store\":\"shop-{number}\"")), "{ready}");
    }
    relay.end();
}

/// BUS-02: the file sends messages where their type, their tenant and their headers say.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_routes_by_everything_that_its_file_names() {
    let (directory, url) = fresh();
    let order = || Message::new("order.created", "");
    let typed = || order().message_type("OrderCreated");
    let messages = [order(), typed(), typed().tenant("acme"), typed().tenant("acme").header("region", "eu")];
    let store = store_with(&url, &messages).await;
    let typed = "type = \"OrderCreated\"\n";
    let routes = [
        (String::new(), "plain"),
        (typed.to_owned(), "typed"),
        (format!("{typed}tenant = \"acme\"\n"), "tenant-{tenant}"),
        (format!("{typed}tenant = \"acme\"\nheaders = {{ region = \"eu\" }}\n"), "region"),
    ];
    let out = tempfile::tempdir().unwrap();
    let routes = routes.map(|(which, file)| {
        format!("[[routes]]\ntopic = \"order.**\"\n{which}to = \"files\"\ndestination = \"{file}.jsonl\"\n")
    });
    let files = format!("[transports.files]\nurl = \"file://{}\"\n", out.path().display());
    let mut relay = Running::start(&["--config", &config(&directory, &url, &(files + &routes.concat()))]);
    relay.says();
    while store.overview().await.unwrap().total().done < 4 {}
    relay.end();
    for (file, message) in ["plain", "typed", "tenant-acme", "region"].iter().zip(&messages) {
        let lines = std::fs::read_to_string(out.path().join(format!("{file}.jsonl"))).unwrap();
        let line: Value = serde_json::from_str(&lines).unwrap();
        assert_eq!(line["id"], message.id().to_string(), "{file}");
    }
}

/// A store that cannot be reached keeps no relay from starting; it is told, without the password, and no traffic is wanted meanwhile.
#[test]
fn a_relay_waits_for_its_store() {
    let (directory, _) = fresh();
    let path = config(&directory, "postgres://relay:canary@127.0.0.1:9/shop", EVERYTHING);
    let mut relay = Running::start(&["--config", &path]);
    let (mut said, mut told) = (String::new(), String::new());
    while said.is_empty() || told.is_empty() {
        let line = relay.logs(|line| line.starts_with("relay: ") || line.contains("a store cannot be served"));
        if line.starts_with("relay: ") { said = line } else { told = line }
    }
    assert!(told.contains("trying again later") && told.contains("shop") && !told.contains("canary"), "{told}");
    let ready = get(address(&said), "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503") && !ready.contains("canary"), "{ready}");
    assert!(get(address(&said), "/healthz").starts_with("HTTP/1.1 200"));
    relay.end();
}

/// What a file means, for programs.
#[test]
fn a_check_tells_stores_transports_and_routes_as_json() {
    let (directory, url) = fresh();
    let path = config(&directory, &url, &format!("{EVERYTHING}topic = \"order.**\"\n"));
    let output = pillarbox(&["relay", "--check", "--json", "--config", &path]);
    assert_eq!(code(&output), 0, "{output:?}");
    let expected = serde_json::json!({
        "is_fine": true,
        "stores": ["shop"],
        "transports": ["out"],
        "routes": [{ "route": "order.**", "to": "out", "destination": "-" }],
    });
    assert_eq!(serde_json::from_str::<Value>(stdout(&output)).unwrap(), expected);
    config(&directory, &url, "[[routes]]\nto = \"nobody\"\n");
    let output = pillarbox(&["relay", "--check", "--json", "--config", &path]);
    assert!(code(&output) == 2 && complaint(&output).contains("route 1 goes to `nobody`"), "{output:?}");
    assert_eq!(code(&pillarbox(&["relay", "--json", "--config", &path])), 2, "only a check has something to tell");
}

/// `routes explain` says which route wins, and why no other.
#[test]
fn a_route_is_explained() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/pillarbox.toml");
    let explain = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
        command.args(["routes", "explain", "--config", path]).args(more);
        command.env("SHOP_PASSWORD", "x").env("WEBHOOK_SECRET", "x").output().unwrap()
    };
    let plain = explain(&["order.created"]);
    assert_eq!(
        stdout(&plain),
        "✓ order.** → bus: wins: the most specific that matches\n\
         – order.** tenant=acme → partners: there is no tenant, and `acme` is asked for\n\
         goes to bus: shop.order.created\n"
    );
    assert_eq!(code(&plain), 0);
    let tenant = explain(&["order.created", "--tenant", "acme"]);
    assert!(stdout(&tenant).contains("– order.** → bus: matches, but is less specific\n"), "{tenant:?}");
    assert!(stdout(&tenant).ends_with("goes to partners: https://hooks.example.com/acme/orders\n"));
    let nowhere = explain(&["payment", "--json"]);
    assert_eq!(code(&nowhere), 3);
    let answer: Value = serde_json::from_str(stdout(&nowhere)).unwrap();
    assert_eq!(answer["route"], Value::Null);
}
