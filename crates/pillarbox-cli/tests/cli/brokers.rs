//! The relay process and real brokers: either may be killed at any time.

use std::collections::BTreeMap;
use std::sync::Arc;

use pillarbox::admin::{Filter, ListQuery};
use pillarbox::outbox::State;
use pillarbox::wire;
use pillarbox_testing::station::{Station, all_arrived};
use stations::rabbitmq::{OwnNode, SharedNode};
use stations::{Broker, NatsStation, RabbitStation, RedisStation};

use super::inbox::Place;
use super::relay::{Running, address, get};
use super::*;

/// From a store of the test's own to a broker of the test's own.
struct Line<B> {
    place: Place,
    store: Arc<dyn Store>,
    broker: B,
    destination: String,
    directory: TempDir,
    sent: Vec<Message>,
}

impl<B: Broker> Line<B> {
    async fn open(place: Place) -> Self {
        place.run(&["migrate"]);
        let (store, broker) = (place.store().await, B::open().await);
        let destination = broker.place("orders").await;
        Self { place, store, broker, destination, directory: tempfile::tempdir().unwrap(), sent: Vec::new() }
    }

    async fn send(&mut self, count: usize) {
        let first = self.sent.len();
        let messages = (first..first + count).map(|number| Message::new("order.created", number.to_string()));
        self.sent.extend(messages);
        self.store.enqueue(Enqueue::pending(&self.sent[first..])).await.unwrap();
    }

    /// Starts a relay with these settings, and answers where its health is.
    fn relay(&self, settings: &str) -> (Running, String) {
        let file = file(&self.directory, &self.place, &self.broker.url(), &[&self.destination], settings);
        let mut relay = Running::start(&["--config", &file]);
        let said = relay.says();
        (relay, address(&said).to_owned())
    }

    async fn overview(&self) -> pillarbox::admin::Overview {
        self.store.overview().await.unwrap()
    }

    /// Waits until all that was sent is with the broker, under its own id and as it was, and the store knows of it.
    async fn complete(&self) {
        let sent: BTreeMap<_, _> =
            self.sent.iter().map(|message| (message.id().to_string(), message.payload())).collect();
        for arrived in all_arrived(&self.broker, &self.destination, &self.sent).await {
            let id = arrived.header(wire::ID).unwrap();
            assert_eq!(sent.get(id), Some(&&arrived.body), "{id}");
        }
        let all = u64::try_from(self.sent.len()).unwrap();
        until(async || self.overview().await.total().done == all).await;
    }
}

/// A file that leads from a store to places of a broker, with settings of the relay; small batches make for many of them.
pub(super) fn file(directory: &TempDir, place: &Place, to: &str, destinations: &[&str], settings: &str) -> String {
    let path = directory.path().join("pillarbox.toml");
    let (url, schema) = (place.url(), place.schema());
    let mut text = format!(
        "[relay]\nlisten = \"127.0.0.1:0\"\npoll_interval = \"20ms\"\n{settings}\n\
         [stores.shop]\nurl = \"{url}\"\nschema = \"{schema}\"\n\
         [transports.bus]\nurl = \"{to}\"\ntimeout = \"10s\"\n"
    );
    for (destination, topic) in destinations.iter().zip(["**", "other.**"]) {
        let to = format!("topic = \"{topic}\"\nto = \"bus\"\ndestination = \"{destination}\"");
        text.push_str(&format!("[[routes]]\n{to}\nbatch = 10\n"));
    }
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

pub(super) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let mut again = tokio::time::interval(Duration::from_millis(10));
    while !is_so().await {
        again.tick().await;
    }
}

/// Routes that pause because their broker is away.
fn paused_routes(address: &str) -> usize {
    let answer = get(address, "/readyz");
    let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    body["stores"][0]["paused_routes"].as_array().unwrap().len()
}

async fn the_broker_dies<B: Broker>(place: Place) {
    let mut line = Line::<B>::open(place).await;
    line.send(1_000).await;
    let (mut relay, address) = line.relay("");
    line.broker.arrived(&line.destination, 50).await;
    line.broker.kill().await;
    line.send(500).await;
    until(async || paused_routes(&address) > 0).await;
    line.broker.revive().await;
    line.complete().await;
    assert_eq!(paused_routes(&address), 0);
    relay.end();
}

/// The second one runs before the first is killed, as a spare does.
async fn the_relay_dies<B: Broker>(place: Place) {
    let mut line = Line::<B>::open(place).await;
    line.send(3_000).await;
    let (mut first, _) = line.relay("lease = \"1s\"");
    line.broker.arrived(&line.destination, 50).await;
    let (mut second, _) = line.relay("lease = \"1s\"");
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    assert!(line.overview().await.total().done < 3_000, "it was killed half-way");
    line.complete().await;
    second.end();
}

/// The lease is so long that only what was handed back can be delivered by another one.
async fn the_relay_ends<B: Broker>(place: Place) {
    let mut line = Line::<B>::open(place).await;
    line.send(1_000).await;
    line.broker.server().freeze();
    let (mut relay, _) = line.relay("lease = \"1h\"\ngrace = \"100ms\"");
    until(async || line.overview().await.active_lease_count > 0).await;
    let said = relay.end();
    assert!(said.ends_with(", 0 left to their leases\n"), "{said}");
    let overview = line.overview().await;
    assert_eq!((overview.active_lease_count, overview.total().pending), (0, 1_000), "{said}");
    line.broker.server().thaw();
    let (mut second, _) = line.relay("lease = \"1h\"");
    line.complete().await;
    second.end();
}

fn on_postgres() -> Place {
    Place::server("PILLARBOX_TEST_POSTGRES_URL")
}

