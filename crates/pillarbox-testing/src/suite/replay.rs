//! Dead messages: replayed or deleted by an operator.

use std::time::Duration;

use super::support::*;
use crate::Harness;

/// A replayed message starts anew under its old names: untried, due at once, without expiry; its last error stays.
/// BUS-10.
pub async fn a_replayed_message_starts_anew<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let message = messages(1).remove(0).delay(MINUTE).expires_in(HOUR);
    enqueue(h.store(), std::slice::from_ref(&message)).await;
    h.advance(MINUTE).await;
    claim_one(h.store(), owner).await;
    h.advance(LEASE).await;
    let claimed = claim_one(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &fail("broken")).await;
    let dead = stored(h.store(), message.id()).await;
    assert_eq!((dead.attempts, dead.lost_lease_count), (2, 1));

    h.advance(DAY).await;
    assert_eq!(replay(h.store(), &Filter::work_id(dead.work_id), 1).await, 1);
    let row = stored(h.store(), message.id()).await;
    assert_eq!((row.work_id, row.state, row.attempts, row.lost_lease_count), (dead.work_id, State::Pending, 0, 0));
    assert_eq!((row.due_at, row.settled_at, row.settled_by), (None, None, None));
    assert_eq!(row.last_error.as_deref(), Some("broken"));
    assert_eq!(reap_all(h.store()).await, Reaped::default(), "it does not expire any more");
    let claimed = claim_one(h.store(), owner).await;
    assert_eq!((claimed.attempts, claimed.last_error.as_deref()), (1, Some("broken")));
    let again = claimed.message.as_ref().expect("it can be read");
    assert_eq!((again.id(), again.payload(), again.expires()), (message.id(), message.payload(), None));
    settle_all(h.store(), owner, &[claimed], &Verdict::Ack).await;
}

/// A replay counts itself in a header, so that a broker can tell it from what it repeats: all attempts of one replay say the same,
/// and the next one more, however the message ended. What others wrote in its place is no reason to fail. BUS-10.
pub async fn a_replay_counts_itself<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let said = async || {
        let claimed = claim_one(h.store(), owner).await;
        let headers = claimed.message.as_ref().expect("it can be read").get_headers().clone();
        (claimed, headers.into_iter().collect::<Vec<_>>())
    };
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let count = |value: &str| header(wire::REPLAY, value);
    let table = [
        (Message::new("topic", ""), vec![]),
        (Message::new("topic", "").header("a", "ü\"\\"), vec![header("a", "ü\"\\")]),
        (Message::new("topic", "").header(wire::REPLAY, "often"), vec![]),
        (Message::new("topic", "").header(wire::REPLAY, ""), vec![]),
        (Message::new("topic", "").header(wire::REPLAY, "9999999999"), vec![]),
    ];
    for (message, own) in table {
        enqueue(h.store(), std::slice::from_ref(&message)).await;
        let mut claimed = said().await.0;
        for (ended, replays) in [(Ended::Dead, "1"), (Ended::Done, "2"), (Ended::Dead, "3")] {
            let verdict = if ended == Ended::Done { Verdict::Ack } else { fail("x") };
            settle_all(h.store(), owner, &[claimed], &verdict).await;
            let all = Replay { ended, filter: Filter::all(), after: None, limit: 10 };
            h.store().replay(&all).await.expect("a replay succeeds");
            let expected: Vec<_> = own.iter().cloned().chain([count(replays)]).collect();
            let (first, headers) = said().await;
            assert_eq!(headers, expected);
            settle_all(h.store(), owner, &[first], &Verdict::Release { delay: Duration::ZERO }).await;
            let (again, headers) = said().await;
            assert_eq!(headers, expected, "another attempt of the same replay");
            claimed = again;
        }
        settle_all(h.store(), owner, &[claimed], &fail("x")).await;
        h.store().delete(&Filter::all(), 10).await.expect("a delete succeeds");
    }
}

