//! Verdicts inside a transaction that the store began: they stand or fall with what the user did there.

use std::time::Duration;

use pillarbox_core::store::SETTLE_MAX;
use pillarbox_core::{CommitError, StoreTransaction};

use super::support::*;
use crate::Harness;

/// How a transaction ends without a commit.
const UNDOINGS: [bool; 2] = [true, false];

/// Rolls back, or leaves that to a drop.
async fn undo<H: Harness>(tx: crate::StoreTx<H>, by_rollback: bool) {
    if by_rollback {
        tx.rollback().await.expect("it can be rolled back");
    }
}

/// An ack takes effect with the commit and with the user's own row, and nobody sees anything of it before. BUS-03, H4.
pub async fn an_ack_takes_effect_with_the_commit<H: Harness>() {
    let h = start::<H>().await;
    let (owner, other) = (OwnerToken::new(), another(&h).await);
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    let mut tx = begin(&h).await;
    h.write_row_on(&mut tx).await;
    assert_eq!(settle_in(&h, &mut tx, owner, &claimed, &Verdict::Ack).await, Settled::Applied);
    assert_eq!((state(&other, id).await, h.business_row_count().await), (State::Processing, 0));
    tx.commit().await.expect("it can be committed");
    assert_eq!((state(&other, id).await, h.business_row_count().await), (State::Done, 1));
    h.advance(DAY).await;
    assert_eq!(claim(&other, OwnerToken::new(), 10).await, []);
}

/// A transaction that is rolled back or dropped leaves the message under its lease, to be settled as ever. BUS-03, H2, H31.
pub async fn an_ack_that_is_rolled_back_leaves_the_message_held<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for by_rollback in UNDOINGS {
        for verdict in every_verdict() {
            let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
            let before = stored(h.store(), id).await;
            let mut tx = begin(&h).await;
            h.write_row_on(&mut tx).await;
            assert_eq!(settle_in(&h, &mut tx, owner, &claimed, &verdict).await, Settled::Applied, "{verdict:?}");
            undo::<H>(tx, by_rollback).await;
            assert_eq!(stored(h.store(), id).await, before, "{verdict:?}");
            assert_eq!(settle(h.store(), owner, &claimed, &Verdict::Ack).await, Settled::Applied, "{verdict:?}");
        }
    }
    assert_eq!(h.business_row_count().await, 0);
}

/// A zombie whose message was taken over or reaped is told so in its transaction, and its effects vanish with it.
/// BUS-03, H4, H22, H25.
pub async fn a_zombie_is_told_in_its_transaction<H: Harness>() {
    let h = start::<H>().await;
    let zombie = OwnerToken::new();
    let (id, before) = enqueue_and_claim(h.store(), zombie).await;
    for successor in [Some(OwnerToken::new()), Some(zombie), None] {
        h.advance(LEASE).await;
        match successor {
            Some(successor) => drop(claim_one(h.store(), successor).await),
            None => assert_eq!(reap_all(h.store()).await.released, 1),
        }
        let found = stored(h.store(), id).await;
        for verdict in every_verdict() {
            let mut tx = begin(&h).await;
            h.write_row_on(&mut tx).await;
            assert_eq!(settle_in(&h, &mut tx, zombie, &before, &verdict).await, Settled::LeaseLost, "{verdict:?}");
            tx.rollback().await.expect("it can be rolled back");
        }
        assert_eq!(stored(h.store(), id).await, found, "nothing was changed");
    }
    assert_eq!(h.business_row_count().await, 0);
    let owner = OwnerToken::new();
    let last = claim_one(h.store(), owner).await;
    assert_eq!(settle(h.store(), owner, &last, &Verdict::Ack).await, Settled::Applied);
}

/// What a verdict leaves of a message, without what differs from one to the next.
fn shown(found: StoredMessage) -> String {
    let waits = found.due_at.map(|due_at| due_at > found.created_at + MINUTE);
    format!(
        "{} attempts {} lost {} error {:?} owner {:?} settled {} by {:?} receipt {} waits {waits:?} bytes {:?}",
        found.state.as_str(),
        found.attempts,
        found.lost_lease_count,
        found.last_error,
        found.owner,
        found.settled_at.is_some(),
        found.settled_by,
        found.is_receipt,
        found.message.map(|message| message.payload().len()),
    )
}

/// Every verdict does in a transaction what it does outside of one. BUS-03, OBX-034, OBX-041, OBX-047.
pub async fn every_verdict_means_the_same<H: Harness>() {
    for retention in [Retention::Delete, Retention::Receipt(DAY), Retention::Message(DAY)] {
        let h = H::start(keeping(retention)).await;
        let owner = OwnerToken::new();
        let verdicts = every_verdict().into_iter().chain([abandon(HOUR, "later"), release(HOUR), fail("")]);
        for verdict in verdicts {
            let (plain_id, plain) = enqueue_and_claim(h.store(), owner).await;
            let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
            assert_eq!(settle(h.store(), owner, &plain, &verdict).await, Settled::Applied);
            let mut tx = begin(&h).await;
            assert_eq!(settle_in(&h, &mut tx, owner, &claimed, &verdict).await, Settled::Applied, "{verdict:?}");
            tx.commit().await.expect("it can be committed");
            let (plain, found) = (find(h.store(), plain_id).await, find(h.store(), id).await);
            assert_eq!(found.map(shown), plain.map(shown), "{verdict:?}, {retention:?}");
            let rest = claim(h.store(), owner, 10).await;
            settle_all(h.store(), owner, &rest, &Verdict::Ack).await;
        }
    }
}

