//! Messages per second, from two looks at the counts.

use std::collections::BTreeMap;
use std::time::Duration;

use pillarbox::admin::{Counts, Overview};

/// What came and what was delivered in one topic, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) stored: f64,
    pub(super) done: f64,
}

/// The rates of all topics; none before the second look.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Rates {
    topics: BTreeMap<String, Rate>,
}

impl Rates {
    /// Counts fall when messages are purged or deleted: what cannot be told is shown as nothing, never as less.
    pub(super) fn between(before: &Overview, after: &Overview, took: Duration) -> Self {
        let seconds = took.as_secs_f64().max(0.001);
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let counts = |topic: &str| {
            let found = before.topics.iter().find(|known| known.topic == topic);
            found.map_or(Counts::default(), |known| known.counts)
        };
        let topics = after.topics.iter().map(|topic| {
            let (old, new) = (counts(&topic.topic), topic.counts);
            (topic.topic.clone(), Rate { stored: rate(all(old), all(new)), done: rate(old.done, new.done) })
        });
        Self { topics: topics.collect() }
    }

    pub(super) fn of(&self, topic: &str) -> Option<Rate> {
        self.topics.get(topic).copied()
    }

    pub(super) fn total(&self) -> Option<Rate> {
        let sum = |sum: Rate, one: &Rate| Rate { stored: sum.stored + one.stored, done: sum.done + one.done };
        (!self.topics.is_empty()).then(|| self.topics.values().fold(Rate::default(), sum))
    }
}

fn all(counts: Counts) -> u64 {
    counts.pending + counts.processing + counts.done + counts.dead
}

#[cfg(test)]
mod tests {
    use pillarbox::admin::TopicCounts;

    use super::*;

    fn overview(topics: &[(&str, [u64; 4])]) -> Overview {
        let topic = |(topic, [pending, processing, done, dead]): &(&str, [u64; 4])| TopicCounts {
            topic: (*topic).to_owned(),
            counts: Counts { pending: *pending, processing: *processing, done: *done, dead: *dead },
        };
        Overview { topics: topics.iter().map(topic).collect(), ..Overview::default() }
    }

    #[test]
    fn two_looks_make_a_rate() {
        let before = overview(&[("a", [10, 0, 100, 0]), ("b", [0, 0, 50, 0])]);
        let after = overview(&[("a", [30, 2, 108, 0]), ("b", [0, 0, 10, 0]), ("c", [4, 0, 0, 0])]);
        let rates = Rates::between(&before, &after, Duration::from_secs(2));
        assert_eq!(rates.of("a"), Some(Rate { stored: 15.0, done: 4.0 }));
        assert_eq!(rates.of("b"), Some(Rate::default()), "a purge is no rate");
        assert_eq!(rates.of("c"), Some(Rate { stored: 2.0, done: 0.0 }));
        assert_eq!(rates.total(), Some(Rate { stored: 17.0, done: 4.0 }));
        assert_eq!(Rates::default().total(), None);
    }
}
