//! CloudEvents of ours and of strangers, turned into headers of the plain shape.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{SPEC_VERSION, STRUCTURED, essence, is_json};
use crate::id::MessageId;
use crate::message::Limits;
use crate::wire::{
    AGGREGATE_ID, AGGREGATE_TYPE, CAUSATION_ID, CONTENT_TYPE, CORRELATION_ID, ID, KEY, OCCURRED_AT, TENANT, TOPIC, TYPE,
};

/// What the bindings put before the names of attributes; the longer ones first, for one of them is empty.
const PREFIXES: [&str; 5] = ["cloudEvents:", "cloudEvents_", "ce-", "ce_", ""];

/// The attributes that mean something to us, and the fields that are texts.
const ATTRIBUTES: [(&str, Option<&str>); 16] = [
    ("specversion", None),
    ("id", None),
    ("source", None),
    ("type", None),
    ("time", None),
    ("datacontenttype", None),
    ("messagetype", None),
    ("traceparent", None),
    ("tracestate", None),
    ("subject", Some(AGGREGATE_ID)),
    ("aggregatetype", Some(AGGREGATE_TYPE)),
    ("topic", Some(TOPIC)),
    ("partitionkey", Some(KEY)),
    ("tenant", Some(TENANT)),
    ("correlationid", Some(CORRELATION_ID)),
    ("causationid", Some(CAUSATION_ID)),
];

type Headers = Vec<(String, String)>;

/// What came, in the plain shape.
pub(in crate::wire) struct Opened {
    pub(in crate::wire) body: Bytes,
    pub(in crate::wire) content_type: Option<String>,
    pub(in crate::wire) headers: Headers,
}

/// Opens a CloudEvent. Anything else, and what only looks like one, stays as it came.
pub(in crate::wire) fn opened(body: Bytes, content_type: Option<String>, headers: Headers) -> Opened {
    // Only the plain shape has a topic of ours; what looks like an event is then what the user sends.
    if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(TOPIC)) {
        return Opened { body, content_type, headers };
    }
    let is_content_type = |name: &str| name.eq_ignore_ascii_case(CONTENT_TYPE);
    let sent_type = headers.iter().find(|(name, _)| is_content_type(name)).map(|(_, value)| value.as_str());
    let is_structured = content_type.as_deref().or(sent_type).is_some_and(|text| essence(text) == STRUCTURED);
    if is_structured && let Some(event) = read_structured(&body) {
        let Event { attributes, data, content_type } = event;
        let own = headers.into_iter().filter(|(name, _)| !is_content_type(name)).collect();
        return Opened { body: data, content_type, headers: plain_headers(attributes, own) };
    }
    match PREFIXES.into_iter().find(|prefix| is_event(&headers, prefix)) {
        Some(prefix) => opened_binary(body, content_type, headers, prefix),
        None => Opened { body, content_type, headers },
    }
}

/// The attribute that a header's name stands for.
pub(super) fn attribute_of(name: &str, prefix: &str) -> Option<&'static str> {
    let (start, rest) = name.split_at_checked(prefix.len())?;
    let attribute = ATTRIBUTES.into_iter().find(|(attribute, _)| rest.eq_ignore_ascii_case(attribute));
    attribute.filter(|_| start.eq_ignore_ascii_case(prefix)).map(|(attribute, _)| attribute)
}

/// Whether a header or an attribute is a part of the trace context.
pub(super) fn is_trace(name: &str) -> bool {
    ["traceparent", "tracestate"].iter().any(|trace| name.eq_ignore_ascii_case(trace))
}

/// Whether the headers have all that an event must have.
fn is_event(headers: &Headers, prefix: &str) -> bool {
    let has = |wanted: &str, fits: fn(&str) -> bool| {
        headers.iter().any(|(name, value)| attribute_of(name, prefix) == Some(wanted) && fits(value))
    };
    let is_filled = |value: &str| !value.is_empty();
    has("specversion", |value| value == SPEC_VERSION)
        && ["id", "source", "type"].iter().all(|name| has(name, is_filled))
}

