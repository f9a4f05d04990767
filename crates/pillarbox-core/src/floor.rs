//! Where a claim starts to look: above what was claimed before, and from the start now and then.
//!
//! Rows that were claimed and settled leave traces in an index for as long as somebody holds an old snapshot open. A claim
//! that starts above them does not meet them. It is a hint, not a cursor: messages become visible out of order, are given
//! back, or lose their lease, so every now and then a claim looks at everything.
//!
//! Claims of one handle that are under way at once do not get in each other's way: a claim of a thousand takes all that can be
//! taken of the thousand rows above its start, so the next one starts there, and does not walk over rows that it would find
//! locked. One that finds less there than it could bring looks from the floor [again](Look::again): whatever was committed before
//! a claim began is found by it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::id::WorkId;
use crate::lease::Claim;
use crate::partition::Served;
use crate::pause::LeftOut;

/// The floor of one store handle.
#[derive(Debug, Default)]
pub struct Floor {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    above: i64,
    looked_at_everything: Option<Instant>,
    /// How long the last look at everything took.
    look_took: Duration,
    keyed_at: Option<Instant>,
    served: Option<Served>,
    left_out: LeftOut,
    /// How often claims began to take others than before.
    turn_count: u64,
    /// The last claim left nothing that it could have brought.
    was_thin: bool,
    /// The highest row there was when a claim found nothing below it.
    top: Option<i64>,
    looks: Vec<UnderWay>,
    /// What looks have taken beyond the floor, while others under way are to take what lies between.
    ahead: Vec<Span>,
    look_count: u64,
}

/// A look that was begun and has not ended.
#[derive(Debug)]
struct UnderWay {
    number: u64,
    /// What it takes, whatever it finds; nothing where it leaves out some of what it passes.
    span: Option<Span>,
    /// The lowest row that came free since it began.
    freed: i64,
}

/// Rows above one and up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    above: i64,
    last: i64,
}

/// Where one claim looks. What it found is told by [`claimed`](Self::claimed); one that failed is dropped.
#[derive(Debug)]
pub struct Look<'f> {
    floor: &'f Floor,
    number: u64,
    turn: u64,
    /// The floor when it began.
    base: i64,
    /// Where it starts: at the base, or above what others are taking.
    above: i64,
    /// When it began, if it looks at everything.
    everything_since: Option<Instant>,
    /// The highest row there was before it, where that is known.
    top: Option<WorkId>,
}

/// What settled rows make room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// The lowest row that can be claimed again at once.
    pub back: Option<WorkId>,
    /// The lowest row of all: what waits behind a message of its key stands above that.
    pub settled: Option<WorkId>,
}

/// How long after a message with a key was claimed a claim looks at everything more often.
const KEYED_FOR: Duration = Duration::from_secs(60);

/// The least time between two such looks, and what part of the time they may take.
const KEYED_PAUSE: Duration = Duration::from_millis(10);
const KEYED_SHARE: u32 = 10;

