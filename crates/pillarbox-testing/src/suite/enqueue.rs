//! Storing messages, in a transaction of one's own or without one.

use std::time::Duration;

use super::support::*;
use crate::Harness;

/// A message is there with the change it tells about once the user's transaction commits, for every other process too.
/// OBX-001, OBX-003, HOT-02.
pub async fn a_committed_message_is_stored_with_the_change_it_tells_about<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(3);
    let mut tx = h.begin().await;
    h.write_business_row(&mut tx).await;
    let enqueued = h.enqueue_in(&mut tx, Enqueue::pending(&batch)).await.expect("messages can be enqueued");
    assert_eq!(enqueued.len(), 3);
    h.commit(tx).await;
    assert_eq!(h.business_row_count().await, 1);
    assert_eq!(ids_of(&claim(&another(&h).await, OwnerToken::new(), 10).await), ids(&batch));
}

/// A rolled back message is never handed out, not even to a claim that ran meanwhile. OBX-003, HOT-02, H2.
pub async fn a_rolled_back_message_never_existed<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(3);
    let mut tx = h.begin().await;
    h.write_business_row(&mut tx).await;
    h.enqueue_in(&mut tx, Enqueue::pending(&batch)).await.expect("messages can be enqueued");
    let store = h.store().clone();
    let meanwhile = tokio::spawn(async move { claim(&store, OwnerToken::new(), 10).await });
    h.rollback(tx).await;
    assert_eq!(meanwhile.await.expect("the claim ends"), []);
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
    assert_eq!(h.business_row_count().await, 0);
    for message in &batch {
        assert_eq!(find(h.store(), message.id()).await, None);
    }
}

/// Nobody sees a message before the commit. OBX-003, OBX-081, HOT-02.
pub async fn an_uncommitted_message_is_invisible<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(1);
    let mut tx = h.begin().await;
    h.enqueue_in(&mut tx, Enqueue::pending(&batch)).await.expect("messages can be enqueued");
    let before = find(h.store(), batch[0].id()).await;
    h.commit(tx).await;
    assert_eq!(before, None);
    assert!(find(h.store(), batch[0].id()).await.is_some());
}

/// Without a transaction of the user's, the store commits the messages itself. OBX-001, OBX-002.
pub async fn enqueue_without_a_transaction_commits_by_itself<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(2);
    enqueue(h.store(), &batch).await;
    assert_eq!(ids_of(&claim(&another(&h).await, OwnerToken::new(), 10).await), ids(&batch));
}

/// One bad message refuses the whole batch, and nothing of it is stored. OBX-080.
pub async fn a_batch_is_stored_whole_or_not_at_all<H: Harness>() {
    let h = start::<H>().await;
    let mut batch = messages(2);
    batch.push(Message::new("", "no topic"));
    assert_eq!(refused_fields(h.store().enqueue(Enqueue::pending(&batch)).await), ["topic"]);
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
}

/// An empty batch does nothing and is no error, in a transaction too. HOT-02.
pub async fn an_empty_batch_is_a_no_op<H: Harness>() {
    let h = start::<H>().await;
    assert_eq!(place(h.store(), Enqueue::pending(&[])).await, []);
    let mut tx = h.begin().await;
    assert_eq!(h.enqueue_in(&mut tx, Enqueue::pending(&[])).await.expect("nothing is wrong with it"), []);
    h.commit(tx).await;
}

/// More messages than the limit of a batch are refused, as many as the limit are taken. H49.
pub async fn a_batch_is_bounded<H: Harness>() {
    let mut options = options();
    options.limits.batch_max = 3;
    let h = H::start(options).await;
    assert_eq!(refused_fields(h.store().enqueue(Enqueue::pending(&messages(4))).await), ["messages"]);
    enqueue(h.store(), &messages(3)).await;
    assert_eq!(counts(h.store()).await.pending, 3);
}

/// Ten thousand messages go in by one call, and their rows follow their order. OBX-014, H49.
pub async fn a_large_batch_keeps_its_order<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(10_000);
    let rows = enqueue(h.store(), &batch).await;
    assert!(rows.windows(2).all(|pair| pair[0] < pair[1]), "rows increase and none is used twice");
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10_000).await), ids(&batch));
}

/// Plain, delayed and known messages in one batch are each answered in their place. OBX-014.
pub async fn a_mixed_batch_is_answered_in_its_order<H: Harness>() {
    let h = start::<H>().await;
    let known = messages(1).remove(0);
    enqueue(h.store(), std::slice::from_ref(&known)).await;
    let plain = messages(2);
    let later = messages(2).into_iter().map(|message| message.delay(HOUR)).collect::<Vec<_>>();
    let batch = [later[0].clone(), plain[0].clone(), known.clone(), plain[1].clone(), later[1].clone()];
    let places = place(h.store(), Enqueue::pending(&batch)).await;
    assert_eq!(places[2], Placement::Duplicate);
    for at in [0, 1, 3, 4] {
        let row = stored(h.store(), batch[at].id()).await;
        assert_eq!(places[at], Placement::Pending(row.work_id), "message {at}");
        assert_eq!(row.due_at.is_some(), batch[at].is_delayed(), "message {at}");
    }
    let ready = ids_of(&claim(h.store(), OwnerToken::new(), 10).await);
    assert_eq!(ready, [known.id(), plain[0].id(), plain[1].id()]);
}

