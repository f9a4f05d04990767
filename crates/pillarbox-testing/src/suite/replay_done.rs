//! Delivered messages, sent on their way once more; and what an operator learns before.

use super::support::*;
use crate::Harness;

async fn deliver(store: &(impl OutboxStore + ?Sized), messages: &[Message]) {
    enqueue(store, messages).await;
    let owner = OwnerToken::new();
    let claimed = claim(store, owner, 100).await;
    settle_all(store, owner, &claimed, &Verdict::Ack).await;
}

async fn replay_done(admin: &(impl OutboxAdmin + ?Sized), filter: Filter, limit: u32) -> u64 {
    admin.replay(&Replay::done(filter, limit)).await.expect("a replay succeeds").count
}

/// A delivered message that is replayed starts anew under its old names, whole, and its id stays taken. BUS-10, OBX-052.
pub async fn a_delivered_message_can_be_delivered_again<H: Harness>() {
    let h = start::<H>().await;
    let message = Message::new("topic", "payload").key("k").header("name", "value");
    deliver(h.store(), std::slice::from_ref(&message)).await;
    let done = stored(h.store(), message.id()).await;
    h.advance(DAY).await;
    assert_eq!(replay_done(h.store(), Filter::all(), 10).await, 1);
    let row = stored(h.store(), message.id()).await;
    assert_eq!((row.work_id, row.state, row.attempts), (done.work_id, State::Pending, 0));
    assert_eq!((row.settled_at, row.settled_by, row.due_at), (None, None, None));
    let again = Enqueue::pending(std::slice::from_ref(&message));
    assert_eq!(place(h.store(), again).await, [Placement::Duplicate], "it is pending, not unknown");
    let owner = OwnerToken::new();
    let claimed = claim_one(h.store(), owner).await;
    assert_eq!((claimed.attempts, claimed.message.as_ref()), (1, Ok(&message.header(wire::REPLAY, "1"))));
    settle_all(h.store(), owner, &[claimed], &Verdict::Ack).await;
    assert_eq!(counts(h.store()).await.done, 1);
}

/// Of a receipt nothing is left to be delivered: it is counted apart and not replayed. OBX-059.
pub async fn a_receipt_is_not_replayed<H: Harness>() {
    let h = H::start(keeping(Retention::Receipt(DAY))).await;
    deliver(h.store(), &messages(2)).await;
    let expected = Tally { receipt_count: 2, ..Tally::default() };
    assert_eq!(tally(h.store(), Ended::Done, &Filter::all()).await, expected);
    assert_eq!(replay_done(h.store(), Filter::all(), 10).await, 0);
    assert_eq!(counts(h.store()).await.done, 2);
}

/// Each end has its own messages: a replay of the delivered takes nothing that waits, is held or is dead. H4, BUS-10.
pub async fn a_replay_takes_what_ended_as_it_was_told<H: Harness>() {
    let h = start::<H>().await;
    let [done, dead] = [messages(2), messages(1)];
    deliver(h.store(), &done).await;
    bury(h.store(), &dead, "x").await;
    enqueue(h.store(), &messages(1)).await;
    claim_one(h.store(), OwnerToken::new()).await;
    enqueue(h.store(), &[messages(1).remove(0).delay(HOUR)]).await;
    assert_eq!(tally(h.store(), Ended::Done, &Filter::all()).await.count, 2);
    assert_eq!(tally(h.store(), Ended::Dead, &Filter::all()).await.count, 1);
    assert_eq!(replay_done(h.store(), Filter::all(), 10).await, 2);
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&done));
    assert_eq!(counts(h.store()).await.dead, 1);
    assert_eq!(replay(h.store(), &Filter::all(), 10).await, 1);
}

/// The filter and the limit bound a replay of the delivered, lowest first, as they bound one of the dead. BUS-10.
pub async fn a_replay_of_the_delivered_is_bounded<H: Harness>() {
    let h = start::<H>().await;
    let old = messages(1);
    deliver(h.store(), &old).await;
    h.advance(2 * HOUR).await;
    let batch = messages(5);
    deliver(h.store(), &batch).await;
    deliver(h.store(), &[Message::new("other", "")]).await;
    let recent = Filter { newer_than: Some(HOUR), ..Filter::topic("topic") };
    assert_eq!(tally(h.store(), Ended::Done, &recent).await.count, 5);
    assert_eq!(replay_done(h.store(), recent.clone(), 2).await, 2);
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&batch[..2]));
    assert_eq!(replay_done(h.store(), recent, 10).await, 3);
    assert_eq!(counts(h.store()).await.done, 2);
}

