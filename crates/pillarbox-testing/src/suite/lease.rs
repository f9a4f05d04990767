//! Leases: renewed, run out, taken over.

use std::time::Duration;

use super::support::*;
use crate::Harness;

/// A renewed lease lasts from now on, and keeps others away until then. WRK-04.
pub async fn a_renewed_lease_lasts<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    h.advance(LEASE - MINUTE).await;
    let renewed = h.store().renew(owner, &[claimed.held], 10 * HOUR).await.expect("a renew succeeds");
    assert_eq!(renewed, [Settled::Applied]);
    let row = stored(h.store(), id).await;
    let held_for = row.locked_until.expect("it is held").duration_since(row.created_at).unwrap_or_default();
    assert_near(held_for, 10 * HOUR + LEASE - MINUTE);
    h.advance(9 * HOUR).await;
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
    assert_eq!(reap_all(h.store()).await, Reaped::default());
    settle_all(h.store(), owner, &[claimed], &Verdict::Ack).await;
}

/// Renewing counts no attempt and no lost lease. WRK-04.
pub async fn a_renewal_counts_nothing<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    for _ in 0..3 {
        h.store().renew(owner, &[claimed.held], LEASE).await.expect("a renew succeeds");
    }
    let row = stored(h.store(), id).await;
    assert_eq!((row.state, row.attempts, row.lost_lease_count, row.owner), (State::Processing, 1, 0, Some(owner)));
}

/// A lease can be shortened: it ends at the database's now plus what is asked. WRK-04.
pub async fn a_renewal_may_shorten_a_lease<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (_, claimed) = enqueue_and_claim(h.store(), owner).await;
    h.store().renew(owner, &[claimed.held], MINUTE).await.expect("a renew succeeds");
    h.advance(2 * MINUTE).await;
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await.len(), 1);
}

/// A lease that ran out can be renewed while nobody took over. WRK-04.
pub async fn a_lease_that_ran_out_can_be_renewed_when_nobody_took_over<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (_, claimed) = enqueue_and_claim(h.store(), owner).await;
    h.advance(2 * LEASE).await;
    let renewed = h.store().renew(owner, &[claimed.held], LEASE).await.expect("a renew succeeds");
    assert_eq!(renewed, [Settled::Applied]);
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
}

/// Renewals are answered in order; those of others, of nobody and doubles as lost. OBX-033, H22.
pub async fn renewals_are_answered_in_order<H: Harness>() {
    let h = start::<H>().await;
    let (owner, other) = (OwnerToken::new(), OwnerToken::new());
    enqueue(h.store(), &messages(3)).await;
    let mine = claim(h.store(), owner, 2).await;
    let foreign = claim_one(h.store(), other).await;
    let unknown = Held { work_id: WorkId::from_i64(987_654_321), ..mine[0].held };
    let asked = [foreign.held, mine[1].held, unknown, mine[0].held, mine[1].held];
    let renewed = h.store().renew(owner, &asked, HOUR).await.expect("a renew succeeds");
    use Settled::{Applied, LeaseLost};
    assert_eq!(renewed, [LeaseLost, Applied, LeaseLost, Applied, LeaseLost]);
    h.advance(LEASE).await;
    assert_eq!(ids_of(&claim(h.store(), owner, 10).await), ids_of(&[foreign]));
}

/// Renewing nothing does nothing; renewing for no time is refused. OBX-027, OBX-036.
pub async fn a_renewal_needs_a_lease<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (_, claimed) = enqueue_and_claim(h.store(), owner).await;
    assert_eq!(h.store().renew(owner, &[], LEASE).await.expect("nothing is wrong with it"), []);
    assert_eq!(refused_fields(h.store().renew(owner, &[claimed.held], Duration::ZERO).await), ["lease"]);
    assert_eq!(claim(h.store(), owner, 10).await, [], "the lease still runs");
}

/// A lease that ran out does not protect: the next claim takes over without a reaper, and counts it.
/// OBX-019, WRK-04, BUS-07, H23.
pub async fn a_lease_that_ran_out_is_taken_over<H: Harness>() {
    let h = start::<H>().await;
    let (id, _) = enqueue_and_claim(h.store(), OwnerToken::new()).await;
    h.advance(LEASE).await;
    let successor = OwnerToken::new();
    let claimed = claim_one(h.store(), successor).await;
    assert_eq!((claimed.attempts, claimed.lost_lease_count), (2, 1));
    let row = stored(h.store(), id).await;
    assert_eq!((row.owner, row.lost_lease_count), (Some(successor), 1));
    settle_all(h.store(), successor, &[claimed], &Verdict::Ack).await;
}

/// Leases that were given back in time are never counted as lost. OBX-037.
pub async fn a_lease_given_back_is_not_lost<H: Harness>() {
    let h = H::start(losing(0)).await;
    let owner = OwnerToken::new();
    enqueue(h.store(), &messages(1)).await;
    for verdict in [abandon(Duration::ZERO, ""), release(Duration::ZERO), abandon(HOUR, ""), release(HOUR)] {
        let claimed = claim_one(h.store(), owner).await;
        assert_eq!(claimed.lost_lease_count, 0);
        settle_all(h.store(), owner, &[claimed], &verdict).await;
        h.advance(HOUR).await;
        assert_eq!(reap_all(h.store()).await, Reaped::default());
    }
}

/// A message that kills its workers is taken over as often as the limit says, then left for the reaper to bury.
/// OBX-049, H30.
pub async fn a_message_that_kills_its_workers_is_buried<H: Harness>() {
    for lost_leases_max in [0, 1, 3] {
        let h = H::start(losing(lost_leases_max)).await;
        let (id, _) = enqueue_and_claim(h.store(), OwnerToken::new()).await;
        for lost in 1..=lost_leases_max {
            h.advance(LEASE).await;
            assert_eq!(claim_one(h.store(), OwnerToken::new()).await.lost_lease_count, lost);
        }
        h.advance(LEASE).await;
        assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
        assert_eq!(reap_all(h.store()).await, Reaped { lost: 1, ..Reaped::default() });
        let row = stored(h.store(), id).await;
        assert_eq!((row.state, row.lost_lease_count), (State::Dead, lost_leases_max + 1));
        assert_eq!((row.attempts, row.settled_by), (lost_leases_max + 1, None));
        assert_eq!(row.last_error.as_deref(), Some(pillarbox_core::outbox::REASON_LEASES_LOST));
    }
}
