//! `pillarbox blocked`: keys whose messages wait behind one that failed.

use std::time::SystemTime;

use clap::Args;
use pillarbox::admin::{ADMIN_LIMIT_MAX, BlockedKey};
use serde_json::json;

use crate::blocked::as_json;
use crate::exit::{Exit, Failure};
use crate::output::{Side, age, escaped, json_line, say, table};
use crate::store_args::StoreArgs;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// Of the inbox instead of the outbox.
    #[arg(long)]
    inbox: bool,
    /// Keys at the most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(ADMIN_LIMIT_MAX)))]
    limit: u32,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let opened = options.store.open().await?;
    let queue = opened.queue(options.inbox).await?;
    let blocked = queue.admin.blocked_keys(options.limit).await.map_err(|error| opened.address.failure(&error))?;
    let text = match (options.json, blocked.is_empty()) {
        (true, _) => json_line(&json!({ "keys": blocked.iter().map(as_json).collect::<Vec<_>>() })),
        (false, true) => "no key is blocked\n".to_owned(),
        (false, false) => as_table(&blocked),
    };
    say(&text)?;
    Ok(Exit::Fine)
}

fn as_table(blocked: &[BlockedKey]) -> String {
    let headings = ["key", "waiting", "behind row", "which", "error"];
    let mut rows = vec![headings.map(str::to_owned)];
    rows.extend(blocked.iter().map(|key| {
        let which = match key.due_at {
            Some(due_at) => match due_at.duration_since(SystemTime::now()) {
                Ok(left) => format!("is tried again in {}", age(left)),
                Err(_) => "is about to be tried again".to_owned(),
            },
            None => "is dead".to_owned(),
        };
        let error = escaped(key.last_error.as_deref().unwrap_or("-"));
        [escaped(&key.key), key.waiting_count.to_string(), key.head.to_string(), which, error]
    }));
    use Side::{Left, Right};
    table([Left, Right, Right, Left, Left], &rows)
}
