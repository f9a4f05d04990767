//! NATS JetStream, with a server for each test.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy};
use pillarbox::admin::{Filter, MessageName, Replay};
use pillarbox::prelude::{Outbox, OutboxAdmin, Route, Runtime, StoreOptions};
use pillarbox::relay::To;
use pillarbox_core::{
    Delivery, Intaken, Message, MessageId, Parcel, Recall, Recalled, Subscription, Transport, Undelivered,
};
use pillarbox_testing::MemoryStore;
use pillarbox_testing::station::Station;
use stations::NatsStation;

mod encryption;

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

/// An operator's replay gets past what a stream takes for a duplicate, and a retry of that replay does not; whoever receives it
/// knows the message again.
#[tokio::test]
async fn a_replay_is_no_duplicate_of_what_it_repeats() {
    let station = NatsStation::open().await;
    let subject = station.place("again").await;
    let outbox = Outbox::new(MemoryStore::new(StoreOptions::default()));
    let route = Route::topic("t").deliver(To::new(Arc::new(station.nats()), subject.as_str()));
    let runtime = Runtime::builder(&outbox).route(route).inline().unwrap();
    let id = outbox.enqueue_now(Message::new("t", "body").header("x", "1")).await.unwrap().message_id;
    for count in 1..=3 {
        assert_eq!(runtime.drain().await.unwrap().done, 1);
        let sent = outbox.store().get(MessageName::Message(id)).await.unwrap().unwrap().message.unwrap();
        let retried = station.nats().deliver(&[Parcel::new(subject.as_str(), &sent)]).await;
        assert_eq!(retried, [Ok(Delivery::Known)]);
        let arrived = station.arrived(&subject, 1).await;
        assert_eq!(arrived.len(), count);
        assert!(arrived.iter().all(|one| one.header("pillarbox-id") == Some(id.to_string().as_str())), "{arrived:?}");
        assert_eq!(outbox.store().replay(&Replay::done(Filter::all(), 1)).await.unwrap().count, 1);
    }
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

/// Looks for messages that were sent within the last hour.
async fn recalled(nats: &impl Transport, destination: &str, wanted: &HashSet<MessageId>) -> Recalled {
    let (hour, now) = (Duration::from_secs(3_600), SystemTime::now());
    let recall = Recall { destination, wanted, from: now - hour, until: now + hour };
    nats.recall(&recall).await.unwrap()
}

async fn delivered(nats: &impl Transport, destination: &str, count: usize) -> HashSet<MessageId> {
    let messages: Vec<_> = (0..count).map(|number| Message::new("t", number.to_string())).collect();
    let parcels: Vec<_> = messages.iter().map(|message| Parcel::new(destination, message)).collect();
    assert!(nats.deliver(&parcels).await.iter().all(Result::is_ok));
    messages.iter().map(Message::id).collect()
}

/// H44: what a stream has lost is not found, nor is what it never had.
#[tokio::test]
async fn what_a_stream_has_lost_is_not_found() {
    let station = NatsStation::open().await;
    let (nats, subject) = (station.nats(), station.place("orders").await);
    let mut wanted = delivered(&nats, &subject, 300).await;
    assert_eq!(recalled(&nats, &subject, &wanted).await, Recalled::Found { ids: wanted.clone(), since: None });

    let stream = station.context().await.get_stream("orders").await.unwrap();
    let lost = stream.get_raw_message(300).await.unwrap().headers.get("Nats-Msg-Id").unwrap().to_string();
    stream.delete_message(300).await.unwrap();
    wanted.insert(MessageId::new());
    let Recalled::Found { ids, since: None } = recalled(&nats, &subject, &wanted).await else {
        panic!("it is readable")
    };
    assert_eq!(ids.len(), 299);
    assert!(ids.is_subset(&wanted) && ids.iter().all(|id| id.to_string() != lost));
    assert_eq!(stream.get_info().await.unwrap().state.messages, 299, "nothing is consumed");

    let nobody = recalled(&nats, "nobody.takes.this", &wanted).await;
    assert_eq!(nobody, Recalled::Found { ids: HashSet::new(), since: None }, "a stream that is gone has nothing");
}

/// H44: what a stream was told to drop is not lost.
#[tokio::test]
async fn a_stream_that_drops_messages_says_since_when_it_has_them() {
    let station = NatsStation::open().await;
    let nats = station.nats();
    let begin = SystemTime::now() - Duration::from_secs(1);
    let small = station.make("small", stream::Config { max_messages: 2, ..stream::Config::default() }).await;
    let wanted = delivered(&nats, &small, 5).await;
    let Recalled::Found { ids, since } = recalled(&nats, &small, &wanted).await else { panic!("it is readable") };
    assert!(ids.len() == 2 && since.is_some_and(|since| since > begin), "{ids:?} {since:?}");

    let work = stream::Config { retention: RetentionPolicy::WorkQueue, ..stream::Config::default() };
    let work = station.make("work", work).await;
    let recalled = recalled(&nats, &work, &wanted).await;
    assert!(matches!(&recalled, Recalled::Unreadable { why } if why.contains("work")), "{recalled:?}");
}

/// H44: a server that is away says nothing about its messages.
#[tokio::test]
async fn nothing_is_missing_on_a_server_that_is_away() {
    let mut station = NatsStation::open().await;
    let (nats, subject) = (station.nats(), station.place("orders").await);
    let wanted = delivered(&nats, &subject, 1).await;
    station.server.kill();
    let now = SystemTime::now();
    let recall = Recall { destination: &subject, wanted: &wanted, from: now, until: now };
    let answer = nats.recall(&recall).await;
    assert!(matches!(answer, Err(Undelivered::Unavailable { .. })), "{answer:?}");
}

#[test]
fn a_message_can_be_a_cloud_event() {
    pillarbox_testing::run(|| crate::cloud_events::a_message_can_be_a_cloud_event::<NatsStation>("ce-"));
}

/// H46: a consumer whose limits lose messages is refused, and it is said what to change.
#[tokio::test]
async fn a_consumer_that_loses_messages_is_refused() {
    let station = NatsStation::open().await;
    let place = station.place("limited").await;
    let stream = station.context().await.get_stream(place.strip_prefix("suite.").unwrap()).await.unwrap();
    let consumer = |ack_policy, max_deliver| pull::Config {
        durable_name: Some("group".into()),
        ack_policy,
        max_deliver,
        ..pull::Config::default()
    };
    let table = [
        (consumer(AckPolicy::None, -1), "consumer `group` must acknowledge explicitly"),
        (consumer(AckPolicy::Explicit, 3), "gives a message up after 3 deliveries: set its max_deliver to -1"),
    ];
    for (config, words) in table {
        stream.create_consumer(config).await.unwrap();
        let refused = station.subscription(&place).next(1).await.unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
        stream.delete_consumer("group").await.unwrap();
    }
}
