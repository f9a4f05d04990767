//! Whose turn it is: counted by the order of claims and of handled messages, not by time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pillarbox::Selection;
use pillarbox::prelude::{Context, Message};
use pillarbox_core::selection::TURNS_IN_A_ROW_MAX;

use super::support::*;
use crate::support::{Pace, on_stage, stage};

/// The order of claims on stores with so many messages each, ten to a claim and one call at a time.
async fn claims(selection: Selection, stores: &[(&str, usize)]) -> Vec<String> {
    let pace = Arc::new(Pace::default());
    pace.yields.store(5, Ordering::SeqCst);
    let (builder, _) = watched(stores, &pace).await;
    let builder = builder.selection(selection).connections_max(1).store_call_count(1).claim_limit(10);
    let fleet = builder.on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    fleet.idle().await;
    fleet.shutdown(Duration::from_secs(5)).await;
    pace.claims.lock().unwrap().clone()
}

/// OBX-066, OBX-067, OBX-068, IBX-086, IBX-087.
#[tokio::test(start_paused = true)]
async fn round_robin_claims_one_batch_from_each_store() {
    let claims = claims(Selection::RoundRobin, &[("a", 100), ("b", 100), ("c", 100)]).await;
    for (index, store) in claims.iter().take(30).enumerate() {
        assert_eq!(store, ["a", "b", "c"][index % 3], "{claims:?}");
    }
}

/// OBX-069, IBX-088: ten batches and the one that found nothing, then the next store.
#[tokio::test(start_paused = true)]
async fn drain_first_claims_from_a_store_until_it_has_nothing() {
    let claims = claims(Selection::DrainFirst, &[("a", 100), ("b", 95), ("c", 5)]).await;
    let mut expected = vec!["a"; 11];
    expected.extend(["b"; 11]);
    expected.extend(["c"; 2]);
    assert_eq!(claims[..24], expected, "{claims:?}");
}

/// OBX-069: a store that never runs dry does not starve the others.
#[tokio::test(start_paused = true)]
async fn drain_first_leaves_a_store_that_always_has_more() {
    let claims = claims(Selection::DrainFirst, &[("a", 400), ("b", 10)]).await;
    let in_a_row = usize::try_from(TURNS_IN_A_ROW_MAX).unwrap();
    assert!(claims[..in_a_row].iter().all(|store| store == "a"), "{claims:?}");
    assert_eq!(claims[in_a_row], "b", "{claims:?}");
}

/// OBX-066, IBX-085: five small stores beside a large one are through after as many rounds as they have messages.
#[tokio::test]
async fn a_busy_store_does_not_starve_the_others() {
    let pace = Arc::new(Pace::default());
    let stores = [("busy", 500), ("a", 5), ("b", 5), ("c", 5), ("d", 5), ("e", 5)];
    let (builder, all) = watched(&stores, &pace).await;
    let (stage, mut director) = stage();
    let (builder, mut told) = telling(builder.worker_count(1).connections_max(1).claim_limit(10));
    let fleet = on_stage(builder, "first", &stage).start().await.unwrap();
    // The only worker is busy until every store has claimed.
    fleet.router().outbox("busy").unwrap().enqueue_now(Message::new("first", "")).await.unwrap();
    director.began().await;
    for store in &all {
        store.wait_for(|counts| counts.claims > 0).await;
    }
    director.go(1);
    fleet.idle().await;
    let mut order = Vec::new();
    while let Ok(key) = told.try_recv() {
        order.push(key);
    }
    assert_eq!(order.len(), 525);
    let last = order.iter().rposition(|key| key != "busy").unwrap();
    // What the worker had handled before it came to the first message is not counted.
    let begun = order.iter().position(|key| key != "busy").unwrap();
    assert!(last - begun < 5 * 6 + 6, "{last} of {order:?}");
}

