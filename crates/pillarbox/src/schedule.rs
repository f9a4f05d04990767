//! What the next call to the store should be, and when. Pure: the loops in `poller.rs` act on it.

use std::time::Duration;

use crate::clock::{Tick, spread};
use crate::due::DueTimes;

/// The first wait between two tries while the store is away, before jitter.
const OUTAGE_FIRST: Duration = Duration::from_millis(50);

/// How long a try may take before another one is made beside it.
const TRY_MAX: Duration = Duration::from_secs(5);

/// The intervals of a runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) poll_interval: Duration,
    pub(crate) idle_interval: Duration,
    pub(crate) settle_interval: Duration,
    /// Calls that may claim at once while claims come back full.
    pub(crate) call_count: usize,
    /// The longest wait between two tries while the store is away.
    pub(crate) outage_max: Duration,
    /// Polls back off to the idle interval also without wake-ups.
    pub(crate) backs_off: bool,
    /// A claim that found anything is followed by another one, until one finds nothing.
    pub(crate) drains: bool,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Claim, and settle what there is in the same call.
    Claim,
    /// Settle what there is.
    Settle,
    /// Nothing before this moment.
    Wait(Tick),
}

/// What is true at the moment of the question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// Verdicts wait to be written.
    pub(crate) has_verdicts: bool,
    /// A claim makes sense from this moment on: there is room, and a route that runs.
    pub(crate) may_claim_at: Tick,
}

/// When the store was last asked, what came of it, and why it should be asked again.
#[derive(Debug)]
pub(crate) struct Schedule {
    timing: Timing,
    wanted: usize,
    next_poll: Tick,
    interval: Duration,
    has_wakeups: bool,
    settle_after: Tick,
    due: DueTimes,
    outage: Option<Outage>,
    is_closed: bool,
    /// Claims that began, and the last one that came back with nothing.
    began_count: u64,
    empty_since: u64,
}

/// The store is away.
#[derive(Clone, Copy, Debug)]
struct Outage {
    tries: u32,
    retry_at: Tick,
}

impl Schedule {
    pub(crate) fn new(timing: Timing) -> Self {
        Self {
            timing,
            wanted: 1,
            next_poll: Tick::default(),
            // Where polls back off, a store counts as idle until it shows that it is not.
            interval: if timing.backs_off { timing.idle_interval } else { timing.poll_interval },
            has_wakeups: false,
            settle_after: Tick::default(),
            due: DueTimes::default(),
            outage: None,
            is_closed: false,
            began_count: 0,
            empty_since: 0,
        }
    }

    /// What to do now. Changes nothing: [`begin_claim`](Self::begin_claim) and [`begin_settle`](Self::begin_settle) do.
    pub(crate) fn step(&self, now: Tick, situation: Situation) -> Step {
        if let Some(outage) = self.outage
            && now < outage.retry_at
        {
            return Step::Wait(outage.retry_at);
        }
        let claim_at = self.claim_at(now).max(situation.may_claim_at);
        if claim_at <= now {
            return Step::Claim;
        }
        if situation.has_verdicts && self.settle_after <= now {
            return Step::Settle;
        }
        Step::Wait(if situation.has_verdicts { claim_at.min(self.settle_after) } else { claim_at })
    }

    /// Whether a claim begins now; of several that found the same reason only one does. The number names the claim.
    pub(crate) fn begin_claim(&mut self, now: Tick) -> Option<u64> {
        if self.claim_at(now) > now || self.outage.is_some_and(|outage| now < outage.retry_at) {
            return None;
        }
        self.due.take(now);
        self.wanted = self.wanted.saturating_sub(1);
        // Until the answer comes the regular poll is not due again.
        self.next_poll = now.after(self.interval);
        self.hold_off_others(now);
        self.began_count += 1;
        Some(self.began_count)
    }

    /// A call that only settles begins.
    pub(crate) fn begin_settle(&mut self, now: Tick) {
        self.settle_after = now.after(self.timing.settle_interval);
        self.hold_off_others(now);
    }

