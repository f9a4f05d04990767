//! Where the workspace lies, and its cargo.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiled in: the directory from which somebody calls does not matter.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// The cargo that runs us, so that toolchain overrides stay in force.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}