/// Every message has a row of its own. OBX-014.
pub async fn every_message_has_a_row_of_its_own<H: Harness>() {
    let h = start::<H>().await;
    let mut rows = enqueue(h.store(), &messages(2)).await;
    rows.extend(enqueue(h.store(), &messages(2)).await);
    let distinct: std::collections::HashSet<_> = rows.iter().collect();
    assert_eq!(distinct.len(), 4);
}

/// A row's number is never used again, also when the highest one is gone: a zombie must not meet a new message. H16, H22.
pub async fn a_row_number_is_never_used_again<H: Harness>() {
    let h = H::start(keeping(Retention::Delete)).await;
    let owner = OwnerToken::new();
    let (_, claimed) = enqueue_and_claim(h.store(), owner).await;
    settle_all(h.store(), owner, std::slice::from_ref(&claimed), &Verdict::Ack).await;
    assert!(enqueue(h.store(), &messages(1)).await[0] > claimed.held.work_id);
}

/// `created_at` is the database's time, whatever the producer says about its own. OBX-015, H24.
pub async fn a_message_is_stored_at_the_databases_time<H: Harness>() {
    let h = start::<H>().await;
    let first = messages(1).remove(0).occurred_at(std::time::SystemTime::UNIX_EPOCH + DAY);
    enqueue(h.store(), std::slice::from_ref(&first)).await;
    h.advance(10 * HOUR).await;
    let second = messages(1).remove(0).occurred_at(std::time::SystemTime::UNIX_EPOCH + DAY);
    enqueue(h.store(), std::slice::from_ref(&second)).await;
    let first = stored(h.store(), first.id()).await.created_at;
    let second = stored(h.store(), second.id()).await.created_at;
    assert_near(second.duration_since(first).expect("the second came later"), 10 * HOUR);
}

/// The clock that a store shows is the one by which it stores. A clock that does not go by itself is not shown. H25.
pub async fn a_store_shows_the_databases_clock<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(1);
    enqueue(h.store(), &batch).await;
    let stored_at = stored(h.store(), batch[0].id()).await.created_at;
    if let Some(shown) = h.store().clock().await.expect("the clock can be read") {
        assert_near(shown.duration_since(stored_at).unwrap_or_else(|earlier| earlier.duration()), Duration::ZERO);
    }
}

/// A new message is pending, untried and free. OBX-016.
pub async fn a_new_message_is_pending_and_untried<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(1);
    let rows = enqueue(h.store(), &batch).await;
    let row = stored(h.store(), batch[0].id()).await;
    assert_eq!((row.work_id, row.state, row.attempts, row.lost_lease_count), (rows[0], State::Pending, 0, 0));
    assert_eq!((row.owner, row.locked_until, row.settled_at, row.settled_by), (None, None, None, None));
    assert_eq!((row.last_error, row.due_at, row.is_receipt), (None, None, false));
}

/// A message with a delay is not handed out until the time has passed on the database's clock. OBX-012, OBX-018, H24.
pub async fn a_delayed_message_waits<H: Harness>() {
    let h = start::<H>().await;
    let message = messages(1).remove(0).delay(HOUR);
    enqueue(h.store(), std::slice::from_ref(&message)).await;
    assert_eq!(state(h.store(), message.id()).await, State::Pending);
    h.advance(59 * MINUTE).await;
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
    h.advance(MINUTE).await;
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), [message.id()]);
}

/// A due instant is compared with the database's clock, not with the machine's. OBX-012, H24.
pub async fn a_due_instant_follows_the_databases_clock<H: Harness>() {
    let h = start::<H>().await;
    let probe = messages(1);
    enqueue(h.store(), &probe).await;
    let now = stored(h.store(), probe[0].id()).await.created_at;
    let message = messages(1).remove(0).due_at(now + HOUR);
    enqueue(h.store(), std::slice::from_ref(&message)).await;
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), [probe[0].id()]);
    h.advance(HOUR).await;
    assert!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await).contains(&message.id()));
}

/// No due time, one in the past and a delay of nothing all mean now. OBX-013.
pub async fn a_message_due_in_the_past_is_ready_at_once<H: Harness>() {
    let h = start::<H>().await;
    let probe = messages(1);
    enqueue(h.store(), &probe).await;
    let now = stored(h.store(), probe[0].id()).await.created_at;
    let past = messages(1).remove(0).due_at(now - HOUR);
    let none = messages(1).remove(0).delay(Duration::ZERO);
    enqueue(h.store(), &[past.clone(), none.clone()]).await;
    let ready = ids_of(&claim(h.store(), OwnerToken::new(), 10).await);
    assert_eq!(ready, [probe[0].id(), past.id(), none.id()]);
}
