//! The reaper: leases that ran out, messages that expired.

use pillarbox_core::outbox::REASON_EXPIRED;

use super::support::*;
use crate::Harness;

/// A reap frees messages whose lease ran out; their attempt stays spent and the lost lease is counted.
/// OBX-049, OBX-050, OBX-051.
pub async fn a_reap_frees_leases_that_ran_out<H: Harness>() {
    let h = start::<H>().await;
    let (id, _) = enqueue_and_claim(h.store(), OwnerToken::new()).await;
    h.advance(LEASE).await;
    assert_eq!(reap_all(h.store()).await, Reaped { released: 1, ..Reaped::default() });
    let row = stored(h.store(), id).await;
    assert_eq!((row.state, row.owner, row.locked_until), (State::Pending, None, None));
    assert_eq!((row.attempts, row.lost_lease_count), (1, 1));
    let claimed = claim_one(h.store(), OwnerToken::new()).await;
    assert_eq!((claimed.attempts, claimed.lost_lease_count), (2, 1), "a lost lease is counted once");
}

/// A reap leaves running leases and free messages alone. OBX-049.
pub async fn a_reap_leaves_running_leases<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    let free = messages(1);
    enqueue(h.store(), &free).await;
    h.advance(LEASE - MINUTE).await;
    assert_eq!(reap_all(h.store()).await, Reaped::default());
    let row = stored(h.store(), id).await;
    assert_eq!((row.owner, row.lost_lease_count), (Some(owner), 0));
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&free));
    settle_all(h.store(), owner, &[claimed], &Verdict::Ack).await;
}

/// A reap leaves done and dead messages alone, expired or not. OBX-052.
pub async fn a_reap_leaves_done_and_dead_messages<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let batch: Vec<_> = messages(2).into_iter().map(|message| message.expires_in(HOUR)).collect();
    enqueue(h.store(), &batch).await;
    let claimed = claim(h.store(), owner, 10).await;
    settle_all(h.store(), owner, &claimed[..1], &Verdict::Ack).await;
    settle_all(h.store(), owner, &claimed[1..], &fail("broken")).await;
    h.advance(DAY).await;
    assert_eq!(reap_all(h.store()).await, Reaped::default());
    assert_eq!(state(h.store(), batch[0].id()).await, State::Done);
    let dead = stored(h.store(), batch[1].id()).await;
    assert_eq!((dead.state, dead.last_error.as_deref()), (State::Dead, Some("broken")));
}

/// A second reap finds nothing more to do. OBX-049, OBX-083.
pub async fn a_reap_counts_each_lost_lease_once<H: Harness>() {
    let h = start::<H>().await;
    enqueue(h.store(), &messages(3)).await;
    claim(h.store(), OwnerToken::new(), 10).await;
    h.advance(LEASE).await;
    assert_eq!(reap_all(h.store()).await.released, 3);
    assert_eq!(reap_all(h.store()).await, Reaped::default());
    let free = list(h.store(), State::Pending, Filter::all()).await;
    assert_eq!(free.iter().map(|row| row.lost_lease_count).collect::<Vec<_>>(), [1, 1, 1]);
}

/// A message that expired before anybody took it is buried with the reason, whether it was ready or waited. OBX-049.
pub async fn a_reap_buries_expired_messages<H: Harness>() {
    let h = start::<H>().await;
    let ready = messages(1).remove(0).expires_in(HOUR);
    let waiting = messages(1).remove(0).delay(10 * MINUTE).expires_in(HOUR);
    let fresh = messages(1).remove(0).expires_in(DAY);
    for message in [&ready, &waiting, &fresh] {
        enqueue(h.store(), std::slice::from_ref(message)).await;
    }
    h.advance(59 * MINUTE).await;
    assert_eq!(reap_all(h.store()).await, Reaped::default());
    h.advance(MINUTE).await;
    assert_eq!(reap_all(h.store()).await, Reaped { expired: 2, ..Reaped::default() });
    for message in [&ready, &waiting] {
        let row = stored(h.store(), message.id()).await;
        assert_eq!((row.state, row.attempts, row.lost_lease_count, row.settled_by), (State::Dead, 0, 0, None));
        assert_eq!(row.last_error.as_deref(), Some(REASON_EXPIRED));
        assert!(row.settled_at.is_some());
    }
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), [fresh.id()]);
}

/// A message that would never come due because it expires first is buried when it expires. OBX-049.
pub async fn a_message_that_expires_before_it_is_due_is_buried<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let message = messages(1).remove(0).expires_in(HOUR);
    enqueue(h.store(), std::slice::from_ref(&message)).await;
    let claimed = claim_one(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &abandon(DAY, "later")).await;
    h.advance(2 * HOUR).await;
    assert_eq!(reap_all(h.store()).await.expired, 1);
    assert_eq!(state(h.store(), message.id()).await, State::Dead);
}

/// Expiry does not take a message from its holder; when the lease runs out too, it is buried as expired. OBX-049.
pub async fn an_expired_message_is_left_to_its_holder<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let batch: Vec<_> = messages(2).into_iter().map(|message| message.expires_in(2 * MINUTE)).collect();
    enqueue(h.store(), &batch).await;
    let claimed = claim(h.store(), owner, 10).await;
    h.advance(3 * MINUTE).await;
    assert_eq!(reap_all(h.store()).await, Reaped::default());
    settle_all(h.store(), owner, &claimed[..1], &Verdict::Ack).await;
    h.advance(LEASE).await;
    assert_eq!(claim(h.store(), owner, 10).await, []);
    assert_eq!(reap_all(h.store()).await, Reaped { expired: 1, ..Reaped::default() });
    let row = stored(h.store(), batch[1].id()).await;
    assert_eq!((row.state, row.lost_lease_count, row.settled_by), (State::Dead, 1, None));
    assert_eq!(row.last_error.as_deref(), Some(REASON_EXPIRED));
}

/// A reap looks at one window after the other, in the order of the sequence, until the end of the queue. OBX-049.
pub async fn a_reap_goes_window_by_window<H: Harness>() {
    let h = start::<H>().await;
    let rows = enqueue(h.store(), &messages(5)).await;
    claim(h.store(), OwnerToken::new(), 4).await;
    h.advance(LEASE).await;
    let mut reap = Reap { window: 2, ..Reap::default() };
    let mut seen = Vec::new();
    loop {
        let reaped = h.store().reap(reap).await.expect("a reap succeeds");
        seen.push((reaped.released, reaped.next));
        match reaped.next {
            Some(next) => reap.after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, [(2, Some(rows[1])), (2, Some(rows[3])), (0, None)]);
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await.len(), 5);
}

/// A window of nothing and one that is too large are refused. OBX-049.
pub async fn a_reap_needs_a_window<H: Harness>() {
    let h = start::<H>().await;
    for window in [0, Reap::WINDOW_MAX + 1] {
        assert_eq!(refused_fields(h.store().reap(Reap { window, ..Reap::default() }).await), ["window"]);
    }
}
