//! Partitions at work: messages with a key go to the instance that owns the partition of their key.

use std::collections::BTreeSet;
use std::future::{Ready, ready};
use std::time::Duration;

use pillarbox::instance::STALE_AFTER_DEFAULT;
use pillarbox::partition::partition_of;
use pillarbox::prelude::{Context, Failure, Message, Runtime};
use pillarbox::store::Enqueue;
use pillarbox::{Assignment, Instance, Outbox, OutboxStore, Transactional, UnknownTopics, this_process};
use tokio::sync::mpsc;

use super::acceptance::{Backend, on_every_backend, outbox};
use super::instances::sees;
use super::support::*;

const GRACE: Duration = Duration::from_secs(5);

/// Keys per batch: enough that each of two instances owns some, whatever their ids.
const KEYS: usize = 60;

on_every_backend! {
    messages_with_a_key_are_handled_by_whoever_owns_its_partition
}

/// Who handled which message, by its payload.
type Handled = (&'static str, String);

type Told = mpsc::UnboundedSender<Handled>;

/// A handler that tells what it handles.
fn telling(name: &'static str, told: &Told) -> impl Fn(Context) -> Ready<Result<(), Failure>> + Send + Sync + 'static {
    let told = told.clone();
    move |cx: Context| {
        told.send((name, String::from_utf8_lossy(cx.payload()).into_owned())).unwrap();
        ready(Ok(()))
    }
}

/// An instance that tells what it handles, and looks for messages only when it is told to.
async fn join<S: Transactional + Clone>(
    outbox: &Outbox<S>,
    name: &'static str,
    instance: &Instance,
    told: &Told,
) -> Runtime {
    let builder = quiet(outbox).instance(instance.clone()).on_topic("work", telling(name, told));
    builder.heartbeat(Duration::from_millis(50), STALE_AFTER_DEFAULT).start().await.unwrap()
}

fn batch(round: usize) -> Vec<Message> {
    let message = |number| {
        let key = format!("customer-{number}");
        Message::new("work", format!("{round} {key}")).key(key)
    };
    (0..KEYS).map(message).collect()
}

/// The key of one that was handled.
fn key(payload: &str) -> &str {
    payload.split_once(' ').unwrap().1
}

fn owner<'a>(assignment: &Assignment, instances: &[(&'a str, &Instance)], key: &str) -> &'a str {
    let owner = assignment.owner_of(partition_of(key, assignment.count())).unwrap();
    instances.iter().find(|(_, instance)| instance.id() == owner).unwrap().0
}

async fn receive(handled: &mut mpsc::UnboundedReceiver<Handled>, count: usize) -> Vec<Handled> {
    let mut received = Vec::new();
    while received.len() < count {
        received.push(handled.recv().await.unwrap());
    }
    received
}

/// A key whose partition belongs to this instance.
fn key_of(assignment: &Assignment, instance: &Instance) -> String {
    let is_its = |key: &String| assignment.owner_of(partition_of(key, assignment.count())) == Some(instance.id());
    (0..).map(|number| format!("customer-{number}")).find(is_its).unwrap()
}

/// WRK-03: every message is handled where its partition is; when one of two stops, the other handles what waits at once, and
/// everything from then on.
async fn messages_with_a_key_are_handled_by_whoever_owns_its_partition<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let (told, mut handled) = mpsc::unbounded_channel();
    let (a, b) = (this_process("a"), this_process("b"));
    let staying = join(&Outbox::new(outbox.store().clone()), "a", &a, &told).await;
    let stopping = join(&Outbox::new(outbox.store().clone()), "b", &b, &told).await;
    let assignment = sees(&staying, &[&a, &b]).await;
    sees(&stopping, &[&a, &b]).await;
    // Claims that began before they knew each other have ended.
    tokio::join!(staying.idle(), stopping.idle());

    outbox.store().enqueue(Enqueue::pending(&batch(0))).await.unwrap();
    tokio::join!(staying.idle(), stopping.idle());
    let first = receive(&mut handled, KEYS).await;
    for (who, payload) in &first {
        assert_eq!(*who, owner(&assignment, &[("a", &a), ("b", &b)], key(payload)), "{payload}");
    }
    assert_eq!(first.iter().map(|(who, _)| *who).collect::<BTreeSet<_>>().len(), 2);

    outbox.store().enqueue(Enqueue::pending(&batch(1))).await.unwrap();
    staying.idle().await;
    stopping.shutdown(GRACE).await;
    let second = receive(&mut handled, KEYS).await;
    assert_eq!(second.iter().map(|(_, payload)| payload).collect::<BTreeSet<_>>().len(), KEYS);

    sees(&staying, &[&a]).await;
    outbox.store().enqueue(Enqueue::pending(&batch(2))).await.unwrap();
    staying.idle().await;
    assert!(receive(&mut handled, KEYS).await.iter().all(|(who, _)| *who == "a"));
    staying.shutdown(GRACE).await;
}

/// Two instances that know each other, and how the partitions are divided.
struct Pair {
    store: Watched,
    outboxes: [Outbox<Watched>; 2],
    instances: [Instance; 2],
    runtimes: [Runtime; 2],
    assignment: Assignment,
    handled: mpsc::UnboundedReceiver<Handled>,
}

