//! The behaviours of a subscription: what a consumer promises, whatever broker it reads from.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use pillarbox::inbox::{Inbox, InboxOptions};
use pillarbox::schema::SchemaPolicy;
use pillarbox::store::StoreOptions;
use pillarbox::{Intake, IntakeOptions, Outbox};
use pillarbox_core::{Delivered, InboxStore, Intaken, Limits, Message, Problem, SchemaAdmin, Subscription};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use crate::memory::MemoryStore;
use crate::source::{AHEAD, SOURCE, Source};

/// How often a condition is looked at before a behaviour gives up: about two minutes.
const LOOKS_MAX: usize = 6_000;

/// Deliveries that an intake of the suite stores at once.
const BATCH: usize = 20;

/// BUS-02: a delivery is the message as it was sent, under a receipt that tells the source and the message's own id.
pub async fn a_delivery_is_the_message_as_it_was_sent<S: Source>() {
    let station = S::open().await;
    let destination = station.place("whole").await;
    let message = Message::new("order.created", vec![0, 159, 146, 150])
        .key("customer-7")
        .message_type("OrderCreated")
        .tenant("acme")
        .correlation_id("request-1")
        .causation_id("command-1")
        .content_type("application/octet-stream")
        .occurred_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .header("x-note", "größe: 100 %\n2nd line");
    send(&station, &destination, std::slice::from_ref(&message)).await;
    let mut subscription = station.subscribe(&destination);
    let delivered = next(&mut subscription, 1).await;
    let incoming = &delivered[0].incoming;
    assert_eq!(incoming.message(), &message);
    assert_eq!((incoming.receipt().source(), incoming.receipt().message_id()), (SOURCE, &*message.id().to_string()));
}

/// H40, H45: what is sent arrives once, before and after somebody listens, and is acknowledged.
pub async fn what_is_sent_arrives_once<S: Source>() {
    let station = S::open().await;
    let destination = station.place("once").await;
    let inbox = memory_inbox().await;
    let messages = numbered(0..300);
    send(&station, &destination, &messages[..100]).await;
    let intake = take_in(&inbox, station.subscribe(&destination));
    send(&station, &destination, &messages[100..]).await;
    until_stored(&inbox, &messages).await;
    let stats = intake.shutdown().await;
    assert_eq!((stats.stored_count, stats.refused_count), (300, 0));
    until_left(&station, &destination, 0).await;
}

/// Two consumers of a group share the work: each message takes effect once.
pub async fn two_of_a_group_share<S: Source>() {
    let station = S::open().await;
    let destination = station.place("shared").await;
    let inbox = memory_inbox().await;
    let intakes = [0, 1].map(|_| take_in(&inbox, station.subscribe(&destination)));
    let messages = numbered(0..300);
    send(&station, &destination, &messages).await;
    until_stored(&inbox, &messages).await;
    let mut stored = 0;
    for intake in intakes {
        stored += intake.shutdown().await.stored_count;
    }
    assert_eq!(stored, 300);
    until_settled(&station, &destination, &inbox).await;
}

/// H45: what a consumer held that died, also what it had taken ahead, goes to another one of its group.
pub async fn what_a_dead_consumer_held_comes_again<S: Source>() {
    let station = S::open().await;
    let destination = station.place("dead").await;
    let messages = numbered(0..AHEAD);
    send(&station, &destination, &messages).await;
    let mut first = station.subscribe(&destination);
    let taken = next(&mut first, 10).await;
    assert!(!taken.is_empty());
    drop(first);
    until_left(&station, &destination, AHEAD).await;

    let inbox = memory_inbox().await;
    let intake = take_in(&inbox, station.subscribe(&destination));
    until_stored(&inbox, &messages).await;
    intake.shutdown().await;
    until_settled(&station, &destination, &inbox).await;
}

/// H45, H41: a delivery whose acknowledgement was lost is known when it comes again: it is acknowledged then, without effect.
pub async fn a_duplicate_is_acknowledged_without_effect<S: Source>() {
    let station = S::open().await;
    let destination = station.place("duplicate").await;
    let inbox = memory_inbox().await;
    let messages = numbered(0..30);
    send(&station, &destination, &messages).await;
    let mut first = station.subscribe(&destination);
    let mut stored = BTreeMap::new();
    while stored.len() < messages.len() {
        for Delivered { incoming, .. } in next(&mut first, BATCH).await {
            inbox.receive(std::slice::from_ref(&incoming)).await.expect("it is stored");
            stored.insert(incoming.receipt().message_id().to_owned(), ());
        }
    }
    drop(first);

    let intake = take_in(&inbox, station.subscribe(&destination));
    let mut again = looks();
    for _ in 0..LOOKS_MAX {
        if intake.stats().duplicate_count >= 30 {
            break;
        }
        again.tick().await;
    }
    let stats = intake.shutdown().await;
    assert_eq!((stats.stored_count, stats.duplicate_count >= 30), (0, true), "{stats:?}");
    until_left(&station, &destination, 0).await;
}

