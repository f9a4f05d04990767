//! Wake-ups between processes, where a database has them.

use std::pin::pin;

use futures_util::FutureExt as _;
use pillarbox_core::Wakeups;
use pillarbox_core::naming::Naming;

use super::support::*;
use crate::Harness;

/// More subscriptions than any pool of a harness has connections.
const MANY: usize = 8;

/// A subscription, exactly where the harness says that there are any. Sending must do no harm where there are none.
async fn listen<H: Harness>(store: &H::Store) -> Option<Box<dyn Wakeups>> {
    let subscription = store.listen().await.expect("a store can be asked to listen");
    assert_eq!(subscription.is_some(), H::HAS_WAKEUPS);
    wake(store).await;
    subscription
}

async fn wake(store: &impl OutboxStore) {
    store.wake_others().await.expect("a wake-up can be sent");
}

async fn next(subscription: &mut Box<dyn Wakeups>) {
    subscription.next().await.expect("the subscription is alive");
}

/// Hears what was sent so far. The last wake-up may still be on its way then.
async fn quiet(subscription: &mut Box<dyn Wakeups>) {
    next(subscription).await;
    while let Some(heard) = subscription.next().now_or_never() {
        heard.expect("the subscription is alive");
    }
}

/// What one process sends is heard by everybody who listens, itself included. BUS-05.
pub async fn a_wake_up_is_heard_by_every_listener<H: Harness>() {
    let h = start::<H>().await;
    let other = another(&h).await;
    let Some(mut own) = listen::<H>(h.store()).await else { return };
    let Some(mut others) = listen::<H>(&other).await else { return };
    quiet(&mut own).await;
    quiet(&mut others).await;
    for sender in [h.store(), &other] {
        wake(sender).await;
        next(&mut own).await;
        next(&mut others).await;
    }
}

/// However many are sent, whoever listens hears at least one after the last of them. BUS-05.
pub async fn many_wake_ups_are_heard_as_one_or_more<H: Harness>() {
    let h = start::<H>().await;
    let Some(mut own) = listen::<H>(h.store()).await else { return };
    for _ in 0..20 {
        wake(h.store()).await;
    }
    quiet(&mut own).await;
    wake(h.store()).await;
    next(&mut own).await;
}

/// Waiting can be given up and taken up again; nothing is missed. BUS-05, H31.
pub async fn a_wait_cut_short_misses_nothing<H: Harness>() {
    let h = start::<H>().await;
    let Some(mut own) = listen::<H>(h.store()).await else { return };
    for polls in POLLS {
        cut_short(polls, own.next()).await;
    }
    wake(h.store()).await;
    next(&mut own).await;
}

/// Listeners take no connection from the store, which works on beside them. BUS-05, H7.
pub async fn listeners_take_nothing_from_the_store<H: Harness>() {
    let h = start::<H>().await;
    let mut subscriptions = Vec::new();
    for _ in 0..MANY {
        subscriptions.extend(listen::<H>(h.store()).await);
    }
    enqueue(h.store(), &messages(3)).await;
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await.len(), 3);
    wake(h.store()).await;
    for subscription in &mut subscriptions {
        next(subscription).await;
    }
}

/// A subscription whose connection broke says so, and goes on saying so; a new one hears again. BUS-05, H20.
pub async fn a_broken_subscription_says_so<H: Harness>() {
    let h = start::<H>().await;
    let Some(mut own) = listen::<H>(h.store()).await else { return };
    quiet(&mut own).await;
    h.end_listeners().await;
    while own.next().await.is_ok() {}
    assert!(own.next().await.is_err_and(|error| error.is_transient()));
    let Some(mut again) = listen::<H>(h.store()).await else { panic!("it can be listened to again") };
    next(&mut again).await;
}

/// A wake-up concerns one outbox; those beside it in the same database hear nothing. BUS-05.
pub async fn another_outbox_is_not_woken<H: Harness>() {
    let h = start::<H>().await;
    let Some(mut own) = listen::<H>(h.store()).await else { return };
    let naming = &h.store().options().naming;
    let naming = Naming::new(naming.schema().as_str(), "elsewhere").expect("the name is legal");
    let elsewhere = h.connect_as_is(StoreOptions { naming, ..options() }).await.expect("a second outbox can be opened");
    let Some(mut others) = listen::<H>(&elsewhere).await else { return };
    quiet(&mut others).await;
    quiet(&mut own).await;
    wake(h.store()).await;
    next(&mut own).await;
    let mut waiting = pin!(others.next());
    assert!(waiting.as_mut().now_or_never().is_none(), "nobody has woken this one");
    wake(&elsewhere).await;
    waiting.await.expect("the subscription is alive");
}
