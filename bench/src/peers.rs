//! Pillarbox beside its peers, each a program of its own, on one private PostgreSQL. `bench/peers/README.md` has the rules.

mod cost;
mod entrant;
mod install;
mod results;
mod server;
mod steady;
mod table;
mod task;

use clap::ValueEnum as _;
use serde_json::json;

use self::entrant::Entrant;
use self::install::{Installed, Start};
use self::results::{Discipline, Entry, Results};
use self::server::Server;
use self::task::{Memory, Task, Turn};
use crate::document::{self, Outputs};
use crate::machine::Machine;
use crate::postgres;

pub(crate) use self::task::Workload;

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) rounds: usize,
    pub(crate) messages: u64,
    pub(crate) backlog: u64,
    pub(crate) latency_seconds: f64,
    pub(crate) probe_seconds: f64,
    pub(crate) steady_seconds: f64,
}

impl Scale {
    /// Enough for figures; or small, to see that everything works.
    pub(crate) fn new(rounds: usize, messages: Option<usize>, seconds: Option<f64>, is_quick: bool) -> Self {
        let messages = messages.and_then(|count| u64::try_from(count).ok());
        let messages = messages.unwrap_or(if is_quick { 20_000 } else { 200_000 }).max(1000);
        Self {
            rounds,
            messages,
            backlog: messages * 15,
            latency_seconds: if is_quick { 3.0 } else { 10.0 },
            probe_seconds: if is_quick { 2.0 } else { 5.0 },
            steady_seconds: seconds.unwrap_or(if is_quick { 5.0 } else { 60.0 }),
        }
    }
}

/// A contestant that can be started, and its database.
struct Ready {
    name: String,
    start: Start,
    url: String,
}

/// Measures, and writes after every task: a contest takes hours.
pub(crate) async fn measure(only: &[String], workloads: &[Workload], scale: &Scale, outputs: &Outputs) {
    let installed = install::install(only);
    let server = Server::connect(&postgres::url()).await;
    let mut machine = Machine::here();
    machine.add_postgres(&server.pool).await;
    let mut results = outputs.json.as_deref().map(Results::read).unwrap_or_default();
    let (ready, entries) = introduced(installed, &server).await;
    results.take(Results { machine: machine.clone(), entries, disciplines: Vec::new() });
    let command = document::command();
    let all = if workloads.is_empty() { Workload::value_variants() } else { workloads };
    let tasks: Vec<_> = all.iter().flat_map(|workload| workload.tasks()).collect();
    for tasks in tasks.chunk_by(|one, next| one.takes_turns_with(*next)) {
        let disciplines = contest(tasks, &ready, &server, scale, &command).await;
        results.take(Results { machine: machine.clone(), entries: Vec::new(), disciplines });
        write(&results, outputs);
    }
    for one in &ready {
        server.drop_database(&one.name).await;
    }
    print!("{}", table::markdown(&results));
}

/// Tables and plot of results that are there.
pub(crate) fn show(from: &std::path::Path, outputs: &Outputs) {
    let results = Results::read(from);
    write(&results, &Outputs { json: None, ..outputs.clone() });
    print!("{}", table::markdown(&results));
}

fn write(results: &Results, outputs: &Outputs) {
    outputs.write("peers", results, &table::markdown(results), &table::plot(results));
}

/// Asks everybody who they are. Who does not answer is missing.
async fn introduced(installed: Vec<Installed>, server: &Server) -> (Vec<Ready>, Vec<Entry>) {
    let (mut ready, mut entries) = (Vec::new(), Vec::new());
    for Installed { name, start } in installed {
        let url = server.make_database(&name).await;
        let hello = match &start {
            Ok(start) => hello(start, &url).await,
            Err(reason) => Err(reason.clone()),
        };
        match (hello, start) {
            (Ok(entry), Ok(start)) => {
                entries.push(Entry { name: name.clone(), ..entry });
                ready.push(Ready { name, start, url });
            }
            (hello, _) => {
                let reason = hello.err().unwrap_or_default();
                eprintln!("{name} is missing: {reason}");
                entries.push(Entry { name, missing: Some(reason), ..Entry::default() });
            }
        }
    }
    (ready, entries)
}

