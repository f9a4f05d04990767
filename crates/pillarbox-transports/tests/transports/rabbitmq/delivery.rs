//! What only RabbitMQ does to what is sent to it.

use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use lapin::ExchangeKind;
use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::{AMQPValue, FieldTable};
use pillarbox_core::{Delivery, Message, Parcel, Transport, Undelivered};
use pillarbox_testing::station::Station;
use pillarbox_transports::Rabbit;
use pillarbox_transports::rabbitmq::RabbitOptions;
use stations::rabbitmq::{Node, OwnNode, SharedNode, options};
use stations::{RabbitStation, silent};
use tracing::field::{Field, Visit};
use tracing::span;

use crate::encryption::in_front_of;

async fn open() -> RabbitStation<SharedNode> {
    RabbitStation::open().await
}

/// An exchange that hands everything whose key begins with `order.` to a queue; answers both names.
async fn exchange<N: Node>(station: &RabbitStation<N>, name: &str) -> (String, String) {
    let (exchange, queue) = (station.name(name), station.queue("orders", &[]).await);
    let channel = station.channel().await;
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let made = channel.exchange_declare(exchange.as_str().into(), ExchangeKind::Topic, options, FieldTable::default());
    made.await.expect("an exchange can be made");
    let (from, to) = (exchange.as_str().into(), queue.as_str().into());
    let bound = channel.queue_bind(to, from, "order.#".into(), QueueBindOptions::default(), FieldTable::default());
    bound.await.expect("a queue can be bound");
    (exchange, queue)
}

/// BUS-02: through an exchange, persistent, with the properties that other clients look at.
#[tokio::test]
async fn a_message_goes_through_an_exchange_with_its_properties() {
    let station = open().await;
    let (exchange, queue) = exchange(&station, "with/slash").await;
    let message = Message::new("order.created", "1")
        .message_type("OrderCreated")
        .correlation_id("request-1")
        .occurred_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let destination = format!("{}/order.created", exchange.replace('/', "%2F"));
    let results = station.rabbit().deliver(&[Parcel::new(destination, &message)]).await;
    assert_eq!(results, [Ok(Delivery::Taken)]);
    let channel = station.channel().await;
    let got = channel.basic_get(queue.as_str().into(), BasicGetOptions::default()).await.expect("it can be asked");
    let properties = got.expect("it is there").delivery.properties;
    let text = |text: &Option<lapin::types::ShortString>| text.as_ref().map(ToString::to_string).unwrap_or_default();
    assert_eq!(*properties.delivery_mode(), Some(2));
    assert_eq!(text(properties.message_id()), message.id().to_string());
    assert_eq!(
        (text(properties.correlation_id()), text(properties.kind())),
        ("request-1".into(), "OrderCreated".into())
    );
    assert_eq!(*properties.timestamp(), Some(1_700_000_000));
}

/// H42, H47: what no queue is bound for is confirmed and returned; it is told of the right messages, in a full pipeline.
#[tokio::test]
async fn of_a_pipeline_exactly_what_is_returned_is_refused() {
    let station = open().await;
    let (exchange, queue) = exchange(&station, "topics").await;
    let messages: Vec<_> = (0..700).map(|number| Message::new("t", number.to_string())).collect();
    let is_bound = |place: usize| !place.is_multiple_of(3);
    let key = |place: usize| if is_bound(place) { "order.created" } else { "other" };
    let parcel = |(place, message)| Parcel::new(format!("{exchange}/{}", key(place)), message);
    let parcels: Vec<_> = messages.iter().enumerate().map(parcel).collect();
    let results = station.rabbit().deliver(&parcels).await;
    for (place, result) in results.iter().enumerate() {
        match is_bound(place) {
            true => assert_eq!(*result, Ok(Delivery::Taken)),
            false => assert_eq!(*result, Err(Undelivered::refused("no queue is bound for it"))),
        }
    }
    assert_eq!(station.arrived(&queue, 466).await.len(), 466);
}

