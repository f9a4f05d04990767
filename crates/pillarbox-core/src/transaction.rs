//! Transactions that a store begins for its user, and what can become of a commit.

use crate::error::StoreError;
use crate::id::OwnerToken;
use crate::outbox::Settled;
use crate::store::{BoxFuture, Enqueue, Enqueued, GuardPlan, OutboxStore, Settlement};

mod work;

pub use work::{Coordinated, ReceiveIn, WorkTransaction, stale_claim};

/// A store that begins transactions on its own database for its user.
///
/// The transaction is an ordinary one of the driver: the user's own statements run on
/// [`connection`](StoreTransaction::connection), nested transactions are savepoints.
pub trait Transactional: OutboxStore + Sized {
    /// What [`begin`](Self::begin) gives.
    type Transaction: StoreTransaction<Self>;

    /// Begins a transaction at the level of [`StoreOptions::isolation`](crate::store::StoreOptions::isolation).
    fn begin(&self) -> BoxFuture<'_, Result<Self::Transaction, StoreError>> {
        self.begin_at(self.options().isolation)
    }

    /// Begins a transaction that may write. Dropping the future leaves no transaction behind.
    fn begin_at(&self, isolation: Isolation) -> BoxFuture<'_, Result<Self::Transaction, StoreError>>;
}

/// How far a transaction is kept apart from those beside it.
///
/// Nothing that Pillarbox promises depends on it: it is for the statements of the user's own. The stricter it is, the more often
/// a database answers with a [`Conflict`](crate::ErrorKind::Conflict), after which the transaction is done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isolation {
    /// As the database, or whoever configured it, has it.
    #[default]
    OfDatabase,
    /// Each statement sees what is committed when it starts.
    ReadCommitted,
    /// All statements see what was committed when the first one started.
    RepeatableRead,
    /// As if the transactions ran one after the other. SQLite's are always so, whatever is asked for.
    Serializable,
}

impl Isolation {
    /// Its name in the SQL standard, which PostgreSQL and MySQL follow; none where the database is to choose.
    pub fn as_sql(self) -> Option<&'static str> {
        match self {
            Self::OfDatabase => None,
            Self::ReadCommitted => Some("READ COMMITTED"),
            Self::RepeatableRead => Some("REPEATABLE READ"),
            Self::Serializable => Some("SERIALIZABLE"),
        }
    }
}

/// What is to be done about a savepoint. Those of one transaction are numbered by their depth, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Savepoint {
    /// Sets it.
    Set(u32),
    /// Forgets it, and keeps what was done since.
    Release(u32),
    /// Undoes what was done since, and forgets it.
    RollBack(u32),
}

impl Savepoint {
    /// The statements of the SQL standard, which SQLite, PostgreSQL and MySQL follow.
    pub fn to_sql(self) -> String {
        match self {
            Self::Set(depth) => format!("SAVEPOINT pillarbox_{depth}"),
            Self::Release(depth) => format!("RELEASE SAVEPOINT pillarbox_{depth}"),
            Self::RollBack(depth) => {
                format!("ROLLBACK TO SAVEPOINT pillarbox_{depth}; RELEASE SAVEPOINT pillarbox_{depth}")
            }
        }
    }
}

