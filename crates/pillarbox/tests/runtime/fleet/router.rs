//! Keys, handles, and what a fleet refuses.

use std::time::Duration;

use pillarbox::prelude::*;
use pillarbox::sqlite::SqliteStore;
use pillarbox::{Fleet, RouteError, StartError};
use pillarbox_testing::MemoryStore;
use uuid::Uuid;

use super::support::*;
use crate::acceptance::{Memory, Sqlite, outbox};
use crate::witness::Witness;

/// OBX-072, OBX-073, OBX-074, IBX-091, IBX-092.
#[tokio::test]
async fn a_key_leads_to_its_store_or_to_an_error_that_names_it() {
    let (eu, tenant) = (memory_named("eu"), Uuid::now_v7());
    let (us, us_inbox) = (memory_named("us"), memory_named("us-in").inbox().await.unwrap());
    let builder = quiet_fleet().store("eu", &eu).store(tenant, &us).inbox(tenant, &us_inbox);
    let fleet = builder.on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    let router = fleet.router();
    assert_eq!(router.outbox("eu").unwrap().store().id().as_str(), "eu");
    assert_eq!(router.outbox(tenant).unwrap().store().id().as_str(), "us");
    assert_eq!(router.outbox(tenant.to_string().to_uppercase()).unwrap().store().id().as_str(), "us");
    assert_eq!(router.inbox(tenant).unwrap().store().id().as_str(), "us-in/inbox");

    assert!(matches!(router.outbox("").unwrap_err(), RouteError::Invalid(_)));
    assert!(matches!(router.inbox(Uuid::nil()).unwrap_err(), RouteError::Invalid(_)));
    let unknown = router.outbox("asia").unwrap_err();
    assert_eq!(unknown.to_string(), "no store of the fleet has the key `asia`");
    assert!(matches!(router.inbox("asia").unwrap_err(), RouteError::Unknown(key) if key.as_str() == "asia"));
    assert!(matches!(router.inbox("eu").unwrap_err(), RouteError::NoInbox(_)));
    assert!(matches!(fleet.stats("asia").unwrap_err(), RouteError::Unknown(_)));
    let other = router.outbox_of::<SqliteStore>("eu").unwrap_err().to_string();
    assert!(other.contains("`eu` is a ") && other.contains("MemoryStore"), "{other}");
    assert!(router.inbox_of::<SqliteStore>(tenant).is_err());
    fleet.shutdown(Duration::ZERO).await;
}

/// OBX-102, IBX-123: asking again opens nothing.
#[tokio::test]
async fn the_same_key_gives_the_same_store() {
    let (eu, _folder) = outbox::<Sqlite>().await;
    let inbox = eu.inbox().await.unwrap();
    let builder = quiet_fleet().store("eu", &eu).inbox("eu", &inbox);
    let fleet = builder.on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    let router = fleet.router();
    let [one, other] = [1, 2].map(|_| router.outbox("eu").unwrap());
    assert!(std::ptr::addr_eq(one.store(), other.store()));
    assert!(std::ptr::addr_eq(one.store(), eu.store()));
    let typed = router.outbox_of::<SqliteStore>("eu").unwrap();
    assert!(std::ptr::addr_eq(typed.store(), eu.store()));
    let [one, other] = [1, 2].map(|_| router.inbox("eu").unwrap());
    assert!(std::ptr::addr_eq(std::sync::Arc::as_ptr(one.store()), std::sync::Arc::as_ptr(other.store())));
    let typed = router.inbox_of::<SqliteStore>("eu").unwrap();
    assert!(std::sync::Arc::ptr_eq(typed.store(), inbox.store()));
}

