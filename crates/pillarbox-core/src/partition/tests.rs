use std::collections::BTreeSet;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn id(number: u128) -> InstanceId {
    InstanceId::from_uuid(Uuid::from_u128(number)).unwrap()
}

fn count(count: u32) -> PartitionCount {
    PartitionCount::new(count).unwrap()
}

fn owners(assignment: &Assignment) -> Vec<InstanceId> {
    assignment.count().all().map(|partition| assignment.owner_of(partition).unwrap()).collect()
}

fn moved(before: &Assignment, after: &Assignment) -> usize {
    owners(before).iter().zip(owners(after)).filter(|(before, after)| **before != *after).count()
}

/// What the hash alone would give: who scores highest, without any limit.
fn preferred(ids: &[InstanceId], partition: Partition) -> InstanceId {
    *ids.iter().max_by_key(|id| (score(fnv1a(id.as_uuid().as_bytes()), partition), **id)).unwrap()
}

/// Partitions that the limit keeps from the instance that scores highest for them.
fn turned_away(ids: &[InstanceId], assignment: &Assignment) -> usize {
    let is_away = |partition: &Partition| assignment.owner_of(*partition) != Some(preferred(ids, *partition));
    assignment.count().all().filter(is_away).count()
}

/// WRK-03: the hash is written down here for ever; the first numbers are the published ones of FNV-1a.
#[test]
fn the_partition_of_a_key_never_changes() {
    for (bytes, hash) in [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
    {
        assert_eq!(fnv1a(bytes.as_bytes()), hash, "{bytes:?}");
    }
    let table = [("", 961, 641), ("a", 192, 864), ("customer-7", 346, 5866), ("Größe", 287, 8255), ("📮", 909, 4205)];
    let found = table.map(|(key, ..)| {
        (key, partition_of(key, PartitionCount::default()).get(), partition_of(key, count(10_000)).get())
    });
    assert_eq!(found, table);
    assert_eq!(partition_of("anything", count(1)).get(), 0);
}

/// WRK-03: what is stored beside a key is what its partition follows from, also under another count.
#[test]
fn the_hash_of_a_key_never_changes() {
    assert_eq!(["", "a", "customer-7"].map(key_hash), [0x4fd0_bfc1, 0x2962_30c0, 0xe5c5_f55a]);
    for key in ["", "a", "customer-7", "Größe"] {
        assert_eq!(partition_of(key, count(10_000)).get(), key_hash(key) % 10_000);
    }
}

/// WRK-03: all instances together serve everything, each what is its own; a key without a hash is partition 0's.
#[test]
fn each_message_is_served_by_whoever_owns_its_partition() {
    let (ids, strange) = ([id(1), id(2), id(3)], id(4));
    let assignment = assign(&ids, PartitionCount::default(), None);
    for key in ["a", "b", "customer-7", "Größe", "📮"] {
        let owner = assignment.owner_of(partition_of(key, assignment.count()));
        for instance in ids.into_iter().chain([strange]) {
            let has = Served::by(instance, &assignment).has(Some(key_hash(key)));
            assert_eq!(has, owner == Some(instance), "{key}");
        }
    }
    let owner = assignment.owner_of(Partition(0)).unwrap();
    assert_eq!(ids.map(|id| Served::by(id, &assignment).has(None)), ids.map(|id| id == owner));
    let unknown = Served::by(strange, &Assignment::unknown(PartitionCount::default()));
    assert!(unknown.as_bytes().iter().all(|byte| *byte == 1), "what nobody owns everybody serves");
}

/// WRK-03: instances of two releases divide alike.
#[test]
fn who_owns_a_partition_never_changes() {
    // The last one scores highest for six of them, and gives one away: five is the limit.
    let ids = [id(1), id(0x0199_0000_0000_7000_8000_0000_0000_0002), id(u128::MAX)];
    let found: Vec<_> =
        owners(&assign(&ids, count(12), None)).iter().map(|owner| ids.iter().position(|id| id == owner)).collect();
    assert_eq!(found, [0, 2, 1, 0, 2, 1, 1, 0, 2, 2, 2, 1].map(Some));
}

/// WRK-03: one instance serves everything, whatever the ceiling says.
#[test]
fn a_lone_instance_owns_every_partition() {
    for ceiling in [None, NonZeroU32::new(1), NonZeroU32::new(100)] {
        let assignment = assign(&[id(7)], PartitionCount::default(), ceiling);
        assert_eq!(assignment.partitions_of(id(7)).count(), 1024);
        assert_eq!(assignment.partitions_of(id(8)).count(), 0);
    }
}

/// WRK-03: nothing waits for a partition that nobody is known to own.
#[test]
fn what_nobody_owns_everybody_serves() {
    let unknown = Assignment::unknown(count(3));
    assert!(
        unknown
            .count()
            .all()
            .all(|partition| unknown.owner_of(partition).is_none() && unknown.serves(id(1), partition))
    );
    let known = assign(&[id(2)], count(3), None);
    assert!(known.count().all().all(|partition| known.serves(id(2), partition) && !known.serves(id(1), partition)));
    assert_eq!((known.won_since(&unknown, id(2)), unknown.won_since(&known, id(2))), (3, 0));
}

/// WRK-03.
#[test]
fn a_ceiling_is_kept_while_it_serves_all_and_raised_evenly_when_it_cannot() {
    let ceiling = NonZeroU32::new;
    for (instances, partitions, given, expected) in [
        (1, 1000, None, 1000),
        (4, 1000, None, 313),
        (4, 1000, ceiling(1000), 313),
        (4, 1000, ceiling(260), 260),
        (4, 1000, ceiling(250), 250),
        (4, 1000, ceiling(100), 250),
        (3, 1000, ceiling(1), 334),
        (0, 8, ceiling(1), 8),
    ] {
        let found = share_max(instances, count(partitions), given);
        assert_eq!(found, expected, "{instances} instances, {partitions} partitions, {given:?}");
    }
}

#[test]
fn there_are_between_1_and_65536_partitions() {
    assert!(PartitionCount::new(0).is_err());
    assert!(PartitionCount::new(PartitionCount::MAX + 1).is_err());
    assert_eq!(PartitionCount::new(PartitionCount::MAX).unwrap().all().count(), 65_536);
    assert_eq!(PartitionCount::default().get(), 1024);
}

/// The hash spreads real names, which differ in little.
#[test]
fn keys_spread_over_the_partitions() {
    let mut loads = [0_u32; 64];
    for number in 0..64_000 {
        let partition = partition_of(&format!("customer-{number}"), count(64));
        loads[usize::try_from(partition.get()).unwrap()] += 1;
    }
    assert!(loads.iter().all(|load| (800..1200).contains(load)), "{loads:?}");
}

fn some_ids() -> impl Strategy<Value = Vec<InstanceId>> {
    let numbers = proptest::collection::btree_set(1..u128::MAX, 1..24);
    numbers.prop_map(|numbers: BTreeSet<u128>| numbers.into_iter().map(id).collect())
}

fn some_ceiling() -> impl Strategy<Value = Option<NonZeroU32>> {
    proptest::option::of((1_u32..400).prop_map(|ceiling| NonZeroU32::new(ceiling).unwrap()))
}

proptest! {
    /// WRK-03: every partition has exactly one owner, who is one of the instances, and nobody has more than the limit.
    #[test]
    fn every_partition_has_one_owner_and_no_instance_too_many(
        ids in some_ids(), partitions in 1_u32..700, ceiling in some_ceiling(),
    ) {
        let assignment = assign(&ids, count(partitions), ceiling);
        let limit = share_max(ids.len(), count(partitions), ceiling);
        let mut total = 0;
        for id in &ids {
            let own: Vec<_> = assignment.partitions_of(*id).collect();
            prop_assert!(own.len() <= limit, "{} of at most {limit}", own.len());
            prop_assert!(own.iter().all(|partition| assignment.owner_of(*partition) == Some(*id)));
            total += own.len();
        }
        prop_assert_eq!(total, usize::try_from(partitions).unwrap());
        prop_assert!(limit * ids.len() >= total);
        if let Some(ceiling) = ceiling
            && usize::try_from(ceiling.get()).unwrap() * ids.len() >= total
        {
            prop_assert!(limit <= usize::try_from(ceiling.get()).unwrap());
        }
    }

    /// WRK-03: all instances come to the same answer, in whatever order the list is, and however often one stands in it.
    #[test]
    fn the_order_of_the_list_does_not_matter(
        ids in some_ids(), partitions in 1_u32..300, ceiling in some_ceiling(), turn in 0_usize..24,
    ) {
        let expected = assign(&ids, count(partitions), ceiling);
        let mut shuffled: Vec<_> = ids.iter().rev().copied().chain([ids[0]]).collect();
        shuffled.rotate_left(turn % ids.len());
        prop_assert_eq!(assign(&shuffled, count(partitions), ceiling), expected);
    }

    /// WRK-03: when one joins or leaves, what moves is what that one scores highest for, and what the limit turned away.
    #[test]
    fn little_moves_when_one_joins_or_leaves(
        ids in some_ids(), partitions in 1_u32..700, ceiling in some_ceiling(), leaver in 0_usize..24,
    ) {
        prop_assume!(ids.len() > 1);
        let leaver = ids[leaver % ids.len()];
        let rest: Vec<_> = ids.iter().copied().filter(|id| *id != leaver).collect();
        let count = count(partitions);
        let (with, without) = (assign(&ids, count, ceiling), assign(&rest, count, ceiling));
        let own = count.all().filter(|partition| preferred(&ids, *partition) == leaver).count();
        let away = (turned_away(&ids, &with), turned_away(&rest, &without));
        prop_assert!(moved(&with, &without) <= own + away.0 + away.1);
        if away == (0, 0) {
            prop_assert_eq!(moved(&with, &without), with.partitions_of(leaver).count(), "only its own");
        }
    }

    /// The limit turns no more away than it must.
    #[test]
    fn only_what_is_above_the_limit_is_turned_away(
        ids in some_ids(), partitions in 1_u32..700, ceiling in some_ceiling(),
    ) {
        let count = count(partitions);
        let assignment = assign(&ids, count, ceiling);
        let limit = share_max(ids.len(), count, ceiling);
        let excess: usize = ids.iter().map(|id| {
            count.all().filter(|partition| preferred(&ids, *partition) == *id).count().saturating_sub(limit)
        }).sum();
        prop_assert_eq!(turned_away(&ids, &assignment), excess);
    }
}

/// WRK-03: with the default count, a fleet of usual size is even, and next to nothing moves beyond what must.
#[test]
fn the_default_count_divides_evenly_and_moves_little() {
    for instances in 2..=20_u128 {
        // Ids as they are drawn: alike in front, different at the end.
        let ids: Vec<_> =
            (0..instances).map(|number| id(0x0199_8000_0000_7000_8000_0000_0000_0000 + number * 7919)).collect();
        let (all, rest) =
            (assign(&ids, PartitionCount::default(), None), assign(&ids[1..], PartitionCount::default(), None));
        let gone = all.partitions_of(ids[0]).count();
        let extra = moved(&all, &rest) - gone;
        assert!(extra <= 1024 / 50, "{extra} of 1024 moved needlessly, {instances} instances");
        let least = ids.iter().map(|id| all.partitions_of(*id).count()).min().unwrap();
        assert!(least * 2 >= 1024 / ids.len(), "{least} of 1024, {instances} instances");
    }
}
