//! RabbitMQ.

mod node;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lapin::options::{BasicGetOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties};
use pillarbox_core::Transport;
use pillarbox_testing::source::{AHEAD, SOURCE, Source};
use pillarbox_testing::station::{Arrived, Station, Traits};
use pillarbox_transports::rabbitmq::{RabbitOptions, RabbitSubscriptionOptions};
use pillarbox_transports::{Rabbit, RabbitSubscription};
use uuid::Uuid;

use crate::{Broker, Server};
pub use node::{Node, OwnNode, SharedNode};

/// Queues of a test's own, on a node.
#[derive(Debug)]
pub struct RabbitStation<N> {
    /// Where they are.
    pub node: N,
    prefix: Uuid,
}

impl<N: Node> RabbitStation<N> {
    /// A name that no other station has.
    pub fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// For what a test does behind the transport's back. Dropping it ends the connection.
    pub async fn channel(&self) -> Channel {
        let connection = Connection::connect(&uri(&self.node), ConnectionProperties::default()).await;
        connection.expect("the broker is there").create_channel().await.expect("it takes a channel")
    }

    /// Makes a queue.
    pub async fn queue(&self, name: &str, arguments: &[(&str, AMQPValue)]) -> String {
        let queue = self.name(name);
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let channel = self.channel().await;
        let options = QueueDeclareOptions::durable();
        channel.queue_declare(queue.as_str().into(), options, table).await.expect("a queue can be made");
        self.node.declared();
        queue
    }

    /// Deletes a queue, with what is in it.
    pub async fn delete(&self, queue: &str) {
        let deleted = self.channel().await.queue_delete(queue.into(), QueueDeleteOptions::default()).await;
        deleted.expect("a queue can be deleted");
    }

    /// Waits until so many messages wait in a queue, and answers how many do.
    pub async fn ready(&self, queue: &str, count: usize) -> usize {
        let channel = self.channel().await;
        let mut again = tokio::time::interval(Duration::from_millis(20));
        loop {
            let (ready, _) = ready_count(&channel, queue).await;
            if ready >= count {
                return ready;
            }
            again.tick().await;
        }
    }

    /// A transport to it, with short time limits.
    pub fn rabbit(&self) -> Rabbit {
        Rabbit::with(&self.node.url(), options()).expect("the URL is good")
    }

    /// A subscription to a queue.
    pub fn subscription(&self, queue: &str, change: impl FnOnce(&mut RabbitSubscriptionOptions)) -> RabbitSubscription {
        let mut options = RabbitSubscriptionOptions {
            ahead: AHEAD,
            timeout: Duration::from_secs(2),
            ..RabbitSubscriptionOptions::default()
        };
        change(&mut options);
        RabbitSubscription::with(&self.node.url(), queue, SOURCE, options).expect("the options are good")
    }
}

/// Settings with short time limits.
pub fn options() -> RabbitOptions {
    RabbitOptions { timeout: Duration::from_secs(2), ..RabbitOptions::default() }
}

/// The client of the tests takes an absent virtual host for one without a name.
fn uri<N: Node>(node: &N) -> String {
    let url = node.url();
    if url.ends_with("/%2F") { url } else { format!("{url}/%2F") }
}

impl<N: Node> Station for RabbitStation<N> {
    const TRAITS: Traits = Traits {
        knows_ids: false,
        refuses_nowhere: true,
        refused_bytes: Some(1_100_000),
        is_durable: true,
        is_mortal: N::IS_MORTAL,
    };

    async fn open() -> Self {
        Self { node: N::start().await, prefix: Uuid::new_v4() }
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.rabbit())
    }

    async fn place(&self, name: &str) -> String {
        self.queue(name, &[]).await
    }

    fn nowhere(&self) -> String {
        self.name("nowhere")
    }

    async fn arrived(&self, destination: &str, count: usize) -> Vec<Arrived> {
        self.ready(destination, count).await;
        let channel = self.channel().await;
        let mut arrived = Vec::new();
        // Unacknowledged, they are in their places again when the connection ends.
        while let Some(got) =
            channel.basic_get(destination.into(), BasicGetOptions::default()).await.expect("it is there")
        {
            arrived.push(seen(&got.delivery));
        }
        channel.close(200, "OK".into()).await.expect("a channel can be closed");
        arrived
    }

    async fn kill(&mut self) {
        self.node.server().kill();
    }

    async fn revive(&mut self) {
        self.node.server().revive().await;
    }
}

impl<N: Node> Broker for RabbitStation<N> {
    fn url(&self) -> String {
        self.node.url()
    }

    fn server(&mut self) -> &mut Server {
        self.node.server()
    }
}

impl<N: Node> Source for RabbitStation<N> {
    type Subscription = RabbitSubscription;

    fn subscribe(&self, destination: &str) -> RabbitSubscription {
        self.subscription(destination, |_| {})
    }

    async fn left(&self, destination: &str) -> usize {
        let channel = self.channel().await;
        let mut again = tokio::time::interval(Duration::from_millis(20));
        loop {
            let (ready, consumers) = ready_count(&channel, destination).await;
            if consumers == 0 {
                return ready;
            }
            again.tick().await;
        }
    }
}

/// Messages that wait in a queue, and its consumers.
async fn ready_count(channel: &Channel, queue: &str) -> (usize, u32) {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let queue = channel.queue_declare(queue.into(), options, FieldTable::default()).await.expect("the queue is there");
    (usize::try_from(queue.message_count()).expect("few messages"), queue.consumer_count())
}

fn seen(delivery: &lapin::message::Delivery) -> Arrived {
    let properties = &delivery.properties;
    let mut headers = BTreeMap::new();
    for (name, value) in properties.headers().iter().flat_map(FieldTable::inner) {
        if let AMQPValue::LongString(value) = value {
            let value = String::from_utf8(value.as_bytes().to_vec()).expect("headers are text");
            headers.insert(name.as_str().to_lowercase(), value);
        }
    }
    let text = |text: &Option<lapin::types::ShortString>| text.as_ref().map(|text| text.as_str().to_owned());
    Arrived {
        body: delivery.data.clone().into(),
        content_type: text(properties.content_type()),
        headers,
        broker_key: Some(delivery.routing_key.as_str().to_owned()),
        broker_id: text(properties.message_id()),
    }
}
