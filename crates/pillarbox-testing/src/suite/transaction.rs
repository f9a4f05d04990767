//! Transactions that a store begins for its user.

use pillarbox_core::{CommitError, StoreTransaction, Transactional};

use super::support::*;
use crate::{Harness, StoreTx};

/// More transactions than any pool of a harness has connections: what one of them spoils, another one meets.
const MANY: usize = 24;

/// Begins, writes a row of the user's and enqueues the messages.
async fn begin_with<H: Harness>(h: &H, batch: &[Message]) -> StoreTx<H> {
    let mut tx = begin(h).await;
    h.write_row_on(&mut tx).await;
    let enqueued = tx.enqueue(h.store(), Enqueue::pending(batch)).await.expect("messages can be enqueued");
    assert_eq!(enqueued.len(), batch.len());
    tx
}

/// Nothing of the messages is stored, and no transaction that would store them is open: storing them again would wait for it.
async fn assert_never_stored<H: Harness>(h: &H, batch: &[Message]) {
    assert_eq!(find(h.store(), batch[0].id()).await, None);
    let places = place(h.store(), Enqueue::pending(batch)).await;
    assert!(places.iter().all(|place| matches!(place, Placement::Pending(_))), "{places:?}");
}

/// Every connection that the store has is in order: transactions go through, and everybody sees what they stored.
async fn assert_in_order<H: Harness>(h: &H) {
    let other = another(h).await;
    for _ in 0..MANY {
        let batch = messages(1);
        begin_with(h, &batch).await.commit().await.expect("a transaction can be committed");
        assert!(find(&other, batch[0].id()).await.is_some(), "what was committed is visible");
        let alone = messages(1);
        enqueue(h.store(), &alone).await;
        assert!(find(&other, alone[0].id()).await.is_some(), "what the store commits is visible");
    }
}

/// The message is stored with the user's own row once the transaction commits, and not before. HOT-01, HOT-02, HOT-03, OBX-003.
pub async fn a_begun_transaction_stores_the_message_with_the_users_row<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(3);
    let tx = begin_with(&h, &batch).await;
    let other = another(&h).await;
    assert_eq!(find(&other, batch[0].id()).await, None);
    tx.commit().await.expect("it can be committed");
    assert_eq!(h.business_row_count().await, 1);
    assert_eq!(ids_of(&claim(&other, OwnerToken::new(), 10).await), ids(&batch));
}

/// A transaction that carries only rows of the user's, or nothing, commits too. HOT-02.
pub async fn a_begun_transaction_needs_no_message<H: Harness>() {
    let h = start::<H>().await;
    let mut tx = begin(&h).await;
    h.write_row_on(&mut tx).await;
    assert_eq!(tx.enqueue(h.store(), Enqueue::pending(&[])).await.expect("nothing is wrong with it"), []);
    tx.commit().await.expect("it can be committed");
    begin(&h).await.commit().await.expect("an empty one too");
    begin(&h).await.rollback().await.expect("or rolled back");
    assert_eq!(h.business_row_count().await, 1);
}

/// A transaction that is rolled back leaves nothing. HOT-02, HOT-03, H2.
pub async fn a_begun_transaction_can_be_rolled_back<H: Harness>() {
    let h = start::<H>().await;
    for _ in 0..MANY {
        let batch = messages(2);
        begin_with(&h, &batch).await.rollback().await.expect("it can be rolled back");
        assert_eq!(h.business_row_count().await, 0);
        assert_never_stored(&h, &batch).await;
    }
}

/// A transaction that is dropped is rolled back, and its connection is given back clean. HOT-02, H2, H31.
pub async fn a_dropped_transaction_leaves_nothing<H: Harness>() {
    let h = start::<H>().await;
    for _ in 0..MANY {
        let batch = messages(2);
        drop(begin_with(&h, &batch).await);
        assert_never_stored(&h, &batch).await;
    }
    assert_eq!(h.business_row_count().await, 0);
    assert_in_order(&h).await;
}

