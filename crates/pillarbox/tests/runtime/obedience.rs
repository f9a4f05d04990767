//! Routes that an operator paused: their messages wait, and nobody else notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox::outbox::State;
use pillarbox::pause::{Pause, PauseStore};
use pillarbox::prelude::{Context, Handled, Message, Route, Runtime, RuntimeBuilder};
use pillarbox::store::{Enqueue, Placement};
use pillarbox::{Outbox, OutboxStore, this_process};
use pillarbox_core::admin::{Filter, ListQuery, OutboxAdmin};
use pillarbox_testing::MemoryStore;
use tokio::sync::{Notify, mpsc};

use super::support::*;

const SOON: Duration = Duration::from_millis(1);
const GRACE: Duration = Duration::from_secs(5);

/// Handlers that count what they handle.
#[derive(Clone, Default)]
struct Desk {
    bus: Arc<AtomicUsize>,
    other: Arc<AtomicUsize>,
}

impl Desk {
    fn builder<S: pillarbox::Transactional>(&self, outbox: &Outbox<S>) -> RuntimeBuilder {
        let (bus, other) = (Arc::clone(&self.bus), Arc::clone(&self.other));
        let count = |counter: Arc<AtomicUsize>| {
            move |_: Context| {
                counter.fetch_add(1, Ordering::SeqCst);
                async { Handled::done() }
            }
        };
        quiet(outbox)
            .obey_pauses(SOON)
            .poll_interval(SOON)
            .on_topic("bus.*", count(bus))
            .on_topic("other", count(other))
    }

    fn handled(&self) -> (usize, usize) {
        (self.bus.load(Ordering::SeqCst), self.other.load(Ordering::SeqCst))
    }
}

async fn list_of(store: &impl OutboxStore) -> Arc<dyn PauseStore> {
    let pauses = store.pauses().unwrap();
    pauses.deploy_schema().await.unwrap();
    pauses
}

async fn store_all(store: &impl OutboxStore, messages: &[Message]) {
    store.enqueue(Enqueue::pending(messages)).await.unwrap();
}

async fn pending(store: &MemoryStore) -> Vec<u32> {
    let query = ListQuery { state: State::Pending, filter: Filter::all(), after: None, limit: 1000 };
    let listed = store.list(&query).await.unwrap();
    listed.messages.into_iter().map(|message| message.attempts).collect()
}

