//! The inbox's queue: what the outbox's machinery does with received messages.

use std::collections::HashSet;
use std::time::Duration;

use pillarbox_core::inbox::{MESSAGE_ID_HEADER, SOURCE_HEADER};

use super::support::*;
use crate::Harness;

/// A claim hands out whole received messages with their source and id, up to its limit, under a lease.
/// IBX-030, IBX-031, IBX-033, IBX-034, IBX-035, IBX-036, IBX-037, IBX-039, IBX-076.
pub async fn a_claim_hands_out_received_messages<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let owner = OwnerToken::new();
    assert!(claim(&*inbox.queue(), owner, 10).await.is_empty());
    let message = Message::new("topic", "payload").header("trace", "7").key("k");
    let received = receive(&inbox, Incoming::new(Receipt::new("stripe", "evt 1"), message)).await;
    for id in ["2", "3"] {
        receive(&inbox, incoming(id, "")).await;
    }
    let claimed = claim(&*inbox.queue(), owner, 2).await;
    assert_eq!(claimed.len(), 2);
    let first = claimed[0].message.as_ref().expect("the message can be read");
    assert_eq!((first.id(), first.topic(), &first.payload()[..]), (received.message_id, "topic", &b"payload"[..]));
    assert_eq!(first.get_headers()[SOURCE_HEADER], "stripe");
    assert_eq!(first.get_headers()[MESSAGE_ID_HEADER], "evt 1");
    assert_eq!((first.get_headers()["trace"].as_str(), first.get_key()), ("7", Some("k")));
    assert_eq!(claim(&*inbox.queue(), OwnerToken::new(), 10).await.len(), 1, "what is leased is not claimed");
    let name = MessageName::Message(received.message_id);
    let row = inbox.admin().get(name).await.expect("a message can be looked up").expect("the message is stored");
    assert_eq!((row.owner, row.locked_until.is_some()), (Some(owner), true));
    assert!(claim(h.store(), owner, 10).await.is_empty(), "the outbox has none of them");
}

/// A renewed lease keeps a received message for as long as was asked for. IBX-033.
pub async fn a_renewed_lease_keeps_a_received_message<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let queue = inbox.queue();
    let owner = OwnerToken::new();
    receive(&inbox, incoming("1", "")).await;
    let held = claim(&*queue, owner, 1).await[0].held;
    let renew = queue.renew(owner, &[held], 2 * HOUR).await.expect("a lease can be renewed");
    assert_eq!(renew, [Settled::Applied]);
    h.advance(HOUR).await;
    assert!(claim(&*queue, OwnerToken::new(), 1).await.is_empty(), "it is still held");
    h.advance(2 * HOUR).await;
    assert_eq!(claim(&*queue, OwnerToken::new(), 1).await.len(), 1);
}

/// A claim needs a lease, a limit and an owner that is somebody. IBX-040, IBX-041, IBX-043, IBX-130.
pub async fn a_claim_needs_lease_limit_and_owner<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    receive(&inbox, incoming("1", "")).await;
    let refused = Claim::new(OwnerToken::new(), Duration::ZERO, 0).expect_err("both are out of range");
    assert_eq!(refused.problems().len(), 2);
    OwnerToken::from_uuid(uuid::Uuid::nil()).expect_err("the empty owner is nobody");
    assert_eq!(claim(&*inbox.queue(), OwnerToken::new(), 10).await.len(), 1);
}

/// An acknowledged message is done and processed, and never claimed again; only its owner can say so.
/// IBX-003, IBX-038, IBX-044, IBX-045, IBX-046, IBX-047, IBX-048, IBX-049.
pub async fn an_acked_message_is_processed<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let owner = OwnerToken::new();
    receive(&inbox, incoming("1", "")).await;
    let held = claim_one(&*inbox.queue(), owner).await;
    assert_eq!(settle(&*inbox.queue(), OwnerToken::new(), &held, &Verdict::Ack).await, Settled::LeaseLost);
    assert!(!see(&inbox, &receipt("1")).await.is_processed());
    assert!(inbox.queue().settle(owner, &[]).await.expect("an empty settle is a no-op").is_empty());
    assert_eq!(settle(&*inbox.queue(), owner, &held, &Verdict::Ack).await, Settled::Applied);
    assert_eq!(inbox_state(&inbox, "1").await, InboxState::Done);
    assert!(see(&inbox, &receipt("1")).await.is_processed());
    h.advance(DAY).await;
    assert!(claim(&*inbox.queue(), owner, 10).await.is_empty());
}

/// An abandoned message is processing still, keeps its attempt and error, and comes again after its delay.
/// IBX-042, IBX-050, IBX-051, IBX-052, IBX-053, IBX-054, IBX-055, IBX-056, IBX-057, IBX-059.
pub async fn an_abandoned_message_comes_again<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    receive(&inbox, incoming("1", "")).await;
    let held = handle(&inbox, &abandon(HOUR, "busy")).await;
    let owner = OwnerToken::new();
    assert_eq!(settle(&*inbox.queue(), owner, &held, &abandon(HOUR, "late")).await, Settled::LeaseLost);
    let after = record(&inbox, "1").await;
    assert_eq!((after.state, after.attempts), (InboxState::Processing, 1));
    assert_eq!(after.last_error.as_deref(), Some("busy"));
    assert!(claim(&*inbox.queue(), owner, 10).await.is_empty());
    h.advance(HOUR).await;
    assert_eq!(claim_one(&*inbox.queue(), owner).await.attempts, 2);
}

