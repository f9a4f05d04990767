//! Messages of one key: one at a time, in order, whatever becomes of each.

use std::time::Duration;

use pillarbox_core::order::{AfterDead, Order, REASON_PARKED};

use super::support::*;
use crate::Harness;

const SKIP: Order = Order { after_dead: AfterDead::Skip, in_sequence: false };
const SEQUENCE: Order = Order { after_dead: AfterDead::Block, in_sequence: true };

/// Messages named after their key and number, such as `a1`; those that begin with a dash have no key.
pub(super) fn keyed(names: &str) -> Vec<Message> {
    let message = |name: &str| {
        let message = Message::new(name, "payload");
        if name.starts_with('-') { message } else { message.key(&name[..1]) }
    };
    names.split_whitespace().map(message).collect()
}

/// The names of claimed messages.
pub(super) fn names(claimed: &[Claimed]) -> String {
    let names: Vec<_> = claimed.iter().map(|one| one.message.as_ref().expect("it can be read").topic()).collect();
    names.join(" ")
}

async fn claim_in<H: Harness>(h: &H, owner: OwnerToken, limit: u32, order: Order) -> Vec<Claimed> {
    h.store().claim(claim_of(owner, limit).in_order(order)).await.expect("a claim succeeds")
}

/// The names of what a claim of another owner brings.
async fn next<H: Harness>(h: &H, limit: u32) -> String {
    names(&claim(h.store(), OwnerToken::new(), limit).await)
}

/// A store with these messages, and what the first claim brought.
async fn claimed_of<H: Harness>(messages: &str, limit: u32) -> (H, OwnerToken, Vec<Claimed>) {
    let h = start::<H>().await;
    enqueue(h.store(), &keyed(messages)).await;
    let owner = OwnerToken::new();
    let claimed = claim(h.store(), owner, limit).await;
    (h, owner, claimed)
}

/// One claim may bring many messages of a key, in order and without gaps. WRK-07.
pub async fn a_claim_brings_runs<H: Harness>() {
    let (h, _, claimed) = claimed_of::<H>("a1 b1 a2 -1 a3 b2", 4).await;
    assert_eq!(names(&claimed), "a1 b1 a2 -1");
    assert_eq!(next(&h, 10).await, "", "a3 and b2 wait for those that are held");
}

/// Nobody gets a message of a key of which another one is held. WRK-07, H34.
pub async fn a_key_waits_for_its_held_message<H: Harness>() {
    let (h, owner, claimed) = claimed_of::<H>("a1 a2 a3 b1", 2).await;
    assert_eq!(names(&claimed), "a1 a2");
    assert_eq!(next(&h, 10).await, "b1");
    assert_eq!(settle(h.store(), owner, &claimed[0], &Verdict::Ack).await, Settled::Applied);
    assert_eq!(next(&h, 10).await, "", "a2 is held");
    assert_eq!(settle(h.store(), owner, &claimed[1], &Verdict::Ack).await, Settled::Applied);
    assert_eq!(next(&h, 10).await, "a3");
}

/// An exchange gives the next one of a key to whoever settles the one before. WRK-07.
pub async fn an_exchange_goes_on_in_order<H: Harness>() {
    let (h, owner, mut claimed) = claimed_of::<H>("a1 a2 a3", 1).await;
    for expected in ["a2", "a3", ""] {
        let ack = [settlement(&claimed[0], &Verdict::Ack)];
        let exchanged = h.store().exchange(&ack, claim_of(owner, 1)).await.expect("an exchange succeeds");
        assert_eq!(exchanged.settled, [Settled::Applied]);
        assert_eq!(names(&exchanged.claimed), expected);
        claimed = exchanged.claimed;
    }
}

