//! A message taken apart into columns, and put together again. One place, so that all backends read a row alike.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::Value;
use uuid::Uuid;

use crate::id::MessageId;
use crate::message::{GLOBAL_AGGREGATE, Message};
use crate::store::Undecodable;
use crate::wire::REPLAY;

/// The columns of a row that make up its message.
#[derive(Debug, Default)]
pub struct Parts {
    /// Column `message_id`.
    pub message_id: Uuid,
    /// Column `topic`.
    pub topic: String,
    /// Column `message_type`.
    pub message_type: Option<String>,
    /// Column `aggregate_type`; none stands for the global aggregate.
    pub aggregate_type: Option<String>,
    /// Column `aggregate_id`.
    pub aggregate_id: Option<String>,
    /// Column `tenant_id`.
    pub tenant_id: Option<String>,
    /// Column `message_key`.
    pub message_key: Option<String>,
    /// Column `correlation_id`.
    pub correlation_id: Option<String>,
    /// Column `causation_id`.
    pub causation_id: Option<String>,
    /// Column `headers`: a JSON object.
    pub headers: Option<String>,
    /// Column `content_type`.
    pub content_type: Option<String>,
    /// Column `payload`.
    pub payload: Bytes,
    /// Column `occurred_at`.
    pub occurred_at: Option<SystemTime>,
    /// Column `due_at`.
    pub due_at: Option<SystemTime>,
    /// Column `expires_at`.
    pub expires_at: Option<SystemTime>,
    /// Column `priority`.
    pub priority: i16,
}

impl Parts {
    /// Puts the message together.
    pub fn into_message(self) -> Result<Message, Undecodable> {
        let id = MessageId::from_uuid(self.message_id)
            .map_err(|_| Undecodable { column: "message_id", complaint: "is the nil UUID".into() })?;
        let headers = self.headers.as_deref().map(read_headers).transpose()?.unwrap_or_default();
        Ok(Message::from_parts(id, headers, self))
    }
}

/// The headers as they are stored: a JSON object, nothing when there are none.
pub fn write_headers(headers: &BTreeMap<String, String>) -> Option<String> {
    if headers.is_empty() {
        return None;
    }
    let object = headers.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    Some(Value::Object(object).to_string())
}

/// Stored headers after a replay: [`REPLAY`] counts it. What holds no headers that can be read stays as it is.
pub fn count_replay(stored: Option<&str>) -> Option<String> {
    let Ok(mut headers) = stored.map(read_headers).transpose().map(Option::unwrap_or_default) else {
        return stored.map(str::to_owned);
    };
    let is_count = |text: &&String| (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let before: u32 = headers.get(REPLAY).filter(is_count).and_then(|text| text.parse().ok()).unwrap_or_default();
    headers.insert(REPLAY.to_owned(), (before + 1).to_string());
    write_headers(&headers)
}

/// The aggregate type as it is stored: nothing stands for the global one.
pub fn write_aggregate_type(message: &Message) -> Option<&str> {
    Some(message.get_aggregate_type()).filter(|name| *name != GLOBAL_AGGREGATE)
}

/// Reads headers, also those that another language wrote: numbers and truth values become text.
pub(crate) fn read_headers(json: &str) -> Result<BTreeMap<String, String>, Undecodable> {
    let refuse = |complaint: &str| Undecodable { column: "headers", complaint: complaint.into() };
    let value = serde_json::from_str(json).map_err(|_| refuse("is not JSON"))?;
    let Value::Object(object) = value else { return Err(refuse("is not a JSON object")) };
    let text = |value: Value| match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    object
        .into_iter()
        .map(|(name, value)| Some((name, text(value)?)))
        .collect::<Option<_>>()
        .ok_or_else(|| refuse("has a value that is not text, number or truth value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_headers(headers: &str) -> Result<Message, Undecodable> {
        let message_id = MessageId::new().as_uuid();
        Parts { message_id, topic: "t".into(), headers: Some(headers.into()), ..Parts::default() }.into_message()
    }

    #[test]
    fn headers_come_back_as_they_were_written() {
        let message = Message::new("t", "").header("a", "1 \"quoted\"").header("ü", "\u{1F4EE}");
        let stored = write_headers(message.get_headers()).unwrap();
        assert_eq!(with_headers(&stored).unwrap().get_headers(), message.get_headers());
        assert_eq!(write_headers(&BTreeMap::new()), None);
    }

    #[test]
    fn headers_of_other_languages_are_read_as_text() {
        let message = with_headers(r#"{"n": 1.5, "b": true}"#).unwrap();
        assert_eq!(message.get_headers()["n"], "1.5");
        assert_eq!(message.get_headers()["b"], "true");
    }

    /// Every backend counts so, in SQL.
    #[test]
    fn a_replay_is_counted_in_a_header() {
        let table = [
            (None, Some(r#"{"pillarbox-replay":"1"}"#)),
            (Some("{}"), Some(r#"{"pillarbox-replay":"1"}"#)),
            (Some(r#"{"a":"b"}"#), Some(r#"{"a":"b","pillarbox-replay":"1"}"#)),
            (Some(r#"{"pillarbox-replay":"9"}"#), Some(r#"{"pillarbox-replay":"10"}"#)),
            (Some(r#"{"pillarbox-replay":3}"#), Some(r#"{"pillarbox-replay":"4"}"#)),
            (Some(r#"{"pillarbox-replay":"often"}"#), Some(r#"{"pillarbox-replay":"1"}"#)),
            (Some(r#"{"pillarbox-replay":""}"#), Some(r#"{"pillarbox-replay":"1"}"#)),
            (Some("[1, 2]"), Some("[1, 2]")),
            (Some("canary"), Some("canary")),
        ];
        for (stored, expected) in table {
            assert_eq!(count_replay(stored).as_deref(), expected);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_without_its_content() {
        for headers in ["canary", "[\"canary\"]", "{\"canary\": {}}", "{\"canary\": null}", ""] {
            let refused = with_headers(headers).unwrap_err();
            assert_eq!(refused.column, "headers");
            assert!(!refused.to_string().contains("canary"));
        }
        let refused = Parts { topic: "t".into(), ..Parts::default() }.into_message().unwrap_err();
        assert_eq!(refused.column, "message_id");
    }
}
