//! Webhooks to a real server in this process.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pillarbox_core::{Delivery, DeliveryResult, Message, Parcel, Transport, Undelivered, WireFormat, wire};
use pillarbox_testing::station::{Arrived, Station, Traits};
use pillarbox_transports::Http;
use pillarbox_transports::http::{Guard, HttpOptions};
use pillarbox_webhook::{Scheme, StandardWebhooks};

use receiver::{BODY_BYTES_MAX, Receiver};

mod batches;
mod receiver;
mod tls;

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const OTHER_SECRET: &str = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";

fn options() -> HttpOptions {
    HttpOptions::new()
        .guard(Guard::default().allow_private())
        .secret(SECRET)
        .timeout(Duration::from_secs(2))
        .connect_timeout(Duration::from_secs(1))
}

struct HttpStation {
    receiver: Receiver,
}

impl Station for HttpStation {
    const TRAITS: Traits = Traits {
        knows_ids: false,
        refuses_nowhere: true,
        refused_bytes: Some(BODY_BYTES_MAX + 1),
        is_durable: true,
        is_mortal: true,
    };

    async fn open() -> Self {
        Self { receiver: Receiver::start(SECRET).await }
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(Http::new(options().base(self.receiver.url("/"))).expect("the options are good"))
    }

    async fn place(&self, name: &str) -> String {
        self.receiver.url(&self.receiver.place(name))
    }

    fn nowhere(&self) -> String {
        self.receiver.url("/places/nowhere")
    }

    async fn arrived(&self, destination: &str, count: usize) -> Vec<Arrived> {
        let path = destination.strip_prefix(&self.receiver.url("")).expect("the destination is a place");
        self.receiver.arrived(path, count).await
    }

    async fn kill(&mut self) {
        self.receiver.kill().await;
    }

    async fn revive(&mut self) {
        self.receiver.revive().await;
    }
}

mod suite {
    pillarbox_testing::transport_suite!(super::HttpStation);
}

async fn deliver(http: &Http, destination: &str, message: &Message) -> DeliveryResult {
    http.deliver(&[Parcel::new(destination, message)]).await.remove(0)
}

