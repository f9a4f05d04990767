//! `pillarbox completions`: what a shell needs to complete our commands.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::{Exit, Failure};
use crate::output::say;

#[derive(Args)]
pub(crate) struct Options {
    /// For which shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(options: &Options, mut cli: Command) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut cli, "pillarbox", &mut script);
    say(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Fine)
}
