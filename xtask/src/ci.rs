//! Everything that must pass before a change lands, cheapest first.

use std::process::Command;
use std::time::Instant;

use crate::failure::{Failure, Outcome};
use crate::{brokers, process, test, tidy, workspace};

pub(crate) fn run() -> Outcome<()> {
    let start = Instant::now();
    let mut fmt = workspace::cargo();
    fmt.args(["fmt", "--all", "--check"]);
    stage("fmt", &process::shown(&fmt), || command(fmt))?;

    brokers::ensure_build()?;
    let mut clippy = workspace::cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--all-features", "--locked"]);
    clippy.args(["--", "-D", "warnings"]);
    stage("clippy", &process::shown(&clippy), || command(clippy))?;

    stage("tidy", "cargo xtask tidy", tidy::run)?;
    stage("test", "cargo xtask test", || test::run(&test::Options::default()))?;
    println!("ci: all stages passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn stage(name: &str, repeat: &str, work: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    println!("==> {name}: {repeat}");
    let start = Instant::now();
    let outcome = work();
    let seconds = start.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => {
            println!("<== {name} passed in {seconds:.1} s");
            Ok(())
        }
        Err(failure) => Err(Failure::with_code(
            failure.code,
            format!("ci stage {name} failed after {seconds:.1} s ({failure}); repeat it with: {repeat}"),
        )),
    }
}

fn command(command: Command) -> Outcome<()> {
    let status = process::run(command)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::with_code(process::exit_code(status), status.to_string()))
}
