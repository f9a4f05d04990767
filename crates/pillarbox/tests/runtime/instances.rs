//! Many instances on one queue: they see each other, and divide the partitions.

use std::time::Duration;

use pillarbox::instance::STALE_AFTER_DEFAULT;
use pillarbox::prelude::{Context, Message, Runtime};
use pillarbox::schema::{SchemaPolicy, SchemaStatus};
use pillarbox::{
    Assignment, Instance, InstanceId, Outbox, OutboxStore, PartitionCount, Problem, StartError, this_process,
};
use tokio::sync::watch;

use super::acceptance::{Backend, on_every_backend, outbox};
use super::support::*;
use super::witness::Witness;

const GRACE: Duration = Duration::from_secs(5);

on_every_backend! {
    instances_divide_the_partitions_and_take_over_from_those_that_leave_or_die
}

/// Starts an instance on a store.
async fn join<S: OutboxStore + pillarbox::Transactional + Clone>(store: &S, instance: &Instance) -> Runtime {
    quiet(&Outbox::new(store.clone())).instance(instance.clone()).start().await.unwrap()
}

/// Waits until the runtime sees exactly these instances; how the partitions are divided then.
pub(crate) async fn sees(runtime: &Runtime, instances: &[&Instance]) -> Assignment {
    let mut ids: Vec<InstanceId> = instances.iter().map(|instance| instance.id()).collect();
    ids.sort_unstable();
    let mut assignment = runtime.assignment();
    assignment.wait_for(|assignment| assignment.instances() == ids).await.unwrap().clone()
}

fn owned(assignment: &Assignment, instance: &Instance) -> usize {
    assignment.partitions_of(instance.id()).count()
}

/// WRK-03: two see each other and own all together, each partition one of them; a clean stop moves its share with the next
/// heartbeat, a death when the instance has been silent for too long.
async fn instances_divide_the_partitions_and_take_over_from_those_that_leave_or_die<B: Backend>() {
    let (first, _folder) = outbox::<B>().await;
    let (store, stale_after) = (first.store(), Duration::from_secs(2));
    let start = async |instance: &Instance| {
        let builder = quiet(&Outbox::new(store.clone())).instance(instance.clone());
        builder.heartbeat(Duration::from_millis(50), stale_after).start().await.unwrap()
    };
    let [a, b, c] = ["a", "b", "c"].map(this_process);
    let staying = start(&a).await;
    assert_eq!(owned(&sees(&staying, &[&a]).await, &a), 1024);

    let stopping = start(&b).await;
    let (here, there) = (sees(&staying, &[&a, &b]).await, sees(&stopping, &[&a, &b]).await);
    assert_eq!(here, there, "both come to the same answer");
    assert_eq!(owned(&here, &a) + owned(&here, &b), 1024);
    assert!(owned(&here, &a) > 300 && owned(&here, &b) > 300);
    stopping.shutdown(GRACE).await;
    assert_eq!(owned(&sees(&staying, &[&a]).await, &a), 1024);

    let dying = start(&c).await;
    sees(&staying, &[&a, &c]).await;
    drop(dying);
    B::advance(store, stale_after);
    assert_eq!(owned(&sees(&staying, &[&a]).await, &a), 1024);
    staying.shutdown(GRACE).await;
    let left = store.instances().unwrap().live(NEVER).await.unwrap();
    assert_eq!(left.iter().map(|record| record.instance.id()).collect::<Vec<_>>(), [c.id()], "only the dead one stays");
}

/// WRK-03: the row of whoever left is gone when the shutdown has ended, and the last partitions are still published.
#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_at_once() {
    let store = Watched::new();
    let (a, b) = (this_process("a"), this_process("b"));
    let (staying, leaving) = (join(&store, &a).await, join(&store.another(), &b).await);
    sees(&staying, &[&a, &b]).await;
    leaving.shutdown(GRACE).await;
    let list = store.instances().unwrap();
    assert_eq!(list.live(NEVER).await.unwrap().len(), 1);
    assert_eq!(owned(&sees(&staying, &[&a]).await, &a), 1024);
    assert!(!list.leave(b.id()).await.unwrap(), "no heartbeat came after it had left");
}

