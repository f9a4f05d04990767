//! The calls to the store that are under way, and the look that is owed when they are through.
//!
//! Verdicts on one run may go out with several calls, and those end in any order. What waits behind the run can be claimed
//! when all of them are through: a claim that looked before that has passed it by. And two claims that look at one key at
//! the same time may each leave it to the other.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which calls are under way.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    under_way: Vec<Call>,
    began_count: u64,
    /// A look is owed when none is under way that began up to this one.
    owed: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    number: u64,
    claims: bool,
}

impl Calls {
    /// A call begins; the number names it.
    pub(crate) fn begin(&self, claims: bool) -> u64 {
        let mut state = self.lock();
        state.began_count += 1;
        let number = state.began_count;
        state.under_way.push(Call { number, claims });
        number
    }

    /// The call found nothing to claim.
    pub(crate) fn found_nothing(&self) {
        let mut state = self.lock();
        if state.under_way.iter().filter(|call| call.claims).count() > 1 {
            state.owed = Some(state.began_count);
        }
    }

    /// The call has written the end of a run. One that claimed after that, alone, has seen what was behind.
    pub(crate) fn run_ended(&self, claimed: bool) {
        let mut state = self.lock();
        if !claimed || state.under_way.len() > 1 {
            state.owed = Some(state.began_count);
        }
    }

    /// Whether the store should be looked at when this call is through. Asked once, before [`end`](Self::end).
    pub(crate) fn owes_look(&self, number: u64) -> bool {
        let mut state = self.lock();
        let is_through = |owed: u64| state.under_way.iter().all(|call| call.number == number || call.number > owed);
        let owes = state.owed.is_some_and(is_through);
        if owes {
            state.owed = None;
        }
        owes
    }

    /// The call has ended.
    pub(crate) fn end(&self, number: u64) {
        self.lock().under_way.retain(|call| call.number != number);
    }

    /// Whether one that claims is under way.
    pub(crate) fn is_claiming(&self) -> bool {
        self.lock().under_way.iter().any(|call| call.claims)
    }

    /// How many are under way.
    pub(crate) fn count(&self) -> usize {
        self.lock().under_way.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(calls: &Calls, number: u64) -> bool {
        let owes = calls.owes_look(number);
        calls.end(number);
        owes
    }

    #[test]
    fn a_lone_call_that_claims_owes_nothing() {
        for (ends_run, claimed, expected) in [(false, false, false), (true, true, false), (true, false, true)] {
            let calls = Calls::default();
            let number = calls.begin(true);
            if ends_run {
                calls.run_ended(claimed);
            }
            assert_eq!((ends(&calls, number), calls.count()), (expected, 0), "claimed: {claimed}");
            let number = calls.begin(true);
            assert!(!ends(&calls, number), "it is owed once");
        }
    }

    /// WRK-07: an earlier call may bring the rest of the run, or hide what is behind it.
    #[test]
    fn the_look_waits_for_the_calls_that_were_under_way() {
        let calls = Calls::default();
        let (first, second) = (calls.begin(true), calls.begin(true));
        calls.run_ended(true);
        assert!(!ends(&calls, second));
        let third = calls.begin(true);
        assert!(ends(&calls, first), "the third began later and need not be waited for");
        assert!(!ends(&calls, third));
    }

    /// WRK-07: each may have left a key to the other.
    #[test]
    fn two_claims_that_meet_and_find_nothing_are_repeated_once() {
        for (other_claims, expected) in [(true, true), (false, false)] {
            let calls = Calls::default();
            let (first, second) = (calls.begin(true), calls.begin(other_claims));
            calls.found_nothing();
            assert!(!ends(&calls, first));
            assert_eq!(ends(&calls, second), expected);
            let alone = calls.begin(true);
            calls.found_nothing();
            assert!(!ends(&calls, alone));
        }
    }

    #[test]
    fn a_failed_call_is_waited_for_like_any_other() {
        let calls = Calls::default();
        let (first, second) = (calls.begin(true), calls.begin(true));
        calls.run_ended(false);
        assert!(!ends(&calls, first));
        assert!(ends(&calls, second));
    }
}
