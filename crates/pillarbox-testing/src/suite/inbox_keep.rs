//! How long the ledger remembers, and how its tables come to be.

use std::sync::Arc;

use pillarbox_core::schema::{SchemaPolicy, SchemaStatus};

use super::support::*;
use crate::Harness;

async fn purge_inbox(inbox: &impl InboxStore) -> u64 {
    inbox.purge(PurgeLimit::default()).await.expect("a purge succeeds")
}

async fn is_known(inbox: &impl InboxStore, id: &str) -> bool {
    inbox.get("source", id).await.expect("a message can be looked up").is_some()
}

/// Done messages are forgotten thirty days after they were last seen, not before. IBX-098, IBX-100, H37.
pub async fn a_purge_waits_for_the_retention<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    mark(&inbox, &receipt("1"), Mark::Processed).await;
    h.advance(29 * DAY).await;
    assert_eq!(purge_inbox(&inbox).await, 0);
    assert!(see(&inbox, &receipt("1")).await.is_processed());
    h.advance(29 * DAY).await;
    assert_eq!(purge_inbox(&inbox).await, 0, "it was seen again");
    h.advance(DAY).await;
    assert_eq!(purge_inbox(&inbox).await, 1);
    assert!(!is_known(&inbox, "1").await);
}

/// A message that was handled late is remembered for as long after it was done. IBX-100, H37.
pub async fn a_handled_message_is_remembered_from_its_end<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    receive(&inbox, incoming("1", "")).await;
    h.advance(31 * DAY).await;
    handle(&inbox, &Verdict::Ack).await;
    h.advance(29 * DAY).await;
    assert_eq!(purge_inbox(&inbox).await, 0);
    assert!(is_known(&inbox, "1").await);
    h.advance(DAY).await;
    assert_eq!(purge_inbox(&inbox).await, 1);
    assert!(!is_known(&inbox, "1").await);
}

/// A purge of the queue alone forgets nothing that the ledger still remembers. IBX-003, H37.
pub async fn a_purge_of_the_queue_forgets_nothing<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    receive(&inbox, incoming("1", "")).await;
    handle(&inbox, &Verdict::Ack).await;
    h.advance(20 * DAY).await;
    assert!(see(&inbox, &receipt("1")).await.is_processed());
    h.advance(10 * DAY).await;
    assert_eq!(purge(&*inbox.queue()).await, 1);
    assert_eq!(inbox_state(&inbox, "1").await, InboxState::Done);
    assert!(see(&inbox, &receipt("1")).await.is_processed());
    assert_eq!(receive(&inbox, incoming("1", "")).await.outcome, Reception::Done);
    assert_eq!(mark(&inbox, &receipt("1"), Mark::Dead("late".into())).await, InboxState::Done);
    let mut tx = h.begin().await;
    let registered = inbox.register(&mut tx, &receipt("1")).await;
    assert_eq!(registered.expect("it can be registered").registered, Registered::Duplicate);
    h.rollback(tx).await;
}

/// A purge never touches what is seen, processing or dead, however old. IBX-099.
pub async fn a_purge_touches_only_done_messages<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    see(&inbox, &receipt("seen")).await;
    mark(&inbox, &receipt("marked"), Mark::Processing).await;
    mark(&inbox, &receipt("given up"), Mark::Dead("why".into())).await;
    receive(&inbox, incoming("dead", "")).await;
    handle(&inbox, &fail("poison")).await;
    receive(&inbox, Incoming::new(receipt("waiting"), Message::new("topic", "").delay(365 * DAY))).await;
    receive(&inbox, incoming("running", "")).await;
    claim_one(&*inbox.queue(), OwnerToken::new()).await;
    mark(&inbox, &receipt("done"), Mark::Processed).await;
    h.advance(300 * DAY).await;
    assert_eq!(purge_inbox(&inbox).await, 1);
    for id in ["seen", "marked", "given up", "dead", "waiting", "running"] {
        assert!(is_known(&inbox, id).await, "{id}");
    }
    assert!(!is_known(&inbox, "done").await);
}

/// A purge takes no more than its limit, oldest first. IBX-101.
pub async fn a_purge_is_bounded_and_starts_with_the_oldest<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    for id in ["1", "2", "3"] {
        mark(&inbox, &receipt(id), Mark::Processed).await;
        h.advance(DAY).await;
    }
    h.advance(30 * DAY).await;
    let limit = PurgeLimit::new(2).expect("the limit is legal");
    assert_eq!(inbox.purge(limit).await.expect("a purge succeeds"), 2);
    assert!(is_known(&inbox, "3").await);
    assert_eq!(inbox.purge(limit).await.expect("a purge succeeds"), 1);
}

