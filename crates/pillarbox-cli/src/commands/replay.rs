//! `pillarbox replay`: messages that were delivered, delivered once more.

use std::time::Duration;

use clap::Args;
use pillarbox::WorkId;
use pillarbox::admin::{Ended, Filter};

use crate::change::{Change, Manner, Verb};
use crate::exit::{Exit, Failure};
use crate::selection::parse_age;
use crate::store_args::StoreArgs;

/// Receivers get the same message ids again: who remembers them takes no message twice.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// Messages that were delivered and are still kept whole; dead ones are replayed by `dead replay`.
    #[arg(long, required = true)]
    delivered: bool,
    /// Those that were delivered less than this long ago, such as 90s, 15m, 2h, 7d or 2026-01-31T09:30:00Z.
    #[arg(long, value_name = "AGE", value_parser = parse_age, overrides_with = "since")]
    since: Duration,
    /// Those that were delivered longer ago than this.
    #[arg(long, value_name = "AGE", value_parser = parse_age, overrides_with = "until")]
    until: Option<Duration>,
    /// Only exactly this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Only these, by the number that the lists show; can be repeated.
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<i64>,
    /// Begin after this number, where an interrupted replay ended.
    #[arg(long, value_name = "ID", overrides_with = "after")]
    after: Option<i64>,
    #[command(flatten)]
    manner: Manner,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let Options { store, since, until, topic, ids, after, manner, json, .. } = options;
    if until.is_some_and(|until| until >= since) {
        return Err(Failure::wrong_use("--until must be a shorter time than --since: both are ages"));
    }
    let opened = store.open().await?;
    let queue = opened.queue(false).await?;
    let filter = Filter {
        work_ids: ids.into_iter().map(WorkId::from_i64).collect(),
        topic,
        newer_than: Some(since),
        older_than: until,
        ..Filter::all()
    };
    let verb = Verb::Replay { ended: Ended::Done, after: after.map(WorkId::from_i64) };
    Change { opened: &opened, queue: &queue, filter, verb, manner: &manner, json }.run().await
}