/// OBX-072: the change of a tenant's data and its message are committed together, in the tenant's own database.
#[tokio::test]
async fn a_transaction_on_a_tenants_own_database_takes_messages() {
    let (eu, _folder) = outbox::<Sqlite>().await;
    let (builder, mut told) = telling(quiet_fleet().store("eu", &eu));
    let fleet = builder.start().await.unwrap();
    let mut tx = fleet.router().outbox_of::<SqliteStore>("eu").unwrap().begin().await.unwrap();
    sqlx::query("create table orders (id integer primary key)").execute(tx.conn()).await.unwrap();
    tx.enqueue(Message::new("work", "")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(told.recv().await.unwrap(), "eu");
    fleet.idle().await;
    let stats = fleet.stats("eu").unwrap().outbox.unwrap();
    assert_eq!((stats.hot_count, stats.done_count), (1, 1));
}

/// OBX-070, IBX-089: names must tell stores apart; and whatever else is wrong is said before anything starts.
#[tokio::test]
async fn a_fleet_refuses_what_could_not_be_told_apart() {
    let (one, other) = (memory_named("same"), memory_named("same"));
    let refused = quiet_fleet().store("a", &one).store("b", &other).start().await.unwrap_err();
    assert!(matches!(&refused, StartError::SameStoreId(id) if id.as_str() == "same"), "{refused}");
    let refused = quiet_fleet()
        .store("a", &one)
        .store("a", &other)
        .store("", &other)
        .connections_max(0)
        .refresh_interval(Duration::ZERO)
        .start()
        .await
        .unwrap_err();
    let StartError::Invalid(invalid) = refused else { panic!("{refused}") };
    let fields: Vec<_> = invalid.problems().iter().map(pillarbox::Problem::field).collect();
    assert_eq!(fields, ["routing_key", "routing_key", "connections_max", "refresh_interval"]);
    let refused = quiet_fleet().store("a", &one).worker_count(0).start().await.unwrap_err();
    assert!(refused.to_string().contains("worker_count"), "{refused}");

    let fleet = quiet_fleet().store("a", &one).start().await.unwrap();
    assert!(matches!(Runtime::builder(&one).start().await.unwrap_err(), StartError::AlreadyAttached));
    fleet.shutdown(Duration::ZERO).await;
    drop(Runtime::builder(&one).start().await.unwrap());
}

/// A fleet that nobody holds any more stops by itself, and its stores are free again; the router still finds them.
#[tokio::test]
async fn a_fleet_that_is_dropped_lets_its_stores_go() {
    let (eu, _folder) = outbox::<Memory>().await;
    let fleet = quiet_fleet().store("eu", &eu).on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    let router = fleet.router();
    drop(fleet);
    let typed = router.outbox_of::<MemoryStore>("eu").unwrap();
    let runtime = Runtime::builder(&typed).on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    router.outbox("eu").unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
    runtime.idle().await;
    assert_eq!(runtime.stats().done_count, 1);
}

/// OBX-070, OBX-071, IBX-089, IBX-090: each line and each metric names the store that it is about.
#[tokio::test]
async fn lines_and_metrics_name_the_store() {
    let tally = crate::tally::Tally::default();
    let _recorder = metrics::set_default_local_recorder(&tally);
    let witness = Witness::default();
    let _watch = witness.watch();
    let (eu, us) = (memory_named("eu"), memory_named("us"));
    let inbox = us.inbox().await.unwrap();
    let fleet = quiet_fleet()
        .store("eu", &eu)
        .store("us", &us)
        .inbox("us", &inbox)
        .on_topic("work", async |_: Context| Handled::dead("no such thing"))
        .start()
        .await
        .unwrap();
    for key in ["eu", "us"] {
        fleet.router().outbox(key).unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
    }
    let incoming = Incoming::new(Receipt::new("shop", "1"), Message::new("work", ""));
    fleet.router().inbox("us").unwrap().receive(&[incoming]).await.unwrap();
    fleet.idle().await;
    fleet.shutdown(Duration::ZERO).await;
    let lines = witness.lines();
    for store in ["eu", "us", "us/inbox"] {
        for words in ["INFO handling", "ERROR handler failed", "INFO shut down"] {
            let is_it = |line: &&String| line.starts_with(words) && line.contains(&format!("store=\"{store}\""));
            assert_eq!(lines.iter().filter(is_it).count(), 1, "{words} {store}: {lines:#?}");
        }
        assert_eq!(tally.count(&format!("pillarbox_dead_total store={store},route=work")), 1);
    }
    assert!(lines.iter().all(|line| line.contains("store=\"")), "{lines:#?}");
}

#[tokio::test]
async fn a_fleet_may_be_empty() {
    let fleet = Fleet::builder().on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    assert!(fleet.stores().is_empty());
    assert_eq!(fleet.refresh().await.unwrap().added.len(), 0);
    assert_eq!(fleet.shutdown(Duration::ZERO).await.unsettled, 0);
    assert!(matches!(fleet.refresh().await.unwrap_err(), pillarbox::RefreshError::Closed));
}
