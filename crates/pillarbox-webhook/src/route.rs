//! One route: a scheme, and how its deliveries become messages.

use std::fmt;

use axum::http::{HeaderMap, HeaderName, header::CONTENT_TYPE};
use bytes::Bytes;
use pillarbox_core::inbox::{ContentHash, Incoming, Receipt};
use pillarbox_core::{Limits, Message, Problem};
use sha2::{Digest, Sha256};

use crate::delivery::Delivery;
use crate::header;
use crate::refusal::Malformed;
use crate::scheme::Scheme;

type Reader = Box<dyn Fn(&Delivery<'_>) -> Result<String, Malformed> + Send + Sync>;

/// Headers that the inbox writes itself begin so; nobody outside may bring them.
const OURS: &str = "pillarbox-";

/// A scheme with the ways in which a message gets its id, its topic and its headers.
///
/// ```
/// use pillarbox_webhook::{GitHub, Malformed, Route};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let route = Route::of(GitHub::secret("s3cret")?)
///     .topic(|delivery| Ok(format!("forge.{}", delivery.header("x-github-event")?)))
///     .keep_header("user-agent");
/// # Ok(())
/// # }
/// ```
pub struct Route {
    pub(crate) scheme: Box<dyn Scheme>,
    message_id: Option<Reader>,
    topic: Option<Reader>,
    kept: Vec<String>,
}

impl Route {
    /// A route with the id and the topic that the scheme knows: `<source>.<type>`, or the source alone where there is no type.
    pub fn of(scheme: impl Scheme) -> Self {
        let kept = scheme.kept_headers().iter().map(|name| (*name).to_owned()).collect();
        Self { scheme: Box::new(scheme), message_id: None, topic: None, kept }
    }

    /// Names the message in another way. What is read here has been signed, except for most headers.
    #[must_use]
    pub fn message_id<F>(mut self, read: F) -> Self
    where
        F: Fn(&Delivery<'_>) -> Result<String, Malformed> + Send + Sync + 'static,
    {
        self.message_id = Some(Box::new(read));
        self
    }

    /// Finds the whole topic in another way; the message then has no type.
    #[must_use]
    pub fn topic<F>(mut self, read: F) -> Self
    where
        F: Fn(&Delivery<'_>) -> Result<String, Malformed> + Send + Sync + 'static,
    {
        self.topic = Some(Box::new(read));
        self
    }

    /// Keeps this header with the message, under its name in lower case, where it is there once and readable.
    #[must_use]
    pub fn keep_header(mut self, name: impl AsRef<str>) -> Self {
        self.kept.push(name.as_ref().to_ascii_lowercase());
        self
    }

    pub(crate) fn report(&self, problems: &mut Vec<Problem>) {
        for name in &self.kept {
            if HeaderName::from_bytes(name.as_bytes()).is_err() || name.starts_with(OURS) {
                problems.push(Problem::malformed("keep_header", format!("must not be {name:?}")));
            }
        }
    }

    /// Makes a message of a request whose signature was found good.
    pub(crate) fn incoming(&self, source: &str, headers: &HeaderMap, body: Bytes) -> Result<Incoming, Malformed> {
        let delivery = Delivery::new(source, headers, &body);
        let message_id = match &self.message_id {
            Some(read) => read(&delivery)?,
            None => self.scheme.message_id(&delivery)?,
        };
        let mut message = match &self.topic {
            Some(read) => Message::new(read(&delivery)?, body.clone()),
            None => match self.scheme.message_type(&delivery)?.filter(|name| !name.is_empty()) {
                Some(name) => Message::new(format!("{source}.{name}"), body.clone()).message_type(name),
                None => Message::new(source, body.clone()),
            },
        };
        let content_type = header::at_most_one(headers, CONTENT_TYPE.as_str());
        if let Some(content_type) = content_type.map_err(|fault| fault.obscures("content-type"))? {
            message = message.content_type(content_type);
        }
        for name in &self.kept {
            if let Ok(value) = header::only(headers, name) {
                message = message.header(name, value);
            }
        }
        let hash = ContentHash::new("sha256", Sha256::digest(&body).to_vec());
        let incoming = Incoming::new(Receipt::new(source, message_id).hash(hash), message);
        check(&incoming)?;
        Ok(incoming)
    }
}

/// The payload is bounded by the router's limit and by the store's own.
fn check(incoming: &Incoming) -> Result<(), Malformed> {
    let limits = Limits { payload_bytes_max: usize::MAX, ..Limits::default() };
    if incoming.receipt().message_id().is_empty() {
        return Err(Malformed::NoMessageId);
    }
    let is_fine = incoming.receipt().check().is_ok() && incoming.message().validate(&limits).is_ok();
    if is_fine { Ok(()) } else { Err(Malformed::Limits) }
}

impl<S: Scheme> From<S> for Route {
    fn from(scheme: S) -> Self {
        Self::of(scheme)
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("kept", &self.kept).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::scheme::{GitHub, StandardWebhooks, Stripe};

    fn routes() -> [Route; 3] {
        [
            Stripe::secret("s").unwrap().into(),
            StandardWebhooks::secret("c2VjcmV0").unwrap().into(),
            GitHub::secret("s").unwrap().into(),
        ]
    }

    fn json_like() -> impl Strategy<Value = Vec<u8>> {
        let pieces = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            " ",
            "\"id\"",
            "\"type\"",
            "\"x\"",
            "7",
            "-1",
            "1e9",
            "null",
            "\"\\u0000\"",
            "ü",
        ]);
        let mixed = prop::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat());
        let plain = ("\\PC{0,300}", "\\PC{0,300}")
            .prop_map(|(id, kind)| serde_json::json!({ "id": id, "type": kind, "data": [id] }).to_string());
        prop_oneof![mixed.prop_map(String::into_bytes), plain.prop_map(String::into_bytes), any::<Vec<u8>>()]
    }

    proptest! {
        /// H57, H59: whatever was signed becomes a message within all limits, or is malformed.
        #[test]
        fn any_delivery_becomes_a_valid_message_or_is_malformed(
            body in json_like(),
            values in prop::collection::vec(any::<Vec<u8>>(), 0..8),
        ) {
            let names = ["webhook-id", "x-github-delivery", "x-github-event", "content-type", "x-github-hook-id"];
            let mut headers = HeaderMap::new();
            for (name, value) in names.iter().cycle().zip(values) {
                if let Ok(value) = HeaderValue::from_bytes(&value) {
                    headers.append(*name, value);
                }
            }
            for route in routes() {
                if let Ok(incoming) = route.incoming("shop", &headers, body.clone().into()) {
                    prop_assert!(Incoming::check_all(std::slice::from_ref(&incoming), &Limits::default()).is_ok());
                    prop_assert_eq!(incoming.message().payload(), &body);
                }
            }
        }
    }
}