fn opened_binary(body: Bytes, mut content_type: Option<String>, headers: Headers, prefix: &str) -> Opened {
    let mut attributes = BTreeMap::new();
    let mut own = Vec::new();
    for (name, value) in headers {
        match attribute_of(&name, prefix) {
            Some("datacontenttype") => content_type = content_type.or(Some(value)),
            Some(attribute) => drop(attributes.insert(attribute.to_owned(), value)),
            None => own.push((name, value)),
        }
    }
    Opened { body, content_type, headers: plain_headers(attributes, own) }
}

/// Attributes as the headers of the plain shape, before those that came beside them and count for more.
fn plain_headers(mut attributes: BTreeMap<String, String>, own: Headers) -> Headers {
    attributes.remove("specversion");
    let mut headers = Vec::new();
    if let Some(event_type) = attributes.remove("type") {
        let is_topic = attributes.get("topic") == Some(&event_type) && !attributes.contains_key("messagetype");
        if !is_topic {
            headers.push(if fits(&event_type) { (TYPE.to_owned(), event_type) } else { kept("type", event_type) });
        }
    }
    attributes.remove("messagetype");
    for (name, value) in attributes {
        if !is_trace(&name) {
            headers.push(plain_header(&name, value));
        } else if !own.iter().any(|(own, _)| own.eq_ignore_ascii_case(&name)) {
            headers.push((name, value));
        }
    }
    headers.extend(own);
    headers
}

/// The field of an attribute; what is none of ours or does not fit stays under the name that HTTP has for it.
fn plain_header(name: &str, value: String) -> (String, String) {
    let field = match name {
        "id" => value.parse().ok().and_then(|uuid| MessageId::from_uuid(uuid).ok()).map(|_| ID),
        "time" => OffsetDateTime::parse(&value, &Rfc3339).ok().map(|_| OCCURRED_AT),
        _ => ATTRIBUTES
            .into_iter()
            .find(|(known, _)| *known == name)
            .and_then(|(_, field)| field)
            .filter(|_| fits(&value)),
    };
    match field {
        Some(field) => (field.to_owned(), value),
        None => kept(name, value),
    }
}

fn kept(name: &str, value: String) -> (String, String) {
    (format!("ce-{name}"), value)
}

/// Whether the text can be stored in a field.
fn fits(text: &str) -> bool {
    let chars_max = Limits::default().text_chars_max;
    !text.is_empty() && !text.contains('\0') && text.chars().count() <= chars_max
}

struct Event {
    attributes: BTreeMap<String, String>,
    data: Bytes,
    content_type: Option<String>,
}

fn read_structured(body: &[u8]) -> Option<Event> {
    let mut members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).ok()?;
    let (data, base64) = (members.remove("data"), members.remove("data_base64"));
    let mut attributes: BTreeMap<_, _> =
        members.into_iter().filter_map(|(name, value)| Some((name, text(value)?))).collect();
    let is_filled = |name: &str| attributes.get(name).is_some_and(|value| !value.is_empty());
    let is_event = attributes.get("specversion").is_some_and(|version| version == SPEC_VERSION);
    if !is_event || !["id", "source", "type"].iter().all(|name| is_filled(name)) {
        return None;
    }
    let mut content_type = attributes.remove("datacontenttype");
    let data = match (data, base64) {
        (None, None) => Bytes::new(),
        (Some(data), None) => {
            // Without a content type, JSON is meant.
            let is_json = is_json(content_type.get_or_insert_with(|| "application/json".to_owned()));
            let string = if is_json { None } else { serde_json::from_str::<String>(data.get()).ok() };
            string.unwrap_or_else(|| data.get().to_owned()).into()
        }
        (None, Some(base64)) => STANDARD.decode(serde_json::from_str::<String>(base64.get()).ok()?).ok()?.into(),
        (Some(_), Some(_)) => return None,
    };
    Some(Event { attributes, data, content_type })
}

/// An attribute's value as text; null counts as absent.
fn text(value: &RawValue) -> Option<String> {
    match value.get() {
        "null" => None,
        json => Some(serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())),
    }
}