/// H42, H47: an exchange that is missing closes the channel; the others of the batch arrive all the same.
#[tokio::test]
async fn a_missing_exchange_stops_no_other_message() {
    let station = open().await;
    let queue = station.place("there").await;
    let (exchange, bound) = exchange(&station, "exchange").await;
    let messages: Vec<_> = (0..30).map(|number| Message::new("t", number.to_string())).collect();
    let missing = format!("{}/key", station.name("missing"));
    let places = [queue.clone(), missing, format!("{exchange}/order.created")];
    let parcels: Vec<_> =
        messages.iter().enumerate().map(|(at, message)| Parcel::new(places[at % 3].as_str(), message)).collect();
    let transport = station.rabbit();
    let results = transport.deliver(&parcels).await;
    for (place, result) in results.iter().enumerate() {
        match place % 3 {
            1 => assert_eq!(*result, Err(Undelivered::refused("there is no such exchange"))),
            _ => assert_eq!(*result, Ok(Delivery::Taken)),
        }
    }
    assert!(station.arrived(&queue, 10).await.len() >= 10);
    assert!(station.arrived(&bound, 10).await.len() >= 10);
}

/// H49: nothing of a key overtakes a message that is too large, and the broker's limit is known from then on.
#[tokio::test]
async fn nothing_of_its_key_overtakes_what_is_too_large() {
    let station = open().await;
    let queue = station.place("keyed").await;
    let large = vec![b'x'; 1_100_000];
    let messages = [b"1".to_vec(), large.clone(), b"3".to_vec()].map(|body| Message::new("t", body).key("one"));
    let parcels: Vec<_> = messages.iter().map(|message| Parcel::new(queue.as_str(), message)).collect();
    let transport = station.rabbit();
    let too_large = Err(Undelivered::TooLarge { bytes: 1_100_000, limit: Some(1_048_576) });
    let behind = Err(Undelivered::refused("an earlier message of its key was not taken"));
    for _ in 0..2 {
        assert_eq!(transport.deliver(&parcels).await, [Ok(Delivery::Taken), too_large.clone(), behind.clone()]);
    }
    let bodies: Vec<_> = station.arrived(&queue, 2).await.into_iter().map(|arrived| arrived.body).collect();
    assert!(bodies.iter().all(|body| body == "1"), "{bodies:?}");
}

/// H46: a queue that is full and says so refuses.
#[tokio::test]
async fn a_full_queue_refuses() {
    let station = open().await;
    let arguments =
        [("x-max-length", AMQPValue::LongInt(2)), ("x-overflow", AMQPValue::LongString("reject-publish".into()))];
    let queue = station.queue("full", &arguments).await;
    let transport = station.rabbit();
    let message = Message::new("t", "1");
    let mut refused = None;
    // The queue counts what is in it a little later than it confirms.
    for _ in 0..20 {
        if let [Err(undelivered)] = &transport.deliver(&[Parcel::new(queue.as_str(), &message)]).await[..] {
            refused = Some(undelivered.clone());
            break;
        }
    }
    assert!(matches!(refused, Some(Undelivered::Refused { .. })), "{refused:?}");
}

/// H43: a broker with an alarm is unavailable, whatever is sent to it is not kept behind, and it is used again afterwards.
#[tokio::test]
async fn a_broker_with_an_alarm_is_unavailable_and_nothing_is_kept_for_it() {
    let station = RabbitStation::<OwnNode>::open().await;
    let queue = station.place("alarm").await;
    let transport = station.rabbit();
    let message = |number: usize| Message::new("t", number.to_string());
    assert_eq!(transport.deliver(&[Parcel::new(queue.as_str(), &message(0))]).await, [Ok(Delivery::Taken)]);
    station.node.control(&["set_vm_memory_high_watermark", "0.0001"]);
    // The broker notices an alarm, and tells of it, a little later than it is there.
    let mut first = 1;
    while transport.deliver(&[Parcel::new(queue.as_str(), &message(first))]).await[0].is_ok() {
        first += 1;
    }
    let later = first + 1..first + 100;
    for number in later.clone() {
        let results = transport.deliver(&[Parcel::new(queue.as_str(), &message(number))]).await;
        assert!(matches!(&results[..], [Err(Undelivered::Unavailable { .. })]), "{number}: {results:?}");
    }
    assert!(matches!(transport.probe().await, Err(Undelivered::Unavailable { .. })));
    station.node.control(&["set_vm_memory_high_watermark", "0.4"]);
    let last = message(usize::MAX);
    let mut again = tokio::time::interval(Duration::from_millis(20));
    while transport.deliver(&[Parcel::new(queue.as_str(), &last)]).await != [Ok(Delivery::Taken)] {
        again.tick().await;
    }
    let arrived = station.arrived(&queue, first + 1).await;
    let has = |number: usize| arrived.iter().any(|arrived| arrived.body == number.to_string());
    assert!((0..first).all(has) && has(usize::MAX), "{} of {first} arrived", arrived.len());
    assert!(!later.into_iter().any(has), "only the call that met the alarm had sent something");
}

