//! Messages that come back to their key: replayed, given back, due again, or committed late.

use std::time::Duration;

use pillarbox::{QueueWork, WorkBatch};
use pillarbox_core::order::{Order, REASON_PARKED};

use super::coordinator::{begin_claiming, coordinate};
use super::order::{keyed, names};
use super::support::*;
use crate::Harness;

const SKIP: Order = Order { after_dead: AfterDead::Skip, in_sequence: false };
const SEQUENCE: Order = Order { after_dead: AfterDead::Block, in_sequence: true };
const PARK: Reap = Reap { after: None, window: 1_000, after_dead: AfterDead::Park };

async fn claim_in<H: Harness>(h: &H, owner: OwnerToken, limit: u32, order: Order) -> Vec<Claimed> {
    h.store().claim(claim_of(owner, limit).in_order(order)).await.expect("a claim succeeds")
}

/// The names of what a claim of another owner brings.
async fn next_in<H: Harness>(h: &H, limit: u32, order: Order) -> String {
    names(&claim_in(h, OwnerToken::new(), limit, order).await)
}

async fn next<H: Harness>(h: &H, limit: u32) -> String {
    next_in(h, limit, Order::default()).await
}

/// Stores messages and ends them all, whatever else there is.
async fn end<H: Harness>(h: &H, messages: &str, ended: Ended) {
    let (messages, owner) = (keyed(messages), OwnerToken::new());
    enqueue(h.store(), &messages).await;
    let claimed = claim_in(h, owner, 1_000, SKIP).await;
    assert_eq!(ids_of(&claimed), ids(&messages));
    let verdict = if ended == Ended::Done { Verdict::Ack } else { fail("poison") };
    settle_all(h.store(), owner, &claimed, &verdict).await;
}

async fn replay_all<H: Harness>(h: &H, ended: Ended) -> u64 {
    let replay = Replay { ended, filter: Filter::all(), after: None, limit: 1_000 };
    h.store().replay(&replay).await.expect("a replay succeeds").count
}

/// Claims and acknowledges until nothing is left; what each claim brought.
async fn drained<H: Harness>(h: &H, limit: u32, order: Order) -> Vec<String> {
    let (owner, mut runs) = (OwnerToken::new(), Vec::new());
    loop {
        let claimed = claim_in(h, owner, limit, order).await;
        if claimed.is_empty() {
            return runs;
        }
        runs.push(names(&claimed));
        settle_all(h.store(), owner, &claimed, &Verdict::Ack).await;
    }
}

/// However many messages are replayed before one of their key that is held, they wait for it, and then come in order. WRK-07,
/// H34.
pub async fn replayed_messages_wait_for_a_later_one_that_is_held<H: Harness>() {
    for ended in Ended::ALL {
        let (h, owner) = (start::<H>().await, OwnerToken::new());
        end(&h, "a0 a1 a2 a3 a4 a5 a6 a7 a8 a9", ended).await;
        enqueue(h.store(), &keyed("aX aY")).await;
        let held = claim_in(&h, owner, 1, SKIP).await;
        assert_eq!(names(&held), "aX");
        assert_eq!(replay_all(&h, ended).await, 10);
        enqueue(h.store(), &keyed("b1")).await;
        assert_eq!(counts(h.store()).await.pending, 12);
        for limit in [2, 100] {
            let brought = if limit == 2 { "b1" } else { "" };
            assert_eq!(next_in(&h, limit, SKIP).await, brought, "aX is held: {ended:?}, {limit}");
        }
        assert_eq!(h.store().blocked_keys(10).await.expect("keys can be listed"), []);
        settle_all(h.store(), owner, &held, &Verdict::Ack).await;
        let runs = ["a0 a1 a2 a3", "a4 a5 a6 a7", "a8 a9 aY"];
        assert_eq!(drained(&h, 4, SKIP).await, runs, "{ended:?}");
    }
}

/// Messages with a lower place than one that is held are looked past wherever they stand, also between others. WRK-07, H34.
pub async fn a_message_held_between_replayed_ones_is_seen<H: Harness>() {
    let (h, owner) = (start::<H>().await, OwnerToken::new());
    end(&h, "a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 aX aY", Ended::Done).await;
    let middle = list(h.store(), State::Done, Filter::all()).await[6].work_id;
    let replay = Replay::done(Filter::work_id(middle), 1);
    assert_eq!(h.store().replay(&replay).await.expect("a replay succeeds").count, 1);
    let held = claim(h.store(), owner, 1).await;
    assert_eq!(names(&held), "a6");
    assert_eq!(replay_all(&h, Ended::Done).await, 11);
    assert_eq!(next(&h, 1).await, "");
    settle_all(h.store(), owner, &held, &Verdict::Ack).await;
    assert_eq!(drained(&h, 6, SKIP).await, ["a0 a1 a2 a3 a4 a5", "a7 a8 a9 aX aY"]);
}