async fn hello(start: &Start, url: &str) -> Result<Entry, String> {
    let mut entrant = Entrant::started(start, url)?;
    let answer = entrant.ask(&json!({ "do": "hello" })).await?;
    entrant.ask(&json!({ "do": "prepare" })).await?;
    entrant.stop().await;
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    Ok(Entry {
        name: text("name"),
        version: text("version"),
        language: text("language"),
        settings: text("settings"),
        missing: None,
    })
}

/// All contestants in turn, round after round, and each with one task after the other. Who fails in one round is asked again in
/// the next.
async fn contest(tasks: &[Task], ready: &[Ready], server: &Server, scale: &Scale, command: &str) -> Vec<Discipline> {
    let mut past: Vec<Past> = tasks.iter().map(|task| Past::of(*task, ready.len(), scale, command)).collect();
    let first = usize::from(!tasks.iter().any(|task| task.has_warm_up()));
    for round in first..=scale.rounds {
        for (at, one) in ready.iter().enumerate() {
            for Past { task, disciplines, memories, kept } in &mut past {
                let measured = in_turn(*task, one, &mut memories[at], &mut kept[at], server, scale).await;
                let name = task.name(scale);
                match &measured {
                    Ok(figures) => eprintln!("  {name}, round {round}: {}: {figures:.1?}", one.name),
                    Err(problem) => eprintln!("  {name}, round {round}: {}: {problem}", one.name),
                }
                if round > 0 || measured.is_err() {
                    note(disciplines, &one.name, round, measured);
                }
            }
        }
    }
    for (one, kept) in past.iter_mut().flat_map(|past| ready.iter().zip(&mut past.kept)) {
        if let Some(mut entrant) = kept.take() {
            let _best_effort = entrant.ask(&json!({ "do": "clear" })).await;
            entrant.stop().await;
            server.make_database(&one.name).await;
        }
    }
    past.into_iter().flat_map(|past| past.disciplines).collect()
}

/// A task, and what was found and remembered of each contestant.
struct Past {
    task: Task,
    disciplines: Vec<Discipline>,
    memories: Vec<Memory>,
    kept: Vec<Option<Entrant>>,
}

impl Past {
    fn of(task: Task, count: usize, scale: &Scale, command: &str) -> Self {
        let kept = (0..count).map(|_| None).collect();
        Self { task, disciplines: task.disciplines(scale, command), memories: vec![Memory::default(); count], kept }
    }
}

async fn in_turn(
    task: Task,
    one: &Ready,
    memory: &mut Memory,
    kept: &mut Option<Entrant>,
    server: &Server,
    scale: &Scale,
) -> Result<Vec<f64>, String> {
    if matches!(task, Task::CostInTurn | Task::CostTogether) {
        return cost::measure(task, &one.name, &one.start, &one.url, server, scale).await;
    }
    let mut entrant = match kept.take() {
        Some(entrant) => entrant,
        None => Entrant::prepared(&one.start, &one.url).await?,
    };
    let turn = Turn { name: &one.name, entrant: &mut entrant, server, memory, scale };
    let measured = task.measure(turn).await;
    if task.keeps_messages() && measured.is_ok() {
        *kept = Some(entrant);
    } else {
        entrant.stop().await;
        // What it kept is gone with it, and so is what was remembered of that.
        if task.keeps_messages() {
            *memory = Memory::default();
        }
    }
    measured
}

/// Puts the figures of one contestant and round in their places.
fn note(disciplines: &mut [Discipline], name: &str, round: usize, measured: Result<Vec<f64>, String>) {
    for (at, discipline) in disciplines.iter_mut().enumerate() {
        let figure = discipline.figure_of(name);
        figure.rounds.resize(round.saturating_sub(1), None);
        match &measured {
            Ok(figures) => figure.rounds.push(figures.get(at).copied()),
            Err(problem) => figure.problem = Some(problem.clone()),
        }
    }
}
