//! The guarded door: only the very claim that a settlement names may change a message.

use std::time::Duration;

use super::support::*;
use crate::Harness;

/// Every verdict under a claim that does not hold the message is answered as lost and changes nothing.
async fn assert_refused<H: Harness>(h: &H, id: MessageId, owner: OwnerToken, held: Held) {
    let before = find(h.store(), id).await;
    for verdict in [Verdict::Ack, abandon(HOUR, "late"), abandon(Duration::ZERO, "late"), release(HOUR), fail("late")] {
        let late = [Settlement { held, verdict }];
        assert_eq!(h.store().settle(owner, &late).await.expect("a settle succeeds"), [Settled::LeaseLost]);
    }
    assert_eq!(h.store().renew(owner, &[held], HOUR).await.expect("a renew succeeds"), [Settled::LeaseLost]);
    assert_eq!(find(h.store(), id).await, before, "nothing was changed");
}

/// Nobody but its owner can ack, abandon, release or fail a message. OBX-033, OBX-040, OBX-046.
pub async fn only_the_owner_settles<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    assert_refused(&h, id, OwnerToken::new(), claimed.held).await;
    settle_all(h.store(), owner, &[claimed], &Verdict::Ack).await;
}

/// Rows that do not exist are ignored, beside those that do. OBX-034, OBX-041, OBX-047.
pub async fn unknown_rows_are_ignored<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for verdict in every_verdict() {
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        let unknown = Held { work_id: WorkId::from_i64(987_654_321), ..claimed.held };
        let asked = [Settlement { held: unknown, verdict: verdict.clone() }, Settlement::ack(claimed.held)];
        let settled = h.store().settle(owner, &asked).await.expect("a settle succeeds");
        assert_eq!(settled, [Settled::LeaseLost, Settled::Applied], "{verdict:?}");
        assert_eq!(state(h.store(), id).await, State::Done);
    }
}

/// The right owner with another fence than its claim's, as after a restored backup, changes nothing. H16.
pub async fn another_fence_changes_nothing<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    for fence in [Fence::new(), Fence::from_i64(0), Fence::from_i64(claimed.held.fence.as_i64() - 1)] {
        assert_refused(&h, id, owner, Held { fence, ..claimed.held }).await;
    }
    settle_all(h.store(), owner, &[claimed], &Verdict::Ack).await;
}

/// A message that nobody holds cannot be settled, not even with the fence that stands for "never claimed". H4, H16.
pub async fn a_free_message_cannot_be_settled<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(1);
    let work_id = enqueue(h.store(), &batch).await[0];
    assert_refused(&h, batch[0].id(), OwnerToken::new(), Held { work_id, fence: Fence::from_i64(0) }).await;
}

/// A zombie whose message was taken over changes nothing, also when it took it over itself. H4, H22, OBX-033.
pub async fn a_zombie_changes_nothing<H: Harness>() {
    let h = start::<H>().await;
    let zombie = OwnerToken::new();
    let (id, before) = enqueue_and_claim(h.store(), zombie).await;
    for successor in [OwnerToken::new(), zombie] {
        h.advance(LEASE).await;
        let claimed = claim_one(h.store(), successor).await;
        assert_refused(&h, id, zombie, before.held).await;
        assert_eq!(claimed.held.work_id, before.held.work_id);
    }
    h.advance(LEASE).await;
    let last = claim_one(h.store(), OwnerToken::new()).await;
    assert_refused(&h, id, zombie, before.held).await;
    assert_eq!(last.attempts, 4);
}

/// A worker whose lease was reaped changes nothing: the message is free, and stays so. H4, H22.
pub async fn a_reaped_worker_changes_nothing<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    h.advance(LEASE).await;
    assert_eq!(reap_all(h.store()).await.released, 1);
    assert_refused(&h, id, owner, claimed.held).await;
    assert_eq!(claim_one(h.store(), owner).await.held.work_id, claimed.held.work_id);
}

/// A lease that ran out is still good while nobody took over: work that was done is not thrown away. OBX-033.
pub async fn a_late_settlement_stands_when_nobody_took_over<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for verdict in every_verdict() {
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        h.advance(2 * LEASE).await;
        assert_eq!(settle(h.store(), owner, &claimed, &verdict).await, Settled::Applied, "{verdict:?}");
        assert_eq!(stored(h.store(), id).await.lost_lease_count, 0);
        claim(h.store(), owner, 10).await;
    }
}

/// A settlement applies once: the second time it is answered as lost, whatever the first verdict was. OBX-034, HOT-25.
pub async fn a_settlement_applies_once<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for verdict in [Verdict::Ack, abandon(HOUR, "x"), abandon(Duration::ZERO, "x"), release(Duration::ZERO), fail("x")]
    {
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        assert_eq!(settle(h.store(), owner, &claimed, &verdict).await, Settled::Applied, "{verdict:?}");
        assert_refused(&h, id, owner, claimed.held).await;
        claim(h.store(), owner, 10).await;
    }
}

/// A message that is named twice in one call gets the first verdict; the second is answered as lost. OBX-034.
pub async fn the_first_of_two_verdicts_in_one_call_counts<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let batch = messages(2);
    enqueue(h.store(), &batch).await;
    let claimed = claim(h.store(), owner, 10).await;
    let asked = [
        settlement(&claimed[1], &fail("first")),
        settlement(&claimed[0], &Verdict::Ack),
        settlement(&claimed[1], &Verdict::Ack),
    ];
    let settled = h.store().settle(owner, &asked).await.expect("a settle succeeds");
    assert_eq!(settled, [Settled::Applied, Settled::Applied, Settled::LeaseLost]);
    assert_eq!(state(h.store(), batch[1].id()).await, State::Dead);
}

/// A late retry or dead mark never reopens a done message, kept in whatever form. HOT-25, H4.
pub async fn a_late_mark_never_reopens_a_done_message<H: Harness>() {
    for retention in [Retention::Delete, Retention::Receipt(DAY), Retention::Message(DAY)] {
        let h = H::start(keeping(retention)).await;
        let owner = OwnerToken::new();
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        settle_all(h.store(), owner, std::slice::from_ref(&claimed), &Verdict::Ack).await;
        assert_refused(&h, id, owner, claimed.held).await;
        assert_eq!(claim(h.store(), owner, 10).await, []);
    }
}

/// A late ack does not undo what an operator sees as dead, nor what was replayed since. H4, HOT-25.
pub async fn a_late_mark_never_changes_a_dead_or_replayed_message<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    settle_all(h.store(), owner, std::slice::from_ref(&claimed), &fail("broken")).await;
    assert_refused(&h, id, owner, claimed.held).await;
    assert_eq!(replay(h.store(), &Filter::all(), 10).await, 1);
    assert_refused(&h, id, owner, claimed.held).await;
    assert_eq!(claim_one(h.store(), owner).await.attempts, 1);
}