/// Waits until the runtime pauses exactly these routes.
async fn pauses(runtime: &Runtime, routes: &[&str]) {
    while runtime.stats().paused_routes != routes {
        tokio::task::yield_now().await;
    }
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

/// WRK-08, H33: a backlog of a paused route waits untouched and in nobody's way, over a restart too, until it is resumed.
#[tokio::test]
async fn a_paused_route_waits_untouched_and_others_flow() {
    let (outbox, desk) = (memory(), Desk::default());
    let list = list_of(outbox.store()).await;
    list.pause(&Pause::new("bus.*").reason("partner is down")).await.unwrap();
    store_all(outbox.store(), &messages("bus.a", 300)).await;
    store_all(outbox.store(), &messages("bus.b", 300)).await;
    store_all(outbox.store(), &messages("other", 20)).await;
    for round in 1..=2 {
        let runtime = desk.builder(&outbox).start().await.unwrap();
        until(|| desk.handled() == (0, 20 * round)).await;
        runtime.idle().await;
        assert_eq!(runtime.stats().paused_routes, ["bus.*"]);
        assert!(runtime.stats().claimed_count < 600, "topics that were seen are left out");
        runtime.shutdown(GRACE).await;
        assert_eq!(pending(outbox.store()).await, [0; 600], "no attempt is counted");
        store_all(outbox.store(), &messages("other", 20)).await;
    }
    let runtime = desk.builder(&outbox).start().await.unwrap();
    list.resume("bus.*").await.unwrap();
    until(|| desk.handled() == (600, 60)).await;
    pauses(&runtime, &[]).await;
    runtime.idle().await;
    assert_eq!(runtime.stats().dead_count, 0);
}

/// HOT-04, H33: what is committed for a paused route is stored as pending, and goes hot again once it is resumed.
#[tokio::test]
async fn nothing_of_a_paused_route_is_handed_over_hot() {
    let (outbox, desk) = (memory(), Desk::default());
    let list = list_of(outbox.store()).await;
    let runtime = desk.builder(&outbox).start().await.unwrap();
    list.pause(&Pause::new("bus.*")).await.unwrap();
    pauses(&runtime, &["bus.*"]).await;
    let answer = outbox.enqueue_now(Message::new("bus.a", "")).await.unwrap();
    assert!(matches!(answer.placement, Placement::Pending(_)));
    let answer = outbox.enqueue_now(Message::new("other", "")).await.unwrap();
    assert!(matches!(answer.placement, Placement::Leased(_)));
    until(|| desk.handled() == (0, 1)).await;
    list.resume("bus.*").await.unwrap();
    until(|| desk.handled() == (1, 1)).await;
    let answer = outbox.enqueue_now(Message::new("bus.a", "")).await.unwrap();
    assert!(matches!(answer.placement, Placement::Leased(_)));
    until(|| desk.handled() == (2, 1)).await;
}

/// H33: nothing begins on old knowledge, also when the pause came while nothing was done.
#[tokio::test(start_paused = true)]
async fn a_pause_is_known_before_the_first_message_begins() {
    let (outbox, desk) = (memory(), Desk::default());
    let list = list_of(outbox.store()).await;
    let runtime = desk.builder(&outbox).start().await.unwrap();
    runtime.idle().await;
    for round in 0..20 {
        list.pause(&Pause::new("bus.*")).await.unwrap();
        // What is known is too old from here on, and the loop that reads has not had its turn.
        tokio::time::advance(SOON).await;
        outbox.enqueue_now(Message::new("bus.a", "")).await.unwrap();
        while runtime.stats().held_count > 0 {
            tokio::time::advance(SOON).await;
        }
        assert_eq!(desk.handled().0, round);
        list.resume("bus.*").await.unwrap();
        while desk.handled().0 == round {
            tokio::time::advance(SOON).await;
        }
    }
}

/// WRK-08: the handler that runs when its route is paused runs to its end, and its message is done.
#[tokio::test]
async fn what_runs_when_its_route_is_paused_runs_to_its_end() {
    let outbox = memory();
    let list = list_of(outbox.store()).await;
    let (go_on, (begun, mut began)) = (Arc::new(Notify::new()), mpsc::unbounded_channel());
    let gate = Arc::clone(&go_on);
    let handler = move |_: Context| {
        let (gate, begun) = (Arc::clone(&gate), begun.clone());
        async move {
            begun.send(()).unwrap();
            gate.notified().await;
            Handled::done()
        }
    };
    let runtime = quiet(&outbox).obey_pauses(SOON).worker_count(1).on_topic("bus", handler).start().await.unwrap();
    store_all(outbox.store(), &messages("bus", 3)).await;
    outbox.nudge();
    began.recv().await.unwrap();
    list.pause(&Pause::new("bus")).await.unwrap();
    pauses(&runtime, &["bus"]).await;
    go_on.notify_one();
    until(|| runtime.stats().done_count == 1).await;
    runtime.idle().await;
    assert_eq!(pending(outbox.store()).await, [0; 2], "those that waited in memory were given back");
    assert!(began.try_recv().is_err());
}

/// H33: a route with conditions that the store cannot see spends no attempts either, and its topic flows on for others.
#[tokio::test]
async fn of_a_topic_only_what_belongs_to_the_paused_route_waits() {
    let (outbox, desk) = (memory(), Desk::default());
    let list = list_of(outbox.store()).await;
    let acme = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&acme);
    let route = Route::topic("other").tenant("acme").name("acme's").to(move |_: Context| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Handled::done() }
    });
    list.pause(&Pause::new("acme's")).await.unwrap();
    store_all(outbox.store(), &[Message::new("other", "").tenant("acme"), Message::new("other", "")]).await;
    let runtime = desk.builder(&outbox).route(route).retry(attempts(1)).start().await.unwrap();
    until(|| desk.handled() == (0, 1)).await;
    runtime.idle().await;
    assert_eq!((acme.load(Ordering::SeqCst), pending(outbox.store()).await), (0, vec![0]));
    list.resume("acme's").await.unwrap();
    pauses(&runtime, &[]).await;
    outbox.store().database().advance(Duration::from_secs(60));
    outbox.nudge();
    until(|| acme.load(Ordering::SeqCst) == 1).await;
    assert_eq!(runtime.stats().dead_count, 0);
}

