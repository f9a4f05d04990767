//! Partitions: a claim takes messages with a key only from those that the claimant serves.

use std::collections::BTreeSet;
use std::time::Duration;

use pillarbox_core::order::{Order, REASON_PARKED};
use pillarbox_core::{PartitionCount, Served, partition_of};

use super::order::{keyed, names};
use super::support::*;
use crate::Harness;

/// Whoever serves the partitions of these keys, each a letter, and no others.
fn serving(keys: &str) -> Served {
    let count = PartitionCount::default();
    let partitions: BTreeSet<_> = keys.chars().map(|key| partition_of(&key.to_string(), count)).collect();
    Served::only(count, |partition| partitions.contains(&partition))
}

/// Whoever serves the first partition alone. It is the one of no letter.
fn serving_the_first() -> Served {
    Served::only(PartitionCount::default(), |partition| partition.get() == 0)
}

async fn claim_from(store: &impl OutboxStore, owner: OwnerToken, limit: u32, served: &Served) -> Vec<Claimed> {
    store.claim(claim_of(owner, limit).serving(Some(served.clone()))).await.expect("a claim succeeds")
}

/// The names of what another owner gets.
async fn next<H: Harness>(h: &H, served: &Served) -> String {
    names(&claim_from(h.store(), OwnerToken::new(), 10, served).await)
}

/// A claim brings the messages of the partitions it serves, and those without a key. WRK-03.
pub async fn a_claim_takes_from_served_partitions<H: Harness>() {
    let h = start::<H>().await;
    enqueue(h.store(), &keyed("a1 b1 -1 a2 c1")).await;
    assert_eq!(next(&h, &serving("a")).await, "a1 -1 a2");
    enqueue(h.store(), &keyed("-2")).await;
    assert_eq!(next(&h, &serving("d")).await, "-2");
    assert_eq!(next(&h, &serving("bc")).await, "b1 c1");
}

/// However a message is stored, alone or with others, to wait or to expire, known or new, it is in the partition of its key.
/// WRK-03.
pub async fn however_it_is_stored_a_message_is_in_its_partition<H: Harness>() {
    let h = start::<H>().await;
    let told = |messages: Vec<Message>| messages.into_iter().map(|message| message.with_id(MessageId::new())).collect();
    let later = |messages: Vec<Message>| messages.into_iter().map(|message| message.delay(MINUTE)).collect();
    let expiring = |messages: Vec<Message>| messages.into_iter().map(|message| message.expires_in(DAY)).collect();
    let ways: [&dyn Fn(Vec<Message>) -> Vec<Message>; 4] = [&std::convert::identity, &told, &later, &expiring];
    for (way, stored_as) in ways.into_iter().enumerate() {
        for batch in ["a1", "a1 -1 b1"] {
            enqueue(h.store(), &stored_as(keyed(batch))).await;
            h.advance(MINUTE).await;
            assert_eq!(next(&h, &serving("d")).await, if batch.len() > 2 { "-1" } else { "" }, "{way}");
            assert_eq!(next(&h, &serving("ab")).await, batch.replace("-1 ", ""), "{way}");
            h.advance(LEASE).await;
            let owner = OwnerToken::new();
            let all = claim(h.store(), owner, 10).await;
            settle_all(h.store(), owner, &all, &Verdict::Ack).await;
        }
    }
}

/// Messages with a key but without its hash, as other languages store them, belong to partition 0, also on the shelf. WRK-03.
pub async fn a_key_without_a_hash_belongs_to_the_first_partition<H: Harness>() {
    let h = start::<H>().await;
    let mut messages = keyed("a1 -1");
    messages.extend(keyed("b1").into_iter().map(|message| message.delay(MINUTE)));
    enqueue(h.store(), &messages).await;
    h.forget_key_hashes().await;
    h.advance(MINUTE).await;
    assert_eq!(next(&h, &serving("ab")).await, "-1");
    assert_eq!(next(&h, &serving_the_first()).await, "a1 b1");
}

