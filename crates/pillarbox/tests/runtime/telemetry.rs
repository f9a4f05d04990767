//! What an inbox says and counts about deliveries, and that its runtime does so under the inbox's own name.

use std::time::Duration;

use pillarbox::inbox::{ContentHash, Inbox};
use pillarbox::prelude::*;
use pillarbox::{Tx, WithInbox};

use super::acceptance::{Backend, Memory, Sqlite, outbox};
use super::support::{hushed, memory, on_stage, quiet, stage};
use super::tally::Tally;
use super::witness::Witness;

fn receipt(id: &str, content: &str) -> Receipt {
    Receipt::new("stripe", id).hash(ContentHash::new("sha256", content))
}

fn incoming(id: &str, content: &str) -> Incoming {
    Incoming::new(receipt(id, content), Message::new("stripe.paid", "canary").header("token", "canary"))
}

async fn nothing<S: WithInbox>(_: &mut Tx<S>) -> Result<(), StoreError> {
    Ok(())
}

/// Every kind of delivery once: new, again, with another content, to the queue, and while somebody else is at it.
async fn deliver_all<S: WithInbox>(inbox: &Inbox<S>) {
    const LEASE: Duration = Duration::from_secs(60);
    inbox.already_processed(&receipt("1", "canary")).await.unwrap();
    assert_eq!(inbox.consume(receipt("1", "canary"), nothing).await.unwrap(), Consumed::Done(()));
    assert_eq!(inbox.consume(receipt("1", "another"), nothing).await.unwrap(), Consumed::Duplicate);
    inbox.already_processed(&receipt("1", "canary")).await.unwrap();
    inbox.receive(&[incoming("1", "canary"), incoming("2", "canary"), incoming("2", "another")]).await.unwrap();
    assert_eq!(inbox.consume_leased(receipt("2", "another"), LEASE, nothing).await.unwrap(), Consumed::InProgress);
    assert_eq!(inbox.consume_leased(receipt("3", "canary"), LEASE, nothing).await.unwrap(), Consumed::Done(()));
}

/// IBX-008, IBX-107, IBX-108, IBX-113, IBX-127, H54.
async fn deliveries_are_logged_with_their_names_and_without_content<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let inbox = outbox.inbox().await.unwrap();
    let (witness, store) = (Witness::default(), format!("store=\"{}/inbox\"", outbox.store().id()));
    let watch = witness.watch();
    deliver_all(&inbox).await;
    drop(watch);
    let name = |id: &str| format!("source=\"stripe\" message_id=\"{id}\"");
    let checked = |id: &str, found: &str, is_processed: bool| {
        format!("DEBUG checked for a duplicate {} found=\"{found}\" is_processed={is_processed} {store}", name(id))
    };
    let received = |id: &str, outcome: &str| {
        format!("INFO received topic=\"stripe.paid\" {} outcome=\"{outcome}\" {store}", name(id))
    };
    let mismatch = |id: &str| format!("WARN a message came again with another content {} {store}", name(id));
    let expected = [
        checked("1", "unknown", false),
        checked("1", "new", false),
        checked("1", "duplicate", true),
        mismatch("1"),
        checked("1", "done", true),
        received("1", "done"),
        received("2", "queued"),
        received("2", "replaced"),
        mismatch("2"),
        checked("2", "in progress", false),
        checked("3", "new", false),
    ];
    assert_eq!(witness.lines(), expected);
}

#[tokio::test]
async fn deliveries_are_logged_with_their_names_and_without_content_in_memory() {
    deliveries_are_logged_with_their_names_and_without_content::<Memory>().await;
}

#[tokio::test]
async fn deliveries_are_logged_with_their_names_and_without_content_on_sqlite() {
    deliveries_are_logged_with_their_names_and_without_content::<Sqlite>().await;
}

/// IBX-008: through the handle of a program, and through a store that has none.
#[cfg(feature = "webhook")]
#[tokio::test]
async fn a_webhook_with_another_content_is_a_warning_and_is_taken() {
    use pillarbox::webhook::{Accept, Accepted};

    let inbox = memory().inbox().await.unwrap();
    inbox.receive(&[incoming("1", "first")]).await.unwrap();
    let warning = "WARN a message came again with another content source=\"stripe\" message_id=\"1\" \
                   store=\"memory/inbox\"";
    for (acceptor, content) in [(&inbox as &dyn Accept, "second"), (inbox.store(), "third")] {
        let witness = Witness::default();
        let watch = witness.watch();
        assert_eq!(acceptor.accept(incoming("1", content)).await.unwrap(), Accepted::Duplicate);
        drop(watch);
        let said = witness.lines().into_iter().filter(|line| line.starts_with("WARN"));
        assert_eq!(said.collect::<Vec<_>>(), [warning]);
    }
}

