//! `pillarbox pause` and `pillarbox resume`: a route's messages wait, on every instance, until they may go on.

use std::sync::Arc;

use clap::Args;
use pillarbox::pause::{Pause, PauseRecord, PauseStore};
use pillarbox::schema::SchemaStatus;
use pillarbox::{StoreError, this_process};
use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::output::{age, escaped, instant, json_line, say};
use crate::paused::{as_json, by_whom, routes};
use crate::store_args::{Opened, Queue, StoreArgs};

#[derive(Args)]
pub(crate) struct Options {
    /// The name of the route: that of the relay's file, or what the route matches, as `pillarbox routes` shows it.
    route: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
pub(crate) struct PauseOptions {
    #[command(flatten)]
    options: Options,
    /// Why, for whoever looks later.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Args)]
struct Place {
    #[command(flatten)]
    store: StoreArgs,
    /// Of the inbox instead of the outbox.
    #[arg(long)]
    inbox: bool,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn pause(options: PauseOptions) -> Result<Exit, Failure> {
    let PauseOptions { options: Options { route, place }, reason } = options;
    let asked = Pause::new(route).reason(reason.unwrap_or_default()).by(operator());
    asked.validate().map_err(|invalid| Failure::wrong_use(invalid.to_string()))?;
    let opened = place.store.open().await?;
    let failure = |error: StoreError| opened.address.failure(&error);
    let queue = opened.queue(place.inbox).await?;
    let list = list(&opened, &queue)?;
    list.deploy_schema().await.map_err(failure)?;
    let before = list.pause(&asked).await.map_err(failure)?;
    wake(&queue).await;
    let known = routes(&*queue.store).await.map_err(failure)?;
    let is_served = known.as_ref().map(|known| known.iter().any(|route| route == asked.route()));
    let name = escaped(asked.route());
    let mut text = match &before {
        None => format!("route {name}: paused\n"),
        Some(before) => format!("route {name}: was already paused since {}\n", since(before)),
    };
    if let Some(known) = known.filter(|_| is_served == Some(false)) {
        let known = if known.is_empty() { "none".to_owned() } else { escaped(&known.join(", ")) };
        text.push_str(&format!("no running instance has a route of this name; they have: {known}\n"));
    }
    let mut value = told(asked.route(), true, before.as_ref());
    value["is_served"] = is_served.into();
    say(&if place.json { json_line(&value) } else { text })?;
    Ok(Exit::Fine)
}

pub(crate) async fn resume(options: Options) -> Result<Exit, Failure> {
    let Options { route, place } = options;
    let opened = place.store.open().await?;
    let failure = |error: StoreError| opened.address.failure(&error);
    let queue = opened.queue(place.inbox).await?;
    let list = list(&opened, &queue)?;
    let found = list.check_schema().await.map_err(failure)?;
    // Without a table nothing was ever paused.
    let before = match found {
        SchemaStatus::Missing => {
            pillarbox::pause::check_route(&route).map_err(|invalid| Failure::wrong_use(invalid.to_string()))?;
            None
        }
        _ => list.resume(&route).await.map_err(failure)?,
    };
    wake(&queue).await;
    let name = escaped(&route);
    let text = match &before {
        Some(before) => format!("route {name}: resumed, was paused since {}\n", since(before)),
        None => format!("route {name}: was not paused\n"),
    };
    let value = told(&route, false, before.as_ref());
    say(&if place.json { json_line(&value) } else { text })?;
    Ok(Exit::Fine)
}

fn list(opened: &Opened, queue: &Queue) -> Result<Arc<dyn PauseStore>, Failure> {
    let missing = || opened.address.failure(&StoreError::rejected("this kind of store cannot pause routes"));
    queue.store.pauses().ok_or_else(missing)
}

/// Instances need not wait until they look by themselves; they do if this fails.
async fn wake(queue: &Queue) {
    let _ = queue.store.wake_others().await;
}

fn since(before: &PauseRecord) -> String {
    format!("{} ({} ago){}", instant(before.since), age(before.lasts), by_whom(before))
}

fn told(route: &str, is_paused: bool, before: Option<&PauseRecord>) -> Value {
    serde_json::json!({ "route": route, "is_paused": is_paused, "was_paused": before.map(as_json) })
}

/// Who runs the command, as far as the machine tells.
fn operator() -> String {
    let user = ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let host = this_process("operator").host().to_owned();
    let name = user.filter(|user| !user.is_empty()).map_or_else(|| host.clone(), |user| format!("{user}@{host}"));
    name.chars().filter(|character| *character != '\0').take(pillarbox::pause::REASON_CHARS_MAX).collect()
}
