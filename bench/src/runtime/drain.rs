//! A backlog: by a runtime whose handlers do nothing, beside the store's own loop.

use std::time::{Duration, Instant};

use pillarbox::prelude::{Context, Outbox, Runtime};

use crate::report::{Figure, Report};
use crate::run::{Scale, Work, rate};
use crate::store::{Backend, Through};
use crate::subject::{BATCH, Subject, TOPIC};

/// The runtime with its defaults, and with claims as large as those of the store's own loop.
pub(super) async fn measure<B: Backend>(
    database: &str,
    backend: B,
    workers: &[usize],
    scale: Scale,
    report: &mut Report,
) {
    let store = Through(backend.clone());
    for &workers in workers {
        let name = format!("drain, beside exchange with {workers} worker(s)");
        if !report.wants(&name) {
            continue;
        }
        let contenders = [("runtime", None), ("runtime, claims of 500", u32::try_from(BATCH).ok())];
        let mut figures = contenders.map(|(contender, _)| Figure::new(database, &name, ["store", contender]));
        for round in 0..=scale.rounds {
            let reference = rate(Work::Exchange { workers }, &store, scale).await;
            for (figure, (_, claim_limit)) in figures.iter_mut().zip(contenders) {
                let contender = by_runtime(&backend, scale.messages, claim_limit).await;
                if round > 0 {
                    figure.add([reference, contender]);
                }
            }
        }
        for figure in figures {
            eprintln!("{figure}");
            report.add(figure);
        }
    }
}

/// Messages per second, from the start of the runtime until a claim finds nothing and everything is settled.
async fn by_runtime<B: Backend>(backend: &B, count: usize, claim_limit: Option<u32>) -> f64 {
    let store = Through(backend.clone());
    store.clear().await;
    store.fill(count).await;
    let outbox = Outbox::new(backend.store().clone());
    let drained = tokio::spawn(async move {
        let start = Instant::now();
        let mut builder = Runtime::builder(&outbox).on_topic(TOPIC, async |_: Context| Ok(()));
        if let Some(limit) = claim_limit {
            builder = builder.claim_limit(limit);
        }
        let runtime = builder.start().await.unwrap();
        runtime.idle().await;
        let elapsed = start.elapsed();
        assert_eq!(runtime.stats().done_count, u64::try_from(count).unwrap());
        runtime.shutdown(Duration::ZERO).await;
        elapsed
    });
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let messages = count as f64;
    messages / drained.await.unwrap().as_secs_f64()
}