/// A transaction that the database has given up after an error is never reported as committed, whether the messages came
/// before the error or would have come after it. H9, H10, H11.
pub async fn a_spoiled_transaction_is_never_committed<H: Harness>() {
    let h = start::<H>().await;
    for _ in 0..3 {
        let before = messages(2);
        let mut tx = begin_with(&h, &before).await;
        h.spoil(&mut tx).await;
        let ended = tx.commit().await;
        assert!(matches!(ended, Err(CommitError::RolledBack(_))), "{ended:?}");
        assert_eq!(h.business_row_count().await, 0);
        assert_never_stored(&h, &before).await;

        let after = messages(2);
        let mut tx = begin(&h).await;
        h.write_row_on(&mut tx).await;
        h.spoil(&mut tx).await;
        let refused = tx.enqueue(h.store(), Enqueue::pending(&after)).await;
        assert!(refused.is_err_and(|error| !error.is_transient()));
        let ended = tx.commit().await;
        assert!(matches!(ended, Err(CommitError::RolledBack(_))), "{ended:?}");
        assert_eq!(h.business_row_count().await, 0);
        assert_never_stored(&h, &after).await;
    }
    assert_in_order(&h).await;
}

/// A spoiled transaction can be rolled back or dropped like any other. H10, H31.
pub async fn a_spoiled_transaction_spoils_no_other<H: Harness>() {
    let h = start::<H>().await;
    for _ in 0..3 {
        let batch = messages(1);
        let mut tx = begin_with(&h, &batch).await;
        h.spoil(&mut tx).await;
        tx.rollback().await.expect("it can be rolled back");
        let mut tx = begin_with(&h, &batch).await;
        h.spoil(&mut tx).await;
        drop(tx);
        assert_never_stored(&h, &batch).await;
    }
    assert_eq!(h.business_row_count().await, 0);
    assert_in_order(&h).await;
}

/// A transaction that was ended by a plain statement, behind our back, is never reported as committed. H9, H11.
pub async fn a_transaction_ended_behind_its_back_is_never_committed<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(2);
    let mut tx = begin_with(&h, &batch).await;
    h.roll_back_behind(&mut tx).await;
    let ended = tx.commit().await;
    assert!(ended.is_err());
    assert_eq!(h.business_row_count().await, 0);
    assert_never_stored(&h, &batch).await;
    assert_in_order(&h).await;
}

/// A commit whose session was ended is never reported as committed, whether or not the user had the connection last. The store
/// works on. H1, H20.
pub async fn a_commit_without_its_session_is_never_reported_as_committed<H: Harness>() {
    let h = start::<H>().await;
    for is_users in [false, true] {
        let batch = messages(2);
        let mut tx = begin(&h).await;
        h.write_row_on(&mut tx).await;
        let session = h.session_of(&mut tx).await;
        assert_eq!(session.is_some(), H::HAS_SESSIONS);
        tx.enqueue(h.store(), Enqueue::pending(&batch)).await.expect("messages can be enqueued");
        let Some(session) = session else {
            return tx.commit().await.expect("nobody can end what has no session");
        };
        if is_users {
            let _ = tx.connection();
        }
        h.end_session(session).await;
        match tx.commit().await {
            Err(CommitError::RolledBack(_)) if is_users => {}
            Err(CommitError::Unknown(_)) => {}
            other => panic!("the user's: {is_users}, answered {other:?}"),
        }
        assert_eq!(h.business_row_count().await, 0);
        assert_never_stored(&h, &batch).await;
    }
    assert_in_order(&h).await;
}

