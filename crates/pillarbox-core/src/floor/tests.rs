use super::*;
use crate::id::OwnerToken;
use crate::order::Order;
use crate::partition::PartitionCount;

const PACE: Duration = Duration::from_secs(2);
const LIMIT: u32 = 10;

fn of_all() -> Claim {
    Claim::new(OwnerToken::new(), PACE, LIMIT).unwrap()
}

/// One that leaves topics out, each a letter.
fn without(topics: &str) -> Claim {
    of_all().leaving_out(LeftOut::new(topics.chars().map(String::from)))
}

fn serving(wanted: u32) -> Claim {
    let served = Served::only(PartitionCount::default(), |partition| partition.get() == wanted);
    of_all().serving(Some(served))
}

fn looks<const N: usize>(floor: &Floor, now: Instant) -> [Look<'_>; N] {
    std::array::from_fn(|_| floor.look(now, PACE, &of_all(), None))
}

fn row(id: i64) -> Option<WorkId> {
    Some(WorkId::from_i64(id))
}

/// Where a claim starts that brings this much.
fn claim(floor: &Floor, now: Instant, brings: Option<(i64, bool)>, keyed: bool) -> i64 {
    claim_of(&of_all(), floor, now, brings, keyed)
}

fn claim_of(of: &Claim, floor: &Floor, now: Instant, brings: Option<(i64, bool)>, keyed: bool) -> i64 {
    let look = floor.look(now, PACE, of, None);
    let above = look.above();
    look.claimed(
        now,
        brings.map(|(highest, _)| WorkId::from_i64(highest)),
        brings.is_some_and(|(_, full)| full),
        keyed,
    );
    above
}

#[test]
fn claims_start_above_the_last_one_until_it_is_time_to_look_at_everything() {
    let (floor, start) = (Floor::default(), Instant::now());
    assert_eq!(claim(&floor, start, Some((50, true)), false), 0);
    assert_eq!(claim(&floor, start + PACE / 2, None, false), 50);
    assert_eq!(claim(&floor, start + PACE, None, false), 0);
    assert_eq!(claim(&floor, start + PACE + PACE / 2, None, false), 50);
}

#[test]
fn without_an_interval_every_claim_looks_at_everything() {
    let (floor, now) = (Floor::default(), Instant::now());
    for _ in 0..2 {
        let look = floor.look(now, Duration::ZERO, &of_all(), None);
        assert_eq!(look.above(), 0);
        look.claimed(now, row(50), true, false);
    }
}

#[test]
fn other_partitions_are_looked_for_at_once() {
    let (floor, now) = (Floor::default(), Instant::now());
    for (next, start) in [(None, 0), (None, 50), (Some(1), 0), (Some(1), 50), (Some(2), 0), (None, 0)] {
        let next = next.map_or_else(of_all, serving);
        assert_eq!(claim_of(&next, &floor, now, Some((50, true)), false), start, "{next:?}");
    }
}

/// Two that share a handle and serve different partitions each pass what is the other's.
#[test]
fn claims_of_other_partitions_at_the_same_time_hide_nothing_from_each_other() {
    let (floor, now) = (Floor::default(), Instant::now());
    let [first, second] = [serving(1), serving(2)].map(|claim| floor.look(now, PACE, &claim, None));
    assert_eq!([first.above(), second.above()], [0, 0]);
    second.claimed(now, row(30), true, false);
    first.claimed(now, row(50), false, false);
    assert_eq!(claim_of(&serving(2), &floor, now, None, false), 30, "the rest of the second's lies below the first's");
}

/// H33: a long way of messages that are left out is walked once, and seldom again.
#[test]
fn what_is_left_out_is_not_walked_over_by_every_claim() {
    let (floor, start) = (Floor::default(), Instant::now());
    let took = PACE;
    let begun = |of: &str, top: Option<WorkId>| floor.look(start + took + PACE, PACE, &without(of), top);
    claim(&floor, start, Some((9, true)), false);
    assert!(!floor.wants_top(&without("a")), "there was more to bring");
    let look = floor.look(start, PACE, &without("a"), None);
    assert_eq!(look.above(), 0);
    look.claimed(start + took, None, false, false);
    assert!(floor.wants_top(&without("a")));
    begun("a", row(5000)).claimed(start + took, None, false, false);
    assert!(!floor.wants_top(&without("a")));
    assert_eq!(begun("a", None).above(), 5000, "a look that took long is not repeated soon");
    assert_eq!(begun("ab", None).above(), 5000);
    floor.given_back(row(20));
    assert!(floor.wants_top(&without("ab")));
    assert_eq!(begun("b", None).above(), 0, "messages of a may come now");
    assert!(!floor.wants_top(&of_all()));
}

#[test]
fn what_was_given_back_is_found_at_once() {
    let (floor, now) = (Floor::default(), Instant::now());
    claim(&floor, now, Some((50, true)), false);
    floor.given_back(row(20));
    assert_eq!(claim(&floor, now, None, false), 19);
    floor.given_back(row(30));
    assert_eq!(claim(&floor, now, None, false), 19);
}

#[test]
fn a_full_batch_from_below_lowers_the_floor_and_a_thin_one_does_not() {
    let (floor, now) = (Floor::default(), Instant::now());
    claim(&floor, now, Some((5000, true)), false);
    for (time, brings, next) in [(1, (10, false), 5000), (2, (500, true), 500)] {
        assert_eq!(claim(&floor, now + PACE * time, Some(brings), false), 0);
        assert_eq!(claim(&floor, now + PACE * time, None, false), next);
    }
}

