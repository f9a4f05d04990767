//! Ways to brokers, behind one seam: [`pillarbox_core::Transport`]. Each in one file, behind one feature.
//!
//! A transport answers for every message of a batch by itself, tells a broker that is away from one that does not take a
//! message, connects again by itself, and keeps nothing in memory behind the caller's back.

#[cfg(feature = "amqp")]
pub mod amqp;
#[cfg(any(feature = "amqp", feature = "kafka", feature = "mqtt", feature = "rabbitmq"))]
mod batch;
#[cfg(any(feature = "http", feature = "nats", feature = "redis"))]
mod chains;
#[cfg(any(
    feature = "amqp",
    feature = "http",
    feature = "kafka",
    feature = "lines",
    feature = "mqtt",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis"
))]
mod checks;
pub mod cloud_events;
pub mod connect;
#[cfg(any(feature = "mqtt", feature = "nats", feature = "redis"))]
mod encryption;
#[cfg(any(feature = "amqp", feature = "mqtt", feature = "rabbitmq"))]
mod endpoint;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "lines")]
pub mod lines;
#[cfg(any(
    feature = "amqp",
    feature = "kafka",
    feature = "mqtt",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis"
))]
mod link;
#[cfg(feature = "mqtt")]
pub mod mqtt;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(any(feature = "amqp", feature = "rabbitmq"))]
mod plug;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis")]
pub mod redis;

#[cfg(feature = "amqp")]
pub use amqp::Amqp;
pub use connect::{ConnectError, Settings, transport_from_url};
#[cfg(feature = "http")]
pub use http::Http;
#[cfg(feature = "kafka")]
pub use kafka::{Kafka, KafkaSubscription};
#[cfg(feature = "lines")]
pub use lines::Lines;
#[cfg(feature = "mqtt")]
pub use mqtt::Mqtt;
#[cfg(feature = "nats")]
pub use nats::Nats;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::{Rabbit, RabbitSubscription};
#[cfg(feature = "redis")]
pub use redis::Redis;
