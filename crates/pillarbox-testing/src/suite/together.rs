//! Messages that one claim has brought, and what becomes of some of them while the others stay: a backend may lease many at once.

use std::time::Duration;

use super::support::*;
use crate::Harness;

/// A store with so many messages, all claimed at once.
async fn claimed_together<H: Harness>(count: usize) -> (H, OwnerToken, Vec<Claimed>) {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let claimed = claim_more(&h, owner, count).await;
    (h, owner, claimed)
}

async fn claim_more<H: Harness>(h: &H, owner: OwnerToken, count: usize) -> Vec<Claimed> {
    let messages = messages(count);
    enqueue(h.store(), &messages).await;
    let claimed = claim(h.store(), owner, 1_000).await;
    assert_eq!(ids_of(&claimed), ids(&messages));
    claimed
}

async fn settled(store: &impl OutboxStore, owner: OwnerToken, claimed: &[Claimed], verdict: &Verdict) -> Vec<Settled> {
    let settlements: Vec<_> = claimed.iter().map(|one| settlement(one, verdict)).collect();
    store.settle(owner, &settlements).await.expect("a settle succeeds")
}

async fn active_lease_count<H: Harness>(h: &H) -> u64 {
    h.store().overview().await.expect("messages can be counted").active_lease_count
}

/// What one claim took is seen as leased by everybody, message by message, and by nobody when it was settled. OBX-020, OBX-021, WRK-08.
pub async fn all_of_a_claim_are_seen_leased<H: Harness>() {
    let (h, owner, claimed) = claimed_together::<H>(40).await;
    assert_eq!(active_lease_count(&h).await, 40);
    assert_eq!(list(h.store(), State::Processing, Filter::all()).await.len(), 40);
    let row = stored(h.store(), ids_of(&claimed)[7]).await;
    assert_eq!((row.state, row.owner, row.attempts), (State::Processing, Some(owner), 1));
    assert!(row.locked_until.is_some());
    assert_eq!(claim(h.store(), OwnerToken::new(), 100).await, []);
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    assert_eq!((active_lease_count(&h).await, counts(h.store()).await.done), (0, 40));
    assert_eq!(stored(h.store(), ids_of(&claimed)[7]).await.attempts, 1);
}

/// When a part is settled, the rest stays leased, and nothing is settled twice. OBX-019, OBX-034, HOT-25.
pub async fn a_part_ends_and_the_rest_stays_leased<H: Harness>() {
    let (h, owner, claimed) = claimed_together::<H>(30).await;
    settle_all(h.store(), owner, &claimed[10..20], &Verdict::Ack).await;
    assert_eq!(active_lease_count(&h).await, 20);
    assert_eq!(claim(h.store(), OwnerToken::new(), 100).await, []);
    assert_eq!(settled(h.store(), owner, &claimed[10..20], &Verdict::Ack).await, [Settled::LeaseLost; 10]);
    for part in [&claimed[..10], &claimed[20..]] {
        settle_all(h.store(), owner, part, &Verdict::Ack).await;
    }
    assert_eq!((active_lease_count(&h).await, counts(h.store()).await.done), (0, 30));
}

/// Each has a verdict of its own, in one call; those that none was given for stay leased. OBX-019, OBX-030, OBX-037, OBX-044.
pub async fn each_has_a_verdict_of_its_own<H: Harness>() {
    let (h, owner, claimed) = claimed_together::<H>(10).await;
    let verdict = |at: usize| match at {
        3 => fail("no"),
        4 => abandon(HOUR, "later"),
        5 => release(Duration::ZERO),
        _ => Verdict::Ack,
    };
    let some: Vec<_> = [0, 3, 4, 5, 8].map(|at| settlement(&claimed[at], &verdict(at))).into();
    assert_eq!(h.store().settle(owner, &some).await.expect("a settle succeeds"), [Settled::Applied; 5]);
    let next = claim(h.store(), OwnerToken::new(), 100).await;
    assert_eq!(ids_of(&next), ids_of(&claimed[5..6]), "only what was given back");
    assert_eq!(next[0].attempts, 1, "which cost no attempt");
    assert_eq!(stored(h.store(), ids_of(&claimed)[4]).await.attempts, 1);
    let rest: Vec<_> = [1, 2, 6, 7, 9].map(|at| claimed[at].clone()).into();
    settle_all(h.store(), owner, &rest, &Verdict::Ack).await;
}

