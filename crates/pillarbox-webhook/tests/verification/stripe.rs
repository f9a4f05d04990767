use std::time::Duration;

use pillarbox_webhook::{HeaderFault, Refusal, SecretError, Stripe};

use crate::support::*;

const HEADER: &str = "stripe-signature";
const BODY: &[u8] = br#"{"id":"evt_1","type":"invoice.paid"}"#;
/// Made with `printf '1700000000.<body>' | openssl dgst -sha256 -hmac whsec_test`.
const KNOWN: &str = "4aa90aa69730f112c87accbf54203d1076675eae3b18a5cb82b5ab9e7f5cd5bc";

const fn header(fault: HeaderFault) -> Result<(), Refusal> {
    Err(Refusal::Header { name: HEADER, fault })
}

/// H57.
#[test]
fn headers_are_read_as_stripe_writes_them_and_nothing_is_guessed() {
    const MALFORMED: Result<(), Refusal> = header(HeaderFault::Malformed);
    const UNREADABLE: Result<(), Refusal> = Err(Refusal::NoSignature);
    let other = stripe_tag("other", SENT_AT, BODY);
    let many = format!("t=1700000000{},v1={KNOWN}", format!(",v1={other}").repeat(50));
    let endless = format!("t=1700000000,v1={KNOWN}{}", format!(",v1={other}").repeat(60));
    let table: [(&str, Result<(), Refusal>); 29] = [
        (&format!("t=1700000000,v1={KNOWN}"), Ok(())),
        (&format!("v1={KNOWN},t=1700000000"), Ok(())),
        (&format!("t=1700000000, v1={KNOWN}"), Ok(())),
        (&format!("t=1700000000,v1={KNOWN},"), Ok(())),
        (&format!("t=1700000000,v1={other},v1={KNOWN}"), Ok(())),
        (&format!("t=1700000000,v1={KNOWN},v1={other}"), Ok(())),
        (&format!("t=1700000000,v1=nonsense,v1={KNOWN}"), Ok(())),
        (&format!("t=1700000000,v1={KNOWN},v0={other},v2=,scheme,a=b=c"), Ok(())),
        (&many, Ok(())),
        (&endless, header(HeaderFault::TooLong)),
        (&format!("t=1700000000,v1={other}"), Err(Refusal::Mismatch)),
        (&format!("t=1700000000,v1={other},v1={other}"), Err(Refusal::Mismatch)),
        (&format!("t=1700000001,v1={KNOWN}"), Err(Refusal::Mismatch)),
        (&format!("t=01700000000,v1={KNOWN}"), Err(Refusal::Mismatch)),
        (&format!("t=1700000000,v0={KNOWN}"), UNREADABLE),
        (&format!("t=1700000000,V1={KNOWN}"), UNREADABLE),
        (&format!("t=1700000000,v1={}", &KNOWN[1..]), UNREADABLE),
        (&format!("t=1700000000,v1={KNOWN}00"), UNREADABLE),
        (&format!("t=1700000000,v1={}", KNOWN.to_uppercase()), UNREADABLE),
        (&format!("t=1700000000,v1=\"{KNOWN}\""), UNREADABLE),
        ("t=1700000000,v1=", UNREADABLE),
        ("t=1700000000", UNREADABLE),
        (&format!("v1={KNOWN}"), MALFORMED),
        (&format!("t=,v1={KNOWN}"), MALFORMED),
        (&format!("t=+1700000000,v1={KNOWN}"), MALFORMED),
        (&format!("t=1700000000,t=1700000000,v1={KNOWN}"), MALFORMED),
        (&format!("t=99999999999999999999,v1={KNOWN}"), MALFORMED),
        (&format!("t=1700000000,v1={KNOWN},ü"), MALFORMED),
        ("", MALFORMED),
    ];
    for (value, expected) in table {
        let request = Request::new(BODY).with(HEADER, value);
        assert_eq!(request.verify(&stripe(), at(SENT_AT)), expected, "{value}");
    }
}

/// H57: one reader might believe the first, another the last.
#[test]
fn the_header_must_be_there_once() {
    let value = format!("t=1700000000,v1={KNOWN}");
    assert_eq!(Request::new(BODY).verify(&stripe(), at(SENT_AT)), header(HeaderFault::Missing));
    let twice = Request::new(BODY).with(HEADER, value.clone()).with(HEADER, value);
    assert_eq!(twice.verify(&stripe(), at(SENT_AT)), header(HeaderFault::Repeated));
}

/// H56.
#[test]
fn the_window_holds_both_ways() {
    five_minutes_are_allowed_both_ways(&stripe(), &by_stripe(BODY));
    let narrow = stripe().tolerance(Duration::from_secs(1));
    assert_eq!(by_stripe(BODY).verify(&narrow, at(SENT_AT + 2)), Err(Refusal::TooOld));
    let wide = stripe().tolerance(Duration::MAX);
    assert_eq!(by_stripe(BODY).verify(&wide, at(0)), Ok(()));
}

/// H57.
#[test]
fn a_secret_can_be_rotated_without_a_gap() {
    let rotating = Stripe::secrets(["whsec_next", STRIPE_SECRET]).unwrap();
    assert_eq!(by_stripe(BODY).verify(&rotating, at(SENT_AT)), Ok(()));
    let gone = Stripe::secret("whsec_next").unwrap();
    assert_eq!(by_stripe(BODY).verify(&gone, at(SENT_AT)), Err(Refusal::Mismatch));
    assert_eq!(Stripe::secrets([STRIPE_SECRET, ""]).unwrap_err(), SecretError::Empty { index: 1 });
    assert_eq!(Stripe::secrets(Vec::<String>::new()).unwrap_err(), SecretError::None);
}

/// H57: the same JSON in other bytes is another body.
#[test]
fn raw_bytes_are_verified_not_their_meaning() {
    let mut request = by_stripe(BODY);
    request.body = br#"{"id": "evt_1", "type": "invoice.paid"}"#.to_vec();
    assert_eq!(request.verify(&stripe(), at(SENT_AT)), Err(Refusal::Mismatch));
    for body in [&b""[..], b"\0\xff", "ü".as_bytes()] {
        assert_eq!(by_stripe(body).verify(&stripe(), at(SENT_AT)), Ok(()));
    }
}

/// H54.
#[test]
fn nothing_secret_is_printed() {
    let shown = format!("{:?}", Stripe::secrets(["canary-secret"]).unwrap());
    assert!(!shown.contains("canary"), "{shown}");
    let refusal = Request::new(BODY).with(HEADER, "t=canary,v1=canary").verify(&stripe(), at(SENT_AT)).unwrap_err();
    assert!(!format!("{refusal} {refusal:?}").contains("canary"));
}
