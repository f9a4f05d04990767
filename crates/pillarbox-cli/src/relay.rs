//! The relay: from stores to brokers, for services in any language.

pub(crate) mod config;
mod duration;
mod endpoint;
mod fleet;
mod service;
mod signals;
mod transports;

pub(crate) use config::{Config, StoreSection};
pub(crate) use endpoint::{Endpoint, Port};
pub(crate) use fleet::{Prepared, Relay, table};
pub(crate) use service::Service;
pub(crate) use signals::Signals;
