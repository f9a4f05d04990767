//! What a route remembers of its destinations: which are gone, which asked to be left alone, and whose hosts are away. Pure:
//! time comes as an argument.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::clock::Tick;

/// Destinations of each kind that are remembered; more are asked again.
const REMEMBERED_MAX: usize = 10_000;

/// The longest time that a destination is left alone before somebody looks again, whatever it asked for.
const REST_MAX: Duration = Duration::from_secs(3_600);

/// How long a host that is away is left alone: at first, and at the most.
pub(super) const AWAY_FIRST: Duration = Duration::from_secs(1);
const AWAY_MAX: Duration = Duration::from_secs(30);

/// The destinations of one route that are not to be asked now.
#[derive(Debug, Default)]
pub(super) struct Destinations {
    gone: HashSet<String>,
    rests: HashMap<String, Tick>,
    away: HashMap<String, Away>,
}

/// A host that could not be reached.
#[derive(Clone, Copy, Debug)]
struct Away {
    until: Tick,
    rest: Duration,
}

impl Destinations {
    /// Whether nothing is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.rests.is_empty() && self.away.is_empty()
    }

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

    /// Its host could not be reached; whether that is news. It rests twice as long each time, up to a bound.
    pub(super) fn missed(&mut self, destination: &str, now: Tick) -> bool {
        let host = host(destination);
        if let Some(away) = self.away.get_mut(host) {
            // Messages that were on their way together find out together.
            if away.until <= now {
                away.rest = (away.rest * 2).min(AWAY_MAX);
                away.until = now.after(away.rest);
            }
            return false;
        }
        let is_room = self.away.len() < REMEMBERED_MAX;
        if is_room {
            self.away.insert(host.to_owned(), Away { until: now.after(AWAY_FIRST), rest: AWAY_FIRST });
        }
        is_room
    }

    /// Its host is there; whether it had been away.
    pub(super) fn answered(&mut self, destination: &str) -> bool {
        !self.away.is_empty() && self.away.remove(host(destination)).is_some()
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
        // An absence is remembered beyond its rest: the next one is longer.
        let away = self.away.get(host(destination)).map(|away| away.until).filter(|until| *until > now);
        let rest = self.rests.get(destination).copied();
        if rest.is_some_and(|until| until <= now) {
            self.rests.remove(destination);
        }
        let until = rest.filter(|until| *until > now).max(away)?;
        Some(until.since(now))
    }
}

/// The part of an address that names who is asked: everything before the path.
pub(super) fn host(destination: &str) -> &str {
    let start = destination.find("://").map_or(0, |at| at + 3);
    let end = destination[start..].find(['/', '?', '#']).map_or(destination.len(), |at| start + at);
    &destination[..end]
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

    /// All paths of a host rest together, twice as long each time, until it answers.
    #[test]
    fn a_host_that_is_away_is_looked_for_ever_less_often() {
        let mut known = Destinations::default();
        let missed = |known: &mut Destinations, name: &str, now| (known.missed(name, now), known.rest_left(name, now));
        assert_eq!(missed(&mut known, "https://a/1?x", at(0)), (true, Some(SECOND)));
        assert_eq!(missed(&mut known, "https://a/2", at(0)), (false, Some(SECOND)), "they were on their way together");
        assert_eq!(
            (known.rest_left("https://a/3", at(0)), known.rest_left("https://b/1", at(0))),
            (Some(SECOND), None)
        );
        assert_eq!(known.rest_left("https://a/3", at(1)), None, "somebody may look");
        let mut now = 1;
        let rests = [2, 4, 8, 16, 30, 30].map(|rest| {
            let missed = missed(&mut known, "https://a/1", at(now));
            now += rest;
            missed
        });
        assert_eq!(rests, [2, 4, 8, 16, 30, 30].map(|rest| (false, Some(SECOND * rest))));
        assert_eq!([known.answered("https://a"), known.answered("https://a/1")], [true, false]);
        assert_eq!(missed(&mut known, "https://a/1", at(now)), (true, Some(SECOND)));
        assert!(known.asked("https://a/1", SECOND * 10, at(now)));
        assert_eq!(known.rest_left("https://a/1", at(now)), Some(SECOND * 10), "the longer of both counts");
    }

    #[test]
    fn the_host_of_an_address_ends_before_its_path() {
        let hosts = ["https://a:1/b/c", "https://a:1?b", "https://a:1#b", "https://a:1", "subject.name"].map(host);
        assert_eq!(hosts, ["https://a:1", "https://a:1", "https://a:1", "https://a:1", "subject.name"]);
    }

    #[test]
    fn only_so_many_destinations_are_remembered() {
        let mut known = Destinations::default();
        let name = |number: usize| format!("https://{number}.example");
        for number in 0..REMEMBERED_MAX {
            assert!(known.went(&name(number)) && known.asked(&name(number), SECOND, at(0)));
        }
        for number in 0..REMEMBERED_MAX {
            assert!(known.missed(&name(number), at(0)));
        }
        assert!(!known.went("more") && !known.asked("more", SECOND, at(0)));
        assert!(!known.missed("more", at(0)));
        assert_eq!((known.is_gone("more"), known.rest_left("more", at(0))), (false, None));
        assert!(known.asked("more", SECOND, at(1)), "those that are over make room");
        assert_eq!(known.rests.len(), 1);
    }
}
