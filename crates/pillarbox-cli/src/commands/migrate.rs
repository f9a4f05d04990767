//! `pillarbox migrate`: creates, upgrades, prints or checks the tables.

use clap::Args;
use pillarbox::schema::{SchemaPolicy, SchemaStatus};
use pillarbox::{SchemaAdmin, StoreError, StoreId};

use crate::exit::{Exit, Failure};
use crate::output::{escaped, say};
use crate::store_args::{Address, StoreArgs};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// The tables of an inbox too. Without this they are upgraded and checked where they are, and not created.
    #[arg(long)]
    inbox: bool,
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
    let address = match (options.print, options.check) {
        (true, _) => address.imagined(),
        (_, true) => address.existing(),
        _ => address,
    };
    let store = address.connect(assume).await?;
    let inbox = store.open_inbox(options.store.inbox_options()).await.map_err(|error| address.failure(&error))?;
    if options.print {
        let script = store.schema_script();
        let script = if options.inbox { script + "\n" + &inbox.schema_script() } else { script };
        say(&script)?;
        return Ok(Exit::Fine);
    }
    let look = Look { address, checks_only: options.check };
    let outbox = look.migrate(store.id(), &*store, true).await?;
    let inbox = look.migrate(inbox.id(), &*inbox, options.inbox).await?;
    say(&(outbox + &inbox))?;
    Ok(Exit::Fine)
}

struct Look {
    address: Address,
    checks_only: bool,
}

impl Look {
    /// Looks at one set of tables, deploys it, and answers a line. What is neither there nor wanted is passed over.
    async fn migrate(&self, id: &StoreId, tables: &dyn SchemaAdmin, is_wanted: bool) -> Result<String, Failure> {
        let failure = |error: StoreError| self.address.failure(&error);
        let found = tables.check_schema().await.map_err(failure)?;
        if found == SchemaStatus::Missing && !is_wanted {
            return Ok(String::new());
        }
        let name = escaped(id.as_str());
        if self.checks_only {
            let named = |error: StoreError| failure(StoreError::rejected(format!("{name}: {error}")));
            found.require_current().map_err(named)?;
            return Ok(format!("store {name}: {found}\n"));
        }
        let version = tables.deploy_schema().await.map_err(failure)?;
        Ok(format!("store {name}: {}\n", done(found, version)))
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
