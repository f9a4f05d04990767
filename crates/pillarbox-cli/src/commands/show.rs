//! `pillarbox show`: everything that is known of one message.

use std::time::SystemTime;

use clap::Args;
use pillarbox::admin::{MessageName, StoredMessage};
use pillarbox::{Message, MessageId, WorkId};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::exit::{Exit, Failure};
use crate::output::{Side, age, escaped, grouped, instant, json_line, say, table};
use crate::store_args::StoreArgs;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// The number that the lists show, or the message's own id (a UUID).
    #[arg(value_name = "ID", value_parser = parse_name)]
    name: MessageName,
    /// A message of the inbox, not of the outbox.
    #[arg(long)]
    inbox: bool,
    /// Show the payload too: as text where it is UTF-8, else in hexadecimal digits.
    #[arg(long)]
    payload: bool,
    /// Bytes of the payload at the most.
    #[arg(long, value_name = "COUNT", default_value_t = 4_096, requires = "payload")]
    payload_bytes: usize,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let opened = options.store.open().await?;
    let queue = opened.queue(options.inbox).await?;
    let found = queue.admin.get(options.name).await.map_err(|error| opened.address.failure(&error))?;
    let name = escaped(queue.id.as_str());
    let unknown = || Failure::new(format!("store {name} has no such message: it was never stored, or it was purged"));
    let stored = found.ok_or_else(unknown)?;
    let content = options.payload.then(|| Content::of(&stored, options.payload_bytes)).flatten();
    let text = match options.json {
        true => json_line(&as_json(&stored, content.as_ref())),
        false => as_text(&stored, content.as_ref(), SystemTime::now()),
    };
    say(&text)?;
    Ok(Exit::Fine)
}

fn parse_name(text: &str) -> Result<MessageName, String> {
    let expected = || "expected a number as the lists show it, or the id of a message (a UUID)".to_owned();
    if let Ok(number) = text.parse() {
        return Ok(MessageName::Work(WorkId::from_i64(number)));
    }
    let uuid = Uuid::parse_str(text).map_err(|_| expected())?;
    MessageId::from_uuid(uuid).map(MessageName::Message).map_err(|_| expected())
}

/// The beginning of a payload.
struct Content {
    shown: String,
    is_text: bool,
    shown_bytes: usize,
    bytes: usize,
}

impl Content {
    fn of(stored: &StoredMessage, bytes_max: usize) -> Option<Self> {
        let payload = stored.message.as_ref().ok().filter(|_| !stored.is_receipt)?.payload();
        let start = &payload[..payload.len().min(bytes_max)];
        let whole = std::str::from_utf8(payload).is_ok();
        // Cut inside a letter, a text is still one.
        let text = start.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        let (shown, shown_bytes) = match whole {
            true => (text.to_owned(), text.len()),
            false => (start.iter().map(|byte| format!("{byte:02x}")).collect(), start.len()),
        };
        Some(Self { shown, is_text: whole, shown_bytes, bytes: payload.len() })
    }

    fn note(&self) -> String {
        let size = grouped(self.bytes as u64);
        let part = match self.shown_bytes < self.bytes {
            true => format!("the first {} of {size} bytes", grouped(self.shown_bytes as u64)),
            false => format!("{size} bytes"),
        };
        format!("{part}{}", if self.is_text { "" } else { ", hexadecimal" })
    }
}

fn as_text(stored: &StoredMessage, content: Option<&Content>, now: SystemTime) -> String {
    let mut rows = facts(stored, now);
    match &stored.message {
        Ok(message) => rows.extend(message_facts(message, stored.is_receipt)),
        Err(undecodable) => rows.push(("unreadable", Some(undecodable.to_string()))),
    }
    let rows: Vec<_> =
        rows.into_iter().filter_map(|(name, value)| value.map(|value| [name.to_owned(), escaped(&value)])).collect();
    let mut text = table([Side::Left, Side::Left], &rows);
    if let Some(headers) = stored.message.as_ref().ok().map(Message::get_headers).filter(|all| !all.is_empty()) {
        text.push_str("\nheaders\n");
        let rows: Vec<_> = headers.iter().map(|(name, value)| [escaped(name), escaped(value)]).collect();
        text.push_str(&table([Side::Left, Side::Left], &rows));
    }
    if let Some(content) = content {
        text.push_str(&format!("\npayload ({})\n{}\n", content.note(), escaped(&content.shown)));
    }
    text
}

