//! What becomes of done messages.

use super::support::*;
use crate::Harness;

/// Stores and acknowledges messages; answers who did it.
async fn finish<H: Harness>(h: &H, batch: &[Message]) -> OwnerToken {
    let owner = OwnerToken::new();
    enqueue(h.store(), batch).await;
    let claimed = claim(h.store(), owner, 10_000).await;
    assert_eq!(claimed.len(), batch.len());
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    owner
}

fn full() -> Message {
    Message::new("topic", "secret")
        .message_type("created")
        .aggregate_type("order")
        .aggregate_id(7)
        .tenant("acme")
        .key("customer")
        .correlation_id("request")
        .causation_id("command")
        .content_type("text/plain")
        .header("name", "value")
        .occurred_at(std::time::SystemTime::UNIX_EPOCH + DAY)
        .priority(3)
}

/// With `Delete`, an acknowledged message is gone. OBX-030, OBX-035.
pub async fn delete_leaves_nothing<H: Harness>() {
    let h = H::start(keeping(Retention::Delete)).await;
    let batch = [full()];
    finish(&h, &batch).await;
    assert_eq!(find(h.store(), batch[0].id()).await, None);
    assert!(h.store().overview().await.expect("messages can be counted").topics.is_empty());
}

/// With `Message`, an acknowledged message can be read whole until its time is over. OBX-030, WRK-09.
pub async fn a_kept_message_stays_whole<H: Harness>() {
    let h = H::start(keeping(Retention::Message(DAY))).await;
    let batch = [full()];
    let owner = finish(&h, &batch).await;
    let row = stored(h.store(), batch[0].id()).await;
    assert_eq!((row.state, row.is_receipt, row.settled_by, row.attempts), (State::Done, false, Some(owner), 1));
    assert_eq!(row.message.as_ref(), Ok(&batch[0]));
}

/// With `Receipt`, only what identifies the message stays: no payload, no headers, no tracing fields. OBX-030, H54.
pub async fn a_receipt_keeps_no_content<H: Harness>() {
    let h = H::start(keeping(Retention::Receipt(DAY))).await;
    let message = full();
    let owner = OwnerToken::new();
    enqueue(h.store(), std::slice::from_ref(&message)).await;
    let claimed = claim_one(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &abandon(std::time::Duration::ZERO, "first")).await;
    let created_at = stored(h.store(), message.id()).await.created_at;
    let claimed = claim_one(h.store(), owner).await;
    settle_all(h.store(), owner, &[claimed], &Verdict::Ack).await;

    let row = stored(h.store(), message.id()).await;
    assert_eq!((row.state, row.is_receipt, row.settled_by), (State::Done, true, Some(owner)));
    assert_eq!((row.attempts, row.created_at, &row.last_error), (2, created_at, &None));
    let receipt = row.message.expect("it can be read");
    assert_eq!((receipt.topic(), receipt.get_message_type()), ("topic", Some("created")));
    assert!(receipt.payload().is_empty() && receipt.get_headers().is_empty());
    assert_eq!(receipt.get_aggregate_type(), pillarbox_core::message::GLOBAL_AGGREGATE);
    assert_eq!((receipt.get_aggregate_id(), receipt.get_tenant(), receipt.get_key()), (None, None, None));
    assert_eq!((receipt.get_correlation_id(), receipt.get_causation_id()), (None, None));
    assert_eq!((receipt.get_content_type(), receipt.get_occurred_at()), (None, None));
}

/// A purge removes done messages when their time is over, not before. WRK-09, BUS-09.
pub async fn a_purge_waits_for_the_retention<H: Harness>() {
    for retention in [Retention::Message(DAY), Retention::Receipt(DAY)] {
        let h = H::start(keeping(retention)).await;
        let batch = messages(2);
        finish(&h, &batch).await;
        h.advance(DAY - MINUTE).await;
        assert_eq!(purge(h.store()).await, 0);
        h.advance(MINUTE).await;
        assert_eq!(purge(h.store()).await, 2);
        assert_eq!(find(h.store(), batch[0].id()).await, None);
        assert_eq!(purge(h.store()).await, 0);
    }
}

/// A purge never touches what is pending, waiting, leased or dead, however old. WRK-09, OBX-052.
pub async fn a_purge_touches_only_done_messages<H: Harness>() {
    let h = H::start(keeping(Retention::Message(DAY))).await;
    let owner = OwnerToken::new();
    bury(h.store(), &messages(1), "broken").await;
    finish(&h, &messages(1)).await;
    enqueue_and_claim(h.store(), owner).await;
    enqueue(h.store(), &messages(1)).await;
    enqueue(h.store(), &[messages(1).remove(0).delay(30 * DAY)]).await;
    h.advance(60 * DAY).await;
    assert_eq!(purge(h.store()).await, 1);
    let left = counts(h.store()).await;
    assert_eq!((left.pending, left.processing, left.done, left.dead), (2, 1, 0, 1));
}

/// A purge removes no more than its limit, the oldest first. WRK-09, BUS-09.
pub async fn a_purge_is_bounded_and_starts_with_the_oldest<H: Harness>() {
    let h = H::start(keeping(Retention::Message(DAY))).await;
    let old = messages(2);
    finish(&h, &old).await;
    h.advance(HOUR).await;
    let newer = messages(2);
    finish(&h, &newer).await;
    h.advance(2 * DAY).await;
    let limit = PurgeLimit::new(2).expect("the limit is legal");
    assert_eq!(h.store().purge(limit).await.expect("a purge succeeds"), 2);
    assert_eq!(listed_ids(&list(h.store(), State::Done, Filter::all()).await), ids(&newer));
    let limit = PurgeLimit::new(1).expect("the limit is legal");
    assert_eq!(h.store().purge(limit).await.expect("a purge succeeds"), 1);
}

/// A store that deletes at once also purges what an earlier setting kept. WRK-09.
pub async fn a_change_of_retention_is_followed<H: Harness>() {
    let h = H::start(keeping(Retention::Message(DAY))).await;
    finish(&h, &messages(2)).await;
    let deleting = h.connect(keeping(Retention::Delete)).await.expect("a second process can connect");
    assert_eq!(purge(&deleting).await, 2);
    assert_eq!(counts(h.store()).await.done, 0);
}

/// Once purged, the store has forgotten the message: the same id can be stored again. H37.
pub async fn a_purged_message_is_forgotten<H: Harness>() {
    let h = H::start(keeping(Retention::Receipt(DAY))).await;
    let batch = messages(1);
    finish(&h, &batch).await;
    h.advance(DAY).await;
    assert_eq!(purge(h.store()).await, 1);
    enqueue(h.store(), &batch).await;
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&batch));
}
