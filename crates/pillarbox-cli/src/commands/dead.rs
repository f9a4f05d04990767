//! `pillarbox dead`: messages that were given up, of the outbox or of the inbox.

use std::time::Duration;

use clap::{Args, Subcommand};
use pillarbox::admin::{Filter, ListQuery, StoredMessage};
use pillarbox::inbox::{MESSAGE_ID_HEADER, SOURCE_HEADER};
use pillarbox::outbox::State;
use pillarbox::{Message, OutboxAdmin, StoreError, WorkId};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output::{Side, escaped, grouped, instant, json_line, say, table};
use crate::store_args::StoreArgs;

/// Messages that one call replays or deletes; between two calls others get their turn.
const BATCH: u32 = 1_000;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List dead messages, the oldest first
    List(List),
    /// Make dead messages pending again; without --yes, say how many
    Replay(Change),
    /// Delete dead messages for good; without --yes, say how many
    ///
    /// One of an inbox counts as done from then on: if it comes again, it is a duplicate.
    Delete(Change),
}

#[derive(Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    store: StoreArgs,
    /// Those of the inbox, not of the outbox.
    #[arg(long)]
    inbox: bool,
    /// Only these, by the number that `dead list` shows; can be repeated.
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<i64>,
    /// Only exactly this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Only those with exactly this correlation id.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Only those whose last error contains this text; case counts.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only those that have been dead for longer, such as 90s, 15m, 2h or 7d.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    older_than: Option<Duration>,
    /// Only those that have been dead for less.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    newer_than: Option<Duration>,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    selection: Selection,
    /// Messages at the most.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: u32,
    /// Begin after this number, where the last page ended.
    #[arg(long, value_name = "ID")]
    after: Option<i64>,
}

#[derive(Args)]
pub(crate) struct Change {
    #[command(flatten)]
    selection: Selection,
    /// Do it.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(command: Command) -> Result<Exit, Failure> {
    say(&match command {
        Command::List(options) => list(&options).await?,
        Command::Replay(options) => change(&options, Verb::Replay).await?,
        Command::Delete(options) => change(&options, Verb::Delete).await?,
    })?;
    Ok(Exit::Fine)
}

impl Selection {
    fn filter(&self) -> Filter {
        Filter {
            work_ids: self.ids.iter().copied().map(WorkId::from_i64).collect(),
            topic: self.topic.clone(),
            correlation_id: self.correlation_id.clone(),
            error_contains: self.error.clone(),
            older_than: self.older_than,
            newer_than: self.newer_than,
        }
    }
}

async fn list(options: &List) -> Result<String, Failure> {
    let selection = &options.selection;
    let opened = selection.store.open().await?;
    let queue = opened.queue(selection.inbox).await?;
    let after = options.after.map(WorkId::from_i64);
    let query = ListQuery { state: State::Dead, filter: selection.filter(), after, limit: options.limit };
    let page = queue.admin.list(&query).await.map_err(|error| opened.address.failure(&error))?;
    if selection.json {
        let messages: Vec<_> = page.messages.iter().map(|stored| as_json(stored, selection.inbox)).collect();
        let next = page.next.map(WorkId::as_i64);
        return Ok(json_line(&json!({ "store": queue.id.as_str(), "messages": messages, "next": next })));
    }
    let more = page.next.map(|last| format!("more: add --after {last}\n")).unwrap_or_default();
    Ok(as_table(&page.messages, selection.inbox) + &more)
}