/// IBX-109, IBX-110, IBX-111, IBX-113.
#[tokio::test]
async fn the_lines_of_an_inboxs_runtime_name_the_inbox() {
    let outbox = memory();
    let inbox = outbox.inbox().await.unwrap();
    let witness = Witness::default();
    let _watch = witness.watch();
    let builder = hushed(inbox.runtime()).on_topic("stripe.paid", async |_: Context| Handled::dead("no such invoice"));
    let runtime = builder.start().await.unwrap();
    inbox.receive(&[incoming("1", "")]).await.unwrap();
    runtime.idle().await;
    let lines = witness.lines();
    for words in ["INFO received", "DEBUG claimed count=1", "INFO handling", "ERROR handler failed"] {
        let line = lines.iter().find(|line| line.starts_with(words)).unwrap_or_else(|| panic!("{words}: {lines:#?}"));
        assert!(line.ends_with("store=\"memory/inbox\""), "{line}");
    }
    assert!(!lines.concat().contains("canary"), "{lines:#?}");
    runtime.shutdown(Duration::ZERO).await;
}

/// HOT-20: counters of deliveries, and the metrics of both runtimes, told apart by the store.
#[tokio::test]
async fn an_inbox_is_measured_beside_its_outbox() {
    let tally = Tally::default();
    let _recorder = metrics::set_default_local_recorder(&tally);
    let outbox = memory();
    let inbox = outbox.inbox().await.unwrap();
    deliver_all(&inbox).await;
    let (stage, mut director) = stage();
    let sending = on_stage(quiet(&outbox), "order", &stage).worker_count(1).start().await.unwrap();
    let receiving = on_stage(hushed(inbox.runtime()), "stripe.paid", &stage).worker_count(1).start().await.unwrap();

    for number in 0..3 {
        outbox.enqueue_now(Message::new("order", number.to_string())).await.unwrap();
    }
    inbox.receive(&[incoming("4", ""), incoming("5", ""), incoming("6", "")]).await.unwrap();
    director.began().await;
    director.began().await;
    // Levels are told with every call to the store.
    outbox.nudge();
    inbox.receive(&[incoming("7", "")]).await.unwrap();
    let levels = [
        ("pillarbox_in_flight store=memory", 1.0),
        ("pillarbox_hot_depth store=memory", 2.0),
        ("pillarbox_cold_depth store=memory", 0.0),
        ("pillarbox_in_flight store=memory/inbox", 1.0),
        ("pillarbox_hot_depth store=memory/inbox", 0.0),
        ("pillarbox_cold_depth store=memory/inbox", 4.0),
    ];
    for (name, level) in levels {
        while (tally.level(name) - level).abs() > f64::EPSILON {
            tokio::task::yield_now().await;
        }
    }

    director.go(8);
    sending.idle().await;
    receiving.idle().await;
    let counts = [
        ("pillarbox_enqueued_total store=memory", 3),
        ("pillarbox_enqueued_total store=memory/inbox", 6),
        ("pillarbox_cold_enqueued_total store=memory", 0),
        ("pillarbox_cold_enqueued_total store=memory/inbox", 5),
        ("pillarbox_handled_total store=memory,route=order", 3),
        ("pillarbox_handled_total store=memory/inbox,route=stripe.paid", 5),
        ("pillarbox_inbox_consumed_total store=memory/inbox", 2),
        ("pillarbox_inbox_duplicate_total store=memory/inbox", 3),
        ("pillarbox_inbox_in_progress_total store=memory/inbox", 1),
        ("pillarbox_inbox_mismatch_total store=memory/inbox", 2),
    ];
    for (name, count) in counts {
        assert_eq!(tally.count(name), count, "{name}");
    }
    let names = tally.names();
    assert!(
        !names.iter().any(|name| name.starts_with("pillarbox_inbox_") && name.ends_with("store=memory")),
        "{names:?}"
    );
    sending.shutdown(Duration::ZERO).await;
    receiving.shutdown(Duration::ZERO).await;
}
