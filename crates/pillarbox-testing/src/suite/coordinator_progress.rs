//! The progress of receptors and perspectives, as the work coordinator records it.

use pillarbox::{QueueWork, WorkBatch};
use pillarbox_core::progress::{PROGRESS_MAX, ProgressStore};
use pillarbox_core::schema::{SchemaPolicy, SchemaStatus};
use pillarbox_core::{Checkpoint, CommitError, Outcome, ReceptorResult, Recorded};

use super::coordinator::{begin_claiming, coordinate, process, reached};
use super::support::*;
use crate::Harness;

fn batch() -> WorkBatch {
    WorkBatch::new(OwnerToken::new())
}

fn result(message_id: MessageId, receptor: &str, outcome: Outcome) -> ReceptorResult {
    ReceptorResult { message_id, receptor: receptor.into(), outcome }
}

fn failed(why: &str) -> Outcome {
    Outcome::Failed(why.into())
}

async fn position(progress: &dyn ProgressStore, stream: &str) -> Option<(u64, Outcome)> {
    let found = progress.checkpoint(stream, "totals").await.expect("it can be read");
    found.map(|record| (record.checkpoint.position, record.checkpoint.outcome))
}

/// What receptors have made of a message is read back in the order of their names, with the database's time. WRK-11.
pub async fn a_result_of_a_receptor_can_be_read<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let (one, other) = (MessageId::new(), MessageId::new());
    let results = [
        result(one, "mail", failed("no \"answer\"\0 \u{1F4EE}")),
        result(other, "mail", Outcome::Done),
        result(one, "Ärger", Outcome::Done),
        result(one, "billing", failed("")),
    ];
    let asked = results.iter().fold(batch(), |batch, one| batch.receptor(one.clone()));
    assert_eq!(process::<H>(&coordinator, asked).await.receptors, [Recorded::Applied; 4]);
    let found = coordinator.progress().receptors_of(one).await.expect("they can be read");
    let names: Vec<_> = found.iter().map(|record| (&*record.result.receptor, record.attempts)).collect();
    assert_eq!(names, [("billing", 1), ("mail", 1), ("Ärger", 1)]);
    assert_eq!(found[0].result.outcome, failed(""));
    assert_eq!(found[1].result.outcome, failed("no \"answer\"\u{FFFD} \u{1F4EE}"));
    h.advance(HOUR).await;
    let later = process::<H>(&coordinator, batch().receptor(result(other, "mail 2", Outcome::Done)));
    assert_eq!(later.await.receptors, [Recorded::Applied]);
    let found = coordinator.progress().receptors_of(other).await.expect("they can be read");
    let apart = found[1].changed_at.duration_since(found[0].changed_at);
    assert_near(apart.expect("it came later"), HOUR);
    assert_eq!(coordinator.progress().receptors_of(MessageId::new()).await.expect("they can be read"), []);
}

/// Each failure counts as an attempt, a success ends it, and what comes later changes nothing. WRK-11.
pub async fn what_a_receptor_has_done_stays_done<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let id = MessageId::new();
    use Recorded::{Applied, Kept};
    let steps = [
        (failed("first"), Applied, 1, failed("first")),
        (failed("second"), Applied, 2, failed("second")),
        (Outcome::Done, Applied, 3, Outcome::Done),
        (failed("late"), Kept, 3, Outcome::Done),
        (Outcome::Done, Kept, 3, Outcome::Done),
    ];
    for (outcome, recorded, attempts, stored) in steps {
        let done = process::<H>(&coordinator, batch().receptor(result(id, "mail", outcome))).await;
        assert_eq!(done.receptors, [recorded]);
        let found = coordinator.progress().receptors_of(id).await.expect("they can be read");
        assert_eq!((found[0].attempts, &found[0].result.outcome), (attempts, &stored));
    }
}

