//! Wake-ups between processes: hints that messages wait, never a promise. Whoever misses one finds the messages by polling.

use async_trait::async_trait;

use crate::error::StoreError;

/// A subscription to the wake-ups that any process sends on one store.
#[async_trait]
pub trait Wakeups: Send {
    /// Waits for the next wake-up. May be dropped and called again.
    ///
    /// An error means that the subscription is over: wake-ups may have been missed, and a new one must be made.
    async fn next(&mut self) -> Result<(), StoreError>;
}
