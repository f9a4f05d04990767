//! `pillarbox migrate`: creates, upgrades, prints or checks the tables.

use clap::Args;
use pillarbox::schema::{SchemaPolicy, SchemaStatus};
use pillarbox::{SchemaAdmin, StoreError};
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
    let lists = [store.instances(), inbox.queue().instances()];
    let wanted = [options.instances, options.instances && options.inbox];
    if options.print {
        let mut scripts = vec![store.schema_script()];
        if options.inbox {
            scripts.push(inbox.schema_script());
        }
        scripts.extend(
            lists
                .iter()
                .zip(wanted)
                .filter(|(_, is_wanted)| *is_wanted)
                .flat_map(|(list, _)| list.as_ref().map(|list| list.schema_script())),
        );
        scripts.extend(store.progress().filter(|_| options.progress).map(|progress| progress.schema_script()));
        let script = scripts.join("\n");
        say(&script)?;
        return Ok(Exit::Fine);
    }
    let look = Look { address, checks_only: options.check };
    let mut tables = Vec::from_iter(look.migrate(store.id().as_str(), &*store, true).await?);
    tables.extend(look.migrate(inbox.id().as_str(), &*inbox, options.inbox).await?);
    for ((list, is_wanted), id) in lists.into_iter().zip(wanted).zip([store.id(), inbox.id()]) {
        let Some(list) = list else { continue };
        tables.extend(look.migrate(&format!("{id} instances"), &*list, is_wanted).await?);
    }
    if let Some(progress) = store.progress() {
        tables.extend(look.migrate(&format!("{} progress", store.id()), &*progress, options.progress).await?);
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
