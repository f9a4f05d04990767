//! Registering a receipt on an open transaction: effects and record are committed together, once.

use std::sync::Arc;

use tokio::sync::Barrier;

use super::support::*;
use crate::Harness;
use crate::harness::Inbox;

/// Registers, writes a row and commits when it is new; what the registration said.
async fn consume<H: Harness>(h: &H, inbox: &Inbox<H>, receipt: &Receipt) -> Registered {
    let mut tx = h.begin().await;
    let registered = inbox.register(&mut tx, receipt).await.expect("a receipt can be registered").registered;
    if registered == Registered::New {
        h.write_business_row(&mut tx).await;
        h.commit(tx).await;
    } else {
        h.rollback(tx).await;
    }
    registered
}

fn lease() -> Lease {
    Lease::new(OwnerToken::new(), LEASE).expect("the lease is legal")
}

async fn take_lease(inbox: &impl InboxStore, receipt: &Receipt, lease: Lease) -> Registered {
    inbox.lease(receipt, lease).await.expect("a lease can be asked for").registered
}

/// A consumed message is done with the commit of its effects, and a duplicate from then on. IBX-001, IBX-003, IBX-102.
pub async fn a_consumed_message_is_done<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    assert_eq!(consume(&h, &inbox, &receipt("1")).await, Registered::New);
    assert_eq!(consume(&h, &inbox, &receipt("1")).await, Registered::Duplicate);
    assert_eq!(h.business_row_count().await, 1);
    assert!(see(&inbox, &receipt("1")).await.is_processed());
    assert_eq!(receive(&inbox, incoming("1", "")).await.outcome, Reception::Done);
    let record = record(&inbox, "1").await;
    assert_eq!((record.state, record.topic), (InboxState::Done, None));
}

/// A consumer that rolls back leaves no trace; the next one is the first again. IBX-102.
pub async fn a_rolled_back_consumer_leaves_nothing<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let mut tx = h.begin().await;
    assert_eq!(inbox.register(&mut tx, &receipt("1")).await.expect("it can be registered").registered, Registered::New);
    h.write_business_row(&mut tx).await;
    h.rollback(tx).await;
    assert_eq!(inbox.get("source", "1").await.expect("a message can be looked up"), None);
    assert_eq!(consume(&h, &inbox, &receipt("1")).await, Registered::New);
    assert_eq!(h.business_row_count().await, 1);
}

/// The transaction that the store begins takes receipts and messages, and its commit knows that it is whole. IBX-102.
pub async fn a_begun_transaction_takes_a_receipt<H: Harness>() {
    use pillarbox_core::{StoreTransaction, Transactional};
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let batch = messages(1);
    for expected in [Registered::New, Registered::Duplicate] {
        let mut tx = h.store().begin().await.expect("a transaction begins");
        assert_eq!(inbox.register(&mut tx, &receipt("1")).await.expect("it can be registered").registered, expected);
        tx.enqueue(h.store(), Enqueue::pending(&batch)).await.expect("a message can be enqueued");
        tx.commit().await.expect("the transaction is whole");
    }
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&batch));
    assert_eq!(inbox_state(&inbox, "1").await, InboxState::Done);
    let mut tx = h.store().begin().await.expect("a transaction begins");
    h.spoil(&mut tx).await;
    inbox.register(&mut tx, &receipt("2")).await.expect_err("the transaction is spoiled");
    tx.commit().await.expect_err("the transaction is spoiled");
    assert_eq!(inbox.get("source", "2").await.expect("a message can be looked up"), None);
}

/// Registered twice in one transaction, a message is new once. IBX-002.
pub async fn a_receipt_is_new_once_in_a_transaction<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let mut tx = h.begin().await;
    for expected in [Registered::New, Registered::Duplicate, Registered::Duplicate] {
        assert_eq!(inbox.register(&mut tx, &receipt("1")).await.expect("it can be registered").registered, expected);
    }
    h.commit(tx).await;
    assert_eq!(inbox_state(&inbox, "1").await, InboxState::Done);
}

