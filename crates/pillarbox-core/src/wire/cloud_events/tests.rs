use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::wire::{Arrival, WireFormat, read};

const PREFIXES: [&str; 4] = ["ce-", "ce_", "cloudEvents:", ""];

fn order() -> Message {
    Message::new("orders", r#"{"amount":1.10,"big":12345678901234567890123}"#)
        .key("customer-7")
        .message_type("OrderCreated")
        .aggregate_type("Order")
        .aggregate_id(7)
        .tenant("acme")
        .correlation_id("c")
        .causation_id("d")
        .content_type("application/json; charset=utf-8")
        .occurred_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
        .header("traceparent", "00-1")
        .header("x-note", "größe")
}

fn formats() -> [WireFormat; 2] {
    [
        WireFormat::cloud_events_binary("urn:acme:shop").unwrap(),
        WireFormat::cloud_events_structured("urn:acme:shop").unwrap(),
    ]
}

fn headers<'a>(wire: &'a Wire<'_>) -> BTreeMap<&'a str, &'a str> {
    let headers: BTreeMap<_, _> = wire.headers.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
    assert_eq!(headers.len(), wire.headers.len(), "no name comes twice");
    headers
}

fn received(wire: &Wire<'_>) -> Arrival {
    let headers = wire.headers.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    read("elsewhere", wire.body.clone(), wire.content_type.as_deref(), headers)
}

fn from_stranger(body: &str, content_type: Option<&str>, headers: &[(&str, &str)]) -> Arrival {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    read("place", body.to_owned(), content_type, headers)
}

/// BUS-02: in binary mode the payload stays what it is, and the attributes are headers.
#[test]
fn a_binary_event_has_its_attributes_in_headers() {
    let (message, [binary, _]) = (order(), formats());
    let id = message.id().to_string();
    let wire = binary.encode(&message, "ce-");
    assert_eq!((&wire.body, wire.content_type.as_deref()), (message.payload(), message.get_content_type()));
    let expected = BTreeMap::from([
        ("ce-specversion", "1.0"),
        ("ce-id", &id),
        ("ce-source", "urn:acme:shop"),
        ("ce-type", "OrderCreated"),
        ("ce-subject", "7"),
        ("ce-time", "2023-11-14T22:13:20Z"),
        ("ce-partitionkey", "customer-7"),
        ("ce-tenant", "acme"),
        ("ce-correlationid", "c"),
        ("ce-causationid", "d"),
        ("ce-aggregatetype", "Order"),
        ("ce-topic", "orders"),
        ("ce-traceparent", "00-1"),
        ("pillarbox-id", &id),
        ("traceparent", "00-1"),
        ("x-note", "größe"),
    ]);
    assert_eq!(headers(&wire), expected);
}

