//! Which of many stores gets the next turn. Pure: stores may appear and vanish between two questions.

use crate::id::StoreId;

/// The strategy by which waiting stores take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Selection {
    /// One turn each, in the order of their ids.
    #[default]
    RoundRobin,
    /// The same store until a turn of its finds nothing, then the next one in the order of their ids.
    ///
    /// A store that always has more would starve the others: after [`TURNS_IN_A_ROW_MAX`] turns in a row the next one has
    /// its turn all the same.
    DrainFirst,
}

/// Turns that one store gets in a row while others wait, at the most.
pub const TURNS_IN_A_ROW_MAX: u32 = 16;

/// What is known of the last turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastTurn {
    /// Whose it was. The store may be gone.
    pub store: StoreId,
    /// Whether it found anything, as far as that is known.
    pub found: bool,
    /// Turns of this store without one of another in between, this one included.
    pub in_a_row: u32,
}

impl Selection {
    /// Who comes next of those that wait, sorted by id; nobody when none waits.
    ///
    /// Whatever the strategy and whoever comes and goes: of N stores that wait, one that keeps waiting gets its turn within
    /// N - 1 turns under round-robin, and within [`TURNS_IN_A_ROW_MAX`] times as many under drain-first.
    pub fn next<'a>(self, waiting: &[&'a StoreId], last: Option<&LastTurn>) -> Option<&'a StoreId> {
        let Some(last) = last else { return waiting.first().copied() };
        let place = waiting.binary_search(&&last.store);
        if let (Self::DrainFirst, true, Ok(index)) = (self, last.found && last.in_a_row < TURNS_IN_A_ROW_MAX, place) {
            return waiting.get(index).copied();
        }
        let after = match place {
            Ok(index) => index + 1,
            Err(index) => index,
        };
        waiting.get(after).or_else(|| waiting.first()).copied()
    }
}

impl LastTurn {
    /// What is known once `store` has the turn after `last`: until it is told otherwise, it is taken to find something.
    pub fn after(last: Option<Self>, store: &StoreId) -> Self {
        match last {
            Some(last) if last.store == *store => Self { in_a_row: last.in_a_row.saturating_add(1), ..last },
            _ => Self { store: store.clone(), found: true, in_a_row: 1 },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn id(name: impl ToString) -> StoreId {
        StoreId::new(name.to_string()).unwrap()
    }

    fn chosen(selection: Selection, waiting: &str, last: Option<(&str, bool, u32)>) -> String {
        let ids: Vec<_> = waiting.chars().map(id).collect();
        let last = last.map(|(store, found, in_a_row)| LastTurn { store: id(store), found, in_a_row });
        let next = selection.next(&ids.iter().collect::<Vec<_>>(), last.as_ref());
        next.map(ToString::to_string).unwrap_or_default()
    }

    /// OBX-068, IBX-087.
    #[test]
    fn round_robin_goes_on_behind_the_last_one_and_around() {
        let table = [
            ("", None, ""),
            ("abc", None, "a"),
            ("abc", Some(("a", true, 1)), "b"),
            ("abc", Some(("b", false, 9)), "c"),
            ("abc", Some(("c", true, 1)), "a"),
            ("ac", Some(("b", true, 1)), "c"),
            ("ab", Some(("c", true, 1)), "a"),
            ("a", Some(("a", true, 99)), "a"),
            ("", Some(("a", true, 1)), ""),
        ];
        for (waiting, last, next) in table {
            assert_eq!(chosen(Selection::RoundRobin, waiting, last), next, "{waiting}, {last:?}");
        }
    }

    /// OBX-069, IBX-088.
    #[test]
    fn drain_first_stays_until_nothing_is_found_or_its_turns_are_used_up() {
        let table = [
            ("abc", None, "a"),
            ("abc", Some(("b", true, 1)), "b"),
            ("abc", Some(("b", true, TURNS_IN_A_ROW_MAX - 1)), "b"),
            ("abc", Some(("b", true, TURNS_IN_A_ROW_MAX)), "c"),
            ("abc", Some(("b", false, 1)), "c"),
            ("ac", Some(("b", true, 1)), "c"),
            ("b", Some(("b", true, TURNS_IN_A_ROW_MAX)), "b"),
        ];
        for (waiting, last, next) in table {
            assert_eq!(chosen(Selection::DrainFirst, waiting, last), next, "{waiting}, {last:?}");
        }
    }

    #[test]
    fn turns_in_a_row_are_counted_until_another_store_has_one() {
        let first = LastTurn::after(None, &id("a"));
        assert_eq!((first.found, first.in_a_row), (true, 1));
        let second = LastTurn::after(Some(LastTurn { found: false, ..first }), &id("a"));
        assert_eq!((second.found, second.in_a_row), (false, 2));
        assert_eq!(LastTurn::after(Some(second), &id("b")).in_a_row, 1);
    }

    /// Whoever waits all the time gets its turn in time, whoever comes and goes meanwhile.
    fn longest_wait(selection: Selection, turns: &[(BTreeSet<u8>, bool)]) -> usize {
        let patient = id(100);
        let (mut last, mut waited, mut longest) = (None, 0, 0);
        for (others, found) in turns {
            let ids: BTreeSet<_> =
                others.iter().map(|number| id(100 + u16::from(*number))).chain([patient.clone()]).collect();
            let next = selection.next(&ids.iter().collect::<Vec<_>>(), last.as_ref()).unwrap().clone();
            waited = if next == patient { 0 } else { waited + 1 };
            longest = longest.max(waited);
            last = Some(LastTurn { found: *found, ..LastTurn::after(last, &next) });
        }
        longest
    }

    /// OBX-068, OBX-069, IBX-087, IBX-088: nobody starves.
    #[test]
    fn a_store_that_waits_gets_its_turn_whoever_comes_and_goes() {
        let turn = (proptest::collection::btree_set(1_u8..10, 0..9), any::<bool>());
        proptest!(|(turns in proptest::collection::vec(turn, 1..400))| {
            prop_assert!(longest_wait(Selection::RoundRobin, &turns) <= 9);
            prop_assert!(longest_wait(Selection::DrainFirst, &turns) <= 9 * TURNS_IN_A_ROW_MAX as usize);
        });
    }
}