/// A replay in several calls goes on where the last one ended, past what has ended anew in between. BUS-10.
pub async fn a_replay_goes_on_after_what_it_took<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(4);
    enqueue(h.store(), &batch).await;
    for ended in Ended::ALL {
        let owner = OwnerToken::new();
        let verdict = if ended == Ended::Done { Verdict::Ack } else { fail("x") };
        let claimed = claim(h.store(), owner, 10).await;
        settle_all(h.store(), owner, &claimed, &verdict).await;
        let mut next = Replay { ended, filter: Filter::all(), after: None, limit: 3 };
        let replayed = h.store().replay(&next).await.expect("a replay succeeds");
        assert_eq!((replayed.count, replayed.last), (3, Some(claimed[2].held.work_id)));
        let again = claim(h.store(), owner, 10).await;
        assert_eq!(ids_of(&again), ids(&batch[..3]));
        settle_all(h.store(), owner, &again, &verdict).await;
        next.after = replayed.last;
        let replayed = h.store().replay(&next).await.expect("a replay succeeds");
        assert_eq!((replayed.count, replayed.last), (1, Some(claimed[3].held.work_id)));
        next.after = replayed.last;
        assert_eq!(h.store().replay(&next).await.expect("a replay succeeds"), Default::default());
        // The same messages end the other way in the next round.
        let rest = claim(h.store(), owner, 10).await;
        settle_all(h.store(), owner, &rest, &verdict).await;
        assert_eq!(replay_all(h.store(), ended).await, 4);
    }
}

async fn replay_all(admin: &(impl OutboxAdmin + ?Sized), ended: Ended) -> u64 {
    let replay = Replay { ended, filter: Filter::all(), after: None, limit: 100 };
    admin.replay(&replay).await.expect("a replay succeeds").count
}

/// A tally says since when messages have ended, the first and the last of those that match. WRK-08.
pub async fn a_tally_says_when_messages_ended<H: Harness>() {
    let h = start::<H>().await;
    let batches = [messages(1), messages(1), messages(1)];
    for batch in &batches {
        bury(h.store(), batch, "x").await;
        h.advance(HOUR).await;
    }
    let settled = async |at: usize| stored(h.store(), batches[at][0].id()).await.settled_at;
    let all = tally(h.store(), Ended::Dead, &Filter::all()).await;
    assert_eq!((all.count, all.oldest, all.newest), (3, settled(0).await, settled(2).await));
    let older = Filter { older_than: Some(HOUR + HOUR / 2), ..Filter::all() };
    let some = tally(h.store(), Ended::Dead, &older).await;
    assert_eq!((some.count, some.oldest, some.newest), (2, settled(0).await, settled(1).await));
    assert_eq!(tally(h.store(), Ended::Done, &Filter::all()).await, Tally::default());
}

/// Dead messages are counted by topic and error, the largest group first, no more groups than asked for. WRK-08, BUS-10.
pub async fn dead_messages_are_grouped<H: Harness>() {
    let h = start::<H>().await;
    let bury_some = async |topic: &str, error: &str, count: usize| {
        let batch: Vec<_> = (0..count).map(|_| Message::new(topic, "")).collect();
        bury(h.store(), &batch, error).await;
    };
    bury_some("b", "timeout", 2).await;
    bury_some("a", "refused", 1).await;
    bury_some("a", "Refused", 1).await;
    bury_some("b", "refused", 3).await;
    bury_some("A", "refused", 1).await;
    let group = |topic: &str, error: Option<&str>, count| Group {
        topic: topic.to_owned(),
        error: error.map(str::to_owned),
        count,
    };
    let groups = async |by, filter, limit| h.store().group_dead(by, &filter, limit).await.expect("groups are counted");
    let by_error = [
        group("b", Some("refused"), 3),
        group("b", Some("timeout"), 2),
        group("A", Some("refused"), 1),
        group("a", Some("Refused"), 1),
        group("a", Some("refused"), 1),
    ];
    assert_eq!(groups(GroupBy::Error, Filter::all(), 10).await, by_error);
    assert_eq!(groups(GroupBy::Error, Filter::all(), 2).await, by_error[..2]);
    assert_eq!(groups(GroupBy::Error, Filter::topic("b"), 10).await, by_error[..2]);
    let by_topic = [group("b", None, 5), group("a", None, 2), group("A", None, 1)];
    assert_eq!(groups(GroupBy::Topic, Filter::all(), 10).await, by_topic);
    assert_eq!(groups(GroupBy::Topic, Filter::topic("none"), 10).await, []);
}