/// What was only seen, or given up without a queue, can be consumed; what the queue has cannot, until it is done there.
/// IBX-003, IBX-078.
pub async fn what_the_queue_has_is_not_consumed<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    see(&inbox, &receipt("seen")).await;
    mark(&inbox, &receipt("marked"), Mark::Processing).await;
    mark(&inbox, &receipt("dead"), Mark::Dead("why".into())).await;
    for id in ["seen", "marked", "dead"] {
        assert_eq!(consume(&h, &inbox, &receipt(id)).await, Registered::New, "{id}");
    }
    receive(&inbox, incoming("queued", "")).await;
    assert_eq!(consume(&h, &inbox, &receipt("queued")).await, Registered::InProgress);
    handle(&inbox, &fail("poison")).await;
    assert_eq!(consume(&h, &inbox, &receipt("queued")).await, Registered::InProgress, "a replay may bring it back");
    receive(&inbox, incoming("queued", "")).await;
    handle(&inbox, &Verdict::Ack).await;
    assert_eq!(consume(&h, &inbox, &receipt("queued")).await, Registered::Duplicate);
    assert_eq!(h.business_row_count().await, 3);
}

/// A hash that contradicts the first one is counted by a consumer too, when it commits. IBX-007, IBX-008.
pub async fn a_consumer_counts_another_content<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    see(&inbox, &hashed("1", "first")).await;
    assert_eq!(consume(&h, &inbox, &hashed("1", "second")).await, Registered::New);
    let record = record(&inbox, "1").await;
    assert_eq!((record.mismatch_count, record.state), (1, InboxState::Done));
}

/// A consumer learns that its content contradicts the first one, whatever else it learns. IBX-008.
pub async fn a_consumer_is_told_of_another_content<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    for (content, is_mismatch) in [("first", false), ("second", true), ("first", false), ("second", true)] {
        let one = hashed("1", content);
        let leased = inbox.lease(&one, lease()).await.expect("a lease can be asked for");
        assert_eq!(leased.is_mismatch, is_mismatch, "{leased:?}");
        let mut tx = h.begin().await;
        let registered = inbox.register(&mut tx, &one).await.expect("it can be registered");
        assert_eq!(registered.is_mismatch, is_mismatch, "{registered:?}");
        h.rollback(tx).await;
        let marked = inbox.mark(&one, Mark::Processed).await.expect("a message can be marked");
        assert_eq!(marked.is_mismatch, is_mismatch, "{marked:?}");
    }
}

/// A lease keeps other consumers away until it is given back or runs out; its holder registers under it.
/// IBX-033, IBX-034, IBX-035, IBX-078.
pub async fn a_lease_keeps_other_consumers_away<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let (one, mine, other) = (receipt("1"), lease(), lease());
    assert_eq!(take_lease(&inbox, &one, mine).await, Registered::New);
    assert_eq!(take_lease(&inbox, &one, other).await, Registered::InProgress);
    assert_eq!(consume(&h, &inbox, &one).await, Registered::InProgress);
    assert!(!inbox.release(&one, other).await.expect("a lease can be given back"), "it is not theirs");
    let mut tx = h.begin().await;
    let registered = inbox.register_under(&mut tx, &one, Some(mine)).await;
    assert_eq!(registered.expect("it can be registered").registered, Registered::New);
    h.commit(tx).await;
    assert_eq!(take_lease(&inbox, &one, other).await, Registered::Duplicate);
    assert!(!inbox.release(&one, mine).await.expect("a lease can be given back"), "it is done");
    assert_eq!(inbox_state(&inbox, "1").await, InboxState::Done);

    let two = receipt("2");
    assert_eq!(take_lease(&inbox, &two, mine).await, Registered::New);
    assert!(inbox.release(&two, mine).await.expect("a lease can be given back"));
    assert_eq!(inbox_state(&inbox, "2").await, InboxState::Seen);
    assert_eq!(take_lease(&inbox, &two, other).await, Registered::New);
}