    /// The call with verdicts took this long: the next one that only settles leaves the store four times as long alone.
    pub(crate) fn settled(&mut self, now: Tick, took: Duration) {
        self.outage = None;
        let interval = self.timing.settle_interval;
        self.settle_after = now.after(interval.max(took.saturating_mul(4)).min(interval.saturating_mul(10)));
    }

    /// A claim came back.
    pub(crate) fn claimed(&mut self, now: Tick, claim: u64, count: usize, limit: usize, dice: f64) {
        self.outage = None;
        if count >= limit || (count > 0 && self.timing.drains) {
            self.wanted = self.wanted.max(self.timing.call_count);
        }
        if count > 0 {
            self.interval = self.timing.poll_interval;
        } else {
            self.empty_since = self.empty_since.max(claim);
            let may_idle = self.has_wakeups || self.timing.backs_off;
            let longest = if may_idle { self.timing.idle_interval } else { self.timing.poll_interval };
            self.interval = self.interval.saturating_mul(2).min(longest.max(self.timing.poll_interval));
        }
        self.next_poll = now.after(self.pause(claim, dice));
    }

    /// How long the store is left alone. The first time many that began together part.
    fn pause(&self, claim: u64, dice: f64) -> Duration {
        let is_first = claim == 1 && self.timing.backs_off;
        if is_first && self.interval > self.timing.poll_interval {
            return self.interval.mul_f64(dice.clamp(0.0, 1.0)).max(self.timing.poll_interval);
        }
        spread(self.interval, dice)
    }

    /// A call failed. Whether the store was there until now.
    pub(crate) fn failed(&mut self, now: Tick, was_claim: bool, dice: f64) -> bool {
        let tries = self.outage.map_or(0, |outage| outage.tries);
        let pause = OUTAGE_FIRST.saturating_mul(1 << tries.min(10)).min(self.timing.outage_max);
        let retry_at = now.after(pause.mul_f64(0.5 + 0.5 * dice.clamp(0.0, 1.0)));
        self.outage = Some(Outage { tries: tries.saturating_add(1), retry_at });
        if was_claim {
            self.wanted = self.wanted.max(1);
        }
        tries == 0
    }

    /// Whether the store is away.
    pub(crate) fn is_out(&self) -> bool {
        self.outage.is_some()
    }

    /// Somebody says that messages wait.
    pub(crate) fn nudge(&mut self) {
        self.wanted = self.wanted.max(1);
    }

    /// Something can be claimed after `delay`.
    pub(crate) fn comes_back(&mut self, now: Tick, delay: Duration) {
        if delay.is_zero() {
            self.nudge();
        } else {
            self.due.add(now, delay);
        }
    }

    /// Wake-ups of other processes arrive, or do so no longer.
    pub(crate) fn set_wakeups(&mut self, has_wakeups: bool) {
        self.has_wakeups = has_wakeups;
        if !has_wakeups {
            self.interval = self.timing.poll_interval;
            self.wanted = self.wanted.max(1);
        }
    }

    pub(crate) fn has_wakeups(&self) -> bool {
        self.has_wakeups
    }

    /// No claim begins any more.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether a claim is called for already.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted > 0
    }

    /// Claims that began so far.
    pub(crate) fn began_count(&self) -> u64 {
        self.began_count
    }

    /// Whether a claim that began after `mark` found nothing, and no other one is called for.
    pub(crate) fn is_empty_since(&self, mark: u64) -> bool {
        self.empty_since > mark && self.wanted == 0
    }

    fn claim_at(&self, now: Tick) -> Tick {
        match (self.is_closed, self.wanted) {
            (true, _) => Tick::NEVER,
            (false, 0) => self.next_poll.min(self.due.first().unwrap_or(Tick::NEVER)),
            (false, _) => now,
        }
    }

    /// While the store is away one call at a time tries it.
    fn hold_off_others(&mut self, now: Tick) {
        if let Some(outage) = &mut self.outage {
            outage.retry_at = now.after(TRY_MAX);
        }
    }
}

#[cfg(test)]
mod tests;
