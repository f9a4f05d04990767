//! Savepoints: a part of a transaction that is undone by itself.

use pillarbox_core::{CommitError, Savepoint, StoreTransaction};

use super::support::*;
use crate::{Harness, StoreTx};

use Savepoint::{Release, RollBack, Set};

async fn act<H: Harness>(tx: &mut StoreTx<H>, savepoint: Savepoint) {
    tx.savepoint(savepoint).await.unwrap_or_else(|error| panic!("{savepoint:?}: {error}"));
}

/// Enqueues a message, and writes a row of the user's beside it.
async fn add<H: Harness>(h: &H, tx: &mut StoreTx<H>) -> MessageId {
    let batch = messages(1);
    tx.enqueue(h.store(), Enqueue::pending(&batch)).await.expect("a message can be enqueued");
    h.write_row_on(tx).await;
    batch[0].id()
}

/// Which of the messages are stored.
async fn found<H: Harness>(h: &H, ids: &[MessageId]) -> Vec<bool> {
    let mut found = Vec::new();
    for id in ids {
        found.push(find(h.store(), *id).await.is_some());
    }
    found
}

/// Messages and rows that came after a savepoint vanish when it is rolled back to; what was before stays. However deep.
/// BUS-03, HOT-02.
pub async fn what_came_after_a_savepoint_vanishes_with_it<H: Harness>() {
    for back_to in 1..=3 {
        let h = start::<H>().await;
        let mut tx = begin(&h).await;
        let mut ids = vec![add(&h, &mut tx).await];
        for depth in 1..=3 {
            act::<H>(&mut tx, Set(depth)).await;
            ids.push(add(&h, &mut tx).await);
        }
        act::<H>(&mut tx, RollBack(back_to)).await;
        ids.push(add(&h, &mut tx).await);
        tx.commit().await.expect("it can be committed");
        let expected: Vec<bool> = (0..=4).map(|place| place < back_to || place == 4).collect();
        assert_eq!(found(&h, &ids).await, expected, "back to {back_to}");
        assert_eq!(h.business_row_count().await, u64::from(back_to) + 1);
    }
}

/// A savepoint that is released keeps what came after it, and gives it to the one around it. BUS-03, HOT-02.
pub async fn a_released_savepoint_keeps_what_came_after<H: Harness>() {
    let h = start::<H>().await;
    let mut tx = begin(&h).await;
    act::<H>(&mut tx, Set(1)).await;
    let mut ids = vec![add(&h, &mut tx).await];
    act::<H>(&mut tx, Set(2)).await;
    ids.push(add(&h, &mut tx).await);
    act::<H>(&mut tx, Release(2)).await;
    act::<H>(&mut tx, Release(1)).await;
    act::<H>(&mut tx, Set(1)).await;
    ids.push(add(&h, &mut tx).await);
    act::<H>(&mut tx, Set(2)).await;
    ids.push(add(&h, &mut tx).await);
    act::<H>(&mut tx, Release(2)).await;
    act::<H>(&mut tx, RollBack(1)).await;
    tx.commit().await.expect("it can be committed");
    assert_eq!(found(&h, &ids).await, [true, true, false, false]);
    assert_eq!(h.business_row_count().await, 2);
}

/// A transaction that is rolled back or dropped takes its savepoints along, released or not. BUS-03, H2, H31.
pub async fn a_rollback_takes_savepoints_along<H: Harness>() {
    let h = start::<H>().await;
    for by_rollback in [true, false] {
        let mut tx = begin(&h).await;
        act::<H>(&mut tx, Set(1)).await;
        let mut ids = vec![add(&h, &mut tx).await];
        act::<H>(&mut tx, Release(1)).await;
        act::<H>(&mut tx, Set(1)).await;
        ids.push(add(&h, &mut tx).await);
        if by_rollback {
            tx.rollback().await.expect("it can be rolled back");
        } else {
            drop(tx);
        }
        assert_eq!(found(&h, &ids).await, [false, false]);
        // The next one waits for nothing, and finds nothing of it.
        let mut tx = begin(&h).await;
        add(&h, &mut tx).await;
        tx.commit().await.expect("it can be committed");
    }
    assert_eq!(h.business_row_count().await, 2);
}

