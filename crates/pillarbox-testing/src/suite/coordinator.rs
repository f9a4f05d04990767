//! The work coordinator: all of a worker's business in one transaction, each item answered for itself.

use std::time::Duration;

use pillarbox::{Coordinator, Outbox, QueueWork, Tx, WorkBatch, WorkDone};
use pillarbox_core::lease::{CLAIM_LIMIT_MAX, LEASE_MAX};
use pillarbox_core::{Checkpoint, Isolation, Outcome, ReceptorResult, Recorded};

use super::support::*;
use crate::Harness;
use crate::harness::Inbox;

pub(super) async fn coordinate<H: Harness>(h: &H) -> (Outbox<H::Store>, Coordinator<H::Store>) {
    let outbox = Outbox::new(h.store().clone());
    let coordinator = outbox.coordinator().await.expect("a coordinator can be made");
    (outbox, coordinator)
}

pub(super) async fn process<H: Harness>(coordinator: &Coordinator<H::Store>, batch: WorkBatch) -> WorkDone {
    coordinator.process(batch).await.expect("a batch can be done")
}

pub(super) async fn begin_claiming<H: Harness>(outbox: &Outbox<H::Store>) -> Tx<H::Store> {
    outbox.begin_at(Isolation::ReadCommitted).await.expect("a transaction can be begun")
}

/// A batch with one of everything, and what it is about.
struct Everything<H: Harness> {
    owner: OwnerToken,
    inbox: Inbox<H>,
    outbox_ids: Vec<MessageId>,
    new: Message,
    waiting: MessageId,
    batch: WorkBatch,
}

async fn everything<H: Harness>(h: &H) -> Everything<H> {
    let owner = OwnerToken::new();
    let held = messages(5);
    enqueue(h.store(), &held).await;
    let claimed = claim(h.store(), owner, 5).await;
    let inbox = h.inbox().await;
    receive(&inbox, incoming("held", "payload")).await;
    let received = claim_one(&*inbox.queue(), owner).await;
    let waiting = messages(1);
    enqueue(h.store(), &waiting).await;
    let new = Message::new("topic", "new").delay(HOUR);
    let work = QueueWork::new()
        .complete(claimed[0].held)
        .fail(claimed[1].held, "broken")
        .retry(claimed[2].held, HOUR, "not now")
        .give_back(claimed[3].held, HOUR)
        .renew(claimed[4].held)
        .claim(10);
    let result = ReceptorResult { message_id: held[0].id(), receptor: "mail".into(), outcome: Outcome::Done };
    let batch = WorkBatch::new(owner)
        .lease(HOUR)
        .outbox(work)
        .inbox(QueueWork::new().complete(received.held).claim(10))
        .enqueue(new.clone())
        .receive(incoming("new", "payload"))
        .receptor(result)
        .checkpoint(reached("orders", 7));
    let (outbox_ids, waiting) = (ids(&held), waiting[0].id());
    Everything { owner, inbox, outbox_ids, new, waiting, batch }
}

pub(super) fn reached(stream: &str, position: u64) -> Checkpoint {
    let (stream, perspective) = (stream.to_owned(), "totals".to_owned());
    Checkpoint { stream, perspective, position, message_id: None, outcome: Outcome::Done }
}

impl<H: Harness> Everything<H> {
    fn assert_answered(&self, done: &WorkDone) {
        assert_eq!(done.outbox.settled, [Settled::Applied; 4]);
        assert_eq!(done.outbox.renewed, [Settled::Applied]);
        assert_eq!(done.inbox.settled, [Settled::Applied]);
        assert_eq!(done.enqueued.iter().map(|one| one.message_id).collect::<Vec<_>>(), [self.new.id()]);
        assert_eq!(done.received.iter().map(|one| one.outcome).collect::<Vec<_>>(), [Reception::Queued]);
        assert_eq!((&*done.receptors, &*done.checkpoints), (&[Recorded::Applied][..], &[Recorded::Applied][..]));
        assert_eq!(ids_of(&done.outbox.claimed), [self.waiting]);
        assert_eq!(ids_of(&done.inbox.claimed), [done.received[0].message_id]);
    }

