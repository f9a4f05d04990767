//! Seeded random walks: the backend and the memory store take the same steps and must give the same answers.
//!
//! Each walk starts on a store that is logically empty. Shards reuse their tables: after a walk the backend is drained by
//! its own calls until nothing is left, which proves besides that no message can get stuck for good. A walk therefore does
//! the same when it is replayed alone: `PILLARBOX_WALK_SEED=<seed>` runs just that one, `PILLARBOX_WALKS=<n>` sets how
//! many each shard runs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::support::*;
use super::walk::Walk;
use crate::Harness;

const SHARD_COUNT: u64 = 10;
const WALKS_PER_SHARD: u64 = 50;

/// Makes a behaviour of each shard: `shard` of the module that names them takes its walks.
macro_rules! shards {
    ($($(#[$doc:meta])* pub async fn $name:ident($shard:literal);)*) => {
        $(
            $(#[$doc])*
            pub async fn $name<H: Harness>() {
                shard::<H>($shard).await;
            }
        )*
    };
}

pub(super) use shards;

shards! {
    /// Walks 0, 10, 20, … agree with the reference. OBX-017, OBX-033, OBX-049, H4, H34.
    pub async fn shard_0_agrees_with_the_reference(0);

    /// Walks 1, 11, 21, … agree with the reference. OBX-017, OBX-033, OBX-049, H4, H34.
    pub async fn shard_1_agrees_with_the_reference(1);

    /// Walks 2, 12, 22, … agree with the reference. OBX-017, OBX-033, OBX-049, H4, H34.
    pub async fn shard_2_agrees_with_the_reference(2);

    /// Walks 3, 13, 23, … agree with the reference. OBX-017, OBX-033, OBX-049, H4, H34.
    pub async fn shard_3_agrees_with_the_reference(3);

    /// Walks 4, 14, 24, … agree with the reference. OBX-017, OBX-033, OBX-049, H4, H34.
    pub async fn shard_4_agrees_with_the_reference(4);

    /// Walks 5, 15, 25, … agree with the reference. OBX-017, OBX-033, OBX-049, H4, H34.
    pub async fn shard_5_agrees_with_the_reference(5);

    /// Walks 6, 16, 26, … agree with the reference. OBX-017, OBX-033, OBX-049, H4, H34.
    pub async fn shard_6_agrees_with_the_reference(6);

    /// Walks 7, 17, 27, … agree with the reference. OBX-017, OBX-033, OBX-049, H4, H34.
    pub async fn shard_7_agrees_with_the_reference(7);

    /// Walks 8, 18, 28, … agree with the reference. OBX-017, OBX-033, OBX-049, H4, H34.
    pub async fn shard_8_agrees_with_the_reference(8);

    /// Walks 9, 19, 29, … agree with the reference. OBX-017, OBX-033, OBX-049, H4, H34.
    pub async fn shard_9_agrees_with_the_reference(9);
}

async fn shard<H: Harness>(shard: u64) {
    let h = start::<H>().await;
    let mut stores: HashMap<u64, H::Store> = HashMap::new();
    for seed in seeds(shard) {
        let (kind, options) = options_of(seed);
        let store = match stores.entry(kind) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(new) => new.insert(h.connect(options.clone()).await.expect("another process can connect")),
        };
        Walk::new(&h, store.clone(), options, seed, StdRng::seed_from_u64(seed)).run().await;
        drain(&h, store).await;
    }
}

/// The walks that a shard takes. The inbox has the first four shards only.
pub(super) fn seeds(shard: u64) -> Vec<u64> {
    match setting("PILLARBOX_WALK_SEED") {
        Some(seed) => Some(seed).filter(|seed| shard_of(*seed) == shard).into_iter().collect(),
        None => {
            let count = setting("PILLARBOX_WALKS").unwrap_or(WALKS_PER_SHARD);
            (0..count).map(|walk| walk * SHARD_COUNT + shard).collect()
        }
    }
}

pub(super) fn shard_of(seed: u64) -> u64 {
    seed % SHARD_COUNT
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} must be a number, is {value:?}")))
}

/// The settings rotate with the seed.
fn options_of(seed: u64) -> (u64, StoreOptions) {
    // Seeds of one shard differ by ten: the tens decide, so that every shard meets every kind.
    let kind = (seed / SHARD_COUNT) % 9;
    let retention = [Retention::Delete, Retention::Receipt(HOUR), Retention::Message(DAY)];
    let (which, lost_leases_max) = match kind {
        0..3 => (kind, 0),
        3..6 => (kind - 3, 1),
        _ => (kind - 6, 3),
    };
    let which = usize::try_from(which).unwrap_or_default();
    (kind, StoreOptions { retention: retention[which], ..losing(lost_leases_max) })
}

/// Empties the store by its own calls. What is left afterwards is stuck.
async fn drain<H: Harness>(h: &H, store: &H::Store) {
    let owner = OwnerToken::new();
    h.advance(30 * DAY).await;
    reap_all(store).await;
    // Before the claims: a dead message blocks its key.
    store.delete(&Filter::all(), 10_000).await.expect("a delete succeeds");
    loop {
        let claimed = claim(store, owner, 1_000).await;
        if claimed.is_empty() {
            break;
        }
        settle_all(store, owner, &claimed, &Verdict::Ack).await;
    }
    h.advance(30 * DAY).await;
    purge(store).await;
    let left = counts(store).await;
    assert_eq!(left.pending + left.processing + left.done + left.dead, 0, "messages are stuck: {left:?}");
}
