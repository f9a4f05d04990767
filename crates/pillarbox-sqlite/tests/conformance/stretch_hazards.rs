//! Leases that many rows have together, and what may come in between. The whole suite runs with them, from two rows on.

use pillarbox_core::admin::{MessageName, OutboxAdmin};
use pillarbox_core::lease::Held;
use pillarbox_core::outbox::{Settled, Verdict};
use pillarbox_core::store::{Claimed, Enqueue, OutboxStore, Settlement};
use pillarbox_core::{Message, OwnerToken, State};
use pillarbox_testing::Harness;

use crate::harness::SqliteHarness;
use crate::hazards::{HOUR, claim, enqueue, start};

async fn leases(harness: &SqliteHarness) -> i64 {
    harness.number("SELECT count(*) FROM {t}_lease").await
}

/// Live rows, and those of them that have an owner of their own.
async fn rows(harness: &SqliteHarness) -> (i64, i64) {
    (
        harness.number("SELECT count(*) FROM {t}").await,
        harness.number("SELECT count(*) FROM {t} WHERE owner_token IS NOT NULL").await,
    )
}

fn acks(claimed: &[Claimed]) -> Vec<Settlement> {
    claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect()
}

fn held(claimed: &[Claimed]) -> Vec<Held> {
    claimed.iter().map(|claimed| claimed.held).collect()
}

async fn claimed(harness: &SqliteHarness, count: usize) -> (OwnerToken, Vec<Claimed>) {
    let owner = OwnerToken::new();
    enqueue(harness.store(), count).await;
    let claimed = harness.store().claim(claim(owner, 100)).await.unwrap();
    assert_eq!(claimed.len(), count);
    (owner, claimed)
}

#[tokio::test]
async fn a_claim_of_many_writes_one_row_and_everybody_sees_all_of_them_leased() {
    let harness = start().await;
    let (owner, claimed) = claimed(&harness, 40).await;
    assert!(claimed.iter().all(|claimed| claimed.attempts == 1));
    assert_eq!((leases(&harness).await, rows(&harness).await), (1, (40, 0)));

    let overview = harness.store().overview().await.unwrap();
    assert_eq!(overview.active_lease_count, 40);
    let row = harness.store().get(MessageName::Work(claimed[7].held.work_id)).await.unwrap().unwrap();
    assert_eq!((row.state, row.owner, row.attempts), (State::Processing, Some(owner), 1));
    assert!(row.locked_until.is_some());
    assert!(harness.store().claim(claim(OwnerToken::new(), 100)).await.unwrap().is_empty());

    let settled = harness.store().settle(owner, &acks(&claimed)).await.unwrap();
    assert!(settled.iter().all(|settled| *settled == Settled::Applied));
    assert_eq!((leases(&harness).await, rows(&harness).await), (0, (0, 0)));
    assert_eq!(harness.number("SELECT count(*) FROM {t}_shelf WHERE state = 'done' AND attempts = 1").await, 40);
}

#[tokio::test]
async fn a_part_of_a_stretch_ends_and_the_rest_stays_leased() {
    let harness = start().await;
    let (owner, claimed) = claimed(&harness, 30).await;
    let middle = harness.store().settle(owner, &acks(&claimed[10..20])).await.unwrap();
    assert!(middle.iter().all(|settled| *settled == Settled::Applied));
    assert_eq!((leases(&harness).await, rows(&harness).await), (2, (20, 0)));
    assert!(harness.store().claim(claim(OwnerToken::new(), 100)).await.unwrap().is_empty());

    let again = harness.store().settle(owner, &acks(&claimed[10..20])).await.unwrap();
    assert!(again.iter().all(|settled| *settled == Settled::LeaseLost), "nothing is settled twice");
    for part in [&claimed[..10], &claimed[20..]] {
        let settled = harness.store().settle(owner, &acks(part)).await.unwrap();
        assert!(settled.iter().all(|settled| *settled == Settled::Applied));
    }
    assert_eq!((leases(&harness).await, rows(&harness).await), (0, (0, 0)));
}

