//! Verdicts inside transactions, while others are at the same message or the caller stops waiting.

use pillarbox_core::{CommitError, StoreTransaction};

use super::support::*;
use crate::Harness;

/// While an ack waits for its commit nobody gets the message, although its lease has run out: claims and reaps pass over it,
/// and its owner's own renewal learns what became of it. After a rollback it can be claimed again. BUS-03, H4, H22.
pub async fn nobody_takes_a_message_that_waits_for_its_commit<H: Harness>() {
    for is_committed in [true, false] {
        let h = start::<H>().await;
        let (owner, other) = (OwnerToken::new(), another(&h).await);
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        h.advance(LEASE).await;
        let mut tx = begin(&h).await;
        assert_eq!(settle_in(&h, &mut tx, owner, &claimed, &Verdict::Ack).await, Settled::Applied);
        let mut taken = 0;
        if H::HAS_ROW_LOCKS {
            assert_eq!(claim(&other, OwnerToken::new(), 10).await, []);
            assert_eq!(reap_all(&other).await, Reaped::default());
        }
        let renewing = {
            let (other, held) = (other.clone(), claimed.held);
            tokio::spawn(async move { other.renew(owner, &[held], LEASE).await })
        };
        let claiming = (!H::HAS_ROW_LOCKS).then(|| {
            let other = other.clone();
            tokio::spawn(async move { claim(&other, OwnerToken::new(), 10).await })
        });
        tokio::task::yield_now().await;
        if is_committed {
            tx.commit().await.expect("it can be committed");
        } else {
            tx.rollback().await.expect("it can be rolled back");
        }
        let renewed = renewing.await.expect("the renewal ends").expect("a renew succeeds");
        if let Some(claiming) = claiming {
            taken = claiming.await.expect("the claim ends").len();
        }
        let expected = if is_committed || taken > 0 { Settled::LeaseLost } else { Settled::Applied };
        assert!(renewed == [expected] || (!is_committed && taken > 0), "{renewed:?}");
        if is_committed {
            assert_eq!((state(&other, id).await, taken), (State::Done, 0));
        } else {
            h.advance(LEASE).await;
            assert_eq!(ids_of(&claim(&other, OwnerToken::new(), 10).await), [id]);
        }
    }
}

/// Two transactions that settle one message: the second waits for the first, and is told the truth. BUS-03, H4, H14.
pub async fn the_second_of_two_transactions_waits_for_the_first<H: Harness>() {
    let h = std::sync::Arc::new(start::<H>().await);
    let owner = OwnerToken::new();
    for is_committed in [true, false] {
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        let mut first = begin(&*h).await;
        assert_eq!(settle_in(&*h, &mut first, owner, &claimed, &Verdict::Ack).await, Settled::Applied);
        let second = {
            let (h, claimed) = (std::sync::Arc::clone(&h), claimed.clone());
            tokio::spawn(async move {
                let mut tx = begin(&*h).await;
                let settled = settle_in(&*h, &mut tx, owner, &claimed, &fail("second")).await;
                tx.commit().await.expect("it can be committed");
                settled
            })
        };
        tokio::task::yield_now().await;
        if is_committed {
            first.commit().await.expect("it can be committed");
        } else {
            first.rollback().await.expect("it can be rolled back");
        }
        let expected = if is_committed { Settled::LeaseLost } else { Settled::Applied };
        assert_eq!(second.await.expect("the second ends"), expected);
        assert_eq!(state(h.store(), id).await, if is_committed { State::Done } else { State::Dead });
    }
}

/// Thirty-two transactions settle the same message at once: one has an effect, the others are told that they have none.
/// BUS-03, H4, H14.
pub async fn one_of_many_transactions_has_an_effect<H: Harness>() {
    let h = std::sync::Arc::new(start::<H>().await);
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    let settlers = (0..32).map(|_| {
        let (h, claimed) = (std::sync::Arc::clone(&h), claimed.clone());
        async move {
            let mut tx = begin(&*h).await;
            h.write_row_on(&mut tx).await;
            let settled = settle_in(&*h, &mut tx, owner, &claimed, &Verdict::Ack).await;
            match settled {
                Settled::Applied => tx.commit().await.expect("it can be committed"),
                Settled::LeaseLost => tx.rollback().await.expect("it can be rolled back"),
            }
            settled
        }
    });
    let settled = at_once(settlers).await;
    assert_eq!(settled.iter().filter(|answer| **answer == Settled::Applied).count(), 1);
    assert_eq!((state(h.store(), id).await, h.business_row_count().await), (State::Done, 1));
}

