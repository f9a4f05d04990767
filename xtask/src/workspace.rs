//! Where the workspace lies, and its cargo.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiled in: the directory from which somebody calls does not matter.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// What may lie around between runs, and is gone with `cargo clean`.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs us, so that toolchain overrides stay in force.
///
/// What cargo told us about our own package is taken away: build scripts that watch those variables would run again at each
/// change between `cargo xtask` and plain `cargo`, and the drivers be compiled anew.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let is_ours = name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || OURS.contains(&name));
        if is_ours {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(root());
    cargo
}

const OURS: [&str; 4] = ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_CRATE_NAME"];
