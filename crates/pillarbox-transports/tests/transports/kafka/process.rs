//! The same on Tansu, a broker that is a program of its own, keeps its log in a file and can be killed. It is no Apache Kafka
//! either.

use std::path::Path;
use std::sync::Arc;

use pillarbox_core::Transport;
use pillarbox_testing::source::Source;
use pillarbox_testing::station::{Arrived, Station, Traits};
use pillarbox_transports::kafka::KafkaSubscription;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use stations::Server;

use super::{PARTITIONS, PATIENCE, Place, TRAITS};

/// A broker with a file. A place is a topic.
struct Process {
    server: Server,
}

fn command(port: u16, home: &Path) -> Vec<String> {
    let program = std::env::var("PILLARBOX_TEST_KAFKA_BROKER")
        .expect("PILLARBOX_TEST_KAFKA_BROKER names the broker; `cargo xtask test` sets it");
    let (url, home) = (format!("tcp://127.0.0.1:{port}"), home.display().to_string());
    // Its file lies where it runs.
    let script = "cd \"$1\" && exec \"$0\" broker --silent --listener-url \"$2\" --advertised-listener-url \"$2\" \
                  --storage-engine sqlite://tansu.db";
    ["sh", "-c", script, &program, &home, &url].map(String::from).into()
}

impl Process {
    fn at(&self) -> Place {
        Place { servers: format!("127.0.0.1:{}", self.server.port()) }
    }
}

impl Station for Process {
    const TRAITS: Traits = TRAITS;

    async fn open() -> Self {
        Self { server: Server::start(command).await }
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.at().kafka())
    }

    async fn place(&self, name: &str) -> String {
        let topic = format!("places.{name}");
        let mut config = ClientConfig::new();
        let admin: AdminClient<DefaultClientContext> =
            config.set("bootstrap.servers", self.at().servers).create().unwrap();
        let options = AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE));
        let wanted = NewTopic::new(&topic, PARTITIONS, TopicReplication::Fixed(1));
        let made = admin.create_topics(&[wanted], &options).await.unwrap();
        assert_eq!(made, [Ok(topic.clone())]);
        topic
    }

    fn nowhere(&self) -> String {
        "nobody.made.this".to_owned()
    }

    async fn arrived(&self, destination: &str, count: usize) -> Vec<Arrived> {
        self.at().arrived(destination, count).await
    }

    async fn kill(&mut self) {
        self.server.kill();
    }

    async fn revive(&mut self) {
        self.server.revive().await;
    }
}

impl Source for Process {
    type Subscription = KafkaSubscription;

    fn subscribe(&self, destination: &str) -> KafkaSubscription {
        self.at().subscribe(destination)
    }

    async fn left(&self, destination: &str) -> usize {
        self.at().left(destination).await
    }
}

mod suite {
    pillarbox_testing::transport_suite!(super::Process);
}

mod consumer_suite {
    pillarbox_testing::subscription_suite!(super::Process);
}
