//! Many messages changed in batches: counted first, throttled, shown as they go, and cut short without harm.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use clap::Args;
use pillarbox::admin::{Ended, Filter, Replay, Tally};
use pillarbox::{OutboxAdmin, StoreError, WorkId};
use serde_json::json;
use tokio::time::Instant;

use crate::exit::{Exit, Failure};
use crate::output::{escaped, grouped, json_line, minute, say};
use crate::progress::Progress;
use crate::selection::ago;
use crate::store_args::{Opened, Queue};

/// Messages that one call changes; between two calls others get their turn.
const BATCH: u32 = 1_000;

/// How a change is made.
#[derive(Args)]
pub(crate) struct Manner {
    /// Do it; without this, only say what would be done.
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Only say what would be done, as without --yes.
    #[arg(long)]
    dry_run: bool,
    /// Messages per second at the most, such as 500/s.
    #[arg(long, value_name = "COUNT/s", value_parser = parse_rate)]
    rate: Option<u32>,
}

/// What becomes of the messages.
#[derive(Clone, Copy)]
pub(crate) enum Verb {
    Replay { ended: Ended, after: Option<WorkId> },
    Delete,
}

impl Verb {
    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Replay { .. } => ["replay", "replayed"],
            Self::Delete => ["delete", "deleted"],
        }
    }

    /// The options of the command that say how new and how old.
    fn ages(self) -> [&'static str; 2] {
        match self {
            Self::Replay { ended: Ended::Done, .. } => ["--since", "--until"],
            Self::Replay { ended: Ended::Dead, .. } | Self::Delete => ["--newer-than", "--older-than"],
        }
    }

    fn ended(self) -> Ended {
        match self {
            Self::Replay { ended, .. } => ended,
            Self::Delete => Ended::Dead,
        }
    }

    /// Changes one batch, and moves on behind it.
    async fn run(&mut self, admin: &dyn OutboxAdmin, filter: &Filter, limit: u32) -> Result<u64, StoreError> {
        match self {
            Self::Delete => admin.delete(filter, limit).await,
            Self::Replay { ended, after } => {
                let replay = Replay { ended: *ended, filter: filter.clone(), after: *after, limit };
                let replayed = admin.replay(&replay).await?;
                *after = replayed.last.or(*after);
                Ok(replayed.count)
            }
        }
    }
}

/// How it came to its end.
enum Outcome {
    Whole,
    Interrupted,
    Failed(StoreError),
}

/// A change that somebody asked for.
pub(crate) struct Change<'a> {
    pub(crate) opened: &'a Opened,
    pub(crate) queue: &'a Queue,
    pub(crate) filter: Filter,
    pub(crate) verb: Verb,
    pub(crate) manner: &'a Manner,
    pub(crate) json: bool,
}

impl Change<'_> {
    /// Counts, and does it when it is meant.
    pub(crate) async fn run(mut self) -> Result<Exit, Failure> {
        let failure = |error: StoreError| self.opened.address.failure(&error);
        let began_at = SystemTime::now();
        let tally = self.queue.admin.tally(self.verb.ended(), &self.filter).await.map_err(failure)?;
        if !self.manner.yes {
            say(&self.proposal(&tally))?;
            return Ok(Exit::Fine);
        }
        let (count, outcome) = self.carry_out(tally.count).await;
        if matches!(self.verb, Verb::Replay { .. }) && count > 0 {
            // Whoever polls finds them anyway.
            let _ = self.queue.store.wake_others().await;
        }
        match outcome {
            Outcome::Whole => {
                say(&self.report(count))?;
                Ok(Exit::Fine)
            }
            Outcome::Interrupted => {
                Err(Failure::new(format!("interrupted: {}", self.rest(count, tally.count, began_at))))
            }
            Outcome::Failed(error) => {
                let Failure { exit, words } = self.opened.address.failure(&error);
                Err(Failure { exit, words: format!("{words}; {}", self.rest(count, tally.count, began_at)) })
            }
        }
    }

    /// Batch by batch, up to what was counted: what ends anew meanwhile nobody has looked at yet. How many, and whether it
    /// came to the end.
    async fn carry_out(&mut self, matching: u64) -> (u64, Outcome) {
        let pace = Pace::of(self.manner.rate);
        let mut interrupt = Interrupt::watch();
        let mut progress = Progress::on_stderr(self.verb.words()[1], matching, self.json);
        let started = Instant::now();
        let (mut changed, mut due) = (0, started);
        while changed < matching {
            if interrupt.came_before(due).await {
                return (changed, Outcome::Interrupted);
            }
            let limit = u32::try_from(matching - changed).unwrap_or(BATCH).min(pace.batch);
            let filter = aged(&self.filter, started.elapsed());
            match self.verb.run(&*self.queue.admin, &filter, limit).await {
                Ok(0) => break,
                Ok(count) => changed += count,
                Err(error) => return (changed, Outcome::Failed(error)),
            }
            due += pace.pause;
            progress.show(changed);
        }
        (changed, Outcome::Whole)
    }

    fn proposal(&self, tally: &Tally) -> String {
        let [infinitive, _] = self.verb.words();
        let word = self.verb.ended().state().as_str();
        if self.json {
            return self.as_json(tally.count, false);
        }
        let name = escaped(self.queue.id.as_str());
        if tally.count == 0 {
            let receipts = match tally.receipt_count {
                0 => String::new(),
                count => format!(" ({} of which only the receipt is kept)", messages(count)),
            };
            return format!("store {name}: no {word} message matches{receipts}\n");
        }
        let when = span(tally, SystemTime::now());
        let throttle = if matches!(self.verb, Verb::Replay { .. }) { ", --rate 500/s to throttle" } else { "" };
        format!("store {name}: would {infinitive} {}{when}. Add --yes to do it{throttle}.\n", messages(tally.count))
    }

    fn report(&self, count: u64) -> String {
        if self.json {
            return self.as_json(count, true);
        }
        let [_, participle] = self.verb.words();
        format!("store {}: {participle} {}\n", escaped(self.queue.id.as_str()), messages(count))
    }

    fn as_json(&self, count: u64, is_done: bool) -> String {
        let [infinitive, _] = self.verb.words();
        let store = self.queue.id.as_str();
        json_line(&json!({ "store": store, "action": infinitive, "count": count, "is_done": is_done }))
    }

    /// What was done, and how to go on from there. What was an age in the beginning is an instant by then: it means the same
    /// messages whenever that is.
    fn rest(&self, count: u64, matching: u64, began_at: SystemTime) -> String {
        let ([_, participle], [newer, older]) = (self.verb.words(), self.verb.ages());
        let after = match self.verb {
            Verb::Replay { after, .. } => after.map(|after| format!("--after {after}")),
            Verb::Delete => None,
        };
        let instant = |flag: &str, age: Option<Duration>| Some(format!("{flag} {}", ago(age?, began_at)?));
        let ages = [instant(newer, self.filter.newer_than), instant(older, self.filter.older_than)];
        let flags: Vec<_> = std::iter::once(after).chain(ages).flatten().collect();
        let how = if flags.is_empty() { "run it again".to_owned() } else { format!("add {}", flags.join(" ")) };
        format!("{participle} {} of {}; {how} to go on with the rest", grouped(count), messages(matching))
    }
}