/// Messages that lost their leases or expired can be replayed like those that failed. BUS-10.
pub async fn every_dead_message_can_be_replayed<H: Harness>() {
    let h = H::start(losing(0)).await;
    let owner = OwnerToken::new();
    let lost = messages(1);
    enqueue(h.store(), &lost).await;
    claim_one(h.store(), owner).await;
    let expired = [messages(1).remove(0).expires_in(MINUTE)];
    enqueue(h.store(), &expired).await;
    h.advance(LEASE).await;
    assert_eq!(reap_all(h.store()).await, Reaped { lost: 1, expired: 1, ..Reaped::default() });
    assert_eq!(replay(h.store(), &Filter::all(), 10).await, 2);
    assert_eq!(ids_of(&claim(h.store(), owner, 10).await), [lost[0].id(), expired[0].id()]);
}

/// One message can be replayed and the others left. BUS-10.
pub async fn one_of_many_can_be_replayed<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(3);
    let rows = bury(h.store(), &batch, "x").await;
    assert_eq!(replay(h.store(), &Filter::work_id(rows[1]), 10).await, 1);
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), [batch[1].id()]);
    assert_eq!(counts(h.store()).await.dead, 2);
}

/// A dry run counts what a replay would take; a replay takes no more than its limit, lowest first. BUS-10.
pub async fn a_replay_is_bounded_and_can_be_tried_dry<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(5);
    bury(h.store(), &batch, "timeout: x").await;
    let others = [Message::new("other", "")];
    bury(h.store(), &others, "timeout: x").await;
    bury(h.store(), &messages(1), "refused").await;
    let filter = Filter { error_contains: Some("timeout".into()), ..Filter::topic("topic") };
    assert_eq!(count_dead(h.store(), &filter).await, 5);
    assert_eq!(counts(h.store()).await.dead, 7, "a dry run changes nothing");
    assert_eq!(replay(h.store(), &filter, 2).await, 2);
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&batch[..2]));
    assert_eq!(replay(h.store(), &filter, 10).await, 3);
    assert_eq!(replay(h.store(), &filter, 10).await, 0);
    assert_eq!(counts(h.store()).await.dead, 2);
}

/// Only dead messages can be replayed or deleted, also when others are named. OBX-052, H4.
pub async fn only_dead_messages_can_be_replayed_or_deleted<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let batch = messages(3);
    let work_ids = enqueue(h.store(), &batch).await;
    let claimed = claim(h.store(), owner, 2).await;
    settle_all(h.store(), owner, &claimed[..1], &Verdict::Ack).await;
    let before = counts(h.store()).await;
    let filter = Filter { work_ids, ..Filter::all() };
    assert_eq!(replay(h.store(), &filter, 10).await, 0);
    assert_eq!(h.store().delete(&filter, 10).await.expect("a delete succeeds"), 0);
    assert_eq!(count_dead(h.store(), &filter).await, 0);
    assert_eq!(counts(h.store()).await, before);
    settle_all(h.store(), owner, &claimed[1..], &Verdict::Ack).await;
}

/// Deleted messages are gone; the delete takes no more than its limit, lowest first, and only what matches. BUS-10.
pub async fn a_delete_is_bounded_and_final<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(3);
    bury(h.store(), &batch, "x").await;
    let others = [Message::new("other", "")];
    bury(h.store(), &others, "x").await;
    assert_eq!(h.store().delete(&Filter::topic("topic"), 2).await.expect("a delete succeeds"), 2);
    assert_eq!(find(h.store(), batch[0].id()).await, None);
    let left = listed_ids(&list(h.store(), State::Dead, Filter::all()).await);
    assert_eq!(left, [batch[2].id(), others[0].id()]);
    assert_eq!(h.store().delete(&Filter::topic("topic"), 10).await.expect("a delete succeeds"), 1);
    assert_eq!(replay(h.store(), &Filter::topic("topic"), 10).await, 0);
}

/// A row that cannot be read can be listed and replayed after the fix, like any dead message. HOT-11, BUS-10.
pub async fn an_undecodable_row_can_be_replayed<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    h.insert_foreign_row("foreign", Some("[1, 2]")).await;
    let claimed = claim(h.store(), owner, 10).await;
    settle_all(h.store(), owner, &claimed, &fail("undecodable")).await;
    assert_eq!(replay(h.store(), &Filter::topic("foreign"), 10).await, 1);
    assert_eq!(claim_one(h.store(), owner).await.held.work_id, claimed[0].held.work_id);
}
