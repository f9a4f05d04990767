//! Where a verified delivery goes: the seam behind which something makes it durable.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use pillarbox_core::inbox::{InboxStore, Incoming, Received, Reception};
use pillarbox_core::{ErrorKind, StoreError};

/// Takes deliveries in. The sender is told 2xx only after `Ok`, so that must mean: stored, and committed.
#[async_trait]
pub trait Accept: Send + Sync + 'static {
    /// Stores one delivery under its receipt, durably, before it answers.
    ///
    /// The future may be dropped at any await, when the sender hangs up; it will send the same delivery again.
    async fn accept(&self, incoming: Incoming) -> Result<Accepted, AcceptError>;
}

/// The inbox of any store: the delivery is in its queue, committed, when this returns.
#[async_trait]
impl<S: InboxStore + ?Sized> Accept for Arc<S> {
    async fn accept(&self, incoming: Incoming) -> Result<Accepted, AcceptError> {
        let receipt = incoming.receipt().clone();
        let received = self.receive(&[incoming]).await?;
        if received.iter().any(|one| one.is_mismatch) {
            let (source, message_id, store) = (receipt.source(), receipt.message_id(), self.id().as_str());
            tracing::warn!(source, message_id, store, "a message came again with another content");
        }
        Accepted::of(&received)
    }
}

/// What became of a delivery. The sender gets the same answer for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accepted {
    /// It was stored now.
    New,
    /// It was known already.
    Duplicate,
}

impl Accepted {
    /// What an inbox answered to a single delivery.
    pub fn of(received: &[Received]) -> Result<Self, AcceptError> {
        let one = received.first().ok_or_else(|| AcceptError::Failed("the inbox gave no answer".to_owned()))?;
        Ok(one.outcome.into())
    }
}

impl From<Reception> for Accepted {
    fn from(reception: Reception) -> Self {
        match reception {
            Reception::Queued => Self::New,
            Reception::Replaced | Reception::Revised | Reception::Done => Self::Duplicate,
        }
    }
}

/// Why a delivery could not be stored. Its text goes to the log, never to the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptError {
    /// Later may be better: the sender is told 503, and when to come again.
    Unavailable(String),
    /// This delivery can never be stored: the sender is told 400.
    Invalid(String),
    /// The receiver itself is at fault, and a person must look: the sender is told 500, and will come again.
    Failed(String),
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unavailable(what) | Self::Invalid(what) | Self::Failed(what)) = self;
        f.write_str(what)
    }
}

impl std::error::Error for AcceptError {}

impl From<StoreError> for AcceptError {
    fn from(error: StoreError) -> Self {
        let what = error.to_string();
        match error.kind() {
            ErrorKind::Unavailable | ErrorKind::Conflict => Self::Unavailable(what),
            ErrorKind::Rejected if !error.problems().is_empty() => Self::Invalid(what),
            ErrorKind::Rejected => Self::Failed(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use pillarbox_core::Problem;

    use super::*;

    #[test]
    fn errors_of_a_store_say_whether_to_come_again() {
        let what = || "words".to_owned();
        assert_eq!(AcceptError::from(StoreError::unavailable("words")), AcceptError::Unavailable(what()));
        assert_eq!(AcceptError::from(StoreError::conflict("words")), AcceptError::Unavailable(what()));
        assert_eq!(AcceptError::from(StoreError::rejected("words")), AcceptError::Failed(what()));
        let invalid = StoreError::from(Problem::empty("topic"));
        assert_eq!(AcceptError::from(invalid), AcceptError::Invalid("topic must not be empty".to_owned()));
    }
}
