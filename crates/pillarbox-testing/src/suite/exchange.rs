//! Settling one batch and claiming the next in one call.

use std::time::Duration;

use super::support::*;
use crate::Harness;

/// An exchange settles what is named and claims the next batch for the same owner. WRK-01, OBX-080.
pub async fn an_exchange_settles_and_claims<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let batch = messages(4);
    enqueue(h.store(), &batch).await;
    let first = claim(h.store(), owner, 2).await;
    let acks: Vec<_> = first.iter().map(|one| Settlement::ack(one.held)).collect();
    let asked = claim_of(owner, 10);
    let exchanged = h.store().exchange(&acks, asked.clone()).await.expect("an exchange succeeds");
    assert_eq!(exchanged.settled, [Settled::Applied; 2]);
    assert_eq!(ids_of(&exchanged.claimed), ids(&batch[2..]));
    assert!(exchanged.claimed.iter().all(|one| one.held.fence == asked.lease().fence() && one.attempts == 1));
    assert_eq!(state(h.store(), batch[0].id()).await, State::Done);
    assert_eq!(stored(h.store(), batch[3].id()).await.owner, Some(owner));
}

/// An exchange answers and leaves behind exactly what settle followed by claim does. WRK-01.
pub async fn an_exchange_equals_settle_and_claim<H: Harness>() {
    for retention in [Retention::Delete, Retention::Receipt(DAY), Retention::Message(DAY)] {
        let mut seen = Vec::new();
        for as_one in [true, false] {
            let h = H::start(keeping(retention)).await;
            let owner = OwnerToken::new();
            let batch = messages(9);
            enqueue(h.store(), &batch).await;
            let held = claim(h.store(), owner, 6).await;
            let verdicts = [Verdict::Ack, fail("f"), abandon(HOUR, "a"), release(HOUR), Verdict::Ack];
            let mut asked: Vec<_> = held.iter().zip(&verdicts).map(|(one, v)| settlement(one, v)).collect();
            asked.push(asked[0].clone());
            asked.push(Settlement::ack(Held { fence: Fence::new(), ..held[5].held }));
            let (settled, claimed) = if as_one {
                let exchanged = h.store().exchange(&asked, claim_of(owner, 2)).await.expect("an exchange succeeds");
                (exchanged.settled, exchanged.claimed)
            } else {
                let settled = h.store().settle(owner, &asked).await.expect("a settle succeeds");
                (settled, claim(h.store(), owner, 2).await)
            };
            let place = |id: MessageId| batch.iter().position(|message| message.id() == id);
            let claimed: Vec<_> = ids_of(&claimed).into_iter().map(place).collect();
            let mut rows = Vec::new();
            for message in &batch {
                let row = find(h.store(), message.id()).await;
                rows.push(row.map(|row| (row.state, row.attempts, row.last_error, row.is_receipt)));
            }
            seen.push((settled, claimed, rows));
        }
        assert_eq!(seen[0], seen[1], "{retention:?}");
    }
}

/// Lost leases are reported, and the claim is made all the same. OBX-034, H22.
pub async fn an_exchange_reports_lost_leases<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    let other = messages(1);
    enqueue(h.store(), &other).await;
    let foreign = OwnerToken::new();
    let exchanged = h.store().exchange(&[Settlement::ack(claimed.held)], claim_of(foreign, 10)).await;
    let exchanged = exchanged.expect("an exchange succeeds");
    assert_eq!(exchanged.settled, [Settled::LeaseLost]);
    assert_eq!(ids_of(&exchanged.claimed), ids(&other));
    assert_eq!(state(h.store(), id).await, State::Processing);
}

/// Without settlements an exchange is a claim; without ready messages it is a settle. OBX-023, OBX-036.
pub async fn either_half_of_an_exchange_may_be_empty<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let nothing = h.store().exchange(&[], claim_of(owner, 10)).await.expect("an exchange succeeds");
    assert!(nothing.settled.is_empty() && nothing.claimed.is_empty());
    let batch = messages(1);
    enqueue(h.store(), &batch).await;
    let first = h.store().exchange(&[], claim_of(owner, 10)).await.expect("an exchange succeeds");
    assert_eq!((first.settled.len(), ids_of(&first.claimed)), (0, ids(&batch)));
    let ack = [Settlement::ack(first.claimed[0].held)];
    let last = h.store().exchange(&ack, claim_of(owner, 10)).await.expect("an exchange succeeds");
    assert_eq!((last.settled, last.claimed), (vec![Settled::Applied], Vec::new()));
    assert_eq!(state(h.store(), batch[0].id()).await, State::Done);
}

/// An exchange never claims more than its limit, however much it settles. OBX-026, H3.
pub async fn an_exchange_never_exceeds_its_limit<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let waiting: Vec<_> = messages(5).into_iter().map(|message| message.delay(HOUR)).collect();
    enqueue(h.store(), &waiting).await;
    enqueue(h.store(), &messages(20)).await;
    let held = claim(h.store(), owner, 10).await;
    h.advance(HOUR).await;
    let back: Vec<_> = held.iter().map(|one| settlement(one, &abandon(Duration::ZERO, ""))).collect();
    let exchanged = h.store().exchange(&back, claim_of(owner, 7)).await.expect("an exchange succeeds");
    assert_eq!(exchanged.settled, [Settled::Applied; 10]);
    assert_eq!(exchanged.claimed.len(), 7);
}

/// What an exchange gives back is claimable for the next call at the latest, and never lost. OBX-042.
pub async fn what_an_exchange_gives_back_comes_again<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    let back = [settlement(&claimed, &abandon(Duration::ZERO, "again"))];
    let exchanged = h.store().exchange(&back, claim_of(owner, 10)).await.expect("an exchange succeeds");
    let mut found = exchanged.claimed;
    found.extend(claim(h.store(), owner, 10).await);
    assert_eq!(ids_of(&found), [id]);
    assert_eq!(found[0].attempts, 2);
}

/// An exchange with too many settlements is refused whole: nothing is settled, nothing claimed. OBX-036, OBX-080.
pub async fn a_refused_exchange_changes_nothing<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    enqueue(h.store(), &messages(1)).await;
    let too_many = vec![Settlement::ack(claimed.held); 10_001];
    assert_eq!(refused_fields(h.store().exchange(&too_many, claim_of(owner, 10)).await), ["settlements"]);
    assert_eq!(state(h.store(), id).await, State::Processing);
    assert_eq!(counts(h.store()).await.pending, 1);
}
