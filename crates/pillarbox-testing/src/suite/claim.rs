//! Handing out messages.

use std::time::Duration;

use super::support::*;
use crate::Harness;

/// Nothing ready is an empty answer. OBX-023.
pub async fn a_claim_of_nothing_is_empty<H: Harness>() {
    let h = start::<H>().await;
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
}

/// A claim hands out the message, its row, the claim's fence and its history. OBX-022.
pub async fn a_claim_hands_out_whole_messages<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(2);
    let rows = enqueue(h.store(), &batch).await;
    let asked = claim_of(OwnerToken::new(), 10);
    let claimed = h.store().claim(asked.clone()).await.expect("a claim succeeds");
    assert_eq!(claimed.len(), 2);
    for ((one, message), work_id) in claimed.iter().zip(&batch).zip(rows) {
        assert_eq!(one.held, Held { work_id, fence: asked.lease().fence() });
        assert_eq!((one.attempts, one.lost_lease_count, &one.last_error), (1, 0, &None));
        assert_eq!(one.created_at, stored(h.store(), message.id()).await.created_at);
        assert_eq!(one.message.as_ref(), Ok(message));
    }
}

/// `claim_ids` takes the same messages under the same leases, without handing them out. OBX-022.
pub async fn a_claim_of_ids_takes_the_same_leases<H: Harness>() {
    let h = start::<H>().await;
    let rows = enqueue(h.store(), &messages(3)).await;
    let owner = OwnerToken::new();
    let held = h.store().claim_ids(claim_of(owner, 2)).await.expect("a claim succeeds");
    assert_eq!(held.iter().map(|held| held.work_id).collect::<Vec<_>>(), rows[..2]);
    let acks: Vec<_> = held.iter().map(|held| Settlement::ack(*held)).collect();
    assert_eq!(h.store().settle(owner, &acks).await.expect("a settle succeeds"), [Settled::Applied; 2]);
}

/// A claim never takes more than its limit, whatever kinds of messages are ready. OBX-017, OBX-026, H3.
pub async fn a_claim_never_exceeds_its_limit<H: Harness>() {
    let h = start::<H>().await;
    let waited: Vec<_> = messages(7).into_iter().map(|message| message.delay(HOUR)).collect();
    enqueue(h.store(), &waited).await;
    enqueue(h.store(), &messages(7)).await;
    claim(h.store(), OwnerToken::new(), 7).await;
    enqueue(h.store(), &messages(7)).await;
    h.advance(HOUR).await;
    let mut sizes = Vec::new();
    for limit in [1, 2, 5, 8, 10_000] {
        sizes.push(claim(h.store(), OwnerToken::new(), limit).await.len());
    }
    assert_eq!(sizes, [1, 2, 5, 8, 5], "21 messages are ready in all");
    assert_eq!(counts(h.store()).await.processing, 21);
}

/// Messages are handed out in the order of the sequence, sorted, batch after batch. WRK-07.
pub async fn claims_follow_the_sequence<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(10);
    for message in &batch {
        enqueue(h.store(), std::slice::from_ref(message)).await;
    }
    let mut handed_out = Vec::new();
    for _ in 0..4 {
        handed_out.extend(ids_of(&claim(h.store(), OwnerToken::new(), 3).await));
    }
    assert_eq!(handed_out, ids(&batch));
}

/// A message under a running lease is not handed out again, not even to its owner. OBX-019, OBX-084.
pub async fn a_leased_message_is_not_claimed<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    enqueue_and_claim(h.store(), owner).await;
    h.advance(LEASE - MINUTE).await;
    assert_eq!(claim(h.store(), owner, 10).await, []);
    assert_eq!(claim(&another(&h).await, OwnerToken::new(), 10).await, []);
}

/// A claim writes the owner and the end of the lease, by the database's clock. OBX-020, OBX-021, H24.
pub async fn a_claim_records_owner_and_lease<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let batch = messages(1);
    enqueue(h.store(), &batch).await;
    let long = Claim::new(owner, 10 * HOUR, 1).expect("the claim is legal");
    h.store().claim(long).await.expect("a claim succeeds");
    let row = stored(h.store(), batch[0].id()).await;
    assert_eq!((row.state, row.owner), (State::Processing, Some(owner)));
    assert_near(row.locked_until.expect("it is held").duration_since(row.created_at).unwrap_or_default(), 10 * HOUR);
}

/// Two owners share the queue: each message goes to one of them. OBX-083, OBX-084.
pub async fn two_owners_share_the_queue<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(4);
    enqueue(h.store(), &batch).await;
    let mut both = ids_of(&claim(h.store(), OwnerToken::new(), 2).await);
    both.extend(ids_of(&claim(&another(&h).await, OwnerToken::new(), 10).await));
    assert_eq!(both, ids(&batch));
}

/// An attempt is counted when it begins, so that a message that kills its worker is counted too. OBX-038, H30, H39.
pub async fn a_claim_counts_the_attempt<H: Harness>() {
    let h = start::<H>().await;
    let (id, claimed) = enqueue_and_claim(h.store(), OwnerToken::new()).await;
    assert_eq!(claimed.attempts, 1);
    assert_eq!(stored(h.store(), id).await.attempts, 1);
}

