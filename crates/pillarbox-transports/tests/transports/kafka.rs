//! Kafka on the broker that librdkafka brings along, in this process: it speaks the protocol over the loopback, keeps its log while
//! it is "down", and can be told to answer with errors. It is no Apache Kafka, and has no limit of its own for sizes.

mod process;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use pillarbox_core::{Delivery, Message, Parcel, Subscription, Transport, Undelivered};
use pillarbox_testing::source::{AHEAD, SOURCE, Source};
use pillarbox_testing::station::{Arrived, Station, Traits};
use pillarbox_transports::kafka::{Kafka, KafkaOptions, KafkaSubscription, KafkaSubscriptionOptions};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

const PARTITIONS: i32 = 4;
const GROUP: &str = "suite";
const PATIENCE: Duration = Duration::from_secs(20);

/// What neither of the two brokers here can change.
const TRAITS: Traits = Traits {
    knows_ids: false,
    refuses_nowhere: true,
    // The limit of the producer, because the broker has none.
    refused_bytes: Some(1_000_001),
    is_durable: true,
    is_mortal: true,
};

type Cluster = MockCluster<'static, DefaultProducerContext>;
type Order = Box<dyn FnOnce(&Cluster) + Send>;

/// Where a broker is, as clients see it.
struct Place {
    servers: String,
}

impl Place {
    fn kafka(&self) -> Kafka {
        Kafka::with(&self.url(), options()).expect("the settings are right")
    }

    fn url(&self) -> String {
        format!("kafka://{}", self.servers)
    }

    fn reader(&self) -> BaseConsumer {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers).set("group.id", GROUP).set("enable.auto.commit", "false");
        config.create().expect("a consumer can be made")
    }

    async fn arrived(&self, destination: &str, count: usize) -> Vec<Arrived> {
        let (reader, topic) = (self.reader(), destination.to_owned());
        spawn_blocking(move || read_all(&reader, &topic, count)).await.expect("reading does not panic")
    }

    fn subscribe(&self, destination: &str) -> KafkaSubscription {
        let mut read = KafkaSubscriptionOptions::new(destination, GROUP);
        read.ahead = AHEAD;
        // After the last member has left, the broker in this process waits for so long until it lets in another; less than its
        // delay of three seconds for the first one would end that one before it is in.
        read.connection = options().set("session.timeout.ms", "6000").set("heartbeat.interval.ms", "500");
        KafkaSubscription::new(SOURCE, &self.url(), read).expect("the settings are right")
    }

    async fn left(&self, destination: &str) -> usize {
        let (reader, topic) = (self.reader(), destination.to_owned());
        spawn_blocking(move || left(&reader, &topic)).await.expect("asking does not panic")
    }
}

/// A cluster of one broker, in a thread of its own, which it may not leave.
struct Broker {
    place: Place,
    orders: mpsc::Sender<Order>,
}

impl Broker {
    async fn ask<T: Send + 'static>(&self, order: impl FnOnce(&Cluster) -> T + Send + 'static) -> T {
        let (tell, told) = oneshot::channel();
        let order = move |cluster: &Cluster| drop(tell.send(order(cluster)));
        self.orders.send(Box::new(order)).expect("the cluster runs");
        told.await.expect("the cluster answers")
    }

    fn kafka(&self) -> Kafka {
        self.place.kafka()
    }

    async fn fail_produce(&self, errors: &'static [RDKafkaRespErr]) {
        self.ask(move |cluster| cluster.request_errors(RDKafkaApiKey::Produce, errors)).await;
    }
}

impl Station for Broker {
    const TRAITS: Traits = TRAITS;

    async fn open() -> Self {
        let (orders, given) = mpsc::channel::<Order>();
        let (tell, told) = oneshot::channel();
        std::thread::spawn(move || {
            let cluster = MockCluster::new(1).expect("a cluster starts");
            let _ = tell.send(cluster.bootstrap_servers());
            for order in given {
                order(&cluster);
            }
        });
        Self { place: Place { servers: told.await.expect("the cluster has an address") }, orders }
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.kafka())
    }

    async fn place(&self, name: &str) -> String {
        let topic = format!("places.{name}");
        let created = topic.clone();
        self.ask(move |cluster| cluster.create_topic(&created, PARTITIONS, 1)).await.expect("a topic can be made");
        topic
    }

    fn nowhere(&self) -> String {
        "nobody.made.this".to_owned()
    }

    async fn arrived(&self, destination: &str, count: usize) -> Vec<Arrived> {
        self.place.arrived(destination, count).await
    }

    async fn kill(&mut self) {
        self.ask(|cluster| cluster.broker_down(-1)).await.expect("the broker goes down");
    }

    async fn revive(&mut self) {
        self.ask(|cluster| cluster.broker_up(-1)).await.expect("the broker comes up");
    }
}

