//! NATS JetStream, with a server for each test.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::stream::{self, DiscardPolicy};
use async_nats::jetstream::{self, Context};
use pillarbox_core::wire::from_line_safe;
use pillarbox_core::{Delivery, Intaken, Message, Parcel, Subscription, Transport, Undelivered};
use pillarbox_testing::source::{AHEAD, SOURCE, Source};
use pillarbox_testing::station::{Arrived, Station, Traits};
use pillarbox_transports::Nats;
use pillarbox_transports::nats::{NatsOptions, NatsSubscription, NatsSubscriptionOptions};

use crate::server::Server;

struct NatsStation {
    server: Server,
}

fn command(port: u16, home: &Path) -> Vec<String> {
    let program = std::env::var("PILLARBOX_TEST_NATS_SERVER")
        .expect("PILLARBOX_TEST_NATS_SERVER names the server; `cargo xtask test` sets it");
    let (port, home) = (port.to_string(), home.display().to_string());
    [&program, "-js", "-a", "127.0.0.1", "-p", &port, "-sd", &home].map(String::from).into()
}

impl NatsStation {
    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.server.port())
    }

    fn nats(&self) -> Nats {
        Nats::with(&self.url(), options()).unwrap()
    }

    /// A connection of the test's own.
    async fn context(&self) -> Context {
        jetstream::new(async_nats::connect(self.url()).await.unwrap())
    }

    async fn make(&self, name: &str, config: stream::Config) -> String {
        let subject = format!("suite.{name}");
        let config = stream::Config { name: name.to_owned(), subjects: vec![subject.clone()], ..config };
        self.context().await.create_stream(config).await.unwrap();
        subject
    }

    fn subscription(&self, destination: &str) -> NatsSubscription {
        let mut chosen = NatsSubscriptionOptions::new(stream_of(destination), "group");
        (chosen.ack_wait, chosen.ahead, chosen.connection) = (Duration::from_secs(1), AHEAD, options());
        NatsSubscription::new(SOURCE, &self.url(), chosen).unwrap()
    }
}

fn options() -> NatsOptions {
    NatsOptions { timeout: Duration::from_secs(2), ..NatsOptions::default() }
}

fn stream_of(destination: &str) -> &str {
    destination.strip_prefix("suite.").unwrap()
}

impl Station for NatsStation {
    const TRAITS: Traits = Traits {
        knows_ids: true,
        refuses_nowhere: true,
        refused_bytes: Some(1_100_000),
        is_durable: true,
        is_mortal: true,
    };

    async fn open() -> Self {
        Self { server: Server::start(command).await }
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.nats())
    }

    async fn place(&self, name: &str) -> String {
        self.make(name, stream::Config::default()).await
    }

    fn nowhere(&self) -> String {
        "nobody.takes.this".to_owned()
    }

    async fn arrived(&self, destination: &str, count: usize) -> Vec<Arrived> {
        let stream = self.context().await.get_stream(stream_of(destination)).await.unwrap();
        let mut again = tokio::time::interval(Duration::from_millis(10));
        let state = loop {
            let state = stream.get_info().await.unwrap().state;
            if state.messages >= count as u64 {
                break state;
            }
            again.tick().await;
        };
        let mut arrived = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await.unwrap();
            let line = |text: &str| from_line_safe(text).into_owned();
            let headers: BTreeMap<_, _> = message
                .headers
                .iter()
                .map(|(name, values)| (line(name.as_ref()).to_lowercase(), line(values[0].as_str())))
                .collect();
            arrived.push(Arrived {
                body: message.payload,
                content_type: headers.get("content-type").cloned(),
                broker_key: None,
                broker_id: headers.get("nats-msg-id").cloned(),
                headers: headers.into_iter().filter(|(name, _)| !name.starts_with("nats-")).collect(),
            });
        }
        arrived
    }

    async fn kill(&mut self) {
        self.server.kill();
    }

    async fn revive(&mut self) {
        self.server.revive().await;
    }
}

impl Source for NatsStation {
    type Subscription = NatsSubscription;

    fn subscribe(&self, destination: &str) -> NatsSubscription {
        self.subscription(destination)
    }

    async fn left(&self, destination: &str) -> usize {
        let stream = self.context().await.get_stream(stream_of(destination)).await.unwrap();
        let left = match stream.get_consumer::<async_nats::jetstream::consumer::pull::Config>("group").await {
            Ok(consumer) => {
                let info: &PullConsumer = &consumer;
                let info = info.cached_info();
                info.num_pending + info.num_ack_pending as u64
            }
            Err(_) => stream.cached_info().state.messages,
        };
        usize::try_from(left).unwrap()
    }
}

mod transport {
    pillarbox_testing::transport_suite!(super::NatsStation);
}

mod subscription {
    pillarbox_testing::subscription_suite!(super::NatsStation);
}

/// H47: what one stream does not take because of its own limits is told for each message.
#[tokio::test]
async fn the_limits_of_a_stream_are_told_apart() {
    let station = NatsStation::open().await;
    let small = stream::Config { max_message_size: 1_000, ..stream::Config::default() };
    let small = station.make("small", small).await;
    let full = stream::Config { max_messages: 1, discard: DiscardPolicy::New, ..stream::Config::default() };
    let full = station.make("full", full).await;
    let messages = [vec![b'x'; 2_000], vec![], vec![], vec![]].map(|body| Message::new("t", body));
    let places = [&small, &small, &full, &full];
    let parcels: Vec<_> = messages.iter().zip(places).map(|(message, to)| Parcel::new(to.as_str(), message)).collect();
    let nats = station.nats();
    let mut results = nats.deliver(&parcels).await;
    assert!(matches!(results[0], Err(Undelivered::TooLarge { bytes: 2_001.., limit: None })), "{results:?}");
    assert_eq!(results[1], Ok(Delivery::Taken));
    // Of those for the full stream, either may have come first.
    results[2..].sort_by_key(Result::is_err);
    assert_eq!(results[2], Ok(Delivery::Taken));
    assert!(matches!(&results[3], Err(Undelivered::Refused { reason }) if reason.contains("maximum")), "{results:?}");
}

