//! What grows with what: a drain with the backlog, a drain with worker processes, memory with backlog and payload.

mod curve;
mod place;
mod worker;

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::PgPool;

use self::curve::{Curve, Curves};
use self::place::Place;
use self::worker::Worker;
use crate::document::{self, Outputs};
use crate::machine::Machine;
use crate::run::Scale;
use crate::runtime::nanos;
use crate::store::{by_exchange, fill};
use crate::{Db, mysql, postgres};

pub(crate) use worker::work;

const PROCESSES: [usize; 4] = [1, 2, 4, 8];
const PAYLOADS: [usize; 4] = [200, 2000, 20_000, 200_000];

/// Messages of each payload size: enough to fill every queue of a runtime.
const LARGE_COUNT: usize = 3000;

const BY_BACKLOG: &str = "drain by backlog";
const BY_PROCESSES: &str = "drain by worker processes";
const MEMORY_BY_BACKLOG: &str = "memory by backlog";
const MEMORY_BY_PAYLOAD: &str = "memory by payload";

/// What is wanted of it.
pub(crate) struct Wanted {
    pub(crate) scale: Scale,
    pub(crate) sizes: Vec<usize>,
    /// Only parts whose names contain this.
    pub(crate) only: String,
    pub(crate) databases: Vec<Db>,
}

impl Wanted {
    fn wants(&self, part: &str) -> bool {
        part.contains(&self.only)
    }
}

pub(crate) async fn measure(wanted: &Wanted, outputs: &Outputs) {
    let mut curves: Curves = outputs.json.as_deref().map(document::read_json).unwrap_or_default();
    curves.machine = Machine { servers: curves.machine.servers, ..Machine::here() };
    for db in &wanted.databases {
        match db {
            Db::Postgres => curves.machine.add_postgres(&PgPool::connect(&postgres::url()).await.unwrap()).await,
            Db::Mysql => curves.machine.add_mysql(&mysql::url()).await,
            Db::Sqlite => curves.machine.add_sqlite().await,
        }
    }
    let command = document::command();
    for db in &wanted.databases {
        for part in [by_backlog(*db, wanted, &command).await, others(*db, wanted, &command).await].concat() {
            curves.take(part);
            write(&curves, outputs);
        }
    }
    print!("{}", curves.markdown());
}

/// Tables and plot of curves that are there.
pub(crate) fn show(from: &Path, outputs: &Outputs) {
    let curves: Curves = document::read_json(from);
    write(&curves, &Outputs { json: None, ..outputs.clone() });
    print!("{}", curves.markdown());
}

fn write(curves: &Curves, outputs: &Outputs) {
    outputs.write("growth", curves, &curves.markdown(), &curves.plot());
}

/// All backlogs are there at once, so that their rounds alternate; what a round takes out is put in again.
async fn by_backlog(db: Db, wanted: &Wanted, command: &str) -> Vec<Curve> {
    if !wanted.wants(BY_BACKLOG) && !wanted.wants(MEMORY_BY_BACKLOG) {
        return Vec::new();
    }
    let mut places = Vec::new();
    for (at, size) in wanted.sizes.iter().enumerate() {
        eprintln!("{}: a backlog of {size}", db.name());
        let place = Place::make(db, &format!("growth_backlog_{at}")).await;
        fill(place.outbox.store(), *size).await;
        places.push((place, *size));
    }
    let mut drains = Curve::new(BY_BACKLOG, "messages/s", "backlog", db.name(), command, &wanted.sizes);
    for round in 0..=wanted.scale.rounds {
        for (at, (place, size)) in places.iter().enumerate() {
            let rate = drained(place, *size, wanted.scale.messages).await;
            if round > 0 {
                drains.add(at, rate);
            }
        }
    }
    let mut memory = Curve::new(MEMORY_BY_BACKLOG, "MiB", "backlog", db.name(), command, &wanted.sizes);
    for (at, (place, size)) in places.iter().enumerate() {
        let portion = (*size).min(wanted.scale.messages);
        memory.add(at, in_processes(place, 1, Some(portion)).await.memory_mib);
    }
    vec![drains, memory]
}

/// Messages per second of a part of the backlog; a small one is drained as often as it takes to handle as many.
async fn drained(place: &Place, size: usize, count: usize) -> f64 {
    let portion = size.min(count);
    let (mut done, mut took) = (0, Duration::ZERO);
    while done < count {
        place.settle_down().await;
        let outbox = place.outbox.clone();
        // In a task, as in a service: the main thread would wait for another one to see every answer of the server.
        let drain = tokio::spawn(async move {
            let start = Instant::now();
            (by_exchange(outbox.store(), portion).await, start.elapsed())
        });
        let (part, elapsed) = drain.await.unwrap();
        assert!(part >= portion, "only {part} of {portion} were there");
        fill(place.outbox.store(), part).await;
        done += part;
        took += elapsed;
    }
    per_second(done, took)
}

/// Worker processes, and payloads.
async fn others(db: Db, wanted: &Wanted, command: &str) -> Vec<Curve> {
    let mut curves = Vec::new();
    if wanted.wants(BY_PROCESSES) {
        let mut curve = Curve::new(BY_PROCESSES, "messages/s", "processes", db.name(), command, &PROCESSES);
        let place = Place::make(db, "growth_processes").await;
        for _ in 0..wanted.scale.rounds {
            for (at, count) in PROCESSES.into_iter().enumerate() {
                fill(place.outbox.store(), wanted.scale.messages).await;
                place.settle_down().await;
                let all = in_processes(&place, count, None).await;
                assert_eq!(all.done, wanted.scale.messages as u64, "every message is handled once");
                curve.add(at, per_second(wanted.scale.messages, all.took));
            }
        }
        curves.push(curve);
    }
    if wanted.wants(MEMORY_BY_PAYLOAD) {
        let mut curve = Curve::new(MEMORY_BY_PAYLOAD, "MiB", "payload bytes", db.name(), command, &PAYLOADS);
        let place = Place::make(db, "growth_payloads").await;
        for (at, bytes) in PAYLOADS.into_iter().enumerate() {
            place.fill_large(LARGE_COUNT, bytes).await;
            curve.add(at, in_processes(&place, 1, None).await.memory_mib);
        }
        curves.push(curve);
    }
    curves
}

/// What worker processes did together.
struct Together {
    done: u64,
    took: Duration,
    memory_mib: f64,
}

/// From the cue to the moment when the last of them found nothing more.
async fn in_processes(place: &Place, process_count: usize, count: Option<usize>) -> Together {
    let mut workers = Vec::new();
    for _ in 0..process_count {
        workers.push(Worker::ready(place, count).await);
    }
    let start = nanos();
    for worker in &mut workers {
        worker.go().await;
    }
    let mut together = Together { done: 0, took: Duration::ZERO, memory_mib: 0.0 };
    for worker in workers {
        let worked = worker.worked().await;
        together.done += worked.done;
        together.took = together.took.max(Duration::from_nanos(u64::try_from(worked.ended - start).unwrap_or(0)));
        together.memory_mib = together.memory_mib.max(worked.memory_mib);
    }
    together
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