/// Many replayed messages of one key come in runs as long as the claims, not one by one. WRK-07, BUS-10.
pub async fn replayed_messages_of_a_key_come_in_runs<H: Harness>() {
    let h = start::<H>().await;
    let messages: Vec<_> = (0..1_000).map(|number| Message::new(number.to_string(), "").key("a")).collect();
    bury(h.store(), &messages, "poison").await;
    assert_eq!(replay_all(&h, Ended::Dead).await, 1_000);
    enqueue(h.store(), &keyed("a1")).await;
    let (runs, names) = (drained(&h, 250, Order::default()).await, |run: &String| run.split(' ').count());
    assert_eq!(runs.iter().map(names).collect::<Vec<_>>(), [250, 250, 250, 250, 1]);
    let all: Vec<_> = (0..1_000).map(|number| number.to_string()).chain(["a1".to_owned()]).collect();
    assert_eq!(runs.join(" "), all.join(" "));
}

/// When the head of a blocked key is replayed, its key is not blocked any more, and flows at once. H33, WRK-07.
pub async fn a_replayed_head_lets_its_key_flow<H: Harness>() {
    let (h, owner) = (start::<H>().await, OwnerToken::new());
    enqueue(h.store(), &keyed("a1 a2 a3 a4 a5 a6 a7")).await;
    let claimed = claim(h.store(), owner, 1).await;
    settle_all(h.store(), owner, &claimed, &fail("poison")).await;
    assert_eq!(h.store().blocked_keys(10).await.expect("keys can be listed").len(), 1);
    assert_eq!(replay_all(&h, Ended::Dead).await, 1);
    assert_eq!(h.store().blocked_keys(10).await.expect("keys can be listed"), []);
    assert_eq!(drained(&h, 4, Order::default()).await, ["a1 a2 a3 a4", "a5 a6 a7"]);
}

/// While the end of a run is held, its beginning is nobody's, though it was given back long ago. WRK-07, H34.
pub async fn the_beginning_of_a_run_waits_for_its_end<H: Harness>() {
    let (h, owner) = (start::<H>().await, OwnerToken::new());
    enqueue(h.store(), &keyed("a1 a2 a3 a4 a5 a6 a7 a8 a9")).await;
    let run = claim(h.store(), owner, 8).await;
    settle_all(h.store(), owner, &run[..6], &release(Duration::ZERO)).await;
    assert_eq!(next(&h, 1).await, "", "a7 and a8 are held");
    h.advance(LEASE - MINUTE).await;
    h.store().renew(owner, &[run[7].held], HOUR).await.expect("a renewal succeeds");
    h.advance(2 * MINUTE).await;
    reap_all(h.store()).await;
    assert_eq!(next(&h, 1).await, "", "a8 is held");
    settle_all(h.store(), owner, &run[7..], &release(Duration::ZERO)).await;
    assert_eq!(drained(&h, 5, Order::default()).await, ["a1 a2 a3 a4 a5", "a6 a7 a8 a9"]);
}

/// In sequence, replayed messages wait for any later one that is held, with a key or without. BUS-06, H34.
pub async fn a_replayed_sequence_waits_for_a_later_one_that_is_held<H: Harness>() {
    let (h, owner) = (start::<H>().await, OwnerToken::new());
    end(&h, "-0 a1 -2 -3 b4 -5 -6", Ended::Done).await;
    enqueue(h.store(), &keyed("-7 -8")).await;
    let held = claim_in(&h, owner, 1, SEQUENCE).await;
    assert_eq!(names(&held), "-7");
    assert_eq!(replay_all(&h, Ended::Done).await, 7);
    assert_eq!(next_in(&h, 2, SEQUENCE).await, "");
    settle_all(h.store(), owner, &held, &Verdict::Ack).await;
    assert_eq!(drained(&h, 4, SEQUENCE).await, ["-0 a1 -2 -3", "b4 -5 -6 -8"]);
}

