//! Claims that start where the last one ended.

use std::pin::pin;
use std::task::Poll;

use super::support::*;
use crate::Harness;

fn rarely() -> StoreOptions {
    StoreOptions { rescan_interval: HOUR, ..options() }
}

/// A store that has just claimed past everything; the messages are still held.
async fn claimed_past<H: Harness>(h: &H, owner: OwnerToken) -> Vec<Claimed> {
    enqueue(h.store(), &messages(3)).await;
    let claimed = claim(h.store(), owner, 10).await;
    assert_eq!(claim(h.store(), owner, 10).await, []);
    claimed
}

/// With a long interval, what this handle gives back is found by its very next claim. OBX-037, OBX-042.
pub async fn what_the_same_handle_gives_back_is_found_at_once<H: Harness>() {
    let h = H::start(rarely()).await;
    let owner = OwnerToken::new();
    for verdict in [abandon(std::time::Duration::ZERO, ""), release(std::time::Duration::ZERO)] {
        let claimed = claimed_past(&h, owner).await;
        settle_all(h.store(), owner, &claimed[1..2], &verdict).await;
        let found = claim(h.store(), owner, 10).await;
        assert_eq!(ids_of(&found), ids_of(&claimed[1..2]), "after {verdict:?}");
        settle_all(h.store(), owner, &[claimed[0].clone(), found[0].clone(), claimed[2].clone()], &Verdict::Ack).await;
    }
}

/// With a long interval, a retry that has become due is found by the next claim. OBX-029, OBX-042.
pub async fn a_retry_that_becomes_due_is_found_at_once<H: Harness>() {
    let h = H::start(rarely()).await;
    let owner = OwnerToken::new();
    let claimed = claimed_past(&h, owner).await;
    settle_all(h.store(), owner, &claimed[..1], &abandon(MINUTE, "later")).await;
    h.advance(2 * MINUTE).await;
    assert_eq!(ids_of(&claim(h.store(), owner, 10).await), ids_of(&claimed[..1]));
}

/// With a long interval, what this handle reaps or replays is found by its very next claim. OBX-051.
pub async fn what_the_same_handle_reaps_or_replays_is_found_at_once<H: Harness>() {
    let h = H::start(rarely()).await;
    let owner = OwnerToken::new();
    let claimed = claimed_past(&h, owner).await;
    settle_all(h.store(), owner, &claimed[..1], &fail("broken")).await;
    settle_all(h.store(), owner, &claimed[2..], &Verdict::Ack).await;
    assert_eq!(replay(h.store(), &Filter::all(), 10).await, 1);
    assert_eq!(ids_of(&claim(h.store(), owner, 10).await), ids_of(&claimed[..1]));
    h.advance(LEASE).await;
    assert_eq!(reap_all(h.store()).await.released, 2);
    assert_eq!(ids_of(&claim(h.store(), owner, 10).await), ids_of(&claimed[..2]));
}

/// With a long interval, new messages are found at once, whoever stores them. OBX-013.
pub async fn new_messages_are_found_at_once<H: Harness>() {
    let h = H::start(rarely()).await;
    claimed_past(&h, OwnerToken::new()).await;
    let new = messages(2);
    enqueue(&another(&h).await, &new).await;
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&new));
}

/// With no interval, what other instances give back or lose is found by the next claim of any. OBX-042, BUS-07.
pub async fn with_no_interval_everything_is_found<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let claimed = claimed_past(&h, owner).await;
    let other = another(&h).await;
    settle_all(&other, owner, &claimed[..1], &release(std::time::Duration::ZERO)).await;
    assert_eq!(ids_of(&claim(h.store(), owner, 10).await), ids_of(&claimed[..1]));
    h.advance(LEASE).await;
    assert_eq!(ids_of(&claim(h.store(), owner, 10).await), ids_of(&claimed));
}

/// With a long interval, a claim finds what was committed before it began, also while another claim of the same handle is under way
/// that looked too early. OBX-013.
pub async fn what_was_committed_before_a_claim_is_found_beside_another_claim<H: Harness>() {
    let h = H::start(rarely()).await;
    let owner = OwnerToken::new();
    claimed_past(&h, owner).await;
    for place in 1..8 {
        let mut early = pin!(h.store().claim(claim_of(owner, 10)));
        let earlier = come_to(place, early.as_mut()).await;
        let new = messages(1);
        enqueue(&another(&h).await, &new).await;
        let mut found = claim(h.store(), owner, 10).await;
        let early = match earlier {
            Poll::Ready(claimed) => claimed,
            Poll::Pending => early.await,
        };
        found.extend(early.expect("the other claim failed"));
        assert_eq!(ids_of(&found), ids(&new), "the other claim waited for the time number {place}");
    }
}