    async fn assert_done(&self, h: &H, coordinator: &Coordinator<H::Store>) {
        let mut states = Vec::new();
        for id in &self.outbox_ids {
            states.push(state(h.store(), *id).await);
        }
        use State::{Dead, Done, Pending, Processing};
        assert_eq!(states, [Done, Dead, Pending, Pending, Processing]);
        let spent = stored(h.store(), self.outbox_ids[2]).await;
        assert_eq!((spent.attempts, spent.last_error.as_deref()), (1, Some("not now")));
        assert_eq!(stored(h.store(), self.outbox_ids[3]).await.attempts, 0);
        for id in [self.outbox_ids[4], self.waiting] {
            let found = stored(h.store(), id).await;
            assert_eq!((found.owner, found.attempts), (Some(self.owner), 1));
        }
        assert_eq!(state(h.store(), self.new.id()).await, Pending);
        assert_eq!(inbox_state(&self.inbox, "held").await, InboxState::Done);
        assert_eq!(inbox_state(&self.inbox, "new").await, InboxState::Processing);
        let progress = coordinator.progress();
        assert_eq!(progress.receptors_of(self.outbox_ids[0]).await.expect("it can be read").len(), 1);
        let found = progress.checkpoint("orders", "totals").await.expect("it can be read").expect("it is stored");
        assert_eq!(found.checkpoint, reached("orders", 7));
    }

    /// As it was before the batch.
    async fn assert_untouched(&self, h: &H, coordinator: &Coordinator<H::Store>) {
        for id in &self.outbox_ids {
            let found = stored(h.store(), *id).await;
            assert_eq!((found.state, found.owner, found.attempts), (State::Processing, Some(self.owner), 1));
        }
        let waiting = stored(h.store(), self.waiting).await;
        assert_eq!((waiting.state, waiting.attempts), (State::Pending, 0));
        assert_eq!(find(h.store(), self.new.id()).await, None);
        assert_eq!(self.inbox.get("source", "new").await.expect("it can be looked up"), None);
        assert_eq!(inbox_state(&self.inbox, "held").await, InboxState::Processing);
        let progress = coordinator.progress();
        assert_eq!(progress.receptors_of(self.outbox_ids[0]).await.expect("it can be read"), []);
        assert_eq!(progress.checkpoint("orders", "totals").await.expect("it can be read"), None);
        assert_eq!(claim(&*self.inbox.queue(), OwnerToken::new(), 10).await, []);
    }
}

/// Completions, failures, renewals, new messages of both kinds, progress and new work travel in one call. WRK-01, WRK-11.
pub async fn everything_in_one_call_takes_effect_together<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let everything = everything(&h).await;
    let done = process::<H>(&coordinator, everything.batch.clone()).await;
    everything.assert_answered(&done);
    everything.assert_done(&h, &coordinator).await;
    assert_eq!(process::<H>(&coordinator, WorkBatch::new(everything.owner)).await, WorkDone::default());
    h.advance(MINUTE * 50).await;
    let rest = claim(h.store(), OwnerToken::new(), 10).await;
    assert_eq!(rest, [], "renewed and new leases last for that of the batch");
}

/// What is enqueued is plain pending: the call itself or whoever comes first claims it. WRK-01.
pub async fn what_was_enqueued_is_pending_and_may_be_claimed_by_the_same_call<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let owner = OwnerToken::new();
    let new = messages(2);
    let done = process::<H>(&coordinator, WorkBatch::new(owner).enqueue(new[0].clone())).await;
    assert!(matches!(done.enqueued[0].placement, Placement::Pending(_)), "{done:?}");
    assert_eq!(state(h.store(), new[0].id()).await, State::Pending);
    let batch = WorkBatch::new(owner).enqueue(new[1].clone()).enqueue(new[0].clone()).outbox(QueueWork::new().claim(9));
    let done = process::<H>(&coordinator, batch).await;
    assert_eq!(done.enqueued[1].placement, Placement::Duplicate);
    assert_eq!(ids_of(&done.outbox.claimed), ids(&new));
}

