//! Messages that their caller owns: a store need not look for those that nobody else can have stored.

use std::time::{Duration, SystemTime};

use super::support::*;
use crate::Harness;

/// Single ones, batches of a common and of an uncommon size.
const SIZES: [usize; 5] = [1, 2, 17, 50, 100];

/// Each uses columns that others do not; none of them has told its id.
fn varied(count: usize) -> Vec<Message> {
    let varied = |n: usize| {
        let message = Message::new("order.created", n.to_string());
        match n % 4 {
            0 => message,
            1 => message.key(n).message_type("Created").header("n", n.to_string()).priority(3),
            2 => message.tenant(n).aggregate_type("Order").aggregate_id(n).content_type("text/plain"),
            _ => message
                .correlation_id(n)
                .causation_id(n + 1)
                .occurred_at(SystemTime::UNIX_EPOCH + Duration::from_micros(1_234_567_890_123_456)),
        }
    };
    (1..=count).map(varied).collect()
}

/// Owned messages come back whole and in order, from a transaction of the user's and without one. OBX-011, OBX-014.
pub async fn owned_messages_are_stored_like_others<H: Harness>() {
    let h = start::<H>().await;
    for size in SIZES {
        for in_transaction in [true, false] {
            let batch = varied(size);
            let enqueue = Enqueue::pending(&batch).owned();
            assert!(enqueue.is_new());
            if in_transaction {
                let mut tx = h.begin().await;
                h.enqueue_in(&mut tx, enqueue).await.expect("messages can be enqueued");
                h.commit(tx).await;
            } else {
                place(h.store(), enqueue).await;
            }
            let owner = OwnerToken::new();
            let claimed = claim(h.store(), owner, 1000).await;
            let read: Vec<_> = claimed.iter().map(|one| one.message.clone().expect("it can be read")).collect();
            assert_eq!(read, batch, "{size} messages");
            settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
        }
    }
}

/// Owned messages can be born leased. OBX-019, HOT-03.
pub async fn owned_messages_can_be_born_leased<H: Harness>() {
    let h = start::<H>().await;
    for size in SIZES {
        let batch = varied(size);
        let owner = OwnerToken::new();
        let lease = Lease::new(owner, LEASE).expect("the lease is legal");
        let mut tx = h.begin().await;
        let enqueue = Enqueue::leased(&batch, lease).owned();
        let enqueued = h.enqueue_in(&mut tx, enqueue).await.expect("messages can be enqueued");
        h.commit(tx).await;
        assert_eq!(claim(h.store(), OwnerToken::new(), 1000).await, []);
        let mut settlements = Vec::new();
        for (message, answer) in batch.iter().zip(&enqueued) {
            let row = stored(h.store(), message.id()).await;
            assert_eq!((answer.message_id, row.attempts, row.owner), (message.id(), 1, Some(owner)));
            assert_near(
                row.locked_until.expect("it is held").duration_since(row.created_at).unwrap_or_default(),
                LEASE,
            );
            let held = Held { work_id: row.work_id, fence: lease.fence() };
            assert_eq!(answer.placement, Placement::Leased(held));
            settlements.push(Settlement::ack(held));
        }
        let settled = h.store().settle(owner, &settlements).await.expect("a settle succeeds");
        assert_eq!(settled, vec![Settled::Applied; size]);
    }
}

/// Owned messages that wait or may expire are stored like others. OBX-012.
pub async fn owned_messages_may_wait_and_expire<H: Harness>() {
    let h = start::<H>().await;
    let batch = [Message::new("t", "1").delay(HOUR), Message::new("t", "2"), Message::new("t", "3").expires_in(HOUR)];
    place(h.store(), Enqueue::pending(&batch).owned()).await;
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), [batch[1].id(), batch[2].id()]);
    h.advance(HOUR).await;
    assert!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await).contains(&batch[0].id()));
}

/// A rolled back message that its caller owned never existed. OBX-003, H2.
pub async fn an_owned_message_that_is_rolled_back_never_existed<H: Harness>() {
    let h = start::<H>().await;
    let batch = varied(2);
    let mut tx = h.begin().await;
    h.enqueue_in(&mut tx, Enqueue::pending(&batch).owned()).await.expect("messages can be enqueued");
    h.rollback(tx).await;
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
}

async fn handle_one<H: Harness>(h: &H) {
    let owner = OwnerToken::new();
    let claimed = claim(h.store(), owner, 1).await;
    settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
}

/// An id that its owner has told may have been stored by somebody else: the store looks. H1.
pub async fn an_owned_message_whose_id_was_told_is_looked_for<H: Harness>() {
    let h = H::start(keeping(Retention::Message(DAY))).await;
    let message = Message::new("t", "");
    let same = messages(1).remove(0).with_id(message.id());
    enqueue(h.store(), &[same]).await;
    handle_one(&h).await;
    assert_eq!(place(h.store(), Enqueue::pending(&[message]).owned()).await, [Placement::Duplicate]);
}

/// A clone may have been stored: the store looks, whichever of the two comes second. H1.
pub async fn an_owned_message_with_a_clone_is_looked_for<H: Harness>() {
    let h = H::start(keeping(Retention::Message(DAY))).await;
    let message = Message::new("t", "");
    let clone = message.clone();
    let places = place(h.store(), Enqueue::pending(&[message]).owned()).await;
    assert!(matches!(places[..], [Placement::Pending(_)]), "{places:?}");
    handle_one(&h).await;
    assert_eq!(place(h.store(), Enqueue::pending(&[clone]).owned()).await, [Placement::Duplicate]);
    let twice = Message::new("t", "");
    let batch = [twice.clone(), twice];
    let places = place(h.store(), Enqueue::pending(&batch).owned()).await;
    assert!(matches!(places[..], [Placement::Pending(_), Placement::Duplicate]), "{places:?}");
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await.len(), 1);
}