/// A verdict is undone with its savepoint: the message is under its lease, and can be settled in the same transaction or later.
/// BUS-03, H4.
pub async fn a_verdict_is_undone_with_its_savepoint<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for is_settled_again in [true, false] {
        for verdict in every_verdict() {
            let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
            let mut tx = begin(&h).await;
            act::<H>(&mut tx, Set(1)).await;
            assert_eq!(settle_in(&h, &mut tx, owner, &claimed, &verdict).await, Settled::Applied);
            act::<H>(&mut tx, RollBack(1)).await;
            if is_settled_again {
                assert_eq!(settle_in(&h, &mut tx, owner, &claimed, &Verdict::Ack).await, Settled::Applied);
                tx.commit().await.expect("it can be committed");
            } else {
                tx.commit().await.expect("it can be committed");
                assert_eq!(state(h.store(), id).await, State::Processing, "{verdict:?}");
                assert_eq!(settle(h.store(), owner, &claimed, &Verdict::Ack).await, Settled::Applied);
            }
            assert_eq!(state(h.store(), id).await, State::Done, "{verdict:?}");
        }
    }
}

/// A receipt that was registered after a savepoint is unknown again once that is rolled back to. BUS-03, IBX-102.
pub async fn a_receipt_is_undone_with_its_savepoint<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let mut tx = begin(&h).await;
    let registered = async |tx: &mut StoreTx<H>, id| {
        inbox.register(tx, &receipt(id)).await.expect("it can be registered").registered
    };
    assert_eq!(registered(&mut tx, "before").await, Registered::New);
    act::<H>(&mut tx, Set(1)).await;
    assert_eq!(registered(&mut tx, "before").await, Registered::Duplicate);
    assert_eq!(registered(&mut tx, "after").await, Registered::New);
    act::<H>(&mut tx, RollBack(1)).await;
    assert_eq!(registered(&mut tx, "before").await, Registered::Duplicate);
    tx.commit().await.expect("it can be committed");
    assert_eq!(inbox_state(&inbox, "before").await, InboxState::Done);
    assert_eq!(inbox.get("source", "after").await.expect("a message can be looked up"), None);
    let mut tx = begin(&h).await;
    assert_eq!(registered(&mut tx, "after").await, Registered::New);
    tx.commit().await.expect("it can be committed");
}

/// A statement of the user's that fails is undone with the savepoint before it, and the transaction goes on. BUS-03, H11.
pub async fn a_failed_statement_is_undone_with_its_savepoint<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (settled_id, claimed) = enqueue_and_claim(h.store(), owner).await;
    let mut tx = begin(&h).await;
    let mut ids = vec![add(&h, &mut tx).await];
    act::<H>(&mut tx, Set(1)).await;
    ids.push(add(&h, &mut tx).await);
    h.fail_statement(&mut tx).await;
    act::<H>(&mut tx, RollBack(1)).await;
    assert_eq!(settle_in(&h, &mut tx, owner, &claimed, &Verdict::Ack).await, Settled::Applied);
    ids.push(add(&h, &mut tx).await);
    tx.commit().await.expect("it can be committed");
    assert_eq!(found(&h, &ids).await, [true, false, true]);
    assert_eq!((state(h.store(), settled_id).await, h.business_row_count().await), (State::Done, 2));
}

/// A transaction that the database has given up is whole again after a savepoint was rolled back to, or is never reported as
/// committed. H9, H10, H11.
pub async fn a_spoiled_transaction_is_mended_by_its_savepoint_or_lost<H: Harness>() {
    let h = start::<H>().await;
    for _ in 0..3 {
        let mut tx = begin(&h).await;
        let mut ids = vec![add(&h, &mut tx).await];
        act::<H>(&mut tx, Set(1)).await;
        ids.push(add(&h, &mut tx).await);
        h.spoil(&mut tx).await;
        let before = h.business_row_count().await;
        let is_mended = tx.savepoint(RollBack(1)).await.is_ok();
        match tx.commit().await {
            Ok(()) => assert!(is_mended, "an error of a rollback means that everything is lost"),
            Err(CommitError::RolledBack(_)) => assert!(!is_mended, "a savepoint that was rolled back to mends"),
            Err(other) => panic!("the commit was sent on a broken connection: {other}"),
        }
        assert_eq!(found(&h, &ids).await, [is_mended, false]);
        assert_eq!(h.business_row_count().await, before + u64::from(is_mended));
    }
}