/// H35: while every route is paused the store is not asked for messages; a wake-up tells of the end.
#[tokio::test]
async fn while_every_route_is_paused_nothing_is_claimed() {
    let store = Watched::with(WakeupMode::Works);
    let outbox = Outbox::new(store.clone());
    let list = list_of(&store).await;
    let desk = Desk::default();
    let runtime = desk.builder(&outbox).obey_pauses(NEVER).start().await.unwrap();
    runtime.idle().await;
    for route in ["bus.*", "other"] {
        list.pause(&Pause::new(route)).await.unwrap();
    }
    store.wake_others().await.unwrap();
    pauses(&runtime, &["bus.*", "other"]).await;
    runtime.idle().await;
    let claims = store.counts().claims;
    store_all(&store, &messages("other", 2)).await;
    outbox.nudge();
    runtime.idle().await;
    assert_eq!(store.counts().claims, claims);
    list.resume("other").await.unwrap();
    store.wake_others().await.unwrap();
    until(|| desk.handled() == (0, 2)).await;
}

/// OBX-037: in a sequence everything waits behind a message of a paused route, and is handled in order afterwards.
#[tokio::test]
async fn in_a_sequence_everything_waits_behind_a_paused_route() {
    let (outbox, desk) = (memory(), Desk::default());
    let list = list_of(outbox.store()).await;
    list.pause(&Pause::new("bus.*")).await.unwrap();
    store_all(outbox.store(), &["bus.a", "other"].map(|topic| Message::new(topic, ""))).await;
    let runtime = desk.builder(&outbox).in_sequence().start().await.unwrap();
    pauses(&runtime, &["bus.*"]).await;
    until(|| runtime.stats().released_count > 0).await;
    runtime.idle().await;
    assert_eq!(desk.handled(), (0, 0));
    list.resume("bus.*").await.unwrap();
    pauses(&runtime, &[]).await;
    outbox.store().database().advance(Duration::from_secs(60));
    outbox.nudge();
    until(|| desk.handled() == (1, 1)).await;
}

/// OBX-091: a runtime makes no table; it obeys as soon as somebody has made it.
#[tokio::test]
async fn without_a_list_nothing_is_paused() {
    let (outbox, desk) = (memory(), Desk::default());
    let runtime = desk.builder(&outbox).start().await.unwrap();
    outbox.enqueue_now(Message::new("bus.a", "")).await.unwrap();
    until(|| desk.handled() == (1, 0)).await;
    let pauses_of = outbox.store().pauses().unwrap();
    assert_eq!(pauses_of.check_schema().await.unwrap(), pillarbox::schema::SchemaStatus::Missing);
    list_of(outbox.store()).await.pause(&Pause::new("other")).await.unwrap();
    pauses(&runtime, &["other"]).await;
}

/// WRK-08, H33: an instance tells which routes it has, and which it paused because their destination is away.
#[tokio::test]
async fn an_instance_tells_of_routes_whose_destination_is_away() {
    let outbox = memory();
    let instances = outbox.store().instances().unwrap();
    let _runtime = quiet(&outbox)
        .obey_pauses(SOON)
        .pause_first(NEVER)
        .pause_max(NEVER)
        .instance(this_process("relay"))
        .heartbeat(SOON, Duration::from_secs(60))
        .on_topic("bus", async |_: Context| Handled::unavailable("connection refused"))
        .on_topic("other", async |_: Context| Handled::done())
        .start()
        .await
        .unwrap();
    outbox.enqueue_now(Message::new("bus", "")).await.unwrap();
    let halted = loop {
        let live = instances.live(Duration::from_secs(60)).await.unwrap_or_default();
        match live.first().filter(|record| !record.instance.halts().is_empty()) {
            Some(record) => break record.instance.clone(),
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(halted.routes(), Some(vec!["bus".to_owned(), "other".to_owned()]));
    let halt = &halted.halts()[0];
    assert_eq!((halt.route.as_str(), halt.reason.as_str()), ("bus", "connection refused"));
    assert!(halt.probe_in > Duration::from_secs(3600));
}
