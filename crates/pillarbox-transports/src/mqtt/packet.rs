//! From a message to a PUBLISH packet, and from a PUBACK to an answer. Pure.

use bytes::Bytes;
use pillarbox_core::{Delivery, DeliveryResult, Parcel, Undelivered, wire};
use rumqttc::mqttbytes::QoS;
use rumqttc::mqttbytes::v5::{PubAckReason, Publish, PublishProperties};

/// Bytes of a text in MQTT, which counts them in two bytes.
const TEXT_BYTES_MAX: usize = 65_535;

/// Bytes of a packet, whatever the broker allows: its length is counted in four times seven bits.
pub(super) const PACKET_BYTES_MAX: usize = 268_435_455;

/// The packet for a parcel, unless the broker cannot take it.
pub(super) fn publish(parcel: &Parcel<'_>, packet_bytes_max: usize) -> Result<Publish, Undelivered> {
    check_topic(&parcel.destination)?;
    let message = parcel.message;
    let plain = wire::Wire::plain(message);
    // Brokers close the connection over control characters in a text, so what is not plain ASCII is encoded.
    let encoded = |text: &str| wire::line_safe(text).into_owned();
    let properties = PublishProperties {
        content_type: plain.content_type.as_deref().map(encoded),
        correlation_data: message.get_correlation_id().map(|id| Bytes::copy_from_slice(id.as_bytes())),
        user_properties: plain.headers.iter().map(|(name, value)| (encoded(name), encoded(value))).collect(),
        ..PublishProperties::default()
    };
    check_texts(&properties)?;
    let mut publish = Publish::new(&*parcel.destination, QoS::AtLeastOnce, plain.body, Some(properties));
    // The size counts the number of the packet, which is given later, only when it is not zero.
    publish.pkid = 1;
    let (bytes, limit) = (publish.size(), packet_bytes_max.min(PACKET_BYTES_MAX));
    if bytes > limit {
        return Err(Undelivered::TooLarge { bytes, limit: Some(limit) });
    }
    Ok(publish)
}

/// What a broker's answer means.
pub(super) fn answer(reason: PubAckReason, topic: &str, needs_subscriber: bool) -> DeliveryResult {
    match reason {
        PubAckReason::Success => Ok(Delivery::Taken),
        PubAckReason::NoMatchingSubscribers if !needs_subscriber => Ok(Delivery::Taken),
        PubAckReason::NoMatchingSubscribers => Err(Undelivered::refused(format_args!("nobody subscribes to {topic}"))),
        PubAckReason::NotAuthorized => {
            Err(Undelivered::rejected(format_args!("the broker does not let us publish to {topic}")))
        }
        PubAckReason::TopicNameInvalid => {
            Err(Undelivered::rejected(format_args!("the broker does not accept the topic {topic}")))
        }
        PubAckReason::PayloadFormatInvalid => Err(Undelivered::rejected("the broker does not accept the payload")),
        PubAckReason::QuotaExceeded => Err(Undelivered::unavailable("a quota of the broker is exceeded")),
        PubAckReason::UnspecifiedError
        | PubAckReason::ImplementationSpecificError
        | PubAckReason::PacketIdentifierInUse => {
            Err(Undelivered::refused(format_args!("the broker answers {reason:?} for {topic}")))
        }
    }
}

fn check_topic(topic: &str) -> Result<(), Undelivered> {
    let rejected = |what: &str| Err(Undelivered::rejected(format_args!("the topic {topic:?} {what}")));
    if topic.is_empty() {
        return Err(Undelivered::rejected("the topic is empty"));
    }
    if topic.len() > TEXT_BYTES_MAX {
        let bytes = topic.len();
        return Err(Undelivered::rejected(format_args!("the topic has {bytes} bytes, more than {TEXT_BYTES_MAX}")));
    }
    if topic.contains(['+', '#']) {
        return rejected("holds a wildcard");
    }
    if topic.contains(char::is_control) {
        return rejected("holds a control character");
    }
    Ok(())
}

