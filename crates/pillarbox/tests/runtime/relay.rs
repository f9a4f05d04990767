use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox::admin::{Filter, ListQuery, Replay};
use pillarbox::outbox::State;
use pillarbox::prelude::*;
use pillarbox::relay::To;
use pillarbox::{Bus, Delivery, OutboxAdmin, SendError, Sent, Undelivered, Via};
use pillarbox_testing::Recorder;

use super::acceptance::{Backend, on_every_backend, outbox};
use super::support::*;
use super::witness::Witness;

fn to(recorder: &Recorder, destination: &str) -> To {
    To::new(Arc::new(recorder.clone()), destination)
}

/// BUS-02: a route can be a transport, with a destination made of the message's fields.
#[tokio::test]
async fn messages_go_where_their_route_says() {
    let (outbox, recorder) = (memory(), Recorder::new());
    let runtime = quiet(&outbox)
        .route(Route::topic("order.**").deliver(to(&recorder, "shop.{topic}")))
        .route(Route::topic("order.**").tenant("acme").deliver(to(&recorder, "acme.{key}")))
        .start()
        .await
        .unwrap();
    outbox.enqueue_now(Message::new("order.created", "1")).await.unwrap();
    outbox.enqueue_now(Message::new("order.created", "2").tenant("acme").key("k")).await.unwrap();
    runtime.idle().await;
    let mut places: Vec<_> = recorder.delivered().into_iter().map(|(destination, _)| destination).collect();
    places.sort();
    assert_eq!(places, ["acme.k", "shop.order.created"]);
    assert_eq!(runtime.stats().done_count, 2);
}

/// BUS-02, H42, H47: each message of a batch has its own end.
#[tokio::test]
async fn every_answer_of_a_transport_has_its_end() {
    let (outbox, recorder) = (memory(), Recorder::new());
    recorder.answer(|parcel| match parcel.destination.as_ref() {
        "taken" => Ok(Delivery::Taken),
        "known" => Ok(Delivery::Known),
        "refused" => Err(Undelivered::refused("nobody listens")),
        "rejected" => Err(Undelivered::rejected("not so")),
        "large" => Err(Undelivered::TooLarge { bytes: 9, limit: Some(8) }),
        "later" => Err(Undelivered::Later { delay: Duration::from_secs(3_600), reason: "busy".to_owned() }),
        other => panic!("{other}"),
    });
    let runtime = quiet(&outbox).route(Route::topic("**").deliver(to(&recorder, "{topic}"))).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let topics = ["taken", "known", "refused", "rejected", "large", "later"];
    tx.enqueue_all(topics.map(|topic| Message::new(topic, ""))).await.unwrap();
    tx.commit().await.unwrap();
    runtime.idle().await;
    let overview = outbox.store().overview().await.unwrap();
    let of = |topic: &str| overview.topics.iter().find(|counts| counts.topic == topic).unwrap().counts;
    assert_eq!((of("taken").done, of("known").done), (1, 1));
    assert_eq!((of("rejected").dead, of("large").dead), (1, 1));
    assert_eq!((of("refused").pending, of("later").pending), (1, 1));
    let stats = runtime.stats();
    assert_eq!((stats.retried_count, stats.released_count), (1, 1), "being asked to wait spends no attempt");
    let dead = ListQuery { state: State::Dead, filter: Filter::topic("large"), after: None, limit: 1 };
    let dead = outbox.store().list(&dead).await.unwrap().messages;
    let reason = dead[0].last_error.as_deref();
    assert_eq!(reason, Some("recorder: too large: 9 bytes, and the broker takes 8"));
}

/// H43: a broker that is away pauses its route; messages of others go on, and nothing spends an attempt.
#[tokio::test]
async fn a_broker_that_is_away_pauses_its_routes_only() {
    let (outbox, up, down) = (memory(), Recorder::new(), Recorder::new());
    down.answer(|_| Err(Undelivered::unavailable("connection refused")));
    let runtime = quiet(&outbox)
        .route(Route::topic("up").deliver(to(&up, "x")))
        .route(Route::topic("down").deliver(to(&down, "x")))
        .pause_first(Duration::from_secs(3_600))
        .pause_max(Duration::from_secs(3_600))
        .start()
        .await
        .unwrap();
    outbox.enqueue_now(Message::new("down", "")).await.unwrap();
    runtime.idle().await;
    outbox.enqueue_now(Message::new("up", "")).await.unwrap();
    up.wait_for(1).await;
    assert_eq!(runtime.stats().paused_routes, ["down"]);
    assert_eq!(runtime.stats().retried_count, 0);
}