/// H43: whoever takes a connection and says nothing is unavailable, and is not held on to.
#[tokio::test]
async fn a_server_that_says_nothing_is_unavailable_and_let_go() {
    let (port, silent) = silent().await;
    let mut options = options();
    options.timeout = Duration::from_millis(200);
    let transport = Rabbit::with(&format!("amqp://ann:canary@127.0.0.1:{port}"), options).expect("the URL is good");
    let message = Message::new("t", "1");
    let results = transport.deliver(&[Parcel::new("queue", &message)]).await;
    let [Err(unavailable @ Undelivered::Unavailable { .. })] = &results[..] else { panic!("{results:?}") };
    let said = unavailable.to_string();
    assert!(said.contains(&format!("127.0.0.1:{port}")) && !said.contains("canary"), "{said}");
    assert!(silent.await.expect("it does not panic").starts_with(b"AMQP"));
}

/// BUS-12: a certificate that nobody vouches for is not talked to.
#[tokio::test]
async fn only_a_trusted_certificate_gets_messages() {
    let station = open().await;
    let queue = station.place("encrypted").await;
    let (port, pem) = in_front_of(station.node.address()).await;
    let url = format!("amqps://guest:guest@127.0.0.1:{port}");
    let message = Message::new("t", "1");
    let parcels = [Parcel::new(queue.as_str(), &message)];
    let doubtful = Rabbit::with(&url, options()).expect("the URL is good").deliver(&parcels).await;
    assert!(matches!(&doubtful[..], [Err(Undelivered::Unavailable { .. })]), "{doubtful:?}");
    let trusting = RabbitOptions { root_certificate: Some(pem), ..options() };
    let trusting = Rabbit::with(&url, trusting).expect("the URL is good");
    assert_eq!(trusting.deliver(&parcels).await, [Ok(Delivery::Taken)]);
}

/// H48: a wrong password is told, and not in plain text.
#[tokio::test]
async fn a_wrong_password_is_told_without_it() {
    let station = open().await;
    let url = station.node.url().replace("guest:guest@", "guest:canary@");
    let transport = Rabbit::with(&url, options()).expect("the URL is good");
    let Err(Undelivered::Unavailable { reason }) = transport.probe().await else { panic!("it is not let in") };
    assert!(reason.contains("refused") && !reason.contains("canary"), "{reason}");
}

/// H48: the client would log what is returned to it, with its payload.
#[tokio::test]
async fn a_returned_message_is_in_no_log() {
    tracing::subscriber::set_global_default(Everything).expect("no other test listens");
    let station = open().await;
    let message = Message::new("t", "canary-in-a-payload");
    let results = station.rabbit().deliver(&[Parcel::new(station.nowhere(), &message)]).await;
    assert!(matches!(&results[..], [Err(Undelivered::Refused { .. })]), "{results:?}");
    tracing::warn!(heard = true);
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(log.contains("heard"), "the test listens");
    let shown: Vec<_> = "canary-in-a-payload".bytes().map(|byte| byte.to_string()).collect();
    assert!(!log.contains("canary-in-a-payload") && !log.contains(&shown.join(", ")), "{log}");
}

static LOG: Mutex<String> = Mutex::new(String::new());

/// Listens to all but the finest level, to everybody.
struct Everything;

impl tracing::Subscriber for Everything {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::DEBUG
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Lines;
        impl Visit for Lines {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
                let _infallible = writeln!(log, "{field}={value:?}");
            }
        }
        event.record(&mut Lines);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
