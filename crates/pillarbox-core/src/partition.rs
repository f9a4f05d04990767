//! Partitions: which one a key belongs to, and which instance each of them.
//!
//! Both are pure, and both are for ever: instances of different releases must agree, so the vectors of the tests below may
//! never change.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::id::InstanceId;
use crate::problem::{Invalid, Problem};

/// Into how many partitions the keys of a queue are divided; the same for all its instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartitionCount(NonZeroU32);

impl PartitionCount {
    /// The most partitions there can be.
    pub const MAX: u32 = 65_536;

    /// Takes 1 to 65,536.
    pub fn new(count: u32) -> Result<Self, Invalid> {
        match NonZeroU32::new(count) {
            Some(count) if count.get() <= Self::MAX => Ok(Self(count)),
            _ => {
                let missed = if count == 0 { 1 } else { u64::from(Self::MAX) };
                let complaint = format!("must be 1 to {}, is {count}", Self::MAX);
                Err(Problem::out_of_range("partition_count", missed, complaint).into())
            }
        }
    }

    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Every partition, in order.
    pub fn all(self) -> impl Iterator<Item = Partition> {
        (0..self.get()).map(Partition)
    }
}

/// 1024: enough for a hundred instances to get even shares, and few enough to be listed.
impl Default for PartitionCount {
    fn default() -> Self {
        Self(NonZeroU32::MIN.saturating_add(1023))
    }
}

/// One partition, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u32);

impl Partition {
    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The hash of a key: FNV-1a with 64 bits over its UTF-8 bytes, the upper half folded onto the lower by exclusive or. Stores
/// keep it beside the key; writers in other languages can do the same, or leave it out.
pub fn key_hash(key: &str) -> u32 {
    let hash = fnv1a(key.as_bytes());
    u32::try_from((hash ^ (hash >> 32)) & u64::from(u32::MAX)).unwrap_or_default()
}

/// The partition of a key: its [hash](key_hash) modulo the count.
pub fn partition_of(key: &str, count: PartitionCount) -> Partition {
    Partition(key_hash(key) % count.get())
}

/// Which instance each partition belongs to.
#[derive(Clone, PartialEq, Eq)]
pub struct Assignment {
    count: PartitionCount,
    /// Sorted and distinct.
    instances: Arc<[InstanceId]>,
    /// For each partition, which of the instances; empty when there is none.
    owners: Arc<[usize]>,
}

impl Assignment {
    /// Nothing is known about anybody.
    pub fn unknown(count: PartitionCount) -> Self {
        assign(&[], count, None)
    }

    /// Into how many partitions the keys are divided.
    pub fn count(&self) -> PartitionCount {
        self.count
    }

    /// Whom partitions were divided among, in the order of their ids.
    pub fn instances(&self) -> &[InstanceId] {
        &self.instances
    }

    /// Whose a partition is; nobody's when no instance is known, or there is no such partition.
    pub fn owner_of(&self, partition: Partition) -> Option<InstanceId> {
        let owner = usize::try_from(partition.0).ok().and_then(|at| self.owners.get(at))?;
        self.instances.get(*owner).copied()
    }

    /// The partitions of an instance, in order.
    pub fn partitions_of(&self, instance: InstanceId) -> impl Iterator<Item = Partition> {
        let me = self.instances.binary_search(&instance).ok();
        let is_mine = move |(_, owner): &(Partition, &usize)| Some(**owner) == me;
        self.count.all().zip(self.owners.iter()).filter(is_mine).map(|(partition, _)| partition)
    }

    /// Whether an instance should take the messages of a partition: its own, and any that nobody is known to own.
    pub fn serves(&self, instance: InstanceId, partition: Partition) -> bool {
        self.owner_of(partition).is_none_or(|owner| owner == instance)
    }

    /// How many partitions an instance owns here and did not own there.
    pub fn won_since(&self, before: &Self, instance: InstanceId) -> usize {
        let had = |partition: &Partition| before.owner_of(*partition) == Some(instance);
        self.partitions_of(instance).filter(|partition| !had(partition)).count()
    }
}

impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assignment")
            .field("count", &self.count)
            .field("instances", &self.instances)
            .finish_non_exhaustive()
    }
}

/// From which partitions an instance claims messages with a key, a byte for each: 1 where it does. Cheap to clone.
///
/// A message whose key was stored without its hash belongs to partition 0.
#[derive(Clone, PartialEq, Eq)]
pub struct Served(Arc<[u8]>);

impl Served {
    /// What an instance [serves](Assignment::serves): its own partitions, and any that nobody is known to own.
    pub fn by(instance: InstanceId, assignment: &Assignment) -> Self {
        Self::only(assignment.count(), |partition| assignment.serves(instance, partition))
    }

