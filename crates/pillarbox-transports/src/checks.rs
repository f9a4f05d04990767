//! Checks of settings that several transports have.

use std::time::Duration;

use pillarbox_core::Problem;

const TIME_MIN: Duration = Duration::from_millis(10);
const TIME_MAX: Duration = Duration::from_secs(3600);

/// A time limit that a call can be held to.
pub(crate) fn time(field: &'static str, time: Duration, problems: &mut Vec<Problem>) {
    if time < TIME_MIN || time > TIME_MAX {
        let limit = if time < TIME_MIN { TIME_MIN } else { TIME_MAX };
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        problems.push(Problem::out_of_range(field, limit, "must be 10 ms to 1 h"));
    }
}

/// A number within its bounds, both included.
pub(crate) fn count(field: &'static str, count: usize, max: usize, problems: &mut Vec<Problem>) {
    if !(1..=max).contains(&count) {
        let limit = if count == 0 { 1 } else { max as u64 };
        problems.push(Problem::out_of_range(field, limit, format!("must be 1 to {max}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_range_that_was_missed_is_named() {
        let mut problems = Vec::new();
        time("timeout", Duration::ZERO, &mut problems);
        time("timeout", Duration::MAX, &mut problems);
        count("ahead", 0, 9, &mut problems);
        count("ahead", 10, 9, &mut problems);
        time("timeout", Duration::from_secs(10), &mut problems);
        count("ahead", 9, 9, &mut problems);
        let limits: Vec<_> = problems.iter().map(|problem| (problem.field(), problem.limit())).collect();
        let expected = [("timeout", 10), ("timeout", 3_600_000), ("ahead", 1), ("ahead", 9)];
        assert_eq!(limits, expected.map(|(field, limit)| (field, Some(limit))));
    }
}
