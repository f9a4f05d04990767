//! Benchmarks of Pillarbox. Start them with `cargo xtask bench`, which brings the servers along.
//!
//! Every figure stands beside hand-written SQL of the same design, measured in the same run in alternating rounds: on a
//! shared machine only ratios of one run mean anything.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints its result")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop loudly")]

mod document;
mod fleet;
mod growth;
mod inbox;
mod machine;
mod mysql;
mod order;
mod peers;
mod plot;
mod postgres;
mod relay;
mod report;
mod run;
mod runtime;
mod sqlite;
mod store;
mod subject;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::document::Outputs;
use crate::peers::Workload;
use crate::report::Report;

/// Measures the stores, and the runtime on them.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// What to measure.
    what: What,
    /// Only these databases.
    #[arg(long, value_delimiter = ',')]
    db: Vec<Db>,
    /// Alternating rounds; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Messages in each measured run: 100,000, among peers 200,000.
    #[arg(long)]
    messages: Option<usize>,
    /// Messages that lie before the relay while its memory is watched.
    #[arg(long, default_value_t = 1_000_000)]
    backlog: usize,
    /// Leaves out the long scenarios (a backlog of millions, dead rows, scheduled messages).
    #[arg(long)]
    quick: bool,
    /// Only work whose name contains this, such as `exchange`; among peers, only these contestants.
    #[arg(long, default_value = "")]
    only: String,
    /// Also writes the figures here. Peers and growth keep what the file has of tasks that are not measured anew.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Peers: only these parts.
    #[arg(long, value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Peers: how long a steady state is watched; a minute, or 5 seconds when quick.
    #[arg(long)]
    seconds: Option<f64>,
    /// Growth: the sizes of backlogs.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000, 10_000_000])]
    sizes: Vec<usize>,
    /// Peers and growth: also draws the figures here, as SVG.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Peers and growth: also writes the tables here, between the marks of a document.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Peers and growth: measures nothing, and takes the figures from here.
    #[arg(long)]
    from: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// The stores beside hand-written SQL.
    Store,
    /// The runtime beside the store, and beside writers without an outbox.
    Runtime,
    /// The inbox beside the same transactions without one.
    Inbox,
    /// Messages with keys beside messages without.
    Order,
    /// One busy store among many, and what idle ones cost.
    Fleet,
    /// Pillarbox beside other libraries, each a program of its own.
    Peers,
    /// A drain by backlog and by worker processes, memory by backlog and payload.
    Growth,
    /// The relay as a process, beside the same transport that is fed from memory.
    Relay,
    /// The other process of a measurement across processes; started by it.
    #[value(hide = true)]
    Worker,
    /// A worker process of growth; started by it.
    #[value(hide = true)]
    GrowthWorker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Db {
    Sqlite,
    Postgres,
    Mysql,
}

impl Db {
    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MariaDB",
        }
    }
}

#[tokio::main]
async fn main() {
    let arguments = Arguments::parse();
    let messages = arguments.messages.unwrap_or(100_000).max(1000);
    let scale = run::Scale { rounds: arguments.rounds.max(1), messages };
    let wanted = |db: Db| arguments.db.is_empty() || arguments.db.contains(&db);
    let mut report = Report::only(arguments.only.clone());
    match arguments.what {
        What::Worker => return runtime::work().await,
        What::GrowthWorker => return growth::work().await,
        What::Peers => return with_peers(&arguments).await,
        What::Growth => return growing(&arguments, scale).await,
        What::Inbox => inbox::measure(scale, wanted, &mut report).await,
        What::Fleet => fleet::measure(scale, &mut report).await,
        What::Relay => {
            let backlog = Some(arguments.backlog).filter(|_| !arguments.quick);
            relay::measure(scale, backlog, &mut report).await;
        }
        What::Order => order::measure(scale, wanted, &mut report).await,
        What::Runtime => runtime::measure(scale, wanted, &mut report).await,
        What::Store => {
            if wanted(Db::Postgres) {
                postgres::measure(scale, arguments.quick, &mut report).await;
            }
            if wanted(Db::Mysql) {
                mysql::measure(scale, &mut report).await;
            }
            if wanted(Db::Sqlite) {
                sqlite::measure(scale, &mut report).await;
            }
        }
    }
    print!("{report}");
    if let Some(path) = arguments.json {
        std::fs::write(&path, report.to_json()).unwrap();
        eprintln!("figures written to {}", path.display());
    }
}

fn outputs(arguments: &Arguments) -> Outputs {
    let Arguments { json, plot, markdown, .. } = arguments.clone();
    Outputs { json, plot, markdown }
}

async fn growing(arguments: &Arguments, scale: run::Scale) {
    let outputs = outputs(arguments);
    if let Some(from) = &arguments.from {
        return growth::show(from, &outputs);
    }
    let all = [Db::Postgres, Db::Mysql, Db::Sqlite];
    let databases = all.into_iter().filter(|db| arguments.db.is_empty() || arguments.db.contains(db)).collect();
    let Arguments { sizes, only, .. } = arguments.clone();
    growth::measure(&growth::Wanted { scale, sizes, only, databases }, &outputs).await;
}

async fn with_peers(arguments: &Arguments) {
    let outputs = outputs(arguments);
    if let Some(from) = &arguments.from {
        return peers::show(from, &outputs);
    }
    let Arguments { rounds, messages, seconds, quick, .. } = *arguments;
    let scale = peers::Scale::new(rounds.max(1), messages, seconds, quick);
    let only: Vec<String> = arguments.only.split(',').filter(|name| !name.is_empty()).map(Into::into).collect();
    peers::measure(&only, &arguments.workload, &scale, &outputs).await;
}