/// What is given back out of the middle is handed out at once, before later messages. OBX-037.
pub async fn what_is_given_back_comes_before_later_ones<H: Harness>() {
    let (h, owner, claimed) = claimed_together::<H>(6).await;
    enqueue(h.store(), &messages(6)).await;
    settle_all(h.store(), owner, &claimed[2..3], &release(Duration::ZERO)).await;
    let next = claim(h.store(), OwnerToken::new(), 4).await;
    assert_eq!((next.len(), ids_of(&next)[0]), (4, ids_of(&claimed)[2]));
}

/// Leases that ran out are taken over together, counted as lost, and who comes late settles nothing. WRK-04, OBX-033, H22.
pub async fn what_ran_out_is_taken_over<H: Harness>() {
    let (h, owner, first) = claimed_together::<H>(6).await;
    h.advance(HOUR).await;
    assert_eq!(h.store().overview().await.expect("messages can be counted").expired_lease_count, 6);
    let second = claim(h.store(), owner, 100).await;
    assert_eq!(ids_of(&second), ids_of(&first));
    assert!(second.iter().all(|claimed| (claimed.attempts, claimed.lost_lease_count) == (2, 1)));
    assert_eq!(settled(h.store(), owner, &first, &Verdict::Ack).await, [Settled::LeaseLost; 6]);
    settle_all(h.store(), owner, &second, &Verdict::Ack).await;
}

/// Leases that ran out are settled as long as nobody took their messages: all at once, or one by one. OBX-030, H22.
pub async fn what_ran_out_can_be_settled_until_it_is_taken<H: Harness>() {
    let (h, owner, claimed) = claimed_together::<H>(6).await;
    h.advance(HOUR).await;
    settle_all(h.store(), owner, &claimed[..1], &abandon(MINUTE, "late")).await;
    settle_all(h.store(), owner, &claimed[1..], &Verdict::Ack).await;
    assert_eq!(counts(h.store()).await.done, 5);
}

/// A reap releases what ran out, all of it, once. OBX-049, OBX-051, BUS-07.
pub async fn what_ran_out_is_released_by_a_reap<H: Harness>() {
    let (h, owner, claimed) = claimed_together::<H>(6).await;
    h.advance(HOUR).await;
    assert_eq!((reap_all(h.store()).await.released, reap_all(h.store()).await.released), (6, 0));
    assert_eq!(settled(h.store(), owner, &claimed, &Verdict::Ack).await, [Settled::LeaseLost; 6]);
    assert_eq!(claim(h.store(), owner, 100).await.len(), 6);
}

/// A renewal of some is none of the others; one of all is one of each. WRK-04.
pub async fn only_what_is_renewed_lasts<H: Harness>() {
    let (h, owner, claimed) = claimed_together::<H>(6).await;
    let held = |claimed: &[Claimed]| claimed.iter().map(|one| one.held).collect::<Vec<_>>();
    assert_eq!(h.store().renew(owner, &held(&claimed), HOUR).await.expect("a renewal succeeds"), [Settled::Applied; 6]);
    assert_eq!(
        h.store().renew(owner, &held(&claimed[..4]), 5 * HOUR).await.expect("a renewal succeeds"),
        [Settled::Applied; 4]
    );
    h.advance(30 * MINUTE).await;
    assert_eq!(claim(h.store(), OwnerToken::new(), 100).await, []);
    h.advance(HOUR).await;
    let next = claim(h.store(), OwnerToken::new(), 100).await;
    assert_eq!(ids_of(&next), ids_of(&claimed[4..]));
    settle_all(h.store(), owner, &claimed[..4], &Verdict::Ack).await;
}

