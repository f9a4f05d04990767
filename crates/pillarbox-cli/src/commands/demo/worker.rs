//! The worker process: claim, deliver, settle, again until nothing is left.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pillarbox::decide;
use pillarbox::prelude::*;
use pillarbox::retry::RetryPolicy;
use pillarbox::store::Claimed;

use super::shop::Shop;
use super::{BATCH, LEASE, failed};
use crate::exit::{Exit, Failure};
use crate::output::say;

/// Said when the worker stands where it is to be killed.
pub(super) const STALLED: &str = "stalled";
/// Said once, when the worker claims the first message of another one whose lease ran out.
pub(super) const TOOK_OVER: &str = "took over";

const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Args)]
pub(crate) struct Options {
    #[arg(long)]
    database: PathBuf,
    #[arg(long)]
    name: String,
    /// Hang after so many deliveries, as a call that does not return.
    #[arg(long)]
    stall_after: Option<u32>,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let shop = Shop::open(&options.database, SchemaPolicy::Check).await?;
    let owner = OwnerToken::new();
    let mut progress = Progress { stall_after: options.stall_after, delivered: 0, took_over: false };
    loop {
        let claim = Claim::new(owner, LEASE, BATCH).map_err(failed)?;
        let batch = shop.store().claim(claim).await.map_err(failed)?;
        if batch.is_empty() {
            let left = shop.messages().await?;
            if left.pending + left.processing == 0 {
                return Ok(Exit::Fine);
            }
            // What is left is under a lease of somebody else, perhaps of a dead one: only asking again can tell.
            tokio::time::sleep(POLL_INTERVAL).await;
            continue;
        }
        let settlements = deliver(&shop, &options.name, &batch, &mut progress).await?;
        shop.store().settle(owner, &settlements).await.map_err(failed)?;
    }
}

async fn deliver(
    shop: &Shop,
    name: &str,
    batch: &[Claimed],
    progress: &mut Progress,
) -> Result<Vec<Settlement>, Failure> {
    let policy = RetryPolicy::default();
    let mut settlements = Vec::with_capacity(batch.len());
    for claimed in batch {
        progress.note_claimed(claimed)?;
        let end = shop.receive(name, claimed).await;
        // One worker at a time retries here: there is no crowd that jitter would have to spread.
        let verdict = decide(claimed.attempts, end, &policy, 0.5);
        settlements.push(Settlement { held: claimed.held, verdict });
        progress.note_delivered()?;
    }
    Ok(settlements)
}

/// What the demo needs to hear.
struct Progress {
    stall_after: Option<u32>,
    delivered: u32,
    took_over: bool,
}

impl Progress {
    fn note_claimed(&mut self, claimed: &Claimed) -> Result<(), Failure> {
        if claimed.lost_lease_count > 0 && !self.took_over {
            self.took_over = true;
            say(&format!("{TOOK_OVER}\n"))?;
        }
        Ok(())
    }

    fn note_delivered(&mut self) -> Result<(), Failure> {
        self.delivered += 1;
        if self.stall_after != Some(self.delivered) {
            return Ok(());
        }
        say(&format!("{STALLED}\n"))?;
        // Hangs as long as the demo lives, so that the kill meets the worker here on the slowest machine too.
        io::copy(&mut io::stdin().lock(), &mut io::sink()).map_err(failed)?;
        Err(failed("the demo ended before it killed its worker"))
    }
}
