//! What only RabbitMQ delivers.

use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable};
use pillarbox_core::{Delivered, Incoming, Intaken, Limits, Message, Parcel, Problem, Subscription, Transport};
use pillarbox_testing::station::Station;
use pillarbox_transports::RabbitSubscription;
use pillarbox_transports::rabbitmq::{Declare, Nameless, RabbitTag};
use stations::RabbitStation;
use stations::rabbitmq::SharedNode;

async fn open() -> RabbitStation<SharedNode> {
    RabbitStation::open().await
}

/// As somebody who does not know us would.
async fn publish(station: &RabbitStation<SharedNode>, queue: &str, properties: BasicProperties) {
    let channel = station.channel().await;
    let options = BasicPublishOptions::default();
    let published = channel.basic_publish("".into(), queue.into(), options, b"body", properties).await;
    published.expect("it is published").await.expect("it is taken");
    channel.close(200, "OK".into()).await.expect("a channel can be closed");
}

async fn one(subscription: &mut RabbitSubscription) -> Delivered<RabbitTag> {
    subscription.next(1).await.expect("the broker answers").remove(0)
}

/// IBX: a stranger's message is known by its property, and its properties are the fields that they are called like.
#[tokio::test]
async fn a_strangers_message_is_known_by_its_message_id() {
    let station = open().await;
    let queue = station.place("stranger").await;
    let mut headers = FieldTable::default();
    headers.insert("retries".into(), AMQPValue::LongInt(3));
    headers.insert("nested".into(), AMQPValue::FieldTable(FieldTable::default()));
    let properties = BasicProperties::default()
        .with_message_id("evt_1".into())
        .with_type("OrderCreated".into())
        .with_correlation_id("request-1".into())
        .with_content_type("application/json".into())
        .with_headers(headers);
    publish(&station, &queue, properties).await;
    let delivered = one(&mut station.subscription(&queue, |_| {})).await;
    let (receipt, message) = (delivered.incoming.receipt(), delivered.incoming.message());
    assert_eq!((receipt.message_id(), message.topic()), ("evt_1", queue.as_str()));
    assert_eq!((message.get_message_type(), message.get_correlation_id()), (Some("OrderCreated"), Some("request-1")));
    assert_eq!(message.get_content_type(), Some("application/json"));
    let headers: Vec<_> = message.get_headers().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, [("retries", "3")]);
}

/// A message without an id is one of its own, or known by its content, or rejected: as it was chosen.
#[tokio::test]
async fn a_message_without_an_id_is_what_was_chosen() {
    for nameless in [Nameless::AsNew, Nameless::ByContent, Nameless::Reject] {
        let station = open().await;
        let queue = station.place("nameless").await;
        for _ in 0..2 {
            publish(&station, &queue, BasicProperties::default()).await;
        }
        let mut subscription = station.subscription(&queue, |options| options.nameless = nameless);
        let (first, second) = (one(&mut subscription).await.incoming, one(&mut subscription).await.incoming);
        let is_same = first.receipt() == second.receipt();
        let is_storable = Incoming::check_all(&[first], &Limits::default()).is_ok();
        let expected = match nameless {
            Nameless::AsNew => (false, true),
            Nameless::ByContent => (true, true),
            Nameless::Reject => (true, false),
        };
        assert_eq!((is_same, is_storable), expected, "{nameless:?}");
    }
}

/// H46, H47: what is refused lands at the queue's dead-letter exchange.
#[tokio::test]
async fn what_is_refused_goes_to_the_dead_letter_exchange() {
    let station = open().await;
    let dead = station.place("dead").await;
    let to_dead = [
        ("x-dead-letter-exchange", AMQPValue::LongString("".into())),
        ("x-dead-letter-routing-key", AMQPValue::LongString(dead.as_str().into())),
    ];
    let queue = station.queue("live", &to_dead).await;
    let message = Message::new("t", "1");
    station.rabbit().deliver(&[Parcel::new(queue.as_str(), &message)]).await;
    let mut subscription = station.subscription(&queue, |_| {});
    let tag = one(&mut subscription).await.tag;
    let refused = Intaken::Refused(Problem::empty("topic").into());
    subscription.settle(vec![(tag, refused)]).await.expect("the broker is told");
    assert_eq!(station.arrived(&dead, 1).await[0].body, "1");
}

/// A queue that is missing is told; it is made where that is asked for.
#[tokio::test]
async fn a_missing_queue_is_told_or_made() {
    let station = open().await;
    for declare in [Declare::Classic, Declare::Quorum] {
        let queue = station.name(&format!("{declare:?}"));
        let told = station.subscription(&queue, |_| {}).next(1).await.expect_err("there is no queue").to_string();
        assert!(told.contains("NOT_FOUND") && told.contains(&queue), "{told}");
        let mut subscription = station.subscription(&queue, |options| options.declare = declare);
        let (message, rabbit) = (Message::new("t", "1"), station.rabbit());
        let mut again = tokio::time::interval(std::time::Duration::from_millis(20));
        let sending = async {
            while rabbit.deliver(&[Parcel::new(queue.as_str(), &message)]).await[0].is_err() {
                again.tick().await;
            }
        };
        let (delivered, ()) = tokio::join!(one(&mut subscription), sending);
        assert_eq!(delivered.incoming.message(), &message);
    }
}
