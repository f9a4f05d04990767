//! Seeded random walks through an inbox: the backend and the memory store take the same steps and must give the same answers.
//!
//! Shards reuse their tables, as those of [`walks`](super::walks) do: after a walk everything is done, and forgotten once its
//! time has come. `PILLARBOX_WALK_SEED` and `PILLARBOX_WALKS` mean the same as there.

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::inbox_walk::{InboxWalk, NAMES};
use super::support::*;
use super::walks::{seeds, shards};
use crate::Harness;

shards! {
    /// Walks 0, 10, 20, … agree with the reference. IBX-002, IBX-028, IBX-029, IBX-102, H4.
    pub async fn shard_0_agrees_with_the_reference(0);

    /// Walks 1, 11, 21, … agree with the reference. IBX-002, IBX-028, IBX-029, IBX-102, H4.
    pub async fn shard_1_agrees_with_the_reference(1);

    /// Walks 2, 12, 22, … agree with the reference. IBX-002, IBX-028, IBX-029, IBX-102, H4.
    pub async fn shard_2_agrees_with_the_reference(2);

    /// Walks 3, 13, 23, … agree with the reference. IBX-002, IBX-028, IBX-029, IBX-102, H4.
    pub async fn shard_3_agrees_with_the_reference(3);
}

async fn shard<H: Harness>(shard: u64) {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    for seed in seeds(shard) {
        InboxWalk::new(&h, inbox.clone(), seed, StdRng::seed_from_u64(seed)).await.run().await;
        forget(&h, &inbox).await;
    }
}

/// Ends everything, and lets it be forgotten. What is left afterwards is stuck.
async fn forget<H: Harness>(h: &H, inbox: &crate::harness::Inbox<H>) {
    for (source, id) in NAMES {
        mark(inbox, &Receipt::new(source, id), Mark::Processed).await;
    }
    h.advance(31 * DAY).await;
    inbox.purge(PurgeLimit::default()).await.expect("a purge succeeds");
    for (source, id) in NAMES {
        assert_eq!(
            inbox.get(source, id).await.expect("a message can be looked up"),
            None,
            "{source:?} {id:?} is stuck"
        );
    }
    let left = counts(&*inbox.admin()).await;
    assert_eq!(left.pending + left.processing + left.done + left.dead, 0, "messages are stuck: {left:?}");
}
