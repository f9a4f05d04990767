//! The commands, one file each.

mod bench;
mod blocked;
mod completions;
mod dead;
mod demo;
mod doctor;
mod inbox;
mod instances;
mod list;
mod man;
mod migrate;
mod pause;
mod purge;
mod relay;
mod replay;
mod routes;
mod show;
mod status;
mod top;
mod verify;

use clap::{CommandFactory, Subcommand};

use crate::Cli;
use crate::exit::{Exit, Failure};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the outbox at work in ten seconds, with a worker that gets killed; needs nothing
    Demo(demo::Options),
    /// Create or upgrade the tables, or only print or check them
    Migrate(migrate::Options),
    /// Count messages by topic and state; exits with 3 or 4 when something needs attention
    Status(status::Options),
    /// List messages of one state, a page at a time
    List(list::Options),
    /// Show everything that is known of one message
    Show(show::Options),
    /// List, replay or delete messages that were given up, of the outbox or of the inbox
    #[command(subcommand)]
    Dead(dead::Command),
    /// Deliver messages once more that were delivered; without --yes, say how many
    Replay(replay::Options),
    /// Remove what was delivered long ago; without --yes, say how many
    Purge(purge::Options),
    /// Let the messages of a route wait, on every instance, until it is resumed
    Pause(pause::PauseOptions),
    /// Let a paused route go on
    Resume(pause::Options),
    /// Watch the counts and rates of every topic, live
    Top(top::Options),
    /// Check clock, schema, rights, durability, wake-ups and connections, and say how to fix what is wrong
    Doctor(doctor::Options),
    /// Measure what this database can do, in tables that are made for it and dropped again
    Bench(bench::Options),
    /// Print what a shell needs to complete these commands
    Completions(completions::Options),
    /// Print the manual page, or write those of all commands
    Man(man::Options),
    /// List keys whose messages wait behind one that is dead or waits for its next attempt
    Blocked(blocked::Options),
    /// Look at what came in: one message, or those that came again with another content
    #[command(subcommand)]
    Inbox(inbox::Command),
    /// List the instances that serve the outbox or the inbox, and those that went silent
    Instances(instances::Options),
    /// Deliver messages to brokers, until told to end: one or many stores, by a file or by flags
    Relay(relay::Options),
    /// Look whether brokers still have what a relay delivered; with --replay, deliver what is missing once more
    Verify(verify::Options),
    /// Say which way a message would take
    #[command(subcommand)]
    Routes(routes::Command),
    /// The process that `demo` starts, kills and replaces
    #[command(hide = true)]
    DemoWorker(demo::WorkerOptions),
}

impl Command {
    pub(crate) async fn run(self) -> Result<Exit, Failure> {
        match self {
            Self::Demo(options) => demo::run(options).await,
            Self::Migrate(options) => migrate::run(options).await,
            Self::Status(options) => status::run(options).await,
            Self::List(options) => list::run(options).await,
            Self::Show(options) => show::run(options).await,
            Self::Replay(options) => replay::run(options).await,
            Self::Purge(options) => purge::run(options).await,
            Self::Pause(options) => pause::pause(options).await,
            Self::Resume(options) => pause::resume(options).await,
            Self::Top(options) => top::run(options).await,
            Self::Doctor(options) => doctor::run(options).await,
            Self::Bench(options) => bench::run(options).await,
            Self::Completions(options) => completions::run(&options, Cli::command()),
            Self::Man(options) => man::run(&options, Cli::command()),
            Self::Dead(command) => dead::run(command).await,
            Self::Inbox(command) => inbox::run(command).await,
            Self::Blocked(options) => blocked::run(options).await,
            Self::Instances(options) => instances::run(options).await,
            Self::Relay(options) => relay::run(options).await,
            Self::Verify(options) => verify::run(options).await,
            Self::Routes(command) => routes::run(&command),
            Self::DemoWorker(options) => demo::work(options).await,
        }
    }
}
