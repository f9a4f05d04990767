//! Webhooks into the inbox: verified, then stored, then answered.
//!
//! [`Webhooks`] makes an [axum](https://docs.rs/axum) router with one route per sender. What a sender signed is taken once,
//! whatever the network does to it; what nobody signed gets no further than this crate.
//!
//! ```
//! use std::sync::Arc;
//! use axum::Router;
//! use pillarbox_core::inbox::InboxStore;
//! use pillarbox_webhook::{GitHub, Stripe, Webhooks};
//!
//! fn app(inbox: Arc<dyn InboxStore>) -> Result<Router, Box<dyn std::error::Error>> {
//!     let webhooks = Webhooks::new(inbox)
//!         .route("stripe", Stripe::secrets(["whsec_current", "whsec_previous"])?) // POST /webhooks/stripe
//!         .route("github", GitHub::secret("It's a Secret")?)
//!         .into_router()?;
//!     Ok(Router::new().nest("/webhooks", webhooks))
//! }
//! ```
//!
//! The router can be mounted anywhere and served by anything. To serve it to strangers without a proxy that protects it,
//! take [`Server`], which bounds connections, heads and waiting:
//!
//! ```no_run
//! # async fn example(app: axum::Router) -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox_webhook::Server;
//!
//! let listener = tokio::net::TcpListener::bind("0.0.0.0:3000").await?;
//! let terminated = async { drop(tokio::signal::ctrl_c().await) };
//! Server::new(app).until(terminated).serve(listener).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What happens to a request
//!
//! 1. Method, `Content-Encoding`, the announced size and the signature's headers are looked at. No byte of the body has been
//!    read, and a client that waits for `100 Continue` has not sent it.
//! 2. The body is read: up to [`body_limit`](Webhooks::body_limit), within [`read_timeout`](Webhooks::read_timeout), all
//!    bodies together within [`memory_limit`](Webhooks::memory_limit). It is never decompressed.
//! 3. The [`Scheme`] verifies the raw bytes: HMAC-SHA256, compared in constant time, every secret worked with.
//! 4. Only now it is parsed, for its id and its topic `<source>.<type>`; see [`Route`] for other ways to find them.
//! 5. [`Accept::accept`] stores it. For an inbox that is
//!    [`receive`](pillarbox_core::inbox::InboxStore::receive): committed when it returns.
//! 6. The sender is answered, with a status and one short line.
//!
//! | status | when |
//! |---|---|
//! | 200 | stored, now or before: a sender cannot tell a duplicate |
//! | 400 | signed, but without an id, not the JSON it should be, or beyond a limit of messages |
//! | 401 | no signature, a wrong one, or one from outside the window of time; the reason is in the log only |
//! | 404, 405 | no such source; not `POST` |
//! | 408, 413, 415 | too slow, too large, compressed |
//! | 431 | by [`Server`]: a head with too many bytes or headers |
//! | 500 | the inbox is broken in a way that waiting will not mend, such as a missing table |
//! | 503 | the inbox is away or too many bodies are here at once; `Retry-After` says when to come again |
//!
//! # What it does not do
//!
//! - The router limits bodies, not connections or headers: [`Server`] does that, or whatever else serves the router.
//! - GitHub signs neither a time nor the id of a delivery: see [`GitHub`].
//! - The hash of a body is stored with it. Another body under a known id is counted by the inbox and warned about, and still
//!   answered with 200, because some senders change details of a body from one attempt to the next.
//!
//! # Map
//!
//! | where | what |
//! |---|---|
//! | [`Webhooks`], [`Route`] | the router, and how a delivery becomes a message |
//! | [`Server`] | serves the router, or any other, and bounds what strangers can cost |
//! | [`Accept`] | where deliveries go; implemented for every inbox in an `Arc` |
//! | [`Stripe`], [`StandardWebhooks`], [`GitHub`] | the schemes; [`Scheme`] for one's own |
//! | [`Secret`], [`Secrets`], [`Tag`] | bytes that do not print, and the one comparison of signatures |
//! | [`Window`], [`Stamp`] | how old, and how far ahead, a signature may be |
//! | [`header`], [`Delivery`] | headers that are there exactly once; a request that was found good |
//! | [`Refusal`], [`Malformed`], [`HeaderFault`] | why something was not taken, in words that may be logged |
//!
//! # Fuzzing
//!
//! The tests change signed requests at random, from a seed, and check that none of them panics and none gets in. A short run
//! is part of every test run; a long one, and the repetition of a case, go by environment variables:
//!
//! ```console
//! $ PILLARBOX_FUZZ_CASES=5000000 cargo test --release -p pillarbox-webhook --test verification fuzz
//! $ PILLARBOX_FUZZ_SEED=4711 PILLARBOX_FUZZ_CASES=1 cargo test -p pillarbox-webhook --test verification fuzz
//! ```
//!
//! Whether the time of a comparison tells anything is measured, not tested, because a measurement can be disturbed:
//!
//! ```console
//! $ cargo run --release -p pillarbox-webhook --example timing
//! ```

mod accept;
mod answer;
mod body;
mod delivery;
mod endpoint;
pub mod header;
mod refusal;
mod route;
mod router;
mod scheme;
mod secret;
mod server;
mod signature;
mod window;

pub use accept::{Accept, AcceptError, Accepted};
pub use delivery::Delivery;
pub use refusal::{HeaderFault, Malformed, Refusal};
pub use route::Route;
pub use router::Webhooks;
pub use scheme::{GitHub, Scheme, StandardWebhooks, Stripe};
pub use secret::{Secret, SecretError, Secrets};
pub use server::Server;
pub use signature::Tag;
pub use window::{Stamp, Window};
