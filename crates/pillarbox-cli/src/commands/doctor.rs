//! `pillarbox doctor`: what is wrong around a store or a whole relay, and what to do about it.

mod relay;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use pillarbox::diagnosis::{Finding, Health};
use pillarbox::inbox::InboxOptions;
use pillarbox::schema::{SchemaAdmin, SchemaPolicy, SchemaStatus};
use pillarbox::store::StoreOptions;
use pillarbox::{Backend, Store, StoreError};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output::{Paint, escaped, json_line, say};
use crate::relay::Config;
use crate::store_args::{Address, StoreArgs};

/// A wake-up on a healthy connection takes milliseconds.
const WAKEUP_PATIENCE: Duration = Duration::from_secs(3);

/// Nothing is changed. Exits with 3 when something should be better, with 4 when messages may be lost or nothing works.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// The file of a relay: its stores and its brokers are looked at instead.
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    config: Option<PathBuf>,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

/// A store or a transport, and what was found there.
struct Part {
    kind: &'static str,
    name: String,
    findings: Vec<Finding>,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let parts = match &options.config {
        Some(path) => relay::parts(&Config::read(path).map_err(Failure::wrong_use)?).await?,
        None => {
            let assume = options.store.options(SchemaPolicy::Assume)?;
            let address = options.store.address()?.existing();
            vec![look_at(&address, assume, Some(options.store.inbox_options())).await?]
        }
    };
    say(&match (options.json, parts.as_slice()) {
        (true, [part]) if options.config.is_none() => json_line(&part.as_json()),
        (true, parts) => json_line(&all_as_json(parts)),
        (false, parts) => parts.iter().map(|part| part.as_text(Paint::of_stdout())).collect(),
    })?;
    Ok(exit(parts.iter().flat_map(|part| &part.findings)))
}

/// An inbox is looked at where one is named.
async fn look_at(address: &Address, options: StoreOptions, inbox: Option<InboxOptions>) -> Result<Part, Failure> {
    let store = address.connect(options).await?;
    let failure = |error: StoreError| address.failure(&error);
    let mut findings = vec![schema("schema", SchemaAdmin::check_schema(&*store).await.map_err(failure)?)];
    if let Some(options) = inbox {
        let inbox = store.open_inbox(options).await.map_err(failure)?;
        findings.push(match inbox.check_schema().await.map_err(failure)? {
            SchemaStatus::Missing => Finding::unknown("inbox", "there is none; `pillarbox migrate --inbox` makes one"),
            status => schema("inbox", status),
        });
    }
    findings.extend(clock(&*store).await.map_err(failure)?);
    findings.push(wakeups(&*store, address.backend).await);
    findings.extend(store.diagnose().await.map_err(failure)?);
    Ok(Part { kind: "store", name: store.id().as_str().to_owned(), findings })
}

fn exit<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Exit {
    match worst(findings) {
        Some(Health::Critical) => Exit::Critical,
        Some(Health::Warning) => Exit::Warning,
        _ => Exit::Fine,
    }
}

fn schema(check: &'static str, status: SchemaStatus) -> Finding {
    let fix = if check == "inbox" { "run `pillarbox migrate --inbox`" } else { "run `pillarbox migrate`" };
    match status {
        SchemaStatus::Current(version) => Finding::fine(check, format!("{version}, as this version expects")),
        SchemaStatus::Missing => Finding::critical(check, "there are no tables", fix),
        SchemaStatus::Behind { found, expected } => {
            Finding::critical(check, format!("{found}, and this version expects {expected}"), fix)
        }
        SchemaStatus::Ahead { found, expected } => {
            let what = format!("{found}, and this version knows only {expected}");
            Finding::critical(check, what, "install the version of pillarbox that your programs use")
        }
    }
}

async fn clock(store: &dyn Store) -> Result<Option<Finding>, StoreError> {
    let before = SystemTime::now();
    let database = store.clock().await?;
    Ok(database.map(|database| Finding::clock(before, database, SystemTime::now())))
}

/// Sends one and waits for it: a pooler takes a LISTEN and then passes nothing on.
async fn wakeups(store: &dyn Store, backend: Backend) -> Finding {
    let dead = |why: &str| {
        let what = format!("LISTEN is dead, as behind a transaction pooler ({why}); programs poll instead");
        let fix = "connect the runtime directly, or accept up to one poll interval of latency";
        Finding::warning("wake-ups", what, fix)
    };
    let mut subscription = match store.listen().await {
        Ok(Some(subscription)) => subscription,
        Ok(None) if backend == Backend::Postgres => return dead("there is one"),
        Ok(None) => return Finding::unknown("wake-ups", "this database has none; programs poll"),
        Err(error) => return dead(&error.to_string()),
    };
    let heard = async {
        store.wake_others().await?;
        subscription.next().await
    };
    match tokio::time::timeout(WAKEUP_PATIENCE, heard).await {
        Ok(Ok(())) => Finding::fine("wake-ups", "one was sent and heard"),
        Ok(Err(error)) => dead(&error.to_string()),
        Err(_) => dead("nothing was heard"),
    }
}

impl Part {
    fn as_text(&self, paint: Paint) -> String {
        let mut text = format!("{} {}\n", self.kind, escaped(&self.name));
        for Finding { check, health, what, fix } in &self.findings {
            let line = |sign: char| format!("{sign} {check}: {}", escaped(what));
            let line = match health {
                Health::Unknown => line('–'),
                Health::Fine => paint.good(&line('✓')),
                Health::Warning => paint.warning(&line('!')),
                Health::Critical => paint.bad(&line('✗')),
            };
            text.push_str(&format!("{line}\n"));
            if let Some(fix) = fix {
                text.push_str(&format!("  fix: {}\n", escaped(fix)));
            }
        }
        text
    }

    fn as_json(&self) -> Value {
        let word = worst(&self.findings).unwrap_or(Health::Fine).as_str();
        let finding = |Finding { check, health, what, fix }: &Finding| json!({ "check": check, "health": health.as_str(), "what": what, "fix": fix });
        let findings: Vec<_> = self.findings.iter().map(finding).collect();
        json!({ self.kind: self.name, "health": word, "findings": findings })
    }
}

fn all_as_json(parts: &[Part]) -> Value {
    let word = worst(parts.iter().flat_map(|part| &part.findings)).unwrap_or(Health::Fine).as_str();
    json!({ "health": word, "parts": parts.iter().map(Part::as_json).collect::<Vec<_>>() })
}

fn worst<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Option<Health> {
    findings.into_iter().map(|finding| finding.health).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides() {
        let [fine, unknown] = [Finding::fine("a", "b"), Finding::unknown("a", "b")];
        let [warning, critical] = [Finding::warning("a", "b", "c"), Finding::critical("a", "b", "c")];
        assert_eq!(exit(&[]), Exit::Fine);
        assert_eq!(exit(&[fine.clone(), unknown]), Exit::Fine);
        assert_eq!(exit(&[fine, warning.clone()]), Exit::Warning);
        assert_eq!(exit(&[warning, critical]), Exit::Critical);
    }

    #[test]
    fn what_is_wrong_comes_with_what_to_do() {
        let findings =
            vec![Finding::fine("schema", "7"), Finding::critical("durability", "fsync\x1b is off", "set it on")];
        let text = Part { kind: "store", name: "shop".to_owned(), findings }.as_text(Paint::OFF);
        assert_eq!(text, "store shop\n✓ schema: 7\n✗ durability: fsync\\u{1b} is off\n  fix: set it on\n");
    }
}