/// An open transaction. Dropping it rolls back.
///
/// It is ended by [`commit`](Self::commit), [`rollback`](Self::rollback) or a drop. Whoever ends it by a statement on its
/// connection instead gets an error from the commit, whatever that statement did.
pub trait StoreTransaction<S: OutboxStore>: Send + 'static {
    /// The driver's connection.
    type Connection: Send;

    /// The connection inside the transaction, for statements of the user's own.
    fn connection(&mut self) -> &mut Self::Connection;

    /// Checks the messages, then stores them through this transaction, as [`EnqueueIn`](crate::EnqueueIn) does.
    ///
    /// After an error of the database, or when the future is dropped half-way, the transaction can only be rolled back, as a
    /// whole or to a savepoint: a part of a batch is never committed. A message that is refused by the checks does no harm.
    fn enqueue<'a>(
        &'a mut self,
        store: &'a S,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>> {
        Box::pin(async move {
            store.options().limits.check(enqueue.messages())?;
            if enqueue.messages().is_empty() {
                return Ok(Vec::new());
            }
            self.enqueue_checked(store, enqueue).await
        })
    }

    /// As [`enqueue`](Self::enqueue), for messages that were checked already, and of which there is at least one.
    fn enqueue_checked<'a>(
        &'a mut self,
        store: &'a S,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>;

    /// Applies verdicts as [`OutboxStore::settle`] does, inside this transaction: they take effect with its commit.
    ///
    /// Guarded by owner and fence. Whoever asks after another has taken over is told
    /// [`LeaseLost`](Settled::LeaseLost) and should roll back; once a verdict was applied here nobody can take the message
    /// over until the transaction has ended. A deadlock or a serialization failure is a
    /// [`Conflict`](crate::ErrorKind::Conflict) and is not retried: the whole transaction has failed. So it has when the
    /// future is dropped half-way: its commit then fails, as after every other error.
    fn settle<'a>(
        &'a mut self,
        store: &'a S,
        owner: OwnerToken,
        settlements: &'a [Settlement],
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async move {
            let plan = GuardPlan::new(settlements, |settlement| settlement.held)?;
            if plan.is_empty() {
                return Ok(Vec::new());
            }
            self.settle_planned(store, owner, &plan).await
        })
    }

    /// As [`settle`](Self::settle), for a plan that is not empty.
    fn settle_planned<'a>(
        &'a mut self,
        store: &'a S,
        owner: OwnerToken,
        plan: &'a GuardPlan<'a, Settlement>,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>>;

    /// Sets, releases or rolls back to a savepoint.
    ///
    /// An error of a savepoint that is rolled back to means that the whole transaction is lost: its commit fails.
    /// Rolling back mends what failed or was cut short since it was set, where the database has not given up everything.
    fn savepoint(&mut self, savepoint: Savepoint) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Commits. A transaction that the server has given up is never reported as committed.
    ///
    /// Servers hide that: PostgreSQL answers the commit of an aborted transaction by a silent rollback, MySQL forgets a
    /// transaction that lost a deadlock. So after statements of the user's own the server is asked, where possible in the same
    /// round trip, whether the transaction is still whole.
    /// Runs to its end also when the future is dropped after its first poll; before that, the transaction is rolled back.
    fn commit(self) -> BoxFuture<'static, Result<(), CommitError>>;

    /// Rolls back. Runs to its end also when the future is dropped.
    fn rollback(self) -> BoxFuture<'static, Result<(), StoreError>>;
}

