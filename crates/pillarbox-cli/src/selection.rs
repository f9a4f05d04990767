//! Which messages a command is about.

use std::time::{Duration, SystemTime};

use clap::Args;
use pillarbox::WorkId;
use pillarbox::admin::Filter;
use pillarbox::wire::rfc3339;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::exit::Failure;
use crate::store_args::{Opened, Queue, StoreArgs};

#[derive(Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    store: StoreArgs,
    /// Those of the inbox, not of the outbox.
    #[arg(long)]
    pub(crate) inbox: bool,
    #[command(flatten)]
    only: Only,
    /// Print one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What narrows a selection; all of it must hold.
#[derive(Args)]
pub(crate) struct Only {
    /// Only these, by the number that the lists show; can be repeated.
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<i64>,
    /// Only exactly this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Only those with exactly this correlation id.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Only those whose last error contains this text; case counts. What could not be read has errors with `decode:`.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only those that have been in their state for longer, such as 90s, 15m, 2h, 7d or 2026-01-31T09:30:00Z; what still waits
    /// counts from when it was stored.
    #[arg(long, value_name = "AGE", value_parser = parse_age, overrides_with = "older_than")]
    older_than: Option<Duration>,
    /// Only those that have been in their state for less.
    #[arg(long, value_name = "AGE", value_parser = parse_age, overrides_with = "newer_than")]
    newer_than: Option<Duration>,
}

impl Selection {
    /// The store, and the queue that is meant.
    pub(crate) async fn open(&self) -> Result<(Opened, Queue), Failure> {
        let opened = self.store.open().await?;
        let queue = opened.queue(self.inbox).await?;
        Ok((opened, queue))
    }

    pub(crate) fn filter(&self) -> Filter {
        let Only { ids, topic, correlation_id, error, older_than, newer_than } = &self.only;
        Filter {
            work_ids: ids.iter().copied().map(WorkId::from_i64).collect(),
            topic: topic.clone(),
            correlation_id: correlation_id.clone(),
            error_contains: error.clone(),
            older_than: *older_than,
            newer_than: *newer_than,
        }
    }
}

/// A whole number and its unit, such as `15m`, or an instant that is over, as RFC 3339 has it.
pub(crate) fn parse_age(text: &str) -> Result<Duration, String> {
    if let Ok(at) = OffsetDateTime::parse(text, &Rfc3339) {
        return SystemTime::now().duration_since(at.into()).map_err(|_| "that is still to come".to_owned());
    }
    let expected = || {
        "expected a whole number and one of s, m, h, d, such as 15m, or an instant such as 2026-01-31T09:30:00Z"
            .to_owned()
    };
    let unit = text.chars().last().ok_or_else(expected)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(expected()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| expected())?;
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

/// So long ago, when it was that moment: an instant that [`parse_age`] understands.
pub(crate) fn ago(age: Duration, moment: SystemTime) -> Option<String> {
    rfc3339(moment.checked_sub(age)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("2h", 7_200), ("7d", 604_800), ("0s", 0)] {
            assert_eq!(parse_age(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "s", "15", "1.5h", "-1s", "2 h", "7w", "1ä"] {
            assert!(parse_age(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_instant_means_the_same_later_on() {
        let moment = SystemTime::now() - Duration::from_secs(60);
        let age = Duration::from_secs(7_200);
        let parsed = parse_age(&ago(age, moment).unwrap()).unwrap();
        assert!(parsed >= age + Duration::from_secs(60), "{parsed:?}");
        assert!(parsed < age + Duration::from_secs(3_600), "{parsed:?}");
        assert_eq!(parse_age("9999-01-01T00:00:00Z"), Err("that is still to come".to_owned()));
        assert_eq!(ago(Duration::MAX, moment), None);
    }
}