/// After a given-up transaction no new savepoint pretends that all is well, whatever becomes of it. H9, H10, H11.
pub async fn a_savepoint_mends_nothing_that_came_before_it<H: Harness>() {
    let h = start::<H>().await;
    for end in [Some(Release(1)), Some(RollBack(1)), None] {
        let mut tx = begin(&h).await;
        let (before, after) = (add(&h, &mut tx).await, messages(1));
        h.spoil(&mut tx).await;
        let _ = tx.savepoint(Set(1)).await;
        tx.enqueue(h.store(), Enqueue::pending(&after)).await.expect_err("it is spoiled");
        if let Some(end) = end {
            let _ = tx.savepoint(end).await;
        }
        let ended = tx.commit().await;
        assert!(matches!(ended, Err(CommitError::RolledBack(_))), "{end:?}: {ended:?}");
        assert_eq!(found(&h, &[before, after[0].id()]).await, [false; 2], "{end:?}");
        assert_eq!(h.business_row_count().await, 0);
    }
}

/// Rolling back to a savepoint that was never set is an error, after which nothing is committed. BUS-03, H11.
pub async fn a_savepoint_that_was_never_set_cannot_be_rolled_back_to<H: Harness>() {
    let h = start::<H>().await;
    let mut tx = begin(&h).await;
    let id = add(&h, &mut tx).await;
    let refused = tx.savepoint(RollBack(7)).await.expect_err("there is none");
    assert!(!refused.is_transient(), "{refused}");
    let ended = tx.commit().await;
    assert!(matches!(ended, Err(CommitError::RolledBack(_))), "{ended:?}");
    assert_eq!(found(&h, &[id]).await, [false]);
}

/// A rollback to a savepoint that is dropped half-way has happened, or nothing is committed. BUS-03, H31.
pub async fn a_rollback_to_a_savepoint_cut_short_commits_nothing_else<H: Harness>() {
    let h = start::<H>().await;
    for place in POLLS {
        let mut tx = begin(&h).await;
        let before = add(&h, &mut tx).await;
        act::<H>(&mut tx, Set(1)).await;
        let after = add(&h, &mut tx).await;
        cut_at(place, tx.savepoint(RollBack(1))).await;
        let is_committed = match tx.commit().await {
            Ok(()) => true,
            Err(CommitError::RolledBack(_)) => false,
            Err(other) => panic!("the commit was sent on a broken connection: {other}"),
        };
        assert_eq!(found(&h, &[before, after]).await, [is_committed, false], "place {place}");
    }
}

/// A settle that was dropped half-way is undone by a savepoint before it, or nothing is committed. BUS-03, H31.
pub async fn a_savepoint_mends_a_settle_cut_short<H: Harness>() {
    let h = start::<H>().await;
    let (owner, mut committed) = (OwnerToken::new(), 0);
    for place in POLLS {
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        let asked = [settlement(&claimed, &fail("why"))];
        let mut tx = begin(&h).await;
        h.write_row_on(&mut tx).await;
        act::<H>(&mut tx, Set(1)).await;
        cut_at(place, tx.settle(h.store(), owner, &asked)).await;
        let is_mended = tx.savepoint(RollBack(1)).await.is_ok();
        let ended = tx.commit().await;
        assert_eq!(ended.is_ok(), is_mended, "place {place}: {ended:?}");
        committed += u64::from(is_mended);
        assert_eq!(h.business_row_count().await, committed, "place {place}");
        assert_eq!(state(h.store(), id).await, State::Processing);
        assert_eq!(settle(h.store(), owner, &claimed, &Verdict::Ack).await, Settled::Applied);
    }
}
