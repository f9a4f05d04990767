//! Messages that expire while they wait in memory: never begun, by the database's clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use pillarbox::AfterDead;
use pillarbox::outbox::{REASON_EXPIRED, State};
use pillarbox::prelude::{Enqueue, Message, Outbox, OutboxStore};

use super::acceptance::{Backend, on_every_backend, outbox, stored};
use super::support::*;

/// Longer than anything here waits for, so that no lease runs out.
const LEASE: Duration = Duration::from_secs(3600);

const LIFE: Duration = Duration::from_secs(60);

fn mortal(lives: Duration) -> Message {
    Message::new("work", "").expires_in(lives)
}

/// OBX-018, H26: committed here, and never looked at in the store again.
#[tokio::test(start_paused = true)]
async fn a_message_that_expires_after_its_commit_is_not_begun() {
    let outbox = memory();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox).lease(LEASE).worker_count(1), "work", &stage).start().await.unwrap();
    let first = outbox.enqueue_now(mortal(LIFE)).await.unwrap().message_id;
    assert_eq!(director.began().await, first);
    let second = outbox.enqueue_now(mortal(LIFE)).await.unwrap().message_id;
    outbox.store().database().advance(LIFE);
    tokio::time::advance(LIFE).await;
    director.go(2);
    runtime.idle().await;
    assert_eq!((runtime.stats().started_count, runtime.stats().not_started_count), (1, 1));
    let message = stored(&outbox, second).await.unwrap();
    assert_eq!((message.state, message.attempts), (State::Pending, 0), "it was given back, and spent no attempt");
    let reaped = outbox.store().reap_all(AfterDead::default()).await.unwrap();
    assert_eq!(reaped.expired, 1, "the store buries it");
}

/// OBX-018, H24, H26: claimed, hence with an instant. This machine's clock is years ahead of the store's, and decides nothing.
#[tokio::test(start_paused = true)]
async fn a_claimed_message_that_expires_is_not_begun() {
    let store = Watched::new();
    store.shared.tells_time.store(true, Ordering::SeqCst);
    let outbox = Outbox::new(store.clone());
    let both = [mortal(LIFE), mortal(LIFE)];
    store.enqueue(Enqueue::pending(&both)).await.unwrap();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox).lease(LEASE).worker_count(1), "work", &stage).start().await.unwrap();
    assert_eq!(director.began().await, both[0].id());
    store.memory.database().advance(LIFE);
    tokio::time::advance(LIFE).await;
    director.go(2);
    runtime.idle().await;
    assert_eq!((runtime.stats().started_count, runtime.stats().not_started_count), (1, 1));
    assert_eq!(store.state_of(both[1].id()).await, (State::Pending, 0));
}

/// OBX-018, H20: whether it has expired cannot be told while the store is away; it waits, and is handled when that is back.
#[tokio::test(start_paused = true)]
async fn a_message_that_may_have_expired_waits_for_the_store() {
    let store = Watched::new();
    store.shared.tells_time.store(true, Ordering::SeqCst);
    store.shared.cannot_tell.store(true, Ordering::SeqCst);
    let outbox = Outbox::new(store.clone());
    let message = mortal(LIFE);
    store.enqueue(Enqueue::pending(std::slice::from_ref(&message))).await.unwrap();
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox).lease(LEASE), "work", &stage).start().await.unwrap();
    while runtime.stats().not_started_count == 0 {
        tokio::task::yield_now().await;
    }
    store.shared.cannot_tell.store(false, Ordering::SeqCst);
    store.memory.database().advance(Duration::from_secs(2));
    director.go(1);
    assert_eq!(director.began().await, message.id());
    runtime.idle().await;
    assert_eq!(store.state_of(message.id()).await, (State::Done, 1));
}

/// OBX-018, H26: one came over the hot path, one was claimed, and both expire behind a handler that takes its time.
async fn a_message_that_expires_while_it_waits_is_never_handled<B: Backend>() {
    const SHORT: Duration = Duration::from_secs(1);
    let (outbox, _folder) = outbox::<B>().await;
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox).lease(LEASE).worker_count(1), "work", &stage).start().await.unwrap();
    let busy = outbox.enqueue_now(Message::new("work", "")).await.unwrap().message_id;
    assert_eq!(director.began().await, busy);
    let claimed = mortal(SHORT);
    outbox.store().enqueue(Enqueue::pending(std::slice::from_ref(&claimed))).await.unwrap();
    // It comes with this claim, or with one that the runtime makes at its start.
    while runtime.stats().claimed_count == 0 {
        runtime.poll_once().await.unwrap();
    }
    let hot = outbox.enqueue_now(mortal(SHORT)).await.unwrap().message_id;
    // One that nobody holds, stored last: when the store buries it, the others have expired as well.
    outbox.store().enqueue(Enqueue::pending(&[mortal(SHORT).delay(SHORT / 2)])).await.unwrap();
    while outbox.store().reap_all(AfterDead::default()).await.unwrap().expired == 0 {
        tokio::task::yield_now().await;
    }
    director.go(3);
    runtime.idle().await;
    assert_eq!(runtime.stats().started_count, 1, "neither was begun");
    let mut buried = 0;
    while buried < 2 {
        buried += outbox.store().reap_all(AfterDead::default()).await.unwrap().expired;
    }
    for id in [claimed.id(), hot] {
        let message = stored(&outbox, id).await.unwrap();
        assert_eq!((message.state, message.attempts), (State::Dead, 0));
        assert_eq!(message.last_error.as_deref(), Some(REASON_EXPIRED));
    }
}

// The clock of the memory store does not go by itself: see the tests above.
on_every_backend! { @ sqlite Sqlite, a_message_that_expires_while_it_waits_is_never_handled }
#[cfg(feature = "postgres")]
on_every_backend! { @ postgres Postgres, a_message_that_expires_while_it_waits_is_never_handled }
#[cfg(feature = "mysql")]
on_every_backend! { @ mysql Mysql, a_message_that_expires_while_it_waits_is_never_handled }
