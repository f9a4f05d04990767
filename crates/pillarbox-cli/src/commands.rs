//! The commands, one file each.

mod blocked;
mod dead;
mod demo;
mod inbox;
mod instances;
mod migrate;
mod status;

use clap::Subcommand;

use crate::exit::{Exit, Failure};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the outbox at work in ten seconds, with a worker that gets killed; needs nothing
    Demo(demo::Options),
    /// Create or upgrade the tables, or only print or check them
    Migrate(migrate::Options),
    /// Count messages by topic and state; exits with 3 or 4 when something needs attention
    Status(status::Options),
    /// List, replay or delete messages that were given up, of the outbox or of the inbox
    #[command(subcommand)]
    Dead(dead::Command),
    /// List keys whose messages wait behind one that is dead or waits for its next attempt
    Blocked(blocked::Options),
    /// Look at what came in: one message, or those that came again with another content
    #[command(subcommand)]
    Inbox(inbox::Command),
    /// List the instances that serve the outbox or the inbox, and those that went silent
    Instances(instances::Options),
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
            Self::Dead(command) => dead::run(command).await,
            Self::Inbox(command) => inbox::run(command).await,
            Self::Blocked(options) => blocked::run(options).await,
            Self::Instances(options) => instances::run(options).await,
            Self::DemoWorker(options) => demo::work(options).await,
        }
    }
}
