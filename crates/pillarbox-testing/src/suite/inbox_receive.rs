//! Receiving for the queue, and what another delivery of a message does.

use super::support::*;
use crate::Harness;

/// The payload of the message that is claimed next, with its attempts.
async fn next(inbox: &impl InboxStore, owner: OwnerToken) -> (String, u32) {
    let claimed = claim_one(&*inbox.queue(), owner).await;
    let message = claimed.message.expect("the message can be read");
    (String::from_utf8_lossy(message.payload()).into_owned(), claimed.attempts)
}

/// A new message is queued: processing, no attempts, claimable at once, also with an empty payload.
/// IBX-013, IBX-018, IBX-019, IBX-022, IBX-024, IBX-025, IBX-027.
pub async fn a_new_message_is_queued<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let received = receive(&inbox, incoming("1", "")).await;
    assert_eq!((received.before, received.outcome), (None, Reception::Queued));
    let record = record(&inbox, "1").await;
    assert_eq!((record.state, record.attempts), (InboxState::Processing, 0));
    assert_eq!((record.topic.as_deref(), record.queue_id), (Some("topic"), received.message_id));
    assert_eq!(next(&inbox, OwnerToken::new()).await, (String::new(), 1));
}

/// A message that was only asked about is queued by its first delivery. IBX-029.
pub async fn a_seen_message_is_queued<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    see(&inbox, &receipt("1")).await;
    mark(&inbox, &receipt("2"), Mark::Processing).await;
    mark(&inbox, &receipt("3"), Mark::Dead("why".into())).await;
    for (id, before) in [("1", InboxState::Seen), ("2", InboxState::Processing), ("3", InboxState::Dead)] {
        let received = receive(&inbox, incoming(id, id)).await;
        assert_eq!((received.before, received.outcome), (Some(before), Reception::Queued));
        assert_eq!(record(&inbox, id).await.last_error, None);
        assert_eq!(next(&inbox, OwnerToken::new()).await, (id.to_owned(), 1));
    }
}

/// A message that waits in the queue gets the content and due time of the latest delivery and starts anew, under the same id.
/// IBX-014, IBX-026, IBX-029.
pub async fn a_waiting_message_is_replaced<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let first = receive(&inbox, incoming("1", "old")).await;
    handle(&inbox, &abandon(std::time::Duration::ZERO, "tried")).await;
    let again = receive(&inbox, incoming("1", "new")).await;
    assert_eq!((again.before, again.outcome), (Some(InboxState::Processing), Reception::Replaced));
    assert_eq!(again.message_id, first.message_id);
    handle(&inbox, &abandon(HOUR, "tried")).await;
    let delayed = Incoming::new(receipt("1"), Message::new("other", "newest").delay(MINUTE));
    assert_eq!(receive(&inbox, delayed).await.outcome, Reception::Replaced);
    assert_eq!(record(&inbox, "1").await.topic.as_deref(), Some("other"));
    assert!(claim(&*inbox.queue(), OwnerToken::new(), 10).await.is_empty(), "it has the new due time");
    h.advance(MINUTE).await;
    assert_eq!(next(&inbox, OwnerToken::new()).await, ("newest".to_owned(), 1));
    assert!(claim(&*inbox.queue(), OwnerToken::new(), 10).await.is_empty(), "it is there once");
}

/// A dead message starts anew with the next delivery. IBX-029.
pub async fn a_dead_message_is_replaced<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    receive(&inbox, incoming("1", "old")).await;
    handle(&inbox, &fail("poison")).await;
    let again = receive(&inbox, incoming("1", "new")).await;
    assert_eq!((again.before, again.outcome), (Some(InboxState::Dead), Reception::Replaced));
    assert_eq!(inbox_state(&inbox, "1").await, InboxState::Processing);
    assert_eq!(next(&inbox, OwnerToken::new()).await, ("new".to_owned(), 1));
    assert_eq!(count_dead(&*inbox.admin(), &Filter::all()).await, 0);
}

/// A done message stays done, whether it was handled, consumed or marked. IBX-028.
pub async fn a_done_message_is_not_queued_again<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    receive(&inbox, incoming("1", "")).await;
    handle(&inbox, &Verdict::Ack).await;
    mark(&inbox, &receipt("2"), Mark::Processed).await;
    for id in ["1", "2"] {
        let again = receive(&inbox, incoming(id, "again")).await;
        assert_eq!((again.before, again.outcome), (Some(InboxState::Done), Reception::Done));
        assert_eq!(inbox_state(&inbox, id).await, InboxState::Done);
    }
    assert!(claim(&*inbox.queue(), OwnerToken::new(), 10).await.is_empty());
}

