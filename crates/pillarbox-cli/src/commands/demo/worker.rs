//! The worker process: the same handlers on the same database, until the demo lets go of its standard input.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pillarbox::prelude::*;
use tokio::task::spawn_blocking;

use super::desk::Desk;
use super::failed;
use super::shop::Shop;
use crate::exit::{Exit, Failure};

/// Said when every handler of the worker waits for an answer that never comes.
pub(super) const STALLED: &str = "stalled";

const GRACE: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Options {
    #[arg(long)]
    database: PathBuf,
    #[arg(long)]
    lease_ms: u64,
    /// From so many shipments on, get no answer any more
    #[arg(long)]
    stall_after: Option<u32>,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let shop = Shop::open(&options.database, SchemaPolicy::Check).await?;
    let name = if options.stall_after.is_some() { "worker 1" } else { "worker 2" };
    let desk = Desk::new(shop.outbox().store().pool(), name, options.stall_after);
    let lease = Duration::from_millis(options.lease_ms);
    let runtime = desk.handlers(Runtime::builder(shop.outbox()), lease).start().await.map_err(failed)?;
    // Also when the demo dies of something worse than its own end, its workers do not outlive it.
    let let_go = spawn_blocking(|| io::copy(&mut io::stdin().lock(), &mut io::sink()));
    let_go.await.map_err(failed)?.map_err(failed)?;
    let report = runtime.shutdown(GRACE).await;
    match report.unsettled {
        0 => Ok(Exit::Fine),
        count => Err(failed(format!("the worker left {count} messages unsettled"))),
    }
}
