//! The directory in which a fleet keeps its data.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::account;
use super::server::Kind;
use crate::failure::{Context, Failure, Outcome};

const PREFIX: &str = "pillarbox-test-";
const LOCK: &str = "lock";

/// Throwaway homes are locked while they are in use: one that nobody locks is left over.
pub(crate) struct Home {
    pub(crate) path: PathBuf,
    lock: Option<File>,
}

impl Home {
    /// For one run; whatever killed runs have left behind goes first.
    pub(crate) fn throwaway() -> Outcome<Self> {
        let parent = std::env::temp_dir();
        sweep(&parent);
        let path = parent.join(unique_name());
        create(&path)?;
        // Locked before it has its name, so that no sweep takes it for left over.
        let unnamed = path.join("lock.new");
        let lock = File::create(&unnamed).context(unnamed.display())?;
        lock.lock().context(unnamed.display())?;
        fs::rename(&unnamed, path.join(LOCK)).context(unnamed.display())?;
        Ok(Self { path, lock: Some(lock) })
    }

    /// Beside the state of `services up`, on the developer's own disk where benchmarks measure;
    /// in the temporary directory when the servers' accounts cannot get there.
    pub(crate) fn lasting(state: &Path) -> Outcome<Self> {
        let reachable = |kind: &Kind| account::can_enter(state, kind.server().account());
        let path =
            if Kind::ALL.iter().all(reachable) { state.join("data") } else { std::env::temp_dir().join(unique_name()) };
        let _left_over = fs::remove_dir_all(&path);
        create(&path)?;
        Ok(Self { path, lock: None })
    }

    pub(crate) fn is_throwaway(&self) -> bool {
        self.lock.is_some()
    }

    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("services: cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Held until dropped, so that two `up` or `down` do not cross.
pub(crate) fn lock(directory: &Path) -> Outcome<File> {
    let path = directory.join(LOCK);
    let file = File::create(&path).context(path.display())?;
    file.try_lock().map_err(|_| Failure::new("another `cargo xtask services` is at work"))?;
    Ok(file)
}

/// Open for the servers' accounts, whatever our umask says.
fn create(path: &Path) -> Outcome<()> {
    fs::create_dir(path).context(path.display())?;
    fs::set_permissions(path, Permissions::from_mode(0o755)).context(path.display())
}

fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            remove_if_left_over(&entry.path());
        }
    }
}

fn remove_if_left_over(path: &Path) {
    let Ok(file) = File::open(path.join(LOCK)) else {
        return;
    };
    if file.try_lock().is_ok() {
        println!("services: removing {}, left behind by a killed run", path.display());
        let _somebody_elses = fs::remove_dir_all(path);
    }
}

fn unique_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{PREFIX}{}-{}", std::process::id(), now.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_spares_homes_in_use() {
        let used = Home::throwaway().unwrap();
        let left = Home::throwaway().unwrap();
        let left_path = left.path.clone();
        drop(left);
        sweep(&std::env::temp_dir());
        assert!(used.path.exists());
        assert!(!left_path.exists());
        used.remove();
    }
}