/// A message with a due time ahead waits for it; one in the past is ready at once. IBX-023, IBX-032, IBX-024.
pub async fn a_due_time_is_waited_for<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let later = Incoming::new(receipt("1"), Message::new("topic", "later").delay(HOUR));
    let past = Message::new("topic", "past").due_at(std::time::SystemTime::UNIX_EPOCH);
    inbox.receive(&[later, Incoming::new(receipt("2"), past)]).await.expect("messages can be received");
    assert!(record(&inbox, "1").await.due_at.is_some());
    let owner = OwnerToken::new();
    assert_eq!(next(&inbox, owner).await.0, "past");
    assert!(claim(&*inbox.queue(), owner, 10).await.is_empty());
    h.advance(HOUR).await;
    assert_eq!(next(&inbox, owner).await.0, "later");
}

/// Many messages in one call are answered in their order, all or none; what is named twice counts as received twice.
/// IBX-014, IBX-102.
pub async fn a_batch_is_received_whole_and_answered_in_order<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    mark(&inbox, &receipt("done"), Mark::Processed).await;
    let batch = ["b", "done", "a", "b", "c"].map(|id| incoming(id, id));
    let received = inbox.receive(&batch).await.expect("a batch can be received");
    let outcomes: Vec<_> = received.iter().map(|one| one.outcome).collect();
    use Reception::{Done, Queued, Replaced};
    assert_eq!(outcomes, [Queued, Done, Queued, Replaced, Queued]);
    assert_eq!(received[0].message_id, received[3].message_id);
    assert_eq!(claim(&*inbox.queue(), OwnerToken::new(), 10).await.len(), 3);
    let bad = Incoming::new(receipt("e"), Message::new("", ""));
    assert_eq!(refused_fields(inbox.receive(&[incoming("d", ""), bad]).await), ["topic"]);
    assert_eq!(inbox.get("source", "d").await.expect("a message can be looked up"), None);
    assert!(inbox.receive(&[]).await.expect("an empty call is a no-op").is_empty());
}

/// Topics are limited and told apart like everywhere, and a payload may fill its limit. IBX-015, IBX-020, IBX-021, IBX-118.
pub async fn messages_have_the_limits_of_the_queue<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let topic = |topic: String| Incoming::new(receipt("1"), Message::new(topic, ""));
    assert_eq!(refused_fields(inbox.receive(&[topic(String::new())]).await), ["topic"]);
    assert_eq!(refused_fields(inbox.receive(&[topic("x".repeat(256))]).await), ["topic"]);
    let limit = inbox.queue().options().limits.payload_bytes_max;
    let filled = Incoming::new(receipt("1"), Message::new("Order.Created", vec![7; limit]));
    receive(&inbox, filled).await;
    let claimed = claim_one(&*inbox.queue(), OwnerToken::new()).await.message.expect("the message can be read");
    assert_eq!((claimed.topic(), claimed.payload().len()), ("Order.Created", limit));
    let over = Incoming::new(receipt("2"), Message::new("topic", vec![7; limit + 1]));
    assert_eq!(refused_fields(inbox.receive(&[over]).await), ["payload"]);
}

/// Deliveries of the same messages at once, in different orders, with workers in between: none fails, each message stands once
/// in the queue or is done, and none is handled twice. IBX-014, IBX-104, IBX-105, IBX-106.
pub async fn deliveries_at_once_leave_one_message<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let names: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    let deliver = |turn: usize| {
        let (inbox, mut names) = (inbox.clone(), names.clone());
        async move {
            names.rotate_left(turn * 2);
            let batch: Vec<_> = names.iter().map(|name| incoming(name, name)).collect();
            inbox.receive(&batch).await.expect("a batch can be received");
            let owner = OwnerToken::new();
            let claimed = claim(&*inbox.queue(), owner, 5).await;
            let acks: Vec<_> = claimed.iter().map(|one| Settlement::ack(one.held)).collect();
            let settled = inbox.queue().settle(owner, &acks).await.expect("a settle succeeds");
            assert!(settled.iter().all(|one| *one == Settled::Applied), "nobody takes a running message away");
            ids_of(&claimed)
        }
    };
    let mut handled = at_once((0..8).map(deliver)).await.concat();
    let owner = OwnerToken::new();
    let rest = claim(&*inbox.queue(), owner, 100).await;
    settle_all(&*inbox.queue(), owner, &rest, &Verdict::Ack).await;
    handled.extend(ids_of(&rest));
    let count = handled.len();
    handled.sort_unstable();
    handled.dedup();
    assert_eq!((count, handled.len()), (20, 20), "each message is handled once");
    for name in &names {
        assert_eq!(inbox_state(&inbox, name).await, InboxState::Done);
    }
}
