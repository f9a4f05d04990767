//! CloudEvents through transports that know nothing of them: the message is put into shape before it is handed over.

use std::sync::Arc;

use async_trait::async_trait;
use pillarbox_core::diagnosis::Finding;
use pillarbox_core::message::GLOBAL_AGGREGATE;
use pillarbox_core::wire::{SHAPED, Wire};
use pillarbox_core::{Checkup, DeliveryResult, Message, Parcel, Recall, Recalled, Transport, Undelivered, WireFormat};

/// A transport whose messages travel in a shape of their own. Of the plain one only the id stays beside it.
#[derive(Debug)]
pub struct Shaped<T> {
    transport: T,
    format: WireFormat,
}

impl<T: Transport> Shaped<T> {
    /// The transport as it is for the plain shape, and inside of another one for any other.
    pub fn through(transport: T, format: &WireFormat) -> Arc<dyn Transport> {
        match format {
            WireFormat::Plain => Arc::new(transport),
            _ => Arc::new(Self { transport, format: format.clone() }),
        }
    }

    /// What the binding of the broker puts before the names of attributes.
    fn prefix(&self) -> &'static str {
        match self.transport.kind() {
            "kafka" => "ce_",
            "amqp" => "cloudEvents:",
            "mqtt" => "",
            _ => "ce-",
        }
    }
}

#[async_trait]
impl<T: Transport> Transport for Shaped<T> {
    fn kind(&self) -> &'static str {
        self.transport.kind()
    }

    async fn deliver(&self, parcels: &[Parcel<'_>]) -> Vec<DeliveryResult> {
        let shaped: Vec<_> = parcels
            .iter()
            .map(|parcel| shaped(parcel.message, self.format.encode(parcel.message, self.prefix())))
            .collect();
        let parcels: Vec<_> =
            parcels.iter().zip(&shaped).map(|(parcel, message)| Parcel::new(&*parcel.destination, message)).collect();
        self.transport.deliver(&parcels).await
    }

    async fn probe(&self) -> Result<(), Undelivered> {
        self.transport.probe().await
    }

    async fn diagnose(&self, checkup: &Checkup) -> Vec<Finding> {
        self.transport.diagnose(checkup).await
    }

    async fn recall(&self, recall: &Recall<'_>) -> Result<Recalled, Undelivered> {
        self.transport.recall(recall).await
    }

    async fn close(&self) {
        self.transport.close().await;
    }
}

/// The message with another body and more headers; everything that a broker may ask for is as it was.
fn shaped(message: &Message, wire: Wire<'_>) -> Message {
    let headers = wire.headers.into_iter().map(|(name, value)| (name.into_owned(), value.into_owned()));
    let mut shaped = Message::new(message.topic(), wire.body).with_id(message.id()).headers(headers).header(SHAPED, "");
    type Set = fn(Message, &str) -> Message;
    let texts: [(Option<&str>, Set); 7] = [
        (message.get_key(), |shaped, text| shaped.key(text)),
        (message.get_message_type(), |shaped, text| shaped.message_type(text)),
        (message.get_aggregate_id(), |shaped, text| shaped.aggregate_id(text)),
        (message.get_tenant(), |shaped, text| shaped.tenant(text)),
        (message.get_correlation_id(), |shaped, text| shaped.correlation_id(text)),
        (message.get_causation_id(), |shaped, text| shaped.causation_id(text)),
        (wire.content_type.as_deref(), |shaped, text| shaped.content_type(text)),
    ];
    for (text, set) in texts {
        shaped = text.into_iter().fold(shaped, set);
    }
    if message.get_aggregate_type() != GLOBAL_AGGREGATE {
        shaped = shaped.aggregate_type(message.get_aggregate_type());
    }
    message.get_occurred_at().into_iter().fold(shaped, Message::occurred_at)
}

#[cfg(test)]
mod tests {
    use pillarbox_core::wire;

    use super::*;

    fn arrived(message: &Message) -> Message {
        let wire = Wire::plain(message);
        let headers = wire.headers.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        wire::read("elsewhere", wire.body.clone(), wire.content_type.as_deref(), headers).message
    }

    #[test]
    fn a_shaped_message_is_a_cloud_event_and_reads_back() {
        let message = Message::new("order.created", r#"{"id":1}"#)
            .content_type("application/json")
            .key("k")
            .tenant("acme")
            .correlation_id("c")
            .header("traceparent", "00-1");
        let shapes = ["binary", "structured"].map(|mode| match mode {
            "binary" => WireFormat::cloud_events_binary("urn:shop").unwrap(),
            _ => WireFormat::cloud_events_structured("urn:shop").unwrap(),
        });
        for shape in shapes {
            let sent = shaped(&message, shape.encode(&message, "ce-"));
            assert_eq!((sent.id(), sent.get_key()), (message.id(), Some("k")), "for the broker's own fields");
            let names: Vec<_> = Wire::plain(&sent).headers.into_iter().map(|(name, _)| name.into_owned()).collect();
            let ours: Vec<_> = names.iter().filter(|name| name.starts_with("pillarbox-")).collect();
            assert_eq!(ours, [wire::ID], "{names:?}");
            let back = arrived(&sent);
            assert_eq!((back.id(), back.topic(), back.payload()), (message.id(), message.topic(), message.payload()));
            assert_eq!((back.get_tenant(), back.get_correlation_id()), (Some("acme"), Some("c")));
            assert_eq!(back.get_content_type(), Some("application/json"));
        }
    }
}