/// WRK-03: whoever dies owns its partitions until it is stale by the database's clock, and not longer.
#[tokio::test(start_paused = true)]
async fn the_partitions_of_a_dead_instance_are_taken_over_when_it_is_stale() {
    let store = Watched::new();
    let (a, b) = (this_process("a"), this_process("b"));
    let (staying, dying) = (join(&store, &a).await, join(&store.another(), &b).await);
    let before = sees(&staying, &[&a, &b]).await;
    drop(dying);
    let beats = store.counts().heartbeats;
    store.wait_for(|counts| counts.heartbeats >= beats + 20).await;
    assert_eq!(*staying.assignment().borrow(), before, "the database's clock stands still");
    store.memory.database().advance(STALE_AFTER_DEFAULT);
    let after = sees(&staying, &[&a]).await;
    assert_eq!(after.won_since(&before, a.id()), owned(&before, &b));
}

/// WRK-03: heartbeats that fail are told once, repeated, and heard again; whoever was taken for gone meanwhile is there again.
#[tokio::test(start_paused = true)]
async fn an_instance_that_could_not_be_heard_registers_again() {
    let witness = Witness::default();
    let _watch = witness.watch();
    let store = Watched::new();
    let silent_store = store.another();
    let (a, b) = (this_process("a"), this_process("b"));
    let (steady, silent) = (join(&store, &a).await, join(&silent_store, &b).await);
    sees(&steady, &[&a, &b]).await;
    sees(&silent, &[&a, &b]).await;
    silent_store.set_down(true);
    silent_store.wait_for(|counts| counts.failures >= 40).await;
    store.memory.database().advance(STALE_AFTER_DEFAULT);
    sees(&steady, &[&a]).await;
    assert_eq!(silent.assignment().borrow().instances().len(), 2, "what it knew last is kept");
    silent_store.set_down(false);
    sees(&steady, &[&a, &b]).await;
    silent.shutdown(GRACE).await;
    let lines = witness.lines();
    let count = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    assert_eq!(count("WARN the heartbeat failed; it is repeated"), 1, "{lines:#?}");
    assert_eq!(count("INFO the instance is heard again"), 1);
    assert_eq!(count("WARN the instance was silent for so long that others took its partitions"), 1);
}

/// WRK-03: who came, who went, and what it means, stands in the log.
#[tokio::test(start_paused = true)]
async fn comings_and_goings_are_logged() {
    let witness = Witness::default();
    let _watch = witness.watch();
    let store = Watched::new();
    let a = this_process("a");
    let staying = join(&store, &a).await;
    sees(&staying, &[&a]).await;
    let b = Instance::new("billing", "host-7", 4711).metadata("token", "canary");
    store.instances().unwrap().heartbeat(&b).await.unwrap();
    let share = owned(&sees(&staying, &[&a, &b]).await, &b);
    store.instances().unwrap().leave(b.id()).await.unwrap();
    sees(&staying, &[&a]).await;
    let lines = witness.lines();
    let has = |words: &str| lines.iter().any(|line| line.contains(words));
    let who = format!("id={} service=\"billing\" host=\"host-7\" pid=4711", b.id());
    assert!(has(&format!("INFO an instance joined store=\"memory\" {who}")), "{lines:#?}");
    assert!(has(&format!("INFO an instance is gone store=\"memory\" {who}")), "{lines:#?}");
    let divided = "INFO partitions were divided anew store=\"memory\"";
    assert!(has(&format!("{divided} instances=1 owned=1024 won=1024 lost=0")), "{lines:#?}");
    assert!(has(&format!("{divided} instances=2 owned={} won=0 lost={share}", 1024 - share)), "{lines:#?}");
    assert!(has(&format!("{divided} instances=1 owned=1024 won={share} lost=0")), "{lines:#?}");
    assert!(!has("canary"));
}

/// Joins, and is heard of once.
async fn join_once(store: &Watched, instance: &Instance) -> Runtime {
    let builder = quiet(&Outbox::new(store.clone())).instance(instance.clone());
    builder.heartbeat(NEVER / 3, NEVER).start().await.unwrap()
}

/// WRK-03: and where it cannot, as on SQLite and MariaDB, they look every second.
#[tokio::test(start_paused = true)]
async fn who_comes_or_goes_is_seen_before_the_next_heartbeat_where_nobody_tells() {
    let store = Watched::with(WakeupMode::None);
    let (a, b) = (this_process("a"), this_process("b"));
    let staying = join_once(&store, &a).await;
    sees(&staying, &[&a]).await;
    let leaving = join_once(&store.another(), &b).await;
    sees(&staying, &[&a, &b]).await;
    leaving.shutdown(GRACE).await;
    sees(&staying, &[&a]).await;
    assert_eq!(store.counts().heartbeats, 1);
}

