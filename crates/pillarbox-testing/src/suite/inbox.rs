//! The ledger: who has been seen, and how often, and with which content.

use super::support::*;
use crate::Harness;

/// An unknown message is not processed, and seen from then on; asked again, it is still not processed, and seen later.
/// IBX-002, IBX-004, IBX-005, IBX-025, IBX-026.
pub async fn an_unknown_message_becomes_seen<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let first = see(&inbox, &receipt("1")).await;
    assert_eq!((first.before, first.is_processed()), (None, false));
    let record_then = record(&inbox, "1").await;
    assert_eq!((record_then.state, record_then.attempts, record_then.topic), (InboxState::Seen, 0, None));
    h.advance(HOUR).await;
    let again = see(&inbox, &receipt("1")).await;
    assert_eq!((again.before, again.is_processed()), (Some(InboxState::Seen), false));
    let record_now = record(&inbox, "1").await;
    let between = record_now.last_seen_at.duration_since(record_now.first_seen_at);
    assert_near(between.expect("it was seen later"), HOUR);
}

/// What is done is processed, however often it is asked about. IBX-002, IBX-003, IBX-026.
pub async fn a_processed_message_is_recognised<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    assert_eq!(mark(&inbox, &receipt("1"), Mark::Processed).await, InboxState::Seen);
    h.advance(HOUR).await;
    for _ in 0..2 {
        assert!(see(&inbox, &receipt("1")).await.is_processed());
    }
    let record = record(&inbox, "1").await;
    assert_eq!(record.state, InboxState::Done);
    assert_near(record.last_seen_at.duration_since(record.first_seen_at).expect("it was seen later"), HOUR);
}

/// Source and id together are the name of a message, byte for byte: case, spaces at the end and accents count.
/// IBX-001, IBX-021, IBX-125.
pub async fn names_are_told_apart_byte_by_byte<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let names = ["order-1", "Order-1", "order-1 ", " order-1", "order-1\t", "é", "e\u{301}", "ß", "ss", "😀", "A", "a"];
    let mut receipts: Vec<_> = names.iter().map(|name| Receipt::new("source", *name)).collect();
    receipts.extend(names.iter().map(|name| Receipt::new(*name, "order-1")));
    for receipt in &receipts {
        assert_eq!(see(&inbox, receipt).await.before, None, "{receipt:?} is a name of its own");
    }
    for receipt in &receipts {
        let found = inbox.get(receipt.source(), receipt.message_id()).await.expect("a message can be looked up");
        let found = found.expect("the message is known");
        assert_eq!((found.source.as_str(), found.message_id.as_str()), (receipt.source(), receipt.message_id()));
    }
    mark(&inbox, &receipts[0], Mark::Processed).await;
    for other in &receipts[1..] {
        assert!(!see(&inbox, other).await.is_processed(), "{other:?} is another message");
    }
}

/// The longest names work, in characters of four bytes. IBX-011, IBX-012.
pub async fn names_have_up_to_255_characters<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let longest = Receipt::new("😀".repeat(255), "𝕏".repeat(255));
    let incoming = Incoming::new(longest.clone(), Message::new("topic", ""));
    assert_eq!(receive(&inbox, incoming).await.outcome, Reception::Queued);
    assert_eq!(see(&inbox, &longest).await.before, Some(InboxState::Processing));
    let shorter = Receipt::new("😀".repeat(255), "𝕏".repeat(254));
    assert_eq!(see(&inbox, &shorter).await.before, None);
}

/// Every call refuses a name that is empty, too long or holds a NUL, names every problem, and writes nothing.
/// IBX-009, IBX-010, IBX-011, IBX-012, IBX-016, IBX-017.
pub async fn bad_names_are_refused_by_every_call<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let long = "x".repeat(256);
    let lease = Lease::new(OwnerToken::new(), LEASE).expect("the lease is legal");
    for (source, id, fields) in [
        ("", "", vec!["source", "message_id"]),
        (long.as_str(), long.as_str(), vec!["source", "message_id"]),
        ("a\0", "1", vec!["source"]),
        ("a", "", vec!["message_id"]),
    ] {
        let bad = Receipt::new(source, id);
        assert_eq!(refused_fields(inbox.already_processed(&bad).await), fields);
        assert_eq!(refused_fields(inbox.mark(&bad, Mark::Processed).await), fields);
        assert_eq!(refused_fields(inbox.lease(&bad, lease).await), fields);
        assert_eq!(refused_fields(inbox.get(source, id).await), fields);
        let incoming = Incoming::new(bad.clone(), Message::new("topic", ""));
        assert_eq!(refused_fields(inbox.receive(&[self::incoming("good", ""), incoming]).await), fields);
        let mut tx = h.begin().await;
        assert_eq!(refused_fields(inbox.register(&mut tx, &bad).await), fields);
        h.write_business_row(&mut tx).await;
        h.commit(tx).await;
    }
    assert_eq!(h.business_row_count().await, 4, "a refused receipt leaves the transaction whole");
    assert_eq!(inbox.get("source", "good").await.expect("a message can be looked up"), None);
}