/// OBX-066, IBX-085: handlers of one store that never come to an end leave a worker to the others.
#[tokio::test]
async fn a_store_with_slow_handlers_does_not_have_all_workers() {
    let pace = Arc::new(Pace::default());
    let (builder, _) = watched(&[("slow", 50), ("quiet", 0)], &pace).await;
    let (stage, mut director) = stage();
    let fleet = on_stage(builder.worker_count(4), "work", &stage).start().await.unwrap();
    for _ in 0..3 {
        director.began().await;
    }
    let quiet = fleet.router().outbox("quiet").unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
    assert_eq!(director.began().await, quiet.message_id);
    director.go(51);
    fleet.idle().await;
}

/// OBX-066, IBX-085: one message in a quiet store beside nine that are never through.
#[tokio::test]
async fn many_busy_stores_do_not_starve_a_quiet_one() {
    let pace = Arc::new(Pace::default());
    let busy: Vec<_> = (0..9).map(|number| format!("busy-{number}")).collect();
    let mut stores: Vec<_> = busy.iter().map(|name| (name.as_str(), 50)).collect();
    stores.push(("quiet", 0));
    let (builder, _) = watched(&stores, &pace).await;
    let (stage, mut director) = stage();
    let fleet = on_stage(builder.worker_count(1).connections_max(2), "work", &stage).start().await.unwrap();
    for _ in 0..100 {
        director.began().await;
        director.go(1);
    }
    director.began().await;
    let quiet = fleet.router().outbox("quiet").unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
    let mut others = 0;
    loop {
        director.go(1);
        if director.began().await == quiet.message_id {
            break;
        }
        others += 1;
    }
    assert!(others <= 9, "{others} messages of others came first");
    director.go(450);
    fleet.idle().await;
}

/// OBX-066, IBX-085: calls to all stores together, counted while they run.
#[tokio::test(start_paused = true)]
async fn the_budget_of_calls_is_never_exceeded() {
    let pace = Arc::new(Pace::default());
    pace.yields.store(7, Ordering::SeqCst);
    let names: Vec<_> = (0..20).map(|number| format!("store-{number}")).collect();
    let stores: Vec<_> = names.iter().map(|name| (name.as_str(), 60)).collect();
    let (builder, _) = watched(&stores, &pace).await;
    let builder = builder.connections_max(3).claim_limit(7).reap_interval(Duration::from_millis(1));
    let (builder, mut told) = telling(builder);
    let fleet = builder.start().await.unwrap();
    fleet.idle().await;
    assert_eq!(pace.most_at_once.load(Ordering::SeqCst), 3);
    fleet.shutdown(Duration::from_secs(5)).await;
    assert_eq!(std::iter::from_fn(|| told.try_recv().ok()).count(), 20 * 60);
}

/// One budget of handlers over all stores.
#[tokio::test]
async fn the_workers_are_shared_by_all_stores() {
    let pace = Arc::new(Pace::default());
    let (builder, _) = watched(&[("a", 4), ("b", 4), ("c", 4)], &pace).await;
    let (stage, mut director) = stage();
    let fleet = on_stage(builder.worker_count(3), "work", &stage).start().await.unwrap();
    for _ in 0..3 {
        director.began().await;
    }
    director.go(12);
    fleet.idle().await;
    assert_eq!(director.most_at_once(), 3);
    for store in ["a", "b", "c"] {
        assert_eq!(fleet.stats(store).unwrap().outbox.unwrap().done_count, 4);
    }
}

/// OBX-103: less than one call in five seconds for each idle store, housekeeping included.
#[tokio::test(start_paused = true)]
async fn idle_stores_cost_next_to_nothing() {
    const SIMULATED: Duration = Duration::from_secs(600);
    let pace = Arc::new(Pace::default());
    let mut builder = pillarbox::Fleet::builder().on_topic("work", async |_: Context| Ok(()));
    for number in 0..20 {
        let name = format!("store-{number}");
        builder = builder.store(&name, &pillarbox::Outbox::new(crate::support::Watched::named(&name, &pace)));
    }
    let fleet = builder.start().await.unwrap();
    let _ = tokio::time::timeout(SIMULATED, std::future::pending::<()>()).await;
    let calls = pace.total.load(Ordering::SeqCst);
    assert!(calls * 5 < 20 * 600, "{calls} calls of 20 stores in 600 s");
    assert!(calls > 20 * 30, "{calls}: it does look");
    fleet.shutdown(Duration::ZERO).await;
}
