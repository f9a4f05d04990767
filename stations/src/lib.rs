//! Brokers for tests and benchmarks: on a free port of the loopback, in a directory of their own, gone with whoever started
//! them. Each is a [`Station`](pillarbox_testing::station::Station), so it can be killed and started again in the middle.
#![expect(clippy::unwrap_used, reason = "a test or benchmark that cannot go on fails")]

mod nats;
pub mod rabbitmq;
mod redis;
mod server;

use pillarbox_testing::station::Station;

pub use nats::NatsStation;
pub use rabbitmq::RabbitStation;
pub use redis::RedisStation;
pub use server::{Server, free_port, silent};

/// A station whose broker is a program of its own, which other processes can be told of.
pub trait Broker: Station {
    /// Where it is, as a transport takes it.
    fn url(&self) -> String;

    /// The program.
    fn server(&mut self) -> &mut Server;
}
