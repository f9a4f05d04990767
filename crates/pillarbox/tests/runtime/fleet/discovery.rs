//! Stores that come and go while the fleet runs, as a discovery says.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::prelude::*;
use pillarbox::schema::SchemaStatus;
use pillarbox::sqlite::SqliteStore;
use pillarbox::{RefreshError, RouteError, Served, SqliteFiles, StorePlace};

use super::support::*;
use crate::support::{on_stage, stage};
use crate::witness::Witness;

fn place(folder: &Path, key: &str) -> StorePlace {
    StorePlace::new(key, format!("sqlite:{}", folder.join(key).with_extension("db").display())).unwrap()
}

async fn overview(folder: &Path, key: &str) -> pillarbox::admin::Counts {
    let store = SqliteStore::connect(place(folder, key).address(), StoreOptions::default()).await.unwrap();
    store.overview().await.unwrap().total()
}

/// OBX-077, OBX-078, OBX-079, OBX-102, IBX-095, IBX-096, IBX-097.
#[tokio::test]
async fn new_stores_are_served_and_unchanged_ones_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let at = |key| place(folder.path(), key);
    let listed = Listed::new(vec![at("eu"), at("us")]);
    let (builder, mut told) = telling(quiet_fleet().discover(listed.clone()));
    let fleet = builder.start().await.unwrap();
    assert_eq!(names(&fleet.stores()), ["eu", "us"]);
    let (router, before) = (fleet.router(), fleet.router().outbox_of::<SqliteStore>("eu").unwrap());
    let connections = before.store().pool().size();

    listed.answer(Ok(vec![at("asia"), at("eu")]));
    let refreshed = fleet.refresh().await.unwrap();
    assert_eq!(names(&refreshed.added), ["asia"]);
    assert_eq!(names(&refreshed.removed), ["us"]);
    assert_eq!(names(&refreshed.kept), ["eu"]);
    assert!(refreshed.changed.is_empty() && refreshed.failed.is_empty());
    let after = router.outbox_of::<SqliteStore>("eu").unwrap();
    assert!(std::ptr::addr_eq(before.store(), after.store()));
    assert_eq!(after.store().pool().size(), connections, "not even reconnected");
    assert!(matches!(router.outbox("us").unwrap_err(), RouteError::Unknown(_)));
    for key in ["asia", "eu"] {
        router.outbox(key).unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
        assert_eq!(told.recv().await.unwrap(), key);
    }
    assert_eq!(after.store().id().as_str(), "eu", "named after its key");
    fleet.shutdown(Duration::from_secs(5)).await;
}

/// OBX-078, IBX-096: what runs may end, what waits stays in its database.
#[tokio::test]
async fn a_removed_store_is_drained_and_its_messages_stay() {
    let folder = tempfile::tempdir().unwrap();
    let listed = Listed::new(vec![place(folder.path(), "eu")]);
    let (stage, mut director) = stage();
    let builder = on_stage(quiet_fleet().discover(listed.clone()).worker_count(1), "work", &stage);
    let fleet = builder.start().await.unwrap();
    let outbox = fleet.router().outbox("eu").unwrap();
    for _ in 0..3 {
        outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    }
    director.began().await;
    listed.answer(Ok(Vec::new()));
    let refreshing = {
        let fleet = fleet.clone();
        tokio::spawn(async move { fleet.refresh().await.unwrap() })
    };
    while !fleet.stores().is_empty() {
        tokio::task::yield_now().await;
    }
    director.go(1);
    assert_eq!(names(&refreshing.await.unwrap().removed), ["eu"]);
    let left = overview(folder.path(), "eu").await;
    assert_eq!((left.done, left.pending, left.processing), (1, 2, 0));
    // The handle is still good, and whoever serves the store next finds everything.
    outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    listed.answer(Ok(vec![place(folder.path(), "eu")]));
    director.go(3);
    assert_eq!(names(&fleet.refresh().await.unwrap().added), ["eu"]);
    fleet.idle().await;
    assert_eq!(overview(folder.path(), "eu").await.done, 4);
}

