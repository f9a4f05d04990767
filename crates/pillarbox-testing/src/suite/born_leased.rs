//! Messages that are stored already claimed by their writer's own runtime.

use super::support::*;
use crate::Harness;

fn lease(owner: OwnerToken) -> Lease {
    Lease::new(owner, LEASE).expect("the lease is legal")
}

/// A message born leased is held like a claimed one: first attempt counted, nobody else gets it, its owner settles
/// it. OBX-019, H29.
pub async fn a_born_leased_message_is_held_by_its_writer<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let batch = messages(2);
    let lease = lease(owner);
    let mut tx = h.begin().await;
    let enqueued = h.enqueue_in(&mut tx, Enqueue::leased(&batch, lease)).await.expect("messages can be enqueued");
    h.commit(tx).await;
    let row = stored(h.store(), batch[0].id()).await;
    assert_eq!(enqueued[0].placement, Placement::Leased(Held { work_id: row.work_id, fence: lease.fence() }));
    assert_eq!((row.state, row.attempts, row.owner), (State::Processing, 1, Some(owner)));
    assert_near(row.locked_until.expect("it is held").duration_since(row.created_at).unwrap_or_default(), LEASE);
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
    let settlements: Vec<_> = enqueued
        .iter()
        .map(|one| match one.placement {
            Placement::Leased(held) => Settlement::ack(held),
            other => panic!("must be leased, is {other:?}"),
        })
        .collect();
    assert_eq!(h.store().settle(owner, &settlements).await.expect("a settle succeeds"), [Settled::Applied; 2]);
    assert_eq!(state(h.store(), batch[1].id()).await, State::Done);
}

/// A message born leased that is not due yet waits like any other. OBX-012.
pub async fn a_born_leased_message_that_is_not_due_waits<H: Harness>() {
    let h = start::<H>().await;
    let batch = [messages(1).remove(0).delay(HOUR), messages(1).remove(0)];
    let places = place(h.store(), Enqueue::leased(&batch, lease(OwnerToken::new()))).await;
    assert!(matches!(places[..], [Placement::Pending(_), Placement::Leased(_)]), "{places:?}");
    let row = stored(h.store(), batch[0].id()).await;
    assert_eq!((row.state, row.attempts, row.owner), (State::Pending, 0, None));
    h.advance(HOUR).await;
    assert!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await).contains(&batch[0].id()));
}

/// A message born leased that has expired already is not handled. H29.
pub async fn a_born_leased_message_that_has_expired_is_not_held<H: Harness>() {
    let h = start::<H>().await;
    let batch = [messages(1).remove(0).expires_in(std::time::Duration::ZERO)];
    let places = place(h.store(), Enqueue::leased(&batch, lease(OwnerToken::new()))).await;
    assert!(matches!(places[..], [Placement::Pending(_)]), "{places:?}");
    assert_eq!(stored(h.store(), batch[0].id()).await.attempts, 0);
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
}

/// When the writer dies after its commit, another runtime takes the message over once the lease ran out.
/// BUS-07, H23, H29.
pub async fn a_born_leased_message_of_a_dead_writer_is_taken_over<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(1);
    place(h.store(), Enqueue::leased(&batch, lease(OwnerToken::new()))).await;
    h.advance(LEASE).await;
    let claimed = claim_one(h.store(), OwnerToken::new()).await;
    assert_eq!(
        (ids_of(std::slice::from_ref(&claimed)), claimed.attempts, claimed.lost_lease_count),
        (ids(&batch), 2, 1)
    );
}

/// A message born leased in a transaction that rolls back never existed. H2, H29.
pub async fn a_rolled_back_born_leased_message_never_existed<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let batch = messages(1);
    let mut tx = h.begin().await;
    let enqueued = h.enqueue_in(&mut tx, Enqueue::leased(&batch, lease(owner))).await.expect("it can be enqueued");
    h.rollback(tx).await;
    let Placement::Leased(held) = enqueued[0].placement else { panic!("must be leased") };
    let settled = h.store().settle(owner, &[Settlement::ack(held)]).await.expect("a settle succeeds");
    assert_eq!(settled, [Settled::LeaseLost]);
    h.advance(LEASE).await;
    assert_eq!(claim(h.store(), owner, 10).await, []);
}
