//! Transactions that the store begins at a level of its user's choice. Nothing that is promised depends on it.

use std::sync::Arc;

use pillarbox_core::inbox::InboxOptions;
use pillarbox_core::{CommitError, ErrorKind, Isolation, StoreTransaction, Transactional};
use tokio::sync::Barrier;

use super::support::*;
use crate::harness::Inbox;
use crate::{Harness, StoreTx};

/// Every level there is.
const LEVELS: [Isolation; 4] =
    [Isolation::OfDatabase, Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];

async fn begin_at<H: Harness>(store: &H::Store, level: Isolation) -> StoreTx<H> {
    store.begin_at(level).await.unwrap_or_else(|error| panic!("{level:?} can be begun: {error}"))
}

/// Whether the commit took effect; only a race may undo it.
async fn commit<H: Harness>(tx: StoreTx<H>) -> bool {
    match tx.commit().await {
        Ok(()) => true,
        Err(CommitError::RolledBack(error)) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            false
        }
        Err(other) => panic!("nobody cut a connection: {other}"),
    }
}

/// At every level a transaction takes messages, verdicts, receipts and rows, and commits or undoes them together.
/// BUS-11, BUS-03, HOT-02.
pub async fn every_level_can_be_begun<H: Harness>() {
    let h = start::<H>().await;
    let (inbox, owner) = (h.inbox().await, OwnerToken::new());
    for (round, level) in LEVELS.into_iter().enumerate() {
        for is_committed in [false, true] {
            let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
            let (next, one) = (messages(1), receipt(&format!("{round} {is_committed}")));
            let mut tx = begin_at::<H>(h.store(), level).await;
            h.write_row_on(&mut tx).await;
            assert_eq!(inbox.register(&mut tx, &one).await.expect("it can be registered").registered, Registered::New);
            tx.enqueue(h.store(), Enqueue::pending(&next)).await.expect("a message can be enqueued");
            assert_eq!(settle_in(&h, &mut tx, owner, &claimed, &Verdict::Ack).await, Settled::Applied, "{level:?}");
            if is_committed {
                tx.commit().await.expect("it can be committed");
            } else {
                tx.rollback().await.expect("it can be rolled back");
            }
            assert_eq!(state(h.store(), id).await == State::Done, is_committed, "{level:?}");
            assert_eq!(find(h.store(), next[0].id()).await.is_some(), is_committed, "{level:?}");
            assert_eq!(see(&inbox, &one).await.is_processed(), is_committed, "{level:?}");
            claim(h.store(), owner, 10).await;
        }
        assert_eq!(h.business_row_count().await, round as u64 + 1);
    }
}

/// The store's own setting is the level of a plain begin, and what was begun at one level does not colour the next. BUS-11.
pub async fn the_settings_name_the_level<H: Harness>() {
    for level in LEVELS {
        let h = H::start(StoreOptions { isolation: level, ..options() }).await;
        assert_eq!(h.store().options().isolation, level);
        let mut tx = begin(&h).await;
        h.write_row_on(&mut tx).await;
        tx.commit().await.expect("it can be committed");
        begin_at::<H>(h.store(), Isolation::Serializable).await.rollback().await.expect("it can be rolled back");
        let batch = messages(1);
        enqueue(h.store(), &batch).await;
        assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 1).await), ids(&batch));
        assert_eq!(h.business_row_count().await, 1);
    }
}

/// A message that was taken over after the transaction's snapshot is never settled in it, at any level: its zombie is told, or
/// has to begin again. BUS-11, BUS-03, H4, H14, H22.
pub async fn what_was_taken_over_behind_a_snapshot_is_not_settled<H: Harness>() {
    if !H::HAS_ROW_LOCKS {
        // Nobody else can write while the transaction is open.
        return;
    }
    for level in LEVELS {
        for verdict in every_verdict() {
            let h = start::<H>().await;
            let (zombie, heir, other) = (OwnerToken::new(), OwnerToken::new(), another(&h).await);
            let (id, before) = enqueue_and_claim(h.store(), zombie).await;
            let mut tx = begin_at::<H>(h.store(), level).await;
            h.write_row_on(&mut tx).await;
            h.advance(LEASE).await;
            let after = claim_one(&other, heir).await;
            match tx.settle(h.store(), zombie, &[settlement(&before, &verdict)]).await {
                Ok(settled) => assert_eq!(settled, [Settled::LeaseLost], "{level:?}, {verdict:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{level:?}: {error}"),
            }
            tx.rollback().await.expect("it can be rolled back");
            assert_eq!(settle(&other, heir, &after, &Verdict::Ack).await, Settled::Applied, "{level:?}");
            assert_eq!((state(&other, id).await, h.business_row_count().await), (State::Done, 0));
        }
    }
}