/// OBX-079: another address under the same key is another store; the old one is drained.
#[tokio::test]
async fn a_store_that_moved_is_served_in_its_new_place() {
    let folder = tempfile::tempdir().unwrap();
    let listed = Listed::new(vec![place(folder.path(), "old")]);
    let address = |name| place(folder.path(), name).address().to_owned();
    listed.answer(Ok(vec![StorePlace::new("eu", address("old")).unwrap()]));
    let (builder, mut told) = telling(quiet_fleet().discover(listed.clone()));
    let fleet = builder.start().await.unwrap();
    let old = fleet.router().outbox("eu").unwrap();

    listed.answer(Ok(vec![StorePlace::new("eu", "postgres://user:canary@127.0.0.1:1/gone").unwrap()]));
    let refreshed = fleet.refresh().await.unwrap();
    assert_eq!(refreshed.failed[0].0.as_str(), "eu");
    assert!(!format!("{refreshed:?}").contains("canary"), "{refreshed:?}");
    assert!(std::ptr::addr_eq(fleet.router().outbox("eu").unwrap().store(), old.store()), "served where it was");

    listed.answer(Ok(vec![StorePlace::new("eu", address("new")).unwrap()]));
    assert_eq!(names(&fleet.refresh().await.unwrap().changed), ["eu"]);
    let new = fleet.router().outbox("eu").unwrap();
    assert!(!std::ptr::addr_eq(new.store(), old.store()));
    new.enqueue_now(Message::new("work", "")).await.unwrap();
    assert_eq!(told.recv().await.unwrap(), "eu");
    fleet.idle().await;
    assert_eq!(overview(folder.path(), "new").await.done, 1);
}

/// OBX-075, IBX-093: an error, a panic and two answers at once change nothing, and are said.
#[tokio::test]
async fn a_discovery_that_fails_keeps_what_is_known() {
    let witness = Witness::default();
    let _watch = witness.watch();
    let folder = tempfile::tempdir().unwrap();
    let at = |key| place(folder.path(), key);
    let listed = Listed::new(vec![at("eu")]);
    let (builder, mut told) = telling(quiet_fleet().discover(listed.clone()));
    let fleet = builder.start().await.unwrap();
    for failure in ["the directory is away", "panic"] {
        listed.answer(Err(failure));
        assert!(matches!(fleet.refresh().await.unwrap_err(), RefreshError::Discovery(_)));
    }
    listed.answer(Ok(vec![at("eu"), StorePlace::new("eu", at("other").address()).unwrap()]));
    let refreshed = fleet.refresh().await.unwrap();
    assert!(refreshed.removed.is_empty() && refreshed.changed.is_empty());
    assert_eq!(names(&fleet.stores()), ["eu"]);
    fleet.router().outbox("eu").unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
    assert_eq!(told.recv().await.unwrap(), "eu");
    let lines = witness.lines();
    let warned = |words: &str| lines.iter().filter(|line| line.starts_with(words)).count();
    assert_eq!(warned("WARN stores could not be discovered: those that are known are kept"), 2, "{lines:#?}");
    assert_eq!(warned("WARN a store was discovered in two places"), 1);
}

/// OBX-075, OBX-076, IBX-093, IBX-094: every five minutes, and sooner while something is missing.
#[tokio::test(start_paused = true)]
async fn the_discovery_is_asked_every_five_minutes() {
    let listed = Listed::new(Vec::new());
    let builder = quiet_fleet().discover(listed.clone()).on_topic("work", async |_: Context| Ok(()));
    let fleet = builder.start().await.unwrap();
    assert_eq!(listed.asked_count(), 1);
    // Three intervals, each a tenth longer or shorter at the most.
    let _ = tokio::time::timeout(Duration::from_secs(1000), std::future::pending::<()>()).await;
    assert_eq!(listed.asked_count(), 4);
    listed.answer(Err("away"));
    fleet.refresh().await.unwrap_err();
    let _ = tokio::time::timeout(Duration::from_secs(100), std::future::pending::<()>()).await;
    assert!(listed.asked_count() >= 7, "{}", listed.asked_count());
    fleet.shutdown(Duration::ZERO).await;
}

