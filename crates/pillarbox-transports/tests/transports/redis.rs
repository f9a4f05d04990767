//! Redis Streams, with a server for each test.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use pillarbox_core::{Delivery, Intaken, Message, Parcel, Recall, Recalled, Subscription, Transport, Undelivered};
use pillarbox_testing::source::Source;
use pillarbox_testing::station::Station;
use pillarbox_transports::Redis;
use pillarbox_transports::redis::RedisOptions;
use stations::RedisStation;

mod encryption;

mod transport {
    pillarbox_testing::transport_suite!(super::RedisStation);
}

mod subscription {
    pillarbox_testing::subscription_suite!(super::RedisStation);
}

async fn deliver(redis: &Redis, places: &[&str]) -> Vec<Result<Delivery, Undelivered>> {
    let messages: Vec<_> = places.iter().map(|_| Message::new("t", "x")).collect();
    let parcels: Vec<_> = messages.iter().zip(places).map(|(message, place)| Parcel::new(*place, message)).collect();
    redis.deliver(&parcels).await
}

/// H42: with streams that somebody has to make, what goes elsewhere is refused; a key that is no stream always is.
#[tokio::test]
async fn what_is_no_stream_takes_nothing() {
    let station = RedisStation::open().await;
    station.ask::<()>("SET text 1").await.unwrap();
    station.ask::<String>("XADD there * a b").await.unwrap();
    let redis = station.redis(RedisOptions { makes_streams: false, ..RedisStation::options() });
    let results = deliver(&redis, &["there", "text", "nowhere", "", "there"]).await;
    assert_eq!((&results[0], &results[4]), (&Ok(Delivery::Taken), &Ok(Delivery::Taken)));
    assert!(matches!(&results[1], Err(Undelivered::Refused { reason }) if reason.contains("WRONGTYPE")), "{results:?}");
    assert!(matches!(&results[2], Err(Undelivered::Refused { reason }) if reason.contains("nowhere")), "{results:?}");
    assert!(matches!(results[3], Err(Undelivered::Rejected { .. })));
    assert_eq!(station.ask::<usize>("EXISTS nowhere").await.unwrap(), 0);
}

/// A stream keeps about as much as it is told.
#[tokio::test]
async fn a_stream_stays_short() {
    let station = RedisStation::open().await;
    let redis = station.redis(RedisOptions { stream_length_max: Some(100), ..RedisStation::options() });
    let results = deliver(&redis, &["short"; 2_000]).await;
    assert!(results.iter().all(|result| *result == Ok(Delivery::Taken)));
    let length: usize = station.ask("XLEN short").await.unwrap();
    assert!((100..1_000).contains(&length), "{length}");
}

/// H43, H46: a server that is full, read-only or does not let us in is away, in words; it costs no message an attempt.
#[tokio::test]
async fn a_server_that_takes_nothing_now_is_unavailable() {
    let station = RedisStation::open().await;
    let redis = station.redis(RedisStation::options());
    let unavailable = |results: &[Result<Delivery, Undelivered>], word: &str| {
        let is = |result: &_| matches!(result, Err(Undelivered::Unavailable { reason }) if reason.contains(word));
        assert!(results.iter().all(is), "{results:?}");
    };
    station.ask::<()>("CONFIG SET maxmemory 1").await.unwrap();
    unavailable(&deliver(&redis, &["a", "b"]).await, "OOM");
    station.ask::<()>("CONFIG SET maxmemory 0").await.unwrap();
    station.ask::<()>("REPLICAOF 127.0.0.1 1").await.unwrap();
    unavailable(&deliver(&redis, &["a", "b"]).await, "READONLY");
    station.ask::<()>("REPLICAOF NO ONE").await.unwrap();
    let two = station.redis(RedisOptions { replicas: 1, ..RedisStation::options() });
    unavailable(&deliver(&two, &["a"]).await, "replicas");
    assert_eq!(deliver(&redis, &["a", "b"]).await, [Ok(Delivery::Taken), Ok(Delivery::Taken)]);
    station.ask::<()>("ACL SETUSER some on >canary ~mine:* +@all").await.unwrap();
    let some = format!("redis://some:canary@127.0.0.1:{}", station.server.port());
    let some = Redis::with(&some, RedisStation::options()).unwrap();
    let results = deliver(&some, &["mine:1", "a", "mine:2"]).await;
    assert_eq!((&results[0], &results[2]), (&Ok(Delivery::Taken), &Ok(Delivery::Taken)), "{results:?}");
    unavailable(&results[1..2], "NOPERM");
    let wrong = format!("redis://some:canary2@127.0.0.1:{}", station.server.port());
    let results = deliver(&Redis::with(&wrong, RedisStation::options()).unwrap(), &["mine:1"]).await;
    assert!(matches!(results[0], Err(Undelivered::Unavailable { .. })), "{results:?}");
    assert!(!format!("{results:?}").contains("canary"), "{results:?}");
}