/// A checkpoint moves forward only, and one that is done gives way to nothing at its position; each is answered. WRK-11.
pub async fn a_checkpoint_never_moves_back<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    assert_eq!(position(&**coordinator.progress(), "orders").await, None);
    use Recorded::{Applied, Kept};
    let max = Checkpoint::POSITION_MAX;
    let steps = [
        (5, failed("stuck"), Applied, (5, failed("stuck"))),
        (5, failed("still stuck"), Applied, (5, failed("still stuck"))),
        (4, Outcome::Done, Kept, (5, failed("still stuck"))),
        (5, Outcome::Done, Applied, (5, Outcome::Done)),
        (5, failed("late"), Kept, (5, Outcome::Done)),
        (0, failed("far back"), Kept, (5, Outcome::Done)),
        (max, failed("stuck"), Applied, (max, failed("stuck"))),
        (max - 1, Outcome::Done, Kept, (max, failed("stuck"))),
    ];
    for (at, outcome, recorded, stored) in steps {
        let message_id = Some(MessageId::new());
        let checkpoint = Checkpoint { outcome, message_id, ..reached("orders", at) };
        let other = reached(&format!("other {}", MessageId::new()), 1);
        let done = process::<H>(&coordinator, batch().checkpoint(checkpoint.clone()).checkpoint(other)).await;
        assert_eq!(done.checkpoints, [recorded, Applied], "what is kept harms no other");
        assert_eq!(position(&**coordinator.progress(), "orders").await, Some(stored));
        if recorded == Applied {
            let found = coordinator.progress().checkpoint("orders", "totals").await.expect("it can be read");
            assert_eq!(found.expect("it is stored").checkpoint, checkpoint);
        }
    }
}

/// However many move one checkpoint at once, in whatever order, the furthest stands. WRK-11.
pub async fn the_furthest_of_many_checkpoints_at_once_stands<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let calls = (1..=12).map(|at| {
        let coordinator = coordinator.clone();
        async move {
            let both = batch().checkpoint(reached("orders", at)).checkpoint(reached("mails", 13 - at));
            process::<H>(&coordinator, both).await
        }
    });
    at_once(calls).await;
    for stream in ["orders", "mails"] {
        assert_eq!(position(&**coordinator.progress(), stream).await, Some((12, Outcome::Done)));
    }
}

/// Of two for one name in one call the first counts, and the other is told. WRK-11.
pub async fn what_is_named_twice_counts_once<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let id = MessageId::new();
    let asked = batch()
        .receptor(result(id, "mail", failed("first")))
        .receptor(result(id, "mail", Outcome::Done))
        .checkpoint(reached("b", 3))
        .checkpoint(reached("a", 1))
        .checkpoint(reached("b", 9));
    let done = process::<H>(&coordinator, asked).await;
    use Recorded::{Applied, NamedTwice};
    assert_eq!((done.receptors, done.checkpoints), (vec![Applied, NamedTwice], vec![Applied, Applied, NamedTwice]));
    assert_eq!(position(&**coordinator.progress(), "b").await, Some((3, Outcome::Done)));
    let many = (0..PROGRESS_MAX).fold(batch(), |batch, number| batch.checkpoint(reached(&number.to_string(), 1)));
    assert_eq!(process::<H>(&coordinator, many).await.checkpoints, vec![Applied; PROGRESS_MAX]);
}

/// Names that differ in case, in blanks at the end or in their accents are different ones. WRK-11.
pub async fn names_are_compared_byte_for_byte<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let names = ["a", "A", "a ", "ä", &"注".repeat(255)];
    let id = MessageId::new();
    let asked = names.iter().zip(1..).fold(batch(), |batch, (name, at)| {
        batch.checkpoint(reached(name, at)).receptor(result(id, name, Outcome::Done))
    });
    let done = process::<H>(&coordinator, asked).await;
    assert_eq!((done.receptors, done.checkpoints), (vec![Recorded::Applied; 5], vec![Recorded::Applied; 5]));
    for (name, at) in names.iter().zip(1..) {
        assert_eq!(position(&**coordinator.progress(), name).await, Some((at, Outcome::Done)), "{name:?}");
    }
    assert_eq!(refused_fields(coordinator.progress().checkpoint("", "\0").await), ["stream", "perspective"]);
}

