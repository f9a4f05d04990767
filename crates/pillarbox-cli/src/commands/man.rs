//! `pillarbox man`: the manual, one page or all of them.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;

use crate::exit::{Exit, Failure};
use crate::output::say;

#[derive(Args)]
pub(crate) struct Options {
    /// Write a page for every command into this folder, instead of the first one to standard output.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(options: &Options, mut cli: Command) -> Result<Exit, Failure> {
    // Names of subcommands get whole, such as pillarbox-dead-list.
    cli.build();
    let Some(folder) = &options.dir else {
        let page = page(&cli).map_err(|error| Failure::new(format!("the manual cannot be made: {error}")))?;
        say(&String::from_utf8_lossy(&page))?;
        return Ok(Exit::Fine);
    };
    let count = write(&cli, folder)
        .map_err(|error| Failure::new(format!("the manual cannot be written to {}: {error}", folder.display())))?;
    say(&format!("{count} pages written to {}\n", folder.display()))?;
    Ok(Exit::Fine)
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

/// A page for the command and for each below it; how many.
fn write(command: &Command, folder: &Path) -> io::Result<usize> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    std::fs::write(folder.join(format!("{name}.1")), page(command)?)?;
    let below = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    below.map(|below| write(below, folder)).try_fold(1, |sum, count| Ok(sum + count?))
}
