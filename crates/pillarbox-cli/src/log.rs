//! Log lines of commands that stay: on standard error, as much as `RUST_LOG` asks for.

use tracing_subscriber::EnvFilter;

/// Begins to write. Warnings and what a relay says about itself, unless `RUST_LOG` says otherwise; JSON lines where
/// `PILLARBOX_LOG=json` is set.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let is_json = std::env::var("PILLARBOX_LOG").is_ok_and(|value| value == "json");
    // Only a second subscriber could be refused, and there is none.
    let _ = if is_json { lines.json().try_init() } else { lines.try_init() };
}
