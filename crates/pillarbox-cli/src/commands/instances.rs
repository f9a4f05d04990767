//! `pillarbox instances`: who serves a queue now, and who went silent.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use pillarbox::instance::{InstanceRecord, STALE_AFTER_DEFAULT};
use pillarbox::message::HORIZON_MAX;
use pillarbox::schema::SchemaStatus;
use pillarbox::{OutboxStore, StoreError};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output::{Side, age, escaped, instant, json_line, say, table};
use crate::store_args::{Opened, StoreArgs};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// Of the inbox instead of the outbox.
    #[arg(long)]
    inbox: bool,
    /// For how long an instance may be silent before it is shown as stale.
    #[arg(long, value_name = "SECONDS", default_value_t = STALE_AFTER_DEFAULT.as_secs())]
    stale_after: u64,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let opened = options.store.open().await?;
    let records = list(&opened, options.inbox).await?;
    let stale_after = Duration::from_secs(options.stale_after);
    let text = match (options.json, records.is_empty()) {
        (true, _) => {
            let instances: Vec<_> = records.iter().map(|record| as_json(record, stale_after)).collect();
            json_line(&json!({ "instances": instances }))
        }
        (false, true) => "no instance is registered\n".to_owned(),
        (false, false) => as_table(&records, stale_after),
    };
    say(&text)?;
    Ok(Exit::Fine)
}

/// Everybody on the list, the long silent too; nobody where there is no list.
async fn list(opened: &Opened, of_inbox: bool) -> Result<Vec<InstanceRecord>, Failure> {
    let failure = |error: StoreError| opened.address.failure(&error);
    let queue: Arc<dyn OutboxStore> = match of_inbox {
        true => opened.require_inbox().await?.queue(),
        false => Arc::clone(&opened.store) as Arc<dyn OutboxStore>,
    };
    let Some(instances) = queue.instances() else { return Ok(Vec::new()) };
    let found = instances.check_schema().await.map_err(failure)?;
    if found == SchemaStatus::Missing {
        return Ok(Vec::new());
    }
    found.require_current().map_err(failure)?;
    instances.live(HORIZON_MAX).await.map_err(failure)
}

fn state(record: &InstanceRecord, stale_after: Duration) -> &'static str {
    if record.silent_for < stale_after { "live" } else { "stale" }
}

fn as_table(records: &[InstanceRecord], stale_after: Duration) -> String {
    let headings = ["id", "service", "version", "host", "pid", "started", "silent for", "state", "metadata"];
    let mut rows = vec![headings.map(str::to_owned)];
    rows.extend(records.iter().map(|record| {
        let instance = &record.instance;
        let metadata: Vec<_> = instance.get_metadata().iter().map(|(name, value)| format!("{name}={value}")).collect();
        [
            instance.id().to_string(),
            escaped(instance.service()),
            escaped(instance.get_version().unwrap_or("-")),
            escaped(instance.host()),
            instance.pid().to_string(),
            instant(record.started_at),
            age(record.silent_for),
            state(record, stale_after).to_owned(),
            escaped(&metadata.join(" ")),
        ]
    }));
    use Side::{Left, Right};
    table([Left, Left, Left, Left, Right, Left, Right, Left, Left], &rows)
}

fn as_json(record: &InstanceRecord, stale_after: Duration) -> Value {
    let instance = &record.instance;
    json!({
        "id": instance.id().to_string(),
        "service": instance.service(),
        "version": instance.get_version(),
        "host": instance.host(),
        "pid": instance.pid(),
        "metadata": instance.get_metadata(),
        "started_at": instant(record.started_at),
        "last_seen_at": instant(record.last_seen_at),
        "silent_seconds": record.silent_for.as_secs(),
        "state": state(record, stale_after),
    })
}