/// Inside the user's transaction everything takes effect with its commit, beside the user's own row. WRK-01.
pub async fn a_batch_in_the_users_transaction_takes_effect_with_its_commit<H: Harness>() {
    let h = start::<H>().await;
    let (outbox, coordinator) = coordinate(&h).await;
    let everything = everything(&h).await;
    let mut tx = begin_claiming::<H>(&outbox).await;
    let done = coordinator.process_in(&mut tx, everything.batch.clone()).await.expect("a batch can be done");
    everything.assert_answered(&done);
    // What it has claimed it can settle, before anybody else knows of it.
    let finish = QueueWork::new().complete(done.outbox.claimed[0].held);
    let finish = WorkBatch::new(everything.owner).outbox(finish);
    let finished = coordinator.process_in(&mut tx, finish).await.expect("a batch can be done");
    assert_eq!(finished.outbox.settled, [Settled::Applied]);
    tx.commit().await.expect("it can be committed");
    assert_eq!(state(h.store(), everything.waiting).await, State::Done);
    assert_eq!(inbox_state(&everything.inbox, "held").await, InboxState::Done);
}

/// A transaction that is rolled back or dropped leaves nothing, claims included: no lease, no attempt. WRK-01.
pub async fn a_batch_in_a_transaction_that_is_undone_leaves_nothing<H: Harness>() {
    let h = start::<H>().await;
    let (outbox, coordinator) = coordinate(&h).await;
    let everything = everything(&h).await;
    for by_rollback in [true, false] {
        let mut tx = begin_claiming::<H>(&outbox).await;
        let done = coordinator.process_in(&mut tx, everything.batch.clone()).await.expect("a batch can be done");
        everything.assert_answered(&done);
        match by_rollback {
            true => tx.rollback().await.expect("it can be rolled back"),
            false => drop(tx),
        }
        everything.assert_untouched(&h, &coordinator).await;
    }
    let done = process::<H>(&coordinator, everything.batch.clone()).await;
    everything.assert_answered(&done);
    everything.assert_done(&h, &coordinator).await;
}

/// A nested part takes its batch with it when it fails, and the transaction goes on. WRK-01.
pub async fn a_batch_in_a_nested_part_that_fails_leaves_nothing<H: Harness>() {
    let h = start::<H>().await;
    let (outbox, coordinator) = coordinate(&h).await;
    let everything = everything(&h).await;
    let mut tx = begin_claiming::<H>(&outbox).await;
    let failed: Result<(), StoreError> = tx
        .nested(async |tx| {
            let done = coordinator.process_in(tx, everything.batch.clone()).await?;
            everything.assert_answered(&done);
            Err(StoreError::rejected("changed my mind"))
        })
        .await;
    assert!(failed.is_err());
    let done = coordinator.process_in(&mut tx, everything.batch.clone()).await.expect("a batch can be done");
    everything.assert_answered(&done);
    tx.commit().await.expect("it can be committed");
    everything.assert_done(&h, &coordinator).await;
}

/// Unknown rows, leases of others, what was settled before or is named twice: each is answered, and harms nothing. WRK-01.
pub async fn nonsense_is_answered_item_by_item<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let (owner, other) = (OwnerToken::new(), OwnerToken::new());
    let (foreign_id, foreign) = enqueue_and_claim(h.store(), other).await;
    let (_, settled) = enqueue_and_claim(h.store(), owner).await;
    assert_eq!(settle(h.store(), owner, &settled, &Verdict::Ack).await, Settled::Applied);
    let (id, mine) = enqueue_and_claim(h.store(), owner).await;
    let unknown = Held { work_id: WorkId::from_i64(i64::MAX), fence: Fence::new() };
    let stale = Held { fence: Fence::new(), ..mine.held };
    let nonsense = |work: QueueWork| {
        let work = work.complete(unknown).fail(foreign.held, "no").retry(settled.held, HOUR, "no").complete(stale);
        work.renew(unknown).renew(foreign.held).renew(settled.held).renew(stale)
    };
    use Settled::{Applied, LeaseLost};
    let work = nonsense(QueueWork::new().complete(mine.held)).fail(mine.held, "again").renew(mine.held);
    let batch = WorkBatch::new(owner).outbox(work).inbox(nonsense(QueueWork::new()));
    let done = process::<H>(&coordinator, batch.enqueue(messages(1).remove(0))).await;
    assert_eq!(done.outbox.settled, [Applied, LeaseLost, LeaseLost, LeaseLost, LeaseLost, LeaseLost]);
    assert_eq!(done.outbox.renewed, [LeaseLost; 5], "what is settled is not held any more");
    assert_eq!((done.inbox.settled, done.inbox.renewed), (vec![LeaseLost; 4], vec![LeaseLost; 4]));
    assert!(done.enqueued[0].placement.work_id().is_some());
    assert_eq!(state(h.store(), id).await, State::Done);
    assert_eq!(stored(h.store(), foreign_id).await.owner, Some(other));
}