/// H47: nothing overtakes an earlier message of its key that was not taken.
#[tokio::test]
async fn a_message_that_is_not_taken_holds_back_its_key() {
    let station = RedisStation::open().await;
    station.ask::<()>("ACL SETUSER some on nopass ~mine:* +@all").await.unwrap();
    let redis =
        Redis::with(&format!("redis://some:x@127.0.0.1:{}", station.server.port()), RedisStation::options()).unwrap();
    let places = [("a", "mine:1"), ("a", "other"), ("a", "mine:1"), ("b", "mine:1")];
    let messages = places.map(|(key, _)| Message::new("t", "x").key(key));
    let parcels: Vec<_> = messages.iter().zip(places).map(|(message, (_, to))| Parcel::new(to, message)).collect();
    let results = redis.deliver(&parcels).await;
    assert!(results[1].is_err() && results[2].is_err(), "{results:?}");
    assert_eq!((&results[0], &results[3]), (&Ok(Delivery::Taken), &Ok(Delivery::Taken)), "{results:?}");
    assert_eq!(station.ask::<usize>("XLEN mine:1").await.unwrap(), 2);
}

/// BUS-02: what others have added is known by its place in the stream.
#[tokio::test]
async fn entries_of_strangers_have_names() {
    let station = RedisStation::open().await;
    station.ask::<String>("XADD orders 7-1 price 100").await.unwrap();
    let mut subscription = station.subscription("orders");
    let delivered = subscription.next(10).await.unwrap();
    let incoming = &delivered[0].incoming;
    assert_eq!(incoming.receipt().message_id(), "7-1");
    assert_eq!((incoming.message().topic(), incoming.message().get_headers()["price"].as_str()), ("orders", "100"));
    subscription.settle(delivered.into_iter().map(|one| (one.tag, Intaken::Stored)).collect()).await.unwrap();
    assert_eq!(station.left("orders").await, 0);
}

/// A group that is removed under a subscription is made again.
#[tokio::test]
async fn a_stream_that_was_removed_is_read_again() {
    let station = RedisStation::open().await;
    station.ask::<String>("XADD orders * n 1").await.unwrap();
    let mut subscription = station.subscription("orders");
    assert_eq!(subscription.next(10).await.unwrap().len(), 1);
    station.ask::<()>("DEL orders").await.unwrap();
    station.ask::<String>("XADD orders * n 2").await.unwrap();
    assert!(subscription.next(10).await.is_err());
    let again = subscription.next(10).await.unwrap();
    assert_eq!(again[0].incoming.message().get_headers()["n"], "2");
}

/// H44: what a stream has lost is not found; more entries than one page has are looked through.
#[tokio::test]
async fn what_a_stream_has_lost_is_not_found() {
    let station = RedisStation::open().await;
    let redis = station.redis(RedisStation::options());
    let messages: Vec<_> = (0..1_200).map(|number| Message::new("t", number.to_string())).collect();
    let parcels: Vec<_> = messages.iter().map(|message| Parcel::new("orders", message)).collect();
    assert!(redis.deliver(&parcels).await.iter().all(Result::is_ok));
    let wanted: HashSet<_> = messages.iter().map(Message::id).collect();
    let (hour, now) = (Duration::from_secs(3_600), SystemTime::now());
    let recall = Recall { destination: "orders", wanted: &wanted, from: now - hour, until: now + hour };
    assert_eq!(redis.recall(&recall).await, Ok(Recalled::Found { ids: wanted.clone(), since: None }));

    station.ask::<usize>("XTRIM orders MAXLEN = 1100").await.unwrap();
    let kept: HashSet<_> = messages[100..].iter().map(Message::id).collect();
    assert_eq!(redis.recall(&recall).await, Ok(Recalled::Found { ids: kept.clone(), since: None }));
    let trimming = station.redis(RedisOptions { stream_length_max: Some(1_100), ..RedisStation::options() });
    let Ok(Recalled::Found { ids, since }) = trimming.recall(&recall).await else { panic!("it is readable") };
    assert!(ids == kept && since.is_some_and(|since| since > now - hour), "{since:?}");

    station.ask::<usize>("DEL orders").await.unwrap();
    assert_eq!(redis.recall(&recall).await, Ok(Recalled::Found { ids: HashSet::new(), since: None }));
}

#[test]
fn a_message_can_be_a_cloud_event() {
    pillarbox_testing::run(|| crate::cloud_events::a_message_can_be_a_cloud_event::<RedisStation>("ce-"));
}
