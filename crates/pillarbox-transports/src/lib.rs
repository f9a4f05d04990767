//! Ways to brokers, behind one seam: [`pillarbox_core::Transport`]. Each in one file, behind one feature.
//!
//! A transport answers for every message of a batch by itself, tells a broker that is away from one that does not take a
//! message, connects again by itself, and keeps nothing in memory behind the caller's back.

#[cfg(feature = "http")]
mod chains;
#[cfg(any(feature = "http", feature = "lines"))]
mod checks;
pub mod connect;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "lines")]
pub mod lines;
#[cfg(any(feature = "amqp", feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod link;

pub use connect::{ConnectError, Settings, transport_from_url};
#[cfg(feature = "http")]
pub use http::Http;
#[cfg(feature = "lines")]
pub use lines::Lines;