    /// Those partitions of which the answer is yes.
    pub fn only(count: PartitionCount, serves: impl Fn(Partition) -> bool) -> Self {
        Self(count.all().map(|partition| u8::from(serves(partition))).collect())
    }

    /// Whether messages are claimed whose key has this hash; none where it was stored without.
    pub fn has(&self, key_hash: Option<u32>) -> bool {
        let hash = usize::try_from(key_hash.unwrap_or_default()).unwrap_or_default();
        hash.checked_rem(self.0.len()).and_then(|at| self.0.get(at)).is_none_or(|byte| *byte == 1)
    }

    /// The bytes, as stores pass them to the database; their number is that of the partitions.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let served = self.0.iter().filter(|byte| **byte == 1).count();
        f.debug_struct("Served").field("partitions", &served).field("of", &self.0.len()).finish()
    }
}

/// Divides all partitions among these instances; the order in which they are named does not matter.
///
/// Each partition goes to the instance that scores highest for it (rendezvous hashing), so whoever joins takes only what
/// becomes its own, and of whoever leaves only its own moves. A hash alone is not even: nobody gets more than [`share_max`];
/// what it scored lowest for goes to the best of those that have room.
///
/// So between two sets of instances that differ by one, no more moves than what that one scores highest for, and what the
/// limit turned away before and after.
pub fn assign(instances: &[InstanceId], count: PartitionCount, ceiling: Option<NonZeroU32>) -> Assignment {
    let mut instances = instances.to_vec();
    instances.sort_unstable();
    instances.dedup();
    let share_max = share_max(instances.len(), count, ceiling);
    let seeds: Vec<u64> = instances.iter().map(|id| fnv1a(id.as_uuid().as_bytes())).collect();
    let mut owners: Vec<usize> = count.all().filter_map(|partition| best(&seeds, partition, |_| true)).collect();
    let mut loads = vec![0; instances.len()];
    for owner in &owners {
        loads[*owner] += 1;
    }
    let turned_away: Vec<Partition> =
        (0..instances.len()).flat_map(|owner| excess(owner, loads[owner], share_max, &seeds, &owners, count)).collect();
    loads.iter_mut().for_each(|load| *load = (*load).min(share_max));
    for partition in turned_away {
        let at = usize::try_from(partition.0).unwrap_or_default();
        if let Some(owner) = best(&seeds, partition, |owner| loads[owner] < share_max) {
            loads[owner] += 1;
            owners[at] = owner;
        }
    }
    Assignment { count, instances: instances.into(), owners: owners.into() }
}

/// The most partitions that one of so many instances gets: the ceiling, or a quarter more than an even share if that is less.
///
/// A ceiling under which some partitions would be nobody's is raised for all alike: nothing may wait for ever.
pub fn share_max(instance_count: usize, count: PartitionCount, ceiling: Option<NonZeroU32>) -> usize {
    let all = usize::try_from(count.get()).unwrap_or(usize::MAX);
    let instances = instance_count.max(1);
    let even = all.div_ceil(instances);
    let generous = all.saturating_mul(5).div_ceil(instances.saturating_mul(4)).min(all);
    let ceiling = ceiling.map_or(usize::MAX, |ceiling| usize::try_from(ceiling.get()).unwrap_or(usize::MAX));
    ceiling.clamp(even, generous)
}

/// The instance that scores highest for a partition among those that may have it; the later one of two that score alike.
fn best(seeds: &[u64], partition: Partition, may: impl Fn(usize) -> bool) -> Option<usize> {
    let candidates = seeds.iter().enumerate().filter(|(owner, _)| may(*owner));
    candidates.max_by_key(|(owner, seed)| (score(**seed, partition), *owner)).map(|(owner, _)| owner)
}

/// What an instance has above the limit: the partitions it scores lowest for, in their order.
fn excess(
    owner: usize,
    load: usize,
    share_max: usize,
    seeds: &[u64],
    owners: &[usize],
    count: PartitionCount,
) -> Vec<Partition> {
    if load <= share_max {
        return Vec::new();
    }
    let mut own: Vec<_> = count.all().zip(owners).filter(|(_, of)| **of == owner).map(|(own, _)| own).collect();
    own.sort_by_key(|partition| (score(seeds[owner], *partition), *partition));
    own.truncate(load - share_max);
    own.sort_unstable();
    own
}

/// FNV-1a with 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// One step of SplitMix64 from the instance's seed, as far as the partition's number.
fn score(seed: u64, partition: Partition) -> u64 {
    let step = u64::from(partition.0) + 1;
    let mixed = seed.wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
