//! What contestants are asked to do, and what is counted.

use serde_json::json;

use super::entrant::Entrant;
use super::results::Discipline;
use super::server::Server;
use super::{Scale, steady};

/// The longest that one measured part should take: slow contestants get fewer messages.
const SECONDS_MAX: f64 = 10.0;

/// Before a part is measured: connections, plans and compilers are warm then.
const WARM_UP: u64 = 1000;

const STEADY: &str = "steady state";
const HELD: &str = "steady state with xmin held";

/// A part of the contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Workload {
    /// Messages in business transactions.
    Enqueue,
    /// A backlog, handled by handlers that do nothing.
    Drain,
    /// From a commit to its handler.
    Latency,
    /// Writers and workers together, as fast as no backlog grows.
    Steady,
    /// The same while a transaction keeps dead rows.
    Held,
    /// A drain out of a backlog of millions.
    Backlog,
    /// WAL, transactions and dead rows per message.
    Cost,
}

/// What all contestants do in turn, round after round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Task {
    Enqueue { writers: u64, batch: u64 },
    Drain,
    Latency { rate: u64 },
    Steady { is_held: bool },
    Backlog,
    CostInTurn,
    CostTogether,
}

/// What is remembered of a contestant from round to round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// Messages that fit into the time.
    pub(crate) count: Option<u64>,
    /// The highest rate that was kept up.
    pub(crate) rate: Option<f64>,
}

/// A contestant, its place and its past.
pub(crate) struct Turn<'a> {
    pub(crate) name: &'a str,
    pub(crate) entrant: &'a mut Entrant,
    pub(crate) server: &'a Server,
    pub(crate) memory: &'a mut Memory,
    pub(crate) scale: &'a Scale,
}

impl Workload {
    pub(crate) fn tasks(self) -> Vec<Task> {
        match self {
            Self::Enqueue => {
                let forms = [(1, 1), (16, 1), (1, 100), (16, 100)];
                forms.into_iter().map(|(writers, batch)| Task::Enqueue { writers, batch }).collect()
            }
            Self::Drain => vec![Task::Drain],
            Self::Latency => vec![Task::Latency { rate: 100 }, Task::Latency { rate: 1000 }],
            Self::Steady => vec![Task::Steady { is_held: false }],
            Self::Held => vec![Task::Steady { is_held: true }],
            Self::Backlog => vec![Task::Backlog],
            Self::Cost => vec![Task::CostInTurn, Task::CostTogether],
        }
    }
}

impl Task {
    pub(crate) fn name(self, scale: &Scale) -> String {
        match self {
            Self::Enqueue { writers: 1, batch } => format!("enqueue, 1 writer, {batch} per transaction"),
            Self::Enqueue { writers, batch } => format!("enqueue, {writers} writers, {batch} per transaction"),
            Self::Drain => "drain".into(),
            Self::Latency { rate } => format!("commit to handler at {rate}/s"),
            Self::Steady { is_held: false } => STEADY.into(),
            Self::Steady { is_held: true } => HELD.into(),
            Self::Backlog => format!("drain out of a backlog of {}", scale.backlog),
            Self::CostInTurn => "cost, written and then drained".into(),
            Self::CostTogether => "cost, written and handled at 1000/s".into(),
        }
    }

    /// Whether both are measured in the same rounds, so that one can be compared with the other.
    pub(crate) fn takes_turns_with(self, next: Self) -> bool {
        matches!((self, next), (Self::Steady { .. }, Self::Steady { .. }))
    }