/// A message whose time has come waits for one of its key that is held, whatever was replayed between them. WRK-07, H34.
pub async fn a_message_that_wakes_waits_for_a_held_one_behind_replayed_ones<H: Harness>() {
    for (order, keys) in [(Order::default(), "a"), (SEQUENCE, "-")] {
        let (h, owner) = (start::<H>().await, OwnerToken::new());
        let named = |names: &str| keyed(&names.replace('a', keys));
        let mut first = named("a0");
        first[0] = first[0].clone().delay(HOUR);
        enqueue(h.store(), &first).await;
        end(&h, &"a1 a2 a3 a4 a5 a6".replace('a', keys), Ended::Done).await;
        enqueue(h.store(), &named("a7")).await;
        let held = claim_in(&h, owner, 1, order).await;
        assert_eq!(replay_all(&h, Ended::Done).await, 6);
        h.store().renew(owner, &[held[0].held], DAY).await.expect("a renewal succeeds");
        h.advance(HOUR).await;
        assert_eq!(next_in(&h, 10, order).await, "", "{keys}7 is held");
        settle_all(h.store(), owner, &held, &Verdict::Ack).await;
        let runs = ["a0", "a1 a2 a3 a4 a5 a6"].map(|run| run.replace('a', keys));
        assert_eq!(drained(&h, 10, order).await, runs);
    }
}

/// What becomes due behind a dead message is parked like the others, be it scheduled or given back. H33, H34.
pub async fn messages_that_become_due_behind_a_dead_one_are_parked<H: Harness>() {
    let (h, owner) = (start::<H>().await, OwnerToken::new());
    enqueue(h.store(), &keyed("a1 b1 a2")).await;
    let mut later = keyed("a3 b2 -1");
    later.iter_mut().for_each(|message| *message = message.clone().delay(HOUR));
    enqueue(h.store(), &later).await;
    let claimed = claim(h.store(), owner, 3).await;
    settle_all(h.store(), owner, &claimed[..1], &fail("poison")).await;
    settle_all(h.store(), owner, &claimed[1..2], &Verdict::Ack).await;
    settle_all(h.store(), owner, &claimed[2..], &abandon(HOUR, "away")).await;
    let park = async || h.store().reap(PARK).await.expect("a reap succeeds").parked;
    assert_eq!(park().await, 0, "their time has not come");
    h.advance(HOUR).await;
    assert_eq!(reap_all(h.store()).await.parked, 0, "only when asked to");
    assert_eq!(park().await, 2);
    let dead = list(h.store(), State::Dead, Filter::all()).await;
    let seen: Vec<_> = dead.iter().map(|one| (one.last_error.as_deref(), one.settled_at.is_some())).collect();
    assert_eq!(seen, [(Some("poison"), true), (Some(REASON_PARKED), true), (Some(REASON_PARKED), true)]);
    assert_eq!(park().await, 0);
    assert_eq!(next(&h, 10).await, "b2 -1");
    assert_eq!(replay_all(&h, Ended::Dead).await, 3);
    assert_eq!(drained(&h, 10, Order::default()).await, ["a1 a2 a3"]);
}

/// A claim of one message in a transaction that stays open.
async fn claim_slowly<H: Harness>(h: &H, expected: &str) -> pillarbox::Tx<H::Store> {
    let (outbox, coordinator) = coordinate(h).await;
    let mut tx = begin_claiming::<H>(&outbox).await;
    let batch = WorkBatch::new(OwnerToken::new()).outbox(QueueWork::new().claim(1));
    let claimed = coordinator.process_in(&mut tx, batch).await.expect("a batch can be done").outbox.claimed;
    assert_eq!(names(&claimed), expected);
    tx
}

/// Messages that are committed late, or replayed, wait for a later one even while the claim that took that one is still open.
/// H2, H34.
pub async fn what_comes_late_waits_for_an_open_claim<H: Harness>() {
    if !H::HAS_ROW_LOCKS {
        return;
    }
    let h = start::<H>().await;
    end(&h, "b1 b2 b3 b4 b5 b6", Ended::Done).await;
    let mut early = h.begin().await;
    h.enqueue_in(&mut early, Enqueue::pending(&keyed("a1 a2 a3 a4 a5 a6"))).await.expect("they can be enqueued");
    enqueue(h.store(), &keyed("a7 b7")).await;
    let [first, second] = [claim_slowly(&h, "a7").await, claim_slowly(&h, "b7").await];
    h.commit(early).await;
    assert_eq!(replay_all(&h, Ended::Done).await, 6);
    for limit in [1, 20] {
        assert_eq!(next(&h, limit).await, "", "a7 and b7 are as good as held");
    }
    first.commit().await.expect("it can be committed");
    second.rollback().await.expect("it can be rolled back");
    assert_eq!(next(&h, 20).await, "b1 b2 b3 b4 b5 b6 b7", "a7 is held");
}

