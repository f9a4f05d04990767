//! The transport suite against real brokers. Each is started for its test, or is one of `cargo xtask services`.

mod http;
mod kafka;
mod lines;
mod mqtt;
mod nats;
mod redis;
mod server;