/// What a transaction says of a message that was claimed after its snapshot is true once it is committed, at every level.
/// BUS-11, BUS-03, H4, H14.
pub async fn what_was_claimed_behind_a_snapshot_is_settled_or_not<H: Harness>() {
    if !H::HAS_ROW_LOCKS {
        return;
    }
    let h = start::<H>().await;
    let (owner, other) = (OwnerToken::new(), another(&h).await);
    for level in LEVELS {
        let batch = messages(1);
        enqueue(&other, &batch).await;
        let mut tx = begin_at::<H>(h.store(), level).await;
        h.write_row_on(&mut tx).await;
        let claimed = claim_one(&other, owner).await;
        let is_applied = match tx.settle(h.store(), owner, &[Settlement::ack(claimed.held)]).await {
            Ok(settled) => settled == [Settled::Applied] && commit::<H>(tx).await,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{level:?}: {error}");
                tx.rollback().await.expect("it can be rolled back");
                false
            }
        };
        let expected = if is_applied { State::Done } else { State::Processing };
        assert_eq!(state(&other, batch[0].id()).await, expected, "{level:?}");
        assert_eq!(settle(&other, owner, &claimed, &Verdict::Ack).await == Settled::Applied, !is_applied, "{level:?}");
    }
}

/// Thirty-two transactions, begun by stores of several processes at each level, deliver one message at once: one effect, and the
/// others are duplicates. BUS-11, IBX-006, IBX-102, IBX-103, IBX-104, IBX-105, H14.
pub async fn thirty_two_consumers_have_one_effect_at_every_level<H: Harness>() {
    let h = Arc::new(start::<H>().await);
    let mut processes = vec![(h.store().clone(), h.inbox().await)];
    for _ in 1..4 {
        let store = another(&*h).await;
        let inbox = store.inbox(InboxOptions::default()).await.expect("an inbox can be opened");
        processes.push((store, inbox));
    }
    for (round, level) in LEVELS.into_iter().enumerate() {
        let (gate, one) = (Arc::new(Barrier::new(32)), receipt(&format!("message {round}")));
        let deliver = |turn: usize| {
            let ((store, inbox), h) = (processes[turn % 4].clone(), Arc::clone(&h));
            let (gate, one) = (Arc::clone(&gate), one.clone());
            async move {
                gate.wait().await;
                consume(&*h, &store, &inbox, level, &one).await
            }
        };
        let answers = at_once((0..32).map(deliver)).await;
        let new_count = answers.iter().filter(|answer| **answer == Registered::New).count();
        assert_eq!(new_count, 1, "{level:?}: {answers:?}");
        assert!(answers.iter().all(|answer| *answer != Registered::InProgress), "{level:?}: {answers:?}");
        assert_eq!(h.business_row_count().await, round as u64 + 1, "{level:?}");
        assert!(see(&processes[0].1, &one).await.is_processed());
    }
}

/// Begins again as long as the database asks for it.
async fn consume<H: Harness>(h: &H, store: &H::Store, inbox: &Inbox<H>, level: Isolation, one: &Receipt) -> Registered {
    loop {
        let mut tx = begin_at::<H>(store, level).await;
        match inbox.register(&mut tx, one).await.map(|admission| admission.registered) {
            Ok(Registered::New) => {
                h.write_row_on(&mut tx).await;
                if commit::<H>(tx).await {
                    return Registered::New;
                }
            }
            Ok(other) => {
                tx.rollback().await.expect("it can be rolled back");
                return other;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{level:?}: {error}");
                tx.rollback().await.expect("it can be rolled back");
            }
        }
    }
}

/// Sixteen transactions at each level settle one message at once: one has an effect. BUS-11, BUS-03, H4, H14.
pub async fn one_of_many_verdicts_stands_at_every_level<H: Harness>() {
    let h = Arc::new(start::<H>().await);
    let (owner, other) = (OwnerToken::new(), another(&*h).await);
    for (round, level) in LEVELS.into_iter().enumerate() {
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        let settle = |turn: usize| {
            let (h, asked) = (Arc::clone(&h), [Settlement::ack(claimed.held)]);
            let store = if turn.is_multiple_of(2) { h.store().clone() } else { other.clone() };
            async move {
                loop {
                    let mut tx = begin_at::<H>(&store, level).await;
                    h.write_row_on(&mut tx).await;
                    match tx.settle(&store, owner, &asked).await {
                        Ok(settled) if settled == [Settled::Applied] => {
                            if commit::<H>(tx).await {
                                return true;
                            }
                        }
                        Ok(_) => {
                            tx.rollback().await.expect("it can be rolled back");
                            return false;
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Conflict, "{level:?}: {error}");
                            tx.rollback().await.expect("it can be rolled back");
                        }
                    }
                }
            }
        };
        let effects = at_once((0..16).map(settle)).await;
        assert_eq!(effects.iter().filter(|has_effect| **has_effect).count(), 1, "{level:?}");
        assert_eq!(state(h.store(), id).await, State::Done, "{level:?}");
        assert_eq!(h.business_row_count().await, round as u64 + 1, "{level:?}");
    }
}