/// A hash is kept; another content under the same name is counted and told, and the call succeeds. The hash on record stays
/// until another content is queued.
/// IBX-007, IBX-008.
pub async fn another_content_is_counted_and_never_fails_the_call<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    assert!(!see(&inbox, &receipt("1")).await.is_mismatch);
    assert!(!see(&inbox, &hashed("1", "first")).await.is_mismatch, "the first hash cannot contradict any");
    assert!(!see(&inbox, &hashed("1", "first")).await.is_mismatch);
    assert!(!see(&inbox, &receipt("1")).await.is_mismatch, "no hash contradicts none");
    assert!(see(&inbox, &hashed("1", "second")).await.is_mismatch);
    assert_eq!(record(&inbox, "1").await.hash, Some(ContentHash::new("sha256", "first")));
    let other = Incoming::new(hashed("1", "third"), Message::new("topic", ""));
    assert!(receive(&inbox, other).await.is_mismatch);
    mark(&inbox, &hashed("1", "fourth"), Mark::Processed).await;
    let record = record(&inbox, "1").await;
    assert_eq!(record.mismatch_count, 3);
    assert_eq!(record.hash, Some(ContentHash::new("sha256", "third")));
}

/// A hash of another algorithm is not comparable; the largest hash comes back whole. IBX-007, IBX-129.
pub async fn hashes_of_two_algorithms_are_not_compared<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let first = ContentHash::new("blake3", vec![0xff; 1024]);
    see(&inbox, &receipt("1").hash(first.clone())).await;
    assert!(!see(&inbox, &hashed("1", "other")).await.is_mismatch);
    let record = record(&inbox, "1").await;
    assert_eq!((record.mismatch_count, record.hash), (0, Some(first)));
}

/// Messages that came with different contents are listed page by page, in the order of their names. IBX-008.
pub async fn mismatches_are_listed_in_pages<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    for id in ["c", "a", "d", "b"] {
        see(&inbox, &hashed(id, "one")).await;
        if id != "c" {
            see(&inbox, &hashed(id, "two")).await;
        }
    }
    let names = |page: &[InboxRecord]| page.iter().map(|record| record.message_id.clone()).collect::<Vec<_>>();
    let first = inbox.mismatches(None, 2).await.expect("mismatches can be listed");
    assert_eq!(names(&first), ["a", "b"]);
    let after = Some(("source".to_owned(), "b".to_owned()));
    assert_eq!(names(&inbox.mismatches(after, 2).await.expect("mismatches can be listed")), ["d"]);
    assert_eq!(refused_fields(inbox.mismatches(None, 0).await), ["limit"]);
}

/// Marks move a message through its states and answer the state before; nothing leaves done. IBX-002, IBX-028.
pub async fn marks_move_a_message_and_never_leave_done<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let one = receipt("1");
    assert_eq!(mark(&inbox, &one, Mark::Processing).await, InboxState::Seen);
    assert_eq!(mark(&inbox, &one, Mark::Dead("why".into())).await, InboxState::Processing);
    assert_eq!(record(&inbox, "1").await.last_error.as_deref(), Some("why"));
    assert!(!see(&inbox, &one).await.is_processed());
    assert_eq!(mark(&inbox, &one, Mark::Processing).await, InboxState::Dead);
    assert_eq!(record(&inbox, "1").await.last_error, None);
    assert_eq!(mark(&inbox, &one, Mark::Processed).await, InboxState::Processing);
    for late in [Mark::Processing, Mark::Dead("late".into()), Mark::Processed] {
        assert_eq!(mark(&inbox, &one, late).await, InboxState::Done);
    }
    assert_eq!(inbox_state(&inbox, "1").await, InboxState::Done);
}

/// Thirty-two deliveries of one message that ask at once: one finds it unknown, and nobody fails.
/// IBX-002, IBX-006, IBX-102, H14.
pub async fn one_of_many_deliveries_is_the_first<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    for round in 0..5 {
        let ask = |_| {
            let inbox = inbox.clone();
            async move { see(&inbox, &receipt(&format!("{round}"))).await }
        };
        let seen = at_once((0..32).map(ask)).await;
        assert_eq!(seen.iter().filter(|sighting| sighting.before.is_none()).count(), 1);
        assert!(seen.iter().all(|sighting| !sighting.is_processed()));
    }
}
