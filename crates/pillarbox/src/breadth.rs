//! How many keys a claim brought. Messages of a key that is held wait in the store until it is through, and a claim that is
//! made before then walks over all of them. So where few keys have many messages, claims wait for what they brought. Pure.

use std::time::Duration;

use crate::clock::Tick;

/// A claim waits no longer than this, or than so many times as long as the last one took: others than those that are held may
/// have come.
const WAIT_MAX: Duration = Duration::from_millis(20);
const TIMES_MAX: u32 = 4;

/// What was claimed last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Breadth {
    is_narrow: bool,
    until: Tick,
}

/// When the next claim may be made, as far as keys are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Now,
    /// When the claim that is under way has ended.
    AfterThatClaim,
    /// When no message with a key is being handled, or at this moment.
    AfterTheseKeys(Tick),
}

impl Breadth {
    /// After a claim that took so long and brought messages with these keys: whether it was short, and whether messages with
    /// keys were held when it had come.
    pub(crate) fn after<'k>(
        keys: impl Iterator<Item = &'k str>,
        is_short: bool,
        holds_keys: bool,
        now: Tick,
        took: Duration,
    ) -> Self {
        let mut keys: Vec<_> = keys.collect();
        let keyed_count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        // A fourth of them are behind others of the same claim.
        let has_runs = keyed_count > 0 && keys.len() * 4 <= keyed_count * 3;
        let is_narrow = has_runs || is_short && (keyed_count > 0 || holds_keys);
        Self { is_narrow, until: now.after(WAIT_MAX.max(took * TIMES_MAX)) }
    }

    /// Whether claims wait for what they brought.
    pub(crate) fn is_narrow(self) -> bool {
        self.is_narrow
    }

    pub(crate) fn next(self, is_claiming: bool, holds_keys: impl FnOnce() -> bool, now: Tick) -> Next {
        match self.is_narrow {
            true if is_claiming => Next::AfterThatClaim,
            true if self.until > now && holds_keys() => Next::AfterTheseKeys(self.until),
            _ => Next::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn at(milliseconds: u32) -> Tick {
        Tick::default().after(MILLISECOND * milliseconds)
    }

    fn after(keys: &[&str], is_short: bool, holds_keys: bool) -> Breadth {
        Breadth::after(keys.iter().copied(), is_short, holds_keys, at(0), MILLISECOND)
    }

    #[test]
    fn claims_of_many_keys_or_none_follow_at_once() {
        for breadth in [Breadth::default(), after(&[], false, true), after(&["a", "b", "c", "d", "d"], false, true)] {
            assert_eq!(breadth.next(true, || true, at(0)), Next::Now, "{breadth:?}");
        }
        assert_eq!(after(&[], true, false).next(true, || false, at(0)), Next::Now, "nothing has a key");
    }

    /// WRK-04: few keys with many messages, or all keys held: one claim at a time, and not before its messages are through.
    #[test]
    fn claims_of_few_keys_wait_for_what_they_brought() {
        for breadth in [after(&["a", "b", "a", "b"], false, true), after(&["a"], true, true), after(&[], true, true)] {
            assert_eq!(breadth.next(true, || false, at(0)), Next::AfterThatClaim);
            assert_eq!(breadth.next(false, || true, at(1)), Next::AfterTheseKeys(at(20)));
            assert_eq!(breadth.next(false, || false, at(1)), Next::Now, "they are through");
            assert_eq!(breadth.next(false, || true, at(20)), Next::Now, "others need not wait for slow ones");
        }
    }

    #[test]
    fn claims_that_take_long_are_made_less_often() {
        let breadth = Breadth::after(["a"].into_iter(), true, true, at(0), MILLISECOND * 50);
        assert_eq!(breadth.next(false, || true, at(0)), Next::AfterTheseKeys(at(200)));
    }
}