/// OBX-077, IBX-095: a store that cannot be opened does not keep the others from starting, and is tried again.
#[tokio::test]
async fn a_store_that_cannot_be_opened_is_served_once_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("late.db");
    let late = StorePlace::new("late", format!("sqlite:{}?mode=rw", file.display())).unwrap();
    let dead = StorePlace::new("dead", "mysql://user:canary@127.0.0.1:1/shop").unwrap();
    let nonsense = StorePlace::new("nonsense", "").unwrap();
    let listed = Listed::new(vec![late, dead, nonsense, place(folder.path(), "eu")]);
    let (builder, mut told) = telling(quiet_fleet().discover(listed));
    let fleet = builder.start().await.unwrap();
    assert_eq!(names(&fleet.stores()), ["eu"]);
    std::fs::write(&file, "").unwrap();
    let refreshed = fleet.refresh().await.unwrap();
    assert_eq!(names(&refreshed.added), ["late"]);
    let failed: Vec<_> = refreshed.failed.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(failed, ["dead", "nonsense"]);
    for key in ["eu", "late"] {
        fleet.router().outbox(key).unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
        assert_eq!(told.recv().await.unwrap(), key);
    }
}

/// OBX-077: tables are deployed as the options say, and a store without them is not served.
#[tokio::test]
async fn the_schema_of_discovered_stores_follows_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let listed = Listed::new(vec![place(folder.path(), "eu")]);
    let checking = StoreOptions { schema: SchemaPolicy::Check, ..StoreOptions::default() };
    let fleet = quiet_fleet().discover(listed.clone()).store_options(checking).start().await.unwrap();
    let refreshed = fleet.refresh().await.unwrap();
    assert!(refreshed.failed[0].1.to_string().contains("pillarbox migrate"), "{refreshed:?}");
    drop(fleet);
    let fleet = quiet_fleet().discover(listed).start().await.unwrap();
    let status = fleet.router().outbox("eu").unwrap().store().check_schema().await.unwrap();
    assert!(matches!(status, SchemaStatus::Current(_)));
}

/// OBX-075, OBX-077, OBX-078: files of a folder appear and vanish.
#[tokio::test]
async fn a_folder_of_files_is_a_fleet() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("eu.db"), "").unwrap();
    std::fs::write(file("50% off?.db"), "").unwrap();
    let (builder, mut told) = telling(quiet_fleet().discover(SqliteFiles::in_folder(folder.path())));
    let fleet = builder.start().await.unwrap();
    assert_eq!(names(&fleet.stores()), ["50% off?", "eu"]);
    std::fs::write(file("us.db"), "").unwrap();
    assert_eq!(names(&fleet.refresh().await.unwrap().added), ["us"]);
    for key in ["50% off?", "eu", "us"] {
        fleet.router().outbox(key).unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
        assert_eq!(told.recv().await.unwrap(), key);
    }
    fleet.idle().await;
    for name in ["eu.db", "eu.db-wal", "eu.db-shm"] {
        let _ = std::fs::remove_file(file(name));
    }
    let refreshed = fleet.refresh().await.unwrap();
    assert_eq!((names(&refreshed.removed), refreshed.kept.len()), (vec!["eu"], 2));
    assert!(!file("eu.db").exists(), "never made anew");
    std::fs::rename(folder.path(), folder.path().with_extension("away")).unwrap();
    assert!(fleet.refresh().await.is_err());
    assert_eq!(names(&fleet.stores()), ["50% off?", "us"], "a folder that is away changes nothing");
    std::fs::rename(folder.path().with_extension("away"), folder.path()).unwrap();
}

