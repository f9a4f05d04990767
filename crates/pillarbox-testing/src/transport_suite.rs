//! The behaviours of a transport: what it promises, whatever broker stands behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pillarbox_core::wire;
use pillarbox_core::{Delivery, Message, Parcel, Transport, Undelivered};

use crate::station::{Arrived, Station, all_arrived};

/// Deliveries that a behaviour repeats before it gives up on a broker that was started again.
const TRIES_MAX: usize = 2_000;

/// BUS-02: whatever carries it, a message arrives whole, with its id, fields, headers and content type.
pub async fn a_message_arrives_whole<S: Station>() {
    let station = S::open().await;
    let destination = station.place("whole").await;
    let message = Message::new("order.created", r#"{"id":7,"note":"größe"}"#)
        .key("customer-7")
        .message_type("OrderCreated")
        .tenant("acme")
        .correlation_id("request-1")
        .causation_id("command-1")
        .content_type("application/json")
        .occurred_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .header("x-note", "größe: 100 %\n2nd line");
    deliver_all(&*station.transport(), &destination, std::slice::from_ref(&message)).await;

    let arrived = station.arrived(&destination, 1).await;
    let headers = arrived[0].headers.clone().into_iter();
    let read = wire::read("nowhere", arrived[0].body.clone(), arrived[0].content_type.as_deref(), headers);
    assert!(read.is_named);
    assert_eq!(read.message, message);
}

/// H48: a payload is bytes.
pub async fn any_bytes_arrive<S: Station>() {
    let station = S::open().await;
    let destination = station.place("bytes").await;
    let bodies = [Vec::new(), vec![0], (0..=255).collect(), vec![0xff, 0xfe, 0xc0], vec![b'x'; 200_000]];
    let messages: Vec<_> = bodies.iter().map(|body| Message::new("t", body.clone())).collect();
    deliver_all(&*station.transport(), &destination, &messages).await;
    let arrived = by_id(station.arrived(&destination, messages.len()).await);
    for message in &messages {
        assert_eq!(&arrived[&message.id().to_string()].body, message.payload());
    }
}

/// HOUSE: a batch has one answer per message, in its order; messages of a key arrive in order.
pub async fn a_batch_arrives_in_order<S: Station>() {
    let station = S::open().await;
    let destination = station.place("order").await;
    let messages: Vec<_> = (0..500).map(|number| Message::new("t", number.to_string()).key("one")).collect();
    deliver_all(&*station.transport(), &destination, &messages).await;
    let arrived = station.arrived(&destination, messages.len()).await;
    let bodies: Vec<_> = arrived.iter().map(|arrived| arrived.body.clone()).collect();
    let sent: Vec<_> = messages.iter().map(|message| message.payload().clone()).collect();
    assert_eq!(bodies, sent);
}

/// One batch can go to many destinations.
pub async fn each_message_goes_to_its_destination<S: Station>() {
    let station = S::open().await;
    let (left, right) = (station.place("left").await, station.place("right").await);
    let messages: Vec<_> = (0..20).map(|number| Message::new("t", number.to_string())).collect();
    let to = |index: usize| if index.is_multiple_of(2) { left.as_str() } else { right.as_str() };
    let parcels: Vec<_> = messages.iter().enumerate().map(|(i, message)| Parcel::new(to(i), message)).collect();
    let results = station.transport().deliver(&parcels).await;
    assert_eq!(results, vec![Ok(Delivery::Taken); 20]);
    for (place, remainder) in [(&left, 0), (&right, 1)] {
        let expected: BTreeSet<_> = (0..20).filter(|n| n % 2 == remainder).map(|n| n.to_string()).collect();
        let arrived = station.arrived(place, 10).await;
        let bodies = arrived.iter().map(|arrived| String::from_utf8_lossy(&arrived.body).into_owned()).collect();
        assert_eq!(expected, bodies);
    }
}

/// An empty batch has no answers, and a transport may be asked from many tasks at once.
pub async fn many_deliver_at_once<S: Station>() {
    let station = S::open().await;
    let destination = station.place("crowd").await;
    let transport = station.transport();
    assert_eq!(transport.deliver(&[]).await, []);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (transport, destination) = (Arc::clone(&transport), destination.clone());
            tokio::spawn(async move {
                let messages: Vec<_> = (0..50).map(|number| Message::new("t", number.to_string())).collect();
                deliver_all(&*transport, &destination, &messages).await;
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no delivery panics");
    }
    assert_eq!(by_id(station.arrived(&destination, 400).await).len(), 400);
}

/// H41: a message that the broker has under its id is delivered.
pub async fn a_message_sent_twice_is_known_or_taken<S: Station>() {
    let station = S::open().await;
    let destination = station.place("twice").await;
    let transport = station.transport();
    let message = Message::new("t", "once");
    deliver_all(&*transport, &destination, std::slice::from_ref(&message)).await;
    let again = transport.deliver(&[Parcel::new(destination.as_str(), &message)]).await;
    let expected = if S::TRAITS.knows_ids { Delivery::Known } else { Delivery::Taken };
    assert_eq!(again, [Ok(expected)]);
    let copies = if S::TRAITS.knows_ids { 1 } else { 2 };
    let arrived = station.arrived(&destination, copies).await;
    assert_eq!(arrived.len(), copies);
    assert_eq!(by_id(arrived).len(), 1, "every copy has the same id");
}

/// H42: what nobody takes is not delivered, and harms nothing else.
pub async fn what_nobody_takes_is_refused<S: Station>() {
    let station = S::open().await;
    let destination = station.place("somewhere").await;
    let nowhere = station.nowhere();
    let messages = ["a", "b", "c"].map(|body| Message::new("t", body));
    let places = [&destination, &nowhere, &destination];
    let parcels: Vec<_> =
        messages.iter().zip(places).map(|(message, place)| Parcel::new(place.as_str(), message)).collect();
    let results = station.transport().deliver(&parcels).await;
    assert_eq!((&results[0], &results[2]), (&Ok(Delivery::Taken), &Ok(Delivery::Taken)));
    if S::TRAITS.refuses_nowhere {
        assert!(matches!(results[1], Err(Undelivered::Refused { .. })), "{results:?}");
    }
    assert_eq!(by_id(station.arrived(&destination, 2).await).len(), 2);
}

/// H46, H47, H49: of a batch only the message that is too large stays behind, and is told as such.
pub async fn only_what_is_too_large_stays_behind<S: Station>() {
    let Some(bytes) = S::TRAITS.refused_bytes else { return };
    let station = S::open().await;
    let destination = station.place("large").await;
    let transport = station.transport();
    let messages = [vec![b'a'], vec![b'b'; bytes], vec![b'c']].map(|body| Message::new("t", body));
    let results = transport.deliver(&parcels(&destination, &messages)).await;
    assert_eq!((&results[0], &results[2]), (&Ok(Delivery::Taken), &Ok(Delivery::Taken)), "{results:?}");
    assert!(matches!(results[1], Err(Undelivered::TooLarge { .. })), "{results:?}");
    assert_eq!(by_id(station.arrived(&destination, 2).await).len(), 2);
    // The connection is as good as before.
    deliver_all(&*transport, &destination, &[Message::new("t", "d")]).await;
}

/// H43: a broker that is not there is told as such for every message, and nothing panics or hangs.
pub async fn a_broker_that_is_away_is_unavailable<S: Station>() {
    if !S::TRAITS.is_mortal {
        return;
    }
    let mut station = S::open().await;
    let destination = station.place("away").await;
    let (used, unused) = (station.transport(), station.transport());
    deliver_all(&*used, &destination, &[Message::new("t", "before")]).await;
    assert_eq!(used.probe().await, Ok(()));
    station.kill().await;
    let messages: Vec<_> = (0..3).map(|number| Message::new("t", number.to_string())).collect();
    for transport in [&used, &unused] {
        let results = transport.deliver(&parcels(&destination, &messages)).await;
        assert_eq!(results.len(), 3);
        assert!(results.iter().all(|result| matches!(result, Err(Undelivered::Unavailable { .. }))), "{results:?}");
        assert!(matches!(transport.probe().await, Err(Undelivered::Unavailable { .. })));
    }
    station.revive().await;
    for transport in [&used, &unused] {
        deliver_until_taken(&**transport, &destination, &messages).await;
    }
    all_arrived(&station, &destination, &messages).await;
}

/// H40, H41, H43: a broker that dies in the middle loses nothing that was acknowledged; copies have the same id.
pub async fn nothing_is_lost_when_the_broker_dies_in_the_middle<S: Station>() {
    if !S::TRAITS.is_mortal {
        return;
    }
    let mut station = S::open().await;
    let destination = station.place("killed").await;
    let transport = station.transport();
    let (told, mut heard) = tokio::sync::mpsc::channel(1);
    let (is_back, back) = tokio::sync::watch::channel(false);
    let sending = {
        let (transport, destination) = (Arc::clone(&transport), destination.clone());
        tokio::spawn(async move {
            let mut sent = Vec::new();
            loop {
                let is_last = *back.borrow();
                let batch: Vec<_> = (0..10).map(|number| Message::new("t", number.to_string())).collect();
                deliver_until_taken(&*transport, &destination, &batch).await;
                sent.extend(batch);
                if is_last {
                    return sent;
                }
                let _ = told.try_send(());
            }
        })
    };
    for _ in 0..3 {
        heard.recv().await.expect("batches are delivered");
    }
    station.kill().await;
    station.revive().await;
    is_back.send_replace(true);
    let messages = sending.await.expect("no delivery panics");
    let arrived = match S::TRAITS.is_durable {
        true => all_arrived(&station, &destination, &messages).await,
        false => station.arrived(&destination, 0).await,
    };
    let bodies: BTreeMap<_, _> =
        messages.iter().map(|message| (message.id().to_string(), message.payload().clone())).collect();
    for copy in arrived {
        assert_eq!(Some(&copy.body), copy.header(wire::ID).and_then(|id| bodies.get(id)), "every copy has its id");
    }
}

/// After an orderly end a transport connects again when it is used.
pub async fn a_closed_transport_opens_again<S: Station>() {
    let station = S::open().await;
    let destination = station.place("closed").await;
    let transport = station.transport();
    deliver_all(&*transport, &destination, &[Message::new("t", "a")]).await;
    transport.close().await;
    deliver_until_taken(&*transport, &destination, &[Message::new("t", "b")]).await;
    assert_eq!(by_id(station.arrived(&destination, 2).await).len(), 2);
}

fn parcels<'a>(destination: &'a str, messages: &'a [Message]) -> Vec<Parcel<'a>> {
    messages.iter().map(|message| Parcel::new(destination, message)).collect()
}

async fn deliver_all(transport: &dyn Transport, destination: &str, messages: &[Message]) {
    let results = transport.deliver(&parcels(destination, messages)).await;
    assert_eq!(results, vec![Ok(Delivery::Taken); messages.len()]);
}

/// As a relay would: what was not delivered is sent again, under the same id.
pub(crate) async fn deliver_until_taken(transport: &dyn Transport, destination: &str, messages: &[Message]) {
    let mut left: Vec<_> = messages.iter().collect();
    let mut again = tokio::time::interval(Duration::from_millis(20));
    again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for _ in 0..TRIES_MAX {
        let parcels: Vec<_> = left.iter().map(|message| Parcel::new(destination, message)).collect();
        let results = transport.deliver(&parcels).await;
        assert_eq!(results.len(), left.len());
        let mut results = results.into_iter();
        left.retain(|_| !matches!(results.next(), Some(Ok(_))));
        if left.is_empty() {
            return;
        }
        again.tick().await;
    }
    panic!("{} messages were never taken", left.len());
}

fn by_id(arrived: Vec<Arrived>) -> BTreeMap<String, Arrived> {
    let id = |arrived: &Arrived| arrived.header(wire::ID).expect("every message carries its id").to_owned();
    arrived.into_iter().map(|arrived| (id(&arrived), arrived)).collect()
}

/// Makes one `#[test]` of every behaviour of the transport suite, for one [`Station`].
#[macro_export]
macro_rules! transport_suite {
    ($station:ty) => {
        $crate::transport_suite! { @tests $station;
            a_message_arrives_whole,
            any_bytes_arrive,
            a_batch_arrives_in_order,
            each_message_goes_to_its_destination,
            many_deliver_at_once,
            a_message_sent_twice_is_known_or_taken,
            what_nobody_takes_is_refused,
            only_what_is_too_large_stays_behind,
            a_broker_that_is_away_is_unavailable,
            nothing_is_lost_when_the_broker_dies_in_the_middle,
            a_closed_transport_opens_again,
        }
    };
    (@tests $station:ty; $($behaviour:ident,)*) => {
        $(
            #[test]
            fn $behaviour() {
                $crate::run(|| $crate::transport_suite::$behaviour::<$station>());
            }
        )*
    };
}