    /// What stands in the same results to be compared with.
    pub(crate) fn compared_with(name: &str) -> Option<&'static str> {
        (name == HELD).then_some(STEADY)
    }

    pub(crate) fn disciplines(self, scale: &Scale, command: &str) -> Vec<Discipline> {
        let titles: &[(&str, &str)] = match self {
            Self::Latency { .. } => &[("p50", "µs"), ("p99", "µs"), ("max", "µs")],
            Self::CostInTurn | Self::CostTogether => {
                &[("WAL", "bytes/message"), ("transactions", "per message"), ("dead tuples", "per message")]
            }
            _ => &[("rate", "messages/s")],
        };
        let discipline = |(title, unit): &(&str, &str)| Discipline {
            task: self.name(scale),
            title: (*title).into(),
            unit: (*unit).into(),
            is_less_better: titles.len() > 1,
            command: command.into(),
            figures: Vec::new(),
        };
        titles.iter().map(discipline).collect()
    }

    /// Whether the contestant keeps what it has from round to round.
    pub(crate) fn keeps_messages(self) -> bool {
        self == Self::Backlog
    }

    /// The first round warms up; of a steady state it searches, which is warm enough.
    pub(crate) fn has_warm_up(self) -> bool {
        matches!(self, Self::Enqueue { .. } | Self::Drain)
    }

    /// One figure for each discipline.
    pub(crate) async fn measure(self, mut turn: Turn<'_>) -> Result<Vec<f64>, String> {
        match self {
            Self::Enqueue { writers, batch } => turn.enqueue(writers, batch).await.map(|rate| vec![rate]),
            Self::Drain => turn.drain().await.map(|rate| vec![rate]),
            Self::Backlog => turn.backlog().await.map(|rate| vec![rate]),
            Self::Latency { rate } => turn.latency(rate).await,
            Self::Steady { is_held } => steady::measure(&mut turn, is_held).await.map(|rate| vec![rate]),
            Self::CostInTurn | Self::CostTogether => Err("measured by itself".into()),
        }
    }
}

impl Turn<'_> {
    async fn enqueue(&mut self, writers: u64, batch: u64) -> Result<f64, String> {
        let all = self.scale.messages;
        // Single transactions wait for the disk: fewer of them take as long.
        let planned = match (writers, batch) {
            (1, 1) => all / 50,
            (_, 1) => all / 10,
            (1, _) => all / 2,
            _ => all,
        };
        let count = self.memory.count.unwrap_or(planned / 10).max(writers * batch);
        self.write(writers, batch, (count / 20).max(writers * batch)).await?;
        self.clear().await?;
        self.server.checkpoint().await;
        let rate = self.write(writers, batch, count).await?;
        self.clear().await?;
        self.memory.count.get_or_insert(fitting(rate, planned));
        Ok(rate)
    }

    async fn write(&mut self, writers: u64, batch: u64, count: u64) -> Result<f64, String> {
        let count = count / batch * batch;
        let command = json!({ "do": "enqueue", "writers": writers, "batch": batch, "count": count });
        Ok(float(count) / self.entrant.figure(&command, "seconds").await?)
    }

    async fn drain(&mut self) -> Result<f64, String> {
        let count = self.memory.count.unwrap_or(self.scale.messages / 20).max(100);
        self.fill(WARM_UP).await?;
        self.take(WARM_UP).await?;
        self.clear().await?;
        self.fill(count).await?;
        self.server.settle_down(self.name).await;
        let rate = self.take(count).await?;
        self.clear().await?;
        self.memory.count.get_or_insert(fitting(rate, self.scale.messages));
        Ok(rate)
    }

    /// The backlog is filled once; later rounds put in what the one before took out.
    async fn backlog(&mut self) -> Result<f64, String> {
        let count = match self.memory.count {
            Some(count) => {
                self.fill(count).await?;
                count
            }
            None => {
                let few = (self.scale.messages / 20).max(WARM_UP);
                self.fill(few).await?;
                let rate = self.take(few).await?;
                self.fill(self.scale.backlog).await?;
                *self.memory.count.insert(fitting(rate, self.scale.messages))
            }
        };
        self.server.settle_down(self.name).await;
        self.take(count).await
    }

    async fn latency(&mut self, rate: u64) -> Result<Vec<f64>, String> {
        let command = json!({ "do": "latency", "rate": rate, "seconds": self.scale.latency_seconds, "writers": 4 });
        let answer = self.entrant.ask(&command).await?;
        self.clear().await?;
        let figure = |name: &str| answer[name].as_f64().ok_or_else(|| format!("its answer has no {name}"));
        ["p50_us", "p99_us", "max_us"].into_iter().map(figure).collect()
    }

    pub(crate) async fn fill(&mut self, count: u64) -> Result<(), String> {
        self.entrant.ask(&json!({ "do": "fill", "count": count })).await.map(|_| ())
    }

    async fn take(&mut self, count: u64) -> Result<f64, String> {
        let command = json!({ "do": "drain", "count": count });
        Ok(float(count) / self.entrant.figure(&command, "seconds").await?)
    }

    pub(crate) async fn clear(&mut self) -> Result<(), String> {
        self.entrant.ask(&json!({ "do": "clear" })).await.map(|_| ())
    }
}

fn fitting(rate: f64, planned: u64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of messages")]
    let fits = (rate * SECONDS_MAX) as u64;
    planned.min(fits.max(100))
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}
