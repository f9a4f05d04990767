//! Futures that are dropped half-way, as a timeout or a shutdown does. Nothing may stay stuck beyond a lease.

use super::support::*;
use crate::Harness;

/// A claim that is dropped half-way holds its messages for a lease at the most; the store works on. H31, H23.
pub async fn a_claim_cut_short_holds_nothing_for_long<H: Harness>() {
    let h = H::start(losing(1_000)).await;
    enqueue(h.store(), &messages(10)).await;
    for polls in POLLS {
        cut_short(polls, h.store().claim(claim_of(OwnerToken::new(), 10))).await;
    }
    recover(&h, 10).await;
}

/// A settle that is dropped half-way has happened as a whole or not at all; asking again tells. H31, OBX-080.
pub async fn a_settle_cut_short_is_whole_or_nothing<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for polls in POLLS {
        enqueue(h.store(), &messages(10)).await;
        let claimed = claim(h.store(), owner, 10).await;
        assert_eq!(claimed.len(), 10);
        let acks: Vec<_> = claimed.iter().map(|one| Settlement::ack(one.held)).collect();
        cut_short(polls, h.store().settle(owner, &acks)).await;
        let again = h.store().settle(owner, &acks).await.expect("a settle succeeds");
        assert!(again.windows(2).all(|pair| pair[0] == pair[1]), "all or nothing: {again:?}");
    }
    let done = counts(h.store()).await;
    assert_eq!((done.done, done.processing), (120, 0));
}

/// An exchange that is dropped half-way loses neither what it settled nor what it claimed. H31, WRK-01.
pub async fn an_exchange_cut_short_loses_nothing<H: Harness>() {
    let h = H::start(losing(1_000)).await;
    let owner = OwnerToken::new();
    for polls in POLLS {
        enqueue(h.store(), &messages(10)).await;
        let mut claimed = claim(h.store(), owner, 5).await;
        // What was cut short before may reach the server only now, and take some of these for a lease.
        for _ in POLLS {
            if claimed.len() < 5 {
                h.advance(LEASE).await;
                claimed = claim(h.store(), owner, 5).await;
            }
        }
        assert_eq!(claimed.len(), 5);
        let acks: Vec<_> = claimed.iter().map(|one| Settlement::ack(one.held)).collect();
        cut_short(polls, h.store().exchange(&acks, claim_of(OwnerToken::new(), 5))).await;
        let again = h.store().settle(owner, &acks).await.expect("a settle succeeds");
        assert!(again.windows(2).all(|pair| pair[0] == pair[1]), "all or nothing: {again:?}");
        recover(&h, 5).await;
    }
    assert_eq!(counts(h.store()).await.done, 120);
}

/// An enqueue that is dropped half-way is stored as a whole or not at all; doing it again stores it once. H31, H1.
pub async fn an_enqueue_cut_short_can_be_repeated<H: Harness>() {
    let h = start::<H>().await;
    for polls in POLLS {
        let batch = messages(10);
        cut_short(polls, h.store().enqueue(Enqueue::pending(&batch))).await;
        let places = place(h.store(), Enqueue::pending(&batch)).await;
        let known = places.iter().filter(|place| **place == Placement::Duplicate).count();
        assert!(known == 0 || known == 10, "all or nothing: {places:?}");
    }
    // What was cut short may still be finding its messages known, with their rows locked: a claim passes over those.
    recover(&h, 120).await;
}

/// An enqueue in the user's transaction that is dropped half-way leaves nothing once the user rolls back. H31, H2.
pub async fn an_enqueue_cut_short_is_rolled_back<H: Harness>() {
    let h = start::<H>().await;
    for polls in POLLS {
        let batch = messages(10);
        let mut tx = h.begin().await;
        h.write_business_row(&mut tx).await;
        cut_short(polls, h.enqueue_in(&mut tx, Enqueue::pending(&batch))).await;
        h.rollback(tx).await;
        assert_eq!(find(h.store(), batch[0].id()).await, None);
    }
    assert_eq!(h.business_row_count().await, 0);
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
}

/// Reaps, purges, renewals and looks that are dropped half-way leave the store as it was. H31.
pub async fn housekeeping_cut_short_does_no_harm<H: Harness>() {
    let h = H::start(losing(1_000)).await;
    let owner = OwnerToken::new();
    enqueue(h.store(), &messages(10)).await;
    let claimed = claim(h.store(), owner, 10).await;
    let held: Vec<_> = claimed.iter().map(|one| one.held).collect();
    for polls in POLLS {
        cut_short(polls, h.store().renew(owner, &held, LEASE)).await;
        cut_short(polls, h.store().reap(Reap::default())).await;
        cut_short(polls, h.store().purge(PurgeLimit::default())).await;
        cut_short(polls, h.store().overview()).await;
        cut_short(polls, h.store().replay(&Replay::dead(Filter::all(), 10))).await;
    }
    assert_eq!(h.store().renew(owner, &held, LEASE).await.expect("a renew succeeds"), [Settled::Applied; 10]);
    assert_eq!(counts(h.store()).await.processing, 10);
    recover(&h, 10).await;
}
