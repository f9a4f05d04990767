//! From a message to a record, and from an error of librdkafka to an answer. Pure.

use pillarbox_core::wire::{self, Wire};
use pillarbox_core::{Parcel, Undelivered};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::FutureRecord;

/// Characters of a topic.
pub(super) const TOPIC_CHARS_MAX: usize = 249;

/// What the name of a topic lacks, if anything.
pub(super) fn check_topic(topic: &str) -> Result<(), String> {
    if topic.is_empty() {
        return Err("the topic is empty".to_owned());
    }
    if topic.chars().count() > TOPIC_CHARS_MAX {
        return Err(format!("the topic has more than {TOPIC_CHARS_MAX} characters"));
    }
    if matches!(topic, "." | "..") || !topic.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
        return Err(format!("the topic {topic:?} is none: it may consist of ASCII letters, digits, `.`, `_` and `-`"));
    }
    Ok(())
}

/// The record for a parcel. Its key is the message's, so that messages of one key stand in one partition, in order.
pub(super) fn record<'a>(parcel: &'a Parcel<'_>) -> Result<FutureRecord<'a, str, [u8]>, Undelivered> {
    check_topic(&parcel.destination).map_err(Undelivered::rejected)?;
    let plain = Wire::plain(parcel.message);
    let content_type = plain.content_type.as_ref().map(|text| (wire::CONTENT_TYPE, text.as_ref()));
    let named = plain.headers.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).chain(content_type);
    let headers = named.fold(OwnedHeaders::new_with_capacity(plain.headers.len() + 1), |headers, (key, value)| {
        headers.insert(Header { key, value: Some(value) })
    });
    let record = FutureRecord::to(&parcel.destination).payload(&parcel.message.payload()[..]).headers(headers);
    Ok(parcel.message.get_key().into_iter().fold(record, FutureRecord::key))
}

/// What a record measures, roughly.
pub(super) fn bytes(parcel: &Parcel<'_>) -> usize {
    Wire::plain(parcel.message).bytes() + parcel.message.get_key().map_or(0, str::len)
}

/// Whether somebody found a record, or the batch it was in, too large.
pub(super) fn is_too_large(error: &KafkaError) -> bool {
    let code = error.rdkafka_error_code();
    matches!(code, Some(Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize))
}

/// What an error says of a message.
pub(super) fn undelivered(error: &KafkaError, topic: &str, cluster: &dyn std::fmt::Display) -> Undelivered {
    let Some(code) = error.rdkafka_error_code() else {
        return Undelivered::unavailable(format_args!("{cluster}: {error}"));
    };
    match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            Undelivered::refused(format_args!("{cluster}: there is no topic {topic}"))
        }
        Code::TopicAuthorizationFailed => {
            Undelivered::refused(format_args!("{cluster}: we may not write to the topic {topic}"))
        }
        Code::InvalidTopic | Code::PolicyViolation | Code::InvalidRecord | Code::InvalidTimestamp => {
            Undelivered::rejected(format_args!("{cluster}: {code}"))
        }
        Code::InvalidMessage | Code::Unknown | Code::UnsupportedForMessageFormat | Code::InvalidRequiredAcks => {
            Undelivered::refused(format_args!("{cluster}: {code}"))
        }
        code => Undelivered::unavailable(format_args!("{cluster}: {code}")),
    }
}

#[cfg(test)]
mod tests {
    use pillarbox_core::Message;
    use rdkafka::message::Headers;

    use super::*;

    /// H42: what can never be sent is found before anything is sent.
    #[test]
    fn a_topic_that_kafka_does_not_have_is_rejected() {
        for topic in ["", ".", "..", "a b", "größe", "a/b", "a\0", &"x".repeat(250)] {
            let message = Message::new("t", "");
            let parcel = Parcel::new(topic, &message);
            assert!(matches!(record(&parcel), Err(Undelivered::Rejected { .. })), "{topic:?}");
        }
        for topic in ["orders", "a.b_c-D9", &"x".repeat(249)] {
            assert_eq!(check_topic(topic), Ok(()));
        }
    }

    #[test]
    fn the_key_of_a_record_is_the_key_of_the_message() {
        let message = Message::new("t", "body").key("k").content_type("text/plain").header("x", "größe\n");
        let parcel = Parcel::new("orders", &message);
        let record = record(&parcel).unwrap();
        assert_eq!((record.key, record.payload), (Some("k"), Some(&b"body"[..])));
        let headers = record.headers.unwrap();
        let find = |name: &str| headers.iter().find(|header| header.key == name).and_then(|header| header.value);
        assert_eq!(find("content-type"), Some(&b"text/plain"[..]));
        assert_eq!(find("x"), Some("größe\n".as_bytes()));
        let unkeyed = Message::new("t", "");
        assert_eq!(super::record(&Parcel::new("orders", &unkeyed)).unwrap().key, None);
    }

    #[test]
    fn every_error_has_its_answer() {
        let kind = |code: Code| match undelivered(&KafkaError::MessageProduction(code), "t", &"h:1") {
            Undelivered::Unavailable { .. } => "unavailable",
            Undelivered::Refused { .. } => "refused",
            Undelivered::Rejected { .. } => "rejected",
            _ => "other",
        };
        let table = [
            (Code::UnknownTopicOrPartition, "refused"),
            (Code::UnknownTopic, "refused"),
            (Code::TopicAuthorizationFailed, "refused"),
            (Code::PolicyViolation, "rejected"),
            (Code::InvalidTopic, "rejected"),
            (Code::MessageTimedOut, "unavailable"),
            (Code::QueueFull, "unavailable"),
            (Code::NotEnoughReplicas, "unavailable"),
            (Code::ClusterAuthorizationFailed, "unavailable"),
            (Code::SaslAuthenticationFailed, "unavailable"),
            (Code::Authentication, "unavailable"),
            (Code::AllBrokersDown, "unavailable"),
            (Code::PurgeInflight, "unavailable"),
            (Code::Fatal, "unavailable"),
        ];
        for (code, expected) in table {
            assert_eq!(kind(code), expected, "{code:?}");
        }
        assert!(is_too_large(&KafkaError::MessageProduction(Code::MessageSizeTooLarge)));
    }
}
