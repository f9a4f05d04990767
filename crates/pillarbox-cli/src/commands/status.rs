//! `pillarbox status`: the state of a store at a glance, for people and for monitors.

use clap::Args;
use pillarbox::admin::{Counts, Overview};
use pillarbox::inbox::RECORDS_MAX;
use pillarbox::{AnyInbox, OutboxAdmin, OutboxStore, StoreId};
use serde_json::{Value, json};

use crate::blocked::Blocked;
use crate::exit::{Exit, Failure};
use crate::instances::Instances;
use crate::output::{Paint, Side, age, escaped, grouped, json_line, say, table};
use crate::paused::Paused;
use crate::store_args::{Address, StoreArgs};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    thresholds: Thresholds,
}

/// Above what a queue needs attention. Dead messages are critical always.
#[derive(Args, Clone, Copy)]
struct Thresholds {
    /// Warn when more messages wait than this.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    pending_warning: u64,
    /// Critical when more messages wait than this.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pending_critical: u64,
    /// Warn when a message that is due has waited longer than this.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    oldest_warning: u64,
    /// Critical when a message that is due has waited longer than this.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    oldest_critical: u64,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let opened = options.store.open().await?;
    let queue = opened.queue(false).await?;
    let outbox = Status::of(&opened.address, &*queue.store, &*queue.admin, options.thresholds).await?;
    let inbox = match opened.inbox().await? {
        Some(inbox) => Some(Status::of_inbox(&opened.address, &*inbox, options.thresholds).await?),
        None => None,
    };
    let text = if options.json {
        let mut value = outbox.as_json();
        value["inbox"] = inbox.as_ref().map(Status::as_json).into();
        json_line(&value)
    } else {
        let paint = Paint::of_stdout();
        let inbox = inbox.as_ref().map(|inbox| format!("\n{}", inbox.as_text(paint)));
        outbox.as_text(paint) + &inbox.unwrap_or_default()
    };
    say(&text)?;
    let exit = outbox.health.exit();
    Ok(inbox.map_or(exit, |inbox| exit.max(inbox.health.exit())))
}

/// One queue at a glance.
struct Status {
    id: StoreId,
    overview: Overview,
    /// Messages of an inbox that came again with another content, as far as they were counted.
    mismatch_count: Option<usize>,
    paused: Paused,
    /// None where nobody keeps a list.
    instances: Option<Instances>,
    blocked: Blocked,
    health: Health,
}

impl Status {
    async fn of(
        address: &Address,
        queue: &dyn OutboxStore,
        admin: &dyn OutboxAdmin,
        thresholds: Thresholds,
    ) -> Result<Self, Failure> {
        let failure = |error| address.failure(&error);
        let overview = admin.overview().await.map_err(failure)?;
        let health = Health::of(&overview, thresholds);
        Ok(Self {
            id: queue.id().clone(),
            overview,
            mismatch_count: None,
            paused: Paused::of(queue).await.map_err(failure)?,
            instances: Instances::of(queue).await.map_err(failure)?,
            blocked: Blocked::of(admin).await.map_err(failure)?,
            health,
        })
    }

    async fn of_inbox(address: &Address, inbox: &dyn AnyInbox, thresholds: Thresholds) -> Result<Self, Failure> {
        let queue = Self::of(address, &*inbox.queue(), &*inbox.admin(), thresholds).await?;
        let mismatches = inbox.mismatches(None, RECORDS_MAX).await.map_err(|error| address.failure(&error))?;
        Ok(Self { id: inbox.id().clone(), mismatch_count: Some(mismatches.len()), ..queue })
    }
}

/// What an operator should think of it.
#[derive(Debug, PartialEq, Eq)]
enum Health {
    Fine,
    Warning(String),
    Critical(String),
}