type Fact = (&'static str, Option<String>);

fn facts(stored: &StoredMessage, now: SystemTime) -> Vec<Fact> {
    let ago = |at: SystemTime| match now.duration_since(at) {
        Ok(past) => format!("{} ({} ago)", instant(at), age(past)),
        Err(ahead) => format!("{} (in {})", instant(at), age(ahead.duration())),
    };
    vec![
        ("id", Some(stored.work_id.to_string())),
        ("state", Some(stored.state.as_str().to_owned())),
        ("stored", Some(ago(stored.created_at))),
        ("due", stored.due_at.map(ago)),
        ("held until", stored.locked_until.map(ago)),
        ("held by", stored.owner.map(|owner| owner.to_string())),
        ("settled", stored.settled_at.map(ago)),
        ("settled by", stored.settled_by.map(|owner| owner.to_string())),
        ("attempts", Some(grouped(stored.attempts.into()))),
        ("lost leases", Some(grouped(stored.lost_lease_count.into()))),
        ("last error", stored.last_error.clone()),
    ]
}

fn message_facts(message: &Message, is_receipt: bool) -> Vec<Fact> {
    let text = |text: Option<&str>| text.map(str::to_owned);
    let payload = match is_receipt {
        true => "gone: only a receipt is kept".to_owned(),
        false => format!("{} bytes", grouped(message.payload().len() as u64)),
    };
    vec![
        ("message id", Some(message.id().to_string())),
        ("topic", Some(message.topic().to_owned())),
        ("type", text(message.get_message_type())),
        ("key", text(message.get_key())),
        ("aggregate", text(message.get_aggregate_id()).map(|id| format!("{} {id}", message.get_aggregate_type()))),
        ("tenant", text(message.get_tenant())),
        ("correlation id", text(message.get_correlation_id())),
        ("causation id", text(message.get_causation_id())),
        ("occurred", message.get_occurred_at().map(instant)),
        ("priority", Some(message.get_priority()).filter(|priority| *priority != 0).map(|number| number.to_string())),
        ("content type", text(message.get_content_type())),
        ("payload", Some(payload)),
    ]
}

fn as_json(stored: &StoredMessage, content: Option<&Content>) -> Value {
    let mut value = json!({
        "id": stored.work_id.as_i64(),
        "state": stored.state.as_str(),
        "created_at": instant(stored.created_at),
        "due_at": stored.due_at.map(instant),
        "locked_until": stored.locked_until.map(instant),
        "owner": stored.owner.map(|owner| owner.to_string()),
        "settled_at": stored.settled_at.map(instant),
        "settled_by": stored.settled_by.map(|owner| owner.to_string()),
        "attempts": stored.attempts,
        "lost_lease_count": stored.lost_lease_count,
        "last_error": stored.last_error,
        "is_receipt": stored.is_receipt,
        "undecodable": stored.message.as_ref().err().map(ToString::to_string),
    });
    if let Ok(message) = &stored.message {
        value["message"] = json!({
            "id": message.id().to_string(),
            "topic": message.topic(),
            "type": message.get_message_type(),
            "key": message.get_key(),
            "aggregate_type": message.get_aggregate_id().map(|_| message.get_aggregate_type()),
            "aggregate_id": message.get_aggregate_id(),
            "tenant": message.get_tenant(),
            "correlation_id": message.get_correlation_id(),
            "causation_id": message.get_causation_id(),
            "occurred_at": message.get_occurred_at().map(instant),
            "priority": message.get_priority(),
            "content_type": message.get_content_type(),
            "headers": message.get_headers(),
            "payload_bytes": message.payload().len(),
        });
    }
    if let Some(content) = content {
        let name = if content.is_text { "payload" } else { "payload_hex" };
        value[name] = content.shown.as_str().into();
        value["is_payload_whole"] = (content.shown_bytes == content.bytes).into();
    }
    value
}
