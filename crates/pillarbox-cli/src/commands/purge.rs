//! `pillarbox purge`: what was delivered long ago is removed, as a running program does by itself.

use std::time::Duration;

use clap::Args;
use pillarbox::admin::{Ended, Filter};
use pillarbox::retention::{KEEP_DEFAULT, PurgeLimit, Retention};
use pillarbox::{StoreError, StoreId};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output::{age, escaped, grouped, json_line, say};
use crate::selection::parse_age;
use crate::store_args::{Opened, StoreArgs};

/// Pending, leased and dead messages are never touched.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// What was delivered longer ago than this, such as 12h or 7d; 7 days unless told, 30 days for an inbox.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    older_than: Option<Duration>,
    /// What the inbox remembers of messages that are done, not the outbox's messages.
    #[arg(long)]
    inbox: bool,
    /// Do it; without this, only say what would be done.
    #[arg(long)]
    yes: bool,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let keep = options.older_than.unwrap_or(KEEP_DEFAULT);
    let mut opened = options.store.open_keeping(Retention::Message(keep)).await?;
    if let Some(remember) = options.older_than {
        opened.remember_for(remember);
    }
    let (id, count, older_than) = match options.inbox {
        false => outbox(&opened, keep, options.yes).await?,
        true => inbox(&opened, options.yes).await?,
    };
    let text = match options.json {
        true => {
            let seconds = older_than.as_secs();
            let (store, is_done) = (id.as_str(), options.yes);
            let mut value = json!({ "store": store, "action": "purge", "count": count, "is_done": is_done });
            value["older_than_seconds"] = seconds.into();
            json_line(&value)
        }
        false => as_text(&id, count, older_than, options.yes),
    };
    say(&text)?;
    Ok(Exit::Fine)
}

type Purged = (StoreId, Option<u64>, Duration);

async fn outbox(opened: &Opened, keep: Duration, is_meant: bool) -> Result<Purged, Failure> {
    let failure = |error: StoreError| opened.address.failure(&error);
    let id = opened.store.id().clone();
    if !is_meant {
        let filter = Filter { older_than: Some(keep), ..Filter::all() };
        let tally = opened.store.tally(Ended::Done, &filter).await.map_err(failure)?;
        return Ok((id, Some(tally.count + tally.receipt_count), keep));
    }
    let mut purged = 0;
    loop {
        let count = opened.store.purge(PurgeLimit::default()).await.map_err(failure)?;
        purged += count;
        if count < u64::from(PurgeLimit::MAX) {
            return Ok((id, Some(purged), keep));
        }
    }
}

/// What an inbox would forget is not counted: its ledger has no index for that.
async fn inbox(opened: &Opened, is_meant: bool) -> Result<Purged, Failure> {
    let failure = |error: StoreError| opened.address.failure(&error);
    let inbox = opened.require_inbox().await?;
    let (id, keep) = (inbox.id().clone(), opened.remembers_for());
    let mut purged = is_meant.then_some(0);
    while let Some(sum) = &mut purged {
        let count = inbox.purge(PurgeLimit::default()).await.map_err(failure)?;
        *sum += count;
        if count == 0 {
            break;
        }
    }
    Ok((id, purged, keep))
}

fn as_text(id: &StoreId, count: Option<u64>, older_than: Duration, is_done: bool) -> String {
    let (name, time) = (escaped(id.as_str()), age(older_than));
    let messages = match count {
        Some(1) => "1 message".to_owned(),
        Some(count) => format!("{} messages", grouped(count)),
        None => "every message".to_owned(),
    };
    match (is_done, count) {
        (true, _) => format!("store {name}: purged {messages} done for more than {time}\n"),
        (false, Some(0)) => format!("store {name}: no message has been done for more than {time}\n"),
        (false, _) => format!("store {name}: would purge {messages} done for more than {time}. Add --yes to do it.\n"),
    }
}