/// A message is settled once: in one call, in one transaction, in the next one, and outside of it. BUS-03, OBX-034, HOT-25.
pub async fn a_message_is_settled_once<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for (first, second) in every_verdict().into_iter().zip(every_verdict().into_iter().rev()) {
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        let mut tx = begin(&h).await;
        let twice = [settlement(&claimed, &first), settlement(&claimed, &second)];
        let settled = tx.settle(h.store(), owner, &twice).await.expect("a settle succeeds");
        assert_eq!(settled, [Settled::Applied, Settled::LeaseLost], "{first:?}, {second:?}");
        assert_eq!(settle_in(&h, &mut tx, owner, &claimed, &second).await, Settled::LeaseLost);
        tx.commit().await.expect("it can be committed");
        let mut tx = begin(&h).await;
        assert_eq!(settle_in(&h, &mut tx, owner, &claimed, &second).await, Settled::LeaseLost);
        tx.commit().await.expect("a lost lease leaves it whole");
        assert_eq!(settle(h.store(), owner, &claimed, &second).await, Settled::LeaseLost);
        let expected = match first {
            Verdict::Ack => State::Done,
            Verdict::Fail { .. } => State::Dead,
            Verdict::Abandon { .. } | Verdict::Release { .. } => State::Pending,
        };
        assert_eq!(state(h.store(), id).await, expected, "{first:?}");
        claim(h.store(), owner, 10).await;
    }
}

/// Each settlement is answered in its place, however many there are and whatever is asked; too many are refused before
/// anything is sent, and none is a no-op that proves nothing. BUS-03, OBX-034, OBX-080.
pub async fn answers_come_in_the_order_of_the_settlements<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    enqueue(h.store(), &messages(300)).await;
    let claimed = claim(h.store(), owner, 300).await;
    let verdicts = every_verdict();
    let mut asked: Vec<_> =
        claimed.iter().zip(verdicts.iter().cycle()).map(|(one, verdict)| settlement(one, verdict)).collect();
    asked.reverse();
    let mut expected = vec![Settled::Applied; 300];
    for at in [0, 7, 299] {
        asked[at].held.fence = Fence::new();
        expected[at] = Settled::LeaseLost;
    }
    let mut tx = begin(&h).await;
    let too_many = vec![asked[0].clone(); SETTLE_MAX + 1];
    assert_eq!(refused_fields(tx.settle(h.store(), owner, &too_many).await), ["settlements"]);
    assert_eq!(tx.settle(h.store(), owner, &[]).await.expect("nothing is wrong with it"), []);
    assert_eq!(tx.settle(h.store(), owner, &asked).await.expect("a settle succeeds"), expected);
    tx.commit().await.expect("it can be committed");
    let found = counts(h.store()).await;
    assert_eq!(found.processing, 3, "{found:?}");
    assert_eq!((found.pending, found.done, found.dead), (150, 73, 74), "{found:?}");
}

/// A new message, a verdict and a row of the user's are one commit, or nothing. BUS-03, HOT-02, OBX-003.
pub async fn a_message_a_verdict_and_a_row_are_one_commit<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for is_committed in [false, true] {
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        let next = messages(1);
        let mut tx = begin(&h).await;
        tx.enqueue(h.store(), Enqueue::pending(&next)).await.expect("a message can be enqueued");
        assert_eq!(settle_in(&h, &mut tx, owner, &claimed, &Verdict::Ack).await, Settled::Applied);
        h.write_row_on(&mut tx).await;
        if is_committed {
            tx.commit().await.expect("it can be committed");
        } else {
            tx.rollback().await.expect("it can be rolled back");
        }
        assert_eq!(state(h.store(), id).await == State::Done, is_committed);
        assert_eq!(find(h.store(), next[0].id()).await.is_some(), is_committed);
        assert_eq!(h.business_row_count().await, u64::from(is_committed));
    }
}

/// A message that is born leased in a transaction can be settled in the same one. BUS-03, H29.
pub async fn a_message_born_leased_in_it_can_be_settled_in_it<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for verdict in every_verdict() {
        let batch = messages(1);
        let lease = Lease::new(owner, LEASE).expect("the lease is legal");
        let mut tx = begin(&h).await;
        let born = tx.enqueue(h.store(), Enqueue::leased(&batch, lease)).await.expect("it can be enqueued");
        let Placement::Leased(held) = born[0].placement else { panic!("it is born leased") };
        let asked = [Settlement { held, verdict: verdict.clone() }];
        for expected in [Settled::Applied, Settled::LeaseLost] {
            assert_eq!(tx.settle(h.store(), owner, &asked).await.expect("a settle succeeds"), [expected]);
        }
        tx.commit().await.expect("it can be committed");
        assert_ne!(state(h.store(), batch[0].id()).await, State::Processing, "{verdict:?}");
    }
}

