//! What each verdict does.

use std::time::Duration;

use pillarbox_core::message::HORIZON_MAX;
use pillarbox_core::outbox::REASON_CHARS_MAX;

use super::support::*;
use crate::Harness;

/// An acknowledged message is done: when and by whom is recorded. OBX-030, OBX-031, OBX-032, BUS-08.
pub async fn an_acked_message_is_done<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    h.advance(2 * HOUR).await;
    settle_all(h.store(), owner, &[claimed], &Verdict::Ack).await;
    let row = stored(h.store(), id).await;
    assert_eq!((row.state, row.settled_by, row.owner, row.locked_until), (State::Done, Some(owner), None, None));
    assert_near(row.settled_at.expect("it is settled").duration_since(row.created_at).unwrap_or_default(), 2 * HOUR);
}

/// An acknowledged message is never handed out again, whatever the retention and however late. OBX-024, OBX-035.
pub async fn an_acked_message_is_never_claimed<H: Harness>() {
    for retention in [Retention::Delete, Retention::Receipt(DAY), Retention::Message(DAY)] {
        let h = H::start(keeping(retention)).await;
        let owner = OwnerToken::new();
        let (_, claimed) = enqueue_and_claim(h.store(), owner).await;
        settle_all(h.store(), owner, &[claimed], &Verdict::Ack).await;
        assert_eq!(claim(h.store(), owner, 10).await, []);
        h.advance(2 * LEASE).await;
        reap_all(h.store()).await;
        assert_eq!(claim(h.store(), owner, 10).await, [], "{retention:?}");
    }
}

/// An abandoned message is free again, and its attempt is spent. OBX-037, OBX-038.
pub async fn an_abandoned_message_is_free_again<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &abandon(Duration::ZERO, "try again")).await;
    let row = stored(h.store(), id).await;
    assert_eq!((row.state, row.owner, row.locked_until, row.due_at), (State::Pending, None, None, None));
    assert_eq!((row.attempts, row.lost_lease_count), (1, 0));
    let again = claim_one(h.store(), OwnerToken::new()).await;
    assert_eq!((again.attempts, again.last_error.as_deref()), (2, Some("try again")));
}

/// An abandoned message comes back when its delay has passed, not before. OBX-029, OBX-039, OBX-042.
pub async fn an_abandoned_message_waits_for_its_delay<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &abandon(10 * HOUR, "later")).await;
    let row = stored(h.store(), id).await;
    assert_eq!((row.state, row.owner, row.locked_until), (State::Pending, None, None));
    let wait = row.due_at.expect("it waits").duration_since(row.created_at).unwrap_or_default();
    assert_near(wait, 10 * HOUR);
    h.advance(10 * HOUR - MINUTE).await;
    assert_eq!(claim(h.store(), owner, 10).await, []);
    h.advance(MINUTE).await;
    assert_eq!(claim_one(h.store(), owner).await.attempts, 2);
}

/// The reason of an abandoned message is kept; one without a reason leaves the last one standing. OBX-043.
pub async fn an_abandon_records_its_reason<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &abandon(Duration::ZERO, "first")).await;
    for (reason, expected) in [("", "first"), ("second", "second")] {
        let claimed = claim_one(h.store(), owner).await;
        settle_all(h.store(), owner, &[claimed], &abandon(HOUR, reason)).await;
        assert_eq!(stored(h.store(), id).await.last_error.as_deref(), Some(expected));
        h.advance(HOUR).await;
    }
    assert_eq!(claim_one(h.store(), owner).await.last_error.as_deref(), Some("second"));
}

/// A failed message is dead with its reason, and nobody gets it any more. OBX-025, OBX-044, OBX-045, OBX-048.
pub async fn a_failed_message_is_dead<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    h.advance(2 * HOUR).await;
    settle_all(h.store(), owner, &[claimed], &fail("no such account")).await;
    let row = stored(h.store(), id).await;
    assert_eq!((row.state, row.settled_by, row.owner, row.attempts), (State::Dead, Some(owner), None, 1));
    assert_eq!(row.last_error.as_deref(), Some("no such account"));
    assert_near(row.settled_at.expect("it is settled").duration_since(row.created_at).unwrap_or_default(), 2 * HOUR);
    h.advance(10 * DAY).await;
    reap_all(h.store()).await;
    assert_eq!(claim(h.store(), owner, 10).await, []);
}

/// A message that fails without a reason keeps the one of its last attempt. OBX-045.
pub async fn a_fail_without_a_reason_keeps_the_last_one<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &abandon(Duration::ZERO, "first")).await;
    let claimed = claim_one(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &fail("")).await;
    assert_eq!(stored(h.store(), id).await.last_error.as_deref(), Some("first"));
}

