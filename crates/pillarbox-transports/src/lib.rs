//! Ways to brokers, behind one seam: [`pillarbox_core::Transport`]. Each in one file, behind one feature.
//!
//! A transport answers for every message of a batch by itself, tells a broker that is away from one that does not take a
//! message, connects again by itself, and keeps nothing in memory behind the caller's back.

#[cfg(any(feature = "amqp", feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod link;
