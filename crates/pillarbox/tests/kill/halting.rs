//! A store that stands still at a named point, for ever, so that its process can be killed exactly there.

use std::fmt;
use std::future::pending;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::lease::{Claim, Held};
use pillarbox::prelude::*;
use pillarbox::retention::PurgeLimit;
use pillarbox::store::{BoxFuture, Claimed, Enqueued, Exchanged, GuardPlan, Reap, Reaped};
use pillarbox::{CommitError, StoreId, Transactional};
use pillarbox_core::{Isolation, Savepoint, StoreTransaction, Wakeups};

/// Where a worker is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// Messages are claimed, the runtime does not know yet.
    Claimed,
    /// A handler runs.
    InHandler,
    /// A handler has ended, its verdict is not written.
    BeforeSettle,
    /// The verdict is written, the runtime does not know yet.
    AfterSettle,
    /// A transaction is committed, its messages are not handed over.
    Committed,
    /// A shutdown gives messages back.
    ShuttingDown,
    /// A delivery was found good, and nothing of it is written.
    Accepting,
    /// A delivery and its effect are written, and not committed.
    InTransaction,
    /// A delivery is committed, its sender does not know yet.
    Unanswered,
}

const NAMES: [(Point, &str); 9] = [
    (Point::Claimed, "claimed"),
    (Point::InHandler, "in-handler"),
    (Point::BeforeSettle, "before-settle"),
    (Point::AfterSettle, "after-settle"),
    (Point::Committed, "committed"),
    (Point::ShuttingDown, "shutting-down"),
    (Point::Accepting, "accepting"),
    (Point::InTransaction, "in-transaction"),
    (Point::Unanswered, "unanswered"),
];

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.iter().find(|(point, _)| point == self).unwrap().1)
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(point, _)| *point).ok_or_else(|| format!("no point `{name}`"))
    }
}

/// What a worker writes before it stands still.
pub(crate) const REACHED: &str = "reached: ";

/// Tells the parent, and never goes on.
#[expect(clippy::print_stderr, reason = "the parent reads it")]
pub(crate) async fn stand_still(point: Point) {
    eprintln!("{REACHED}{point}");
    pending::<()>().await;
}

/// A store that stands still.
#[derive(Clone, Debug)]
pub(crate) struct Halting<S> {
    pub(crate) store: S,
    pub(crate) point: Point,
}

impl<S> Halting<S> {
    async fn at(&self, point: Point) {
        if self.point == point {
            stand_still(point).await;
        }
    }

    async fn before_settle(&self, settlements: &[Settlement]) {
        if !settlements.is_empty() {
            self.at(Point::BeforeSettle).await;
            self.at(Point::ShuttingDown).await;
        }
    }

    async fn after_settle(&self, settlements: &[Settlement]) {
        if !settlements.is_empty() {
            self.at(Point::AfterSettle).await;
        }
    }
}

#[pillarbox::async_trait]
impl<S: OutboxStore> OutboxStore for Halting<S> {
    fn id(&self) -> &StoreId {
        self.store.id()
    }

    fn options(&self) -> &StoreOptions {
        self.store.options()
    }

    async fn enqueue(&self, enqueue: Enqueue<'_>) -> Result<Vec<Enqueued>, StoreError> {
        self.store.enqueue(enqueue).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Claimed>, StoreError> {
        let claimed = self.store.claim(claim).await?;
        if !claimed.is_empty() {
            self.at(Point::Claimed).await;
        }
        Ok(claimed)
    }

    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        self.before_settle(settlements).await;
        let settled = self.store.settle(owner, settlements).await;
        self.after_settle(settlements).await;
        settled
    }

    async fn exchange(&self, settlements: &[Settlement], claim: Claim) -> Result<Exchanged, StoreError> {
        self.before_settle(settlements).await;
        let exchanged = self.store.exchange(settlements, claim).await;
        self.after_settle(settlements).await;
        exchanged
    }

    async fn renew(&self, owner: OwnerToken, held: &[Held], lease: Duration) -> Result<Vec<Settled>, StoreError> {
        self.store.renew(owner, held, lease).await
    }

    async fn reap(&self, reap: Reap) -> Result<Reaped, StoreError> {
        self.store.reap(reap).await
    }

    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError> {
        self.store.purge(limit).await
    }

    async fn detached(&self) -> Result<Arc<dyn OutboxStore>, StoreError> {
        self.store.detached().await
    }

    async fn wake_others(&self) -> Result<(), StoreError> {
        self.store.wake_others().await
    }

    async fn listen(&self) -> Result<Option<Box<dyn Wakeups>>, StoreError> {
        self.store.listen().await
    }
}

impl<S: Transactional> Transactional for Halting<S> {
    type Transaction = HaltingTransaction<S>;

    fn begin_at(&self, isolation: Isolation) -> BoxFuture<'_, Result<Self::Transaction, StoreError>> {
        Box::pin(async move { Ok(HaltingTransaction { tx: self.store.begin_at(isolation).await?, point: self.point }) })
    }
}

/// A transaction that stands still once it is committed.
pub(crate) struct HaltingTransaction<S: Transactional> {
    tx: S::Transaction,
    point: Point,
}

impl<S: Transactional> StoreTransaction<Halting<S>> for HaltingTransaction<S> {
    type Connection = <S::Transaction as StoreTransaction<S>>::Connection;

    fn connection(&mut self) -> &mut Self::Connection {
        self.tx.connection()
    }

    fn enqueue_checked<'a>(
        &'a mut self,
        store: &'a Halting<S>,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>> {
        self.tx.enqueue_checked(&store.store, enqueue)
    }

    fn settle_planned<'a>(
        &'a mut self,
        store: &'a Halting<S>,
        owner: OwnerToken,
        plan: &'a GuardPlan<'a, Settlement>,
    ) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        Box::pin(async move {
            store.at(Point::BeforeSettle).await;
            store.at(Point::ShuttingDown).await;
            let settled = self.tx.settle_planned(&store.store, owner, plan).await;
            store.at(Point::AfterSettle).await;
            settled
        })
    }

    fn savepoint(&mut self, savepoint: Savepoint) -> BoxFuture<'_, Result<(), StoreError>> {
        self.tx.savepoint(savepoint)
    }

    fn commit(self) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(async move {
            self.tx.commit().await?;
            if self.point == Point::Committed {
                stand_still(self.point).await;
            }
            Ok(())
        })
    }

    fn rollback(self) -> BoxFuture<'static, Result<(), StoreError>> {
        self.tx.rollback()
    }
}
