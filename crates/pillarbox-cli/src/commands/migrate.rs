//! `pillarbox migrate`: creates, upgrades, prints or checks the tables.

use std::sync::Arc;

use clap::Args;
use pillarbox::schema::{SchemaPolicy, SchemaStatus};
use pillarbox::{AnyInbox, SchemaAdmin, Store, StoreError, StoreId};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output::{escaped, json_line, say};
use crate::store_args::{Address, StoreArgs};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// The tables of an inbox too. Without this they are upgraded and checked where they are, and not created.
    #[arg(long)]
    inbox: bool,
    /// The list of instances too, with --inbox also that of the inbox. Without this it is upgraded and checked where it is.
    #[arg(long)]
    instances: bool,
    /// The progress of receptors and perspectives too, which the work coordinator keeps beside the outbox. Without this it is
    /// upgraded and checked where it is.
    #[arg(long)]
    progress: bool,
    /// The list of paused routes too, with --inbox also that of the inbox. Without this it is upgraded and checked where it is;
    /// `pillarbox pause` makes it when it is missing.
    #[arg(long)]
    pauses: bool,
    /// Print what would run on an empty database, for a DBA to read and run; changes nothing.
    ///
    /// PostgreSQL and MySQL are connected to all the same; an SQLite file need not exist.
    #[arg(long, conflicts_with = "check")]
    print: bool,
    /// Compare the tables with what this program needs; changes nothing, fails when they differ.
    #[arg(long)]
    check: bool,
    /// Print one line of JSON.
    #[arg(long, conflicts_with = "print")]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let assume = options.store.options(SchemaPolicy::Assume)?;
    let address = options.store.address()?;
    let address = match (options.print, options.check) {
        (true, _) => address.imagined(),
        (_, true) => address.existing(),
        _ => address,
    };
    let store = address.connect(assume).await?;
    let inbox = store.open_inbox(options.store.inbox_options()).await.map_err(|error| address.failure(&error))?;
    let beside = beside(&options, &*store, &*inbox);
    if options.print {
        let mut scripts = vec![store.schema_script()];
        if options.inbox {
            scripts.push(inbox.schema_script());
        }
        scripts.extend(beside.iter().filter(|part| part.is_wanted).map(|part| part.tables.schema_script()));
        let script = scripts.join("\n");
        say(&script)?;
        return Ok(Exit::Fine);
    }
    let look = Look { address, checks_only: options.check };
    let mut tables = Vec::from_iter(look.migrate(store.id().as_str(), &*store, true).await?);
    tables.extend(look.migrate(inbox.id().as_str(), &*inbox, options.inbox).await?);
    for part in beside {
        tables.extend(look.migrate(&part.name, &*part.tables, part.is_wanted).await?);
    }
    say(&match options.json {
        true => {
            let tables: Vec<_> =
                tables.iter().map(|(name, result)| json!({ "store": name, "result": result })).collect();
            json_line(&json!({ "tables": tables }))
        }
        false => tables.iter().map(|(name, result)| format!("store {}: {result}\n", escaped(name))).collect(),
    })?;
    Ok(Exit::Fine)
}

/// Tables beside those of the outbox or the inbox.
struct Beside {
    name: String,
    tables: Arc<dyn SchemaAdmin>,
    is_wanted: bool,
}

fn beside(options: &Options, store: &dyn Store, inbox: &dyn AnyInbox) -> Vec<Beside> {
    let mut beside = Vec::new();
    let mut add = |id: &StoreId, what: &str, tables: Option<Arc<dyn SchemaAdmin>>, is_wanted: bool| {
        beside.extend(tables.map(|tables| Beside { name: format!("{id} {what}"), tables, is_wanted }));
    };
    let queue = inbox.queue();
    let of_inbox = |is_wanted: bool| is_wanted && options.inbox;
    add(store.id(), "instances", store.instances().map(|list| list as _), options.instances);
    add(inbox.id(), "instances", queue.instances().map(|list| list as _), of_inbox(options.instances));
    add(store.id(), "progress", store.progress().map(|progress| progress as _), options.progress);
    add(store.id(), "pauses", store.pauses().map(|list| list as _), options.pauses);
    add(inbox.id(), "pauses", queue.pauses().map(|list| list as _), of_inbox(options.pauses));
    beside
}

struct Look {
    address: Address,
    checks_only: bool,
}

impl Look {
    /// Looks at one set of tables, deploys it, and answers its name and what was done. What is neither there nor wanted is
    /// passed over.
    async fn migrate(
        &self,
        name: &str,
        tables: &dyn SchemaAdmin,
        is_wanted: bool,
    ) -> Result<Option<(String, String)>, Failure> {
        let failure = |error: StoreError| self.address.failure(&error);
        let found = tables.check_schema().await.map_err(failure)?;
        if found == SchemaStatus::Missing && !is_wanted {
            return Ok(None);
        }
        if self.checks_only {
            let named = |error: StoreError| failure(StoreError::rejected(format!("{}: {error}", escaped(name))));
            found.require_current().map_err(named)?;
            return Ok(Some((name.to_owned(), found.to_string())));
        }
        let version = tables.deploy_schema().await.map_err(failure)?;
        Ok(Some((name.to_owned(), done(found, version))))
    }
}

fn done(found: SchemaStatus, version: u32) -> String {
    match found {
        SchemaStatus::Missing => format!("tables created, version {version}"),
        SchemaStatus::Behind { found, .. } => format!("tables upgraded from version {found} to {version}"),
        SchemaStatus::Current(_) | SchemaStatus::Ahead { .. } => {
            format!("nothing to do, the tables have version {version}")
        }
    }
}