/// H47: what the inbox can never take holds up nothing, and does not come again.
pub async fn what_is_refused_does_not_come_again<S: Source>() {
    let station = S::open().await;
    let destination = station.place("refused").await;
    let limits = Limits { payload_bytes_max: 10, ..Limits::default() };
    let store = MemoryStore::new(StoreOptions { limits, ..StoreOptions::default() });
    let inbox = Outbox::new(store).inbox().await.expect("an inbox opens");
    let messages = ["1", "2", "far too long for it", "4", "5"].map(|body| Message::new("t", body).key("one"));
    send(&station, &destination, &messages).await;
    let intake = take_in(&inbox, station.subscribe(&destination));
    let fitting: Vec<_> = messages.iter().filter(|message| message.payload().len() <= 10).cloned().collect();
    until_stored(&inbox, &fitting).await;
    let stats = intake.shutdown().await;
    assert_eq!((stats.stored_count, stats.refused_count), (4, 1));
    until_left(&station, &destination, 0).await;
}

/// A delivery that is put off comes again, as often as it takes, also to another of the group.
pub async fn what_is_put_off_comes_again<S: Source>() {
    let station = S::open().await;
    let destination = station.place("later").await;
    let messages: Vec<_> = (0..10).map(|number| Message::new("t", number.to_string()).key("one")).collect();
    send(&station, &destination, &messages).await;
    let refused = messages[3].id().to_string();
    let put_off: Vec<_> = messages.iter().filter(|message| message.id() != messages[3].id()).cloned().collect();
    let mut subscription = station.subscribe(&destination);
    let mut seen = BTreeMap::<String, usize>::new();
    while put_off.iter().any(|message| seen.get(&message.id().to_string()).is_none_or(|count| *count < 3)) {
        let mut outcomes = Vec::new();
        for Delivered { tag, incoming } in next(&mut subscription, 20).await {
            let id = incoming.receipt().message_id().to_owned();
            outcomes.push((tag, if id == refused { refusal() } else { Intaken::Later }));
            *seen.entry(id).or_default() += 1;
        }
        subscription.settle(outcomes).await.expect("the broker is told");
    }
    drop(subscription);

    let inbox = memory_inbox().await;
    let intake = take_in(&inbox, station.subscribe(&destination));
    until_stored(&inbox, &put_off).await;
    intake.shutdown().await;
    until_left(&station, &destination, 0).await;
}

/// H45: nothing is acknowledged while the inbox cannot store it, and all of it arrives once it can.
pub async fn nothing_is_acknowledged_before_it_is_stored<S: Source>() {
    let station = S::open().await;
    let destination = station.place("failing").await;
    // An inbox without tables: every call fails.
    let options = InboxOptions { schema: Some(SchemaPolicy::Assume), ..InboxOptions::default() };
    let outbox = Outbox::new(MemoryStore::new(StoreOptions::default()));
    let inbox = outbox.inbox_with(options).await.expect("it does not look");
    let messages = numbered(0..10);
    send(&station, &destination, &messages).await;
    let intake = take_in(&inbox, station.subscribe(&destination));
    let mut again = looks();
    while intake.stats().failure_count < 2 {
        again.tick().await;
    }
    assert_eq!(intake.shutdown().await.stored_count, 0);
    until_left(&station, &destination, 10).await;

    inbox.store().deploy_schema().await.expect("tables are made");
    let intake = take_in(&inbox, station.subscribe(&destination));
    until_stored(&inbox, &messages).await;
    assert_eq!(intake.shutdown().await.stored_count, 10);
    until_left(&station, &destination, 0).await;
}

/// H43: a broker that dies in the middle, and one that is not there at first, lose nothing.
pub async fn nothing_is_lost_when_the_broker_dies_in_between<S: Source>() {
    if !S::TRAITS.is_mortal || !S::TRAITS.is_durable {
        return;
    }
    let mut station = S::open().await;
    let destination = station.place("killed").await;
    let inbox = memory_inbox().await;
    let messages = numbered(0..400);
    send(&station, &destination, &messages[..300]).await;
    let early = take_in(&inbox, station.subscribe(&destination));
    until_stored(&inbox, &messages[..1]).await;
    station.kill().await;
    let late = take_in(&inbox, station.subscribe(&destination));
    let mut again = looks();
    while late.stats().failure_count == 0 {
        again.tick().await;
    }
    station.revive().await;
    send(&station, &destination, &messages[300..]).await;
    until_stored(&inbox, &messages).await;
    let stored = early.shutdown().await.stored_count + late.shutdown().await.stored_count;
    assert_eq!(stored, 400);
    until_settled(&station, &destination, &inbox).await;
}

