//! `pillarbox migrate`: creates, upgrades, prints or checks the tables.

use clap::Args;
use pillarbox::schema::{SchemaPolicy, SchemaStatus};

use crate::exit::{Exit, Failure};
use crate::output::{escaped, say};
use crate::store_args::StoreArgs;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// Print what would run on an empty database, for a DBA to read and run; changes nothing.
    ///
    /// PostgreSQL and MySQL are connected to all the same; an SQLite file need not exist.
    #[arg(long, conflicts_with = "check")]
    print: bool,
    /// Compare the tables with what this program needs; changes nothing, fails when they differ.
    #[arg(long)]
    check: bool,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let assume = options.store.options(SchemaPolicy::Assume)?;
    let address = options.store.address()?;
    if options.print {
        let store = address.imagined().connect(assume).await?;
        say(&store.schema_script())?;
        return Ok(Exit::Fine);
    }
    let address = if options.check { address.existing() } else { address };
    let store = address.connect(assume).await?;
    let name = escaped(store.id().as_str());
    let found = store.check_schema().await.map_err(|error| address.failure(&error))?;
    if options.check {
        found.require_current().map_err(|error| address.failure(&error))?;
        say(&format!("store {name}: {found}\n"))?;
        return Ok(Exit::Fine);
    }
    let version = store.deploy_schema().await.map_err(|error| address.failure(&error))?;
    say(&format!("store {name}: {}\n", done(found, version)))?;
    Ok(Exit::Fine)
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
