//! Webhooks into the inbox.

mod accept;
mod answer;
mod body;
mod delivery;
pub mod header;
mod refusal;
mod route;
mod router;
mod scheme;
mod secret;
mod signature;
mod window;

pub use accept::{Accept, AcceptError, Accepted};
pub use delivery::Delivery;
pub use refusal::{HeaderFault, Malformed, Refusal};
pub use route::Route;
pub use router::Webhooks;
pub use scheme::{GitHub, Scheme, StandardWebhooks, Stripe};
pub use secret::{Secret, SecretError, Secrets};
pub use signature::Tag;
pub use window::{Stamp, Window};