fn check_texts(properties: &PublishProperties) -> Result<(), Undelivered> {
    let too_long = |what: &str, bytes: usize| {
        Err(Undelivered::rejected(format_args!("{what} has {bytes} bytes on the way, more than {TEXT_BYTES_MAX}")))
    };
    let content_type = properties.content_type.as_deref().map_or(0, str::len);
    if content_type > TEXT_BYTES_MAX {
        return too_long("the content type", content_type);
    }
    let correlation_data = properties.correlation_data.as_deref().map_or(0, <[u8]>::len);
    if correlation_data > TEXT_BYTES_MAX {
        return too_long("the correlation id", correlation_data);
    }
    for (name, value) in &properties.user_properties {
        if name.len() > TEXT_BYTES_MAX {
            return too_long("the name of a header", name.len());
        }
        if value.len() > TEXT_BYTES_MAX {
            return too_long(&format!("the header {name}"), value.len());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pillarbox_core::Message;

    use super::*;

    fn is_rejected(topic: &str, message: &Message) -> bool {
        matches!(publish(&Parcel::new(topic, message), usize::MAX), Err(Undelivered::Rejected { .. }))
    }

    /// H42: what can never be sent is found before anything is sent.
    #[test]
    fn a_topic_that_no_broker_takes_is_rejected() {
        let message = Message::new("t", "");
        for topic in ["", "a/+", "#", "a\0b", "a\nb", &"x".repeat(65_536)] {
            assert!(is_rejected(topic, &message), "{topic:?}");
        }
        for topic in ["/", "a", "$aws/things", "größe/ 1", &"x".repeat(65_535)] {
            assert!(!is_rejected(topic, &message), "{topic:?}");
        }
    }

    #[test]
    fn a_text_that_does_not_fit_is_rejected() {
        assert!(is_rejected("t", &Message::new("t", "").header("x", "ü".repeat(11_000))));
        assert!(is_rejected("t", &Message::new("t", "").header("x".repeat(65_536), "")));
        assert!(is_rejected("t", &Message::new("t", "").content_type("x".repeat(65_536))));
        assert!(!is_rejected("t", &Message::new("t", "").header("x", "x".repeat(65_535))));
    }

    /// H46: the size is the one that goes over the wire, to the byte.
    #[test]
    fn the_size_is_that_of_the_packet() {
        for length in [0, 1, 50, 16_000, 16_383, 20_000] {
            let message = Message::new("t", vec![0; length]).key("k").correlation_id("c");
            let parcel = Parcel::new("topic", &message);
            let packet = publish(&parcel, usize::MAX).unwrap();
            let mut written = bytes::BytesMut::new();
            packet.write(&mut written).unwrap();
            assert!(publish(&parcel, written.len()).is_ok());
            let limit = written.len() - 1;
            let too_large = Undelivered::TooLarge { bytes: written.len(), limit: Some(limit) };
            assert_eq!(publish(&parcel, limit).unwrap_err(), too_large);
        }
    }

    #[test]
    fn every_reason_has_its_answer() {
        let kind = |reason, needs_subscriber| match answer(reason, "t", needs_subscriber) {
            Ok(_) => "taken",
            Err(Undelivered::Unavailable { .. }) => "unavailable",
            Err(Undelivered::Refused { .. }) => "refused",
            Err(_) => "rejected",
        };
        assert_eq!(kind(PubAckReason::Success, true), "taken");
        assert_eq!(kind(PubAckReason::NoMatchingSubscribers, false), "taken");
        assert_eq!(kind(PubAckReason::NoMatchingSubscribers, true), "refused");
        assert_eq!(kind(PubAckReason::NotAuthorized, false), "rejected");
        assert_eq!(kind(PubAckReason::TopicNameInvalid, false), "rejected");
        assert_eq!(kind(PubAckReason::PayloadFormatInvalid, false), "rejected");
        assert_eq!(kind(PubAckReason::QuotaExceeded, false), "unavailable");
        assert_eq!(kind(PubAckReason::UnspecifiedError, false), "refused");
    }
}
