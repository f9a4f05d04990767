//! The `pillarbox` command.
//!
//! A thin shell: `commands/` has one file per command, `store_args` turns options into a store, `selection` into a filter,
//! `change` does what is done to many messages, `progress` shows it, `paused`, `instances` and `blocked` know what is shown of a queue
//! in several places, `output` writes, `exit` has the codes.

mod blocked;
mod change;
mod commands;
mod exit;
mod instances;
mod log;
mod output;
mod paused;
mod progress;
mod relay;
mod selection;
mod store_args;

use std::process::ExitCode;

use clap::Parser;

use commands::Command;
use exit::{Exit, Failure};

/// The transactional outbox and inbox: look at them, deploy their tables, see them work.
///
/// The database is named by --url or by the variable DATABASE_URL. Addresses and passwords are never shown.
#[derive(Parser)]
#[command(name = "pillarbox", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// A relay takes and gives back some memory for every message: the system's allocator would be a quarter of its work.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXIT_CODES: &str = "\
Exit codes:
  0  fine
  1  failed: the database cannot be reached, refuses, or has no such message
  2  wrong use: an option, an address or a value makes no sense
  3  warning: `status` and `doctor` found something that should be better, `verify` replayed what was lost, and `routes explain`
     knows no route that matches
  4  critical: `status` and `doctor` found dead messages or something that loses messages, `verify` messages that are lost

Colours are for terminals, and off when NO_COLOR is set. Commands that look or change take --json.";

fn main() -> ExitCode {
    let ended = match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(refused) => Err(without_address(refused)),
    };
    let exit = ended.unwrap_or_else(|failure| {
        output::complain(&failure.words);
        failure.exit
    });
    exit.into()
}

/// Ends with the parser's own words, or with ours where those would repeat an address, which may hold a password.
fn without_address(refused: clap::Error) -> Failure {
    let is_help = !refused.use_stderr();
    if is_help || !refused.to_string().contains("://") {
        refused.exit();
    }
    Failure::wrong_use("an address stands where none is expected: give it as --url <URL>")
}

fn run(command: Command) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Failure::new(format!("no threads: {error}")))?;
    runtime.block_on(command.run())
}