/// Two that divide the partitions among them handle everything, nothing twice, and each what is its own. WRK-03.
pub async fn two_that_divide_the_partitions_share_everything<H: Harness>() {
    const ROUNDS: usize = 8;
    let h = start::<H>().await;
    let halves = ["abcdefghijklm", "nopqrstuvwxyz"];
    let all: Vec<String> = (0..ROUNDS).flat_map(|round| ('a'..='z').map(move |key| format!("{key}{round}"))).collect();
    let begun = keyed(&all.join(" "));
    for chunk in begun.chunks(50) {
        enqueue(h.store(), chunk).await;
    }
    let tasks = halves.map(|keys| {
        let (h, served) = (another(&h), serving(keys));
        async move { (h.await, served, keys) }
    });
    let mut stores = Vec::new();
    for task in tasks {
        stores.push(task.await);
    }
    let shares = at_once(stores.into_iter().map(|(store, served, keys)| async move {
        let (owner, mut seen) = (OwnerToken::new(), Vec::new());
        while seen.len() < keys.len() * ROUNDS {
            let claimed = claim_from(&store, owner, 20, &served).await;
            settle_all(&store, owner, &claimed, &Verdict::Ack).await;
            seen.extend(names(&claimed).split_whitespace().map(str::to_owned));
        }
        (keys, seen)
    }))
    .await;
    let mut handled = BTreeSet::new();
    for (keys, seen) in shares {
        assert!(seen.iter().all(|name| keys.contains(&name[..1])), "{keys}: {seen:?}");
        for key in keys.chars() {
            let run: Vec<_> = seen.iter().filter(|name| name.starts_with(key)).collect();
            assert!(run.is_sorted(), "{run:?}");
        }
        handled.extend(seen);
    }
    assert_eq!(handled, all.into_iter().collect());
}

/// Whatever becomes of a message, it stays in the partition of its key. WRK-03.
pub async fn a_message_that_comes_back_stays_in_its_partition<H: Harness>() {
    let h = H::start(losing(1)).await;
    enqueue(h.store(), &keyed("a1")).await;
    let verdicts =
        [abandon(Duration::ZERO, "why"), release(Duration::ZERO), abandon(MINUTE, "why"), release(MINUTE), fail("why")];
    for verdict in verdicts {
        let owner = OwnerToken::new();
        let claimed = claim_from(h.store(), owner, 10, &serving("a")).await;
        settle_all(h.store(), owner, &claimed, &verdict).await;
        h.advance(MINUTE).await;
        replay(h.store(), &Filter::all(), 10).await;
        assert_eq!(next(&h, &serving("b")).await, "", "{verdict:?}");
        let claimed = claim_from(h.store(), owner, 10, &serving("a")).await;
        assert_eq!(names(&claimed), "a1", "{verdict:?}");
        settle_all(h.store(), owner, &claimed, &release(Duration::ZERO)).await;
    }
    for lost in 0..3 {
        assert_eq!(next(&h, &serving("a")).await, "a1", "{lost}");
        h.advance(LEASE).await;
        reap_all(h.store()).await;
        replay(h.store(), &Filter::all(), 10).await;
        assert_eq!(next(&h, &serving("b")).await, "", "{lost}");
    }
}

/// What was parked behind a dead message of its key stays in its partition, too. WRK-03, H33.
pub async fn a_parked_message_stays_in_its_partition<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    enqueue(h.store(), &keyed("a1 a2")).await;
    let claimed = claim(h.store(), owner, 1).await;
    settle_all(h.store(), owner, &claimed, &fail("why")).await;
    assert_eq!(h.store().reap_all(AfterDead::Park).await.expect("a reap succeeds").parked, 1);
    let parked = Filter { error_contains: Some(REASON_PARKED.into()), ..Filter::all() };
    assert_eq!(h.store().delete(&Filter::work_id(claimed[0].held.work_id), 1).await.expect("it is deleted"), 1);
    assert_eq!(replay(h.store(), &parked, 10).await, 1);
    assert_eq!(next(&h, &serving("b")).await, "");
    assert_eq!(next(&h, &serving("a")).await, "a2");
}

