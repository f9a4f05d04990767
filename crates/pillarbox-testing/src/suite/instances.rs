//! The list of instances: who serves a queue now.

use std::collections::BTreeMap;
use std::sync::Arc;

use pillarbox_core::InstanceId;
use pillarbox_core::instance::{METADATA_BYTES_MAX, METADATA_ENTRIES_MAX, METADATA_READ_MAX, NAME_CHARS_MAX};
use pillarbox_core::partition::{PartitionCount, assign};
use pillarbox_core::schema::{SchemaPolicy, SchemaStatus};
use uuid::Uuid;

use super::support::*;
use crate::Harness;

fn instance(service: &str) -> Instance {
    Instance::new(service, "host-1", 4711)
}

/// The list beside the outbox, its table deployed.
async fn list_of(store: &(impl OutboxStore + ?Sized)) -> Arc<dyn InstanceStore> {
    let instances = store.instances().expect("the store has a list of instances");
    instances.deploy_schema().await.expect("the list can be deployed");
    instances
}

async fn beat(list: &Arc<dyn InstanceStore>, instance: &Instance) {
    list.heartbeat(instance).await.expect("an instance can say that it is there");
}

async fn live(list: &Arc<dyn InstanceStore>) -> Vec<InstanceRecord> {
    list.live(MINUTE * 5).await.expect("instances can be listed")
}

fn ids_of(live: &[InstanceRecord]) -> Vec<InstanceId> {
    live.iter().map(|record| record.instance.id()).collect()
}

/// An instance that says that it is there is listed with all that it said, by every process. WRK-03.
pub async fn an_instance_is_listed_with_what_it_said<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    assert_eq!(live(&list).await, []);
    let plain = instance("Größe 📮");
    let full = instance("orders").version("1.2.3-rc.1").metadata("zone", "eu \"west\"").metadata("注文", "\u{1b}[2J");
    for instance in [&plain, &full] {
        beat(&list, instance).await;
    }
    for list in [list, list_of(&another(&h).await).await] {
        let found = live(&list).await;
        assert_eq!([&found[0].instance, &found[1].instance], [&plain, &full]);
        assert_near(found[0].silent_for, std::time::Duration::ZERO);
        assert_eq!(found[0].started_at, found[0].last_seen_at, "it was heard of once");
    }
}

/// The next sign of an instance replaces what it said and moves on when it was last seen, and not when it started. WRK-03.
pub async fn a_heartbeat_moves_on_when_it_was_seen_and_not_when_it_started<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    let (mine, other) = (instance("orders").version("1"), instance("other"));
    beat(&list, &mine).await;
    beat(&list, &other).await;
    h.advance(MINUTE * 3).await;
    beat(&list, &mine.clone().version("2").metadata("zone", "eu")).await;
    let found = live(&list).await;
    assert_eq!(found[0].instance, mine.version("2").metadata("zone", "eu"));
    let running = found[0].last_seen_at.duration_since(found[0].started_at);
    assert_near(running.expect("it was seen later"), MINUTE * 3);
    assert_near(found[0].silent_for, std::time::Duration::ZERO);
    assert_near(found[1].silent_for, MINUTE * 3);
    assert_eq!(found[1].instance, other, "of others nothing changes");
}

/// Instances stand in the order of their ids, which is that of their starts, whoever was heard of last. WRK-03, WRK-05.
pub async fn instances_are_listed_in_the_order_of_their_ids<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    let mut all: Vec<_> = (0..20).map(|number| instance(&number.to_string())).collect();
    // One whose first bytes a signed comparison would put first.
    all.push(instance("last").with_id(InstanceId::from_uuid(Uuid::max()).expect("it is not nil")));
    for instance in all.iter().rev() {
        beat(&list, instance).await;
    }
    assert_eq!(ids_of(&live(&list).await), all.iter().map(Instance::id).collect::<Vec<_>>());
}

