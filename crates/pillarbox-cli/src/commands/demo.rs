//! `pillarbox demo`: a shop on a temporary SQLite file, and a worker that is really killed.
//!
//! `script` draws from the seed what will happen, `shop` has the tables and the till, `desk` the handlers, `worker` is the
//! process that runs them too, `process` starts and kills it, `scenes` is the play, `progress` shows it, and `ledger`
//! counts in the end whether everything adds up. Nothing is told that was not counted.

mod desk;
mod ledger;
mod process;
mod progress;
mod sabotage;
mod scenes;
mod script;
mod shop;
mod worker;

use std::fmt::Display;
use std::time::Instant;

use clap::Args;
use pillarbox::schema::SchemaPolicy;
use pillarbox::signal;

use crate::exit::{Exit, Failure};
use crate::output::{Paint, say};
use ledger::Ledger;
use sabotage::Sabotage;
use scenes::Stage;
use script::{Script, Size};
use shop::Shop;

pub(crate) use worker::{Options as WorkerOptions, run as work};

#[derive(Args)]
pub(crate) struct Options {
    /// Decides which transactions are rolled back, what goes wrong, and when the worker is killed
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Fewer orders, without pauses between them
    #[arg(long)]
    quick: bool,
    /// Change something behind the outbox's back before the books are balanced, to see that they notice
    #[arg(long, value_name = "WHAT")]
    sabotage: Option<Sabotage>,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    // Whoever is impatient gets the temporary directory removed and the workers ended all the same.
    tokio::select! {
        ended = play(options) => ended,
        () = signal::terminated() => Err(failed("interrupted")),
    }
}

async fn play(options: Options) -> Result<Exit, Failure> {
    let started = Instant::now();
    let paint = Paint::of_stdout();
    let script = Script::new(options.seed, if options.quick { Size::QUICK } else { Size::WHOLE });
    say(&format!(
        "{}\n\
         Every order is committed together with two messages: one to ship it, one to mail a receipt.\n\
         It runs on a temporary SQLite file and leaves nothing behind.\n",
        paint.heading(&format!("Pillarbox demo: a shop on a bad day (seed {})", options.seed)),
    ))?;
    let directory = tempfile::tempdir().map_err(failed)?;
    let database = directory.path().join("shop.db");
    let shop = Shop::open(&database, SchemaPolicy::Deploy).await?;
    shop.create_tables().await?;

    let mut stage = Stage { shop, script, database, paint };
    stage.at_home().await?;
    let (at_kill, killed) = stage.kill().await?;
    stage.take_over(killed).await?;

    if let Some(sabotage) = options.sabotage {
        sabotage.commit(&stage.shop).await?;
        say(&format!("\n{}\n", paint.warning(&format!("Sabotage: {}", sabotage.told()))))?;
    }
    let ledger = Ledger::balance(&stage.shop, at_kill).await?;
    let reckoning = ledger.reckoning(paint);
    say(&format!("\n{}\n{}\n{reckoning}\n", paint.heading("The books"), ledger.table()))?;
    if !ledger.adds_up() {
        return Err(failed("the books do not add up"));
    }
    let verdict = format!("✓ Nothing lost, nothing done twice ({:.1} s).", started.elapsed().as_secs_f64());
    say(&format!(
        "{}\n\
         \x20 A killed worker cannot say what it has done: delivery is at least once. The handlers write their effect under\n\
         \x20 the message's id, and that makes it once.\n",
        paint.good(&verdict)
    ))?;
    Ok(Exit::Fine)
}

fn failed(error: impl Display) -> Failure {
    Failure::new(format!("the demo failed: {error}"))
}
