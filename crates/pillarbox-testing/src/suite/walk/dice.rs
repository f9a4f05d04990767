//! What the dice choose.

use std::time::Duration;

use pillarbox_core::{AfterDead, LeftOut, Order, PartitionCount, Served};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::super::support::*;
use super::{Handed, Walk};
use crate::Harness;

/// Alike for whoever does not look closely.
const TOPICS: [&str; 3] = ["a", "A", "a "];

/// The keys of a walk's messages. In every third walk all have one: then many come back before one that is held.
pub(super) fn keys(rng: &mut StdRng) -> &'static [Option<&'static str>] {
    if rng.random_range(0..3) == 0 { &[Some("k")] } else { &[None, None, Some("k"), Some("K")] }
}

impl<H: Harness> Walk<'_, H> {
    /// One to five messages of one kind, or an old one again.
    ///
    /// Delayed and ready messages are not mixed: which of them gets the lower row is left to the backend.
    pub(super) fn batch(&mut self) -> Vec<Message> {
        let again = self.messages.choose(&mut self.rng).cloned();
        if let Some(again) = again
            && self.rng.random_bool(0.15)
        {
            let times = self.rng.random_range(1..=2);
            return vec![again; times];
        }
        let kind = self.rng.random_range(0..6);
        let count = self.rng.random_range(1..=5);
        let mut batch = Vec::new();
        for _ in 0..count {
            let topic = TOPICS.choose(&mut self.rng).copied().unwrap_or("a");
            let mut message = Message::new(topic, "payload").header("h", "v");
            if let Some(key) = self.keys.choose(&mut self.rng).copied().flatten() {
                message = message.key(key);
            }
            batch.push(match kind {
                0 => message.delay(self.delay()),
                1 => message.expires_in(self.span()),
                2 => {
                    let delay = self.delay();
                    message.delay(delay).expires_in(delay + MINUTE)
                }
                3 if self.rng.random_bool(0.3) => message.expires_in(Duration::ZERO),
                _ => message,
            });
        }
        batch
    }

    pub(super) fn next_claim(&mut self, owner: usize) -> Claim {
        let limit = self.rng.random_range(1..=5);
        let lease = if self.rng.random_bool(0.7) { LEASE } else { HOUR };
        let order = Order { after_dead: self.after_dead(), in_sequence: false };
        Claim::new(self.owners[owner], lease, limit).expect("a legal claim").in_order(order)
    }

    /// Mostly everything, else one of three partitions.
    pub(super) fn served(&mut self) -> Option<Served> {
        let (drawn, count) = (self.rng.random_range(0..9), PartitionCount::new(3).expect("a legal count"));
        (drawn < 3).then(|| Served::only(count, |partition| partition.get() == drawn))
    }

    /// Mostly nothing, else one or two topics.
    pub(super) fn left_out(&mut self) -> LeftOut {
        // Three bits of four: nothing is left out where the fourth is set.
        let drawn = self.rng.random_range(0..16);
        let drawn = if drawn < 8 { drawn } else { 0 };
        LeftOut::new(
            TOPICS.into_iter().enumerate().filter(|(at, _)| drawn & (1 << at) > 0).map(|(_, topic)| topic.into()),
        )
    }

    pub(super) fn after_dead(&mut self) -> AfterDead {
        [AfterDead::Block, AfterDead::Skip, AfterDead::Park].choose(&mut self.rng).copied().unwrap_or_default()
    }

    /// Mostly what the owner got last; sometimes what is stale, another's, named twice or under a wrong fence.
    pub(super) fn settlements(&mut self, owner: usize, may_give_back_at_once: bool) -> Vec<(Handed, Verdict)> {
        let mut asked: Vec<(Handed, Verdict)> = Vec::new();
        for _ in 0..self.rng.random_range(0..=4) {
            let own = self.rng.random_bool(0.85);
            let known: Vec<_> = self.handed.iter().filter(|one| !own || one.owner == owner).copied().collect();
            let recent = &known[known.len().saturating_sub(if self.rng.random_bool(0.8) { 6 } else { 100 })..];
            let Some(mut handed) = recent.choose(&mut self.rng).copied() else { continue };
            if self.rng.random_bool(0.05) {
                handed.fence = Fence::new();
            }
            asked.push((handed, self.verdict(may_give_back_at_once)));
        }
        asked
    }

    pub(super) fn verdict(&mut self, may_give_back_at_once: bool) -> Verdict {
        let at_once = may_give_back_at_once && self.rng.random_bool(0.5);
        let delay = if at_once { Duration::ZERO } else { self.delay() };
        let reason = ["", "e1", "e2"].choose(&mut self.rng).copied().unwrap_or("");
        match self.rng.random_range(0..6) {
            0..2 => Verdict::Ack,
            2 => fail(reason),
            3 => release(delay),
            _ => abandon(delay, reason),
        }
    }

    /// Every delay ends after the one drawn before it: a database whose clock counts milliseconds would see two calls at one
    /// moment, where the model sees them one after the other. A little less than the span, so that moving by it is enough.
    fn delay(&mut self) -> Duration {
        self.delay_count += 1;
        self.span().saturating_sub(Duration::from_micros(1_000_u64.saturating_sub(self.delay_count)))
    }

    /// Whole minutes: real time that passes on one side only never tips a comparison.
    pub(super) fn span(&mut self) -> Duration {
        *[MINUTE, LEASE, HOUR, HOUR, DAY, 8 * DAY].choose(&mut self.rng).expect("there is a choice")
    }
}
