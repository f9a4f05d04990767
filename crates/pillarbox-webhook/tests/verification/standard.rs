use std::time::Duration;

use pillarbox_webhook::{HeaderFault, Refusal, SecretError, StandardWebhooks};

use crate::support::*;

const ID: &str = "webhook-id";
const TIMESTAMP: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";
const BODY: &[u8] = br#"{"type":"contact.created"}"#;
/// Made with `printf 'msg_1.1700000000.<body>' | openssl dgst -sha256 -mac HMAC -macopt hexkey:<secret> -binary | base64`.
const KNOWN: &str = "eoUTITTjHrKkxipJ0qjK4YO/WhKGMq7j7um8WSUK2AM=";

fn request(id: &str, timestamp: &str, signature: &str) -> Request {
    Request::new(BODY).with(ID, id).with(TIMESTAMP, timestamp).with(SIGNATURE, signature)
}

const fn malformed(name: &'static str) -> Result<(), Refusal> {
    Err(Refusal::Header { name, fault: HeaderFault::Malformed })
}

/// H57.
#[test]
fn signatures_are_read_as_the_standard_writes_them_and_nothing_is_guessed() {
    const UNREADABLE: Result<(), Refusal> = Err(Refusal::NoSignature);
    let other = standard_tag("other", "msg_1", SENT_AT, BODY);
    let unpadded = KNOWN.trim_end_matches('=');
    let table: [(&str, Result<(), Refusal>); 18] = [
        (&format!("v1,{KNOWN}"), Ok(())),
        (&format!("v1,{other} v1,{KNOWN}"), Ok(())),
        (&format!("v1,{KNOWN} v1,{other}"), Ok(())),
        (&format!("v1a,{other} v1,{KNOWN} v2,x junk"), Ok(())),
        (&format!("v1,{KNOWN}  "), Ok(())),
        (&format!("v1,!!! v1,{KNOWN}"), Ok(())),
        (&format!("v1,{other}"), Err(Refusal::Mismatch)),
        (&format!("v1a,{KNOWN}"), UNREADABLE),
        (&format!("v1,{unpadded}"), UNREADABLE),
        (&format!("v1,{unpadded}=="), UNREADABLE),
        (&format!("v1,{}", KNOWN.replace('/', "_")), UNREADABLE),
        (&format!("v1={KNOWN}"), UNREADABLE),
        (&format!("v1,v1,{KNOWN}"), UNREADABLE),
        (&format!("v1,{KNOWN},v1,{other}"), UNREADABLE),
        (KNOWN, UNREADABLE),
        ("v1,", UNREADABLE),
        ("v1,ä", malformed(SIGNATURE)),
        ("", malformed(SIGNATURE)),
    ];
    for (value, expected) in table {
        assert_eq!(request("msg_1", "1700000000", value).verify(&standard(), at(SENT_AT)), expected, "{value}");
    }
}

/// H57.
#[test]
fn id_and_time_are_signed_and_must_be_whole() {
    let signature = format!("v1,{KNOWN}");
    let table = [
        ("msg_1", "1700000000", Ok(())),
        ("msg_2", "1700000000", Err(Refusal::Mismatch)),
        ("MSG_1", "1700000000", Err(Refusal::Mismatch)),
        ("msg_1", "1700000001", Err(Refusal::Mismatch)),
        ("", "1700000000", malformed(ID)),
        ("msg_ü", "1700000000", malformed(ID)),
        ("msg_1.1", "1700000000", malformed(ID)),
        ("msg_1", "", malformed(TIMESTAMP)),
        ("msg_1", "1700000000.0", malformed(TIMESTAMP)),
        ("msg_1", "2023-11-14T22:13:20Z", malformed(TIMESTAMP)),
        ("msg_1", "-1700000000", malformed(TIMESTAMP)),
    ];
    for (id, timestamp, expected) in table {
        let verdict = request(id, timestamp, &signature).verify(&standard(), at(SENT_AT));
        assert_eq!(verdict, expected, "{id} {timestamp}");
    }
}

/// H57: with a full stop in the id, part of the body could be passed off as the time.
#[test]
fn a_signed_text_cannot_be_cut_in_another_way() {
    let body = format!("{SENT_AT}.rest").into_bytes();
    let tag = standard_tag(STANDARD_BYTES, "msg_1", SENT_AT, &body);
    let shifted = Request::new("rest")
        .with(ID, format!("msg_1.{SENT_AT}"))
        .with(TIMESTAMP, SENT_AT.to_string())
        .with(SIGNATURE, format!("v1,{tag}"));
    assert_eq!(shifted.verify(&standard(), at(SENT_AT)), malformed(ID));
}

/// H57.
#[test]
fn each_header_must_be_there_once() {
    for index in 0..3 {
        let mut missing = by_standard(BODY);
        let (name, value) = missing.headers.remove(index);
        let refusal = Refusal::Header { name, fault: HeaderFault::Missing };
        assert_eq!(missing.verify(&standard(), at(SENT_AT)), Err(refusal));
        let repeated = by_standard(BODY).with(name, value);
        let refusal = Refusal::Header { name, fault: HeaderFault::Repeated };
        assert_eq!(repeated.verify(&standard(), at(SENT_AT)), Err(refusal));
    }
}

/// H56.
#[test]
fn the_window_holds_both_ways() {
    five_minutes_are_allowed_both_ways(&standard(), &by_standard(BODY));
    let wide = standard().tolerance(Duration::from_secs(301));
    assert_eq!(by_standard(BODY).verify(&wide, at(SENT_AT + 301)), Ok(()));
}

/// H57.
#[test]
fn a_secret_can_be_rotated_and_must_be_base64() {
    let rotating = StandardWebhooks::secrets(["whsec_bmV3", STANDARD_SECRET]).unwrap();
    assert_eq!(by_standard(BODY).verify(&rotating, at(SENT_AT)), Ok(()));
    let without_prefix = StandardWebhooks::secret(&STANDARD_SECRET[6..]).unwrap();
    assert_eq!(by_standard(BODY).verify(&without_prefix, at(SENT_AT)), Ok(()));
    let table = [
        ("", SecretError::Empty { index: 0 }),
        ("whsec_", SecretError::Empty { index: 0 }),
        ("whsec_====", SecretError::NotBase64 { index: 0 }),
        ("not base64", SecretError::NotBase64 { index: 0 }),
    ];
    for (secret, expected) in table {
        assert_eq!(StandardWebhooks::secret(secret).unwrap_err(), expected, "{secret}");
    }
}
