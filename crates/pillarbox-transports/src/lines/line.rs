//! A message as one line.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pillarbox_core::message::GLOBAL_AGGREGATE;
use pillarbox_core::{Message, WireFormat, wire};
use serde::Serialize;

#[derive(Serialize)]
struct Line<'a> {
    id: String,
    topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    message_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregate_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregate_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    causation_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    occurred_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    headers: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// Adds a message and the end of its line.
pub(super) fn append(message: &Message, format: &WireFormat, lines: &mut Vec<u8>) {
    match format {
        WireFormat::Plain => {
            let line = plain(message);
            serde_json::to_writer(&mut *lines, &line).expect("texts can be written as JSON");
        }
        _ => {
            // In JSON such a byte can only stand between tokens, where a space means the same.
            let body = format.encode(message, "").body;
            lines.extend(body.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
        }
    }
    lines.push(b'\n');
}

fn plain(message: &Message) -> Line<'_> {
    let payload = std::str::from_utf8(message.payload()).ok();
    Line {
        id: message.id().to_string(),
        topic: message.topic(),
        key: message.get_key(),
        message_type: message.get_message_type(),
        aggregate_type: Some(message.get_aggregate_type()).filter(|name| *name != GLOBAL_AGGREGATE),
        aggregate_id: message.get_aggregate_id(),
        tenant: message.get_tenant(),
        correlation_id: message.get_correlation_id(),
        causation_id: message.get_causation_id(),
        occurred_at: message.get_occurred_at().and_then(wire::rfc3339),
        content_type: message.get_content_type(),
        headers: message.get_headers(),
        payload,
        payload_base64: if payload.is_none() { Some(STANDARD.encode(message.payload())) } else { None },
    }
}