/// Workers that ack in transactions beside others that ack, abandon and reap without: every message takes effect once.
/// BUS-03, H4, H8.
pub async fn workers_in_and_outside_of_transactions_share_the_queue<H: Harness>() {
    let h = std::sync::Arc::new(start::<H>().await);
    enqueue(h.store(), &messages(120)).await;
    let work = |turn: usize| {
        let h = std::sync::Arc::clone(&h);
        async move {
            let (owner, mut rows) = (OwnerToken::new(), 0);
            loop {
                let claimed = claim(h.store(), owner, 3).await;
                let Some((first, rest)) = claimed.split_first() else { return rows };
                if turn.is_multiple_of(2) {
                    settle_all(h.store(), owner, rest, &abandon(std::time::Duration::ZERO, "again")).await;
                    let mut tx = begin(&*h).await;
                    h.write_row_on(&mut tx).await;
                    assert_eq!(settle_in(&*h, &mut tx, owner, first, &Verdict::Ack).await, Settled::Applied);
                    tx.commit().await.expect("it can be committed");
                    rows += 1;
                } else {
                    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
                    reap_all(h.store()).await;
                }
            }
        }
    };
    let rows: u64 = at_once((0..6).map(work)).await.into_iter().sum::<u64>() + work(0).await;
    assert_eq!(h.business_row_count().await, rows);
    assert_eq!(counts(h.store()).await.done, 120);
}

/// A mark from outside waits for a verdict that waits for its commit, and never undoes it. BUS-03, IBX-002, IBX-028.
pub async fn a_mark_never_undoes_a_verdict<H: Harness>() {
    let h = start::<H>().await;
    let (inbox, owner) = (h.inbox().await, OwnerToken::new());
    let queue = H::Store::queue_of(&inbox);
    for (id, is_committed) in [("1", true), ("2", false)] {
        receive(&inbox, incoming(id, "")).await;
        let claimed = claim_one(&queue, owner).await;
        let mut tx = begin(&h).await;
        let settled = tx.settle(&queue, owner, &[Settlement::ack(claimed.held)]).await.expect("a settle succeeds");
        assert_eq!(settled, [Settled::Applied]);
        let marking = {
            let inbox = inbox.clone();
            tokio::spawn(async move { mark(&inbox, &receipt(id), Mark::Dead("by hand".into())).await })
        };
        tokio::task::yield_now().await;
        if is_committed {
            tx.commit().await.expect("it can be committed");
        } else {
            tx.rollback().await.expect("it can be rolled back");
        }
        marking.await.expect("the mark ends");
        let expected = if is_committed { InboxState::Done } else { InboxState::Dead };
        assert_eq!(inbox_state(&inbox, id).await, expected);
    }
}

/// A settle that is dropped half-way leaves nothing half-written: not when its transaction is dropped, and not when somebody
/// commits it, which stores all of it or is refused. BUS-03, H31.
pub async fn a_settle_cut_short_is_never_half_written<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let mixed = [Verdict::Ack, abandon(HOUR, "later"), fail("why")];
    for place in POLLS {
        for verdicts in [&[Verdict::Ack][..], &mixed] {
            for is_committed in [false, true] {
                enqueue(h.store(), &messages(6)).await;
                let claimed = claim(h.store(), owner, 6).await;
                let asked: Vec<_> = claimed
                    .iter()
                    .zip(verdicts.iter().cycle())
                    .map(|(one, verdict)| settlement(one, verdict))
                    .collect();
                let mut tx = begin(&h).await;
                h.write_row_on(&mut tx).await;
                cut_at(place, tx.settle(h.store(), owner, &asked)).await;
                let is_stored = match is_committed.then_some(tx) {
                    Some(tx) => match tx.commit().await {
                        Ok(()) => true,
                        Err(CommitError::RolledBack(_)) => false,
                        Err(other) => panic!("the commit was sent on a broken connection: {other}"),
                    },
                    None => false,
                };
                let again = h.store().settle(owner, &asked).await.expect("a settle succeeds");
                let expected = if is_stored { Settled::LeaseLost } else { Settled::Applied };
                assert_eq!(again, [expected; 6], "place {place}, {verdicts:?}");
                let found = counts(h.store()).await;
                assert_eq!(found.processing, 0, "place {place}: {found:?}");
            }
        }
    }
    let found = counts(h.store()).await;
    assert_eq!(found.done + found.dead + found.pending, 12 * 4 * 6, "each message stands once: {found:?}");
}
