//! `Stripe-Signature: t=1700000000,v1=5257a8…,v1=…`

use std::time::{Duration, SystemTime};

use axum::http::HeaderMap;

use super::Scheme;
use crate::delivery::Delivery;
use crate::header;
use crate::refusal::{HeaderFault, Malformed, Refusal};
use crate::secret::{Secret, SecretError, Secrets};
use crate::signature::Tag;
use crate::window::{Stamp, Window};

const SIGNATURE: &str = "stripe-signature";

/// Stripe's way: the HMAC of `<t>.<body>` as hexadecimal digits, any number of them under `v1`; other entries are passed over.
///
/// The message's id is the `id` of the body, its type the `type` of the body.
#[derive(Clone, Debug)]
pub struct Stripe {
    secrets: Secrets,
    window: Window,
}

impl Stripe {
    /// With one secret, as Stripe shows it (`whsec_…`, used as it is written).
    pub fn secret(secret: impl Into<Secret>) -> Result<Self, SecretError> {
        Self::secrets([secret])
    }

    /// With several secrets, any of which may have signed: for rotation.
    pub fn secrets(secrets: impl IntoIterator<Item = impl Into<Secret>>) -> Result<Self, SecretError> {
        Ok(Self { secrets: Secrets::new(secrets)?, window: Window::default() })
    }

    /// How far the signed time may lie from now, both ways; 300 seconds unless set.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.window = Window::new(tolerance);
        self
    }

    fn checked<'a>(&self, headers: &'a HeaderMap, now: SystemTime) -> Result<Seal<'a>, Refusal> {
        let text = header::only(headers, SIGNATURE).map_err(|fault| fault.refuses(SIGNATURE))?;
        let seal = Seal::parse(text)?;
        self.window.check(seal.stamp, now)?;
        Ok(seal)
    }
}

impl Scheme for Stripe {
    fn glance(&self, headers: &HeaderMap, now: SystemTime) -> Result<(), Refusal> {
        self.checked(headers, now).map(|_| ())
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Result<(), Refusal> {
        let seal = self.checked(headers, now)?;
        if self.secrets.have_signed(&[seal.signed_at.as_bytes(), b".", body], &seal.tags) {
            Ok(())
        } else {
            Err(Refusal::Mismatch)
        }
    }

    fn message_id(&self, delivery: &Delivery<'_>) -> Result<String, Malformed> {
        delivery.json_id()?.ok_or(Malformed::NoMessageId)
    }

    fn message_type(&self, delivery: &Delivery<'_>) -> Result<Option<String>, Malformed> {
        delivery.json_type()
    }
}

struct Seal<'a> {
    /// As it was written: that is what was signed.
    signed_at: &'a str,
    stamp: Stamp,
    tags: Vec<Tag>,
}

impl<'a> Seal<'a> {
    fn parse(text: &'a str) -> Result<Self, Refusal> {
        let malformed = HeaderFault::Malformed.refuses(SIGNATURE);
        let mut signed_at = None;
        let mut tags = Vec::new();
        for entry in text.split(',') {
            match entry.trim().split_once('=') {
                Some(("t", _)) if signed_at.is_some() => return Err(malformed),
                Some(("t", time)) => signed_at = Some(time),
                // What cannot be read cannot match; another entry may.
                Some(("v1", hex)) => tags.extend(Tag::from_hex(hex)),
                _ => {}
            }
        }
        let signed_at = signed_at.ok_or(malformed)?;
        let stamp = Stamp::parse(signed_at).ok_or(malformed)?;
        if tags.is_empty() { Err(Refusal::NoSignature) } else { Ok(Self { signed_at, stamp, tags }) }
    }
}