/// The tables of progress are no part of the outbox's: they come with the first coordinator, or are asked for. WRK-11.
pub async fn progress_is_deployed_when_it_is_used<H: Harness>() {
    let h = start::<H>().await;
    let progress = h.store().progress().expect("the store keeps progress");
    assert_eq!(progress.check_schema().await.expect("it can be checked"), SchemaStatus::Missing);
    drop(h.inbox().await);
    let checking =
        h.connect(StoreOptions { schema: SchemaPolicy::Check, ..options() }).await.expect("the tables are there");
    assert!(pillarbox::Outbox::new(checking.clone()).coordinator().await.is_err(), "it may not deploy");
    coordinate(&h).await;
    assert!(matches!(progress.check_schema().await.expect("it can be checked"), SchemaStatus::Current(5)));
    assert!(pillarbox::Outbox::new(checking).coordinator().await.is_ok());
    assert_eq!(progress.deploy_schema().await.expect("deploying again does nothing"), 5);
}

/// Results that are past the retention go, a bounded number at a time and the oldest first, once the queue has their message no
/// more; checkpoints stay. Whoever has no such tables loses nothing by asking. WRK-09, WRK-11.
pub async fn old_results_are_purged_with_their_messages<H: Harness>() {
    let h = start::<H>().await;
    let progress = h.store().progress().expect("the store keeps progress");
    let purge = async |limit| {
        let limit = PurgeLimit::new(limit).expect("the limit is legal");
        progress.purge(limit).await.expect("results can be purged")
    };
    assert_eq!(purge(10).await, 0, "there are no tables");
    let (_, coordinator) = coordinate(&h).await;
    let kept = messages(3);
    bury(h.store(), &kept[..1], "dead").await;
    enqueue(h.store(), &kept[1..2]).await;
    enqueue(h.store(), &[kept[2].clone().delay(30 * DAY)]).await;
    let gone: Vec<_> = (0..5).map(|_| MessageId::new()).collect();
    let record = async |ids: &[MessageId]| {
        let asked = ids.iter().fold(batch(), |batch, id| batch.receptor(result(*id, "mail", failed("why"))));
        process::<H>(&coordinator, asked.checkpoint(reached(&MessageId::new().to_string(), 1))).await;
    };
    let left = async || {
        let mut left = Vec::new();
        for id in gone.iter().copied().chain(ids(&kept)) {
            left.push(progress.receptors_of(id).await.expect("they can be read").len());
        }
        left
    };
    process::<H>(&coordinator, batch().checkpoint(reached("orders", 1))).await;
    record(&gone[4..]).await;
    h.advance(HOUR).await;
    record(&gone[..3]).await;
    record(&ids(&kept)).await;
    h.advance(7 * DAY - HOUR).await;
    record(&gone[3..4]).await;
    assert_eq!(purge(10).await, 1, "only one is past the retention");
    assert_eq!(left().await, [1, 1, 1, 1, 0, 1, 1, 1]);
    h.advance(HOUR).await;
    assert_eq!((purge(2).await, purge(10).await, purge(10).await), (2, 1, 0));
    assert_eq!(left().await, [0, 0, 0, 1, 0, 1, 1, 1], "what is stored, and what is new, stays");
    h.advance(100 * DAY).await;
    assert_eq!(purge(10).await, 1);
    assert_eq!(position(&*progress, "orders").await, Some((1, Outcome::Done)));
}

/// Many that purge at once, while results come in, remove each old one once and none of the new. WRK-09, WRK-11.
pub async fn purges_of_results_at_once_do_no_harm<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    let results = |count: usize| {
        (0..count).fold(batch(), |batch, _| batch.receptor(result(MessageId::new(), "mail", Outcome::Done)))
    };
    process::<H>(&coordinator, results(60)).await;
    h.advance(8 * DAY).await;
    let calls = (0..6).map(|_| {
        let (coordinator, new) = (coordinator.clone(), results(10));
        async move {
            process::<H>(&coordinator, new).await;
            coordinator.progress().purge(PurgeLimit::default()).await.expect("results can be purged")
        }
    });
    let purged: u64 = at_once(calls).await.iter().sum();
    assert_eq!(purged, 60);
    h.advance(8 * DAY).await;
    let rest = coordinator.progress().purge(PurgeLimit::default()).await.expect("results can be purged");
    assert_eq!(rest, 60);
}