/// Whoever has been silent for longer than the threshold is not live, whoever has not is. WRK-03.
pub async fn a_silent_instance_is_not_live<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    let (silent, talking) = (instance("silent"), instance("talking"));
    beat(&list, &silent).await;
    beat(&list, &talking).await;
    h.advance(MINUTE * 4).await;
    assert_eq!(live(&list).await.len(), 2, "five minutes are not over");
    beat(&list, &talking).await;
    h.advance(MINUTE * 2).await;
    assert_eq!(ids_of(&live(&list).await), [talking.id()]);
    let patient = list.live(HOUR).await.expect("instances can be listed");
    assert_eq!(ids_of(&patient), [silent.id(), talking.id()], "who looks decides how long is too long");
    assert_near(patient[0].silent_for, MINUTE * 6);
}

/// An instance that slept and was taken for gone, or forgotten, is there again with its next sign. WRK-03.
pub async fn an_instance_that_slept_is_there_again<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    let sleeper = instance("sleeper");
    beat(&list, &sleeper).await;
    h.advance(HOUR).await;
    assert_eq!(live(&list).await, []);
    beat(&list, &sleeper).await;
    assert_eq!(ids_of(&live(&list).await), [sleeper.id()]);
    h.advance(HOUR).await;
    assert_eq!(list.forget(MINUTE, PurgeLimit::default()).await.expect("a purge succeeds"), 1);
    beat(&list, &sleeper).await;
    assert_eq!(live(&list).await[0].instance, sleeper);
}

/// Whoever leaves is gone at once; leaving again, or leaving unknown, changes nothing. WRK-03.
pub async fn leaving_is_at_once<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    let (leaver, other) = (instance("leaver"), instance("other"));
    beat(&list, &leaver).await;
    beat(&list, &other).await;
    let leave = async |id| list.leave(id).await.expect("an instance can leave");
    assert!(leave(leaver.id()).await);
    assert_eq!(ids_of(&live(&list).await), [other.id()]);
    assert!(!leave(leaver.id()).await);
    assert!(!leave(InstanceId::new()).await);
    beat(&list, &leaver).await;
    assert_eq!(live(&list).await.len(), 2, "leaving is not for ever");
}

/// Thirty-two instances that say at the same moment that they are there are all listed, and thirty-two signs of one instance
/// are one row, while others list, leave and forget. WRK-03, OBX-084.
pub async fn thirty_two_heartbeats_at_once_are_all_heard<H: Harness>() {
    let h = start::<H>().await;
    let (list, elsewhere) = (list_of(h.store()).await, list_of(&another(&h).await).await);
    let one = instance("one");
    let all: Vec<_> = (0..32).map(|number| instance(&number.to_string())).collect();
    at_once(all.iter().enumerate().map(|(number, mine)| {
        let list = if number % 2 == 0 { list.clone() } else { elsewhere.clone() };
        let (mine, one, passing) = (mine.clone(), one.clone(), instance("passing"));
        async move {
            beat(&list, &mine).await;
            beat(&list, &one).await;
            beat(&list, &passing).await;
            assert!(ids_of(&live(&list).await).contains(&mine.id()));
            assert_eq!(list.forget(HOUR, PurgeLimit::default()).await.expect("a purge succeeds"), 0);
            assert!(list.leave(passing.id()).await.expect("an instance can leave"));
            beat(&list, &one).await;
        }
    }))
    .await;
    let mut expected: Vec<_> = all.iter().chain([&one]).map(Instance::id).collect();
    expected.sort_unstable();
    assert_eq!(ids_of(&live(&list).await), expected);
}

