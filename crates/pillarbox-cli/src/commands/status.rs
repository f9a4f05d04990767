//! `pillarbox status`: the state of a store at a glance, for people and for monitors.

use clap::Args;
use pillarbox::StoreId;
use pillarbox::admin::{Counts, Overview};
use pillarbox::schema::SchemaPolicy;
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output::{Paint, age, escaped, grouped, json_line, say};
use crate::store_args::StoreArgs;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let check = options.store.options(SchemaPolicy::Check)?;
    let address = options.store.address()?.existing();
    let store = address.connect(check).await?;
    let overview = store.overview().await.map_err(|error| address.failure(&error))?;
    let health = Health::of(&overview);
    let text = match options.json {
        true => json_line(&as_json(store.id(), &overview, &health)),
        false => as_text(store.id(), &overview, &health, Paint::of_stdout()),
    };
    say(&text)?;
    Ok(health.exit())
}

/// What an operator should think of it.
#[derive(Debug, PartialEq, Eq)]
enum Health {
    Fine,
    Warning(String),
    Critical(String),
}

impl Health {
    fn of(overview: &Overview) -> Self {
        if overview.total().dead > 0 {
            return Self::Critical("dead > 0".into());
        }
        match overview.expired_lease_count {
            0 => Self::Fine,
            _ => Self::Warning("leases ran out, and nobody has taken the messages over yet".into()),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Warning(_) => "warning",
            Self::Critical(_) => "critical",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Fine => None,
            Self::Warning(reason) | Self::Critical(reason) => Some(reason),
        }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Fine => Exit::Fine,
            Self::Warning(_) => Exit::Warning,
            Self::Critical(_) => Exit::Critical,
        }
    }

    fn painted(&self, paint: Paint) -> String {
        match self {
            Self::Fine => paint.good("✓ fine"),
            Self::Warning(reason) => paint.warning(&format!("! warning: {reason}")),
            Self::Critical(reason) => paint.bad(&format!("✗ critical: {reason}")),
        }
    }
}

fn as_text(store: &StoreId, overview: &Overview, health: &Health, paint: Paint) -> String {
    let total = overview.total();
    let oldest = overview.oldest_pending.map(|waits| format!(" (oldest {})", age(waits))).unwrap_or_default();
    let mut text = format!(
        "store {}   pending {}{oldest}   in flight {}   dead {}   {}\n",
        escaped(store.as_str()),
        grouped(total.pending),
        grouped(total.processing),
        grouped(total.dead),
        health.painted(paint),
    );
    if overview.active_lease_count + overview.expired_lease_count > 0 {
        let (active, expired) = (grouped(overview.active_lease_count), grouped(overview.expired_lease_count));
        text.push_str(&format!("leases: {active} running, {expired} ran out\n"));
    }
    if !overview.topics.is_empty() {
        text.push('\n');
        text.push_str(&topics(overview));
    }
    text
}

fn topics(overview: &Overview) -> String {
    let mut rows = vec![["topic", "pending", "processing", "done", "dead"].map(str::to_owned)];
    for topic in &overview.topics {
        let Counts { pending, processing, done, dead } = topic.counts;
        let [pending, processing, done, dead] = [pending, processing, done, dead].map(grouped);
        rows.push([escaped(&topic.topic), pending, processing, done, dead]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        let [topic, numbers @ ..] = row;
        let numbers: String =
            numbers.iter().zip(&widths[1..]).map(|(number, &width)| format!("   {number:>width$}")).collect();
        format!("{topic:<width$}{numbers}\n", width = widths[0])
    };
    rows.iter().map(line).collect()
}

fn as_json(store: &StoreId, overview: &Overview, health: &Health) -> Value {
    let counts = |counts: Counts| {
        let Counts { pending, processing, done, dead } = counts;
        json!({ "pending": pending, "processing": processing, "done": done, "dead": dead })
    };
    let topics = overview.topics.iter().map(|topic| {
        let mut entry = counts(topic.counts);
        entry["topic"] = topic.topic.as_str().into();
        entry
    });
    json!({
        "store": store.as_str(),
        "health": health.word(),
        "reason": health.reason(),
        "total": counts(overview.total()),
        "oldest_pending_seconds": overview.oldest_pending.map(|waits| waits.as_secs_f64()),
        "active_lease_count": overview.active_lease_count,
        "expired_lease_count": overview.expired_lease_count,
        "topics": topics.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pillarbox::admin::TopicCounts;

    use super::*;

    fn overview(dead: u64, expired_lease_count: u64) -> Overview {
        let counts = Counts { pending: 1_204, processing: 96, done: 7, dead };
        Overview {
            topics: vec![TopicCounts { topic: "order\x1b[2J".into(), counts }],
            oldest_pending: Some(Duration::from_secs(2)),
            active_lease_count: 96,
            expired_lease_count,
        }
    }

    #[test]
    fn dead_messages_are_critical_and_lost_leases_a_warning() {
        let table = [((0, 0), Exit::Fine), ((0, 1), Exit::Warning), ((1, 0), Exit::Critical), ((1, 1), Exit::Critical)];
        for ((dead, expired), exit) in table {
            assert_eq!(Health::of(&overview(dead, expired)).exit(), exit, "dead {dead}, expired {expired}");
        }
    }

    #[test]
    fn the_text_is_aligned_and_harmless() {
        let overview = overview(40_112, 0);
        let id = StoreId::new("sqlite:shop.db").unwrap();
        let text = as_text(&id, &overview, &Health::of(&overview), Paint::OFF);
        let expected = "\
store sqlite:shop.db   pending 1,204 (oldest 2 s)   in flight 96   dead 40,112   ✗ critical: dead > 0
leases: 96 running, 0 ran out

topic            pending   processing   done     dead
order\\u{1b}[2J     1,204           96      7   40,112
";
        assert_eq!(text, expected);
    }
}
