//! `X-Hub-Signature-256: sha256=757107ea…`

use std::time::SystemTime;

use axum::http::HeaderMap;

use super::Scheme;
use crate::delivery::Delivery;
use crate::header;
use crate::refusal::{Malformed, Refusal};
use crate::secret::{Secret, SecretError, Secrets};
use crate::signature::Tag;

const SIGNATURE: &str = "x-hub-signature-256";
const DELIVERY: &str = "x-github-delivery";
const TYPE: &str = "x-github-event";

/// GitHub's way: the HMAC of the body as hexadecimal digits.
///
/// The message's id is `X-GitHub-Delivery`, its type `X-GitHub-Event`. GitHub signs neither of them, and no time: who has
/// captured one request can send it again under another id for ever. Where that matters, let the body name the message:
/// [`Route::message_id`](crate::Route::message_id).
#[derive(Clone, Debug)]
pub struct GitHub {
    secrets: Secrets,
}

impl GitHub {
    /// With one secret.
    pub fn secret(secret: impl Into<Secret>) -> Result<Self, SecretError> {
        Self::secrets([secret])
    }

    /// With several secrets, any of which may have signed: for rotation.
    pub fn secrets(secrets: impl IntoIterator<Item = impl Into<Secret>>) -> Result<Self, SecretError> {
        Ok(Self { secrets: Secrets::new(secrets)? })
    }
}

impl Scheme for GitHub {
    fn glance(&self, headers: &HeaderMap, _now: SystemTime) -> Result<(), Refusal> {
        tag(headers).map(|_| ())
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], _now: SystemTime) -> Result<(), Refusal> {
        let tag = tag(headers)?;
        if self.secrets.have_signed(&[body], &[tag]) { Ok(()) } else { Err(Refusal::Mismatch) }
    }

    fn message_id(&self, delivery: &Delivery<'_>) -> Result<String, Malformed> {
        delivery.header(DELIVERY).map(str::to_owned)
    }

    fn message_type(&self, delivery: &Delivery<'_>) -> Result<Option<String>, Malformed> {
        delivery.header(TYPE).map(|name| Some(name.to_owned()))
    }

    fn kept_headers(&self) -> &'static [&'static str] {
        &["x-github-hook-id", "x-github-hook-installation-target-id", "x-github-hook-installation-target-type"]
    }
}

fn tag(headers: &HeaderMap) -> Result<Tag, Refusal> {
    let text = header::only(headers, SIGNATURE).map_err(|fault| fault.refuses(SIGNATURE))?;
    text.strip_prefix("sha256=").and_then(Tag::from_hex).ok_or(Refusal::NoSignature)
}
