//! A message as a request.

use std::borrow::Cow;
use std::time::SystemTime;

use bytes::Bytes;
use pillarbox_core::wire::{self, Wire};
use pillarbox_core::{MessageId, Undelivered};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::signing::Signer;

/// What HTTP binds the names of CloudEvents' attributes to.
pub(super) const PREFIX: &str = "ce-";

/// Names that mean something to the protocol or to Standard Webhooks. A message's header of such a name could split a request,
/// or pass for a signature; it travels under another name.
const RESERVED: [&str; 17] = [
    "host",
    "connection",
    "content-type",
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "accept-encoding",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
];

pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved))
}

/// Headers and body of one request.
pub(super) struct Request {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Request {
    /// `fixed` headers come with every request, and count for more than a message's.
    pub(super) fn new(
        id: MessageId,
        wire: Wire<'_>,
        signer: &Signer,
        fixed: &[(HeaderName, HeaderValue)],
        now: SystemTime,
    ) -> Result<Self, Undelivered> {
        let (id, timestamp) = (id.to_string(), seconds(now));
        let mut headers = HeaderMap::with_capacity(wire.headers.len() + fixed.len() + 4);
        if let Some(content_type) = &wire.content_type {
            headers.insert(CONTENT_TYPE, line(&wire::line_safe(content_type))?);
        }
        if let Some(signature) = signer.sign(&id, &timestamp, &wire.body) {
            headers.insert("webhook-signature", line(&signature)?);
        }
        headers.insert("webhook-id", line(&id)?);
        headers.insert("webhook-timestamp", line(&timestamp)?);
        for (name, value) in fixed {
            headers.insert(name, value.clone());
        }
        for (name, value) in &wire.headers {
            let is_taken =
                is_reserved(name) || fixed.iter().any(|(fixed, _)| name.eq_ignore_ascii_case(fixed.as_str()));
            let sent = if is_taken { wire::displaced(name).into() } else { token(name) };
            let sent = HeaderName::from_bytes(sent.as_bytes()).map_err(|_| unfit())?;
            headers.try_append(sent, line(&wire::header_line(name, value))?).map_err(|_| unfit())?;
        }
        Ok(Self { headers, body: wire.body })
    }
}

/// A name as HTTP allows it; everything else in it is percent-encoded, as in values.
fn token(name: &str) -> Cow<'_, str> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    if name.bytes().all(is_token) {
        return Cow::Borrowed(name);
    }
    let encoded = name.bytes().map(|byte| match byte {
        byte if is_token(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02x}"),
    });
    Cow::Owned(encoded.collect())
}

fn line(text: &str) -> Result<HeaderValue, Undelivered> {
    HeaderValue::from_str(text).map_err(|_| unfit())
}

fn unfit() -> Undelivered {
    Undelivered::rejected("its headers do not fit into a request")
}

fn seconds(now: SystemTime) -> String {
    now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pillarbox_core::Message;

    use super::*;

    fn request(message: &Message, fixed: &[(&'static str, &'static str)]) -> Request {
        let fixed: Vec<_> = fixed
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        Request::new(message.id(), Wire::plain(message), &Signer::default(), &fixed, now).unwrap()
    }

    fn value<'a>(request: &'a Request, name: &str) -> Vec<&'a str> {
        request.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }

    /// H60: a message cannot speak to the protocol, nor pass for a signature.
    #[test]
    fn headers_with_a_meaning_travel_under_another_name() {
        let names = ["Host", "content-length", "Transfer-Encoding", "webhook-signature", "x-api-key"];
        let message = names.iter().fold(Message::new("t", ""), |message, name| message.header(*name, "user's"));
        let request = request(&message, &[("x-api-key", "ours")]);
        for name in names {
            assert_eq!(value(&request, &wire::displaced(name)), ["user's"], "{name}");
        }
        for name in &names[..4] {
            assert_eq!(value(&request, name), [""; 0], "{name}");
        }
        assert_eq!(value(&request, "x-api-key"), ["ours"]);
        assert_eq!(value(&request, "webhook-id"), [message.id().to_string()]);
        assert_eq!(value(&request, "webhook-timestamp"), ["1700000000"]);
    }

    /// H48: any name and any value can be sent, on one line.
    #[test]
    fn what_a_line_cannot_carry_is_encoded() {
        let message = Message::new("t", "").header("größe: 1\r\nx", "a\r\nInjected: b").header("X-Plain", "a b");
        let request = request(&message.content_type("text/plain\r\nx: y"), &[]);
        assert_eq!(value(&request, "gr%c3%b6%c3%9fe%3a%201%0d%0ax"), ["a%0D%0AInjected: b"]);
        assert_eq!(value(&request, "x-plain"), ["a b"]);
        assert_eq!(value(&request, "content-type"), ["text/plain%0D%0Ax: y"]);
        assert!(!request.headers.contains_key("injected"));
        assert_eq!(wire::from_line_safe("gr%c3%b6%c3%9fe%3a%201%0d%0ax"), "größe: 1\r\nx");
    }
}
