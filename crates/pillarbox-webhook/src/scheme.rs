//! How a sender signs, and how a receiver finds out whether it did.

use std::time::SystemTime;

use axum::http::HeaderMap;

use crate::delivery::Delivery;
use crate::refusal::{Malformed, Refusal};

mod github;
mod standard;
mod stripe;

pub use github::GitHub;
pub use standard::StandardWebhooks;
pub use stripe::Stripe;

/// A way of signing deliveries. Pure: headers, bytes and the time come in, a verdict comes out.
///
/// One's own is written with [`header::only`](crate::header::only), [`Tag`](crate::Tag), [`Window`](crate::Window) and
/// [`Secrets::have_signed`](crate::Secrets::have_signed):
///
/// ```
/// use std::time::SystemTime;
/// use axum::http::HeaderMap;
/// use pillarbox_webhook::{Delivery, HeaderFault, Malformed, Refusal, Scheme, Secrets, Tag, header};
///
/// struct Plain(Secrets);
///
/// impl Scheme for Plain {
///     fn verify(&self, headers: &HeaderMap, body: &[u8], _now: SystemTime) -> Result<(), Refusal> {
///         let text = header::only(headers, "x-sum").map_err(|fault| fault.refuses("x-sum"))?;
///         let tag = Tag::from_hex(text).ok_or(HeaderFault::Malformed.refuses("x-sum"))?;
///         if self.0.have_signed(&[body], &[tag]) { Ok(()) } else { Err(Refusal::Mismatch) }
///     }
///
///     fn message_id(&self, delivery: &Delivery<'_>) -> Result<String, Malformed> {
///         delivery.json_id()?.ok_or(Malformed::NoMessageId)
///     }
///
///     fn message_type(&self, delivery: &Delivery<'_>) -> Result<Option<String>, Malformed> {
///         delivery.json_type()
///     }
/// }
/// ```
pub trait Scheme: Send + Sync + 'static {
    /// Refuses what can be refused without the body, before a byte of it is read. It need not look at all.
    fn glance(&self, headers: &HeaderMap, now: SystemTime) -> Result<(), Refusal> {
        let _ = (headers, now);
        Ok(())
    }

    /// Whether somebody who knows a secret signed these very bytes, now. Repeats what [`glance`](Self::glance) checks.
    fn verify(&self, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Result<(), Refusal>;

    /// What the sender calls the message: the same for every repetition of one message, different for different ones.
    fn message_id(&self, delivery: &Delivery<'_>) -> Result<String, Malformed>;

    /// What happened; `None` when the sender does not say.
    fn message_type(&self, delivery: &Delivery<'_>) -> Result<Option<String>, Malformed>;

    /// Headers that handlers will want to see, in lower case. Never the signature.
    fn kept_headers(&self) -> &'static [&'static str] {
        &[]
    }
}