/// H47: nothing overtakes an earlier message of its key that was not taken.
#[tokio::test]
async fn a_message_that_is_not_taken_holds_back_its_key() {
    let station = NatsStation::open().await;
    let small = stream::Config { max_message_size: 1_000, ..stream::Config::default() };
    let subject = station.make("small", small).await;
    let body = |bytes| vec![b'x'; bytes];
    let messages = [("a", 1), ("b", 1), ("a", 2_000), ("a", 1), ("b", 1)];
    let messages = messages.map(|(key, bytes)| Message::new("t", body(bytes)).key(key));
    let parcels: Vec<_> = messages.iter().map(|message| Parcel::new(subject.as_str(), message)).collect();
    let results = station.nats().deliver(&parcels).await;
    assert!(matches!(results[2], Err(Undelivered::TooLarge { .. })));
    assert!(matches!(&results[3], Err(Undelivered::Refused { reason }) if reason.contains("earlier")), "{results:?}");
    assert!([0, 1, 4].iter().all(|at| results[*at] == Ok(Delivery::Taken)), "{results:?}");
    assert_eq!(station.arrived(&subject, 3).await.len(), 3);
}

/// H43, HOUSE: while the server is away nothing is kept, and nothing of it is sent when the server is back.
#[tokio::test]
async fn nothing_is_sent_late() {
    let mut station = NatsStation::open().await;
    let subject = station.place("late").await;
    let nats = station.nats();
    let first = Message::new("t", "before");
    assert_eq!(nats.deliver(&[Parcel::new(subject.as_str(), &first)]).await, [Ok(Delivery::Taken)]);
    station.kill().await;
    for number in 0..20 {
        let messages: Vec<_> = (0..100).map(|at| Message::new("t", format!("{number}/{at}"))).collect();
        let parcels: Vec<_> = messages.iter().map(|message| Parcel::new(subject.as_str(), message)).collect();
        let results = nats.deliver(&parcels).await;
        assert!(results.iter().all(|result| matches!(result, Err(Undelivered::Unavailable { .. }))), "{results:?}");
    }
    station.revive().await;
    let last = Message::new("t", "after");
    let mut again = tokio::time::interval(Duration::from_millis(20));
    while nats.deliver(&[Parcel::new(subject.as_str(), &last)]).await[0].is_err() {
        again.tick().await;
    }
    let arrived = station.arrived(&subject, 2).await;
    let bodies: Vec<_> = arrived.iter().map(|arrived| arrived.body.clone()).collect();
    assert_eq!(bodies, ["before", "after"]);
}

/// A subject that cannot be one is told as such even when no server is there.
#[tokio::test]
async fn a_bad_subject_needs_no_server() {
    let mut station = NatsStation::open().await;
    station.kill().await;
    let message = Message::new("t", "");
    let results = station.nats().deliver(&[Parcel::new("a b", &message), Parcel::new("a", &message)]).await;
    assert!(matches!(results[0], Err(Undelivered::Rejected { .. })), "{results:?}");
    let Err(Undelivered::Unavailable { reason }) = &results[1] else { panic!("{results:?}") };
    assert!(reason.contains(&format!("127.0.0.1:{}", station.server.port())), "{reason}");
}

/// BUS-02: what others have sent is known by the id they gave it, or by its place in the stream.
#[tokio::test]
async fn messages_of_strangers_have_names() {
    let station = NatsStation::open().await;
    let subject = station.place("strangers").await;
    let context = station.context().await;
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Msg-Id", "order-1");
    headers.append("x", "100%25");
    headers.append("x", "2");
    context.publish_with_headers(subject.clone(), headers, "a".into()).await.unwrap().await.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Msg-Id", "long".repeat(100).as_str());
    context.publish_with_headers(subject.clone(), headers, "b".into()).await.unwrap().await.unwrap();
    context.publish(subject.clone(), "c".into()).await.unwrap().await.unwrap();

    let mut subscription = station.subscription(&subject);
    let mut delivered = Vec::new();
    while delivered.len() < 3 {
        delivered.extend(subscription.next(10).await.unwrap());
    }
    let ids: Vec<_> = delivered.iter().map(|one| one.incoming.receipt().message_id()).collect();
    assert_eq!(ids, ["order-1", "strangers:2", "strangers:3"]);
    let message = delivered[0].incoming.message();
    assert_eq!((message.topic(), message.get_headers()["x"].as_str()), (subject.as_str(), "100%25, 2"));
    subscription.settle(delivered.into_iter().map(|one| (one.tag, Intaken::Stored)).collect()).await.unwrap();
}

/// A stream that is not there is an error in words, and no wait without end.
#[tokio::test]
async fn a_missing_stream_is_named() {
    let station = NatsStation::open().await;
    let error = station.subscription("suite.missing").next(1).await.unwrap_err().to_string();
    assert!(error.contains("`missing`") && error.contains("not found"), "{error}");
}
