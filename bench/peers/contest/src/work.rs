//! The commands that measure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::delays::Delays;
use crate::pace::Pace;
use crate::{Contestant, Progress, Result, Workers, Writer, payload};

/// How long a drain may take without all of its messages.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long the last messages may take after the writers' end.
const LINGER: Duration = Duration::from_secs(30);

/// Seconds at the same rate before the delays count.
const WARM_UP: f64 = 1.0;

/// `count / batch` business transactions over so many connections, as fast as they go.
pub(crate) async fn enqueue<C: Contestant>(contestant: &C, writers: u64, batch: u64, count: u64) -> Result<Value> {
    let (batch, writers) = (batch.max(1), writers.max(1));
    let transactions = count / batch;
    let connections = connect(contestant, writers).await?;
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for mut writer in connections {
        let next = Arc::clone(&next);
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= transactions {
                    return Ok(());
                }
                let payloads = (number * batch..(number + 1) * batch).map(payload).collect();
                writer.write(payloads).await?;
            }
        });
    }
    all(tasks).await?;
    Ok(seconds(start))
}

/// The fastest way in.
pub(crate) async fn fill<C: Contestant>(contestant: &C, count: u64) -> Result<Value> {
    let start = Instant::now();
    contestant.fill(count).await?;
    Ok(seconds(start))
}

/// From the workers' start until so many are settled.
pub(crate) async fn drain<C: Contestant>(contestant: &C, count: u64) -> Result<Value> {
    let progress = Arc::new(Progress::of(0));
    let start = Instant::now();
    let workers = contestant.start(Arc::clone(&progress)).await?;
    let outcome = async {
        if !progress.reach(count, PATIENCE).await {
            return Err(format!("{} of {count} were handled in {PATIENCE:?}", progress.handled()).into());
        }
        while workers.settled().await? < count {
            if start.elapsed() > PATIENCE * 2 {
                return Err(format!("{} of {count} were settled", workers.settled().await?).into());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(seconds(start))
    }
    .await;
    workers.stop().await?;
    outcome
}

/// From each commit's return to the start of its handler.
pub(crate) async fn latency<C: Contestant>(contestant: &C, rate: f64, time: f64, writers: u64) -> Result<Value> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of messages")]
    let (warm_up, slots) = ((rate * WARM_UP) as u64, (rate * (time + WARM_UP)) as u64 + 1);
    let progress = Arc::new(Progress::of(slots));
    let workers = contestant.start(Arc::clone(&progress)).await?;
    let outcome = async {
        let connections = connect(contestant, writers).await?;
        let pace = Arc::new(Pace::new(rate, time + WARM_UP));
        let mut tasks = JoinSet::new();
        for mut writer in connections {
            let (pace, progress) = (Arc::clone(&pace), Arc::clone(&progress));
            tasks.spawn(async move {
                let mut commits = Vec::new();
                while let Some(number) = pace.next().await {
                    writer.write(vec![payload(number)]).await?;
                    commits.push((number, progress.now()));
                }
                Ok(commits)
            });
        }
        let commits = all(tasks).await?.concat();
        let last = Instant::now();
        let mut delays = Delays::default();
        for (number, committed) in commits {
            let begun = loop {
                match progress.begun(number) {
                    Some(begun) => break begun,
                    None if last.elapsed() > LINGER => return Err("not every message was handled".into()),
                    None => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            };
            if number >= warm_up {
                delays.add(begun - committed);
            }
        }
        Ok(delays.answer())
    }
    .await;
    workers.stop().await?;
    outcome
}

/// Writers at a rate and workers together; what is left at the end of the time.
pub(crate) async fn steady<C: Contestant>(contestant: &C, rate: f64, time: f64, writers: u64) -> Result<Value> {
    let progress = Arc::new(Progress::of(0));
    let workers = contestant.start(Arc::clone(&progress)).await?;
    let outcome = async {
        let connections = connect(contestant, writers).await?;
        let pace = Arc::new(Pace::new(rate, time));
        let written = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for mut writer in connections {
            let (pace, written) = (Arc::clone(&pace), Arc::clone(&written));
            tasks.spawn(async move {
                while let Some(number) = pace.next().await {
                    writer.write(vec![payload(number)]).await?;
                    written.fetch_add(1, Ordering::AcqRel);
                }
                Ok(())
            });
        }
        pace.end().await;
        let (delivered, written) = (progress.handled(), written.load(Ordering::Acquire));
        all(tasks).await?;
        Ok(json!({
            "written": written,
            "delivered": delivered,
            "backlog": written.saturating_sub(delivered),
            "wanted": pace.count(),
        }))
    }
    .await;
    workers.stop().await?;
    outcome
}

async fn connect<C: Contestant>(contestant: &C, writers: u64) -> Result<Vec<C::Writer>> {
    let mut connections = Vec::new();
    for _ in 0..writers.max(1) {
        connections.push(contestant.writer().await?);
    }
    Ok(connections)
}

/// Waits for every task; the first failure counts.
async fn all<T: 'static>(tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    tasks.join_all().await.into_iter().collect()
}

fn seconds(start: Instant) -> Value {
    json!({ "seconds": start.elapsed().as_secs_f64() })
}
