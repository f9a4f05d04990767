//! NATS JetStream, with a server for each station.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, Context, stream};
use pillarbox_core::Transport;
use pillarbox_core::wire::from_line_safe;
use pillarbox_testing::source::{AHEAD, SOURCE, Source};
use pillarbox_testing::station::{Arrived, Station, Traits};
use pillarbox_transports::Nats;
use pillarbox_transports::nats::{NatsOptions, NatsSubscription, NatsSubscriptionOptions};

use crate::{Broker, Server};

/// A server with JetStream. A place is a stream with one subject.
#[derive(Debug)]
pub struct NatsStation {
    /// The program.
    pub server: Server,
}

impl NatsStation {
    /// What starts it on a port, in a directory.
    pub fn command(port: u16, home: &Path) -> Vec<String> {
        let program = std::env::var("PILLARBOX_TEST_NATS_SERVER")
            .expect("PILLARBOX_TEST_NATS_SERVER names the server; `cargo xtask test` sets it");
        let (port, home) = (port.to_string(), home.display().to_string());
        [&program, "-js", "-a", "127.0.0.1", "-p", &port, "-sd", &home].map(String::from).into()
    }

    /// A transport to it, with short time limits.
    pub fn nats(&self) -> Nats {
        Nats::with(&self.url(), options()).unwrap()
    }

    /// A connection of the test's own.
    pub async fn context(&self) -> Context {
        jetstream::new(async_nats::connect(self.url()).await.unwrap())
    }

    /// Makes a place with settings of its own.
    pub async fn make(&self, name: &str, config: stream::Config) -> String {
        let subject = format!("suite.{name}");
        let config = stream::Config { name: name.to_owned(), subjects: vec![subject.clone()], ..config };
        self.context().await.create_stream(config).await.unwrap();
        subject
    }

    /// A subscription to a place.
    pub fn subscription(&self, destination: &str) -> NatsSubscription {
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
        Self { server: Server::start(Self::command).await }
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

impl Broker for NatsStation {
    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.server.port())
    }

    fn server(&mut self) -> &mut Server {
        &mut self.server
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