/// Purges on many instances while messages come again: none fails, and what came again is remembered or new, never half.
/// IBX-105, H37.
pub async fn purges_race_with_deliveries_and_lose_none<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let names: Vec<_> = (0..40).map(|number| number.to_string()).collect();
    for name in &names {
        mark(&inbox, &receipt(name), Mark::Processed).await;
    }
    h.advance(30 * DAY).await;
    let work = |turn: usize| {
        let (inbox, names) = (inbox.clone(), names.clone());
        async move {
            if turn.is_multiple_of(2) {
                return (purge_inbox(&inbox).await, Vec::new());
            }
            let mut again = Vec::new();
            for name in names.iter().skip(turn).step_by(8) {
                again.push((name.clone(), see(&inbox, &receipt(name)).await.before));
            }
            (0, again)
        }
    };
    let answers = at_once((0..8).map(work)).await;
    let purged: u64 = answers.iter().map(|(purged, _)| purged).sum();
    let again: Vec<_> = answers.into_iter().flat_map(|(_, again)| again).collect();
    let renewed = again.iter().filter(|(_, before)| before.is_some()).count() as u64;
    assert_eq!(purged + renewed + purge_inbox(&inbox).await, 40, "each was forgotten once, or came in time");
    for (name, before) in again {
        let expected = before.unwrap_or(InboxState::Seen);
        assert_eq!(inbox_state(&inbox, &name).await, expected, "what came again is within its retention");
    }
}

/// An inbox deploys its tables, again without harm, on many instances at once; it works and keeps what it has.
/// IBX-114, IBX-116, IBX-117.
pub async fn an_inbox_deploys_its_tables<H: Harness>() {
    let h = Arc::new(start::<H>().await);
    let open = |_| {
        let h = Arc::clone(&h);
        async move { h.inbox().await }
    };
    let inboxes = at_once((0..4).map(open)).await;
    receive(&inboxes[0], incoming("1", "")).await;
    let SchemaStatus::Current(version) = inboxes[1].check_schema().await.expect("the schema can be checked") else {
        panic!("the tables are current");
    };
    assert_eq!(inboxes[2].deploy_schema().await.expect("a deployment can be repeated"), version);
    assert_eq!(inbox_state(&inboxes[3], "1").await, InboxState::Processing);
    let script = inboxes[0].schema_script();
    assert!(script.contains("inbox"), "{script}");
}

/// Without deployment nothing is created: checked tables are refused with what to do, assumed ones at the first call.
/// IBX-115.
pub async fn an_inbox_without_deployment_creates_nothing<H: Harness>() {
    let h = start::<H>().await;
    let with = |schema| InboxOptions { schema: Some(schema), ..InboxOptions::default() };
    let refused = h.store().inbox(with(SchemaPolicy::Check)).await.expect_err("there are no tables");
    assert!(!refused.is_transient() && refused.to_string().contains("pillarbox migrate"), "{refused}");
    let blind = h.store().inbox(with(SchemaPolicy::Assume)).await.expect("it looks at nothing");
    let refused = blind.already_processed(&receipt("1")).await.expect_err("there are no tables");
    assert!(!refused.is_transient() && refused.to_string().contains("pillarbox migrate"), "{refused}");
    assert_eq!(blind.check_schema().await.expect("the schema can be checked"), SchemaStatus::Missing);
    h.inbox().await;
    h.store().inbox(with(SchemaPolicy::Check)).await.expect("the tables are there now");
    let same = InboxOptions { table: h.store().options().naming.outbox().to_string(), ..InboxOptions::default() };
    assert_eq!(refused_fields(h.store().inbox(same).await), ["table"]);
}

/// An inbox says which one it is, and shows no payload. IBX-113, IBX-127.
pub async fn an_inbox_has_a_name_and_shows_no_payload<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    assert_eq!(inbox.id().as_str(), format!("{}/inbox", h.store().id()));
    let secret = Incoming::new(hashed("1", "canary"), Message::new("topic", "canary"));
    let received = receive(&inbox, secret.clone()).await;
    let shown = format!("{inbox:?} {secret:?} {received:?} {:?}", record(&inbox, "1").await);
    assert!(!shown.contains("canary"), "{shown}");
}
