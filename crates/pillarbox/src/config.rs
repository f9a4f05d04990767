//! The settings of a runtime, their defaults and their limits.

use std::time::Duration;

use pillarbox_core::lease::{CLAIM_LIMIT_MAX, LEASE_DEFAULT, LEASE_MAX};
use pillarbox_core::retry::RetryPolicy;
use pillarbox_core::{Invalid, Order, Problem};

/// What becomes of a message that no handler is registered for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownTopics {
    /// Tried again with backoff, with a warning: another instance, or the next release, may know it.
    #[default]
    Retry,
    /// Dead at once.
    Dead,
    /// Left to others: given back without spending an attempt.
    Leave,
}

/// Every setting of a runtime. The builder's methods set and explain them.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) worker_count: usize,
    pub(crate) hot_capacity: usize,
    pub(crate) cold_capacity: usize,
    /// Bytes of the payloads that are held.
    pub(crate) held_bytes_max: usize,
    pub(crate) claim_limit: u32,
    pub(crate) lease: Duration,
    pub(crate) run_time_max: Duration,
    /// Between two claims that found nothing, when nobody wakes us.
    pub(crate) poll_interval: Duration,
    /// The same while wake-ups work.
    pub(crate) idle_interval: Duration,
    pub(crate) reap_interval: Duration,
    pub(crate) purge_interval: Duration,
    /// Store calls of the dispatcher at one time.
    pub(crate) store_call_count: usize,
    pub(crate) retry: RetryPolicy,
    pub(crate) unknown_topics: UnknownTopics,
    /// The least time between two settle calls while many come; a lone one goes at once.
    pub(crate) settle_interval: Duration,
    /// How long a route pauses when its destination is first found down.
    pub(crate) pause_first: Duration,
    /// The longest such pause.
    pub(crate) pause_max: Duration,
    pub(crate) order: Order,
    /// The longest wait between two tries while the store is away.
    pub(crate) outage_max: Duration,
    /// Polls back off to the idle interval also without wake-ups.
    pub(crate) backs_off: bool,
    /// A claim that found anything is followed by another one.
    pub(crate) drains: bool,
    /// Wake-ups of other processes are subscribed to.
    pub(crate) listens: bool,
    /// How old what is known of an operator's pauses may be when a message begins; none when they are not asked for.
    pub(crate) obey_within: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            worker_count: 4,
            hot_capacity: 1000,
            cold_capacity: 1000,
            held_bytes_max: 64 * 1024 * 1024,
            claim_limit: 200,
            lease: LEASE_DEFAULT,
            run_time_max: Duration::from_secs(5 * 60),
            poll_interval: Duration::from_millis(500),
            idle_interval: Duration::from_secs(10),
            reap_interval: Duration::from_secs(30),
            purge_interval: Duration::from_secs(60),
            store_call_count: 2,
            retry: RetryPolicy::default(),
            unknown_topics: UnknownTopics::default(),
            settle_interval: Duration::from_millis(2),
            pause_first: Duration::from_secs(1),
            pause_max: Duration::from_secs(30),
            order: Order::default(),
            outage_max: Duration::from_secs(1),
            backs_off: false,
            drains: false,
            listens: true,
            obey_within: None,
        }
    }
}

/// Workers, and calls to a store at one time, at the most.
pub(crate) const WORKERS_MAX: usize = 10_000;

/// Messages in a queue of a runtime, or in one batch, at the most.
pub(crate) const CAPACITY_MAX: usize = 1_000_000;

/// Bytes of payloads in a runtime at the most: a tebibyte.
pub(crate) const HELD_BYTES_MAX: usize = 1 << 40;

/// The longest of the intervals and run times: a day.
pub(crate) const INTERVAL_MAX: Duration = LEASE_MAX;

/// The shortest lease of a runtime: renewing needs some room before its end.
pub(crate) const LEASE_MIN: Duration = Duration::from_millis(100);