/// BUS-02: in structured mode JSON stays as it was written; numbers are not read and written again.
#[test]
fn a_structured_event_is_one_json_text() {
    let (message, [_, structured]) = (order(), formats());
    let id = message.id().to_string();
    let wire = structured.encode(&message, "ce-");
    assert_eq!(wire.content_type.as_deref(), Some("application/cloudevents+json"));
    let body = std::str::from_utf8(&wire.body).unwrap();
    assert!(body.contains(r#""data":{"amount":1.10,"big":12345678901234567890123}"#), "{body}");
    let mut event: serde_json::Map<_, _> = serde_json::from_str(body).unwrap();
    event.remove("data");
    let expected = json!({
        "specversion": "1.0", "id": id, "source": "urn:acme:shop", "type": "OrderCreated", "subject": "7",
        "time": "2023-11-14T22:13:20Z", "datacontenttype": "application/json; charset=utf-8",
        "partitionkey": "customer-7", "tenant": "acme", "correlationid": "c", "causationid": "d",
        "aggregatetype": "Order", "topic": "orders", "traceparent": "00-1",
    });
    assert_eq!(serde_json::Value::Object(event), expected);
    let beside = [("pillarbox-id", id.as_str()), ("traceparent", "00-1"), ("x-note", "größe")];
    assert_eq!(headers(&wire), BTreeMap::from(beside));
}

#[test]
fn what_is_not_json_stands_as_base64() {
    let [_, structured] = formats();
    let table: [(&[u8], Option<&str>, &str); 8] = [
        (b"\xff\x00", None, r#""data_base64":"/wA="}"#),
        (b"{}", None, r#""data_base64":"e30="}"#),
        (b"{}", Some("text/plain"), r#""data_base64":"e30="}"#),
        (b"{", Some("application/json"), r#""data_base64":"ew=="}"#),
        (b"\"\xff\"", Some("application/json"), r#""data_base64":"Iv8i"}"#),
        (b" {} \n", Some("application/vnd.acme+JSON;v=1"), r#""data":{}}"#),
        (b"null", Some("text/json"), r#""data":null}"#),
        (b"", Some("application/json"), r#""datacontenttype":"application/json"}"#),
    ];
    for (payload, content_type, end) in table {
        let message = content_type.into_iter().fold(Message::new("t", payload), Message::content_type);
        let body = structured.encode(&message, "").body;
        let body = std::str::from_utf8(&body).unwrap();
        assert!(body.ends_with(end), "{body}");
        let arrived = received(&structured.encode(&message, "")).message;
        assert_eq!((arrived.payload().trim_ascii(), arrived.get_content_type()), (payload.trim_ascii(), content_type));
    }
}

/// A topic stands for a type that is not there, and a type that reads like its topic is one nevertheless.
#[test]
fn a_message_without_a_type_comes_back_without_one() {
    for format in formats() {
        for message in [Message::new("t", ""), Message::new("t", "").message_type("t")] {
            assert_eq!(
                received(&format.encode(&message, "ce-")).message.get_message_type(),
                message.get_message_type()
            );
        }
    }
}

/// Without a prefix, names such as `source` belong to the event; the user's header travels under another one.
#[test]
fn a_header_with_the_name_of_an_attribute_is_not_lost() {
    let names = ["source", "Type", "ce-id", "tenant", "pillarbox-header-source", "traceparent", "Traceparent"];
    let message = names.iter().fold(Message::new("t", ""), |message, name| message.header(*name, *name));
    for (format, prefix) in formats().iter().flat_map(|format| PREFIXES.map(|prefix| (format, prefix))) {
        let wire = format.encode(&message, prefix);
        let arrived = received(&wire).message;
        for name in names {
            let found = arrived.get_headers().iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
            assert!(found.is_some(), "{name} with {prefix:?}: {:?}", arrived.get_headers());
        }
        assert_eq!(arrived.get_tenant(), None);
        if matches!(format, WireFormat::CloudEventsBinary { .. }) {
            let source = wire.headers.iter().filter(|(name, _)| name == &format!("{prefix}source"));
            assert!(source.map(|(_, value)| value.as_ref()).next() == Some("urn:acme:shop"));
        }
    }
}

/// A payload that is an event itself must not be taken for the one that carries it.
#[test]
fn an_event_within_an_event_stays_inside() {
    let inner = r#"{"specversion":"1.0","id":"1","source":"/s","type":"inner"}"#;
    let message = Message::new("outer", inner).content_type(STRUCTURED);
    for format in [formats().as_slice(), &[WireFormat::Plain]].concat() {
        let arrived = received(&format.encode(&message, "ce-")).message;
        assert_eq!(
            (arrived.topic(), arrived.payload(), arrived.get_content_type()),
            ("outer", message.payload(), Some(STRUCTURED))
        );
    }
}

/// Events of strangers: the place says the topic, and what is no field of ours stays a header.
#[test]
fn events_of_strangers_are_read() {
    let id = "018fe4a2-7c1e-7b6c-9a3e-1f0d2c3b4a59";
    let binary = from_stranger(
        "<a/>",
        Some("text/xml"),
        &[
            ("CE-SpecVersion", "1.0"),
            ("CE-ID", id),
            ("CE-Source", "/sensors"),
            ("CE-Type", "com.example.read"),
            ("CE-Subject", "tn-1"),
            ("ce-time", "2024-02-29T12:00:00.5+01:00"),
            ("ce-traceparent", "00-2"),
            ("ce-dataschema", "urn:schema"),
            ("ce-sampled", "7"),
            ("x", "y"),
        ],
    );
    let json = format!(
        r#"{{"specversion":"1.0","id":"{id}","source":"/sensors","type":"com.example.read","subject":"tn-1","x":null,
        "time":"2024-02-29T12:00:00.5+01:00","traceparent":"00-2","dataschema":"urn:schema","sampled":7,
        "datacontenttype":"text/xml","data":"<a/>"}}"#
    );
    let structured = from_stranger(&json, Some("Application/CloudEvents+JSON; charset=utf-8"), &[("x", "y")]);
    let in_header = from_stranger(&json, None, &[("x", "y"), ("Content-Type", STRUCTURED)]);
    for arrival in [binary, structured, in_header] {
        let message = arrival.message;
        assert!(arrival.is_named);
        assert_eq!(message.id().to_string(), id);
        assert_eq!((message.topic(), message.get_message_type()), ("place", Some("com.example.read")));
        assert_eq!((message.get_aggregate_id(), message.get_content_type()), (Some("tn-1"), Some("text/xml")));
        assert_eq!(message.payload(), "<a/>");
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_709_204_400_500);
        assert_eq!(message.get_occurred_at(), Some(at));
        let expected = [
            ("ce-dataschema", "urn:schema"),
            ("ce-sampled", "7"),
            ("ce-source", "/sensors"),
            ("traceparent", "00-2"),
            ("x", "y"),
        ];
        assert!(message.get_headers().iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
    }
}

/// Nothing is lost where it does not fit, and nothing is guessed where it is no event.
#[test]
fn what_does_not_fit_stays_a_header_and_what_is_no_event_stays_whole() {
    let long = "s".repeat(256);
    let event = from_stranger(
        "",
        None,
        &[
            ("ce_specversion", "1.0"),
            ("ce_id", "A-1"),
            ("ce_source", "/s"),
            ("ce_type", &long),
            ("ce_time", "today"),
            ("ce_subject", &long),
        ],
    );
    assert!(!event.is_named);
    assert_eq!((event.message.get_message_type(), event.message.get_aggregate_id()), (None, None));
    let names: Vec<_> = event.message.get_headers().keys().map(String::as_str).collect();
    assert_eq!(names, ["ce-id", "ce-source", "ce-subject", "ce-time", "ce-type"]);

    let bodies = [
        "",
        "{",
        "[]",
        r#"{"specversion":"0.3","id":"1","source":"/s","type":"t"}"#,
        r#"{"specversion":"1.0","id":"","source":"/s","type":"t"}"#,
        r#"{"specversion":"1.0","id":"1","source":"/s"}"#,
        r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1,"data_base64":"AA=="}"#,
        r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"?"}"#,
        r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":1}"#,
    ];
    for body in bodies {
        let message = from_stranger(body, Some(STRUCTURED), &[]).message;
        assert_eq!((message.payload().as_ref(), message.get_content_type()), (body.as_bytes(), Some(STRUCTURED)));
        assert_eq!((message.topic(), message.get_message_type()), ("place", None));
    }
    let half = from_stranger("", None, &[("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/s")]).message;
    assert_eq!(half.get_headers().len(), 3);
}

fn any_message() -> impl Strategy<Value = Message> {
    let text = || prop::option::of("[^\\x00]{1,20}");
    let texts = (text(), text(), text(), text(), text(), text(), text());
    let names = "[a-zA-Z-]{1,8}|id|source|ce-type|ce_x|cloudEvents:topic|traceparent|tracestate|specversion";
    let headers = prop::collection::btree_map(names, any::<String>(), 0..5);
    let content = (
        prop_oneof![any::<Vec<u8>>(), Just(b"{\"a\": [1.0, 2e400]}".to_vec()), Just(b"\"text\"".to_vec())],
        prop::option::of("application/json|text/plain|a/b\\+json|[a-z]{1,9}"),
        prop::option::of(0..7_000_000_000_000_000_u64),
    );
    ("[^\\x00]{1,20}", texts, headers, content).prop_map(|(topic, texts, headers, (payload, content_type, at))| {
        let set = |message: Message, value: Option<String>, field: fn(Message, String) -> Message| match value {
            Some(value) => field(message, value),
            None => message,
        };
        let mut message = Message::new(topic, payload).headers(headers);
        message = set(message, texts.0, Message::key);
        message = set(message, texts.1, Message::message_type);
        message = set(message, texts.2, Message::aggregate_type);
        message = set(message, texts.3, Message::aggregate_id);
        message = set(message, texts.4, Message::tenant);
        message = set(message, texts.5, Message::correlation_id);
        message = set(message, texts.6, Message::causation_id);
        message = set(message, content_type, Message::content_type);
        match at {
            Some(at) => message.occurred_at(SystemTime::UNIX_EPOCH + Duration::from_micros(at)),
            None => message,
        }
    })
}

proptest! {
    /// BUS-02: whatever the mode and the broker, a message comes back as it was; only its source is new.
    #[test]
    fn any_message_comes_back(message in any_message()) {
        for format in formats() {
            for prefix in PREFIXES {
                let arrival = received(&format.encode(&message, prefix));
                let source = ("ce-source".to_owned(), "urn:acme:shop".to_owned());
                let own = message.get_headers().clone();
                let expected = message.clone().headers([source]).headers(own);
                prop_assert!(arrival.is_named);
                prop_assert_eq!(arrival.message.get_headers(), expected.get_headers());
                prop_assert_eq!(arrival.message, expected);
            }
        }
    }

    #[test]
    fn bodies_of_strangers_are_read_without_a_panic(body in any::<Vec<u8>>(), json in "[\\[\\]{}\":,a-z0-9 ]{0,40}") {
        for body in [body, json.into_bytes()] {
            read("t", body.clone(), Some(STRUCTURED), []);
        }
    }
}
