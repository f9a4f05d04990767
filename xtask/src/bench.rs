//! `cargo xtask bench`: the benchmarks, on private servers with durable commits.

use clap::Args;

use crate::failure::{Failure, Outcome};
use crate::services::{Fleet, Home, Kind, Wanted};
use crate::{brokers, languages, process, workspace};

/// What the benchmark program accepts; `cargo xtask bench -- --help` lists it.
#[derive(Args)]
pub(crate) struct Options {
    /// Passed on to the benchmark program, for example `store --db postgres --quick`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    arguments: Vec<String>,
}

impl Options {
    fn measures(&self, what: &str) -> bool {
        self.arguments.first().is_some_and(|first| first == what)
    }
}

pub(crate) fn run(options: &Options) -> Outcome<()> {
    build("pillarbox-bench")?;
    let mut programs = Vec::new();
    if options.measures("relay") {
        build("pillarbox-cli")?;
        // Found or installed here; started and ended by the benchmark itself.
        programs = brokers::ensure()?;
    }
    let is_contest = options.measures("peers");
    if is_contest && let Err(missing) = languages::ensure_programs() {
        // Contestants that need them are named as missing; the others are measured.
        println!("bench: {missing}");
    }
    // Other servers would only be in the way of a contest, which is held on PostgreSQL.
    let kinds = if is_contest { vec![Kind::Postgres] } else { vec![Kind::Postgres, Kind::Mariadb] };
    let wanted = Wanted { kinds, upstream: None, durable: true };
    // Private ones, even when others run: they are durable, and nobody else works on them.
    let fleet = Fleet::start(&wanted, Home::throwaway)?;
    let mut bench = workspace::cargo();
    bench.args(["run", "--quiet", "--release", "--package", "pillarbox-bench", "--"]).args(&options.arguments);
    bench.envs(programs);
    for record in fleet.records() {
        println!("{record}");
        bench.env(record.kind.variable().replace("_TEST_", "_BENCH_"), &record.url);
    }
    finished(process::run(bench)?)
}

/// Before the servers start: a benchmark that does not compile should not start any.
fn build(package: &str) -> Outcome<()> {
    let mut build = workspace::cargo();
    build.args(["build", "--release", "--package", package]);
    finished(process::run(build)?)
}

fn finished(status: std::process::ExitStatus) -> Outcome<()> {
    if status.success() { Ok(()) } else { Err(Failure::with_code(process::exit_code(status), "the benchmark failed")) }
}
