//! AMQP 1.0, as RabbitMQ's plugin speaks it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fe2o3_amqp::link::CreditMode;
use fe2o3_amqp::types::messaging::{Body, Message, MessageId};
use fe2o3_amqp::types::primitives::{SimpleValue, Value};
use fe2o3_amqp::{Connection, Receiver, Session};
use pillarbox_core::{Delivery, Parcel, Transport, Undelivered};
use pillarbox_testing::station::{Arrived, Station, Traits};
use pillarbox_transports::Amqp;
use pillarbox_transports::amqp::AmqpOptions;
use stations::rabbitmq::{Node, OwnNode, SharedNode};
use stations::{RabbitStation, silent};

use crate::encryption::in_front_of;

/// How the plugin calls a queue that is there.
const QUEUE: &str = "/amq/queue/";

struct AmqpStation<N> {
    rabbit: RabbitStation<N>,
}

impl<N: Node> AmqpStation<N> {
    fn url(&self, password: &str) -> String {
        format!("amqp://guest:{password}@{}", self.rabbit.node.address())
    }

    fn amqp(&self, password: &str) -> Amqp {
        Amqp::with(&self.url(password), options()).expect("the URL is good")
    }
}

fn options() -> AmqpOptions {
    AmqpOptions { timeout: Duration::from_secs(2), ..AmqpOptions::default() }
}

impl<N: Node> Station for AmqpStation<N> {
    const TRAITS: Traits = RabbitStation::<N>::TRAITS;

    async fn open() -> Self {
        Self { rabbit: RabbitStation::open().await }
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.amqp("guest"))
    }

    async fn place(&self, name: &str) -> String {
        format!("{QUEUE}{}", self.rabbit.place(name).await)
    }

    fn nowhere(&self) -> String {
        format!("/exchange/{}/key", self.rabbit.name("nowhere"))
    }

    async fn arrived(&self, destination: &str, count: usize) -> Vec<Arrived> {
        let queue = destination.strip_prefix(QUEUE).expect("it is a queue of ours");
        let ready = self.rabbit.ready(queue, count).await;
        let mut connection =
            Connection::open("arrived", self.url("guest").as_str()).await.expect("the broker is there");
        let mut session = Session::begin(&mut connection).await.expect("it takes a session");
        let credit = CreditMode::Auto(u32::try_from(ready).expect("few messages"));
        let receiver = Receiver::builder().name("arrived").source(destination).credit_mode(credit);
        let mut receiver = receiver.attach(&mut session).await.expect("the queue is there");
        let mut arrived = Vec::new();
        for _ in 0..ready {
            // Unsettled, they are in their places again when the connection ends.
            let delivery = receiver.recv::<Body<Value>>().await.expect("they are delivered");
            arrived.push(seen(delivery.message()));
        }
        drop(receiver);
        session.end().await.expect("a session can be ended");
        connection.close().await.expect("a connection can be closed");
        arrived
    }

    async fn kill(&mut self) {
        self.rabbit.kill().await;
    }

    async fn revive(&mut self) {
        self.rabbit.revive().await;
    }
}

fn seen(message: &Message<Body<Value>>) -> Arrived {
    let body: Vec<u8> = match &message.body {
        Body::Data(parts) => parts.iter().flat_map(|part| part.0.iter().copied()).collect(),
        Body::Empty => Vec::new(),
        other => panic!("a body is data, and not {other:?}"),
    };
    let mut headers = BTreeMap::new();
    for (name, value) in message.application_properties.iter().flat_map(|all| all.0.iter()) {
        if let SimpleValue::String(value) = value {
            headers.insert(name.to_lowercase(), value.clone());
        }
    }
    let properties = message.properties.clone().unwrap_or_default();
    let broker_id = properties.message_id.map(|id| match id {
        MessageId::String(id) => id,
        other => format!("{other:?}"),
    });
    let content_type = properties.content_type.map(|symbol| symbol.0);
    Arrived { body: body.into(), content_type, headers, broker_key: properties.group_id, broker_id }
}

mod suite {
    use super::*;

    pillarbox_testing::transport_suite!(AmqpStation<SharedNode>);
}

mod mortal {
    use super::*;

    pillarbox_testing::transport_suite! { @tests AmqpStation<OwnNode>;
        a_broker_that_is_away_is_unavailable,
        nothing_is_lost_when_the_broker_dies_in_the_middle,
    }
}