impl Source for Broker {
    type Subscription = KafkaSubscription;

    fn subscribe(&self, destination: &str) -> KafkaSubscription {
        self.place.subscribe(destination)
    }

    async fn left(&self, destination: &str) -> usize {
        self.place.left(destination).await
    }
}

fn options() -> KafkaOptions {
    KafkaOptions { timeout: Duration::from_secs(2), ..KafkaOptions::default() }
}

/// Everything in a topic once it holds so many messages, partition by partition.
fn read_all(reader: &BaseConsumer, topic: &str, count: usize) -> Vec<Arrived> {
    let ends = loop {
        let ends: Vec<_> = (0..PARTITIONS)
            .map(|partition| reader.fetch_watermarks(topic, partition, PATIENCE).expect("the cluster tells").1)
            .collect();
        if ends.iter().sum::<i64>() >= i64::try_from(count).expect("it fits") {
            break ends;
        }
    };
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset(topic, partition, Offset::Beginning).expect("the client takes it");
    }
    reader.assign(&list).expect("the client takes it");
    let mut seen = BTreeMap::new();
    while seen.len() < usize::try_from(ends.iter().sum::<i64>()).expect("it fits") {
        let message = reader.poll(PATIENCE).expect("messages are there").expect("messages can be read");
        let headers = message.headers().map(|headers| {
            let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
            headers.iter().map(|header| (header.key.to_lowercase(), text(header.value))).collect()
        });
        let headers: BTreeMap<String, String> = headers.unwrap_or_default();
        let arrived = Arrived {
            body: message.payload().unwrap_or_default().to_vec().into(),
            content_type: headers.get("content-type").cloned(),
            headers,
            broker_key: message.key().map(|key| String::from_utf8_lossy(key).into_owned()),
            broker_id: None,
        };
        seen.insert((message.partition(), message.offset()), arrived);
    }
    seen.into_values().collect()
}

/// Messages of a topic that the group has not committed.
fn left(reader: &BaseConsumer, topic: &str) -> usize {
    let mut list = TopicPartitionList::new();
    list.add_partition_range(topic, 0, PARTITIONS - 1);
    let committed = reader.committed_offsets(list, PATIENCE).expect("the cluster tells");
    let left: i64 = committed
        .elements()
        .iter()
        .map(|element| {
            let (_, end) = reader.fetch_watermarks(topic, element.partition(), PATIENCE).expect("the cluster tells");
            end - element.offset().to_raw().map_or(0, |offset| offset.max(0))
        })
        .sum();
    usize::try_from(left).expect("it fits")
}

mod suite {
    pillarbox_testing::transport_suite!(super::Broker);
}

mod consumer_suite {
    pillarbox_testing::subscription_suite!(super::Broker);
}

/// BUS-02: the key of a message is the key of the record, which decides on its partition.
#[tokio::test]
async fn the_key_of_a_message_is_the_key_of_its_record() {
    let station = Broker::open().await;
    let destination = station.place("keyed").await;
    let message = Message::new("t", "").key("customer-7");
    let results = station.kafka().deliver(&[Parcel::new(destination.as_str(), &message)]).await;
    assert_eq!(results, [Ok(Delivery::Taken)]);
    assert_eq!(station.arrived(&destination, 1).await[0].broker_key.as_deref(), Some("customer-7"));
}

