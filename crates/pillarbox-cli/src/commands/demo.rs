//! `pillarbox demo`: a shop on a temporary SQLite file, and a worker that is really killed.
//!
//! `shop` has the tables of sender and receiver, `worker` is the process that delivers, `process` starts and kills it,
//! `measured` holds what was counted and decides whether every promise held. Nothing is printed that was not counted.

mod measured;
mod process;
mod shop;
mod worker;

use std::fmt::Display;
use std::time::{Duration, Instant};

use pillarbox::schema::SchemaPolicy;

use crate::exit::{Exit, Failure};
use crate::output::{Paint, say};
use measured::{AtKill, Measured, Placed};
use process::Process;
use shop::{Ending, Shop};

pub(crate) use worker::{Options as WorkerOptions, run as work};

const TRANSACTION_COUNT: u32 = 220;
/// Every so many transactions one is rolled back: 20 of them, which leaves 200 orders.
const ROLLBACK_EVERY: u32 = 11;
const BATCH: u32 = 20;
const LEASE: Duration = Duration::from_millis(1_500);
/// Five batches and a half: the sixth is claimed, and half delivered.
const KILL_AFTER: u32 = 5 * BATCH + BATCH / 2;

pub(crate) async fn run() -> Result<Exit, Failure> {
    let started = Instant::now();
    let paint = Paint::of_stdout();
    say("Pillarbox demo: a shop, and a worker process that ships its orders and gets killed.\n\
         It runs on a temporary SQLite file and leaves nothing behind.\n")?;
    let directory = tempfile::tempdir().map_err(failed)?;
    let database = directory.path().join("shop.db");
    let shop = Shop::open(&database, SchemaPolicy::Deploy).await?;
    shop.create_tables().await?;

    say(&format!("\n{}\n", paint.heading("1. An order and its message are committed together, or not at all")))?;
    let placed = place_orders(&shop).await?;
    say(&placed.told())?;

    say(&format!("\n{}\n", paint.heading("2. The worker is killed half-way")))?;
    let (at_kill, killed) = ship_until_killed(&shop, &database).await?;
    say(&at_kill.told())?;

    say(&format!("\n{}\n", paint.heading("3. Another worker takes over")))?;
    let waited = ship_the_rest(&database, killed).await?;
    let measured = Measured::count(&shop, placed, at_kill, waited).await?;
    say(&measured.told())?;

    say(&format!("\n{}\n{}", paint.heading("Summary"), measured.summary()))?;
    judge(&measured, paint, started.elapsed())
}

/// Says whether every promise held; the exit code says the same.
fn judge(measured: &Measured, paint: Paint, took: Duration) -> Result<Exit, Failure> {
    let broken = measured.broken_promises();
    if !broken.is_empty() {
        return Err(Failure::new(format!("the demo failed: {}", broken.join("; "))));
    }
    let verdict = format!("✓ Every order was shipped exactly once ({:.1} s).", took.as_secs_f64());
    say(&format!(
        "\n{}\n\
         \x20 Delivery is at least once: a killed worker cannot say what it has done already. The receiver's\n\
         \x20 unique key on the message id turns that into one effect per message.\n\
         \x20 The claim, deliver, settle loop is the demo's own; a runtime that brings it is not part of this version.\n",
        paint.good(&verdict)
    ))?;
    Ok(Exit::Fine)
}

async fn place_orders(shop: &Shop) -> Result<Placed, Failure> {
    let mut rolled_back = Vec::new();
    for order in 1..=TRANSACTION_COUNT {
        if order.is_multiple_of(ROLLBACK_EVERY) {
            rolled_back.push((order, shop.place(order, Ending::Rollback).await?));
        } else {
            shop.place(order, Ending::Commit).await?;
        }
    }
    Placed::count(shop, &rolled_back).await
}

async fn ship_until_killed(shop: &Shop, database: &std::path::Path) -> Result<(AtKill, Instant), Failure> {
    let mut worker = Process::start("1", database, Some(KILL_AFTER))?;
    say(&format!(
        "  worker 1 (process {}) claims {BATCH} messages at a time, under a lease of {:.1} s\n",
        worker.id(),
        LEASE.as_secs_f64()
    ))?;
    worker.wait_for(worker::STALLED).await?;
    let ended = worker.kill().await?;
    let killed = Instant::now();
    Ok((AtKill::count(shop, ended).await?, killed))
}

/// Answers how long after the kill the first message of the dead worker was claimed.
async fn ship_the_rest(database: &std::path::Path, killed: Instant) -> Result<Duration, Failure> {
    let mut worker = Process::start("2", database, None)?;
    say(&format!("  worker 2 (process {}) starts and claims what nobody holds\n", worker.id()))?;
    worker.wait_for(worker::TOOK_OVER).await?;
    let waited = killed.elapsed();
    worker.finish().await?;
    Ok(waited)
}

fn failed(error: impl Display) -> Failure {
    Failure::new(format!("the demo failed: {error}"))
}
