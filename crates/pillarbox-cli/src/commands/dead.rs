//! `pillarbox dead`: messages that were given up, of the outbox or of the inbox.

use clap::{Args, Subcommand, ValueEnum};
use pillarbox::WorkId;
use pillarbox::admin::{Ended, Group, GroupBy};
use pillarbox::outbox::State;
use serde_json::json;

use super::list::{PageOptions, list};
use crate::change::{Change, Manner, Verb};
use crate::exit::{Exit, Failure};
use crate::output::{Side, escaped, grouped, json_line, say, table};
use crate::selection::Selection;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List dead messages, the oldest first, or count them by what they have in common
    List(List),
    /// Make dead messages pending again; without --yes, say how many
    Replay(Replay),
    /// Delete dead messages for good; without --yes, say how many
    ///
    /// One of an inbox counts as done from then on: if it comes again, it is a duplicate.
    Delete(Delete),
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    page: PageOptions,
    /// Count them instead, the largest groups first.
    #[arg(long, value_enum, conflicts_with = "after")]
    by: Option<By>,
}

#[derive(Clone, Copy, ValueEnum)]
enum By {
    /// By topic and last error
    Error,
    /// By topic
    Topic,
}

#[derive(Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    manner: Manner,
    /// Begin after this number, where an interrupted replay ended.
    #[arg(long, value_name = "ID", overrides_with = "after")]
    after: Option<i64>,
}

#[derive(Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    manner: Manner,
}

pub(crate) async fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::List(options) => {
            say(&match options.by {
                Some(by) => groups(&options.page, by).await?,
                None => list(&options.page, State::Dead).await?,
            })?;
            Ok(Exit::Fine)
        }
        Command::Replay(Replay { selection, manner, after }) => {
            let after = after.map(WorkId::from_i64);
            change(&selection, &manner, Verb::Replay { ended: Ended::Dead, after }).await
        }
        Command::Delete(Delete { selection, manner }) => change(&selection, &manner, Verb::Delete).await,
    }
}

async fn change(selection: &Selection, manner: &Manner, verb: Verb) -> Result<Exit, Failure> {
    let (opened, queue) = selection.open().await?;
    let (filter, json) = (selection.filter(), selection.json);
    Change { opened: &opened, queue: &queue, filter, verb, manner, json }.run().await
}

async fn groups(options: &PageOptions, by: By) -> Result<String, Failure> {
    let selection = &options.selection;
    let (opened, queue) = selection.open().await?;
    let group_by = match by {
        By::Error => GroupBy::Error,
        By::Topic => GroupBy::Topic,
    };
    let groups = queue.admin.group_dead(group_by, &selection.filter(), options.limit).await;
    let groups = groups.map_err(|error| opened.address.failure(&error))?;
    if selection.json {
        let groups: Vec<_> = groups.iter().map(|group| as_json(group, group_by)).collect();
        return Ok(json_line(&json!({ "store": queue.id.as_str(), "groups": groups })));
    }
    if groups.is_empty() {
        return Ok(format!("store {}: no dead message matches\n", escaped(queue.id.as_str())));
    }
    let cells = |group: &Group| {
        let error = escaped(group.error.as_deref().unwrap_or_default());
        [grouped(group.count), escaped(&group.topic), error]
    };
    let rows: Vec<_> = groups.iter().map(cells).collect();
    Ok(table([Side::Right, Side::Left, Side::Left], &rows))
}

fn as_json(group: &Group, by: GroupBy) -> serde_json::Value {
    let mut value = json!({ "count": group.count, "topic": group.topic });
    if by == GroupBy::Error {
        value["error"] = group.error.as_deref().into();
    }
    value
}
