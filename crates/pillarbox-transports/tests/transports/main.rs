//! The transport suite against real brokers. Each is started for its test, or is one of `cargo xtask services`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod amqp;
mod cloud_events;
mod encryption;
mod http;
mod kafka;
mod lines;
mod mqtt;
mod nats;
mod rabbitmq;
mod redis;
