//! The seam for messages that a broker delivers: it is told to forget one only after the inbox has it.

use std::fmt;

use async_trait::async_trait;

use crate::inbox::Incoming;
use crate::problem::Invalid;

/// Deliveries of a broker that wait to be acknowledged one by one.
///
/// Whoever reads from it stores what comes in an inbox, and [settles](Self::settle) it afterwards. What is not settled, because
/// the process died or the broker was away, must be delivered again sooner or later; the inbox knows it then.
#[async_trait]
pub trait Subscription: Send + 'static {
    /// What the broker calls a delivery.
    type Tag: Send + 'static;

    /// Waits for deliveries: at least one, and at most `limit`. May be dropped and called again without losing any for good.
    ///
    /// After an error it is called again, a little later: it should then connect anew.
    async fn next(&mut self, limit: usize) -> Result<Vec<Delivered<Self::Tag>>, BrokerError>;

    /// Tells the broker what became of deliveries, each exactly once. After an error they come again.
    async fn settle(&mut self, outcomes: Vec<(Self::Tag, Intaken)>) -> Result<(), BrokerError>;
}

/// One delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered<Tag> {
    /// What the broker calls it.
    pub tag: Tag,
    /// What it brought, under a receipt that is the same whenever the same message is delivered.
    pub incoming: Incoming,
}

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intaken {
    /// The inbox has it, and that is committed: acknowledge it.
    Stored,
    /// Not now: let it come again, here or elsewhere.
    Later,
    /// The inbox can never take it: reject it, so that it lands where the broker keeps what nobody can read.
    Refused(Invalid),
}

/// Why a broker could not be asked or told. Never carries a payload or a secret.
#[derive(Debug)]
pub struct BrokerError {
    what: String,
}

impl BrokerError {
    /// An error in words.
    pub fn new(what: impl fmt::Display) -> Self {
        Self { what: what.to_string() }
    }
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for BrokerError {}
