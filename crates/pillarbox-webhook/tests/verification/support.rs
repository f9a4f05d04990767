//! A signed request that a test can change before it is verified.

use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use pillarbox_webhook::{GitHub, Refusal, Scheme, Secret, StandardWebhooks, Stripe};

pub(crate) const SENT_AT: u64 = 1_700_000_000;
pub(crate) const STRIPE_SECRET: &str = "whsec_test";
pub(crate) const GITHUB_SECRET: &str = "It's a Secret";
/// As a sender shows it, and as the bytes that it stands for.
pub(crate) const STANDARD_SECRET: &str = "whsec_dGhpcnR5LXR3byBieXRlcyBvZiB0ZXN0IHNlY3JldCE=";
pub(crate) const STANDARD_BYTES: &str = "thirty-two bytes of test secret!";

pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(body: impl Into<Vec<u8>>) -> Self {
        Self { headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// What a server would hand on; `None` when it would have refused these bytes as a header itself.
    pub(crate) fn header_map(&self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).ok()?);
        }
        Some(headers)
    }

    pub(crate) fn verify(&self, scheme: &impl Scheme, now: SystemTime) -> Result<(), Refusal> {
        let Some(headers) = self.header_map() else { return Err(Refusal::Other("refused by the server")) };
        let verdict = scheme.verify(&headers, &self.body, now);
        // What the headers alone tell is told before the body is read, and never contradicted afterwards.
        match (scheme.glance(&headers, now), verdict) {
            (Err(early), late) => assert_eq!(Err(early), late),
            (Ok(()), late) => assert!(matches!(late, Ok(()) | Err(Refusal::Mismatch)), "{late:?}"),
        }
        verdict
    }
}

/// What schemes do that sign the time, for a request of [`SENT_AT`].
pub(crate) fn five_minutes_are_allowed_both_ways(scheme: &impl Scheme, request: &Request) {
    let table = [
        (0, Err(Refusal::TooFarAhead)),
        (SENT_AT - 301, Err(Refusal::TooFarAhead)),
        (SENT_AT - 300, Ok(())),
        (SENT_AT + 300, Ok(())),
        (SENT_AT + 301, Err(Refusal::TooOld)),
    ];
    for (now, expected) in table {
        assert_eq!(request.verify(scheme, at(now)), expected, "{now}");
    }
}

pub(crate) fn stripe() -> Stripe {
    Stripe::secret(STRIPE_SECRET).unwrap()
}

pub(crate) fn github() -> GitHub {
    GitHub::secret(GITHUB_SECRET).unwrap()
}

pub(crate) fn standard() -> StandardWebhooks {
    StandardWebhooks::secret(STANDARD_SECRET).unwrap()
}

pub(crate) fn stripe_tag(secret: &str, time: impl ToString, body: &[u8]) -> String {
    Secret::from(secret).sign(&[time.to_string().as_bytes(), b".", body]).to_hex()
}

pub(crate) fn by_stripe(body: &[u8]) -> Request {
    let tag = stripe_tag(STRIPE_SECRET, SENT_AT, body);
    Request::new(body).with("stripe-signature", format!("t={SENT_AT},v1={tag}"))
}

pub(crate) fn by_github(body: &[u8]) -> Request {
    let tag = Secret::from(GITHUB_SECRET).sign(&[body]).to_hex();
    Request::new(body).with("x-hub-signature-256", format!("sha256={tag}"))
}

pub(crate) fn standard_tag(secret: &str, id: &str, time: impl ToString, body: &[u8]) -> String {
    let time = time.to_string();
    Secret::from(secret).sign(&[id.as_bytes(), b".", time.as_bytes(), b".", body]).to_base64()
}

pub(crate) fn by_standard(body: &[u8]) -> Request {
    let tag = standard_tag(STANDARD_BYTES, "msg_1", SENT_AT, body);
    Request::new(body)
        .with("webhook-id", "msg_1")
        .with("webhook-timestamp", SENT_AT.to_string())
        .with("webhook-signature", format!("v1,{tag}"))
}