/// A message that is replayed while others of its claim are still held is a new one: an old verdict does nothing to it. OBX-034, HOT-25.
pub async fn a_replayed_message_is_none_of_its_old_claim<H: Harness>() {
    let (h, owner, claimed) = claimed_together::<H>(6).await;
    settle_all(h.store(), owner, &claimed[2..3], &Verdict::Ack).await;
    let again = h.store().replay(&Replay::done(Filter::all(), 10)).await.expect("a replay succeeds");
    assert_eq!(again.count, 1);
    assert_eq!(settled(h.store(), owner, &claimed[2..3], &Verdict::Ack).await, [Settled::LeaseLost]);
    assert_eq!(settled(h.store(), owner, &claimed[2..3], &fail("late")).await, [Settled::LeaseLost]);
    let next = claim(h.store(), OwnerToken::new(), 100).await;
    assert_eq!(ids_of(&next), ids_of(&claimed[2..3]));
    settle_all(h.store(), owner, &[&claimed[..2], &claimed[3..]].concat(), &Verdict::Ack).await;
    assert_eq!(active_lease_count(&h).await, 1);
}

/// What several claims brought is settled in one call. OBX-030.
pub async fn messages_of_several_claims_end_together<H: Harness>() {
    let (h, owner, mut claimed) = claimed_together::<H>(7).await;
    enqueue(h.store(), &[Message::new("topic", "").key("k")]).await;
    claimed.extend(claim(h.store(), owner, 1).await);
    claimed.extend(claim_more(&h, owner, 9).await);
    let (some, others): (Vec<_>, Vec<_>) = claimed.into_iter().enumerate().partition(|(at, _)| at % 5 != 4);
    for part in [some, others] {
        let part: Vec<_> = part.into_iter().map(|(_, claimed)| claimed).collect();
        settle_all(h.store(), owner, &part, &Verdict::Ack).await;
    }
    assert_eq!((active_lease_count(&h).await, counts(h.store()).await.done), (0, 17));
}

/// A message with a key among others comes in the same claim, in its place, and is settled with them. OBX-022, WRK-07.
pub async fn one_with_a_key_comes_among_the_others<H: Harness>() {
    let h = start::<H>().await;
    let mut messages = messages(11);
    messages[5] = Message::new("topic", "").key("k");
    enqueue(h.store(), &messages).await;
    let owner = OwnerToken::new();
    let claimed = claim(h.store(), owner, 100).await;
    assert_eq!(ids_of(&claimed), ids(&messages));
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
}

/// A message that expires while it is leased with others is theirs until the lease ends. OBX-030, H26.
pub async fn one_that_expires_while_it_is_held_is_settled<H: Harness>() {
    let h = start::<H>().await;
    let mut messages = messages(6);
    messages[3] = Message::new("topic", "").expires_in(MINUTE);
    enqueue(h.store(), &messages).await;
    let owner = OwnerToken::new();
    let claimed = claim(h.store(), owner, 100).await;
    assert_eq!(ids_of(&claimed), ids(&messages));
    h.advance(2 * MINUTE).await;
    assert_eq!(reap_all(h.store()).await, Reaped::default());
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
}

/// Who claims in sequence waits for what others hold. BUS-06.
pub async fn a_sequence_waits_for_all_that_is_held<H: Harness>() {
    let (h, owner, first) = claimed_together::<H>(4).await;
    enqueue(h.store(), &messages(2)).await;
    let order = pillarbox_core::Order { in_sequence: true, ..pillarbox_core::Order::default() };
    let in_sequence = || Claim::in_order(claim_of(owner, 100), order);
    assert_eq!(h.store().claim(in_sequence()).await.expect("a claim succeeds"), []);
    settle_all(h.store(), owner, &first, &Verdict::Ack).await;
    assert_eq!(h.store().claim(in_sequence()).await.expect("a claim succeeds").len(), 2);
}
