//! The relay as a process of its own: from PostgreSQL to a broker, beside the same transport that is fed from memory.
//!
//! Both contenders get a fresh broker for every run, and both hand 500 messages at a time to four calls of the transport at
//! once. What is fed from memory has no database to ask: it is the ceiling.

mod by_hand;
mod direct;
mod process;

use std::time::{Duration, Instant};

use pillarbox_core::retention::Retention;
use pillarbox_testing::source::Source;
use stations::{Broker, NatsStation, RedisStation};

use crate::postgres::{self, Keep};
use crate::report::{Figure, Peak, Report};
use crate::run::Scale;
use crate::store::Through;
use crate::subject::Subject;
use process::Relay;

/// Messages that one call of the transport takes, and calls at one time: what a relay does unless it is told otherwise.
const BATCH: usize = 500;
const CALLS: usize = 4;

const SCHEMA: &str = "bench_relay";

/// What is left of delivered messages, as the relay's file says it, and as tables do; the first is what comes unless it is said.
const KEEPS: [(&str, &str); 2] = [("message", "relay"), ("nothing", "relay that keeps nothing")];

/// The same by hand.
const BY_HAND: [(Keep, &str); 2] = [(Keep::Message, "by hand"), (Keep::Nothing, "by hand, keeping nothing")];

/// How often the broker is asked how much it has.
const ASKED: Duration = Duration::from_millis(20);

pub(crate) async fn measure(scale: Scale, backlog: Option<usize>, report: &mut Report) {
    // As the relay has it unless told otherwise: messages that are done are kept.
    let outbox = postgres::Outbox::open(&postgres::url(), SCHEMA, Retention::default()).await;
    let outbox = Through(outbox);
    beside_direct::<NatsStation>("PostgreSQL → NATS", &outbox, scale, report).await;
    beside_direct::<RedisStation>("PostgreSQL → Redis", &outbox, scale, report).await;
    if let Some(count) = backlog {
        peak::<NatsStation>("PostgreSQL → NATS", &outbox, count, report).await;
        peak::<RedisStation>("PostgreSQL → Redis", &outbox, count, report).await;
    }
}

type Outbox = Through<postgres::Outbox>;

async fn beside_direct<B: Broker + Source>(way: &str, outbox: &Outbox, scale: Scale, report: &mut Report) {
    let work = "drain of a backlog by a relay process";
    if !report.wants(work) && !report.wants(way) {
        return;
    }
    let mut figures = KEEPS.map(|(_, name)| Figure::new(way, work, ["from memory", name]));
    let mut by_hand = BY_HAND.map(|(_, name)| Figure::new(way, work, ["from memory", name]));
    for round in 0..=scale.rounds {
        let direct = direct::rate::<B>(scale.messages).await;
        for ((keep, _), figure) in KEEPS.iter().zip(&mut figures) {
            let relay = drained::<B>(outbox, scale.messages, keep).await.per_second;
            if round > 0 {
                figure.add([direct, relay]);
            }
        }
        for ((keep, _), figure) in BY_HAND.iter().zip(&mut by_hand) {
            let rate = by_hand::rate::<B>(outbox, scale.messages, *keep).await;
            if round > 0 {
                figure.add([direct, rate]);
            }
        }
    }
    for figure in figures.into_iter().chain(by_hand) {
        eprintln!("{figure}");
        report.add(figure);
    }
}

async fn peak<B: Broker + Source>(way: &str, outbox: &Outbox, count: usize, report: &mut Report) {
    let work = format!("memory of a relay process, backlog of {count}");
    if !report.wants(&work) && !report.wants(way) {
        return;
    }
    let drained = drained::<B>(outbox, count, KEEPS[0].0).await;
    eprintln!("{way}: {:.0} messages/s", drained.per_second);
    report.add_peak(Peak::new(way, &work, drained.peak_bytes));
}

struct Drained {
    per_second: f64,
    peak_bytes: u64,
}

/// From the first messages that the broker has until it has all and the store knows it. The start of the process, and of its
/// connections, does not count: what is fed from memory has connected, too.
async fn drained<B: Broker + Source>(outbox: &Outbox, count: usize, keep: &str) -> Drained {
    outbox.clear().await;
    outbox.fill(count).await;
    outbox.0.settle_down().await;
    let broker = B::open().await;
    let destination = broker.place("bench").await;
    let mut relay = Relay::start(&postgres::url(), SCHEMA, keep, &broker.url(), &destination);
    let mut asked = tokio::time::interval(ASKED);
    let mut first = None;
    loop {
        asked.tick().await;
        relay.assert_running();
        let there = broker.left(&destination).await;
        if there > 0 {
            first.get_or_insert((there, Instant::now()));
        }
        if there >= count && !outbox.0.has_messages().await {
            break;
        }
    }
    let (before, start) = first.unwrap();
    let elapsed = start.elapsed();
    assert_eq!(broker.left(&destination).await, count, "each message comes once");
    let peak_bytes = relay.peak_bytes();
    relay.end().await;
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let messages = (count - before) as f64;
    Drained { per_second: messages / elapsed.as_secs_f64(), peak_bytes }
}