/// A zombie whose lease was taken over, as after a jump of the clock, registers nothing. IBX-033, IBX-045, H25.
pub async fn a_zombie_consumer_registers_nothing<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let (one, zombie, heir) = (receipt("1"), lease(), lease());
    assert_eq!(take_lease(&inbox, &one, zombie).await, Registered::New);
    h.advance(LEASE).await;
    assert_eq!(take_lease(&inbox, &one, heir).await, Registered::New);
    let mut tx = h.begin().await;
    let registered = inbox.register_under(&mut tx, &one, Some(zombie)).await;
    assert_eq!(registered.expect("it can be asked for").registered, Registered::InProgress);
    h.rollback(tx).await;
    // What is queued in the meantime is the queue's: nothing is lost, and nothing takes effect twice.
    assert_eq!(receive(&inbox, incoming("1", "")).await.outcome, Reception::Queued);
    let mut tx = h.begin().await;
    let registered = inbox.register_under(&mut tx, &one, Some(heir)).await;
    assert_eq!(registered.expect("it can be asked for").registered, Registered::InProgress);
    h.rollback(tx).await;
}

/// Whoever registers what another transaction has registered waits for its end: a duplicate after its commit, the first after
/// its rollback. IBX-006, H14.
pub async fn a_second_consumer_waits_for_the_first<H: Harness>() {
    let h = Arc::new(start::<H>().await);
    let inbox = h.inbox().await;
    for (id, is_kept) in [("kept", true), ("undone", false)] {
        let mut first = h.begin().await;
        let registered = inbox.register(&mut first, &receipt(id)).await;
        assert_eq!(registered.expect("it can be registered").registered, Registered::New);
        let second = {
            let (h, inbox, id) = (Arc::clone(&h), inbox.clone(), id.to_owned());
            tokio::spawn(async move { consume(&*h, &inbox, &receipt(&id)).await })
        };
        tokio::task::yield_now().await;
        if is_kept {
            h.commit(first).await;
        } else {
            h.rollback(first).await;
        }
        let expected = if is_kept { Registered::Duplicate } else { Registered::New };
        assert_eq!(second.await.expect("the second consumer ends"), expected);
    }
    assert_eq!(h.business_row_count().await, 1);
}

/// Thirty-two connections deliver one message at once, at every isolation level that the database has: one effect.
/// IBX-006, IBX-102, IBX-103, IBX-104, IBX-105, H14.
pub async fn thirty_two_consumers_have_one_effect<H: Harness>() {
    let h = Arc::new(start::<H>().await);
    let inbox = h.inbox().await;
    for (round, level) in H::ISOLATION_LEVELS.iter().enumerate() {
        let id = format!("message {round}");
        let gate = Arc::new(Barrier::new(32));
        let deliver = |_| {
            let (h, inbox, gate, id) = (Arc::clone(&h), inbox.clone(), Arc::clone(&gate), id.clone());
            async move { deliver_once(&*h, &inbox, &gate, level, &receipt(&id)).await }
        };
        let answers = at_once((0..32).map(deliver)).await;
        let new_count = answers.iter().filter(|answer| **answer == Registered::New).count();
        assert_eq!(new_count, 1, "{level}: {answers:?}");
        assert!(answers.iter().all(|answer| *answer != Registered::InProgress), "{level}: {answers:?}");
        assert_eq!(h.business_row_count().await, round as u64 + 1, "{level}");
        assert_eq!(inbox_state(&inbox, &id).await, InboxState::Done);
    }
}

/// Begins again as long as the database asks for it; all begin the first time before any goes on.
async fn deliver_once<H: Harness>(
    h: &H,
    inbox: &Inbox<H>,
    gate: &Barrier,
    level: &str,
    receipt: &Receipt,
) -> Registered {
    let mut is_first = true;
    loop {
        let mut tx = h.begin_at(level).await;
        if std::mem::take(&mut is_first) {
            gate.wait().await;
        }
        match inbox.register(&mut tx, receipt).await.map(|admission| admission.registered) {
            Ok(Registered::New) => {
                h.write_business_row(&mut tx).await;
                if h.commit_at(tx).await {
                    return Registered::New;
                }
            }
            Ok(other) => {
                h.rollback(tx).await;
                return other;
            }
            Err(error) => {
                assert_eq!(error.kind(), pillarbox_core::ErrorKind::Conflict, "{level}: {error}");
                h.rollback(tx).await;
            }
        }
    }
}
