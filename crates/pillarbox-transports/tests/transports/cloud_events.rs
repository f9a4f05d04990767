//! CloudEvents through brokers, as their bindings have them.

use std::sync::Arc;

use async_trait::async_trait;
use pillarbox_core::{Delivery, DeliveryResult, Message, Parcel, Transport, Undelivered, WireFormat};
use pillarbox_testing::station::Station;
use pillarbox_transports::cloud_events::Shaped;

/// The station's own transport.
#[derive(Debug)]
struct Own(Arc<dyn Transport>);

#[async_trait]
impl Transport for Own {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    async fn deliver(&self, parcels: &[Parcel<'_>]) -> Vec<DeliveryResult> {
        self.0.deliver(parcels).await
    }

    async fn probe(&self) -> Result<(), Undelivered> {
        self.0.probe().await
    }
}

/// BUS-02: what the broker has is an event to whoever knows nothing of us; `prefix` stands before the names of its attributes.
pub(crate) async fn a_message_can_be_a_cloud_event<S: Station>(prefix: &str) {
    let station = S::open().await;
    let message = Message::new("orders", r#"{"a":1}"#)
        .message_type("OrderCreated")
        .content_type("application/json")
        .header("x-note", "n");
    let place = station.place("binary").await;
    deliver(&station, &place, WireFormat::cloud_events_binary("urn:shop").unwrap(), &message).await;
    let [arrived] = station.arrived(&place, 1).await.try_into().expect("one came");
    assert_eq!((&arrived.body, arrived.content_type.as_deref()), (message.payload(), Some("application/json")));
    let id = message.id().to_string();
    for (name, value) in [("specversion", "1.0"), ("id", &id), ("source", "urn:shop"), ("type", "OrderCreated")] {
        assert_eq!(arrived.header(&format!("{prefix}{name}").to_lowercase()), Some(value), "{name}");
    }
    assert_eq!(arrived.header("pillarbox-id"), Some(&*id));

    let place = station.place("structured").await;
    deliver(&station, &place, WireFormat::cloud_events_structured("urn:shop").unwrap(), &message).await;
    let [arrived] = station.arrived(&place, 1).await.try_into().expect("one came");
    assert!(arrived.content_type.is_some_and(|text| text.starts_with("application/cloudevents+json")));
    let event: serde_json::Value = serde_json::from_slice(&arrived.body).unwrap();
    assert_eq!((&event["id"], &event["type"], &event["data"]["a"]), (&id.into(), &"OrderCreated".into(), &1.into()));
}

async fn deliver<S: Station>(station: &S, place: &str, format: WireFormat, message: &Message) {
    let transport = Shaped::through(Own(station.transport()), &format);
    assert_eq!(transport.deliver(&[Parcel::new(place, message)]).await, [Ok(Delivery::Taken)]);
}