#[tokio::test]
async fn what_is_no_stretch_is_settled_row_by_row() {
    let harness = start().await;
    let (owner, claimed) = claimed(&harness, 10).await;
    let verdict = |at: usize| match at {
        3 => Verdict::Fail { reason: "no".into() },
        4 => Verdict::Abandon { delay: HOUR, reason: "later".into() },
        5 => Verdict::Release { delay: std::time::Duration::ZERO },
        _ => Verdict::Ack,
    };
    let some: Vec<_> = [0, 3, 4, 5, 8].map(|at| Settlement { held: claimed[at].held, verdict: verdict(at) }).into();
    let settled = harness.store().settle(owner, &some).await.unwrap();
    assert_eq!(settled, [Settled::Applied; 5]);
    assert_eq!((leases(&harness).await, rows(&harness).await), (0, (6, 5)));
    let next = harness.store().claim(claim(OwnerToken::new(), 100)).await.unwrap();
    assert_eq!((held(&next)[0].work_id, next.len()), (claimed[5].held.work_id, 1), "only what was given back");
    assert_eq!(next[0].attempts, 1, "which cost no attempt");

    let rest: Vec<_> = [1, 2, 6, 7, 9].map(|at| Settlement::ack(claimed[at].held)).into();
    assert_eq!(harness.store().settle(owner, &rest).await.unwrap(), [Settled::Applied; 5]);
}

#[tokio::test]
async fn a_stretch_that_ran_out_is_settled_as_long_as_nobody_took_it() {
    let harness = start().await;
    let (owner, claimed) = claimed(&harness, 6).await;
    harness.advance(HOUR * 2).await;
    assert_eq!(harness.store().settle(owner, &acks(&claimed)).await.unwrap(), [Settled::Applied; 6]);
    assert_eq!((leases(&harness).await, rows(&harness).await), (0, (0, 0)));
}

#[tokio::test]
async fn a_stretch_that_ran_out_is_released_by_a_reap() {
    let harness = start().await;
    let (owner, claimed) = claimed(&harness, 6).await;
    harness.advance(HOUR * 2).await;
    assert_eq!(harness.store().reap_all(Default::default()).await.unwrap().released, 6);
    assert_eq!((leases(&harness).await, rows(&harness).await), (0, (6, 0)));
    assert_eq!(harness.store().settle(owner, &acks(&claimed)).await.unwrap(), [Settled::LeaseLost; 6]);
}

/// H9: a number that is missing belongs to no stretch, and what comes to stand there is not settled with it.
#[tokio::test]
async fn a_gap_parts_two_stretches() {
    let harness = start().await;
    enqueue(harness.store(), 9).await;
    harness.run("UPDATE {t} SET id = 100 WHERE id = 5").await;
    let owner = OwnerToken::new();
    let claimed = harness.store().claim(claim(owner, 8)).await.unwrap();
    assert_eq!((claimed.len(), leases(&harness).await), (8, 2));
    harness.run("UPDATE {t} SET id = 5 WHERE id = 100").await;
    let next = harness.store().claim(claim(OwnerToken::new(), 100)).await.unwrap();
    assert_eq!(next.len(), 1, "between two stretches stands one that is free");
    let settled = harness.store().settle(owner, &acks(&claimed)).await.unwrap();
    assert_eq!(settled, [Settled::Applied; 8]);
    assert_eq!(rows(&harness).await, (1, 1));
}

#[tokio::test]
async fn a_message_with_a_key_ends_a_stretch_and_comes_in_the_same_claim() {
    let harness = start().await;
    enqueue(harness.store(), 5).await;
    harness.store().enqueue(Enqueue::pending(&[Message::new("t", "").key("k")])).await.unwrap();
    enqueue(harness.store(), 5).await;
    let owner = OwnerToken::new();
    let claimed = harness.store().claim(claim(owner, 100)).await.unwrap();
    assert_eq!((claimed.len(), leases(&harness).await, rows(&harness).await), (11, 1, (11, 6)));
    let settled = harness.store().settle(owner, &acks(&claimed)).await.unwrap();
    assert_eq!(settled, [Settled::Applied; 11]);
}

/// Somebody deleted a row by hand: the others are settled all the same, and it is told which was not.
#[tokio::test]
async fn a_row_that_is_missing_is_told() {
    let harness = start().await;
    let (owner, claimed) = claimed(&harness, 6).await;
    harness.run("DELETE FROM {t} WHERE id = 3").await;
    let settled = harness.store().settle(owner, &acks(&claimed)).await.unwrap();
    let missing = settled.iter().position(|settled| *settled == Settled::LeaseLost);
    assert_eq!((missing, settled.iter().filter(|settled| **settled == Settled::Applied).count()), (Some(2), 5));
    assert_eq!((leases(&harness).await, rows(&harness).await), (0, (0, 0)));
}

