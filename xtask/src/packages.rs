//! Programs, a library and a module of Python: found where distributions put them, installed when root and missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Context, Failure, Outcome};
use crate::process;

const CREATECLUSTER: &str = "/etc/postgresql-common/createcluster.d";

/// A Debian package and the files in it that we run or load; `python3 -m <module>` stands for a module.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) programs: &'static [&'static str],
}

/// Makes all programs available, or says in one line what to run. Touches no network when
/// nothing is missing.
pub(crate) fn ensure(packages: &[&Package]) -> Outcome<()> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    let command = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    if !process::is_root() || process::find("apt-get", &[]).is_none() {
        return Err(Failure::new(format!("missing programs; install them with: sudo {command}")));
    }
    println!("packages: installing {}", missing.join(" "));
    if missing.contains(&"postgresql") {
        keep_default_cluster_away()?;
    }
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], &*missing].concat())?;
    match self::missing(packages).as_slice() {
        [] => Ok(()),
        still => Err(Failure::new(format!(
            "{command} succeeded, but the programs of {} are still missing",
            still.join(", ")
        ))),
    }
}

/// The full path of a server program.
pub(crate) fn program(name: &str) -> Outcome<PathBuf> {
    find(name).ok_or_else(|| Failure::new(format!("{name} is not installed")))
}

fn missing(packages: &[&Package]) -> Vec<&'static str> {
    let lacks = |package: &&&Package| package.programs.iter().any(|name| find(name).is_none());
    let mut names: Vec<_> = packages.iter().filter(lacks).map(|package| package.name).collect();
    // Two servers may come from one package.
    names.sort_unstable();
    names.dedup();
    names
}

fn find(name: &str) -> Option<PathBuf> {
    if let Some(module) = name.strip_prefix("python3 -m ") {
        return python_with(module);
    }
    let mut elsewhere = postgres_directories(Path::new("/usr/lib/postgresql"));
    elsewhere.extend(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from));
    elsewhere.extend(libfaketime_directories(Path::new("/usr/lib")));
    process::find(name, &elsewhere)
}

/// Debian leaves out a part of Python's own library, and only Python knows where the rest is.
fn python_with(module: &str) -> Option<PathBuf> {
    let python = process::find("python3", &[])?;
    let asked = process::output(Command::new(&python).args(["-c", &format!("import {module}")])).ok()?;
    asked.status.success().then_some(python)
}

/// Debian keeps each version's programs outside PATH; the newest comes first.
fn postgres_directories(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    let mut versions: Vec<u32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.iter().map(|version| parent.join(version.to_string()).join("bin")).collect()
}

/// Debian keeps libfaketime out of the linker's way, below the directory of the machine's architecture.
fn libfaketime_directories(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join("faketime")).filter(|directory| directory.is_dir()).collect()
}

/// Debian's package would otherwise create and start a server of its own.
fn keep_default_cluster_away() -> Outcome<()> {
    let file = Path::new(CREATECLUSTER).join("pillarbox-xtask.conf");
    println!("packages: {} keeps Debian from starting a default cluster", file.display());
    fs::create_dir_all(CREATECLUSTER).context(CREATECLUSTER)?;
    fs::write(&file, "create_main_cluster = false\n").context(file.display())
}

fn apt(arguments: &[&str]) -> Outcome<()> {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=120"]);
    command.args(arguments);
    // In runlevel 1 `invoke-rc.d` starts no services: the packages' own servers stay down.
    command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    let line = process::shown(&command);
    let status = process::run(command)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("{line}: {status}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_nowhere_is_missing_once() {
        let there = Package { name: "there", programs: &["sh"] };
        let half = Package { name: "half", programs: &["sh", "no-such-program"] };
        assert_eq!(missing(&[&half, &there, &half]), ["half"]);
    }

    #[test]
    fn the_newest_postgres_is_the_greatest_number() {
        let parent = std::env::temp_dir().join(format!("pillarbox-versions-{}", std::process::id()));
        for version in ["9", "15", "18", "junk"] {
            fs::create_dir_all(parent.join(version)).unwrap();
        }
        let found = postgres_directories(&parent);
        fs::remove_dir_all(&parent).unwrap();
        let expected = ["18", "15", "9"].map(|version| parent.join(version).join("bin"));
        assert_eq!(found, expected);
    }
}