/// A begin that is dropped half-way leaves no transaction open, and no connection inside of one. H31.
pub async fn a_begin_cut_short_leaves_nothing_open<H: Harness>() {
    let h = start::<H>().await;
    let other = another(&h).await;
    for place in POLLS {
        cut_at(place, h.store().begin()).await;
        // As many at once as there are connections, so that each of them is used.
        let stored = at_once((0..8).map(|_| {
            let store = h.store().clone();
            async move {
                let batch = messages(1);
                enqueue(&store, &batch).await;
                batch[0].id()
            }
        }));
        for id in stored.await {
            assert!(find(&other, id).await.is_some(), "what the store commits is visible");
        }
    }
    assert_in_order(&h).await;
}

/// A commit that is dropped half-way is finished all the same, whatever came last in the transaction. H31, H1.
pub async fn a_commit_cut_short_is_finished<H: Harness>() {
    let h = H::start(losing(1_000)).await;
    for place in POLLS {
        cut_at(place, begin_with(&h, &messages(1)).await.commit()).await;
        let mut tx = begin_with(&h, &messages(1)).await;
        h.write_row_on(&mut tx).await;
        cut_at(place, tx.commit()).await;
    }
    recover(&h, 24).await;
    assert_eq!(h.business_row_count().await, 36);
    assert_in_order(&h).await;
}

/// A rollback that is dropped half-way is finished all the same. H31, H2.
pub async fn a_rollback_cut_short_is_finished<H: Harness>() {
    let h = start::<H>().await;
    for place in POLLS {
        let batch = messages(1);
        cut_at(place, begin_with(&h, &batch).await.rollback()).await;
        assert_never_stored(&h, &batch).await;
    }
    assert_eq!(h.business_row_count().await, 0);
    assert_in_order(&h).await;
}

/// An enqueue that is dropped half-way stays within its transaction: what the commit then answers is true. H31, H1.
pub async fn a_commit_after_an_enqueue_cut_short_tells_the_truth<H: Harness>() {
    let h = start::<H>().await;
    let mut committed = 0;
    for place in POLLS {
        // The larger one takes several statements where a statement has a limit.
        for size in [10, 1_250] {
            let batch = messages(size);
            let mut tx = begin(&h).await;
            h.write_row_on(&mut tx).await;
            cut_at(place, tx.enqueue(h.store(), Enqueue::pending(&batch))).await;
            match tx.commit().await {
                Ok(()) => {
                    committed += 1;
                    let ends = [find(h.store(), batch[0].id()).await, find(h.store(), batch[size - 1].id()).await];
                    assert_eq!(ends[0].is_some(), ends[1].is_some(), "all of a batch, or nothing");
                }
                Err(CommitError::RolledBack(_)) => assert_never_stored(&h, &batch).await,
                Err(other) => panic!("the commit was sent on a broken connection: {other}"),
            }
            assert_eq!(h.business_row_count().await, committed);
        }
    }
    assert_in_order(&h).await;
}

/// A nested transaction on its connection is a savepoint: kept or undone by itself, and ended by the outer one. HOT-02.
pub async fn a_nested_transaction_is_a_part_of_it<H: Harness>() {
    let h = start::<H>().await;
    for is_committed in [true, false] {
        let batch = messages(2);
        let mut tx = begin_with(&h, &batch[..1]).await;
        h.write_nested_row_on(&mut tx, true).await;
        h.write_nested_row_on(&mut tx, false).await;
        tx.enqueue(h.store(), Enqueue::pending(&batch[1..])).await.expect("it goes on");
        if is_committed {
            tx.commit().await.expect("it can be committed");
        } else {
            tx.rollback().await.expect("it can be rolled back");
        }
        assert_eq!(find(h.store(), batch[1].id()).await.is_some(), is_committed);
        assert_eq!(h.business_row_count().await, 2);
    }
}

