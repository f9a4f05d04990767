//! Alternating rounds.

use std::time::Instant;

use crate::report::{Figure, Report};
use crate::subject::Subject;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) rounds: usize,
    pub(crate) messages: usize,
}

/// The work that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    EnqueueSingle { writers: usize },
    EnqueueBatched,
    Drain { workers: usize },
    Exchange { workers: usize },
}

impl Work {
    pub(crate) const ALL: [Self; 7] = [
        Self::EnqueueSingle { writers: 1 },
        Self::EnqueueSingle { writers: 8 },
        Self::EnqueueBatched,
        Self::Drain { workers: 1 },
        Self::Drain { workers: 2 },
        Self::Exchange { workers: 1 },
        Self::Exchange { workers: 2 },
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::EnqueueSingle { writers } => format!("enqueue, 1 per transaction, {writers} writer(s)"),
            Self::EnqueueBatched => "enqueue, 1000 per transaction".into(),
            Self::Drain { workers } => format!("claim + settle, {workers} worker(s)"),
            Self::Exchange { workers } => format!("exchange, {workers} worker(s)"),
        }
    }

    /// Single transactions wait for the disk: fewer of them take as long.
    fn messages(self, scale: Scale) -> usize {
        match self {
            Self::EnqueueSingle { writers } => scale.messages / 20 * (writers + 1),
            _ => scale.messages,
        }
    }

    async fn prepare(self, subject: &impl Subject, scale: Scale) {
        subject.clear().await;
        if matches!(self, Self::Drain { .. } | Self::Exchange { .. }) {
            subject.fill(self.messages(scale)).await;
        }
    }

    async fn run(self, subject: &impl Subject, scale: Scale) {
        let count = self.messages(scale);
        match self {
            Self::EnqueueSingle { writers } => {
                let mut tasks = tokio::task::JoinSet::new();
                for _ in 0..writers {
                    let subject = subject.clone();
                    tasks.spawn(async move { subject.enqueue_single(count / writers).await });
                }
                tasks.join_all().await;
            }
            Self::EnqueueBatched => subject.enqueue_batched(count).await,
            Self::Drain { workers } => drain_with(workers, subject, count, false).await,
            Self::Exchange { workers } => drain_with(workers, subject, count, true).await,
        }
    }
}

async fn drain_with(workers: usize, subject: &impl Subject, count: usize, exchange: bool) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..workers {
        let subject = subject.clone();
        tasks.spawn(async move {
            if exchange { subject.drain_by_exchange(usize::MAX).await } else { subject.drain(usize::MAX).await }
        });
    }
    let done: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(done, count, "every message is handed out once");
}

/// Messages per second of one prepared run.
pub(crate) async fn rate(work: Work, subject: &impl Subject, scale: Scale) -> f64 {
    work.prepare(subject, scale).await;
    let task = subject.clone();
    // In a task, as in a service: the main thread would wait for another one to see every answer of the server.
    let elapsed = tokio::spawn(async move {
        let start = Instant::now();
        work.run(&task, scale).await;
        start.elapsed()
    });
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let messages = work.messages(scale) as f64;
    messages / elapsed.await.unwrap().as_secs_f64()
}

/// Measures both in alternating rounds, the first of which warms up and does not count. Who begins changes with each round: the
/// server is busy for a while with what the first has left, and the second would always pay for it.
pub(crate) async fn compare(
    report: &mut Report,
    database: &str,
    works: &[Work],
    names: [&str; 2],
    reference: &impl Subject,
    contender: &impl Subject,
    scale: Scale,
) {
    let wanted: Vec<Work> = works.iter().copied().filter(|work| report.wants(&work.name())).collect();
    for work in wanted {
        let mut figure = Figure::new(database, &work.name(), names);
        for round in 0..=scale.rounds {
            let pair = if round % 2 == 0 {
                let first = rate(work, reference, scale).await;
                [first, rate(work, contender, scale).await]
            } else {
                let first = rate(work, contender, scale).await;
                [rate(work, reference, scale).await, first]
            };
            if round > 0 {
                figure.add(pair);
            }
        }
        eprintln!("{figure}");
        report.add(figure);
    }
}