/// What waited is brought first, and stands anywhere: it says nothing about the rows that a claim walks over.
#[test]
fn a_batch_from_below_its_start_moves_nothing() {
    let (floor, now) = (Floor::default(), Instant::now());
    claim(&floor, now, Some((5000, true)), false);
    assert_eq!(claim(&floor, now, Some((500, true)), false), 5000);
    assert_eq!(claim(&floor, now, None, false), 5000);
}

/// Claims at the same time start beside each other, and the floor follows when none before them is under way.
#[test]
fn claims_at_the_same_time_do_not_walk_over_each_others_rows() {
    let (floor, now) = (Floor::default(), Instant::now());
    claim(&floor, now, Some((100, true)), false);
    let [first, second, third] = looks(&floor, now);
    assert_eq!([first.above(), second.above(), third.above()], [100, 110, 120]);
    third.claimed(now, row(130), true, false);
    assert_eq!(floor.state().above, 100);
    let [fourth] = looks(&floor, now);
    assert_eq!(fourth.above(), 130);
    second.claimed(now, row(120), true, false);
    first.claimed(now, row(110), true, false);
    assert_eq!(floor.state().above, 130);
    assert!(floor.state().ahead.is_empty());
    fourth.claimed(now, row(139), false, false);
    assert_eq!(claim(&floor, now, None, false), 139);
}

/// H34: what a claim was to take and did not is found by the next one.
#[test]
fn what_a_claim_left_behind_others_that_began_above_is_found() {
    let (floor, now) = (Floor::default(), Instant::now());
    claim(&floor, now, Some((100, true)), false);
    let [first, second] = looks(&floor, now);
    // Some of its batch had waited: it took three rows only.
    first.claimed(now, row(103), true, false);
    second.claimed(now, row(120), true, false);
    assert_eq!(claim(&floor, now, Some((110, true)), false), 103);
    assert_eq!(claim(&floor, now, None, false), 120, "and what others took is not walked over then");
    let [failed, second] = looks(&floor, now);
    second.claimed(now, row(140), true, false);
    drop(failed);
    assert_eq!(claim(&floor, now, None, false), 120);
}

/// H34: a message that was committed after one claim looked, and before the next one began above its rows.
#[test]
fn what_was_committed_before_a_claim_began_is_found_by_it() {
    let (floor, now) = (Floor::default(), Instant::now());
    claim(&floor, now, Some((100, true)), false);
    let [mut first, mut second] = looks(&floor, now);
    assert_eq!(first.again(row(104)), None, "it has looked at everything above the floor");
    first.claimed(now, row(104), false, false);
    assert_eq!((second.above(), second.again(row(112))), (110, Some(100)));
    second.claimed(now, row(107), false, false);
    assert_eq!(claim(&floor, now, None, false), 107);
}

#[test]
fn a_sequence_is_looked_at_from_one_place() {
    let (floor, now) = (Floor::default(), Instant::now());
    let in_sequence = of_all().in_order(Order { in_sequence: true, ..Order::default() });
    claim(&floor, now, Some((100, true)), false);
    let [first, second] = [&in_sequence, &in_sequence].map(|claim| floor.look(now, PACE, claim, None));
    assert_eq!([first.above(), second.above()], [100, 100]);
}

/// With keys a claim may have to leave rows of its span where they are.
#[test]
fn with_keys_claims_at_the_same_time_start_at_the_same_row() {
    let (floor, now) = (Floor::default(), Instant::now());
    claim(&floor, now, Some((50, true)), true);
    let [first, second] = looks(&floor, now);
    assert_eq!([first.above(), second.above()], [50, 50]);
}

/// H34: what waits behind its key, freed by others, is not left to the slow pace.
#[test]
fn with_keys_claims_look_at_everything_more_often_but_not_all_the_time() {
    let (floor, start) = (Floor::default(), Instant::now());
    let ms = Duration::from_millis;
    let look = floor.look(start, PACE, &of_all(), None);
    assert_eq!(look.above(), 0);
    look.claimed(start + ms(3), row(50), true, true);
    assert_eq!(claim(&floor, start + ms(29), None, false), 50);
    assert_eq!(claim(&floor, start + ms(30), None, false), 0, "ten times as long as it took");
    assert_eq!(claim(&floor, start + ms(39), None, false), 50, "quick ones have a least pause too");
    assert_eq!(claim(&floor, start + ms(40), None, false), 0);
    let later = start + KEYED_FOR + ms(40);
    assert_eq!(claim(&floor, later, None, false), 0);
    assert_eq!(claim(&floor, later + PACE / 2, None, false), 50);
}

/// H34: what waits behind a message of its key stands above that one, and below the floor.
#[test]
fn with_keys_what_was_settled_lowers_the_floor() {
    let settled = |id: i64| Freed { back: None, settled: row(id) };
    for (keyed, start) in [(false, 50), (true, 20)] {
        let (floor, now) = (Floor::default(), Instant::now());
        claim(&floor, now, Some((50, true)), keyed);
        floor.freed(now, settled(20));
        assert_eq!(claim(&floor, now, None, false), start, "with keys: {keyed}");
    }
}

/// H34: a claim that began before may have passed what came free.
#[test]
fn what_comes_free_during_a_claim_is_found_by_the_next_one() {
    let (floor, now) = (Floor::default(), Instant::now());
    claim(&floor, now, Some((50, true)), true);
    let [first, second] = looks(&floor, now);
    floor.freed(now, Freed { back: None, settled: row(20) });
    first.claimed(now, row(80), true, true);
    assert_eq!(claim(&floor, now, Some((60, true)), true), 20);
    drop(second);
    assert!(floor.state().looks.is_empty());
    assert_eq!(claim(&floor, now, None, false), 60);
}