/// A lease of no time and a claim of no message are refused, with the field named. OBX-027, OBX-028.
pub async fn a_claim_needs_a_lease_and_a_limit<H: Harness>() {
    let h = start::<H>().await;
    enqueue(h.store(), &messages(1)).await;
    let owner = OwnerToken::new();
    let mut refused = Vec::new();
    for (lease, limit) in [(Duration::ZERO, 1), (LEASE, 0), (Duration::ZERO, 0), (LEASE, 10_001)] {
        match Claim::new(owner, lease, limit) {
            Ok(claim) => panic!("{claim:?} must be refused"),
            Err(invalid) => {
                refused.push(invalid.problems().iter().map(pillarbox_core::Problem::field).collect::<Vec<_>>());
            }
        }
    }
    assert_eq!(refused, [vec!["lease"], vec!["limit"], vec!["lease", "limit"], vec!["limit"]]);
    assert_eq!(counts(h.store()).await.pending, 1);
}

/// Leases of 10 to 300 seconds and batches of 1 to 100 work as asked. OBX-097, OBX-098, IBX-119, IBX-120, WRK-04.
pub async fn the_recommended_leases_and_batches_work<H: Harness>() {
    let h = start::<H>().await;
    enqueue(h.store(), &messages(101)).await;
    let owner = OwnerToken::new();
    for (seconds, limit) in [(10, 1), (300, 100)] {
        let asked = Claim::new(owner, Duration::from_secs(seconds), limit).expect("the claim is legal");
        assert_eq!(h.store().claim(asked).await.expect("a claim succeeds").len(), limit as usize);
    }
}

/// A message past its expiry is not handed out, whether it waited or was ready. OBX-018.
pub async fn an_expired_message_is_not_claimed<H: Harness>() {
    let h = start::<H>().await;
    let ready = messages(1).remove(0).expires_in(HOUR);
    let waiting = messages(1).remove(0).delay(MINUTE).expires_in(HOUR);
    let fresh = messages(1).remove(0).expires_in(2 * HOUR);
    enqueue(h.store(), &[ready]).await;
    enqueue(h.store(), &[waiting]).await;
    enqueue(h.store(), std::slice::from_ref(&fresh)).await;
    h.advance(HOUR).await;
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), [fresh.id()]);
}

/// A message that has not expired yet is handed out, also after its due time. OBX-012, OBX-018.
pub async fn a_message_is_claimed_between_due_and_expiry<H: Harness>() {
    let h = start::<H>().await;
    let message = messages(1).remove(0).delay(HOUR).expires_in(2 * HOUR);
    enqueue(h.store(), std::slice::from_ref(&message)).await;
    h.advance(90 * MINUTE).await;
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), [message.id()]);
}

/// What waited for its time comes before what is new, the longest overdue first, and the answer is sorted. OBX-029,
/// H33.
pub async fn those_that_waited_come_first<H: Harness>() {
    let h = start::<H>().await;
    let [fresh, late, early] = [0, 2, 1].map(|hours| match hours {
        0 => messages(1).remove(0),
        hours => messages(1).remove(0).delay(hours * HOUR),
    });
    for message in [&fresh, &late, &early] {
        enqueue(h.store(), std::slice::from_ref(message)).await;
    }
    h.advance(2 * HOUR).await;
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 1).await), [early.id()]);
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 2).await), [fresh.id(), late.id()]);
}

/// A backlog of waiting messages that are not due does not keep the due ones from being found. OBX-018, H33.
pub async fn messages_that_wait_do_not_hide_those_that_are_ready<H: Harness>() {
    let h = start::<H>().await;
    let later: Vec<_> = messages(200).into_iter().map(|message| message.delay(DAY)).collect();
    enqueue(h.store(), &later).await;
    let batch = messages(3);
    enqueue(h.store(), &batch).await;
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 3).await), ids(&batch));
}

/// A row that nobody can read is handed out as such, can be buried, and does not keep the others back. HOT-11, BUS-10.
pub async fn an_undecodable_row_is_handed_out_as_such<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(2);
    enqueue(h.store(), &batch[..1]).await;
    h.insert_foreign_row("foreign", Some("[1, 2]")).await;
    enqueue(h.store(), &batch[1..]).await;
    let owner = OwnerToken::new();
    let claimed = claim(h.store(), owner, 10).await;
    assert_eq!(claimed.len(), 3);
    assert_eq!(claimed[0].message.as_ref(), Ok(&batch[0]));
    assert_eq!(claimed[2].message.as_ref(), Ok(&batch[1]));
    let why = claimed[1].message.as_ref().expect_err("it is no message");
    assert_eq!(why.column, "headers");
    assert_eq!(settle(h.store(), owner, &claimed[1], &fail(&why.to_string())).await, Settled::Applied);
    let dead = list(h.store(), State::Dead, Filter::topic("foreign")).await;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].message.as_ref().expect_err("it is no message").column, "headers");
}

/// A row written by plain SQL in another language is a message like any other. OBX-094.
pub async fn a_foreign_row_is_a_message<H: Harness>() {
    let h = start::<H>().await;
    h.insert_foreign_row("plain", None).await;
    h.insert_foreign_row("headed", Some(r#"{"retries": 3, "source": "cobol"}"#)).await;
    let claimed = claim(h.store(), OwnerToken::new(), 10).await;
    let read: Vec<_> = claimed.iter().map(|one| one.message.as_ref().expect("it can be read")).collect();
    assert_eq!(read.iter().map(|message| message.topic()).collect::<Vec<_>>(), ["plain", "headed"]);
    assert!(read[0].get_headers().is_empty());
    assert_eq!((read[1].get_headers()["retries"].as_str(), read[1].get_headers()["source"].as_str()), ("3", "cobol"));
    assert_ne!(read[0].id(), read[1].id());
    assert_eq!((claimed[0].attempts, claimed[0].lost_lease_count), (1, 0));
}
