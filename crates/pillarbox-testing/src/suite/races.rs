//! Many at once: claimants, settlers, reapers, writers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::support::*;
use crate::Harness;

/// Claims and acknowledges until nothing is ready; what was handed out.
async fn drain<S: OutboxStore>(store: S, limit: u32) -> Vec<MessageId> {
    let owner = OwnerToken::new();
    let mut seen = Vec::new();
    loop {
        let claimed = claim(&store, owner, limit).await;
        if claimed.is_empty() {
            return seen;
        }
        assert!(claimed.len() <= limit as usize, "a claim of {limit} took {}", claimed.len());
        seen.extend(ids_of(&claimed));
        settle_all(&store, owner, &claimed, &Verdict::Ack).await;
        // A store that never waits would keep its worker thread for itself.
        tokio::task::yield_now().await;
    }
}

fn assert_each_once(seen: &[MessageId], expected: &[MessageId]) {
    let distinct: HashSet<_> = seen.iter().collect();
    assert_eq!(distinct.len(), seen.len(), "a message was handed out twice");
    let missing = expected.iter().filter(|id| !distinct.contains(id)).count();
    assert_eq!((seen.len(), missing), (expected.len(), 0), "all messages were handed out, and no others");
}

/// Sixteen claimants share ten thousand messages: each is handed out once, none is left.
/// OBX-017, OBX-081, OBX-083, OBX-084, H3, H8.
pub async fn sixteen_claimants_never_share_a_message<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(10_000);
    enqueue(h.store(), &batch).await;
    let other = another(&h).await;
    let stores = (0..16).map(|number| if number % 2 == 0 { h.store().clone() } else { other.clone() });
    let mut seen: Vec<_> = at_once(stores.map(|store| drain(store, 100))).await.concat();
    // A claim passes over rows that others are at; one more look when all are through finds what is left.
    seen.extend(drain(h.store().clone(), 100).await);
    assert_each_once(&seen, &ids(&batch));
}

/// Messages that waited for their time are handed out once too, however many claim at the moment they are due. OBX-084, H35.
pub async fn claimants_never_share_a_message_that_waited<H: Harness>() {
    let h = start::<H>().await;
    let batch: Vec<_> = messages(500).into_iter().map(|message| message.delay(HOUR)).collect();
    enqueue(h.store(), &batch).await;
    h.advance(HOUR).await;
    let mut seen: Vec<_> = at_once((0..8).map(|_| drain(h.store().clone(), 20))).await.concat();
    seen.extend(drain(h.store().clone(), 20).await);
    assert_each_once(&seen, &ids(&batch));
}

/// Leases that ran out are taken over once, however many try at the same moment. OBX-084, H4.
pub async fn claimants_never_share_a_takeover<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(200);
    enqueue(h.store(), &batch).await;
    claim(h.store(), OwnerToken::new(), 200).await;
    h.advance(LEASE).await;
    let mut seen: Vec<_> = at_once((0..8).map(|_| drain(h.store().clone(), 20))).await.concat();
    seen.extend(drain(h.store().clone(), 20).await);
    assert_each_once(&seen, &ids(&batch));
    let done = list(h.store(), State::Done, Filter::all()).await;
    assert!(done.iter().all(|row| (row.attempts, row.lost_lease_count) == (2, 1)));
}

/// Exchanges running at once neither share messages nor lose any. WRK-01, OBX-082, OBX-084.
pub async fn exchanges_never_share_a_message<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(1_000);
    enqueue(h.store(), &batch).await;
    let work = |store: H::Store| async move {
        let owner = OwnerToken::new();
        let mut seen = Vec::new();
        let mut acks: Vec<Settlement> = Vec::new();
        loop {
            let exchanged = store.exchange(&acks, claim_of(owner, 25)).await.expect("an exchange succeeds");
            assert!(exchanged.settled.iter().all(|one| *one == Settled::Applied));
            seen.extend(ids_of(&exchanged.claimed));
            acks = exchanged.claimed.iter().map(|one| Settlement::ack(one.held)).collect();
            if acks.is_empty() {
                return seen;
            }
        }
    };
    let mut seen: Vec<_> = at_once((0..8).map(|_| work(h.store().clone()))).await.concat();
    seen.extend(drain(h.store().clone(), 100).await);
    assert_each_once(&seen, &ids(&batch));
    assert_eq!(counts(h.store()).await.done, 1_000);
}