/// A worker whose lease was taken over is told so, and what else it brings takes effect. WRK-01, WRK-04.
pub async fn a_zombie_is_told_and_the_rest_takes_effect<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let zombie = OwnerToken::new();
    let (id, before) = enqueue_and_claim(h.store(), zombie).await;
    for successor in [OwnerToken::new(), zombie] {
        h.advance(HOUR).await;
        let done = process::<H>(&coordinator, WorkBatch::new(successor).outbox(QueueWork::new().claim(9))).await;
        let [after] = &done.outbox.claimed[..] else { panic!("it is taken over: {done:?}") };
        assert_eq!(after.lost_lease_count, before.lost_lease_count + if successor == zombie { 2 } else { 1 });
        let new = Message::new("topic", "new").delay(DAY);
        let work = QueueWork::new().complete(before.held).renew(before.held);
        let done = process::<H>(&coordinator, WorkBatch::new(zombie).outbox(work).enqueue(new.clone())).await;
        assert_eq!(
            (&*done.outbox.settled, &*done.outbox.renewed),
            (&[Settled::LeaseLost][..], &[Settled::LeaseLost][..])
        );
        assert_eq!(state(h.store(), new.id()).await, State::Pending);
        assert_eq!(stored(h.store(), id).await.owner, Some(successor));
    }
}

/// Messages of one key come one after the other: the next one once the first is settled, and none past a dead one.
/// WRK-01, WRK-07.
pub async fn claims_keep_the_order_of_keys<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let owner = OwnerToken::new();
    let keyed: Vec<_> = (0..4).map(|number| Message::new("topic", number.to_string()).key("customer")).collect();
    enqueue(h.store(), &keyed).await;
    let next = |work: QueueWork| process::<H>(&coordinator, WorkBatch::new(owner).outbox(work.claim(1)));
    let first = next(QueueWork::new()).await.outbox.claimed;
    assert_eq!(ids_of(&first), [keyed[0].id()]);
    let held_back = process::<H>(&coordinator, WorkBatch::new(OwnerToken::new()).outbox(QueueWork::new().claim(9)));
    assert_eq!(held_back.await.outbox.claimed, []);
    let second = next(QueueWork::new().complete(first[0].held)).await.outbox.claimed;
    assert_eq!(ids_of(&second), [keyed[1].id()]);
    let again = next(QueueWork::new().retry(second[0].held, HOUR, "later")).await.outbox.claimed;
    assert_eq!(again, [], "its successors wait for it");
    h.advance(HOUR).await;
    let second = next(QueueWork::new()).await.outbox.claimed;
    assert_eq!(ids_of(&second), [keyed[1].id()]);
    assert_eq!(next(QueueWork::new().fail(second[0].held, "broken")).await.outbox.claimed, [], "dead, and in the way");
}