/// A failed message is dead with its error, is listed, and comes back when it is replayed.
/// IBX-060, IBX-061, IBX-062, IBX-063, IBX-064, IBX-065, IBX-066, IBX-067.
pub async fn a_failed_message_is_dead_until_replayed<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    receive(&inbox, incoming("1", "payload")).await;
    let held = handle(&inbox, &fail("poison")).await;
    assert_eq!(settle(&*inbox.queue(), OwnerToken::new(), &held, &fail("late")).await, Settled::LeaseLost);
    let dead = record(&inbox, "1").await;
    assert_eq!((dead.state, dead.last_error.as_deref()), (InboxState::Dead, Some("poison")));
    assert!(!see(&inbox, &receipt("1")).await.is_processed());
    assert!(claim(&*inbox.queue(), OwnerToken::new(), 10).await.is_empty());
    assert_eq!(list(&*inbox.admin(), State::Dead, Filter::all()).await.len(), 1);
    assert_eq!(replay(&*inbox.admin(), &Filter::all(), 10).await, 1);
    assert_eq!(inbox_state(&inbox, "1").await, InboxState::Processing);
    handle(&inbox, &Verdict::Ack).await;
    assert_eq!(inbox_state(&inbox, "1").await, InboxState::Done);
}

/// A lease that ran out is reaped, and its message comes again; done and dead ones are left alone.
/// IBX-068, IBX-069, IBX-070, IBX-071, IBX-072.
pub async fn a_reap_frees_received_messages<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    for (id, verdict) in [("done", Verdict::Ack), ("dead", fail("poison"))] {
        receive(&inbox, incoming(id, "")).await;
        handle(&inbox, &verdict).await;
    }
    receive(&inbox, incoming("1", "")).await;
    claim_one(&*inbox.queue(), OwnerToken::new()).await;
    h.advance(LEASE).await;
    assert_eq!(reap_all(&*inbox.queue()).await.released, 1);
    assert_eq!(inbox_state(&inbox, "1").await, InboxState::Processing);
    assert_eq!(inbox_state(&inbox, "done").await, InboxState::Done);
    assert_eq!(inbox_state(&inbox, "dead").await, InboxState::Dead);
    assert_eq!(claim_one(&*inbox.queue(), OwnerToken::new()).await.attempts, 2);
}

/// Many workers on one inbox never share a message. IBX-105, IBX-106.
pub async fn workers_never_share_a_received_message<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let batch: Vec<_> = (0..400).map(|number| incoming(&number.to_string(), "")).collect();
    inbox.receive(&batch).await.expect("a batch can be received");
    let work = |_| {
        let queue = inbox.queue();
        async move {
            let owner = OwnerToken::new();
            let mut seen = Vec::new();
            loop {
                let claimed = claim(&*queue, owner, 20).await;
                if claimed.is_empty() {
                    return seen;
                }
                seen.extend(ids_of(&claimed));
                settle_all(&*queue, owner, &claimed, &Verdict::Ack).await;
                tokio::task::yield_now().await;
            }
        }
    };
    let mut seen = at_once((0..8).map(work)).await.concat();
    seen.extend(work(8).await);
    assert_eq!((seen.len(), seen.iter().collect::<HashSet<_>>().len()), (400, 400));
}

/// A mark takes a queued message along: processed leaves the queue, also from under a lease; dead lies there with its payload.
/// IBX-002, IBX-038, IBX-099.
pub async fn a_mark_takes_the_queued_message_along<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let owner = OwnerToken::new();
    for id in ["1", "2"] {
        receive(&inbox, incoming(id, "payload")).await;
    }
    let held = claim(&*inbox.queue(), owner, 2).await;
    assert_eq!(mark(&inbox, &receipt("1"), Mark::Processing).await, InboxState::Processing);
    assert_eq!(mark(&inbox, &receipt("1"), Mark::Processed).await, InboxState::Processing);
    assert_eq!(mark(&inbox, &receipt("2"), Mark::Dead("by hand".into())).await, InboxState::Processing);
    for lost in &held {
        assert_eq!(settle(&*inbox.queue(), owner, lost, &Verdict::Ack).await, Settled::LeaseLost);
    }
    assert_eq!(inbox_state(&inbox, "1").await, InboxState::Done);
    let dead = record(&inbox, "2").await;
    assert_eq!((dead.state, dead.last_error.as_deref()), (InboxState::Dead, Some("by hand")));
    let listed = list(&*inbox.admin(), State::Dead, Filter::all()).await;
    assert_eq!(&listed[0].message.as_ref().expect("the message can be read").payload()[..], b"payload");
    assert_eq!(mark(&inbox, &receipt("2"), Mark::Processed).await, InboxState::Dead);
    assert_eq!(inbox_state(&inbox, "2").await, InboxState::Done);
    assert_eq!(count_dead(&*inbox.admin(), &Filter::all()).await, 0);
    let delayed = Incoming::new(receipt("3"), Message::new("topic", "").delay(HOUR));
    receive(&inbox, delayed).await;
    assert_eq!(mark(&inbox, &receipt("3"), Mark::Dead("by hand".into())).await, InboxState::Processing);
    h.advance(HOUR).await;
    assert!(claim(&*inbox.queue(), owner, 10).await.is_empty());
    assert_eq!(inbox_state(&inbox, "3").await, InboxState::Dead);
}
