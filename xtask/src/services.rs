//! Private servers: kept running for a developer, or for the time of one test run.

mod account;
mod certificate;
mod clock;
mod fleet;
mod home;
mod mariadb;
mod pgbouncer;
mod postgres;
mod rabbitmq;
mod record;
mod server;

use std::fs;
use std::path::PathBuf;

use clap::Subcommand;

use crate::failure::{Context, Failure, Outcome};
use crate::{brokers, process, workspace};

pub(crate) use fleet::{Fleet, Wanted};
pub(crate) use home::Home;
pub(crate) use record::Record;
pub(crate) use server::Kind;

use record::State;

/// The exit code of init scripts for "not running".
const STOPPED: u8 = 3;

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Start all servers, wait until they answer and print how to reach them.
    Up {
        /// Leave fsync and flushing at their safe defaults, as benchmarks need it.
        #[arg(long)]
        durable: bool,
    },
    /// Stop what `up` has started and remove its data.
    Down,
    /// Say what runs; exits with 3 when not everything does.
    Status,
}

pub(crate) fn run(task: &Task) -> Outcome<()> {
    match task {
        Task::Up { durable } => up(*durable),
        Task::Down => down(),
        Task::Status => status(),
    }
}

/// The servers of `services up`, when all of them still live.
pub(crate) fn running() -> Option<Vec<Record>> {
    let state = State::read(&directory()).ok()??;
    state.is_running().then_some(state.records)
}

fn up(durable: bool) -> Outcome<()> {
    let kinds: Vec<_> = Kind::ALL.into_iter().filter(|kind| !durable || !kind.is_special()).collect();
    let directory = directory();
    fs::create_dir_all(&directory).context(directory.display())?;
    let _one_at_a_time = home::lock(&directory)?;
    let brokers = brokers::env_lines(&brokers::ensure_all()?);
    match State::read(&directory)? {
        Some(state) if state.is_running() && state.durable == durable && state.has(&kinds) => {
            return print_env(&state.records, &brokers);
        }
        Some(state) if state.is_running() => {
            return Err(Failure::new("other servers than these are running; run `cargo xtask services down` first"));
        }
        Some(state) => stop(&state)?,
        None => {}
    }
    let wanted = Wanted { kinds, upstream: None, durable };
    let fleet = Fleet::start(&wanted, || Home::lasting(&directory))?;
    let state = State { durable, home: fleet.home(), records: fleet.records() };
    state.write(&directory, &brokers)?;
    fleet.leave_running();
    for record in &state.records {
        eprintln!("{record}");
    }
    print_env(&state.records, &brokers)
}

fn down() -> Outcome<()> {
    let directory = directory();
    if !directory.exists() {
        println!("services: nothing is running");
        return Ok(());
    }
    let lock = home::lock(&directory)?;
    match State::read(&directory)? {
        Some(state) => {
            stop(&state)?;
            println!("services: stopped");
        }
        None => println!("services: nothing is running"),
    }
    drop(lock);
    fs::remove_dir_all(&directory).context(directory.display())
}

fn status() -> Outcome<()> {
    let state = State::read(&directory())?;
    for record in state.iter().flat_map(|state| &state.records) {
        let word = if record.is_running() { "running" } else { "stopped" };
        println!("{word}: {record}");
    }
    match state {
        Some(state) if state.is_running() => Ok(()),
        Some(_) => Err(Failure::with_code(STOPPED, "services: not all servers run")),
        None => Err(Failure::with_code(STOPPED, "services: stopped")),
    }
}

fn stop(state: &State) -> Outcome<()> {
    for record in &state.records {
        process::end(record.pid, &record.home, record.kind.server().end_signal());
    }
    match fs::remove_dir_all(&state.home) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context(state.home.display()),
        _ => Ok(()),
    }
}

fn print_env(records: &[Record], brokers: &str) -> Outcome<()> {
    print!("{}{brokers}", record::env_lines(records));
    Ok(())
}

fn directory() -> PathBuf {
    workspace::root().join(".services")
}