/// A message that waits for its next attempt is not overtaken by later ones of its key. H34, WRK-07.
pub async fn a_failed_message_is_not_overtaken<H: Harness>() {
    let (h, owner, claimed) = claimed_of::<H>("a1 a2 b1 -1", 1).await;
    settle_all(h.store(), owner, &claimed, &abandon(HOUR, "away")).await;
    let others = claim(h.store(), owner, 10).await;
    assert_eq!(names(&others), "b1 -1");
    settle_all(h.store(), owner, &others, &Verdict::Ack).await;
    enqueue(h.store(), &keyed("a3")).await;
    assert_eq!(next(&h, 10).await, "");
    h.advance(HOUR).await;
    let again = claim(h.store(), owner, 10).await;
    assert_eq!(names(&again), "a1", "the others follow when it is through");
    settle_all(h.store(), owner, &again, &Verdict::Ack).await;
    assert_eq!(next(&h, 10).await, "a2 a3");
}

/// What is given back at once, or after a while without an attempt spent, keeps its place too. H34.
pub async fn a_message_given_back_keeps_its_place<H: Harness>() {
    let (h, owner, claimed) = claimed_of::<H>("a1 a2 a3", 2).await;
    settle_all(h.store(), owner, &claimed[..1], &release(HOUR)).await;
    settle_all(h.store(), owner, &claimed[1..], &release(Duration::ZERO)).await;
    assert_eq!(next(&h, 10).await, "");
    h.advance(HOUR).await;
    let again = claim(h.store(), owner, 10).await;
    assert_eq!((names(&again).as_str(), again[0].attempts), ("a1", 1));
    settle_all(h.store(), owner, &again, &release(Duration::ZERO)).await;
    assert_eq!(next(&h, 10).await, "a1 a2 a3");
}

/// What a dead worker held comes back in order. H34, OBX-049.
pub async fn a_lost_run_comes_back_in_order<H: Harness>() {
    let (h, owner, claimed) = claimed_of::<H>("a1 a2 a3", 2).await;
    settle_all(h.store(), owner, &claimed[..1], &Verdict::Ack).await;
    h.advance(LEASE + MINUTE).await;
    assert_eq!(next(&h, 10).await, "a2 a3");
}

/// Who held a key, and was taken over, cannot settle any more: the key is not handled by two. H4, H34.
pub async fn a_zombie_of_a_key_changes_nothing<H: Harness>() {
    let (h, owner, claimed) = claimed_of::<H>("a1 a2", 1).await;
    h.advance(LEASE + MINUTE).await;
    assert_eq!(next(&h, 1).await, "a1");
    assert_eq!(settle(h.store(), owner, &claimed[0], &Verdict::Ack).await, Settled::LeaseLost);
    assert_eq!(next(&h, 10).await, "");
}

/// By default a dead message blocks its key until it is replayed. H33, H34.
pub async fn a_dead_message_blocks_its_key<H: Harness>() {
    let (h, owner, claimed) = claimed_of::<H>("a1 a2 b1", 1).await;
    settle_all(h.store(), owner, &claimed, &fail("poison")).await;
    assert_eq!(next(&h, 10).await, "b1");
    assert_eq!(replay(h.store(), &Filter::all(), 10).await, 1);
    assert_eq!(next(&h, 10).await, "a1 a2");
}

/// Or deleted. H33.
pub async fn a_deleted_message_frees_its_key<H: Harness>() {
    let (h, owner, claimed) = claimed_of::<H>("a1 a2", 1).await;
    settle_all(h.store(), owner, &claimed, &fail("poison")).await;
    assert_eq!(h.store().delete(&Filter::all(), 10).await.expect("a deletion succeeds"), 1);
    assert_eq!(next(&h, 10).await, "a2");
}

/// A claim may skip dead messages: their key goes on without them. A replayed one takes its old place. H33, H34.
pub async fn a_dead_message_can_be_skipped<H: Harness>() {
    let (h, owner, claimed) = claimed_of::<H>("a1 a2 a3", 1).await;
    settle_all(h.store(), owner, &claimed, &fail("poison")).await;
    let skipped = claim_in(&h, owner, 1, SKIP).await;
    assert_eq!(names(&skipped), "a2");
    replay(h.store(), &Filter::all(), 10).await;
    assert_eq!(names(&claim_in(&h, owner, 10, SKIP).await), "", "a2 is held");
    settle_all(h.store(), owner, &skipped, &Verdict::Ack).await;
    assert_eq!(names(&claim_in(&h, owner, 10, SKIP).await), "a1 a3");
}

