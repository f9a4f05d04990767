//! The list of paused routes: what an operator asked for, kept beside the queue.

use std::sync::Arc;

use pillarbox_core::pause::{Pause, PauseRecord, PauseStore, REASON_CHARS_MAX, ROUTE_CHARS_MAX};
use pillarbox_core::schema::{SchemaPolicy, SchemaStatus};

use super::support::*;
use crate::Harness;

/// The list beside the queue, its table deployed.
async fn list_of(store: &(impl OutboxStore + ?Sized)) -> Arc<dyn PauseStore> {
    let pauses = store.pauses().expect("the store has a list of pauses");
    pauses.deploy_schema().await.expect("the list can be deployed");
    pauses
}

async fn pause(list: &Arc<dyn PauseStore>, pause: &Pause) -> Option<PauseRecord> {
    list.pause(pause).await.expect("a route can be paused")
}

async fn resume(list: &Arc<dyn PauseStore>, route: &str) -> Option<PauseRecord> {
    list.resume(route).await.expect("a route can be resumed")
}

async fn paused(list: &Arc<dyn PauseStore>) -> Vec<Pause> {
    let records = list.paused().await.expect("pauses can be listed");
    records.into_iter().map(|record| record.pause).collect()
}

/// A pause is listed with all that was said, by every process, until the route is resumed. WRK-08, BUS-09.
pub async fn a_pause_lasts_until_the_route_is_resumed<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    assert_eq!(paused(&list).await, []);
    let (plain, full) =
        (Pause::new("order.* tenant=acme"), Pause::new("Größe 📮").reason("partner \"is\" down\u{1b}").by("root@host"));
    for one in [&plain, &full] {
        assert_eq!(pause(&list, one).await, None);
        h.advance(MINUTE).await;
    }
    for list in [Arc::clone(&list), list_of(&another(&h).await).await] {
        assert_eq!(paused(&list).await, [plain.clone(), full.clone()], "the oldest first");
        let records = list.paused().await.expect("pauses can be listed");
        assert_near(records[0].lasts, MINUTE * 2);
        assert_near(records[1].since.duration_since(records[0].since).expect("it came later"), MINUTE);
    }
    let was = resume(&list, plain.route()).await.expect("it was paused");
    assert_eq!(was.pause, plain);
    assert_near(was.lasts, MINUTE * 2);
    assert_eq!(resume(&list, plain.route()).await, None, "again without harm");
    assert_eq!(paused(&list).await, [full]);
}

/// A route that is paused already stays so since then, for the reason that was given then. WRK-08.
pub async fn a_second_pause_changes_nothing_and_tells_of_the_first<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    let first = Pause::new("orders").reason("first").by("a");
    pause(&list, &first).await;
    h.advance(HOUR).await;
    let before = pause(&list, &Pause::new("orders").reason("second")).await.expect("it was paused");
    assert_eq!(before.pause, first);
    assert_near(before.lasts, HOUR);
    assert_eq!(paused(&list).await, [first]);
    assert_near(list.paused().await.expect("pauses can be listed")[0].lasts, HOUR);
}

/// Names that differ a little are different routes. WRK-08.
pub async fn routes_are_told_apart_to_the_letter<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    for route in ["orders", "Orders", "orders ", "órders"] {
        assert_eq!(pause(&list, &Pause::new(route)).await, None, "{route}");
    }
    assert!(resume(&list, "Orders").await.is_some());
    let left: Vec<_> = paused(&list).await.iter().map(|pause| pause.route().to_owned()).collect();
    assert_eq!(left.len(), 3);
    assert!(!left.contains(&"Orders".to_owned()), "{left:?}");
}