impl Floor {
    /// A look for a claim that begins at `now`; with the highest row there is, where the claim [wants](Self::wants_top) it.
    pub fn look(&self, now: Instant, rescan_interval: Duration, claim: &Claim, top: Option<WorkId>) -> Look<'_> {
        let mut state = self.state();
        state.turn_to(claim);
        let mut interval = rescan_interval;
        if state.has_keys(now) {
            // Others settle messages, too, and what waits behind those comes free below the floor.
            interval = interval.min(KEYED_PAUSE.max(state.look_took * KEYED_SHARE));
        }
        if !state.left_out.is_empty() && !rescan_interval.is_zero() {
            // What is left out may be a long way to walk.
            interval = interval.max(state.look_took * KEYED_SHARE);
        }
        let at_everything = since(now, state.looked_at_everything).is_none_or(|since| since >= interval);
        if at_everything {
            state.looked_at_everything = Some(now);
        }
        // With keys, too, a claim may have to leave some of the rows that it passes.
        let takes_all =
            claim.served().is_none() && state.left_out.is_empty() && !claim.order().in_sequence && !state.has_keys(now);
        let base = if at_everything { 0 } else { state.above };
        let above = if takes_all && !at_everything { state.free_above() } else { base };
        let span = takes_all.then(|| Span { above, last: above.saturating_add(i64::from(claim.limit())) });
        state.look_count += 1;
        let (number, turn) = (state.look_count, state.turn_count);
        state.looks.push(UnderWay { number, span, freed: i64::MAX });
        Look { floor: self, number, turn, base, above, everything_since: at_everything.then_some(now), top }
    }

    /// Whether this claim would walk over rows that are left out: then the highest row there is should be known before it.
    pub fn wants_top(&self, claim: &Claim) -> bool {
        let mut state = self.state();
        state.turn_to(claim);
        state.was_thin && !state.left_out.is_empty() && state.top.is_none_or(|top| state.above < top)
    }

    /// Notes that a row can be claimed again.
    pub fn given_back(&self, lowest: Option<WorkId>) {
        if let Some(lowest) = lowest {
            self.state().lower(lowest.as_i64() - 1);
        }
    }

    /// Notes what settled rows make room for: themselves where they are given back, and where there are keys what waits behind.
    pub fn freed(&self, now: Instant, freed: Freed) {
        self.given_back(freed.back);
        let mut state = self.state();
        if let Some(settled) = freed.settled
            && state.has_keys(now)
        {
            state.lower(settled.as_i64());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Look<'_> {
    /// The row above which the claim starts; zero to look at everything.
    pub fn above(&self) -> i64 {
        self.above
    }

    /// For a claim that brought less than it could, up to the `highest` row: where to look for the rest, if it started above rows
    /// that others were to take. What they did not find, because it was committed too late for them, is found there.
    pub fn again(&mut self, highest: Option<WorkId>) -> Option<i64> {
        if self.above == self.base {
            return None;
        }
        let mut state = self.floor.state();
        if self.turn == state.turn_count
            && let Some(last) = highest.map(WorkId::as_i64).filter(|highest| *highest > self.above)
        {
            state.taken(Span { above: self.above, last });
        }
        self.above = self.base;
        Some(self.base)
    }

    /// Notes what the claim brought by `now`: the highest row, whether the batch was full, and whether any message has a key.
    pub fn claimed(self, now: Instant, highest: Option<WorkId>, full: bool, keyed: bool) {
        let mut state = self.floor.state();
        if let Some(began) = self.everything_since {
            state.look_took = now.saturating_duration_since(began);
        }
        if keyed {
            state.keyed_at = Some(now);
        }
        // One that took others than claims take now says nothing about where those are.
        if self.turn == state.turn_count {
            state.was_thin = !full;
            if let Some(last) = highest.map(WorkId::as_i64).filter(|highest| *highest > self.above) {
                if self.everything_since.is_some() || state.has_keys(now) {
                    state.taken_alone(last, full);
                } else {
                    state.taken(Span { above: self.above, last });
                }
            }
            if let Some(top) = self.top.map(WorkId::as_i64)
                && !full
            {
                // It brought all that it could up to there.
                state.top = Some(top);
                state.above = state.above.max(top);
            }
        }
        if let Some(ended) = state.end(self.number) {
            state.sink(ended.freed);
        }
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        let mut state = self.floor.state();
        if state.end(self.number).is_some_and(|failed| failed.span.is_some()) {
            // Others may have begun above what it was to take.
            state.lower(self.above);
        }
    }
}

impl State {
    /// Whether messages with keys are about.
    fn has_keys(&self, now: Instant) -> bool {
        since(now, self.keyed_at).is_some_and(|since| since < KEYED_FOR)
    }

    /// Which messages claims take from now on. Where these are others than before, some may lie below the floor.
    fn turn_to(&mut self, claim: &Claim) {
        let mut is_other = false;
        if self.served.as_ref() != claim.served() {
            self.served = claim.served().cloned();
            (self.looked_at_everything, is_other) = (None, true);
        }
        let left_out = claim.left_out().cloned().unwrap_or_default();
        if self.left_out != left_out {
            if self.left_out.is_empty() || !left_out.covers(&self.left_out) {
                self.looked_at_everything = None;
            }
            (self.left_out, self.top, is_other) = (left_out, None, true);
        }
        if is_other {
            self.turn_count += 1;
            self.ahead.clear();
        }
    }

    /// Where a look can start, so that all below is taken or being taken.
    fn free_above(&self) -> i64 {
        let spans = || self.ahead.iter().copied().chain(self.looks.iter().filter_map(|look| look.span));
        let mut above = self.above;
        while let Some(next) =
            spans().filter(|span| span.above <= above && above < span.last).map(|span| span.last).max()
        {
            above = next;
        }
        above
    }

    /// Notes that a look from the start of the table, or one that others do not look beside, took all that it could up to a row. One
    /// that was full may have left rows behind it, also below where the floor was.
    fn taken_alone(&mut self, last: i64, full: bool) {
        self.ahead.clear();
        self.above = if full { last } else { self.above.max(last) };
    }

    /// Notes that a look took all that it could of a span.
    fn taken(&mut self, span: Span) {
        self.ahead.push(span);
        self.ahead.sort_unstable_by_key(|span| span.above);
        let mut apart: Vec<Span> = Vec::with_capacity(self.ahead.len());
        for span in self.ahead.drain(..) {
            if span.above <= self.above {
                self.above = self.above.max(span.last);
            } else if let Some(before) = apart.last_mut().filter(|before| span.above <= before.last) {
                before.last = before.last.max(span.last);
            } else {
                apart.push(span);
            }
        }
        self.ahead = apart;
    }

    fn end(&mut self, number: u64) -> Option<UnderWay> {
        let place = self.looks.iter().position(|look| look.number == number)?;
        Some(self.looks.swap_remove(place))
    }

    /// Something can be claimed above `row`; the looks under way may have passed it already.
    fn lower(&mut self, row: i64) {
        self.sink(row);
        for look in &mut self.looks {
            look.freed = row.min(look.freed);
        }
    }

    fn sink(&mut self, row: i64) {
        self.above = self.above.min(row);
        self.ahead.retain(|span| span.above < row);
        for span in &mut self.ahead {
            span.last = row.min(span.last);
        }
    }
}

fn since(now: Instant, moment: Option<Instant>) -> Option<Duration> {
    moment.map(|moment| now.saturating_duration_since(moment))
}

#[cfg(test)]
mod tests {
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
        assert_eq!(
            claim_of(&serving(2), &floor, now, None, false),
            30,
            "the rest of the second's lies below the first's"
        );
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
}