/// The longest names and the most metadata are taken; more is refused before anything is written, and every problem is named.
/// WRK-03.
pub async fn what_an_instance_says_is_bounded<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    let long = "😀".repeat(NAME_CHARS_MAX + 1);
    let bad = Instance::new("", &long, 0).version("a\0").metadata("x", "y".repeat(METADATA_BYTES_MAX));
    assert_eq!(refused_fields(list.heartbeat(&bad).await), ["service", "host", "version", "metadata"]);
    for stale_after in [std::time::Duration::ZERO, DAY * 365 * 11] {
        assert_eq!(refused_fields(list.live(stale_after).await), ["stale_after"]);
        assert_eq!(refused_fields(list.forget(stale_after, PurgeLimit::default()).await), ["stale_after"]);
    }
    assert_eq!(live(&list).await, []);
    let longest = "😀".repeat(NAME_CHARS_MAX);
    let entry = METADATA_BYTES_MAX / METADATA_ENTRIES_MAX - 2;
    let largest = (0..METADATA_ENTRIES_MAX)
        .fold(Instance::new(&longest, &longest, u32::MAX).version(&longest), |one, number| {
            one.metadata(format!("{number:02}"), "\u{1}".repeat(entry))
        });
    beat(&list, &largest).await;
    assert_eq!(live(&list).await[0].instance, largest);
}

/// What others wrote is listed as it stands, however odd: it keeps nobody from being listed, and gives nobody more partitions.
/// WRK-03, H53.
pub async fn foreign_metadata_is_shown_and_not_obeyed<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    let greedy = r#"{"partitions": "all", "ceiling": 65536, "stale_after": 1e9}"#;
    let huge = "x".repeat(METADATA_READ_MAX as usize + 1);
    let texts = ["not json", "", "[\"\u{1b}[2J\"]", "{\"a\": {\"b\": null}}", greedy, &huge];
    for text in texts {
        h.insert_foreign_instance(Uuid::now_v7(), text, std::time::Duration::ZERO).await;
    }
    h.insert_foreign_instance(Uuid::nil(), "{}", std::time::Duration::ZERO).await;
    let mine = instance("mine");
    beat(&list, &mine).await;
    let found = live(&list).await;
    assert_eq!(found.len(), texts.len() + 1, "one without a name is passed over");
    let shown: Vec<_> = found.iter().map(|record| record.instance.get_metadata().clone()).collect();
    for (shown, text) in shown.iter().zip(["not json", "", "[\"\u{1b}[2J\"]", "{\"a\": {\"b\": null}}"]) {
        assert_eq!(*shown, BTreeMap::from([("?".to_owned(), text.to_owned())]));
    }
    assert_eq!(shown[4]["partitions"], "all");
    assert_eq!(shown[5]["?"].len(), METADATA_READ_MAX as usize, "it is shown as far as it is read");
    assert_eq!((found[0].instance.service(), found[0].instance.host()), ("foreign", "foreign"));
    let ids = ids_of(&found);
    let assignment = assign(&ids, PartitionCount::default(), None);
    assert!(assignment.partitions_of(ids[4]).count() < 1024 / 3, "it gets a share like others");
}

/// A sign that lies further ahead than the threshold is none: nobody owns partitions by writing a time. WRK-03.
pub async fn a_sign_from_the_future_is_none<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    let (soon, late) = (Uuid::now_v7(), Uuid::now_v7());
    h.insert_foreign_instance(soon, "{}", MINUTE * 2).await;
    h.insert_foreign_instance(late, "{}", DAY * 365).await;
    let found = live(&list).await;
    assert_eq!(found.len(), 1, "clocks differ by a little");
    assert_eq!((found[0].instance.id().as_uuid(), found[0].silent_for), (soon, std::time::Duration::ZERO));
    assert_eq!(list.forget(DAY, PurgeLimit::default()).await.expect("a purge succeeds"), 1);
}

