//! A clock that a test can set while the server runs: libfaketime reads the offset from a file, anew each time it is asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::account::hand_over;
use crate::failure::{Context, Outcome};
use crate::packages::{Package, program};

pub(crate) const LIBFAKETIME: Package = Package { name: "libfaketime", programs: &[LIBRARY] };

/// The environment variable by which tests find the file.
pub(crate) const VARIABLE: &str = "PILLARBOX_TEST_POSTGRES_CLOCK_FILE";

const LIBRARY: &str = "libfaketime.so.1";

/// The file in a server's home that holds the seconds by which its clock is wrong, with a sign.
pub(crate) fn file(home: &Path) -> PathBuf {
    home.join("clock")
}

/// Lets the clock be right.
pub(crate) fn make(home: &Path, account: &str) -> Outcome<()> {
    let file = file(home);
    fs::write(&file, "+0\n").context(file.display())?;
    hand_over(&file, account)
}

/// The command under the false clock. `env` sets it up, and so it does after the account was switched: what the library
/// shares between processes would belong to root otherwise, out of the server's reach.
pub(crate) fn command_under(home: &Path, command: &Command) -> Outcome<Command> {
    let mut wrapped = Command::new("env");
    wrapped.arg(format!("LD_PRELOAD={}", program(LIBRARY)?.display()));
    wrapped.arg(format!("FAKETIME_TIMESTAMP_FILE={}", file(home).display()));
    // Waiting goes by the monotonic clock, which is nobody's to set.
    wrapped.args(["FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1"]);
    wrapped.arg(command.get_program()).args(command.get_args());
    Ok(wrapped)
}