/// Nobody waits for a transaction that has claimed and is still open, and nobody gets past the keys it holds. WRK-01, WRK-07.
pub async fn others_pass_over_what_an_open_transaction_has_claimed<H: Harness>() {
    if !H::HAS_ROW_LOCKS {
        return;
    }
    let h = start::<H>().await;
    let (outbox, coordinator) = coordinate(&h).await;
    let keyed: Vec<_> = (0..2).map(|number| Message::new("topic", number.to_string()).key("customer")).collect();
    let plain = messages(2);
    enqueue(h.store(), &keyed).await;
    enqueue(h.store(), &plain).await;
    let mut tx = begin_claiming::<H>(&outbox).await;
    let work = |limit| WorkBatch::new(OwnerToken::new()).outbox(QueueWork::new().claim(limit));
    let mine = coordinator.process_in(&mut tx, work(1)).await.expect("a batch can be done").outbox.claimed;
    assert_eq!(ids_of(&mine), [keyed[0].id()]);
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 9).await), ids(&plain));
    assert_eq!(process::<H>(&coordinator, work(9)).await.outbox.claimed, []);
    tx.commit().await.expect("it can be committed");
    assert_eq!(claim(h.store(), OwnerToken::new(), 9).await, [], "its key is held now");
}

/// A claim that is rolled back leaves other claims where they looked before. WRK-01, H34.
pub async fn a_claim_that_is_undone_moves_no_floor<H: Harness>() {
    let h = H::start(StoreOptions { rescan_interval: DAY, ..StoreOptions::default() }).await;
    let (outbox, coordinator) = coordinate(&h).await;
    assert_eq!(claim(h.store(), OwnerToken::new(), 9).await, [], "from now on claims look above the floor only");
    let waiting = messages(4);
    enqueue(h.store(), &waiting).await;
    let mut tx = begin_claiming::<H>(&outbox).await;
    let batch = WorkBatch::new(OwnerToken::new()).outbox(QueueWork::new().claim(4));
    let done = coordinator.process_in(&mut tx, batch).await.expect("a batch can be done");
    assert_eq!(done.outbox.claimed.len(), 4);
    tx.rollback().await.expect("it can be rolled back");
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 9).await), ids(&waiting));
}

/// Where a transaction may look at an old snapshot it must not claim, and is told so before anything happens. WRK-01, WRK-07.
pub async fn a_claim_behind_a_snapshot_is_refused<H: Harness>() {
    let h = start::<H>().await;
    let (outbox, coordinator) = coordinate(&h).await;
    let new = [Message::new("topic", "new").delay(HOUR)];
    let owner = OwnerToken::new();
    let has_levels = H::ISOLATION_LEVELS.len() > 1;
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let mut tx = outbox.begin_at(isolation).await.expect("a transaction can be begun");
        let refused = Message::new("topic", "refused").delay(HOUR);
        let claiming = WorkBatch::new(owner).outbox(QueueWork::new().claim(1)).enqueue(refused.clone());
        let answer = coordinator.process_in(&mut tx, claiming).await;
        match has_levels {
            true => assert_eq!(refused_fields(answer), ["isolation"]),
            false => assert_eq!(answer.expect("a batch can be done").outbox.claimed, []),
        }
        let rest = WorkBatch::new(owner).enqueue(new[0].clone());
        coordinator.process_in(&mut tx, rest).await.expect("the refusal did no harm");
        tx.commit().await.expect("it can be committed");
        assert_eq!(find(h.store(), refused.id()).await.is_none(), has_levels, "nothing of a refused batch is done");
    }
    assert_eq!(state(h.store(), new[0].id()).await, State::Pending);
}

/// The inbox answers what it knows already; new messages of the same call are queued. WRK-01, WRK-10.
pub async fn a_duplicate_of_an_inbox_message_is_an_answer<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let inbox = h.inbox().await;
    let owner = OwnerToken::new();
    receive(&inbox, incoming("done", "payload")).await;
    handle(&inbox, &Verdict::Ack).await;
    receive(&inbox, incoming("held", "payload")).await;
    let held = claim_one(&*inbox.queue(), owner).await;
    let batch = ["done", "held", "new", "new"].into_iter();
    let batch = batch.fold(WorkBatch::new(owner), |batch, id| batch.receive(incoming(id, "again")));
    let done = process::<H>(&coordinator, batch.inbox(QueueWork::new().claim(9))).await;
    let outcomes: Vec<_> = done.received.iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [Reception::Done, Reception::Revised, Reception::Queued, Reception::Replaced]);
    assert_eq!(done.received[2].message_id, done.received[3].message_id);
    assert_eq!(ids_of(&done.inbox.claimed), [done.received[2].message_id]);
    let work = QueueWork::new().complete(held.held).complete(done.inbox.claimed[0].held);
    let done = process::<H>(&coordinator, WorkBatch::new(owner).inbox(work)).await;
    assert_eq!(done.inbox.settled, [Settled::Applied; 2]);
    assert_eq!(inbox_state(&inbox, "new").await, InboxState::Done);
}

