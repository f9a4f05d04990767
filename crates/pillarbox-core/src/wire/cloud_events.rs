//! CloudEvents 1.0: a message's fields as attributes, in headers or in one JSON text.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::{ID, Wire, displaced, rfc3339};
use crate::message::{GLOBAL_AGGREGATE, Message};

mod reading;
#[cfg(test)]
mod tests;

pub(super) use reading::opened;

/// The content type of a message in structured mode.
pub(super) const STRUCTURED: &str = "application/cloudevents+json";
const SPEC_VERSION: &str = "1.0";

type Attributes<'a> = Vec<(&'static str, Cow<'a, str>)>;

pub(super) fn binary<'a>(message: &'a Message, source: &'a str, prefix: &str) -> Wire<'a> {
    // A payload that is an event itself would be taken for this one, whatever the headers say.
    if message.get_content_type().is_some_and(|text| essence(text).starts_with("application/cloudevents")) {
        return structured(message, source);
    }
    let attributes = attributes(message, source);
    let mut headers: Vec<_> = attributes
        .into_iter()
        .map(|(name, value)| {
            (if prefix.is_empty() { Cow::Borrowed(name) } else { format!("{prefix}{name}").into() }, value)
        })
        .collect();
    headers.extend(beside(message, Some(prefix)));
    Wire { body: message.payload().clone(), content_type: message.get_content_type().map(Cow::Borrowed), headers }
}

pub(super) fn structured<'a>(message: &'a Message, source: &'a str) -> Wire<'a> {
    let mut attributes = attributes(message, source);
    attributes.extend(message.get_content_type().map(|text| ("datacontenttype", Cow::Borrowed(text))));
    let whole = Whole { attributes, data: Data::of(message) };
    let body = serde_json::to_vec(&whole).expect("texts and valid JSON can be written as JSON");
    Wire { body: body.into(), content_type: Some(Cow::Borrowed(STRUCTURED)), headers: beside(message, None).collect() }
}

fn attributes<'a>(message: &'a Message, source: &'a str) -> Attributes<'a> {
    let topic = message.topic();
    let message_type = message.get_message_type();
    let fields = [
        ("subject", message.get_aggregate_id()),
        ("partitionkey", message.get_key()),
        ("tenant", message.get_tenant()),
        ("correlationid", message.get_correlation_id()),
        ("causationid", message.get_causation_id()),
        ("aggregatetype", Some(message.get_aggregate_type()).filter(|name| *name != GLOBAL_AGGREGATE)),
        ("topic", Some(topic)),
        // Otherwise it could not be told from a message without a type.
        ("messagetype", message_type.filter(|name| *name == topic)),
        ("traceparent", header(message, "traceparent")),
        ("tracestate", header(message, "tracestate")),
    ];
    let mut attributes = vec![
        ("specversion", Cow::Borrowed(SPEC_VERSION)),
        ("id", Cow::Owned(message.id().to_string())),
        ("source", Cow::Borrowed(source)),
        ("type", Cow::Borrowed(message_type.unwrap_or(topic))),
    ];
    attributes.extend(message.get_occurred_at().and_then(rfc3339).map(|at| ("time", Cow::Owned(at))));
    attributes.extend(fields.into_iter().filter_map(|(name, value)| Some((name, Cow::Borrowed(value?)))));
    attributes
}

/// What travels beside the attributes: the id, by which duplicates are known in any shape, and the user's headers.
fn beside<'a>(message: &'a Message, prefix: Option<&str>) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
    let id = (Cow::Borrowed(ID), Cow::Owned(message.id().to_string()));
    // Without a prefix the trace context is both a header and an attribute, and is there already.
    let is_there = move |name: &str, value: &str| {
        prefix == Some("") && reading::is_trace(name) && header(message, name) == Some(value)
    };
    let own =
        Wire::own_headers(message).filter(move |(name, value)| !is_there(name, value)).map(move |(name, value)| {
            // Its name belongs to an attribute.
            if prefix.is_some_and(|prefix| reading::attribute_of(&name, prefix).is_some()) {
                return (Cow::Owned(displaced(&name)), value);
            }
            (name, value)
        });
    std::iter::once(id).chain(own)
}

fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    let mut headers = message.get_headers().iter();
    headers.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// A media type without its parameters, in lower case.
fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether a media type says JSON.
fn is_json(content_type: &str) -> bool {
    essence(content_type).rsplit_once('/').is_some_and(|(_, subtype)| subtype == "json" || subtype.ends_with("+json"))
}

/// Attributes and payload, as one JSON text.
struct Whole<'a> {
    attributes: Attributes<'a>,
    data: Data<'a>,
}

enum Data<'a> {
    None,
    /// Written as it came: no number is read and written again.
    Json(&'a RawValue),
    Bytes(&'a [u8]),
}

impl<'a> Data<'a> {
    fn of(message: &'a Message) -> Self {
        let payload = message.payload();
        if payload.is_empty() {
            return Self::None;
        }
        let json = message.get_content_type().filter(|text| is_json(text));
        match json.and_then(|_| serde_json::from_slice(payload).ok()) {
            Some(json) => Self::Json(json),
            None => Self::Bytes(payload),
        }
    }
}

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &self.attributes {
            map.serialize_entry(name, value)?;
        }
        match self.data {
            Data::None => {}
            Data::Json(json) => map.serialize_entry("data", json)?,
            Data::Bytes(bytes) => map.serialize_entry("data_base64", &STANDARD.encode(bytes))?,
        }
        map.end()
    }
}
