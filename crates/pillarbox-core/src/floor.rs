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
use crate::store::Claimed;

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
    choice_count: u64,
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

/// Where one claim looks. What it found is told by [`brought`](Self::brought); one that failed is dropped.
#[derive(Debug)]
pub struct Look<'f> {
    floor: &'f Floor,
    number: u64,
    /// Which choice of messages it is about.
    choice: u64,
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
        state.choose(claim);
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
        let (number, choice) = (state.look_count, state.choice_count);
        state.looks.push(UnderWay { number, span, freed: i64::MAX });
        Look { floor: self, number, choice, base, above, everything_since: at_everything.then_some(now), top }
    }

    /// Whether this claim would walk over rows that are left out: then the highest row there is should be known before it.
    pub fn wants_top(&self, claim: &Claim) -> bool {
        let mut state = self.state();
        state.choose(claim);
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
        if self.choice == state.choice_count
            && let Some(last) = highest.map(WorkId::as_i64).filter(|highest| *highest > self.above)
        {
            state.taken(Span { above: self.above, last });
        }
        self.above = self.base;
        Some(self.base)
    }

    /// Notes what this claim brought, the rows that it walked to up to the `highest`.
    pub fn brought(self, claim: &Claim, claimed: &[Claimed], highest: Option<WorkId>) {
        let is_full = claim.rest(claimed.len()).is_none();
        self.claimed(Instant::now(), highest, is_full, claimed.iter().any(Claimed::has_key));
    }

    /// Notes what the claim brought by `now`: the highest row, whether the batch was full, and whether any message has a key.
    fn claimed(self, now: Instant, highest: Option<WorkId>, full: bool, keyed: bool) {
        let mut state = self.floor.state();
        if let Some(began) = self.everything_since {
            state.look_took = now.saturating_duration_since(began);
        }
        if keyed {
            state.keyed_at = Some(now);
        }
        // One that took others than claims take now says nothing about where those are.
        if self.choice == state.choice_count {
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
    fn choose(&mut self, claim: &Claim) {
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
            self.choice_count += 1;
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
mod tests;