impl Config {
    /// Names every setting that is out of its range.
    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        let millisecond = Duration::from_millis(1);
        let mut problems = Vec::new();
        for (field, value, max) in [
            ("worker_count", self.worker_count, WORKERS_MAX),
            ("hot_capacity", self.hot_capacity, CAPACITY_MAX),
            ("cold_capacity", self.cold_capacity, CAPACITY_MAX),
            ("held_bytes_max", self.held_bytes_max, HELD_BYTES_MAX),
            ("claim_limit", usize::try_from(self.claim_limit).unwrap_or(usize::MAX), limit_of_claims()),
            ("store_call_count", self.store_call_count, 64),
        ] {
            count_within(field, value, 1, max, &mut problems);
        }
        for (field, value, min) in [
            ("lease", self.lease, LEASE_MIN),
            ("run_time_max", self.run_time_max, millisecond),
            ("poll_interval", self.poll_interval, millisecond),
            ("idle_interval", self.idle_interval, millisecond),
            ("reap_interval", self.reap_interval, millisecond),
            ("purge_interval", self.purge_interval, millisecond),
            ("pause_first", self.pause_first, millisecond),
            ("pause_max", self.pause_max, millisecond),
        ] {
            time_within(field, value, min, INTERVAL_MAX, &mut problems);
        }
        if let Some(within) = self.obey_within {
            time_within("obey_pauses", within, millisecond, INTERVAL_MAX, &mut problems);
        }
        time_within("settle_interval", self.settle_interval, Duration::ZERO, Duration::from_secs(1), &mut problems);
        if self.pause_first > self.pause_max {
            problems.push(Problem::malformed("pause_first", "must not be longer than pause_max"));
        }
        Invalid::unless_empty(problems)
    }
}

fn limit_of_claims() -> usize {
    usize::try_from(CLAIM_LIMIT_MAX).unwrap_or(usize::MAX)
}

/// Adds a problem when a number is out of its range.
pub(crate) fn count_within(field: &'static str, value: usize, min: usize, max: usize, problems: &mut Vec<Problem>) {
    if !(min..=max).contains(&value) {
        let missed = if value < min { min } else { max };
        let complaint = format!("must be {min} to {max}, is {value}");
        problems.push(Problem::out_of_range(field, missed as u64, complaint));
    }
}

/// Adds a problem when a duration is out of its range.
pub(crate) fn time_within(
    field: &'static str,
    value: Duration,
    min: Duration,
    max: Duration,
    problems: &mut Vec<Problem>,
) {
    if !(min..=max).contains(&value) {
        let missed = if value < min { min } else { max };
        let complaint = format!("must be {min:?} to {max:?}, is {value:?}");
        problems.push(Problem::out_of_range(field, u64::try_from(missed.as_millis()).unwrap_or(u64::MAX), complaint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HOT-07, HOT-09.
    #[test]
    fn the_defaults_are_the_contract() {
        let config = Config::default();
        assert!(config.validate().is_ok());
        assert_eq!((config.worker_count, config.hot_capacity, config.cold_capacity), (4, 1000, 1000));
        assert_eq!((config.claim_limit, config.store_call_count), (200, 2));
        assert_eq!((config.lease, config.run_time_max), (Duration::from_secs(30), Duration::from_secs(300)));
        assert_eq!(config.unknown_topics, UnknownTopics::Retry);
    }

    #[test]
    fn every_setting_out_of_range_is_named() {
        let config = Config {
            worker_count: 0,
            hot_capacity: usize::MAX,
            cold_capacity: 0,
            held_bytes_max: 0,
            claim_limit: 0,
            lease: Duration::ZERO,
            run_time_max: Duration::ZERO,
            poll_interval: Duration::ZERO,
            idle_interval: Duration::MAX,
            reap_interval: Duration::ZERO,
            purge_interval: Duration::ZERO,
            store_call_count: 0,
            settle_interval: Duration::MAX,
            pause_first: Duration::from_secs(60),
            pause_max: Duration::ZERO,
            ..Config::default()
        };
        let invalid = config.validate().unwrap_err();
        let mut fields: Vec<_> = invalid.problems().iter().map(Problem::field).collect();
        fields.sort_unstable();
        let mut expected = [
            "worker_count",
            "hot_capacity",
            "cold_capacity",
            "held_bytes_max",
            "claim_limit",
            "lease",
            "run_time_max",
            "poll_interval",
            "idle_interval",
            "reap_interval",
            "purge_interval",
            "store_call_count",
            "settle_interval",
            "pause_first",
            "pause_max",
        ];
        expected.sort_unstable();
        assert_eq!(fields, expected);
        let text = invalid.to_string();
        assert!(text.contains("worker_count must be 1 to 10000, is 0"), "{text}");
        assert!(text.contains("lease must be 100ms to 86400s, is 0ns"), "{text}");
    }
}
