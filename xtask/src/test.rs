//! All tests, against real servers that nobody had to set up.

use std::env;
use std::process::Command;
use std::time::Instant;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, Outcome};
use crate::services::{self, Fleet, Home, Kind, Record, Wanted};
use crate::{brokers, languages, process, workspace};

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Only these databases: other servers stay down, other backends' crates and the tests
    /// named after them are left out, and so are those of brokers and other languages. All when not given.
    #[arg(long, value_delimiter = ',')]
    db: Vec<Database>,
    /// Passed on to `cargo nextest run` or `cargo test`; with these, doc tests are left out.
    #[arg(last = true)]
    extra: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Database {
    Sqlite,
    Postgres,
    #[value(alias = "mariadb")]
    Mysql,
}

/// A test that starts a broker, or a program in another language, carries one of these in its name.
const OTHERS: [&str; 8] = ["rabbitmq", "amqp", "nats", "redis", "mqtt", "kafka", "brokers::", "languages::"];

impl Database {
    fn package(self) -> &'static str {
        match self {
            Self::Sqlite => "pillarbox-sqlite",
            Self::Postgres => "pillarbox-postgres",
            Self::Mysql => "pillarbox-mysql",
        }
    }

    /// A test that needs one database beyond its crate carries one of these in its name.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Sqlite => &["sqlite"],
            Self::Postgres => &["postgres", "pgbouncer"],
            Self::Mysql => &["mysql", "mariadb"],
        }
    }

    fn servers(self) -> &'static [Kind] {
        match self {
            Self::Sqlite => &[],
            Self::Postgres => &[Kind::Postgres, Kind::Pgbouncer, Kind::PostgresTls, Kind::PostgresJumping],
            Self::Mysql => &[Kind::Mariadb, Kind::MariadbTls],
        }
    }
}

pub(crate) fn run(options: &Options) -> Outcome<()> {
    println!("SQL Server: there is no backend for it in this version, and so nothing to test");
    let start = Instant::now();
    let programs = options.ensure_programs()?;
    let Servers { mut variables, fleet } = find_servers(options)?;
    variables.extend(programs);
    println!("servers: ready after {:.1} s", start.elapsed().as_secs_f64());
    let outcome = run_stages(options, &variables);
    let start = Instant::now();
    if fleet.is_some() {
        drop(fleet);
        println!("servers: stopped in {:.1} s", start.elapsed().as_secs_f64());
    }
    outcome
}

type Variable = (&'static str, String);

/// How the tests reach each server, and those that live only as long as this.
struct Servers {
    variables: Vec<Variable>,
    fleet: Option<Fleet>,
}

/// The caller's own servers first, then those of `services up`, then private ones.
fn find_servers(options: &Options) -> Outcome<Servers> {
    let mut kinds = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| options.wants(*kind)) {
        if env::var_os(kind.variable()).is_some() {
            println!("servers: {} as {} says", kind.name(), kind.variable());
        } else {
            kinds.push(kind);
        }
    }
    if kinds.is_empty() {
        return Ok(Servers { variables: Vec::new(), fleet: None });
    }
    // pgbouncer must stand before the very PostgreSQL that the tests talk to.
    let upstream = env::var(Kind::Postgres.variable()).ok();
    let fits = upstream.is_none() || !kinds.contains(&Kind::Pgbouncer);
    let running = if fits { services::running() } else { None };
    let mut records = running.unwrap_or_default();
    records.retain(|record| kinds.contains(&record.kind));
    if !records.is_empty() {
        println!("servers: using those of `cargo xtask services up`");
    }
    kinds.retain(|kind| !records.iter().any(|record| record.kind == *kind));
    let fleet = match kinds.is_empty() {
        true => None,
        false => Some(Fleet::start(&Wanted { kinds, upstream, durable: false }, Home::throwaway)?),
    };
    records.extend(fleet.iter().flat_map(Fleet::records));
    for record in &records {
        println!("servers: {record}");
    }
    let variables = records.iter().flat_map(Record::variables).collect();
    Ok(Servers { variables, fleet })
}

fn run_stages(options: &Options, variables: &[Variable]) -> Outcome<()> {
    let nextest = has_nextest();
    let tests = stage("tests", options.command(nextest), variables);
    let docs = if !nextest {
        Ok(())
    } else if options.extra.is_empty() {
        process::check_interrupt()?;
        stage("doc tests", options.doc_command(), variables)
    } else {
        println!("doc tests: left out, because arguments were given");
        Ok(())
    };
    tests.and(docs)
}