/// Messages behind a dead one can be parked: they are dead too, and replayed together they keep their order. H33, H34.
pub async fn messages_behind_a_dead_one_can_be_parked<H: Harness>() {
    let (h, owner, claimed) = claimed_of::<H>("a1 b1 a2 -1 a3", 1).await;
    settle_all(h.store(), owner, &claimed, &fail("poison")).await;
    assert_eq!(reap_all(h.store()).await.parked, 0, "only when asked to");
    let park = Reap { after_dead: AfterDead::Park, ..Reap::default() };
    assert_eq!(h.store().reap(park).await.expect("a reap succeeds").parked, 2);
    let dead = list(h.store(), State::Dead, Filter::all()).await;
    let reasons: Vec<_> = dead.iter().map(|one| one.last_error.as_deref().unwrap_or_default()).collect();
    assert_eq!(reasons, ["poison", REASON_PARKED, REASON_PARKED]);
    assert_eq!(next(&h, 10).await, "b1 -1");
    assert_eq!(replay(h.store(), &Filter::all(), 10).await, 3);
    assert_eq!(next(&h, 10).await, "a1 a2 a3");
}

/// An expired message holds its key back only until the reaper has buried it; then it is a dead one. H33.
pub async fn an_expired_message_is_not_jumped<H: Harness>() {
    let h = start::<H>().await;
    let mut messages = keyed("a1 a2 a3");
    messages[1] = messages[1].clone().expires_in(MINUTE);
    enqueue(h.store(), &messages).await;
    h.advance(HOUR).await;
    let owner = OwnerToken::new();
    let claimed = claim(h.store(), owner, 10).await;
    assert_eq!(names(&claimed), "a1");
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    assert_eq!(next(&h, 10).await, "");
    reap_all(h.store()).await;
    assert_eq!(next(&h, 10).await, "");
    assert_eq!(names(&claim_in(&h, owner, 10, SKIP).await), "a3");
}

/// A message that was enqueued for later takes its place in the order when it is due. WRK-07.
pub async fn a_scheduled_message_holds_nobody_up<H: Harness>() {
    let h = start::<H>().await;
    let mut messages = keyed("a1 a2 a3");
    messages[0] = messages[0].clone().delay(HOUR);
    enqueue(h.store(), &messages).await;
    let owner = OwnerToken::new();
    let claimed = claim(h.store(), owner, 1).await;
    assert_eq!(names(&claimed), "a2");
    h.advance(HOUR).await;
    h.store().renew(owner, &[claimed[0].held], LEASE).await.expect("a renewal succeeds");
    assert_eq!(next(&h, 10).await, "", "a2 is held");
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    let claimed = claim(h.store(), owner, 10).await;
    assert_eq!(names(&claimed), "a1");
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    assert_eq!(next(&h, 10).await, "a3");
}

/// Keys are compared byte for byte: case and trailing spaces make another key. H48.
pub async fn keys_are_compared_byte_for_byte<H: Harness>() {
    let h = start::<H>().await;
    let keys = ["a", "A", "a ", "ä", "a\u{308}", "ss", "ß"];
    let messages: Vec<_> = keys.iter().map(|key| Message::new("t", "").key(*key)).collect();
    enqueue(h.store(), &messages).await;
    for message in &messages {
        assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 1).await), [message.id()]);
    }
}

