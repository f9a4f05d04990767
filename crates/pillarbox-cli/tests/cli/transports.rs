//! Settings of transports in the relay's file, as brokers meet them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use pillarbox_testing::station::Station;
use stations::{Broker, RedisStation};

use super::brokers::{file, until};
use super::inbox::Place;
use super::relay::{EVERYTHING, Running, config};
use super::*;

/// H46: a stream that nobody trims would fill the broker's memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_redis_stays_as_short_as_the_file_says() {
    let (directory, place, station) = (tempfile::tempdir().unwrap(), Place::sqlite(), RedisStation::open().await);
    place.run(&["migrate"]);
    let store = place.store().await;
    let messages: Vec<_> = (0..2_000).map(|number| Message::new("order.created", number.to_string())).collect();
    store.enqueue(Enqueue::pending(&messages)).await.unwrap();
    let path = file(&directory, &place, &station.url(), &["orders"], "");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("[transports.bus]", "[transports.bus]\nstream_length_max = 100")).unwrap();
    let mut relay = Running::start(&["--config", &path]);
    relay.says();
    until(async || store.overview().await.unwrap().total().done == 2_000).await;
    relay.end();
    let length: usize = station.ask("XLEN orders").await.unwrap();
    // Redis removes whole nodes of a hundred entries.
    assert!((100..=300).contains(&length), "{length}");
}

/// A stream that is not there is a mistake where the file says so: nothing is delivered to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_not_there_is_not_made_where_the_file_says_so() {
    let (directory, place, station) = (tempfile::tempdir().unwrap(), Place::sqlite(), RedisStation::open().await);
    place.run(&["migrate"]);
    let store = place.store().await;
    store.enqueue(Enqueue::pending(&[Message::new("order.created", "")])).await.unwrap();
    let path = file(&directory, &place, &station.url(), &["orders"], "attempts = 1");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("[transports.bus]", "[transports.bus]\nmakes_streams = false")).unwrap();
    let mut relay = Running::start(&["--config", &path]);
    relay.says();
    until(async || store.overview().await.unwrap().total().dead == 1).await;
    relay.end();
    let (_, dead) = place.run(&["dead", "list", "--by", "error"]);
    assert!(dead.contains("no stream `orders`"), "{dead}");
    assert_eq!(station.ask::<usize>("EXISTS orders").await.unwrap(), 0);
}

/// H54: a receiver's token comes from the environment, goes out with every webhook, and is shown nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_has_the_headers_of_the_file() {
    let (directory, url) = fresh();
    store_with(&url, &[Message::new("order.created", "1")]).await;
    let endpoint = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("http://{}", endpoint.local_addr().unwrap());
    let path = config(&directory, &url, &EVERYTHING.replace("\"-\"", &format!("\"{place}/in\"")));
    let headers = "headers = { authorization = \"Bearer ${TOKEN}\" }\nnetworks = [\"127.0.0.0/8\"]";
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"stdout:\"", &format!("\"{place}\"\n{headers}"))).unwrap();
    let refused = pillarbox(&["relay", "--check", "--config", &path]);
    let words = complaint(&refused);
    assert!(words.contains("transports.out.headers.authorization needs the variable TOKEN"), "{words}");

    let mut relay = Running::start_in(&[("TOKEN", "canary")], &["--config", &path]);
    let (delivery, _) = endpoint.accept().unwrap();
    let mut lines = BufReader::new(&delivery).lines().map(Result::unwrap);
    let authorization = lines.find(|line| line.to_lowercase().starts_with("authorization: "));
    assert_eq!(authorization.unwrap().split_once(' ').unwrap().1, "Bearer canary");
    (&delivery).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    assert!(!relay.says().contains("canary"));
    relay.end();
}

/// What a transport has no use for is refused, with its key and in one line.
#[test]
fn a_key_that_does_not_fit_its_transport_is_refused() {
    let (directory, url) = fresh();
    let path = config(&directory, &url, EVERYTHING);
    let text = std::fs::read_to_string(&path).unwrap();
    let unfit = "\"stdout:\"\nstream_length_max = 100\nsecrets = [\"canary\"]";
    std::fs::write(&path, text.replace("\"stdout:\"", unfit)).unwrap();
    let words = "transports.out: secrets is for http, not for lines; stream_length_max is for redis, not for lines";
    for arguments in [&["relay", "--config", &path][..], &["relay", "--check", "--config", &path]] {
        let output = pillarbox(arguments);
        assert_eq!((code(&output), complaint(&output)), (2, &*format!("pillarbox: {words}")));
    }
}