fn messages(count: u64) -> String {
    format!("{} {}", grouped(count), if count == 1 { "message" } else { "messages" })
}

/// When the messages ended; of today, only the hour.
fn span(tally: &Tally, now: SystemTime) -> String {
    match (tally.oldest, tally.newest) {
        (Some(oldest), Some(newest)) if minute(oldest, now) != minute(newest, now) => {
            format!(" (oldest {}, newest {} UTC)", minute(oldest, now), minute(newest, now))
        }
        (Some(oldest), _) => format!(" (since {} UTC)", minute(oldest, now)),
        _ => String::new(),
    }
}

/// Ages count from now, and now moves on: the filter means the same messages as in the beginning.
fn aged(filter: &Filter, by: Duration) -> Filter {
    let grown = |age: Option<Duration>| age.map(|age| age + by);
    Filter { older_than: grown(filter.older_than), newer_than: grown(filter.newer_than), ..filter.clone() }
}

/// Batches, and how long one of them may take at the least.
#[derive(Debug, PartialEq, Eq)]
struct Pace {
    batch: u32,
    pause: Duration,
}

impl Pace {
    /// Four batches a second where a rate is given, so that a reader sees an even stream.
    fn of(rate: Option<u32>) -> Self {
        let Some(rate) = rate else { return Self { batch: BATCH, pause: Duration::ZERO } };
        let batch = (rate / 4).clamp(1, BATCH);
        Self { batch, pause: Duration::from_secs(batch.into()) / rate.max(1) }
    }
}

/// Somebody wants it to end, by ctrl-c or SIGTERM. It does so between two batches.
struct Interrupt {
    signal: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Interrupt {
    fn watch() -> Self {
        Self { signal: Box::pin(pillarbox::signal::terminated()) }
    }

    async fn came_before(&mut self, due: Instant) -> bool {
        tokio::select! {
            biased;
            () = &mut self.signal => true,
            () = tokio::time::sleep_until(due) => false,
        }
    }
}

fn parse_rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "expected a number of messages per second, such as 500/s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_by_small_batches() {
        let table = [
            (None, 1_000, 0),
            (Some(1), 1, 1_000),
            (Some(3), 1, 333),
            (Some(500), 125, 250),
            (Some(4_000), 1_000, 250),
            (Some(40_000), 1_000, 25),
        ];
        for (rate, batch, millis) in table {
            let pace = Pace::of(rate);
            assert_eq!((pace.batch, pace.pause.as_millis()), (batch, millis), "{rate:?}");
        }
    }

    #[test]
    fn rates_are_numbers_per_second() {
        assert_eq!(parse_rate("500/s"), Ok(500));
        assert_eq!(parse_rate("7"), Ok(7));
        for text in ["", "0/s", "-1/s", "1/m", "/s", "many"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_filter_means_the_same_messages_while_time_goes_by() {
        let hours = |hours: u64| Duration::from_secs(3_600 * hours);
        let filter = Filter { newer_than: Some(hours(2)), older_than: None, ..Filter::all() };
        let later = aged(&filter, hours(1));
        assert_eq!((later.newer_than, later.older_than), (Some(hours(3)), None));
    }

    #[test]
    fn of_today_only_the_hour_is_shown() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let (day, now) = (86_400, at(86_400 * 2 + 7_200));
        let tally = |oldest, newest| Tally { oldest: Some(oldest), newest: Some(newest), ..Tally::default() };
        let shown = span(&tally(at(day + 60), at(day * 2 + 3_660)), now);
        assert_eq!(shown, " (oldest 1970-01-02 00:01, newest 01:01 UTC)");
        assert_eq!(span(&tally(at(day), at(day + 59)), now), " (since 1970-01-02 00:00 UTC)");
        assert_eq!(span(&Tally::default(), now), "");
    }
}