/// BUS-02, H40, H41, H43.
#[tokio::test(flavor = "multi_thread")]
async fn from_postgres_to_nats_nothing_is_lost_when_the_broker_dies() {
    the_broker_dies::<NatsStation>(on_postgres()).await;
}

/// BUS-02, H40, H43.
#[tokio::test(flavor = "multi_thread")]
async fn from_postgres_to_redis_nothing_is_lost_when_the_broker_dies() {
    the_broker_dies::<RedisStation>(on_postgres()).await;
}

/// BUS-02, H40, H43.
#[tokio::test(flavor = "multi_thread")]
async fn from_sqlite_to_rabbitmq_nothing_is_lost_when_the_broker_dies() {
    the_broker_dies::<RabbitStation<OwnNode>>(Place::sqlite()).await;
}

/// BUS-02, H40: what comes twice has the same id, and NATS knows it.
#[tokio::test(flavor = "multi_thread")]
async fn from_postgres_to_nats_another_relay_takes_over() {
    the_relay_dies::<NatsStation>(on_postgres()).await;
}

/// BUS-02, H40: what comes twice has the same id.
#[tokio::test(flavor = "multi_thread")]
async fn from_postgres_to_redis_another_relay_takes_over() {
    the_relay_dies::<RedisStation>(on_postgres()).await;
}

/// H32, H43: also while the broker answers nothing.
#[tokio::test(flavor = "multi_thread")]
async fn from_postgres_to_nats_a_relay_that_ends_hands_its_leases_back() {
    the_relay_ends::<NatsStation>(on_postgres()).await;
}

/// H32, H43: also while the broker answers nothing.
#[tokio::test(flavor = "multi_thread")]
async fn from_postgres_to_redis_a_relay_that_ends_hands_its_leases_back() {
    the_relay_ends::<RedisStation>(on_postgres()).await;
}

/// H42: a queue that somebody deletes in the middle: what cannot be routed is not delivered but waits, with its error for all to
/// see, and goes on when the queue is there again.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_rabbitmq_that_goes_away_takes_nothing_with_it() {
    let mut line = Line::<RabbitStation<SharedNode>>::open(Place::sqlite()).await;
    line.send(20).await;
    let (mut relay, _) = line.relay("attempts = 1000");
    line.complete().await;
    line.broker.delete(&line.destination).await;
    line.send(20).await;
    let query = ListQuery { state: State::Pending, filter: Filter::all(), after: None, limit: 100 };
    until(async || {
        let waiting = line.store.list(&query).await.unwrap().messages;
        waiting
            .iter()
            .filter(|message| message.last_error.as_ref().is_some_and(|error| error.contains("rabbitmq: ")))
            .count()
            == 20
    })
    .await;
    assert_eq!(line.overview().await.total().done, 20, "a message that came back is not delivered");
    line.destination = line.broker.place("orders").await;
    let later = line.sent.split_off(20);
    all_arrived(&line.broker, &line.destination, &later).await;
    until(async || line.overview().await.total().done == 40).await;
    relay.end();
}

/// Removes the files in which a server keeps its messages.
fn lose_blocks(home: &Path) -> usize {
    let entries: Vec<_> = std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path()).collect();
    let (folders, files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|path| path.is_dir());
    let blocks = files.iter().filter(|path| path.extension().is_some_and(|end| end == "blk"));
    let lost = blocks.map(|block| std::fs::remove_file(block).unwrap()).count();
    lost + folders.iter().map(|folder| lose_blocks(folder)).sum::<usize>()
}

/// H44: a broker that confirmed messages and lost them is found out, and gets them again under the same ids.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_broker_has_lost_is_found_and_delivered_again() {
    let mut line = Line::<NatsStation>::open(Place::sqlite()).await;
    line.send(200).await;
    let (mut relay, _) = line.relay("");
    line.complete().await;
    relay.end();
    let file = line.directory.path().join("pillarbox.toml").display().to_string();
    let verify = |more: &[&str]| {
        let output = pillarbox(&[&["verify", "--config", &file, "--since", "1h"], more].concat());
        (code(&output), stdout(&output).to_owned())
    };
    assert_eq!(verify(&[]), (0, "store shop\n✓ ** → bus: 200 of 200 are there\n".to_owned()));

    line.broker.kill().await;
    assert!(lose_blocks(line.broker.server.home()) > 0);
    line.broker.revive().await;
    let (code, text) = verify(&[]);
    assert!(code == 4 && text.contains("✗ ** → bus: 200 of 200 are missing: 1, 2,"), "{code} {text}");
    assert!(text.contains("fix: add --replay"), "{text}");
    let (code, text) = verify(&["--replay", "--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &report["stores"][0]["replayed"]), (3, &Value::from(200)), "{text}");
    assert_eq!(report["stores"][0]["routes"][0]["missing"].as_array().map(Vec::len), Some(200), "{text}");

    let (mut relay, _) = line.relay("");
    line.complete().await;
    relay.end();
    assert_eq!(verify(&["--store", "shop"]), (0, "store shop\n✓ ** → bus: 200 of 200 are there\n".to_owned()));
    line.broker.kill().await;
    let away = pillarbox(&["verify", "--config", &file, "--since", "1h"]);
    let words = String::from_utf8_lossy(&away.stderr).into_owned();
    assert!(away.status.code() == Some(1) && words.contains("transports.bus") && words.lines().count() == 1, "{words}");
    let output = pillarbox(&["verify", "--config", &file, "--since", "1h", "--store", "x"]);
    assert_eq!((output.status.code(), complaint(&output).ends_with("these stores: shop")), (Some(2), true));
}
