//! `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,K5oZ… v1,…`

use std::time::{Duration, SystemTime};

use axum::http::HeaderMap;

use super::Scheme;
use crate::delivery::Delivery;
use crate::header;
use crate::refusal::{HeaderFault, Malformed, Refusal};
use crate::secret::{Secret, SecretError, Secrets};
use crate::signature::Tag;
use crate::window::{Stamp, Window};

const ID: &str = "webhook-id";
const TIMESTAMP: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";

/// Standard Webhooks, symmetric: the HMAC of `<id>.<timestamp>.<body>` as base64, any number of them under `v1`; other
/// versions are passed over.
///
/// The message's id is `webhook-id`, which is signed; its type is the `type` of the JSON body, where there is one.
#[derive(Clone, Debug)]
pub struct StandardWebhooks {
    secrets: Secrets,
    window: Window,
}

impl StandardWebhooks {
    /// With one secret, written as base64, with or without `whsec_` before it.
    pub fn secret(secret: impl Into<Secret>) -> Result<Self, SecretError> {
        Self::secrets([secret])
    }

    /// With several secrets, any of which may have signed: for rotation.
    pub fn secrets(secrets: impl IntoIterator<Item = impl Into<Secret>>) -> Result<Self, SecretError> {
        Ok(Self { secrets: Secrets::base64(secrets)?, window: Window::default() })
    }

    /// How far the signed time may lie from now, both ways; 300 seconds unless set.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.window = Window::new(tolerance);
        self
    }

    fn checked<'a>(&self, headers: &'a HeaderMap, now: SystemTime) -> Result<Seal<'a>, Refusal> {
        let seal = Seal::parse(headers)?;
        self.window.check(seal.stamp, now)?;
        Ok(seal)
    }
}

impl Scheme for StandardWebhooks {
    fn glance(&self, headers: &HeaderMap, now: SystemTime) -> Result<(), Refusal> {
        self.checked(headers, now).map(|_| ())
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Result<(), Refusal> {
        let seal = self.checked(headers, now)?;
        let parts = [seal.id.as_bytes(), b".", seal.signed_at.as_bytes(), b".", body];
        if self.secrets.have_signed(&parts, &seal.tags) { Ok(()) } else { Err(Refusal::Mismatch) }
    }

    fn message_id(&self, delivery: &Delivery<'_>) -> Result<String, Malformed> {
        delivery.header(ID).map(str::to_owned)
    }

    fn message_type(&self, delivery: &Delivery<'_>) -> Result<Option<String>, Malformed> {
        delivery.json_type()
    }

    fn kept_headers(&self) -> &'static [&'static str] {
        &[TIMESTAMP]
    }
}

struct Seal<'a> {
    id: &'a str,
    /// As it was written: that is what was signed.
    signed_at: &'a str,
    stamp: Stamp,
    tags: Vec<Tag>,
}

impl<'a> Seal<'a> {
    fn parse(headers: &'a HeaderMap) -> Result<Self, Refusal> {
        let only = |name| header::only(headers, name).map_err(|fault| fault.refuses(name));
        let (id, signed_at, signatures) = (only(ID)?, only(TIMESTAMP)?, only(SIGNATURE)?);
        // With a full stop in the id, the place where the id ends would not be signed.
        if id.contains('.') {
            return Err(HeaderFault::Malformed.refuses(ID));
        }
        let stamp = Stamp::parse(signed_at).ok_or(HeaderFault::Malformed.refuses(TIMESTAMP))?;
        // What cannot be read cannot match; another entry may.
        let entries = signatures.split(' ').filter_map(|entry| entry.strip_prefix("v1,"));
        let tags: Vec<Tag> = entries.filter_map(Tag::from_base64).collect();
        if tags.is_empty() { Err(Refusal::NoSignature) } else { Ok(Self { id, signed_at, stamp, tags }) }
    }
}