/// Those that have been silent for long are removed, no more than the limit at a time, and no others. WRK-03.
pub async fn the_long_silent_are_forgotten<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    for number in 0..5 {
        beat(&list, &instance(&number.to_string())).await;
    }
    h.advance(HOUR).await;
    let young = instance("young");
    beat(&list, &young).await;
    let forget = async |limit| list.forget(MINUTE * 30, limit).await.expect("a purge succeeds");
    assert_eq!(list.forget(HOUR * 2, PurgeLimit::default()).await.expect("a purge succeeds"), 0);
    assert_eq!(forget(PurgeLimit::new(3).expect("the limit is legal")).await, 3);
    assert_eq!(forget(PurgeLimit::default()).await, 2);
    assert_eq!(forget(PurgeLimit::default()).await, 0);
    assert_eq!(ids_of(&list.live(DAY).await.expect("instances can be listed")), [young.id()]);
}

/// The list has a table of its own, which nobody has who does not use it; whoever does is told when it is missing, and many
/// that start at once create it once. WRK-03, OBX-091, OBX-093.
pub async fn the_list_is_deployed_when_it_is_used<H: Harness>() {
    let h = start::<H>().await;
    let list = h.store().instances().expect("the store has a list of instances");
    assert_eq!(list.check_schema().await.expect("tables can be checked"), SchemaStatus::Missing);
    let refusals = [
        list.heartbeat(&instance("orders")).await.expect_err("there is no table"),
        list.live(MINUTE).await.expect_err("there is no table"),
        list.apply_policy(SchemaPolicy::Check).await.expect_err("there is no table"),
    ];
    for refused in refusals {
        assert!(!refused.is_transient() && refused.to_string().contains("pillarbox migrate"), "{refused}");
    }
    list.apply_policy(SchemaPolicy::Assume).await.expect("it looks at nothing");
    let stores = [h.store().clone(), another(&h).await];
    let versions = at_once((0..8).map(|number| {
        let list = stores[number % 2].instances().expect("the store has a list of instances");
        async move { list.deploy_schema().await.expect("every instance comes up") }
    }))
    .await;
    assert_eq!(versions, [4; 8]);
    assert_eq!(list.check_schema().await.expect("tables can be checked"), SchemaStatus::Current(4));
    list.apply_policy(SchemaPolicy::Check).await.expect("the tables are there");
    beat(&list, &instance("orders")).await;
    assert!(
        matches!(h.store().check_schema().await, Ok(SchemaStatus::Current(2))),
        "the outbox's own stay as they are"
    );
}

/// Each queue has a list of its own: two outboxes in one schema, and an inbox beside them. WRK-03, BUS-04.
pub async fn each_queue_has_a_list_of_its_own<H: Harness>() {
    let h = start::<H>().await;
    let naming = &h.store().options().naming;
    let naming = pillarbox_core::naming::Naming::new(naming.schema().as_str(), "b").expect("the name is legal");
    let second = h.connect_as_is(StoreOptions { naming, ..options() }).await.expect("a second outbox can be made");
    let inbox = h.inbox().await;
    let lists = [list_of(h.store()).await, list_of(&second).await, list_of(&*inbox.queue()).await];
    let instances = ["outbox", "second", "inbox"].map(instance);
    for (list, instance) in lists.iter().zip(&instances) {
        beat(list, instance).await;
    }
    for (list, instance) in lists.iter().zip(&instances) {
        assert_eq!(ids_of(&live(list).await), [instance.id()], "{}", instance.service());
    }
}

/// A call that is cut short anywhere leaves nothing behind that holds up the next one. WRK-03, H16.
pub async fn a_heartbeat_cut_short_harms_nobody<H: Harness>() {
    let h = start::<H>().await;
    let list = list_of(h.store()).await;
    let mine = instance("mine");
    for polls in POLLS {
        cut_short(polls, list.heartbeat(&mine)).await;
        cut_short(polls, list.live(MINUTE)).await;
        cut_short(polls, list.forget(MINUTE, PurgeLimit::default())).await;
    }
    beat(&list, &mine).await;
    assert_eq!(live(&list).await.len(), 1);
    let stored = messages(1);
    enqueue(h.store(), &stored).await;
    assert_eq!(claim(h.store(), OwnerToken::new(), 1).await.len(), 1);
}