async fn change(options: &Change, verb: Verb) -> Result<String, Failure> {
    let Change { selection, yes } = options;
    let opened = selection.store.open().await?;
    let queue = opened.queue(selection.inbox).await?;
    let changed = verb.run(&*queue.admin, &selection.filter(), *yes).await;
    let count = changed.map_err(|error| opened.address.failure(&error))?;
    let ([infinitive, participle], number) = (verb.words(), grouped(count));
    if selection.json {
        let (store, is_done) = (queue.id.as_str(), yes);
        return Ok(json_line(&json!({ "store": store, "action": infinitive, "count": count, "is_done": is_done })));
    }
    let name = escaped(queue.id.as_str());
    let noun = if count == 1 { "message" } else { "messages" };
    Ok(match (yes, count) {
        (true, _) => format!("store {name}: {participle} {number} {noun}\n"),
        (false, 0) => format!("store {name}: no dead message matches\n"),
        (false, _) => format!("store {name}: would {infinitive} {number} {noun}; add --yes to do it\n"),
    })
}

#[derive(Clone, Copy)]
enum Verb {
    Replay,
    Delete,
}

impl Verb {
    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Replay => ["replay", "replayed"],
            Self::Delete => ["delete", "deleted"],
        }
    }

    /// Does it in batches, or only counts. What dies anew meanwhile is left: nobody has looked at it yet.
    async fn run(self, admin: &dyn OutboxAdmin, filter: &Filter, is_meant: bool) -> Result<u64, StoreError> {
        let matching = admin.count_dead(filter).await?;
        let mut changed = 0;
        while is_meant && changed < matching {
            let limit = u32::try_from(matching - changed).unwrap_or(BATCH).min(BATCH);
            let count = match self {
                Self::Replay => admin.replay(filter, limit).await?,
                Self::Delete => admin.delete(filter, limit).await?,
            };
            if count == 0 {
                break;
            }
            changed += count;
        }
        Ok(if is_meant { changed } else { matching })
    }
}

/// Who sent a message of an inbox, and what it is called there.
fn receipt(stored: &StoredMessage) -> [Option<&str>; 2] {
    let headers = stored.message.as_ref().ok().map(Message::get_headers);
    [SOURCE_HEADER, MESSAGE_ID_HEADER].map(|name| headers.and_then(|headers| headers.get(name)).map(String::as_str))
}

fn as_table(messages: &[StoredMessage], of_inbox: bool) -> String {
    let cells = |stored: &StoredMessage| {
        let topic = stored.message.as_ref().map_or("(unreadable)", Message::topic);
        let [source, message_id] = receipt(stored).map(|name| escaped(name.unwrap_or_default()));
        let since = stored.settled_at.map(instant).unwrap_or_default();
        let error = escaped(stored.last_error.as_deref().unwrap_or_default());
        [stored.work_id.to_string(), escaped(topic), source, message_id, grouped(stored.attempts.into()), since, error]
    };
    let mut rows = vec![["id", "topic", "source", "message id", "attempts", "dead since", "error"].map(str::to_owned)];
    rows.extend(messages.iter().map(cells));
    let sides = [Side::Right, Side::Left, Side::Left, Side::Left, Side::Right, Side::Left, Side::Left];
    if of_inbox {
        return table(sides, &rows);
    }
    let [id, topic, _, _, attempts, since, error] = sides;
    let rows: Vec<_> =
        rows.into_iter().map(|[id, topic, _, _, attempts, since, error]| [id, topic, attempts, since, error]).collect();
    table([id, topic, attempts, since, error], &rows)
}

fn as_json(stored: &StoredMessage, of_inbox: bool) -> Value {
    let message = stored.message.as_ref().ok();
    let mut value = json!({
        "id": stored.work_id.as_i64(),
        "message_id": message.map(|message| message.id().to_string()),
        "topic": message.map(Message::topic),
        "correlation_id": message.and_then(Message::get_correlation_id),
        "attempts": stored.attempts,
        "created_at": instant(stored.created_at),
        "dead_since": stored.settled_at.map(instant),
        "last_error": stored.last_error,
    });
    if of_inbox {
        let [source, message_id] = receipt(stored);
        value["receipt"] = json!({ "source": source, "message_id": message_id });
    }
    value
}

/// A whole number and its unit, such as `15m`.
fn parse_age(text: &str) -> Result<Duration, String> {
    let expected = || "expected a whole number and one of s, m, h, d, such as 15m".to_owned();
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
}