/// Overlapping transactions: what is committed first goes first, and never two at once. H2, H34.
pub async fn a_late_commit_waits_for_its_key<H: Harness>() {
    let h = start::<H>().await;
    if !H::HAS_ROW_LOCKS {
        return;
    }
    let messages = keyed("a1 a2");
    let mut early = h.begin().await;
    h.enqueue_in(&mut early, Enqueue::pending(&messages[..1])).await.expect("it can be enqueued");
    enqueue(h.store(), &messages[1..]).await;
    let owner = OwnerToken::new();
    let claimed = claim(h.store(), owner, 10).await;
    assert_eq!(names(&claimed), "a2");
    h.commit(early).await;
    assert_eq!(next(&h, 10).await, "", "a2 is held");
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    assert_eq!(next(&h, 10).await, "a1");
}

/// In sequence: all messages as if they had one key, whoever claims. BUS-06.
pub async fn a_sequence_is_handed_out_one_claim_at_a_time<H: Harness>() {
    let h = start::<H>().await;
    enqueue(h.store(), &keyed("-1 a1 -2 b1 -3")).await;
    let owner = OwnerToken::new();
    let claimed = claim_in(&h, owner, 2, SEQUENCE).await;
    assert_eq!(names(&claimed), "-1 a1");
    assert_eq!(names(&claim_in(&h, OwnerToken::new(), 10, SEQUENCE).await), "", "one instance at a time");
    settle_all(h.store(), owner, &claimed[..1], &Verdict::Ack).await;
    settle_all(h.store(), owner, &claimed[1..], &abandon(HOUR, "away")).await;
    assert_eq!(names(&claim_in(&h, owner, 10, SEQUENCE).await), "", "a1 is not overtaken");
    h.advance(HOUR).await;
    let claimed = claim_in(&h, owner, 10, SEQUENCE).await;
    assert_eq!(names(&claimed), "a1");
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    assert_eq!(names(&claim_in(&h, owner, 2, SEQUENCE).await), "-2 b1");
    h.advance(LEASE + MINUTE).await;
    assert_eq!(names(&claim_in(&h, OwnerToken::new(), 10, SEQUENCE).await), "-2 b1 -3", "taken over");
}

/// A dead message stops a sequence, unless it is skipped. BUS-06, H33.
pub async fn a_dead_message_stops_a_sequence<H: Harness>() {
    let h = start::<H>().await;
    enqueue(h.store(), &keyed("-1 -2")).await;
    let owner = OwnerToken::new();
    let claimed = claim_in(&h, owner, 1, SEQUENCE).await;
    settle_all(h.store(), owner, &claimed, &fail("poison")).await;
    assert_eq!(names(&claim_in(&h, owner, 10, SEQUENCE).await), "");
    let skipping = Order { after_dead: AfterDead::Skip, ..SEQUENCE };
    assert_eq!(names(&claim_in(&h, owner, 10, skipping).await), "-2");
}

/// An operator sees which keys wait, behind what, and how many messages. H33.
pub async fn blocked_keys_are_listed<H: Harness>() {
    let (h, owner, claimed) = claimed_of::<H>("a1 b1 c1 d1 a2 b2 a3 d2", 4).await;
    let rows: Vec<_> = claimed.iter().map(|one| one.held.work_id).collect();
    settle_all(h.store(), owner, &claimed[..1], &fail("poison")).await;
    settle_all(h.store(), owner, &claimed[1..2], &abandon(HOUR, "away")).await;
    settle_all(h.store(), owner, &claimed[2..3], &fail("nobody waits behind it")).await;
    let blocked = h.store().blocked_keys(10).await.expect("keys can be listed");
    let seen: Vec<_> = blocked
        .iter()
        .map(|one| (one.key.as_str(), one.head, one.state, one.last_error.as_deref(), one.waiting_count))
        .collect();
    let poison = ("a", rows[0], State::Dead, Some("poison"), 2);
    assert_eq!(seen, [poison, ("b", rows[1], State::Pending, Some("away"), 1)]);
    assert_eq!((blocked[0].due_at.is_some(), blocked[1].due_at.is_some()), (false, true));
    assert_eq!(h.store().blocked_keys(1).await.expect("keys can be listed").len(), 1);
    assert_eq!(refused_fields(h.store().blocked_keys(0).await), ["limit"]);
}