/// OBX-078, OBX-079: what was restored lies under the old name, and is another file: nothing more goes into the one that is gone.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_replaced_is_served_instead_of_the_old_one() {
    let (folder, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("eu.db"), "").unwrap();
    let (builder, mut told) = telling(quiet_fleet().discover(SqliteFiles::in_folder(folder.path())));
    let fleet = builder.start().await.unwrap();
    let old = fleet.router().outbox("eu").unwrap();
    let saved = backup.path().join("eu.db");
    let source = SqliteStore::connect(place(backup.path(), "source").address(), StoreOptions::default()).await.unwrap();
    source.enqueue(Enqueue::pending(&crate::support::messages("work", 1))).await.unwrap();
    sqlx::query("vacuum into ?").bind(saved.to_str()).execute(source.pool()).await.unwrap();

    for name in ["eu.db", "eu.db-wal", "eu.db-shm"] {
        let _ = std::fs::remove_file(folder.path().join(name));
    }
    std::fs::rename(saved, folder.path().join("eu.db")).unwrap();
    let refreshed = fleet.refresh().await.unwrap();
    assert_eq!(names(&refreshed.changed), ["eu"], "{refreshed:?}");
    let new = fleet.router().outbox("eu").unwrap();
    assert!(!std::ptr::addr_eq(new.store(), old.store()));
    assert_eq!(told.recv().await.unwrap(), "eu", "what was restored is handled");
    new.enqueue_now(Message::new("work", "")).await.unwrap();
    assert_eq!(told.recv().await.unwrap(), "eu");
    fleet.idle().await;
    assert_eq!(overview(folder.path(), "eu").await.done, 2);
    assert_eq!(names(&fleet.refresh().await.unwrap().kept), ["eu"], "it is the same file as before");
}

/// IBX-085, IBX-090, IBX-091, IBX-093, IBX-095: a fleet of inboxes handles what was received, under its own names.
#[tokio::test]
async fn a_fleet_of_inboxes_handles_what_was_received() {
    let folder = tempfile::tempdir().unwrap();
    let listed = Listed::new(vec![place(folder.path(), "eu"), place(folder.path(), "us")]);
    let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
    let builder = quiet_fleet().discover(listed).serve(Served::Inboxes).on_topic("paid", move |cx: Context| {
        let sender = sender.clone();
        async move {
            sender.send((cx.routing_key().cloned(), cx.store_id().to_string(), cx.receipt()))?;
            Ok(())
        }
    });
    let fleet = builder.start().await.unwrap();
    for key in ["us", "eu"] {
        let inbox = fleet.router().inbox(key).unwrap();
        let receipt = Receipt::new("stripe", key);
        let incoming = Incoming::new(receipt.clone(), Message::new("paid", ""));
        inbox.receive(std::slice::from_ref(&incoming)).await.unwrap();
        let (found, store, came) = told.recv().await.unwrap();
        assert_eq!((found.unwrap().as_str(), store), (key, format!("{key}/inbox")));
        assert_eq!(came.unwrap().message_id(), key);
        fleet.idle().await;
        inbox.receive(&[incoming]).await.unwrap();
        assert!(inbox.already_processed(&receipt).await.unwrap().is_processed());
    }
    fleet.idle().await;
    let stats = fleet.stats("us").unwrap();
    assert_eq!((stats.inbox.unwrap().started_count, stats.outbox), (1, None), "once, and no outbox is served");
    fleet.shutdown(Duration::from_secs(5)).await;
}

/// What the program gave stays, whatever a discovery says about its key.
#[tokio::test]
async fn a_given_store_is_not_replaced_by_a_discovered_one() {
    let folder = tempfile::tempdir().unwrap();
    let given = Arc::new(memory_named("given"));
    let listed = Listed::new(vec![place(folder.path(), "eu"), place(folder.path(), "given")]);
    let builder = quiet_fleet().store("eu", &*given).discover(listed.clone());
    let fleet = builder.on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    let refreshed = fleet.refresh().await.unwrap();
    assert_eq!(fleet.router().outbox("eu").unwrap().store().id().as_str(), "given");
    assert!(refreshed.failed[0].1.to_string().contains("two stores of the fleet are called `given`"), "{refreshed:?}");
    listed.answer(Ok(Vec::new()));
    fleet.refresh().await.unwrap();
    assert_eq!(names(&fleet.stores()), ["eu"]);
}
