//! `pillarbox list`: messages of one state, a page at a time.

use clap::{Args, ValueEnum};
use pillarbox::admin::{ListQuery, Page, StoredMessage};
use pillarbox::inbox::{MESSAGE_ID_HEADER, SOURCE_HEADER};
use pillarbox::outbox::State;
use pillarbox::{Message, WorkId};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output::{Side, escaped, grouped, instant, json_line, say, table_of};
use crate::selection::Selection;

#[derive(Args)]
pub(crate) struct Options {
    /// Which messages.
    #[arg(long, value_enum)]
    state: ListedState,
    #[command(flatten)]
    page: PageOptions,
}

/// One page of a selection.
#[derive(Args)]
pub(crate) struct PageOptions {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Messages, or groups of them, at the most.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) limit: u32,
    /// Begin after this number, where the last page ended.
    #[arg(long, value_name = "ID")]
    after: Option<i64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ListedState {
    /// Waits, now or for a later time
    Pending,
    /// Is held by a worker
    Processing,
    /// Was delivered, and is kept
    Done,
    /// Was given up
    Dead,
}

impl From<ListedState> for State {
    fn from(state: ListedState) -> Self {
        match state {
            ListedState::Pending => Self::Pending,
            ListedState::Processing => Self::Processing,
            ListedState::Done => Self::Done,
            ListedState::Dead => Self::Dead,
        }
    }
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    say(&list(&options.page, options.state.into()).await?)?;
    Ok(Exit::Fine)
}

/// A page of messages in one state, as text or as JSON.
pub(crate) async fn list(options: &PageOptions, state: State) -> Result<String, Failure> {
    let selection = &options.selection;
    let (opened, queue) = selection.open().await?;
    let after = options.after.map(WorkId::from_i64);
    let query = ListQuery { state, filter: selection.filter(), after, limit: options.limit };
    let page = queue.admin.list(&query).await.map_err(|error| opened.address.failure(&error))?;
    if selection.json {
        let messages: Vec<_> = page.messages.iter().map(|stored| as_json(stored, selection.inbox)).collect();
        let next = page.next.map(WorkId::as_i64);
        return Ok(json_line(&json!({ "store": queue.id.as_str(), "messages": messages, "next": next })));
    }
    if page.messages.is_empty() {
        return Ok(format!("store {}: no {} message matches\n", escaped(queue.id.as_str()), state.as_str()));
    }
    Ok(as_text(&page, state, selection.inbox))
}

/// Who sent a message of an inbox, and what it is called there.
pub(crate) fn receipt(stored: &StoredMessage) -> [Option<&str>; 2] {
    let headers = stored.message.as_ref().ok().map(Message::get_headers);
    [SOURCE_HEADER, MESSAGE_ID_HEADER].map(|name| headers.and_then(|headers| headers.get(name)).map(String::as_str))
}

fn as_text(page: &Page, state: State, of_inbox: bool) -> String {
    let (since, until) = match state {
        State::Pending => ("stored", "due"),
        State::Processing => ("stored", "held until"),
        State::Done => ("done since", ""),
        State::Dead => ("dead since", ""),
    };
    let mut rows = vec![["id", "topic", "source", "message id", "attempts", since, until, "error"].map(str::to_owned)];
    rows.extend(page.messages.iter().map(|stored| cells(stored, state)));
    use Side::{Left, Right};
    let shown = [true, true, of_inbox, of_inbox, true, true, !until.is_empty(), state != State::Done];
    let more = page.next.map(|last| format!("more: add --after {last}\n")).unwrap_or_default();
    table_of(shown, [Right, Left, Left, Left, Right, Left, Left, Left], &rows) + &more
}

fn cells(stored: &StoredMessage, state: State) -> [String; 8] {
    let topic = stored.message.as_ref().map_or("(unreadable)", Message::topic);
    let [source, message_id] = receipt(stored).map(|name| escaped(name.unwrap_or_default()));
    let until = if state == State::Processing { stored.locked_until } else { stored.due_at };
    [
        stored.work_id.to_string(),
        escaped(topic),
        source,
        message_id,
        grouped(stored.attempts.into()),
        instant(stored.settled_at.unwrap_or(stored.created_at)),
        until.map(instant).unwrap_or_default(),
        escaped(stored.last_error.as_deref().unwrap_or_default()),
    ]
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
        "last_error": stored.last_error,
    });
    let (name, at) = match stored.state {
        State::Pending => ("due_at", stored.due_at),
        State::Processing => ("locked_until", stored.locked_until),
        State::Done => ("done_since", stored.settled_at),
        State::Dead => ("dead_since", stored.settled_at),
    };
    value[name] = at.map(instant).into();
    if of_inbox {
        let [source, message_id] = receipt(stored);
        value["receipt"] = json!({ "source": source, "message_id": message_id });
    }
    value
}