/// A call that is dropped at any place has done everything or nothing; what it claimed comes back. WRK-01, H31.
pub async fn a_batch_cut_short_is_whole_or_nothing<H: Harness>() {
    let h = start::<H>().await;
    let (_, coordinator) = coordinate(&h).await;
    for polls in POLLS {
        let (old, new) = (messages(1), Message::new("topic", "new"));
        let stream = format!("stream {polls}");
        enqueue(h.store(), &old).await;
        let owner = OwnerToken::new();
        let held = claim_one(h.store(), owner).await.held;
        let asked = WorkBatch::new(owner).lease(LEASE).enqueue(new.clone()).checkpoint(reached(&stream, 1));
        cut_at(polls, coordinator.process(asked.outbox(QueueWork::new().complete(held).claim(1)))).await;
        // A later call waits for what is still under way.
        let again = WorkBatch::new(owner).outbox(QueueWork::new().complete(held)).enqueue(new.clone());
        let done = process::<H>(&coordinator, again.checkpoint(reached(&stream, 1))).await;
        let was_done = done.checkpoints == [Recorded::Kept];
        assert_eq!(done.enqueued[0].placement == Placement::Duplicate, was_done);
        assert_eq!(done.outbox.settled == [Settled::LeaseLost], was_done);
        assert_eq!(state(h.store(), old[0].id()).await, State::Done);
        recover(&h, 1).await;
    }
}

/// A batch inside a user's transaction that is dropped at any place leaves nothing half-written: not when the transaction is
/// dropped, and not when somebody commits it, which stores all of it or is refused. The store works on. WRK-01, H31.
pub async fn a_batch_cut_short_in_a_transaction_is_never_half_written<H: Harness>() {
    let h = start::<H>().await;
    let (outbox, coordinator) = coordinate(&h).await;
    let inbox = h.inbox().await;
    let owner = OwnerToken::new();
    let mut was_stored = false;
    // The last place is behind the end of the call, however often it waits.
    let places = (1..=2 * POLLS.end()).chain([u32::MAX]);
    for (place, is_committed) in places.flat_map(|place| [(place, false), (place, true)]) {
        let name = format!("{place} {is_committed}");
        let (old, new) = (messages(1), Message::new("topic", "new"));
        enqueue(h.store(), &old).await;
        receive(&inbox, incoming(&name, "old")).await;
        let held = claim_one(h.store(), owner).await.held;
        let received = claim_one(&*inbox.queue(), owner).await.held;
        let asked = || {
            let work = WorkBatch::new(owner).lease(LEASE).outbox(QueueWork::new().complete(held).claim(1));
            let work = work.inbox(QueueWork::new().complete(received).claim(1)).enqueue(new.clone());
            let work = work.receive(incoming(&format!("{name} new"), "new"));
            work.receptor(result(old[0].id(), "mail", Outcome::Done)).checkpoint(reached(&name, 1))
        };
        let mut tx = begin_claiming::<H>(&outbox).await;
        cut_at(place, coordinator.process_in(&mut tx, asked())).await;
        let ended = match is_committed {
            true => tx.commit().await,
            false => {
                drop(tx);
                Err(CommitError::RolledBack(StoreError::rejected("dropped")))
            }
        };
        let is_stored = match ended {
            Ok(()) => true,
            Err(CommitError::RolledBack(_)) => false,
            Err(other) => panic!("the commit was sent on a broken connection: {other}"),
        };
        was_stored |= is_stored;
        // A later call waits for what is still under way.
        let done = process::<H>(&coordinator, asked()).await;
        let (settled, recorded) =
            if is_stored { (Settled::LeaseLost, Recorded::Kept) } else { (Settled::Applied, Recorded::Applied) };
        assert_eq!((&*done.outbox.settled, &*done.inbox.settled), (&[settled][..], &[settled][..]), "{name}");
        assert_eq!((&*done.receptors, &*done.checkpoints), (&[recorded][..], &[recorded][..]), "{name}");
        assert_eq!(done.enqueued[0].placement == Placement::Duplicate, is_stored, "{name}");
        assert_eq!(done.received[0].outcome == Reception::Queued, !is_stored, "{name}");
        assert_eq!((done.outbox.claimed.len(), done.inbox.claimed.len()), [(1, 1), (0, 0)][usize::from(is_stored)]);
        assert_eq!(state(h.store(), old[0].id()).await, State::Done);
        assert_eq!(inbox_state(&inbox, &name).await, InboxState::Done);
    }
    assert!(was_stored, "a call that came to its end was not committed");
    let found = counts(h.store()).await;
    assert_eq!((found.done, found.processing), (50, 50), "each message stands once: {found:?}");
}