/// A batch with wrong arguments is refused before anything happens, with all that is wrong; a user's transaction is not
/// harmed. WRK-01.
pub async fn wrong_arguments_are_refused_as_a_whole<H: Harness>() {
    let h = start::<H>().await;
    let (outbox, coordinator) = coordinate(&h).await;
    let owner = OwnerToken::new();
    let (id, mine) = enqueue_and_claim(h.store(), owner).await;
    let good = WorkBatch::new(owner).outbox(QueueWork::new().complete(mine.held)).enqueue(messages(1).remove(0));
    let bad = good
        .clone()
        .lease(LEASE_MAX + Duration::from_secs(1))
        .inbox(QueueWork::new().claim(CLAIM_LIMIT_MAX + 1))
        .enqueue(Message::new("", ""))
        .receive(Incoming::new(Receipt::new("source", ""), Message::new("topic", "")))
        .checkpoint(reached("", u64::MAX));
    let expected = ["lease", "limit", "topic", "message_id", "stream", "position"];
    let refused = match coordinator.process(bad.clone()).await {
        Err(pillarbox::WorkError::Store(error)) => refused_fields::<()>(Err(error)),
        other => panic!("must be refused: {other:?}"),
    };
    assert_eq!(refused, expected);
    let mut tx = begin_claiming::<H>(&outbox).await;
    assert_eq!(refused_fields(coordinator.process_in(&mut tx, bad).await), expected);
    assert_eq!(state(h.store(), id).await, State::Processing);
    coordinator.process_in(&mut tx, good).await.expect("the refusal did no harm");
    tx.commit().await.expect("it can be committed");
    assert_eq!(state(h.store(), id).await, State::Done);
}

/// Many coordinators at once, each finishing what it has and taking more: every message is handed out once. WRK-01.
pub async fn two_coordinators_at_once_never_share_a_message<H: Harness>() {
    const MESSAGES: usize = 60;
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let keyed = |number: usize| match number % 3 {
        0 => Message::new("topic", number.to_string()),
        key => Message::new("topic", number.to_string()).key(key.to_string()),
    };
    let all: Vec<_> = (0..MESSAGES).map(keyed).collect();
    enqueue(h.store(), &all).await;
    let workers = (0..4).map(|worker| {
        let coordinator = coordinator.clone();
        async move {
            let owner = OwnerToken::new();
            let (mut seen, mut work, mut idle) = (Vec::new(), QueueWork::new(), 0);
            // Another may hold the rest of a key for a moment: only a row of empty answers is the end.
            while idle < 50 {
                let batch = WorkBatch::new(owner).outbox(work.claim(5));
                let batch = batch.checkpoint(reached(&format!("worker {worker}"), seen.len() as u64 + 1));
                let done = process::<H>(&coordinator, batch).await;
                assert!(done.outbox.settled.iter().all(|settled| *settled == Settled::Applied), "{done:?}");
                idle = if done.outbox.claimed.is_empty() { idle + 1 } else { 0 };
                work = done.outbox.claimed.iter().fold(QueueWork::new(), |work, one| work.complete(one.held));
                seen.extend(ids_of(&done.outbox.claimed));
            }
            seen
        }
    });
    let mut seen: Vec<_> = at_once(workers).await.concat();
    let rest = process::<H>(&coordinator, WorkBatch::new(OwnerToken::new()).outbox(QueueWork::new().claim(100))).await;
    seen.extend(ids_of(&rest.outbox.claimed));
    seen.sort_unstable();
    assert_eq!(seen, ids(&all));
}