/// Of two verdicts for one claim given at the same moment, exactly one takes effect. OBX-080, H4, HOT-25.
pub async fn one_of_two_verdicts_wins<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for _ in 0..20 {
        let batch = messages(5);
        enqueue(h.store(), &batch).await;
        let claimed = claim(h.store(), owner, 10).await;
        let give = |verdict: Verdict| {
            let store = h.store().clone();
            let asked: Vec<_> = claimed.iter().map(|one| settlement(one, &verdict)).collect();
            async move { store.settle(owner, &asked).await.expect("a settle succeeds") }
        };
        let verdicts = [Verdict::Ack, fail("failed"), abandon(HOUR, "abandoned"), release(HOUR)];
        let answers = at_once(verdicts.map(give)).await;
        for (at, message) in batch.iter().enumerate() {
            let winners: Vec<_> = (0..4).filter(|who| answers[*who][at] == Settled::Applied).collect();
            let row = stored(h.store(), message.id()).await;
            let expected = [(State::Done, 1), (State::Dead, 1), (State::Pending, 1), (State::Pending, 0)];
            assert_eq!(winners.len(), 1, "{answers:?}");
            assert_eq!((row.state, row.attempts), expected[winners[0]], "the winner's verdict stands");
        }
    }
}

/// Settlers that name the same rows in opposite orders do not deadlock. OBX-082, H8.
pub async fn settlers_in_opposite_orders_do_not_deadlock<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for _ in 0..10 {
        enqueue(h.store(), &messages(50)).await;
        let claimed = claim(h.store(), owner, 50).await;
        let tasks = (0..4).map(|number| {
            let store = h.store().clone();
            let mut asked: Vec<_> = claimed.iter().map(|one| Settlement::ack(one.held)).collect();
            if number % 2 == 0 {
                asked.reverse();
            }
            async move { store.settle(owner, &asked).await.expect("a settle succeeds") }
        });
        let answers = at_once(tasks).await.concat();
        assert_eq!(answers.iter().filter(|one| **one == Settled::Applied).count(), 50);
    }
}

/// A reap against a late settle: whoever comes first, the message ends done or free, as the answers say. H4, H22.
pub async fn a_reap_and_a_settle_agree<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for _ in 0..20 {
        let batch = messages(5);
        enqueue(h.store(), &batch).await;
        let claimed = claim(h.store(), owner, 5).await;
        h.advance(LEASE).await;
        let (reaping, settling) = (h.store().clone(), h.store().clone());
        let acks: Vec<_> = claimed.iter().map(|one| Settlement::ack(one.held)).collect();
        let reaping = tokio::spawn(async move { reap_all(&reaping).await });
        let settled = settling.settle(owner, &acks).await.expect("a settle succeeds");
        let reaped = reaping.await.expect("the reap ends");
        let mut free = 0;
        for (message, settled) in batch.iter().zip(&settled) {
            let row = stored(h.store(), message.id()).await;
            let expected = if *settled == Settled::Applied { State::Done } else { State::Pending };
            assert_eq!(row.state, expected);
            free += u64::from(row.state == State::Pending);
        }
        assert_eq!(reaped.released, free);
        drain(h.store().clone(), 10).await;
    }
}

/// A reap against a renewal: a message whose renewal was applied is not taken from its owner. H4, H22.
pub async fn a_reap_and_a_renewal_agree<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    for _ in 0..20 {
        let batch = messages(5);
        enqueue(h.store(), &batch).await;
        let held: Vec<_> = claim(h.store(), owner, 5).await.iter().map(|one| one.held).collect();
        h.advance(LEASE).await;
        let store = h.store().clone();
        let reaping = tokio::spawn(async move { reap_all(&store).await });
        let renewed = h.store().renew(owner, &held, HOUR).await.expect("a renew succeeds");
        reaping.await.expect("the reap ends");
        for (message, renewed) in batch.iter().zip(&renewed) {
            let expected = if *renewed == Settled::Applied { Some(owner) } else { None };
            assert_eq!(stored(h.store(), message.id()).await.owner, expected);
        }
        let acks: Vec<_> = held.iter().map(|held| Settlement::ack(*held)).collect();
        assert_eq!(h.store().settle(owner, &acks).await.expect("a settle succeeds"), renewed);
        drain(h.store().clone(), 10).await;
    }
}