#[tokio::test]
async fn few_messages_are_leased_one_by_one() {
    let harness = start().await;
    harness.store().lease_stretches_from(5);
    let (owner, few) = claimed(&harness, 4).await;
    assert_eq!((leases(&harness).await, rows(&harness).await), (0, (4, 4)));
    harness.store().settle(owner, &acks(&few)).await.unwrap();
    let (_, _) = claimed(&harness, 5).await;
    assert_eq!((leases(&harness).await, rows(&harness).await), (1, (5, 0)));
}

#[tokio::test]
async fn what_is_left_out_of_the_middle_stays_leased_by_itself() {
    let harness = start().await;
    let (owner, claimed) = claimed(&harness, 10).await;
    let (slow, others): (Vec<_>, Vec<_>) = claimed.into_iter().enumerate().partition(|(at, _)| *at == 4);
    let [slow, others] = [slow, others].map(|part| part.into_iter().map(|(_, claimed)| claimed).collect::<Vec<_>>());
    assert_eq!(harness.store().settle(owner, &acks(&others)).await.unwrap(), [Settled::Applied; 9]);
    assert_eq!((leases(&harness).await, rows(&harness).await), (1, (1, 0)));
    let dead = Settlement { held: slow[0].held, verdict: Verdict::Fail { reason: "no".into() } };
    assert_eq!(harness.store().settle(owner, &[dead]).await.unwrap(), [Settled::Applied]);
    assert_eq!(harness.number("SELECT count(*) FROM {t}_shelf WHERE state = 'dead' AND attempts = 1").await, 1);
    assert_eq!((leases(&harness).await, rows(&harness).await), (0, (0, 0)));
}

#[tokio::test]
async fn a_row_that_somebody_holds_in_front_is_passed() {
    let harness = start().await;
    enqueue(harness.store(), 11).await;
    let first = harness.store().claim(claim(OwnerToken::new(), 1)).await.unwrap();
    let others = harness.store().claim(claim(OwnerToken::new(), 100)).await.unwrap();
    assert_eq!((first.len(), others.len()), (1, 10));
    assert_eq!((leases(&harness).await, rows(&harness).await), (1, (11, 1)));
}

#[tokio::test]
async fn a_message_with_a_key_in_front_comes_first() {
    let harness = start().await;
    harness.store().enqueue(Enqueue::pending(&[Message::new("t", "").key("k")])).await.unwrap();
    enqueue(harness.store(), 10).await;
    let claimed = harness.store().claim(claim(OwnerToken::new(), 4)).await.unwrap();
    assert_eq!(claimed[0].message.as_ref().unwrap().get_key(), Some("k"));
    assert_eq!((claimed.len(), leases(&harness).await), (4, 0));
}

#[tokio::test]
async fn scattered_rows_are_leased_one_by_one() {
    let harness = start().await;
    enqueue(harness.store(), 8).await;
    harness.run("UPDATE {t} SET id = id + 1000 WHERE id % 2 = 0").await;
    let owner = OwnerToken::new();
    let claimed = harness.store().claim(claim(owner, 100)).await.unwrap();
    assert_eq!((claimed.len(), leases(&harness).await, rows(&harness).await), (8, 0, (8, 8)));
    assert_eq!(harness.store().settle(owner, &acks(&claimed)).await.unwrap(), [Settled::Applied; 8]);
}

/// A message that expired stands in nobody's way: the others are claimed, and a reap buries it.
#[tokio::test]
async fn what_expired_in_front_keeps_nobody_waiting() {
    let harness = start().await;
    let brief = Message::new("t", "").expires_in(std::time::Duration::from_secs(60));
    harness.store().enqueue(Enqueue::pending(&[brief])).await.unwrap();
    enqueue(harness.store(), 6).await;
    harness.advance(HOUR).await;
    let owner = OwnerToken::new();
    let claimed = harness.store().claim(claim(owner, 100)).await.unwrap();
    assert_eq!(claimed.len(), 6);
    assert_eq!(harness.store().reap_all(Default::default()).await.unwrap().expired, 1);
    assert_eq!(harness.store().settle(owner, &acks(&claimed)).await.unwrap(), [Settled::Applied; 6]);
}
