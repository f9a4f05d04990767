//! Enqueueing a message again, as a caller does who does not know whether a commit succeeded.

use super::support::*;
use crate::Harness;

async fn assert_known<H: Harness>(h: &H, message: &Message) {
    let before = stored(h.store(), message.id()).await;
    let again = std::slice::from_ref(message);
    assert_eq!(place(h.store(), Enqueue::pending(again)).await, [Placement::Duplicate]);
    let lease = Lease::new(OwnerToken::new(), LEASE).expect("the lease is legal");
    assert_eq!(place(h.store(), Enqueue::leased(again, lease)).await, [Placement::Duplicate]);
    assert_eq!(stored(h.store(), message.id()).await, before, "nothing was changed");
    let counts = counts(h.store()).await;
    assert_eq!(counts.pending + counts.processing + counts.done + counts.dead, 1);
}

/// A message that waits to be claimed is not stored again. H1.
pub async fn a_pending_message_is_known<H: Harness>() {
    let h = start::<H>().await;
    let message = messages(1).remove(0);
    enqueue(h.store(), std::slice::from_ref(&message)).await;
    assert_known(&h, &message).await;
}

/// A message that waits for its due time is not stored again. H1.
pub async fn a_waiting_message_is_known<H: Harness>() {
    let h = start::<H>().await;
    let message = messages(1).remove(0).delay(HOUR);
    enqueue(h.store(), std::slice::from_ref(&message)).await;
    assert_known(&h, &message).await;
    let at_once = messages(1).remove(0).with_id(message.id());
    assert_eq!(place(h.store(), Enqueue::pending(&[at_once])).await, [Placement::Duplicate]);
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
}

/// A message that is being handled is not stored again. H1.
pub async fn a_claimed_message_is_known<H: Harness>() {
    let h = start::<H>().await;
    let message = messages(1).remove(0);
    enqueue(h.store(), std::slice::from_ref(&message)).await;
    claim_one(h.store(), OwnerToken::new()).await;
    assert_known(&h, &message).await;
}

/// A message that is done and kept is not handled again. H1.
pub async fn a_done_message_is_known<H: Harness>() {
    for retention in [Retention::Message(DAY), Retention::Receipt(DAY)] {
        let h = H::start(keeping(retention)).await;
        let message = messages(1).remove(0);
        enqueue(h.store(), std::slice::from_ref(&message)).await;
        let owner = OwnerToken::new();
        let claimed = claim(h.store(), owner, 1).await;
        settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
        assert_known(&h, &message).await;
    }
}

/// A dead message is not revived by its producer. H1.
pub async fn a_dead_message_is_known<H: Harness>() {
    let h = start::<H>().await;
    let message = messages(1).remove(0);
    bury(h.store(), std::slice::from_ref(&message), "broken").await;
    assert_known(&h, &message).await;
}

/// The same message twice in one batch is stored once. H1.
pub async fn a_message_named_twice_in_a_batch_is_stored_once<H: Harness>() {
    let h = start::<H>().await;
    let plain = messages(1).remove(0);
    let later = messages(1).remove(0).delay(HOUR);
    let both = messages(1).remove(0);
    let batch = [plain.clone(), later.clone(), both.clone(), plain.clone(), later.clone(), both.clone().delay(HOUR)];
    let places = place(h.store(), Enqueue::pending(&batch)).await;
    assert_eq!(places.iter().filter(|place| **place == Placement::Duplicate).count(), 3, "{places:?}");
    assert_eq!(&places[3..5], [Placement::Duplicate; 2]);
    assert_eq!(counts(h.store()).await.pending, 3);
}

/// A known message does not harm the user's transaction: its other writes commit. H1, HOT-02.
pub async fn a_known_message_leaves_the_transaction_whole<H: Harness>() {
    let h = start::<H>().await;
    let known = messages(1).remove(0);
    enqueue(h.store(), std::slice::from_ref(&known)).await;
    let new = messages(1).remove(0);
    let mut tx = h.begin().await;
    let batch = [known.clone(), new.clone()];
    let enqueued = h.enqueue_in(&mut tx, Enqueue::pending(&batch)).await.expect("a known message is no error");
    assert_eq!(enqueued[0].placement, Placement::Duplicate);
    assert!(enqueued[1].placement.work_id().is_some());
    let again = h.enqueue_in(&mut tx, Enqueue::pending(&batch)).await.expect("a known message is no error");
    assert_eq!(again.iter().map(|one| one.placement).collect::<Vec<_>>(), [Placement::Duplicate; 2]);
    h.write_business_row(&mut tx).await;
    h.commit(tx).await;
    assert_eq!(h.business_row_count().await, 1);
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), [known.id(), new.id()]);
}

/// After a rollback the same message can be enqueued as if for the first time. H1, OBX-003.
pub async fn a_rolled_back_message_can_be_enqueued_again<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(2);
    let mut tx = h.begin().await;
    h.enqueue_in(&mut tx, Enqueue::pending(&batch)).await.expect("messages can be enqueued");
    h.rollback(tx).await;
    enqueue(h.store(), &batch).await;
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&batch));
}
