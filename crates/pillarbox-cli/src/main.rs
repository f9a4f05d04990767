//! The `pillarbox` command.
//!
//! A thin shell: `commands/` has one file per command, `store_args` turns options into a store, `output` writes, `exit`
//! has the codes.

mod commands;
mod exit;
mod output;
mod store_args;

use std::process::ExitCode;

use clap::Parser;

use commands::Command;
use exit::{Exit, Failure};

/// The transactional outbox and inbox: look at them, deploy their tables, see them work.
///
/// Exit codes: 0 fine, 1 failed, 2 wrong use, 3 warning, 4 critical.
#[derive(Parser)]
#[command(name = "pillarbox", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

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