/// WRK-03: where the store can wake others, they learn of a start and of a stop before their next heartbeat.
#[tokio::test(start_paused = true)]
async fn who_comes_or_goes_is_seen_before_the_next_heartbeat_where_wake_ups_work() {
    let store = Watched::with(WakeupMode::Works);
    let other = store.another();
    let (a, b) = (this_process("a"), this_process("b"));
    let staying = join_once(&store, &a).await;
    while !staying.stats().has_wakeups {
        tokio::task::yield_now().await;
    }
    sees(&staying, &[&a]).await;
    let leaving = join_once(&other, &b).await;
    sees(&staying, &[&a, &b]).await;
    leaving.shutdown(GRACE).await;
    sees(&staying, &[&a]).await;
    assert_eq!(store.counts().heartbeats, 1);
}

/// WRK-03: whoever does not ask for it is not registered, and has not even the table; it serves every partition.
#[tokio::test]
async fn nothing_is_registered_unless_it_is_asked_for() {
    let store = Watched::new();
    let outbox = Outbox::new(store.clone());
    let runtime = quiet(&outbox).on_topic("work", async |_: Context| Ok(())).start().await.unwrap();
    outbox.enqueue_now(Message::new("work", "")).await.unwrap();
    runtime.idle().await;
    let assignment = runtime.assignment();
    assert_eq!(*assignment.borrow(), Assignment::unknown(PartitionCount::default()));
    assert!(assignment.borrow().serves(InstanceId::new(), PartitionCount::default().all().next().unwrap()));
    runtime.shutdown(GRACE).await;
    assert_eq!(store.counts().heartbeats, 0);
    assert_eq!(store.instances().unwrap().check_schema().await.unwrap(), SchemaStatus::Missing);
}

/// WRK-03, OBX-091: a store that must not deploy says what is missing, and attends when somebody has deployed it.
#[tokio::test(start_paused = true)]
async fn a_missing_table_is_waited_for_where_the_store_may_not_deploy() {
    let witness = Witness::default();
    let _watch = witness.watch();
    let database = pillarbox_testing::MemoryDatabase::new();
    let owner = database.connect(pillarbox::store::StoreOptions::default()).unwrap();
    let options = pillarbox::store::StoreOptions { schema: SchemaPolicy::Check, ..Default::default() };
    let a = this_process("a");
    let runtime = join(&database.connect(options).unwrap(), &a).await;
    while !witness.lines().iter().any(|line| line.contains("pillarbox migrate")) {
        tokio::task::yield_now().await;
    }
    owner.instances().unwrap().deploy_schema().await.unwrap();
    sees(&runtime, &[&a]).await;
}

/// WRK-03: every setting is checked before anything starts.
#[tokio::test]
async fn settings_that_contradict_each_other_are_refused() {
    let outbox = memory();
    let second = Duration::from_secs(1);
    let refused = |result: Result<Runtime, StartError>| match result {
        Err(StartError::Invalid(invalid)) => invalid.problems().iter().map(Problem::field).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let me = || quiet(&outbox).instance(this_process("a"));
    assert_eq!(refused(me().heartbeat(second, second * 2).start().await), ["stale_after"]);
    assert_eq!(refused(me().heartbeat(Duration::ZERO, second).start().await), ["heartbeat"]);
    assert_eq!(refused(me().heartbeat(second, NEVER * 2).start().await), ["stale_after"]);
    assert_eq!(refused(me().partition_count(0).partitions_max(0).start().await), ["partitions_max", "partition_count"]);
    assert_eq!(refused(quiet(&outbox).instance(Instance::new("", "h", 1)).start().await), ["service"]);
    assert_eq!(refused(quiet(&outbox).heartbeat(second, second * 3).start().await), ["instance"]);
    let fine = me().heartbeat(second, second * 2 + Duration::from_millis(1)).partition_count(7).partitions_max(3);
    let runtime = fine.start().await.unwrap();
    let mut assignment: watch::Receiver<Assignment> = runtime.assignment();
    let known = assignment.wait_for(|assignment| !assignment.instances().is_empty()).await.unwrap().clone();
    assert_eq!((known.count().get(), known.partitions_of(known.instances()[0]).count()), (7, 7));
}
