//! Running as a server's own account: PostgreSQL and pgbouncer refuse to run as root.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::failure::{Context, Failure, Outcome};
use crate::process;

/// How long a command may live.
#[derive(Clone, Copy)]
pub(crate) enum Life {
    /// The kernel ends it with this signal when we are gone.
    Ours(Signal),
    Lasting,
}

/// As root the command drops to the account; as anybody else it runs as it is.
pub(crate) fn command_as(account: &str, command: Command, life: Life) -> Outcome<Command> {
    if !process::is_root() {
        return Ok(match life {
            Life::Ours(signal) => process::dies_with_us(command, signal),
            Life::Lasting => command,
        });
    }
    // setpriv becomes the server itself. runuser stays between as its parent, and the death
    // signal would wait for runuser's death instead of ours.
    let mut dropped = if let Some(setpriv) = process::find("setpriv", &[]) {
        let mut dropped = Command::new(setpriv);
        dropped.args(["--reuid", account, "--regid", account, "--init-groups"]);
        if let Life::Ours(signal) = life {
            dropped.args(["--pdeathsig", process::signal_name(signal)]);
        }
        dropped
    } else {
        let runuser = process::find("runuser", &[]);
        let runuser = runuser.ok_or_else(|| Failure::new("neither setpriv nor runuser is there"))?;
        let mut dropped = Command::new(runuser);
        dropped.args(["-u", account]);
        dropped
    };
    dropped.arg("--").arg(command.get_program()).args(command.get_args());
    Ok(dropped)
}

/// Gives a file or directory to the account, when we are root.
pub(crate) fn hand_over(path: &Path, account: &str) -> Outcome<()> {
    if !process::is_root() {
        return Ok(());
    }
    chown(path, Some(id("-u", account)?), Some(id("-g", account)?)).context(path.display())
}

/// A home below a closed directory, such as root's own, is out of reach for the account.
pub(crate) fn can_enter(directory: &Path, account: &str) -> bool {
    let mut test = Command::new("test");
    test.arg("-x").arg(directory);
    command_as(account, test, Life::Lasting)
        .and_then(|mut test| process::output(&mut test))
        .is_ok_and(|output| output.status.success())
}

fn id(which: &str, account: &str) -> Outcome<u32> {
    let output = process::output(Command::new("id").args([which, account]))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().context(format!("no account {account} on this machine"))
}
