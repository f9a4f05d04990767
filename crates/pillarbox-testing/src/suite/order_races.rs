//! Many workers at the keys of one queue.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::order::keyed;
use super::support::*;
use crate::Harness;

/// Who is at which key, and what comes next there.
#[derive(Default)]
struct Watch {
    keys: HashMap<String, (Option<OwnerToken>, usize)>,
}

impl Watch {
    fn taken(&mut self, owner: OwnerToken, claimed: &[Claimed]) {
        for one in claimed {
            let message = one.message.as_ref().expect("it can be read");
            let (holder, _) = self.keys.entry(message.get_key().expect("it has a key").into()).or_default();
            assert!(holder.is_none_or(|holder| holder == owner), "key of {} is held by two", message.topic());
            *holder = Some(owner);
        }
    }

    /// Verdicts for runs: some messages fail, and what comes after them is given back.
    fn settled(&mut self, claimed: &[Claimed], round: usize) -> Vec<Settlement> {
        let mut stopped = HashSet::new();
        let mut settlements = Vec::new();
        for (at, one) in claimed.iter().enumerate() {
            let message = one.message.as_ref().expect("it can be read");
            let key = message.get_key().expect("it has a key");
            let (holder, next) = self.keys.get_mut(key).expect("it was taken");
            let verdict = if stopped.contains(key) {
                release(Duration::ZERO)
            } else if (round + at).is_multiple_of(5) {
                stopped.insert(key);
                abandon(Duration::from_micros(round as u64 % 3 * 500), "")
            } else {
                assert_eq!(message.topic(), next.to_string(), "key {key} goes in order");
                *next += 1;
                Verdict::Ack
            };
            *holder = None;
            settlements.push(settlement(one, &verdict));
        }
        settlements
    }
}

/// Each key is handled by one at a time and in order, beside producers and through failures. H34, WRK-07, H8.
pub async fn many_workers_keep_the_order_of_every_key<H: Harness>() {
    const KEYS: usize = 6;
    const LENGTH: usize = 24;
    let h = start::<H>().await;
    let watch = Arc::new(Mutex::new(Watch::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for key in 0..KEYS {
        let store = h.store().clone();
        tasks.spawn(async move {
            for first in (0..LENGTH).step_by(4) {
                let message = |number: usize| Message::new(number.to_string(), "").key(key.to_string());
                enqueue(&store, &(first..first + 4).map(message).collect::<Vec<_>>()).await;
            }
        });
    }
    for number in 0..6_usize {
        let (store, watch) = (h.store().clone(), Arc::clone(&watch));
        tasks.spawn(async move {
            let (owner, mut held, mut round) = (OwnerToken::new(), Vec::new(), number);
            loop {
                let exchanged = store.exchange(&held, claim_of(owner, 7)).await.expect("an exchange succeeds");
                assert!(exchanged.settled.iter().all(|settled| *settled == Settled::Applied));
                round += 1;
                watch.lock().expect("nobody failed").taken(owner, &exchanged.claimed);
                tokio::task::yield_now().await;
                let mut watch = watch.lock().expect("nobody failed");
                held = watch.settled(&exchanged.claimed, round);
                if held.is_empty() && watch.keys.values().map(|(_, next)| next).sum::<usize>() == KEYS * LENGTH {
                    return;
                }
            }
        });
    }
    tasks.join_all().await;
}

/// A key whose messages must all wait does not use up the claims of others. H33, H34.
pub async fn a_held_key_does_not_fill_the_claims_of_others<H: Harness>() {
    let h = start::<H>().await;
    let (waiting, owner) = (keyed("a1 a2 a3 a4 a5 a6 a7 a8 b1"), OwnerToken::new());
    enqueue(h.store(), &waiting).await;
    assert_eq!(ids_of(&claim(h.store(), owner, 1).await), [waiting[0].id()]);
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 3).await), [waiting[8].id()]);
}
