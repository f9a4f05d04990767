//! One store that is away, and all the others.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::prelude::{Context, Message};

use super::support::*;
use crate::support::{Pace, on_stage, stage};

/// OBX-066, H20: a database that accepts calls and never answers, with a budget of one call. It comes back.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_does_not_stop_the_others_and_comes_back() {
    let pace = Arc::new(Pace::default());
    let (builder, all) = watched(&[("hung", 10), ("well", 20)], &pace).await;
    all[0].hold_claims();
    let (builder, mut told) = telling(builder.connections_max(1).claim_limit(3));
    let fleet = builder.start().await.unwrap();
    for _ in 0..20 {
        assert_eq!(told.recv().await.unwrap(), "well");
    }
    let is_out = |key| fleet.stats(key).unwrap().outbox.unwrap().is_store_out;
    assert!(!is_out("hung"), "its first call has not been given up yet");
    while !is_out("hung") {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert!(!is_out("well"));
    // While it is known to be away its probes hold no place: the other one has the whole budget.
    let well = fleet.router().outbox("well").unwrap();
    for _ in 0..20 {
        well.enqueue_now(Message::new("work", "")).await.unwrap();
        assert_eq!(told.recv().await.unwrap(), "well");
    }
    all[0].shared.claims.add_permits(1000);
    for _ in 0..10 {
        assert_eq!(told.recv().await.unwrap(), "hung");
    }
    fleet.idle().await;
    assert!(!is_out("hung"));
    fleet.shutdown(Duration::from_secs(5)).await;
}

/// OBX-066, H18, H20: a database that refuses every call. Its verdicts are kept, and written when it is back.
#[tokio::test]
async fn a_store_that_fails_keeps_its_verdicts_and_the_others_go_on() {
    let pace = Arc::new(Pace::default());
    let (builder, all) = watched(&[("failing", 4), ("well", 0)], &pace).await;
    let (stage, mut director) = stage();
    let fleet = on_stage(builder.worker_count(8), "work", &stage).start().await.unwrap();
    for _ in 0..4 {
        director.began().await;
    }
    all[0].set_down(true);
    director.go(4);
    all[0].wait_for(|counts| counts.failures >= 2).await;
    let well = fleet.router().outbox("well").unwrap();
    director.go(50);
    for _ in 0..50 {
        let id = well.enqueue_now(Message::new("work", "")).await.unwrap().message_id;
        assert_eq!(director.began().await, id);
    }
    all[0].set_down(false);
    fleet.idle().await;
    let stats = fleet.stats("failing").unwrap().outbox.unwrap();
    assert_eq!((stats.done_count, stats.started_count, stats.lease_lost_count), (4, 4, 0));
}

/// A handler's own message goes to the store that it names, whatever became of the store it came from.
#[tokio::test]
async fn handlers_write_to_other_stores_through_the_router() {
    let pace = Arc::new(Pace::default());
    let (builder, all) = watched(&[("from", 5), ("to", 0)], &pace).await;
    let slot: Arc<std::sync::OnceLock<pillarbox::Router>> = Arc::default();
    let (builder, mut told) = {
        let (sender, told) = tokio::sync::mpsc::unbounded_channel();
        let slot = Arc::clone(&slot);
        let builder = builder.on_topic("work", move |_: Context| {
            let slot = Arc::clone(&slot);
            async move {
                let router = slot.get().ok_or_else(|| std::io::Error::other("not yet"))?;
                router.outbox("to")?.enqueue_now(Message::new("copy", "")).await?;
                Ok(())
            }
        });
        let builder = builder.on_topic("copy", move |cx: Context| {
            let sender = sender.clone();
            async move {
                sender.send(cx.routing_key().map(ToString::to_string))?;
                Ok(())
            }
        });
        (builder, told)
    };
    all[0].hold_claims();
    let fleet = builder.start().await.unwrap();
    slot.set(fleet.router()).unwrap_or_else(|_| panic!("set once"));
    all[0].shared.claims.add_permits(1000);
    fleet.router().outbox("from").unwrap().nudge();
    fleet.idle().await;
    for _ in 0..5 {
        assert_eq!(told.try_recv().unwrap().as_deref(), Some("to"), "idle means that this is done too");
    }
}

/// OBX-066, H20: a real server that stops answering in the middle of everything, with a budget of one call. It comes back.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_answering_does_not_stop_the_others() {
    use pillarbox::StorePlace;
    use pillarbox::naming::Naming;
    use pillarbox::postgres::PostgresStore;
    use pillarbox::prelude::{Enqueue, OutboxStore, StoreOptions};

    let url = crate::acceptance::url("PILLARBOX_TEST_POSTGRES_URL");
    let link = crate::link::Link::to(&url).await;
    let unique = uuid::Uuid::now_v7().simple().to_string();
    let naming = |name: &str| Naming::new(format!("f_{}_{name}", &unique[16..]), "outbox").unwrap();
    let place = |key: &str, address: &str| StorePlace::new(key, address).unwrap().naming(naming(key));
    let listed = Listed::new(vec![place("cut", link.address()), place("well", &url)]);
    let builder = quiet_fleet().discover(listed).connections_max(1).call_time_max(Duration::from_secs(1));
    let (builder, mut told) = telling(builder);
    let fleet = builder.start().await.unwrap();
    let router = fleet.router();
    for key in ["cut", "well"] {
        router.outbox(key).unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
        assert_eq!(told.recv().await.unwrap(), key);
    }
    fleet.idle().await;

    let options = StoreOptions { naming: naming("cut"), ..StoreOptions::default() };
    let behind = PostgresStore::connect(&url, options).await.unwrap();
    link.cut();
    behind.enqueue(Enqueue::pending(&[Message::new("work", "")])).await.unwrap();
    router.outbox("cut").unwrap().nudge();
    let is_out = |key| fleet.stats(key).unwrap().outbox.unwrap().is_store_out;
    while !is_out("cut") {
        router.outbox("well").unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
        assert_eq!(told.recv().await.unwrap(), "well");
    }
    assert!(!is_out("well"));
    link.mend();
    assert_eq!(told.recv().await.unwrap(), "cut");
    fleet.idle().await;
    assert_eq!(fleet.stats("cut").unwrap().outbox.unwrap().done_count, 2);
    fleet.shutdown(Duration::from_secs(5)).await;
}