/// However many messages are committed late, they wait for a later one of their key that is held. WRK-07, H2, H34.
pub async fn however_many_come_late_they_wait_for_a_held_one<H: Harness>() {
    if !H::HAS_ROW_LOCKS {
        return;
    }
    for (order, keys) in [(Order::default(), "a"), (SEQUENCE, "-")] {
        let (h, owner) = (start::<H>().await, OwnerToken::new());
        let late = backlog(keys, 9);
        let mut early = h.begin().await;
        h.enqueue_in(&mut early, Enqueue::pending(&keyed(&late))).await.expect("they can be enqueued");
        enqueue(h.store(), &keyed(&format!("{keys}10"))).await;
        let held = claim_in(&h, owner, 5, order).await;
        assert_eq!(names(&held), format!("{keys}10"));
        h.commit(early).await;
        assert_eq!(next_in(&h, 5, order).await, "", "{keys}10 is held");
        settle_all(h.store(), owner, &held, &Verdict::Ack).await;
        assert_eq!(drained(&h, 9, order).await, [late]);
    }
}

/// Others have gone past a long backlog of a key: still none of it is handed out beside another one, neither when the head of a
/// run comes back before the rest of it, nor when an earlier message is committed late. WRK-07, H2, H34.
pub async fn a_long_backlog_that_others_have_gone_past_is_handed_out_one_run_at_a_time<H: Harness>() {
    let (h, owner) = (start::<H>().await, OwnerToken::new());
    let mut early = if H::HAS_ROW_LOCKS { Some(h.begin().await) } else { None };
    if let Some(early) = &mut early {
        h.enqueue_in(early, Enqueue::pending(&keyed("a0"))).await.expect("it can be enqueued");
    }
    enqueue(h.store(), &keyed(&backlog("a", 100))).await;
    enqueue(h.store(), &keyed("b1")).await;
    let take = async |limit, expected: &str| {
        let claimed = claim_in(&h, owner, limit, Order::default()).await;
        assert_eq!(names(&claimed), expected);
        claimed
    };
    let first = take(1, "a1").await;
    take(1, "b1").await;
    settle_all(h.store(), owner, &first, &Verdict::Ack).await;
    let second = take(1, "a2").await;
    settle_all(h.store(), owner, &second, &Verdict::Ack).await;
    let run = take(3, "a3 a4 a5").await;
    settle_all(h.store(), owner, &run[..1], &release(Duration::ZERO)).await;
    assert_eq!(next(&h, 1).await, "", "a4 and a5 are held");
    settle_all(h.store(), owner, &run[1..], &release(Duration::ZERO)).await;
    let run = take(2, "a3 a4").await;
    let mut rest = backlog("a", 100);
    if let Some(early) = early {
        h.commit(early).await;
        assert_eq!(next(&h, 1).await, "", "a3 and a4 are held");
        rest = format!("a0 {rest}");
    }
    settle_all(h.store(), owner, &run, &release(Duration::ZERO)).await;
    let rest = rest.replacen("a1 a2 ", "", 1);
    assert_eq!(drained(&h, 40, Order::default()).await.join(" "), rest);
}

/// So many messages of a key.
fn backlog(key: &str, count: u32) -> String {
    (1..=count).map(|number| format!("{key}{number}")).collect::<Vec<_>>().join(" ")
}

/// Nobody gets a message of a key of which an open claim has woken another one. WRK-07, H34.
pub async fn what_an_open_claim_wakes_keeps_its_key<H: Harness>() {
    if !H::HAS_ROW_LOCKS {
        return;
    }
    let h = start::<H>().await;
    let mut later = keyed("a1 a2");
    later.iter_mut().for_each(|message| *message = message.clone().delay(HOUR));
    enqueue(h.store(), &later).await;
    h.advance(HOUR).await;
    let slow = claim_slowly(&h, "a1").await;
    assert_eq!(next(&h, 10).await, "", "a2 is due, too");
    enqueue(h.store(), &keyed("a3 b1")).await;
    assert_eq!(next(&h, 10).await, "b1", "a3 comes after both");
    slow.rollback().await.expect("it can be rolled back");
    assert_eq!(next(&h, 1).await, "a1");
}
