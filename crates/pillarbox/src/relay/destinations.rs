//! What a route remembers of its destinations: which are gone, and which asked to be left alone. Pure: time comes as an argument.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::clock::Tick;

/// Destinations of each kind that are remembered; more are asked again.
const REMEMBERED_MAX: usize = 10_000;

/// The longest time that a destination is left alone before somebody looks again, whatever it asked for.
const REST_MAX: Duration = Duration::from_secs(3_600);

/// The destinations of one route that are not to be asked now.
#[derive(Debug, Default)]
pub(super) struct Destinations {
    gone: HashSet<String>,
    rests: HashMap<String, Tick>,
}

impl Destinations {
    pub(super) fn is_gone(&self, destination: &str) -> bool {
        self.gone.contains(destination)
    }

    /// It is gone for good; whether that is news.
    pub(super) fn went(&mut self, destination: &str) -> bool {
        self.gone.len() < REMEMBERED_MAX && self.gone.insert(destination.to_owned())
    }

    /// It took a message; whether it had been gone.
    pub(super) fn took(&mut self, destination: &str) -> bool {
        !self.gone.is_empty() && self.gone.remove(destination)
    }

    /// It asked to be left alone for so long; whether that is the beginning of a rest.
    pub(super) fn asked(&mut self, destination: &str, delay: Duration, now: Tick) -> bool {
        let until = now.after(delay.min(REST_MAX));
        if until <= now {
            return false;
        }
        if let Some(rest) = self.rests.get_mut(destination) {
            let is_over = *rest <= now;
            *rest = until.max(*rest);
            return is_over;
        }
        if self.rests.len() >= REMEMBERED_MAX {
            self.rests.retain(|_, rest| *rest > now);
        }
        let is_room = self.rests.len() < REMEMBERED_MAX;
        if is_room {
            self.rests.insert(destination.to_owned(), until);
        }
        is_room
    }

    /// How much longer it is to be left alone; none when it may be asked.
    pub(super) fn rest_left(&mut self, destination: &str, now: Tick) -> Option<Duration> {
        let until = *self.rests.get(destination)?;
        if until <= now {
            self.rests.remove(destination);
            return None;
        }
        Some(until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Tick {
        Tick::default().after(SECOND * seconds)
    }

    #[test]
    fn a_destination_is_gone_until_it_takes_a_message() {
        let mut known = Destinations::default();
        assert_eq!([known.went("a"), known.went("a")], [true, false]);
        assert!(known.is_gone("a") && !known.is_gone("b"));
        assert_eq!([known.took("b"), known.took("a"), known.took("a")], [false, true, false]);
        assert!(!known.is_gone("a"));
    }

    /// The longest of several wishes counts, one line is written about each rest, and none lasts more than an hour.
    #[test]
    fn a_destination_rests_as_long_as_it_asked_for() {
        let mut known = Destinations::default();
        assert!(!known.asked("a", Duration::ZERO, at(0)), "no time is no rest");
        assert_eq!(known.rest_left("a", at(0)), None);
        assert_eq!([10, 5, 20].map(|delay| known.asked("a", SECOND * delay, at(0))), [true, false, false]);
        assert_eq!((known.rest_left("a", at(5)), known.rest_left("b", at(5))), (Some(SECOND * 15), None));
        assert!(known.asked("a", SECOND, at(20)), "another rest");
        assert_eq!((known.rest_left("a", at(20)), known.rest_left("a", at(21))), (Some(SECOND), None));
        assert!(known.asked("a", SECOND * 86_400, at(30)));
        assert_eq!(known.rest_left("a", at(30)), Some(REST_MAX));
    }

    #[test]
    fn only_so_many_destinations_are_remembered() {
        let mut known = Destinations::default();
        let name = |number: usize| format!("https://{number}.example");
        for number in 0..REMEMBERED_MAX {
            assert!(known.went(&name(number)) && known.asked(&name(number), SECOND, at(0)));
        }
        assert!(!known.went("more") && !known.asked("more", SECOND, at(0)));
        assert_eq!((known.is_gone("more"), known.rest_left("more", at(0))), (false, None));
        assert!(known.asked("more", SECOND, at(1)), "those that are over make room");
        assert_eq!(known.rests.len(), 1);
    }
}