fn stage(name: &str, mut command: Command, variables: &[Variable]) -> Outcome<()> {
    for (name, value) in variables {
        command.env(name, value);
    }
    println!("{name}: {}", process::shown(&command));
    let start = Instant::now();
    let status = process::run(command)?;
    println!("{name}: took {:.1} s", start.elapsed().as_secs_f64());
    if status.success() {
        return Ok(());
    }
    Err(Failure::with_code(process::exit_code(status), format!("{name} failed")))
}

fn has_nextest() -> bool {
    let home = env::var_os("CARGO_HOME").map(std::path::PathBuf::from);
    let bin: Vec<_> = home.into_iter().map(|home| home.join("bin")).collect();
    process::find("cargo-nextest", &bin).is_some()
}

impl Options {
    fn wants(&self, kind: Kind) -> bool {
        self.db.is_empty() || self.db.iter().any(|db| db.servers().contains(&kind))
    }

    fn left_out(&self) -> Vec<Database> {
        if self.db.is_empty() {
            return Vec::new();
        }
        let all = Database::value_variants().iter().copied();
        all.filter(|db| !self.db.contains(db)).collect()
    }

    /// Makes the programs available that the tests start: brokers, and other languages. What is left out is not needed.
    fn ensure_programs(&self) -> Outcome<Vec<Variable>> {
        if self.db.is_empty() {
            return Ok([languages::ensure()?, brokers::ensure_all()?].concat());
        }
        println!("!!! NOT TESTED: brokers and other languages, because databases were chosen");
        brokers::ensure_build()?;
        Ok(Vec::new())
    }

    /// A choice of databases leaves brokers and other languages out.
    fn words_left_out(&self) -> impl Iterator<Item = &'static str> {
        let others: &[&str] = if self.db.is_empty() { &[] } else { &OTHERS };
        self.left_out().into_iter().flat_map(Database::words).chain(others).copied()
    }

    fn command(&self, nextest: bool) -> Command {
        let mut command = workspace::cargo();
        command.args(if nextest { &["nextest", "run"][..] } else { &["test"][..] });
        command.args(["--workspace", "--all-features", "--no-fail-fast"]);
        command.args(self.arguments());
        command
    }

    fn doc_command(&self) -> Command {
        let mut command = workspace::cargo();
        command.args(["test", "--workspace", "--all-features", "--no-fail-fast", "--doc"]);
        command.args(self.excludes());
        command
    }

    /// Before `--` for cargo, after it for the tests; `--skip` is known to both runners.
    fn arguments(&self) -> Vec<String> {
        let mut split = self.extra.splitn(2, |argument| argument == "--");
        let mut arguments = self.excludes();
        arguments.extend(split.next().unwrap_or_default().iter().cloned());
        let mut late = split.next().unwrap_or_default().to_vec();
        for word in self.words_left_out() {
            late.extend(["--skip".to_owned(), word.to_owned()]);
        }
        if !late.is_empty() {
            arguments.push("--".to_owned());
            arguments.append(&mut late);
        }
        arguments
    }

    fn excludes(&self) -> Vec<String> {
        let exclude = |db: &Database| ["--exclude".to_owned(), db.package().to_owned()];
        self.left_out().iter().flat_map(exclude).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(db: &[Database], extra: &[&str]) -> Options {
        let extra = extra.iter().map(|argument| (*argument).to_owned()).collect();
        Options { db: db.to_vec(), extra }
    }

    #[test]
    fn without_choice_every_server_is_wanted_and_nothing_left_out() {
        let all = options(&[], &[]);
        assert!(Kind::ALL.into_iter().all(|kind| all.wants(kind)));
        assert!(all.arguments().is_empty());
    }

    #[test]
    fn sqlite_alone_needs_no_server() {
        let sqlite = options(&[Database::Sqlite], &[]);
        assert!(!Kind::ALL.into_iter().any(|kind| sqlite.wants(kind)));
    }

    #[test]
    fn a_choice_joins_the_callers_own_arguments() {
        let chosen = options(&[Database::Sqlite, Database::Postgres], &["claims", "--", "--nocapture"]);
        let expected = "--exclude pillarbox-mysql claims -- --nocapture --skip mysql --skip mariadb \
                        --skip rabbitmq --skip amqp --skip nats --skip redis --skip mqtt --skip kafka \
                        --skip brokers:: --skip languages::";
        assert_eq!(chosen.arguments().join(" "), expected);
    }
}
