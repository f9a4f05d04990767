//! The relay: from stores to brokers, for services in any language.

pub(crate) mod config;
mod duration;
mod endpoint;
mod fleet;

pub(crate) use config::{Config, StoreSection};
pub(crate) use endpoint::Endpoint;
pub(crate) use fleet::{Relay, table, transport};