/// A released message gets its attempt back and keeps its last error, at once or after a delay. H32.
pub async fn a_released_message_gets_its_attempt_back<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &abandon(Duration::ZERO, "first")).await;
    let claimed = claim_one(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &release(Duration::ZERO)).await;
    let row = stored(h.store(), id).await;
    assert_eq!((row.state, row.attempts, row.owner, row.due_at), (State::Pending, 1, None, None));
    let claimed = claim_one(h.store(), owner).await;
    assert_eq!((claimed.attempts, claimed.last_error.as_deref()), (2, Some("first")));
    settle_all(h.store(), owner, &[claimed], &release(HOUR)).await;
    assert_eq!(stored(h.store(), id).await.attempts, 1);
    assert_eq!(claim(h.store(), owner, 10).await, []);
    h.advance(HOUR).await;
    let claimed = claim_one(h.store(), owner).await;
    assert_eq!((claimed.attempts, claimed.lost_lease_count, claimed.last_error.as_deref()), (2, 0, Some("first")));
}

/// Many verdicts in one call are each applied to their own message and answered in order. OBX-080, WRK-01.
pub async fn verdicts_of_one_call_do_not_mix<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let batch = messages(6);
    enqueue(h.store(), &batch).await;
    let claimed = claim(h.store(), owner, 10).await;
    let verdicts = [
        fail("five"),
        Verdict::Ack,
        abandon(HOUR, "three"),
        release(Duration::ZERO),
        abandon(Duration::ZERO, "one"),
        release(HOUR),
    ];
    // Settled from the last to the first: an answer must not depend on the order of the rows.
    let settlements: Vec<_> = claimed.iter().rev().zip(&verdicts).map(|(one, v)| settlement(one, v)).collect();
    let settled = h.store().settle(owner, &settlements).await.expect("a settle succeeds");
    assert_eq!(settled, [Settled::Applied; 6]);
    let mut seen = Vec::new();
    for message in batch.iter().rev() {
        let row = stored(h.store(), message.id()).await;
        seen.push((row.state, row.attempts, row.last_error, row.due_at.is_some()));
    }
    let text = |text: &str| Some(text.to_owned());
    let expected = [
        (State::Dead, 1, text("five"), false),
        (State::Done, 1, None, false),
        (State::Pending, 1, text("three"), true),
        (State::Pending, 0, None, false),
        (State::Pending, 1, text("one"), false),
        (State::Pending, 0, None, true),
    ];
    assert_eq!(seen, expected);
}

/// An empty call does nothing and is no error. OBX-036.
pub async fn an_empty_settle_is_a_no_op<H: Harness>() {
    let h = start::<H>().await;
    let (id, _) = enqueue_and_claim(h.store(), OwnerToken::new()).await;
    assert_eq!(h.store().settle(OwnerToken::new(), &[]).await.expect("nothing is wrong with it"), []);
    assert_eq!(state(h.store(), id).await, State::Processing);
}

/// More settlements than one call may carry are refused; as many as it may carry are applied. OBX-080, H8.
pub async fn a_settle_is_bounded<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    enqueue(h.store(), &messages(10_000)).await;
    let claimed = claim(h.store(), owner, 10_000).await;
    let mut acks: Vec<_> = claimed.iter().map(|one| Settlement::ack(one.held)).collect();
    acks.push(acks[0].clone());
    assert_eq!(refused_fields(h.store().settle(owner, &acks).await), ["settlements"]);
    assert_eq!(counts(h.store()).await.processing, 10_000);
    acks.pop();
    let settled = h.store().settle(owner, &acks).await.expect("a settle succeeds");
    assert!(settled.len() == 10_000 && settled.iter().all(|one| *one == Settled::Applied));
    assert_eq!(counts(h.store()).await.done, 10_000);
}

/// A long reason is cut at 4000 characters, on a character's boundary. HOT-14.
pub async fn a_reason_is_cut_at_4000_characters<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let reason = format!("{}{}", "\u{1F4EE}".repeat(REASON_CHARS_MAX), "cut");
    for verdict in [abandon(Duration::ZERO, &reason), fail(&reason)] {
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        settle_all(h.store(), owner, &[claimed], &verdict).await;
        let kept = stored(h.store(), id).await.last_error.expect("there is a reason");
        assert!(kept == "\u{1F4EE}".repeat(REASON_CHARS_MAX), "{} characters were kept", kept.chars().count());
        claim(h.store(), owner, 10).await;
    }
}

/// A reason that holds a NUL, which databases refuse in texts, does not make a message unsettleable. H48, HOT-14.
pub async fn a_reason_with_nul_can_be_stored<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &fail("before\0after")).await;
    let kept = stored(h.store(), id).await.last_error.expect("there is a reason");
    assert!(kept.starts_with("before") && kept.ends_with("after") && !kept.contains('\0'), "{kept:?}");
}

/// A delay without end is bounded to what every database can add to its clock. H36, H52.
pub async fn a_delay_without_end_is_bounded<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for verdict in [abandon(Duration::MAX, ""), release(Duration::MAX)] {
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        settle_all(h.store(), owner, &[claimed], &verdict).await;
        let row = stored(h.store(), id).await;
        assert_near(row.due_at.expect("it waits").duration_since(row.created_at).unwrap_or_default(), HORIZON_MAX);
    }
    assert_eq!(claim(h.store(), owner, 10).await, []);
}