/// A destination that is gone is asked once, and its messages are dead with the reason. One that is replayed asks again, and when
/// it is taken the destination is open to all.
async fn a_destination_that_is_gone_is_asked_no_more<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let (recorder, asked) = (Recorder::new(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    recorder.answer(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Err(Undelivered::Gone { reason: "410".to_owned() })
    });
    let runtime = quiet(&outbox).route(Route::topic("a").deliver(to(&recorder, "x"))).inline().unwrap();
    let enqueue = async || {
        outbox.enqueue_now(Message::new("a", "")).await.unwrap();
        runtime.drain().await.unwrap()
    };
    let replay = async |limit| {
        outbox.store().replay(&Replay::dead(Filter::all(), limit)).await.unwrap();
        runtime.drain().await.unwrap()
    };
    for _ in 0..3 {
        assert_eq!(enqueue().await.dead, 1);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!(replay(1).await.dead, 1);
    assert_eq!(asked.load(Ordering::Relaxed), 2, "an operator wants to know");
    recorder.answer(|_| Ok(Delivery::Taken));
    assert_eq!(enqueue().await.dead, 1, "nobody has found out yet that it is back");
    assert_eq!(replay(1).await.done, 1);
    assert_eq!(enqueue().await.done, 1);
    assert_eq!(replay(10).await.done, 3);
}

on_every_backend! {
    a_destination_that_is_gone_is_asked_no_more
}

/// A destination that asks for time gets it, with one request and one line; others go on, and nothing is lost or spends an attempt.
#[tokio::test(start_paused = true)]
async fn a_destination_that_asks_for_time_is_left_alone() {
    const MINUTE: Duration = Duration::from_secs(60);
    let (outbox, recorder, asked) = (memory(), Recorder::new(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    recorder.answer(move |parcel| match parcel.destination.as_ref() {
        "https://busy?token=canary" => {
            count.fetch_add(1, Ordering::Relaxed);
            Err(Undelivered::Later { delay: MINUTE, reason: "busy answered 429".to_owned() })
        }
        _ => Ok(Delivery::Taken),
    });
    let builder = quiet(&outbox).route(Route::topic("*").deliver(to(&recorder, "https://{topic}?token=canary")));
    let runtime = builder.inline().unwrap();
    let witness = Witness::default();
    let watch = witness.watch();
    outbox.store().enqueue(Enqueue::pending(&messages("busy", 1))).await.unwrap();
    runtime.drain().await.unwrap();
    outbox.store().enqueue(Enqueue::pending(&messages("busy", 100))).await.unwrap();
    outbox.store().enqueue(Enqueue::pending(&messages("free", 10))).await.unwrap();
    let drained = runtime.drain().await.unwrap();
    drop(watch);
    assert_eq!((drained.done, drained.released, asked.load(Ordering::Relaxed)), (10, 100, 1));
    let lines: Vec<_> = witness.lines().into_iter().filter(|line| line.starts_with("WARN")).collect();
    let [line] = lines.as_slice() else { panic!("{lines:#?}") };
    assert!(line.contains("busy answered 429") && line.contains("destination=https://busy"), "{line}");
    assert!(!line.contains("canary"), "{line}");

    recorder.answer(|_| Ok(Delivery::Taken));
    tokio::time::advance(MINUTE).await;
    outbox.store().database().advance(MINUTE);
    let drained = runtime.drain().await.unwrap();
    assert_eq!((drained.done, drained.retried, drained.dead, drained.released), (101, 0, 0, 0));
    assert_eq!(outbox.store().overview().await.unwrap().total().done, 111);
}

/// H43: where the host of an address is a field, one host that is away stops no other: its messages wait without spending an
/// attempt, it is looked for with one request at a time, ever less often, and everything flows again by itself.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_away_does_not_stop_the_others() {
    const SECOND: Duration = Duration::from_secs(1);
    let (outbox, recorder, asked) = (memory(), Recorder::new(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    recorder.answer(move |parcel| {
        if parcel.destination.starts_with("https://away.example/") {
            count.fetch_add(1, Ordering::Relaxed);
            return Err(Undelivered::unavailable("connection refused"));
        }
        Ok(Delivery::Taken)
    });
    let route = Route::topic("*").deliver(to(&recorder, "https://{topic}.example/hook?token=canary").batch_max(1));
    let runtime = quiet(&outbox).route(route).inline().unwrap();
    let witness = Witness::default();
    let watch = witness.watch();
    outbox.store().enqueue(Enqueue::pending(&messages("away", 20))).await.unwrap();
    outbox.store().enqueue(Enqueue::pending(&messages("there", 10))).await.unwrap();
    let drained = runtime.drain().await.unwrap();
    assert_eq!((drained.done, drained.released, asked.load(Ordering::Relaxed)), (10, 20, 1));
    // It rests for 1, 2 and 4 seconds.
    for seconds in 1..=6 {
        tokio::time::advance(SECOND).await;
        outbox.store().database().advance(SECOND);
        runtime.drain().await.unwrap();
        let looked = [1, 2, 2, 3, 3, 3, 3][seconds];
        assert_eq!(asked.load(Ordering::Relaxed), looked, "after {seconds} s");
    }
    recorder.answer(|_| Ok(Delivery::Taken));
    tokio::time::advance(SECOND * 30).await;
    outbox.store().database().advance(SECOND * 30);
    let drained = runtime.drain().await.unwrap();
    drop(watch);
    assert_eq!((drained.done, drained.retried, drained.dead, drained.released), (20, 0, 0, 0));
    let lines = witness.lines();
    let told = |start: &str| lines.iter().filter(|line| line.starts_with(start) && line.contains("host")).count();
    assert_eq!((told("WARN"), told("INFO")), (1, 1), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("canary")), "{lines:#?}");
}

/// BUS-02: a field that the destination needs and the message lacks is no reason to try again.
#[tokio::test]
async fn a_message_without_a_destination_is_dead() {
    let (outbox, recorder) = (memory(), Recorder::new());
    let runtime = quiet(&outbox).route(Route::topic("a").deliver(to(&recorder, "x.{tenant}"))).start().await.unwrap();
    outbox.enqueue_now(Message::new("a", "")).await.unwrap();
    runtime.idle().await;
    assert_eq!(outbox.store().overview().await.unwrap().total().dead, 1);
}

#[tokio::test]
async fn a_destination_that_cannot_be_read_keeps_the_runtime_from_starting() {
    let (outbox, recorder) = (memory(), Recorder::new());
    let refused = quiet(&outbox).route(Route::topic("a").deliver(to(&recorder, "x.{Tenant}"))).start().await;
    assert!(refused.unwrap_err().to_string().contains("names `Tenant`"));
}

/// BUS-01: declared once, a message goes through the outbox or directly.
#[tokio::test]
async fn a_bus_sends_each_message_as_it_was_declared() {
    let (outbox, recorder) = (memory(), Recorder::new());
    let bus = Bus::builder(&outbox)
        .declare(Route::topic("order.*"), to(&recorder, "orders"), None)
        .declare(Route::topic("price.*"), to(&recorder, "prices"), Some(Via::Direct))
        .build()
        .unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let sent = bus.send(&mut tx, Message::new("order.created", "")).await.unwrap();
    assert!(matches!(sent, Sent::Enqueued(_)));
    let sent = bus.send(&mut tx, Message::new("price.seen", "")).await.unwrap();
    assert_eq!(sent, Sent::Delivered(Delivery::Taken));
    assert_eq!(recorder.delivered().len(), 1, "the other waits for the commit");
    let unknown = bus.send(&mut tx, Message::new("else", "")).await.unwrap_err();
    assert!(matches!(unknown, SendError::Undeclared { .. }), "{unknown}");
    tx.commit().await.unwrap();

    let runtime = hushed(bus.runtime()).start().await.unwrap();
    runtime.idle().await;
    let delivered: Vec<_> = recorder.delivered().into_iter().map(|(destination, _)| destination).collect();
    assert_eq!(delivered, ["prices", "orders"]);
}

/// BUS-01: for the whole bus, with a filter on the message.
#[tokio::test]
async fn a_filter_says_which_messages_of_a_bus_go_through_the_outbox() {
    let (outbox, recorder) = (memory(), Recorder::new());
    let bus = Bus::builder(&outbox)
        .declare(Route::topic("**"), to(&recorder, "{topic}"), None)
        .through_outbox(|message| message.get_message_type() == Some("Important"))
        .build()
        .unwrap();
    let mut tx = outbox.begin().await.unwrap();
    let important = Message::new("a", "").message_type("Important");
    assert!(matches!(bus.send(&mut tx, important).await, Ok(Sent::Enqueued(_))));
    assert!(matches!(bus.send(&mut tx, Message::new("a", "")).await, Ok(Sent::Delivered(_))));
    recorder.answer(|_| Err(Undelivered::unavailable("connection refused")));
    let error = bus.send(&mut tx, Message::new("a", "")).await.unwrap_err();
    assert!(matches!(error, SendError::Undelivered(_)), "{error}");
    assert!(Bus::builder(&outbox).declare(Route::topic("a"), to(&recorder, "{"), None).build().is_err());
}

/// WRK-12, H54: what was delivered, and what was not, is told by its id and destination; neither content nor a token in an
/// address is.
#[tokio::test]
async fn deliveries_are_logged_without_their_content() {
    let (outbox, recorder) = (memory(), Recorder::new());
    recorder.answer(|parcel| match parcel.message.topic() {
        "bad" => Err(Undelivered::rejected("not so")),
        _ => Ok(Delivery::Taken),
    });
    let builder = quiet(&outbox).route(Route::topic("*").deliver(to(&recorder, "https://h/{topic}?token=canary")));
    let good = Message::new("good", "canary").header("auth", "canary");
    let bad = Message::new("bad", "canary").header("auth", "canary");
    let ids = [good.id(), bad.id()];
    outbox.store().enqueue(Enqueue::pending(&[good, bad])).await.unwrap();
    let witness = Witness::default();
    let watch = witness.watch();
    builder.inline().unwrap().drain().await.unwrap();
    drop(watch);
    let lines = witness.lines();
    assert!(!lines.iter().any(|line| line.contains("canary")), "{lines:#?}");
    let delivered = format!("DEBUG delivered transport=\"recorder\" message_id={} destination=https://h/good", ids[0]);
    assert!(lines.iter().any(|line| line.starts_with(&delivered)), "{lines:#?}");
    let refused = format!("DEBUG not delivered transport=\"recorder\" message_id={} destination=https://h/bad", ids[1]);
    assert!(lines.iter().any(|line| line.starts_with(&refused)), "{lines:#?}");
}