/// BUS-02: with the properties that other clients look at.
#[tokio::test]
async fn a_message_has_its_properties() {
    let station = AmqpStation::<SharedNode>::open().await;
    let destination = station.place("properties").await;
    let message = pillarbox_core::Message::new("order.created", "1").key("customer-7").content_type("text/plain");
    let results = station.amqp("guest").deliver(&[Parcel::new(destination.as_str(), &message)]).await;
    assert_eq!(results, [Ok(Delivery::Taken)]);
    let arrived = station.arrived(&destination, 1).await.remove(0);
    assert_eq!(arrived.broker_id, Some(message.id().to_string()));
    assert_eq!(arrived.content_type.as_deref(), Some("text/plain"));
}

/// H49: nothing of a key overtakes a message that is too large.
#[tokio::test]
async fn nothing_of_its_key_overtakes_what_is_too_large() {
    let station = AmqpStation::<SharedNode>::open().await;
    let destination = station.place("keyed").await;
    let bodies = [b"1".to_vec(), vec![b'x'; 1_100_000], b"3".to_vec()];
    let messages = bodies.map(|body| pillarbox_core::Message::new("t", body).key("one"));
    let parcels: Vec<_> = messages.iter().map(|message| Parcel::new(destination.as_str(), message)).collect();
    let results = station.amqp("guest").deliver(&parcels).await;
    assert!(matches!(results[1], Err(Undelivered::TooLarge { .. })), "{results:?}");
    assert_eq!(results[2], Err(Undelivered::refused("an earlier message of its key was not taken")));
    assert!(station.arrived(&destination, 1).await.iter().all(|arrived| arrived.body == "1"));
}

/// H48: a wrong password is told, and not in plain text.
#[tokio::test]
async fn a_wrong_password_is_told_without_it() {
    let station = AmqpStation::<SharedNode>::open().await;
    let Err(Undelivered::Unavailable { reason }) = station.amqp("canary").probe().await else {
        panic!("it is not let in")
    };
    assert!(reason.contains("127.0.0.1") && !reason.contains("canary"), "{reason}");
}

/// BUS-12: a certificate that nobody vouches for is not talked to.
#[tokio::test]
async fn only_a_trusted_certificate_gets_messages() {
    let station = AmqpStation::<SharedNode>::open().await;
    let destination = station.place("encrypted").await;
    let (port, pem) = in_front_of(station.rabbit.node.address()).await;
    let url = format!("amqps://guest:guest@127.0.0.1:{port}");
    let message = pillarbox_core::Message::new("t", "1");
    let parcels = [Parcel::new(destination.as_str(), &message)];
    let doubtful = Amqp::with(&url, options()).expect("the URL is good").deliver(&parcels).await;
    assert!(matches!(&doubtful[..], [Err(Undelivered::Unavailable { .. })]), "{doubtful:?}");
    let trusting = AmqpOptions { root_certificate: Some(pem), ..options() };
    let trusting = Amqp::with(&url, trusting).expect("the certificate is good");
    assert_eq!(trusting.deliver(&parcels).await, [Ok(Delivery::Taken)]);
}

/// H43: whoever takes a connection and says nothing is unavailable, and is not held on to.
#[tokio::test]
async fn a_server_that_says_nothing_is_unavailable_and_let_go() {
    let (port, silent) = silent().await;
    let options = AmqpOptions { timeout: Duration::from_millis(200), ..AmqpOptions::default() };
    let transport = Amqp::with(&format!("amqp://ann:canary@127.0.0.1:{port}"), options).expect("the URL is good");
    let message = pillarbox_core::Message::new("t", "1");
    let results = transport.deliver(&[Parcel::new("queue", &message)]).await;
    let [Err(unavailable @ Undelivered::Unavailable { .. })] = &results[..] else { panic!("{results:?}") };
    assert!(!unavailable.to_string().contains("canary"), "{unavailable}");
    assert!(silent.await.expect("it does not panic").starts_with(b"AMQP"));
}

#[test]
fn a_message_can_be_a_cloud_event() {
    pillarbox_testing::run(|| {
        crate::cloud_events::a_message_can_be_a_cloud_event::<AmqpStation<SharedNode>>("cloudEvents:")
    });
}
