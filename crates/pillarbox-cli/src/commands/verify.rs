//! `pillarbox verify`: whether brokers still have what was delivered to them, as far as the stores remember it.

mod report;
mod ways;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pillarbox::admin::{Ended, Filter, ListQuery, Replay};
use pillarbox::outbox::State;
use pillarbox::schema::SchemaPolicy;
use pillarbox::store::StoreOptions;
use pillarbox::{StoreError, StorePlace, WorkId};

use crate::exit::{Exit, Failure};
use crate::output::{Paint, json_line, say};
use crate::relay::Config;
use crate::selection::parse_age;
use crate::store_args::Address;
use report::StoreReport;
use ways::Ways;

/// Messages that one call lists: they come with their payloads, and so are few.
const LISTED: u32 = 200;

/// Messages that one call replays.
const REPLAYED: u32 = 1_000;

/// Nothing is changed without --replay, and nothing is consumed. Brokers are asked that can be looked through: streams of NATS that do
/// not remove what was read, and streams of Redis. What was delivered is known for as long as the relay keeps it (`relay.keep`), and is
/// looked for where the file sends it now. The clocks of brokers and databases may differ by ten minutes. Exits with 4 when something is missing, with 3 once it is replayed.
#[derive(Args)]
pub(crate) struct Options {
    /// The file that names stores, transports and routes of the relay.
    #[arg(long, value_name = "FILE", env = "PILLARBOX_CONFIG")]
    config: PathBuf,
    /// Only this store of the file.
    #[arg(long, value_name = "NAME")]
    store: Option<String>,
    /// What was delivered less than this long ago, such as 90s, 15m, 2h or 7d.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    since: Duration,
    /// Deliver what is missing once more, under the same ids.
    #[arg(long)]
    replay: bool,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let config = Config::read(&options.config).map_err(Failure::wrong_use)?;
    let places = places(&config, options.store.as_deref())?;
    let mut ways = Ways::of(&config).map_err(Failure::wrong_use)?;
    let mut reports = Vec::new();
    let mut failed = None;
    for place in places {
        match verified(&place, &mut ways, &options).await {
            Ok(report) => reports.push(report),
            Err(failure) => {
                ways.forget();
                failed = failed.or(Some(failure));
            }
        }
    }
    ways.close().await;
    say(&match options.json {
        true => json_line(&report::all_as_json(&reports)),
        false => reports.iter().map(|report| report.as_text(Paint::of_stdout())).collect(),
    })?;
    match failed {
        Some(failure) => Err(failure),
        None => Ok(report::exit(&reports)),
    }
}

fn places(config: &Config, only: Option<&str>) -> Result<Vec<StorePlace>, Failure> {
    let mut places = config.places().map_err(Failure::wrong_use)?;
    if let Some(only) = only {
        places.retain(|place| place.key().as_str() == only);
        if places.is_empty() {
            let known: Vec<_> = config.stores.keys().map(String::as_str).collect();
            return Err(Failure::wrong_use(format!("--store: the file has these stores: {}", known.join(", "))));
        }
    }
    Ok(places)
}

/// Goes through everything that a store remembers to have delivered in that time.
async fn verified(place: &StorePlace, ways: &mut Ways, options: &Options) -> Result<StoreReport, Failure> {
    let address = Address::new(place.address().to_owned(), format!("stores.{}.url", place.key()))?.existing();
    let naming = place.get_naming().cloned().unwrap_or_default();
    let store =
        address.connect(StoreOptions { naming, schema: SchemaPolicy::Assume, ..StoreOptions::default() }).await?;
    let failure = |error: StoreError| address.failure(&error);
    let filter = Filter { newer_than: Some(options.since), ..Filter::all() };
    let mut query = ListQuery { state: State::Done, filter, after: None, limit: LISTED };
    loop {
        let page = store.list(&query).await.map_err(failure)?;
        for message in page.messages {
            ways.take(message).await.map_err(Failure::new)?;
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let mut report = StoreReport::new(place.key().as_str(), ways.findings().await.map_err(Failure::new)?);
    if options.replay {
        let mut replayed = 0;
        for work_ids in report.missing().chunks(REPLAYED as usize) {
            replayed += replay(&*store, work_ids.to_vec()).await.map_err(failure)?;
        }
        report.replayed = Some(replayed);
        if replayed > 0 {
            // Whoever polls finds them anyway.
            let _ = store.wake_others().await;
        }
    }
    Ok(report)
}

async fn replay(store: &dyn pillarbox::Store, work_ids: Vec<WorkId>) -> Result<u64, StoreError> {
    let filter = Filter { work_ids, ..Filter::all() };
    Ok(store.replay(&Replay { ended: Ended::Done, filter, after: None, limit: REPLAYED }).await?.count)
}
