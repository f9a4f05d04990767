use pillarbox_webhook::{GitHub, HeaderFault, Refusal, SecretError};

use crate::support::*;

const HEADER: &str = "x-hub-signature-256";
const BODY: &[u8] = br#"{"action":"opened"}"#;
/// Made with `printf '<body>' | openssl dgst -sha256 -hmac "It's a Secret"`.
const KNOWN: &str = "7424e76371e87b95d3af6b7885d59b5e8b215cceffb9112ac49d4271c5b3ffef";

/// H57.
#[test]
fn the_header_is_read_as_github_writes_it_and_nothing_is_guessed() {
    const UNREADABLE: Result<(), Refusal> = Err(Refusal::NoSignature);
    let (other, zeros) = ("0f".repeat(32), "0".repeat(64));
    let malformed = Err(HeaderFault::Malformed.refuses(HEADER));
    let table: [(&str, Result<(), Refusal>); 15] = [
        (&format!("sha256={KNOWN}"), Ok(())),
        (&format!("  sha256={KNOWN} "), Ok(())),
        (&format!("sha256={other}"), Err(Refusal::Mismatch)),
        (&format!("sha256={zeros}"), Err(Refusal::Mismatch)),
        (&format!("sha1={KNOWN}"), UNREADABLE),
        (&format!("SHA256={KNOWN}"), UNREADABLE),
        (&format!("sha256= {KNOWN}"), UNREADABLE),
        (&format!("sha256={KNOWN},sha256={KNOWN}"), UNREADABLE),
        (&format!("sha256={}", KNOWN.to_uppercase()), UNREADABLE),
        (&format!("sha256={}", &KNOWN[..63]), UNREADABLE),
        (&format!("sha256={}", &KNOWN[..32]), UNREADABLE),
        ("sha256=", UNREADABLE),
        (KNOWN, UNREADABLE),
        ("sha256=ß", malformed),
        ("", malformed),
    ];
    for (value, expected) in table {
        assert_eq!(Request::new(BODY).with(HEADER, value).verify(&github(), at(0)), expected, "{value}");
    }
}

/// H57.
#[test]
fn the_header_must_be_there_once() {
    assert_eq!(Request::new(BODY).verify(&github(), at(0)), Err(HeaderFault::Missing.refuses(HEADER)));
    let twice = by_github(BODY).with(HEADER, "sha256=");
    assert_eq!(twice.verify(&github(), at(0)), Err(HeaderFault::Repeated.refuses(HEADER)));
    let old = Request::new(BODY).with("x-hub-signature", format!("sha1={KNOWN}"));
    assert_eq!(old.verify(&github(), at(0)), Err(HeaderFault::Missing.refuses(HEADER)));
}

/// H57.
#[test]
fn a_secret_can_be_rotated_and_not_be_empty() {
    let rotating = GitHub::secrets(["next", GITHUB_SECRET]).unwrap();
    assert_eq!(by_github(BODY).verify(&rotating, at(0)), Ok(()));
    assert_eq!(GitHub::secret("").unwrap_err(), SecretError::Empty { index: 0 });
}
