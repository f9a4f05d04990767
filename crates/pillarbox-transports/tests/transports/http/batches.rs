//! Batches: what one answer means for the rest of them, and how long they take.

use std::time::Duration;

use pillarbox_core::{Delivery, Message, Parcel, Transport, Undelivered};
use pillarbox_transports::Http;
use pillarbox_transports::connect::{Settings, transport_from_url};

use super::receiver::Receiver;
use super::{SECRET, options};

/// Lets time pass for the client, without waiting.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

async fn deliver(transport: &dyn Transport, destination: &str, count: usize) -> Vec<pillarbox_core::DeliveryResult> {
    let messages: Vec<_> = (0..count).map(|_| Message::new("t", "body")).collect();
    let parcels: Vec<_> = messages.iter().map(|message| Parcel::new(destination, message)).collect();
    transport.deliver(&parcels).await
}

/// BUS-12: an endpoint that asks for time, or is gone, is asked once in a batch, not once for each message; others go on.
#[tokio::test]
async fn nobody_is_asked_again_in_a_batch_who_wants_nothing() {
    let receiver = Receiver::start(SECRET).await;
    let place = receiver.place("other");
    let http = Http::new(options().in_flight_max(1).base(receiver.url("/"))).unwrap();
    let message = Message::new("t", "body");
    let destinations = ["/status/429/17", "/status/503/17", "/status/410", &place];
    let parcels: Vec<_> = destinations.iter().cycle().take(100).map(|to| Parcel::new(*to, &message)).collect();
    let results = http.deliver(&parcels).await;
    for (at, result) in results.iter().enumerate() {
        assert_eq!(*result, results[at % 4], "{}", destinations[at % 4]);
    }
    assert!(
        matches!(results[0], Err(Undelivered::Later { .. })) && matches!(results[2], Err(Undelivered::Gone { .. }))
    );
    let asked = |path: &str| receiver.requests().iter().filter(|request| request.path == path).count();
    assert_eq!(destinations.map(asked), [1, 1, 1, 25]);
}

/// H43: a time limit is that of one request. A batch that takes longer than that has no endpoint that is away.
#[tokio::test]
async fn a_slow_endpoint_is_not_taken_for_one_that_is_away() {
    let receiver = Receiver::start(SECRET).await;
    let mut settings = Settings::new();
    settings.timeout = Some(Duration::from_secs(12));
    settings.networks = vec!["127.0.0.0/8".to_owned()];
    settings.secrets = vec![SECRET.to_owned().into()];
    let transport = transport_from_url(&receiver.url("/slow"), &settings).unwrap();
    let slowly = async {
        for round in 1..=2 {
            receiver.asked(round * 16).await;
            pass(Duration::from_secs(8)).await;
            receiver.go_on(16);
        }
    };
    let (results, ()) = tokio::join!(deliver(&*transport, "", 32), slowly);
    assert_eq!(results, vec![Ok(Delivery::Taken); 32]);
}

/// H43: when the time for a batch is over, what was begun is awaited, and what was not goes another time: nobody is away.
#[tokio::test]
async fn a_batch_awaits_what_it_has_begun() {
    let receiver = Receiver::start(SECRET).await;
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    let options = options().timeout(2 * minute).batch_timeout(minute).in_flight_max(1);
    let http = Http::new(options.base(receiver.url("/slow"))).unwrap();
    let slowly = async {
        receiver.asked(1).await;
        pass(minute + second).await;
        receiver.go_on(1);
    };
    let (results, ()) = tokio::join!(deliver(&http, "", 3), slowly);
    let reason = "the time for the batch was over before it was sent".to_owned();
    let later = Undelivered::Later { delay: Duration::ZERO, reason };
    assert_eq!(results, [Ok(Delivery::Taken), Err(later.clone()), Err(later)]);
    assert_eq!(receiver.requests().len(), 1);
}
