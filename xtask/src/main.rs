//! What a developer and the ci machine run: `cargo xtask --help`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people: the terminal is its interface")]

mod bench;
mod brokers;
mod ci;
mod failure;
mod languages;
mod packages;
mod process;
mod services;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Outcome;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Test services, ci, tidy and benchmarks of Pillarbox")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure, on private servers with durable commits.
    Bench(bench::Options),
    /// Everything that must pass before a change lands.
    Ci,
    /// Install what tests of other languages need, and print how they find it.
    Languages,
    /// Keep private database servers running between test runs.
    #[command(subcommand)]
    Services(services::Task),
    /// Run all tests against real, private database servers.
    Test(test::Options),
    /// Check what the compiler cannot: documents, file lists, directions.
    Tidy,
}

fn main() -> ExitCode {
    let task = Cli::parse().task;
    match process::watch_signals().and_then(|()| run(task)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn run(task: Task) -> Outcome<()> {
    match task {
        Task::Bench(options) => bench::run(&options),
        Task::Ci => ci::run(),
        Task::Languages => languages::run(),
        Task::Services(task) => services::run(&task),
        Task::Test(options) => test::run(&options),
        Task::Tidy => tidy::run(),
    }
}