/// Why a commit did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Nothing of the transaction is in the database, unless a statement of the user's own had committed it before. It can be
    /// done again as a whole.
    #[error("the transaction was rolled back: {0}")]
    RolledBack(#[source] StoreError),
    /// The connection broke while the commit was under way: all of it may be in the database, or nothing.
    ///
    /// Doing it again with the same message ids stores no message twice; the user's own statements must see to themselves.
    #[error("whether the transaction was committed is unknown: {0}")]
    Unknown(#[source] StoreError),
}

/// What a backend knows of an open transaction to which its user has access, too.
///
/// Servers hide that they have given a transaction up, so somebody must remember whether to ask. And what takes several
/// statements may fail or be dropped between two of them: then nothing of it may be committed.
#[derive(Clone, Copy, Debug)]
pub struct Wholeness {
    is_proven: bool,
    was_lent: bool,
    depth: u32,
    torn_at: Option<u32>,
}

impl Wholeness {
    /// Of a transaction that has just begun.
    #[expect(clippy::new_without_default, reason = "it is the state of one thing at one moment, not a value to be had")]
    pub fn new() -> Self {
        Self { is_proven: true, was_lent: false, depth: 0, torn_at: None }
    }

    /// Whether the server has accepted a statement of ours since the user had the connection.
    pub fn is_proven(self) -> bool {
        self.is_proven
    }

    /// Whether the user has had the connection, and may have ended the transaction by a statement that nobody has noticed.
    pub fn was_lent(self) -> bool {
        self.was_lent
    }

    /// Why it must not be committed, when it must not.
    pub fn torn(self) -> Option<StoreError> {
        self.torn_at.map(|_| {
            StoreError::rejected(
                "a call in this transaction failed or was dropped half-way: roll it back and start again",
            )
        })
    }

    /// While the user may do anything to it.
    #[must_use]
    pub fn lent(self) -> Self {
        Self { is_proven: false, was_lent: true, ..self }
    }

    /// While a statement that says nothing about the transaction is under way.
    #[must_use]
    pub fn doubted(self) -> Self {
        Self { is_proven: false, ..self }
    }

    /// While statements are under way that belong together. It stays so when they do not come to their end.
    #[must_use]
    pub fn opened(self) -> Self {
        Self { is_proven: false, torn_at: self.torn_at.or(Some(self.depth)), ..self }
    }

    /// After a call that succeeded; one that sent nothing has learned nothing.
    #[must_use]
    pub fn proven(self, by_server: bool) -> Self {
        Self { is_proven: self.is_proven || by_server, ..self }
    }

    /// After the server has shown that the transaction is open, whoever had it before.
    #[must_use]
    pub fn shown(self) -> Self {
        Self { is_proven: true, was_lent: false, ..self }
    }

    /// While something is done about a savepoint. What cannot be undone, or perhaps was not, must not be committed.
    #[must_use]
    pub fn during(self, savepoint: Savepoint) -> Self {
        match savepoint {
            Savepoint::Set(_) | Savepoint::Release(_) => self.doubted(),
            Savepoint::RollBack(_) => self.opened(),
        }
    }

    /// After something was done about a savepoint. Rolling back to one mends what was torn since.
    #[must_use]
    pub fn after(self, savepoint: Savepoint) -> Self {
        let (depth, torn_at) = match savepoint {
            Savepoint::Set(depth) => (depth, self.torn_at),
            Savepoint::Release(depth) => {
                let outer = depth.saturating_sub(1);
                (outer, self.torn_at.map(|torn_at| torn_at.min(outer)))
            }
            Savepoint::RollBack(depth) => (depth.saturating_sub(1), self.torn_at.filter(|torn_at| *torn_at < depth)),
        };
        Self { is_proven: false, depth, torn_at, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_torn_is_mended_by_a_savepoint_that_was_set_before() {
        use Savepoint::{Release, RollBack, Set};
        let table: [(&[Savepoint], &[Savepoint], bool); 7] = [
            (&[], &[], true),
            (&[Set(1)], &[], true),
            (&[Set(1)], &[RollBack(1)], false),
            (&[Set(1), Release(1)], &[Set(1), RollBack(1)], true),
            (&[Set(1), Set(2)], &[Release(2), RollBack(1)], false),
            (&[Set(1), Set(2)], &[Release(2), Set(2), RollBack(2)], true),
            (&[Set(1)], &[Set(2), RollBack(2)], true),
        ];
        for (before, after, is_torn) in table {
            let whole = before.iter().fold(Wholeness::new(), |whole, savepoint| whole.after(*savepoint));
            let whole = after.iter().fold(whole.opened(), |whole, savepoint| whole.after(*savepoint));
            assert_eq!(whole.torn().is_some(), is_torn, "{before:?}, {after:?}");
        }
    }

    #[test]
    fn only_a_call_that_was_answered_proves_anything() {
        let whole = Wholeness::new();
        assert!(whole.is_proven() && whole.torn().is_none());
        assert!(!whole.doubted().is_proven());
        assert!(!whole.doubted().proven(false).is_proven());
        assert!(whole.doubted().proven(true).is_proven());
        assert!(!whole.after(Savepoint::Set(1)).is_proven());
        assert!(whole.opened().proven(true).torn().is_some(), "a later answer mends nothing");
        assert!(whole.opened().shown().torn().is_some(), "nor does this");
        assert!(
            whole.lent().proven(true).was_lent(),
            "it may have been ended by a statement, and the answer be another's"
        );
        assert!(whole.lent().shown().is_proven() && !whole.lent().shown().was_lent());
        assert!(whole.lent().shown().lent().was_lent());
    }

    #[test]
    fn savepoints_are_named_by_their_depth() {
        let steps = [Savepoint::Set(1), Savepoint::Release(2), Savepoint::RollBack(3)];
        let texts = [
            "SAVEPOINT pillarbox_1",
            "RELEASE SAVEPOINT pillarbox_2",
            "ROLLBACK TO SAVEPOINT pillarbox_3; RELEASE SAVEPOINT pillarbox_3",
        ];
        assert_eq!(steps.map(Savepoint::to_sql), texts);
    }
}