impl Health {
    fn of(overview: &Overview, thresholds: Thresholds) -> Self {
        let (pending, oldest) = (overview.total().pending, overview.oldest_pending.unwrap_or_default().as_secs());
        let many = |limit: u64| (pending > limit).then(|| format!("pending > {}", grouped(limit)));
        let old = |limit: u64| (oldest > limit).then(|| format!("oldest > {limit} s"));
        let dead = (overview.total().dead > 0).then(|| "dead > 0".to_owned());
        let lost = || "leases ran out, and nobody has taken the messages over yet".to_owned();
        let critical = dead.or_else(|| old(thresholds.oldest_critical)).or_else(|| many(thresholds.pending_critical));
        let warning = old(thresholds.oldest_warning).or_else(|| many(thresholds.pending_warning));
        match (critical, warning.or_else(|| (overview.expired_lease_count > 0).then(lost))) {
            (Some(reason), _) => Self::Critical(reason),
            (None, Some(reason)) => Self::Warning(reason),
            (None, None) => Self::Fine,
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

impl Status {
    fn as_text(&self, paint: Paint) -> String {
        let Self { id, overview, health, .. } = self;
        let total = overview.total();
        let oldest = overview.oldest_pending.map(|waits| format!(" (oldest {})", age(waits))).unwrap_or_default();
        let mut text = format!(
            "store {}   pending {}{oldest}   in flight {}   dead {}   {}{}\n",
            escaped(id.as_str()),
            grouped(total.pending),
            grouped(total.processing),
            grouped(total.dead),
            self.mismatches(),
            health.painted(paint),
        );
        for line in self.paused.lines() {
            text.push_str(&paint.warning(&line));
            text.push('\n');
        }
        if overview.active_lease_count + overview.expired_lease_count > 0 {
            let (active, expired) = (grouped(overview.active_lease_count), grouped(overview.expired_lease_count));
            text.push_str(&format!("leases: {active} running, {expired} ran out\n"));
        }
        if let Some(instances) = self.instances {
            text.push_str(&format!("instances: {}\n", instances.words()));
        }
        for line in self.blocked.lines() {
            text.push_str(&paint.warning(&line));
            text.push('\n');
        }
        if !overview.topics.is_empty() {
            text.push('\n');
            text.push_str(&topics(overview));
        }
        text
    }

    fn mismatches(&self) -> String {
        let Some(count) = self.mismatch_count else { return String::new() };
        let more = if count >= RECORDS_MAX as usize { "+" } else { "" };
        format!("mismatches {}{more}   ", grouped(count as u64))
    }

    fn as_json(&self) -> Value {
        let Self { id, overview, health, .. } = self;
        let counts = |counts: Counts| {
            let Counts { pending, processing, done, dead } = counts;
            json!({ "pending": pending, "processing": processing, "done": done, "dead": dead })
        };
        let topics = overview.topics.iter().map(|topic| {
            let mut entry = counts(topic.counts);
            entry["topic"] = topic.topic.as_str().into();
            entry
        });
        let mut value = json!({
            "store": id.as_str(),
            "health": health.word(),
            "reason": health.reason(),
            "total": counts(overview.total()),
            "oldest_pending_seconds": overview.oldest_pending.map(|waits| waits.as_secs_f64()),
            "active_lease_count": overview.active_lease_count,
            "expired_lease_count": overview.expired_lease_count,
            "paused_routes": self.paused.as_json(),
            "instances": self.instances.map(Instances::as_json),
            "blocked_key_count": self.blocked.count(),
            "blocked_keys": self.blocked.as_json(),
            "topics": topics.collect::<Vec<_>>(),
        });
        if let Some(count) = self.mismatch_count {
            value["mismatch_count"] = count.into();
        }
        value
    }
}

fn topics(overview: &Overview) -> String {
    let mut rows = vec![["topic", "pending", "in flight", "done", "dead"].map(str::to_owned)];
    for topic in &overview.topics {
        let Counts { pending, processing, done, dead } = topic.counts;
        let [pending, processing, done, dead] = [pending, processing, done, dead].map(grouped);
        rows.push([escaped(&topic.topic), pending, processing, done, dead]);
    }
    table([Side::Left, Side::Right, Side::Right, Side::Right, Side::Right], &rows)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
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

    const THRESHOLDS: Thresholds =
        Thresholds { pending_warning: 1_500, pending_critical: 10_000, oldest_warning: 60, oldest_critical: 600 };

    fn status(id: &str, overview: Overview) -> Status {
        let health = Health::of(&overview, THRESHOLDS);
        let (paused, blocked) = (Paused::default(), Blocked::default());
        let id = StoreId::new(id).unwrap();
        Status { id, overview, mismatch_count: None, paused, instances: None, blocked, health }
    }

    /// WRK-08: the figures of the contract.
    #[test]
    fn the_thresholds_are_those_of_the_contract() {
        let cli = crate::Cli::try_parse_from(["pillarbox", "status"]).unwrap();
        let crate::Command::Status(options) = cli.command else { panic!("another command") };
        let Thresholds { pending_warning, pending_critical, oldest_warning, oldest_critical } = options.thresholds;
        assert_eq!((pending_warning, pending_critical), (1_000, 10_000));
        assert_eq!((oldest_warning, oldest_critical), (60, 600));
    }

    #[test]
    fn dead_messages_are_critical_and_lost_leases_a_warning() {
        let table = [((0, 0), Exit::Fine), ((0, 1), Exit::Warning), ((1, 0), Exit::Critical), ((1, 1), Exit::Critical)];
        for ((dead, expired), exit) in table {
            let health = Health::of(&overview(dead, expired), THRESHOLDS);
            assert_eq!(health.exit(), exit, "dead {dead}, expired {expired}");
        }
    }

    /// WRK-08.
    #[test]
    fn many_and_old_messages_need_attention() {
        let table = [
            (1_500, 60, Health::Fine),
            (1_501, 60, Health::Warning("pending > 1,500".into())),
            (0, 61, Health::Warning("oldest > 60 s".into())),
            (10_001, 0, Health::Critical("pending > 10,000".into())),
            (10_001, 601, Health::Critical("oldest > 600 s".into())),
        ];
        for (pending, oldest, expected) in table {
            let mut overview = overview(0, 0);
            overview.topics[0].counts.pending = pending;
            overview.oldest_pending = Some(Duration::from_secs(oldest));
            assert_eq!(Health::of(&overview, THRESHOLDS), expected, "{pending} pending, oldest {oldest} s");
        }
    }

    #[test]
    fn an_inbox_shows_its_mismatches_and_where_they_were_no_longer_counted() {
        let shown = |count| {
            let status = status("shop/inbox", Overview::default());
            Status { mismatch_count: Some(count), ..status }.as_text(Paint::OFF)
        };
        assert_eq!(shown(2), "store shop/inbox   pending 0   in flight 0   dead 0   mismatches 2   ✓ fine\n");
        assert!(shown(10_000).contains("mismatches 10,000+   ✓ fine"));
    }

    #[test]
    fn the_text_is_aligned_and_harmless() {
        let instances = Some(Instances { live: 3, stale: 1 });
        let text = Status { instances, ..status("sqlite:shop.db", overview(40_112, 0)) }.as_text(Paint::OFF);
        let expected = "\
store sqlite:shop.db   pending 1,204 (oldest 2 s)   in flight 96   dead 40,112   ✗ critical: dead > 0
leases: 96 running, 0 ran out
instances: 3 live, 1 stale

topic            pending   in flight   done     dead
order\\u{1b}[2J     1,204          96      7   40,112
";
        assert_eq!(text, expected);
    }
}