/// Purges and reaps beside claims and settles take nothing that is not theirs. WRK-09, H4, H8.
pub async fn purges_and_reaps_take_nothing_from_workers<H: Harness>() {
    let h = H::start(keeping(Retention::Message(Duration::ZERO))).await;
    let batch = messages(1_000);
    enqueue(h.store(), &batch).await;
    let working = Arc::new(AtomicUsize::new(4));
    let clean = |store: H::Store, working: Arc<AtomicUsize>| async move {
        let mut purged = 0;
        while working.load(Ordering::SeqCst) > 0 {
            purged += store.purge(PurgeLimit::new(50).expect("the limit is legal")).await.expect("a purge succeeds");
            assert_eq!(reap_all(&store).await, Reaped::default());
            tokio::task::yield_now().await;
        }
        purged
    };
    let cleaners = [0; 2].map(|_| tokio::spawn(clean(h.store().clone(), working.clone())));
    let workers = (0..4).map(|_| {
        let (store, working) = (h.store().clone(), working.clone());
        async move {
            let seen = drain(store, 20).await;
            working.fetch_sub(1, Ordering::SeqCst);
            seen
        }
    });
    let mut seen = at_once(workers).await.concat();
    seen.extend(drain(h.store().clone(), 100).await);
    let mut purged = 0;
    for cleaner in cleaners {
        purged += cleaner.await.expect("the cleaner ends");
    }
    assert_each_once(&seen, &ids(&batch));
    assert_eq!(purged + purge(h.store()).await, 1_000, "each is purged once");
}

/// While 32 writers commit and roll back, claimants find every committed message and no other. OBX-003, OBX-083, H2, H14.
pub async fn nothing_is_lost_and_nothing_is_phantom<H: Harness>() {
    let h = Arc::new(start::<H>().await);
    let writing = Arc::new(AtomicUsize::new(32));
    let writers = (0..32_usize).map(|writer| {
        let (h, writing) = (h.clone(), writing.clone());
        async move {
            let mut committed = Vec::new();
            for round in 0..6 {
                let batch = messages(3);
                let mut tx = h.begin().await;
                h.write_business_row(&mut tx).await;
                h.enqueue_in(&mut tx, Enqueue::pending(&batch)).await.expect("messages can be enqueued");
                for _ in 0..(writer % 7) {
                    tokio::task::yield_now().await;
                }
                if (writer + round) % 4 == 0 {
                    h.rollback(tx).await;
                } else {
                    h.commit(tx).await;
                    committed.extend(ids(&batch));
                }
            }
            writing.fetch_sub(1, Ordering::SeqCst);
            committed
        }
    });
    let claimants = [0; 4].map(|_| {
        let (store, writing) = (h.store().clone(), writing.clone());
        tokio::spawn(async move {
            let mut seen = Vec::new();
            while writing.load(Ordering::SeqCst) > 0 {
                seen.extend(drain(store.clone(), 7).await);
                tokio::task::yield_now().await;
            }
            seen
        })
    });
    let committed = at_once(writers).await.concat();
    let mut seen = Vec::new();
    for claimant in claimants {
        seen.extend(claimant.await.expect("the claimant ends"));
    }
    seen.extend(drain(h.store().clone(), 100).await);
    assert_each_once(&seen, &committed);
    assert_eq!(h.business_row_count().await * 3, committed.len() as u64);
}

/// One message enqueued by many at once, again and again, is stored once; exactly one is told that it did it. H1, H14.
pub async fn a_message_enqueued_by_many_is_stored_once<H: Harness>() {
    let h = start::<H>().await;
    let other = another(&h).await;
    for round in 0..5 {
        let message = messages(1).remove(0);
        let message = if round % 2 == 0 { message } else { message.delay(HOUR) };
        let placed = at_once((0..16).map(|number| {
            let store = if number % 2 == 0 { h.store().clone() } else { other.clone() };
            let message = message.clone();
            async move { place(&store, Enqueue::pending(&[message])).await[0] }
        }))
        .await;
        let mut by_kind: HashMap<bool, usize> = HashMap::new();
        for placement in placed {
            *by_kind.entry(placement == Placement::Duplicate).or_default() += 1;
        }
        assert_eq!(by_kind, HashMap::from([(true, 15), (false, 1)]));
    }
    assert_eq!(counts(h.store()).await.pending, 5);
}

/// Replays and deletes of the same dead messages at once: each message goes one way, and is counted once. H4.
pub async fn a_dead_message_goes_one_way<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(100);
    bury(h.store(), &batch, "x").await;
    let changed = at_once((0..6).map(|number| {
        let store = h.store().clone();
        async move {
            let changed = match number % 2 {
                0 => store.replay(&Replay::dead(Filter::all(), 20)).await.map(|replayed| replayed.count),
                _ => store.delete(&Filter::all(), 20).await,
            };
            (number % 2, changed.expect("the change succeeds"))
        }
    }))
    .await;
    let sum = |kind| changed.iter().filter(|(which, _)| *which == kind).map(|(_, count)| count).sum::<u64>();
    let left = counts(h.store()).await;
    assert_eq!((left.pending, left.dead), (sum(0), 100 - sum(0) - sum(1)));
}