/// A nested transaction of the driver's that is cut short while it begins may take the outer one with it, but nothing else, however
/// the outer one ends. H31.
pub async fn a_nested_begin_cut_short_spoils_no_other<H: Harness>() {
    let h = start::<H>().await;
    for place in POLLS {
        let batch = messages(1);
        let mut tx = begin_with(&h, &batch).await;
        cut_at(place, h.begin_nested_on(&mut tx)).await;
        match tx.commit().await {
            Ok(()) => assert!(find(h.store(), batch[0].id()).await.is_some(), "what is committed is stored"),
            Err(_) => assert_never_stored(&h, &batch).await,
        }
        for is_dropped in [false, true] {
            let mut tx = begin_with(&h, &messages(1)).await;
            cut_at(place, h.begin_nested_on(&mut tx)).await;
            if is_dropped {
                drop(tx);
            } else {
                let _ = tx.rollback().await;
            }
        }
    }
    assert_in_order(&h).await;
}

/// A message that is too large is refused before anything is sent, and the transaction goes on. OBX-080, HOT-02, H49.
pub async fn a_refused_message_leaves_it_whole<H: Harness>() {
    let mut options = options();
    options.limits.payload_bytes_max = 1_000;
    let h = H::start(options).await;
    let mut tx = begin(&h).await;
    h.write_row_on(&mut tx).await;
    let large = [Message::new("topic", vec![0; 1_001])];
    assert_eq!(refused_fields(tx.enqueue(h.store(), Enqueue::pending(&large)).await), ["payload"]);
    let batch = messages(1);
    tx.enqueue(h.store(), Enqueue::pending(&batch)).await.expect("it goes on");
    tx.commit().await.expect("it can be committed");
    assert_eq!(h.business_row_count().await, 1);
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&batch));
}

/// A message is stored once, however often it is enqueued in one transaction or after another. H1.
pub async fn a_message_enqueued_again_in_it_is_stored_once<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(2);
    let mut tx = begin_with(&h, &batch).await;
    let again = tx.enqueue(h.store(), Enqueue::pending(&batch)).await.expect("it is known");
    assert!(again.iter().all(|one| one.placement == Placement::Duplicate), "{again:?}");
    tx.commit().await.expect("it can be committed");
    let mut tx = begin(&h).await;
    let again = tx.enqueue(h.store(), Enqueue::pending(&batch)).await.expect("it is known");
    assert!(again.iter().all(|one| one.placement == Placement::Duplicate), "{again:?}");
    tx.commit().await.expect("it can be committed");
    assert_eq!(counts(h.store()).await.pending, 2);
}

/// A message born leased in it is held by its writer once it is committed, and never existed once it is rolled back.
/// HOT-03, H29.
pub async fn a_message_is_born_leased_in_it<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for is_committed in [false, true] {
        let batch = messages(2);
        let lease = Lease::new(owner, LEASE).expect("the lease is legal");
        let mut tx = begin(&h).await;
        h.write_row_on(&mut tx).await;
        let enqueued = tx.enqueue(h.store(), Enqueue::leased(&batch, lease)).await.expect("it can be enqueued");
        if is_committed {
            tx.commit().await.expect("it can be committed");
        } else {
            tx.rollback().await.expect("it can be rolled back");
        }
        let acks: Vec<_> = enqueued
            .iter()
            .map(|one| match one.placement {
                Placement::Leased(held) => Settlement::ack(held),
                other => panic!("must be leased, is {other:?}"),
            })
            .collect();
        assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
        let answer = if is_committed { Settled::Applied } else { Settled::LeaseLost };
        assert_eq!(h.store().settle(owner, &acks).await.expect("a settle succeeds"), [answer; 2]);
    }
}

/// Many writers at once each get their turn: none is refused, and nothing of theirs is lost. H12, HOT-02.
pub async fn many_transactions_at_once_all_commit<H: Harness>() {
    let h = std::sync::Arc::new(start::<H>().await);
    at_once((0..8).map(|_| {
        let h = std::sync::Arc::clone(&h);
        async move {
            for _ in 0..10 {
                begin_with(&*h, &messages(1)).await.commit().await.expect("it can be committed");
            }
        }
    }))
    .await;
    assert_eq!(h.business_row_count().await, 80);
    assert_eq!(counts(h.store()).await.pending, 80);
}