/// What is said of a pause is bounded, and refused before the database is asked. WRK-08.
pub async fn what_is_said_of_a_pause_is_bounded<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    let (route, reason) = ("ä".repeat(ROUTE_CHARS_MAX), "ä".repeat(REASON_CHARS_MAX));
    let longest = Pause::new(&route).reason(&reason).by(&reason);
    assert_eq!(pause(&list, &longest).await, None);
    assert_eq!(paused(&list).await, [longest]);
    let wrong = Pause::new("").reason(reason + "ä").by("\0");
    assert_eq!(refused_fields(list.pause(&wrong).await), ["route", "reason", "by"]);
    assert_eq!(refused_fields(list.resume(&(route + "ä")).await), ["route"]);
}

/// Of many that pause or resume one route at once all are heard, and one pause is what is left. WRK-08.
pub async fn many_at_once_pause_a_route_once<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    at_once((0..16).map(|_| {
        let list = Arc::clone(&list);
        async move { pause(&list, &Pause::new("orders")).await }
    }))
    .await;
    assert_eq!(paused(&list).await, [Pause::new("orders")]);
    let resumed = at_once((0..16).map(|_| {
        let list = Arc::clone(&list);
        async move { resume(&list, "orders").await }
    }))
    .await;
    assert_eq!(resumed.iter().flatten().count(), 1, "one of them ended it");
    assert_eq!(paused(&list).await, []);
}

/// The list has a table of its own, which nobody has who does not use it; whoever does is told when it is missing, and many
/// that start at once create it once. OBX-091, OBX-093.
pub async fn the_list_is_deployed_when_it_is_used<H: Harness>() {
    let h = start::<H>().await;
    let list = h.store().pauses().expect("the store has a list of pauses");
    assert_eq!(list.check_schema().await.expect("tables can be checked"), SchemaStatus::Missing);
    let refusals = [
        list.pause(&Pause::new("orders")).await.expect_err("there is no table"),
        list.paused().await.expect_err("there is no table"),
        list.apply_policy(SchemaPolicy::Check).await.expect_err("there is no table"),
    ];
    for refused in refusals {
        assert!(!refused.is_transient() && refused.to_string().contains("pillarbox migrate"), "{refused}");
    }
    let stores = [h.store().clone(), another(&h).await];
    let versions = at_once((0..8).map(|number| {
        let list = stores[number % 2].pauses().expect("the store has a list of pauses");
        async move { list.deploy_schema().await.expect("every instance comes up") }
    }))
    .await;
    assert_eq!(versions, [6; 8]);
    assert_eq!(list.check_schema().await.expect("tables can be checked"), SchemaStatus::Current(6));
    pause(&list, &Pause::new("orders")).await;
}

/// Each queue has a list of its own: two outboxes in one schema, and an inbox beside them. BUS-04.
pub async fn each_queue_has_a_list_of_its_own<H: Harness>() {
    let h = start::<H>().await;
    let naming = &h.store().options().naming;
    let naming = pillarbox_core::naming::Naming::new(naming.schema().as_str(), "b").expect("the name is legal");
    let second = h.connect_as_is(StoreOptions { naming, ..options() }).await.expect("a second outbox can be made");
    let inbox = h.inbox().await;
    let lists = [list_of(h.store()).await, list_of(&second).await, list_of(&*inbox.queue()).await];
    let pauses = ["outbox", "second", "inbox"].map(Pause::new);
    for (list, one) in lists.iter().zip(&pauses) {
        pause(list, one).await;
    }
    for (list, one) in lists.iter().zip(&pauses) {
        assert_eq!(paused(list).await, std::slice::from_ref(one));
    }
}

/// A call that is cut short anywhere leaves nothing behind that holds up the next one. H16.
pub async fn a_pause_cut_short_harms_nobody<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    let mine = Pause::new("orders");
    for polls in POLLS {
        cut_short(polls, list.pause(&mine)).await;
        cut_short(polls, list.paused()).await;
        // Whatever was begun may end later: it must not end what comes below.
        cut_short(polls, list.resume("mail")).await;
    }
    pause(&list, &mine).await;
    assert_eq!(paused(&list).await, [mine]);
    enqueue(h.store(), &messages(1)).await;
    assert_eq!(claim(h.store(), OwnerToken::new(), 1).await.len(), 1);
}