/// BUS-12: both ends agree about signatures, also while a secret is being changed.
#[tokio::test]
async fn every_secret_in_rotation_signs() {
    let receiver = Receiver::start(SECRET).await;
    let place = receiver.place("signed");
    let http = Http::new(options().secret(OTHER_SECRET).base(receiver.url(&place))).unwrap();
    let message = Message::new("t", r#"{"a":1}"#).content_type("application/json");
    assert_eq!(deliver(&http, "", &message).await, Ok(Delivery::Taken));
    let [request] = receiver.requests().try_into().expect("one request came");
    for secret in [SECRET, OTHER_SECRET] {
        let scheme = StandardWebhooks::secret(secret).unwrap();
        assert_eq!(scheme.verify(&request.headers, &request.body, SystemTime::now()), Ok(()));
        assert!(scheme.verify(&request.headers, b"{}", SystemTime::now()).is_err());
    }
    assert_eq!(request.headers["webhook-id"], message.id().to_string());

    let stranger = Http::new(HttpOptions::new().guard(Guard::default().allow_private()).secret(OTHER_SECRET)).unwrap();
    let refused = deliver(&stranger, &receiver.url(&place), &message).await;
    assert_eq!(refused, Err(Undelivered::refused(format!("127.0.0.1:{} answered 401", receiver.port()))));
}

/// BUS-12: 410 ends a destination, Retry-After is heeded, and what was said is not repeated.
#[tokio::test]
async fn the_status_decides() {
    let receiver = Receiver::start(SECRET).await;
    let http = Http::new(options().base(receiver.url("/"))).unwrap();
    let reason = |status: u16| format!("127.0.0.1:{} answered {status}", receiver.port());
    let later =
        |status, seconds| Err(Undelivered::Later { delay: Duration::from_secs(seconds), reason: reason(status) });
    let table: [(&str, DeliveryResult); 9] = [
        ("status/200", Ok(Delivery::Taken)),
        ("status/204", Ok(Delivery::Taken)),
        ("status/410", Err(Undelivered::Gone { reason: reason(410) })),
        ("status/429/17", later(429, 17)),
        ("status/503/86400", later(503, 3600)),
        ("status/422", Err(Undelivered::rejected(reason(422)))),
        ("status/500", Err(Undelivered::refused(reason(500)))),
        ("status/302", Err(Undelivered::refused(reason(302)))),
        ("status/413", Err(Undelivered::TooLarge { bytes: 4, limit: None })),
    ];
    let message = Message::new("t", "body");
    for (destination, expected) in table {
        assert_eq!(deliver(&http, destination, &message).await, expected, "{destination}");
    }
}

/// H60: a redirect is not followed, wherever it leads.
#[tokio::test]
async fn a_redirect_is_not_followed() {
    let receiver = Receiver::start(SECRET).await;
    let place = receiver.place("target");
    let http = Http::new(options().base(receiver.url("/"))).unwrap();
    // The port is ours, so that not even a fault would call the metadata service of the machine that runs this.
    let metadata = format!("http://169.254.169.254:{}/", receiver.port());
    for target in [metadata, receiver.url(&place)] {
        for status in [301, 302, 303, 307, 308] {
            receiver.redirect_to(&target);
            let result = deliver(&http, &format!("status/{status}"), &Message::new("t", "")).await;
            assert!(matches!(result, Err(Undelivered::Refused { .. })), "{result:?}");
        }
    }
    let paths: Vec<_> = receiver.requests().into_iter().map(|request| request.path).collect();
    assert!(paths.len() == 10 && paths.iter().all(|path| path.starts_with("/status/3")), "{paths:?}");
}

/// H43: an endpoint that hangs, or that never stops talking, holds up its own messages only.
#[tokio::test]
async fn an_endpoint_that_hangs_or_floods_stops_no_other() {
    let receiver = Receiver::start(SECRET).await;
    let place = receiver.place("other");
    let http = Http::new(options().timeout(Duration::from_millis(300)).base(receiver.url("/"))).unwrap();
    let message = Message::new("t", "body");
    let parcels = ["hang", "flood", "drip", &place].map(|to| Parcel::new(to, &message));
    let results = http.deliver(&parcels).await;
    let reason = format!("127.0.0.1:{}: no answer within 300ms", receiver.port());
    assert_eq!(results[0], Err(Undelivered::unavailable(reason)));
    assert_eq!(results[1..], [Ok(Delivery::Taken), Ok(Delivery::Taken), Ok(Delivery::Taken)]);
}

/// H47: what comes after a message of its key that was not taken does not overtake it; everything else goes on.
#[tokio::test]
async fn nothing_overtakes_a_message_of_its_key() {
    let receiver = Receiver::start(SECRET).await;
    let place = receiver.place("keyed");
    let http = Http::new(options().base(receiver.url("/"))).unwrap();
    let [a, b, c, d] = [Some("k"), Some("k"), Some("other"), None].map(|key| {
        let message = Message::new("t", "body");
        key.into_iter().fold(message, Message::key)
    });
    let parcels =
        [Parcel::new("status/500", &a), Parcel::new(&*place, &b), Parcel::new(&*place, &c), Parcel::new(&*place, &d)];
    let results = http.deliver(&parcels).await;
    assert!(matches!(results[0], Err(Undelivered::Refused { .. })));
    assert_eq!(results[1], Err(Undelivered::refused("an earlier message of its key was not taken")));
    assert_eq!(results[2..], [Ok(Delivery::Taken), Ok(Delivery::Taken)]);
    assert_eq!(receiver.arrived(&place, 2).await.len(), 2);
}

/// BUS-02: CloudEvents, as the binding to HTTP has them.
#[tokio::test]
async fn a_webhook_can_be_a_cloud_event() {
    let receiver = Receiver::start(SECRET).await;
    let message = Message::new("orders", r#"{"a":1.10}"#)
        .message_type("OrderCreated")
        .key("größe 7 \"x\"")
        .content_type("application/json")
        .header("x-note", "n");
    let formats = [
        WireFormat::cloud_events_binary("urn:shop").unwrap(),
        WireFormat::cloud_events_structured("urn:shop").unwrap(),
    ];
    for (number, format) in formats.into_iter().enumerate() {
        let place = receiver.place(&format!("event-{number}"));
        let http = Http::new(options().base(receiver.url("/")).format(format)).unwrap();
        assert_eq!(deliver(&http, &place, &message).await, Ok(Delivery::Taken));
        let [arrived] = receiver.arrived(&place, 1).await.try_into().expect("one came");
        assert_eq!(arrived.header("pillarbox-id"), Some(message.id().to_string().as_str()));
        let read = wire::read("elsewhere", arrived.body, arrived.content_type.as_deref(), arrived.headers);
        assert_eq!(read.message, message.clone().header("ce-source", "urn:shop"));
    }
    let binary = &receiver.requests()[0].headers;
    assert_eq!(binary["ce-partitionkey"], "gr%C3%B6%C3%9Fe%207%20%22x%22");
    assert_eq!(
        (&binary["ce-type"], &binary["content-type"]),
        (&"OrderCreated".parse().unwrap(), &"application/json".parse().unwrap())
    );
    assert_eq!(receiver.requests()[1].headers["content-type"], "application/cloudevents+json");
}
