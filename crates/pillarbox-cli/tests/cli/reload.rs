//! A relay that is told something while it runs, while it changes over, and before it is up.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::relay::{EVERYTHING, Running, address, config, get};
use super::*;

/// A port of the test's own, and its address.
fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Whatever can be known to be wrong is known before the relay that runs is touched, and `--check` knows it too.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_wrong_changes_nothing() {
    let (directory, url) = fresh();
    let store = store_with(&url, &[]).await;
    let path = config(&directory, &url, EVERYTHING);
    let right = std::fs::read_to_string(&path).unwrap();
    let (_taken, taken) = listener();
    let mut relay = Running::start(&["--config", &path]);
    relay.says();
    let table = [
        ("url = \"stdout:\"", "url = \"gopher://user:canary@h\"", "transports.out: the address of a broker must begin"),
        ("url = \"stdout:\"", "url = \"https://h.example\"\nsecrets = [\"canary!\"]", "transports.out: secret"),
        ("url = \"stdout:\"", "url = \"stdout:\"\ntimeout = \"0s\"", "transports.out: timeout must be"),
        ("url = \"sqlite:", "url = \"oracle://canary", "stores.shop.url: no backend serves `oracle:`"),
        ("[stores.shop]", "[stores.shop]\nschema = \"a;b\"", "stores.shop: schema must"),
        ("[stores.shop]", "[stores.\" \"]", "stores. : "),
        ("[relay]", "[relay]\nworkers = 0", "relay.workers must be 1 to 10000, is 0"),
        ("[relay]", "[relay]\nconnections = 0", "relay.connections must be 1 to"),
        ("[relay]", "[relay]\nlease = \"0s\"", "relay.lease must be"),
        ("to = \"out\"", "to = \"nobody\"", "route 1 goes to `nobody`"),
        ("127.0.0.1:0", &taken, "cannot be used"),
    ];
    for (number, (part, wrong, words)) in table.into_iter().enumerate() {
        std::fs::write(&path, right.replacen(part, wrong, 1)).unwrap();
        if wrong != taken {
            let checked = pillarbox(&["relay", "--check", "--config", &path]);
            assert_eq!(code(&checked), 2, "{wrong}");
            assert!(complaint(&checked).contains(words), "{}", complaint(&checked));
        }
        relay.signal("HUP");
        let said = relay.says();
        assert!(said.starts_with("relay: goes on as before, because ") && said.contains(words), "{said}");
        assert!(!said.contains("canary"), "{said}");
        store.enqueue(Enqueue::pending(&[Message::new("order.created", number.to_string())])).await.unwrap();
        assert_eq!(relay.delivered()["payload"], number.to_string());
    }
    relay.end();
}

/// H32: the delivery that is under way is finished, and nothing starts again behind the back of who wants it to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_told_to_end_while_it_changes_over_ends() {
    let (directory, url) = fresh();
    let store = store_with(&url, &[Message::new("order.created", "1")]).await;
    let (endpoint, place) = listener();
    let path = config(&directory, &url, &format!("[[routes]]\nto = \"out\"\ndestination = \"http://{place}/in\"\n"));
    let inner = format!("url = \"http://{place}\"\nnetworks = [\"127.0.0.0/8\"]\ntimeout = \"1h\"");
    let text = std::fs::read_to_string(&path).unwrap().replace("url = \"stdout:\"", &inner);
    std::fs::write(&path, text).unwrap();
    let mut relay = Running::start(&["--config", &path]);
    relay.says();
    let (mut delivery, _) = endpoint.accept().unwrap();
    assert_ne!(delivery.read(&mut [0; 4096]).unwrap(), 0);

    relay.signal("HUP");
    assert!(relay.says().starts_with("relay: changes over"));
    relay.signal("TERM");
    assert!(relay.says().starts_with("relay: ending"));
    delivery.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    let ended = relay.says();
    assert!(
        ended.starts_with("relay: ended; ") && ended.ends_with(" 0 interrupted, 0 left to their leases\n"),
        "{ended}"
    );
    assert_eq!(relay.child.wait().unwrap().code(), Some(0));
    assert_eq!(store.overview().await.unwrap().total().done, 1);
}

/// A relay whose store answers nothing, and the connection that it waits on.
fn starting(directory: &TempDir) -> (Running, TcpStream) {
    let (database, place) = listener();
    let path = config(directory, &format!("postgres://nobody@{place}/shop"), EVERYTHING);
    let relay = Running::start(&["--config", &path]);
    (relay, database.accept().unwrap().0)
}

#[test]
fn a_relay_that_is_not_up_yet_reads_its_file_again_later() {
    let directory = tempfile::tempdir().unwrap();
    let (mut relay, connection) = starting(&directory);
    relay.signal("HUP");
    drop(connection);
    assert!(relay.says().starts_with("relay: 1 store"));
    assert!(relay.says().starts_with("relay: changes over"));
    assert!(relay.says().starts_with("relay: read again: 1 store"));
    relay.end();
}

#[test]
fn a_relay_that_is_told_to_end_before_it_is_up_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (mut relay, _connection) = starting(&directory);
    relay.signal("TERM");
    assert!(relay.says().starts_with("relay: ended before it was up"));
    assert_eq!(relay.child.wait().unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_metrics_move_to_where_the_file_says() {
    let (directory, url) = fresh();
    let store = store_with(&url, &[]).await;
    let path = config(&directory, &url, EVERYTHING);
    let right = std::fs::read_to_string(&path).unwrap();
    let mut relay = Running::start(&["--config", &path]);
    let said = relay.says();
    let first = address(&said);
    let mut read_again = |listen: &str| {
        std::fs::write(&path, right.replace("127.0.0.1:0", listen)).unwrap();
        relay.signal("HUP");
        relay.says();
        relay.says()
    };
    let same = read_again("127.0.0.1:0");
    assert_eq!(address(&same), first, "{same}");
    let moved = read_again("localhost:0");
    assert!(get(address(&moved), "/readyz").starts_with("HTTP/1.1 200"), "{moved}");
    assert!(TcpStream::connect(first).is_err(), "{moved}");
    let off = read_again("off");
    assert!(off.ends_with("; no metrics\n"), "{off}");
    assert!(TcpStream::connect(address(&moved)).is_err());
    relay.end();
    drop(store);
}