async fn pair(wakeups: WakeupMode) -> Pair {
    let store = Watched::with(wakeups);
    let (told, handled) = mpsc::unbounded_channel();
    let outboxes = [Outbox::new(store.clone()), Outbox::new(store.another())];
    let instances = [this_process("a"), this_process("b")];
    let first = join(&outboxes[0], "a", &instances[0], &told).await;
    let second = join(&outboxes[1], "b", &instances[1], &told).await;
    let runtimes = [first, second];
    for runtime in &runtimes {
        while wakeups == WakeupMode::Works && !runtime.stats().has_wakeups {
            tokio::task::yield_now().await;
        }
        sees(runtime, &[&instances[0], &instances[1]]).await;
    }
    tokio::join!(runtimes[0].idle(), runtimes[1].idle());
    let assignment = runtimes[0].assignment().borrow().clone();
    Pair { store, outboxes, instances, runtimes, assignment, handled }
}

/// WRK-03, BUS-05: whoever stores a message that another one owns wakes that one, and one of its own nobody.
#[tokio::test(start_paused = true)]
async fn the_owner_of_a_stored_message_is_woken() {
    let mut pair = pair(WakeupMode::Works).await;
    let wakes = pair.store.counts().wakes;
    let theirs = key_of(&pair.assignment, &pair.instances[1]);
    pair.outboxes[0].enqueue_now(Message::new("work", "0 theirs").key(theirs)).await.unwrap();
    assert_eq!(pair.handled.recv().await.unwrap(), ("b", "0 theirs".to_owned()));
    assert_eq!(pair.store.counts().wakes, wakes + 1);
    let ours = key_of(&pair.assignment, &pair.instances[0]);
    pair.outboxes[0].enqueue_now(Message::new("work", "0 ours").key(ours)).await.unwrap();
    assert_eq!(pair.handled.recv().await.unwrap(), ("a", "0 ours".to_owned()));
    assert_eq!(pair.store.counts().wakes, wakes + 1);
}

/// WRK-03: what waited for an instance that died is handled when it is known to be gone, without a poll.
#[tokio::test(start_paused = true)]
async fn what_waited_for_a_dead_instance_is_handled_when_it_is_gone() {
    let mut pair = pair(WakeupMode::None).await;
    let [staying, dying] = pair.runtimes;
    drop(dying);
    let key = key_of(&pair.assignment, &pair.instances[1]);
    pair.outboxes[0].enqueue_now(Message::new("work", "0 left").key(key)).await.unwrap();
    staying.idle().await;
    assert!(pair.handled.try_recv().is_err(), "its owner may be alive");
    pair.store.memory.database().advance(STALE_AFTER_DEFAULT);
    assert_eq!(pair.handled.recv().await.unwrap(), ("a", "0 left".to_owned()));
}

/// WRK-03: before the first heartbeat, and while there is no list to look at, an instance serves everything.
#[tokio::test(start_paused = true)]
async fn an_instance_that_knows_of_nobody_serves_everything() {
    let store = Watched::new();
    let (told, mut handled) = mpsc::unbounded_channel();
    let outbox = Outbox::new(store.clone());
    let runtime = join(&outbox, "a", &this_process("a"), &told).await;
    for message in batch(0) {
        outbox.enqueue_now(message).await.unwrap();
    }
    runtime.idle().await;
    assert_eq!(receive(&mut handled, KEYS).await.len(), KEYS);
}

/// WRK-03: who leaves topics to others takes from every partition: the owner of a message may be one that leaves it.
#[tokio::test(start_paused = true)]
async fn who_leaves_topics_to_others_claims_from_every_partition() {
    let store = Watched::new();
    let (told, mut handled) = mpsc::unbounded_channel();
    let instances = [this_process("a"), this_process("b")];
    let mut runtimes = Vec::new();
    for (instance, topic) in instances.iter().zip(["work", "other"]) {
        let builder = quiet(&Outbox::new(store.another())).instance(instance.clone());
        let builder = builder.unknown_topics(UnknownTopics::Leave).on_topic(topic, telling("", &told));
        runtimes.push(builder.start().await.unwrap());
    }
    let assignment = sees(&runtimes[0], &[&instances[0], &instances[1]]).await;
    let key = key_of(&assignment, &instances[1]);
    let outbox = Outbox::new(store.clone());
    outbox.enqueue_now(Message::new("work", "0 left").key(key)).await.unwrap();
    runtimes[0].idle().await;
    assert_eq!(handled.recv().await.unwrap().1, "0 left");
}

/// WRK-03, WRK-07: in sequence there are no partitions: whoever comes first takes the next ones.
#[tokio::test(start_paused = true)]
async fn in_sequence_partitions_have_no_effect() {
    let store = Watched::new();
    let (told, mut handled) = mpsc::unbounded_channel();
    let instances = [this_process("a"), this_process("b")];
    let mut runtimes = Vec::new();
    for instance in &instances {
        let builder = quiet(&Outbox::new(store.another())).instance(instance.clone());
        let builder = builder.in_sequence();
        let builder = builder.on_topic("work", telling("", &told));
        runtimes.push(builder.start().await.unwrap());
    }
    sees(&runtimes[0], &[&instances[0], &instances[1]]).await;
    store.enqueue(Enqueue::pending(&batch(0))).await.unwrap();
    runtimes[0].idle().await;
    let received: Vec<_> = receive(&mut handled, KEYS).await.into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(received, (0..KEYS).map(|number| format!("0 customer-{number}")).collect::<Vec<_>>());
}