/// The queue of an inbox settles in a transaction that was begun on the outbox's store; the receipt is done with its commit.
/// BUS-03, IBX-038, IBX-044, IBX-102.
pub async fn an_inboxes_queue_settles_in_the_outboxes_transaction<H: Harness>() {
    let h = start::<H>().await;
    let (inbox, owner) = (h.inbox().await, OwnerToken::new());
    let queue = H::Store::queue_of(&inbox);
    assert_eq!(queue.id(), inbox.id());
    receive(&inbox, incoming("1", "")).await;
    let claimed = claim_one(&queue, owner).await;
    for is_committed in [false, true] {
        let mut tx = begin(&h).await;
        h.write_row_on(&mut tx).await;
        let settled = tx.settle(&queue, owner, &[Settlement::ack(claimed.held)]).await.expect("a settle succeeds");
        assert_eq!(settled, [Settled::Applied]);
        assert_eq!(inbox_state(&inbox, "1").await, InboxState::Processing);
        if is_committed {
            tx.commit().await.expect("it can be committed");
        } else {
            tx.rollback().await.expect("it can be rolled back");
        }
        let expected = if is_committed { InboxState::Done } else { InboxState::Processing };
        assert_eq!(inbox_state(&inbox, "1").await, expected);
    }
    assert_eq!(h.business_row_count().await, 1);
    assert_eq!(receive(&inbox, incoming("1", "")).await.outcome, Reception::Done);
}

/// What a transaction gives back is found by the next claim of the same handle once it is committed, however rarely claims
/// look at everything. BUS-03, OBX-042.
pub async fn what_it_gives_back_is_found_at_once<H: Harness>() {
    let h = H::start(StoreOptions { rescan_interval: HOUR, ..options() }).await;
    let owner = OwnerToken::new();
    for verdict in [abandon(Duration::ZERO, ""), release(Duration::ZERO)] {
        enqueue(h.store(), &messages(2)).await;
        let claimed = claim(h.store(), owner, 10).await;
        let mut tx = begin(&h).await;
        assert_eq!(settle_in(&h, &mut tx, owner, &claimed[0], &verdict).await, Settled::Applied);
        if H::HAS_ROW_LOCKS {
            let (later, of_later) = (messages(1), OwnerToken::new());
            enqueue(h.store(), &later).await;
            assert_eq!(ids_of(&claim(h.store(), of_later, 10).await), ids(&later));
        }
        tx.commit().await.expect("it can be committed");
        let found = claim(h.store(), owner, 10).await;
        assert_eq!(ids_of(&found), ids_of(&claimed[..1]), "after {verdict:?}");
        settle_all(h.store(), owner, &[found[0].clone(), claimed[1].clone()], &Verdict::Ack).await;
    }
}

/// A transaction that the database has given up settles nothing, whether it is asked before or after. BUS-03, H9, H10, H11.
pub async fn a_spoiled_transaction_settles_nothing<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for verdict in [Verdict::Ack, fail("why")] {
        for is_asked_after in [true, false] {
            let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
            let asked = [settlement(&claimed, &verdict)];
            let mut tx = begin(&h).await;
            if is_asked_after {
                h.spoil(&mut tx).await;
                let refused = tx.settle(h.store(), owner, &asked).await.expect_err("it is spoiled");
                assert!(!refused.is_transient(), "{refused}");
            } else {
                tx.settle(h.store(), owner, &asked).await.expect("a settle succeeds");
                h.spoil(&mut tx).await;
            }
            assert_eq!(tx.settle(h.store(), owner, &[]).await.expect("nothing is sent"), []);
            let ended = tx.commit().await;
            assert!(matches!(ended, Err(CommitError::RolledBack(_))), "{ended:?}");
            assert_eq!(state(h.store(), id).await, State::Processing);
            assert_eq!(settle(h.store(), owner, &claimed, &Verdict::Ack).await, Settled::Applied);
        }
    }
}

/// Where a statement has ended the transaction, a verdict and a registration are refused: they would stand alone. H9, H11, BUS-03.
pub async fn nothing_stands_alone_after_the_transaction_has_ended<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let owner = OwnerToken::new();
    let batch = messages(1);
    enqueue(h.store(), &batch).await;
    let claimed = claim(h.store(), owner, 1).await;
    let mut tx = begin(&h).await;
    h.roll_back_behind(&mut tx).await;
    assert!(tx.settle(h.store(), owner, &[Settlement::ack(claimed[0].held)]).await.is_err());
    assert!(tx.commit().await.is_err());
    assert_eq!(state(h.store(), batch[0].id()).await, State::Processing);

    let mut tx = begin(&h).await;
    h.roll_back_behind(&mut tx).await;
    assert!(inbox.register(&mut tx, &receipt("1")).await.is_err());
    assert!(tx.commit().await.is_err());
    assert!(!see(&inbox, &receipt("1")).await.is_processed());
}
