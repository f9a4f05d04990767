//! `pillarbox inbox`: what is known of messages that came in.

use clap::{Args, Subcommand};
use pillarbox::inbox::{ContentHash, InboxRecord};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output::{Side, escaped, grouped, instant, json_line, say, table};
use crate::store_args::StoreArgs;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show everything that is known of one message
    Get(Get),
    /// List messages that came again with another content, in the order of their names
    Mismatches(Mismatches),
}

#[derive(Args)]
pub(crate) struct Get {
    #[command(flatten)]
    store: StoreArgs,
    /// Who sent it.
    source: String,
    /// What the sender calls it.
    message_id: String,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct Mismatches {
    #[command(flatten)]
    store: StoreArgs,
    /// Messages at the most.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: u32,
    /// Begin after this one, where the last page ended.
    #[arg(long, num_args = 2, allow_hyphen_values = true, value_names = ["SOURCE", "MESSAGE_ID"])]
    after: Option<Vec<String>>,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(command: Command) -> Result<Exit, Failure> {
    say(&match command {
        Command::Get(options) => get(&options).await?,
        Command::Mismatches(options) => mismatches(&options).await?,
    })?;
    Ok(Exit::Fine)
}

async fn get(options: &Get) -> Result<String, Failure> {
    let Get { source, message_id, .. } = options;
    let opened = options.store.open().await?;
    let found = opened.require_inbox().await?.get(source, message_id).await;
    let found = found.map_err(|error| opened.address.failure(&error))?;
    let unknown = || Failure::new(format!("no message {message_id:?} of {source:?}: it never came, or it was purged"));
    let record = found.ok_or_else(unknown)?;
    Ok(if options.json { json_line(&as_json(&record)) } else { as_text(&record) })
}

async fn mismatches(options: &Mismatches) -> Result<String, Failure> {
    let opened = options.store.open().await?;
    let after = options.after.as_deref().map(|name| (name[0].clone(), name[1].clone()));
    let page = opened.require_inbox().await?.mismatches(after, options.limit).await;
    let page = page.map_err(|error| opened.address.failure(&error))?;
    // A full page may be the last one; then the next one is empty.
    let next = page.last().filter(|_| page.len() >= options.limit as usize);
    if options.json {
        let next = next.map(|last| json!({ "source": last.source, "message_id": last.message_id }));
        return Ok(json_line(&json!({ "messages": page.iter().map(as_json).collect::<Vec<_>>(), "next": next })));
    }
    let more =
        next.map(|last| format!("more: add --after '{}' '{}'\n", escaped(&last.source), escaped(&last.message_id)));
    Ok(as_table(&page) + &more.unwrap_or_default())
}

fn as_text(record: &InboxRecord) -> String {
    let row = |name: &str, value: Option<String>| value.map(|value| [name.to_owned(), escaped(&value)]);
    let rows: Vec<_> = [
        row("source", Some(record.source.clone())),
        row("message id", Some(record.message_id.clone())),
        row("state", Some(record.state.as_str().to_owned())),
        row("first seen", Some(instant(record.first_seen_at))),
        row("last seen", Some(instant(record.last_seen_at))),
        row("hash", record.hash.as_ref().map(|hash| hash.algorithm().to_owned())),
        row("mismatches", Some(grouped(record.mismatch_count.into()))),
        row("topic", record.topic.clone()),
        row("queue id", record.topic.is_some().then(|| record.queue_id.to_string())),
        row("attempts", Some(grouped(record.attempts.into()))),
        row("due", record.due_at.map(instant)),
        row("last error", record.last_error.clone()),
    ]
    .into_iter()
    .flatten()
    .collect();
    table([Side::Left, Side::Left], &rows)
}

fn as_table(page: &[InboxRecord]) -> String {
    let mut rows = vec![["source", "message id", "state", "mismatches", "first seen", "last seen"].map(str::to_owned)];
    rows.extend(page.iter().map(|record| {
        [
            escaped(&record.source),
            escaped(&record.message_id),
            record.state.as_str().to_owned(),
            grouped(record.mismatch_count.into()),
            instant(record.first_seen_at),
            instant(record.last_seen_at),
        ]
    }));
    table([Side::Left, Side::Left, Side::Left, Side::Right, Side::Left, Side::Left], &rows)
}

fn as_json(record: &InboxRecord) -> Value {
    json!({
        "source": record.source,
        "message_id": record.message_id,
        "state": record.state.as_str(),
        "first_seen_at": instant(record.first_seen_at),
        "last_seen_at": instant(record.last_seen_at),
        "hash_algorithm": record.hash.as_ref().map(ContentHash::algorithm),
        "mismatch_count": record.mismatch_count,
        "topic": record.topic,
        "queue_id": record.queue_id.to_string(),
        "attempts": record.attempts,
        "due_at": record.due_at.map(instant),
        "last_error": record.last_error,
    })
}