/// H46, H49: a broker that finds a whole batch of records too large says nothing of the messages in it.
#[tokio::test]
async fn a_batch_that_is_too_large_is_sent_message_by_message() {
    let station = Broker::open().await;
    let destination = station.place("batch").await;
    let transport = station.kafka();
    let messages: Vec<_> = (0..5).map(|number| Message::new("t", number.to_string()).key("one")).collect();
    let parcels: Vec<_> = messages.iter().map(|message| Parcel::new(destination.as_str(), message)).collect();
    station.fail_produce(&[RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]).await;
    assert_eq!(transport.deliver(&parcels).await, vec![Ok(Delivery::Taken); 5]);
    let arrived = station.arrived(&destination, 5).await;
    let bodies: Vec<_> = arrived.iter().map(|one| String::from_utf8_lossy(&one.body).into_owned()).collect();
    assert_eq!(bodies.iter().rev().take(5).rev().collect::<Vec<_>>(), ["0", "1", "2", "3", "4"]);

    // The one that is alone is too large itself, and holds back those behind it.
    const TWICE: [RDKafkaRespErr; 2] = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE; 2];
    station.fail_produce(&TWICE).await;
    let one = Message::new("t", "alone");
    let results = transport.deliver(&[Parcel::new(destination.as_str(), &one)]).await;
    assert!(matches!(results[0], Err(Undelivered::TooLarge { limit: None, .. })), "{results:?}");
}

/// H43: a producer whose sequence the broker does not accept costs one call, and the next one is delivered.
#[tokio::test]
async fn a_sequence_that_is_not_accepted_costs_one_call() {
    let station = Broker::open().await;
    let destination = station.place("sequence").await;
    let transport = station.kafka();
    let message = Message::new("t", "");
    let parcels = [Parcel::new(destination.as_str(), &message)];
    assert_eq!(transport.deliver(&parcels).await, [Ok(Delivery::Taken)]);
    station.fail_produce(&[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER]).await;
    let first = transport.deliver(&parcels).await;
    assert!(matches!(first[0], Err(Undelivered::Unavailable { .. })), "{first:?}");
    assert_eq!(transport.deliver(&parcels).await, [Ok(Delivery::Taken)]);
}

/// H43: what was told to be undelivered is not sent when the broker comes back.
#[tokio::test]
async fn what_was_given_up_is_not_sent_later() {
    let mut station = Broker::open().await;
    let destination = station.place("late").await;
    let transport = station.kafka();
    let messages = ["before", "given up", "after"].map(|body| Message::new("t", body).key("one"));
    let parcels = messages.each_ref().map(|message| Parcel::new(destination.as_str(), message));
    assert_eq!(transport.deliver(&parcels[..1]).await, [Ok(Delivery::Taken)]);
    station.kill().await;
    assert!(matches!(transport.deliver(&parcels[1..2]).await[0], Err(Undelivered::Unavailable { .. })));
    station.revive().await;
    assert_eq!(transport.deliver(&parcels[2..]).await, [Ok(Delivery::Taken)]);
    let bodies: Vec<_> = station.arrived(&destination, 2).await.into_iter().map(|one| one.body).collect();
    assert_eq!(bodies, ["before", "after"]);
}

/// BUS-02: a record of a stranger is named by its place, and keeps its key.
#[tokio::test]
async fn a_record_of_a_stranger_is_named_by_its_place() {
    let station = Broker::open().await;
    let destination = station.place("stranger").await;
    let producer: rdkafka::producer::FutureProducer =
        ClientConfig::new().set("bootstrap.servers", &station.place.servers).create().unwrap();
    let record = rdkafka::producer::FutureRecord::<str, str>::to(&destination).key("k").payload("body").partition(2);
    producer.send(record, PATIENCE).await.unwrap();
    let mut subscription = station.subscribe(&destination);
    let delivered = subscription.next(10).await.unwrap();
    let incoming = &delivered[0].incoming;
    assert_eq!(incoming.receipt().message_id(), format!("{destination}/2/0"));
    assert_eq!((incoming.message().topic(), incoming.message().get_key()), (destination.as_str(), Some("k")));
}

#[test]
fn a_subscription_is_checked_before_it_connects() {
    let fields = |topic: &str, group: &str, ahead: usize| {
        let mut options = KafkaSubscriptionOptions::new(topic, group);
        options.ahead = ahead;
        let invalid = KafkaSubscription::new("source", "kafka://a", options).unwrap_err();
        invalid.problems().iter().map(pillarbox_core::Problem::field).collect::<Vec<_>>()
    };
    assert_eq!(fields("", "", 0), ["topic", "group", "ahead"]);
    assert_eq!(fields(&"x".repeat(221), &"x".repeat(256), 100_001), ["topic", "group", "ahead"]);
}

#[test]
fn a_message_can_be_a_cloud_event() {
    pillarbox_testing::run(|| crate::cloud_events::a_message_can_be_a_cloud_event::<Broker>("ce_"));
}
