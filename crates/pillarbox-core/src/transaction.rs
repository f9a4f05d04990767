//! Transactions that a store begins for its user, and what can become of a commit.

use crate::error::StoreError;
use crate::store::{BoxFuture, Enqueue, Enqueued, OutboxStore};

/// A store that begins transactions on its own database for its user.
///
/// The transaction is an ordinary one of the driver: the user's own statements run on
/// [`connection`](StoreTransaction::connection), nested transactions are savepoints.
pub trait Transactional: OutboxStore + Sized {
    /// What [`begin`](Self::begin) gives.
    type Transaction: StoreTransaction<Self>;

    /// Begins a transaction that may write. Dropping the future leaves no transaction behind.
    fn begin(&self) -> BoxFuture<'_, Result<Self::Transaction, StoreError>>;
}

/// An open transaction. Dropping it rolls back.
///
/// It is ended by [`commit`](Self::commit), [`rollback`](Self::rollback) or a drop. Whoever ends it by a statement on its
/// connection instead gets an error from the commit, whatever that statement did.
pub trait StoreTransaction<S>: Send + 'static {
    /// The driver's connection.
    type Connection: Send;

    /// The connection inside the transaction, for statements of the user's own.
    fn connection(&mut self) -> &mut Self::Connection;

    /// Checks the messages, then stores them through this transaction, as [`EnqueueIn`](crate::EnqueueIn) does.
    fn enqueue<'a>(
        &'a mut self,
        store: &'a S,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>;

    /// Commits. A transaction that the server has given up is never reported as committed.
    ///
    /// When the last thing in it was an enqueue that succeeded, this is one round trip. After statements of the user's own
    /// the server is asked first whether the transaction is still whole, because servers hide it: PostgreSQL answers
    /// the commit of an aborted transaction by a silent rollback, MySQL forgets a transaction that lost a deadlock.
    /// Runs to its end also when the future is dropped after its first poll; before that, the transaction is rolled back.
    fn commit(self) -> BoxFuture<'static, Result<(), CommitError>>;

    /// Rolls back. Runs to its end also when the future is dropped.
    fn rollback(self) -> BoxFuture<'static, Result<(), StoreError>>;
}

/// Why a commit did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Nothing of the transaction is in the database. It can be done again as a whole.
    #[error("the transaction was rolled back: {0}")]
    RolledBack(#[source] StoreError),
    /// The connection broke while the commit was under way: all of it may be in the database, or nothing.
    ///
    /// Doing it again with the same message ids stores no message twice; the user's own statements must see to themselves.
    #[error("whether the transaction was committed is unknown: {0}")]
    Unknown(#[source] StoreError),
}