/// A claim from some partitions brings runs without gaps, and a key waits for its held message. WRK-03, WRK-07.
pub async fn the_order_of_a_key_is_kept<H: Harness>() {
    let h = start::<H>().await;
    enqueue(h.store(), &keyed("b1 a1 b2 a2 a3")).await;
    let owner = OwnerToken::new();
    let claimed = claim_from(h.store(), owner, 2, &serving("a")).await;
    assert_eq!(names(&claimed), "a1 a2");
    assert_eq!(next(&h, &serving("a")).await, "");
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    assert_eq!(next(&h, &serving("a")).await, "a3");
}

/// Where only some messages of a key have a hash, those of another partition are not jumped. WRK-03, WRK-07.
pub async fn messages_of_another_partition_are_not_jumped<H: Harness>() {
    let h = start::<H>().await;
    enqueue(h.store(), &keyed("a1 a2")).await;
    h.forget_key_hashes().await;
    enqueue(h.store(), &keyed("a3 b1")).await;
    assert_eq!(next(&h, &serving("ab")).await, "b1", "a1 comes first");
    let owner = OwnerToken::new();
    let claimed = claim_from(h.store(), owner, 10, &serving_the_first()).await;
    assert_eq!(names(&claimed), "a1 a2");
    assert_eq!(next(&h, &serving("a")).await, "");
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    assert_eq!(next(&h, &serving("a")).await, "a3");
}

/// An exchange claims from the served partitions, whatever it settles. WRK-03.
pub async fn an_exchange_takes_from_served_partitions<H: Harness>() {
    let h = start::<H>().await;
    let (owner, served) = (OwnerToken::new(), serving("a"));
    for verdict in [None, Some(Verdict::Ack), Some(fail("why")), Some(abandon(HOUR, "why"))] {
        enqueue(h.store(), &keyed("-1")).await;
        let held = claim_from(h.store(), owner, 10, &serving_the_first()).await;
        enqueue(h.store(), &keyed("a1 b1 -2")).await;
        let settlements: Vec<_> =
            verdict.iter().flat_map(|verdict| held.iter().map(|one| settlement(one, verdict))).collect();
        let exchange = h.store().exchange(&settlements, claim_of(owner, 10).serving(Some(served.clone())));
        let mut exchanged = exchange.await.expect("an exchange succeeds");
        assert_eq!(exchanged.settled, vec![Settled::Applied; settlements.len()]);
        assert_eq!(names(&exchanged.claimed), "a1 -2", "{verdict:?}");
        let rest = claim_from(h.store(), owner, 10, &serving("b")).await;
        assert_eq!(names(&rest), "b1", "{verdict:?}");
        exchanged.claimed.extend(rest);
        settle_all(h.store(), owner, &exchanged.claimed, &Verdict::Ack).await;
    }
}

/// Partitions that are new to a claimant are looked through from the start, however far it has come in its own. WRK-03.
pub async fn new_partitions_are_looked_through_at_once<H: Harness>() {
    let h = H::start(StoreOptions { rescan_interval: DAY, ..StoreOptions::default() }).await;
    enqueue(h.store(), &keyed("a1 b1 c1 -1 a2 -2")).await;
    assert_eq!(next(&h, &serving("a")).await, "a1 -1 a2 -2");
    assert_eq!(next(&h, &serving("ab")).await, "b1");
    assert_eq!(names(&claim(h.store(), OwnerToken::new(), 10).await), "c1");
}

/// In sequence, where all messages have one key, partitions say nothing. WRK-03.
pub async fn a_sequence_knows_no_partitions<H: Harness>() {
    let h = start::<H>().await;
    let mut messages = keyed("a1 b1");
    messages.extend(keyed("c1").into_iter().map(|message| message.delay(MINUTE)));
    enqueue(h.store(), &messages).await;
    let in_sequence = Order { in_sequence: true, ..Order::default() };
    let owner = OwnerToken::new();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let claim = claim_of(owner, 10).in_order(in_sequence).serving(Some(serving("d")));
        let claimed = h.store().claim(claim).await.expect("a claim succeeds");
        seen.push(names(&claimed));
        settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
        h.advance(MINUTE).await;
    }
    assert_eq!(seen, ["a1 b1", "c1"]);
}