/// A wait for deliveries that is cut short loses none of them.
pub async fn a_wait_cut_short_loses_nothing<S: Source>() {
    let station = S::open().await;
    let destination = station.place("cut").await;
    let messages = numbered(0..60);
    send(&station, &destination, &messages[..30]).await;
    let mut subscription = station.subscribe(&destination);
    let mut arrived = BTreeMap::new();
    let mut patience = Duration::ZERO;
    while arrived.len() < messages.len() {
        // Every other wait ends at once; the others are longer each time, because a connection has to be made at first.
        for wait in [Duration::ZERO, patience] {
            let Ok(Ok(delivered)) = timeout(wait, subscription.next(7)).await else { continue };
            let ids = delivered.iter().map(|one| (one.incoming.receipt().message_id().to_owned(), ()));
            arrived.extend(ids);
            let outcomes = delivered.into_iter().map(|one| (one.tag, Intaken::Stored)).collect();
            subscription.settle(outcomes).await.expect("the broker is told");
        }
        if patience == Duration::from_millis(100) {
            send(&station, &destination, &messages[30..]).await;
        }
        patience += Duration::from_millis(5);
    }
    drop(subscription);
    until_left(&station, &destination, 0).await;
}

fn numbered(numbers: std::ops::Range<usize>) -> Vec<Message> {
    numbers.map(|number| Message::new("order.created", number.to_string()).key((number % 7).to_string())).collect()
}

async fn memory_inbox() -> Inbox<MemoryStore> {
    let outbox = Outbox::new(MemoryStore::new(StoreOptions::default()));
    outbox.inbox().await.expect("an inbox opens")
}

fn take_in(inbox: &Inbox<MemoryStore>, subscription: impl Subscription) -> Intake {
    inbox.intake_with(subscription, IntakeOptions { batch_max: BATCH }).expect("an intake starts")
}

/// Sends until the broker has taken all, as a relay would.
async fn send<S: Source>(station: &S, destination: &str, messages: &[Message]) {
    let transport = station.transport();
    crate::transport_suite::deliver_until_taken(&*transport, destination, messages).await;
    transport.close().await;
}

/// The next deliveries, whatever goes wrong at first.
async fn next<B: Subscription>(subscription: &mut B, limit: usize) -> Vec<Delivered<B::Tag>> {
    let mut again = looks();
    let mut last = None;
    for _ in 0..LOOKS_MAX {
        match subscription.next(limit).await {
            Ok(delivered) => {
                assert!((1..=limit).contains(&delivered.len()), "{} of {limit} deliveries", delivered.len());
                return delivered;
            }
            Err(error) => last = Some(error),
        }
        again.tick().await;
    }
    panic!("nothing is delivered: {last:?}");
}

fn refusal() -> Intaken {
    Intaken::Refused(Problem::empty("topic").into())
}

async fn until_stored(inbox: &Inbox<MemoryStore>, messages: &[Message]) {
    let mut again = looks();
    let mut missing: Vec<_> = messages.iter().map(|message| message.id().to_string()).collect();
    for _ in 0..LOOKS_MAX {
        let mut still = Vec::new();
        for id in missing {
            if inbox.store().get(SOURCE, &id).await.expect("the inbox answers").is_none() {
                still.push(id);
            }
        }
        missing = still;
        if missing.is_empty() {
            return;
        }
        again.tick().await;
    }
    panic!("{} of {} messages never arrived", missing.len(), messages.len());
}

async fn until_left<S: Source>(station: &S, destination: &str, count: usize) {
    let mut again = looks();
    let mut left = 0;
    for _ in 0..LOOKS_MAX {
        left = station.left(destination).await;
        if left == count {
            return;
        }
        again.tick().await;
    }
    panic!("the broker has {left} messages left for the group, and not {count}");
}

/// Takes in again what was stored and not acknowledged, because somebody died in between: it is known, and then forgotten.
async fn until_settled<S: Source>(station: &S, destination: &str, inbox: &Inbox<MemoryStore>) {
    for _ in 0..20 {
        let left = station.left(destination).await;
        if left == 0 {
            return;
        }
        let intake = take_in(inbox, station.subscribe(destination));
        let mut again = looks();
        for _ in 0..LOOKS_MAX / 10 {
            if intake.stats().duplicate_count >= left as u64 {
                break;
            }
            again.tick().await;
        }
        assert_eq!(intake.shutdown().await.stored_count, 0, "everything had arrived");
    }
    panic!("the broker never forgets what is acknowledged");
}

fn looks() -> Interval {
    let mut again = interval(Duration::from_millis(20));
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    again
}

/// Makes one `#[test]` of every behaviour of the subscription suite, for one [`Source`].
#[macro_export]
macro_rules! subscription_suite {
    ($source:ty) => {
        $crate::subscription_suite! { @tests $source;
            a_delivery_is_the_message_as_it_was_sent,
            what_is_sent_arrives_once,
            two_of_a_group_share,
            what_a_dead_consumer_held_comes_again,
            a_duplicate_is_acknowledged_without_effect,
            what_is_refused_does_not_come_again,
            what_is_put_off_comes_again,
            nothing_is_acknowledged_before_it_is_stored,
            nothing_is_lost_when_the_broker_dies_in_between,
            a_wait_cut_short_loses_nothing,
        }
    };
    (@tests $source:ty; $($behaviour:ident,)*) => {
        $(
            #[test]
            fn $behaviour() {
                $crate::run(|| $crate::subscription_suite::$behaviour::<$source>());
            }
        )*
    };
}
