//! Filling in batches.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;

use crate::{Result, payload};

/// How [`in_batches`] divides its messages.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    /// Messages in all.
    pub count: u64,
    /// Messages in a batch.
    pub size: u64,
    /// Batches that are written at the same time.
    pub at_once: u64,
}

/// Makes payloads and has them written.
///
/// # Errors
///
/// When one of the batches could not be written.
pub async fn in_batches<W, F>(batches: Batches, write: W) -> Result<()>
where
    W: Fn(Vec<String>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let Batches { count, size, at_once } = batches;
    let next = Arc::new(AtomicU64::new(0));
    let write = Arc::new(write);
    let mut tasks = JoinSet::new();
    for _ in 0..at_once {
        let (next, write) = (Arc::clone(&next), Arc::clone(&write));
        tasks.spawn(async move {
            loop {
                let first = next.fetch_add(size, Ordering::Relaxed);
                if first >= count {
                    return Ok(());
                }
                write((first..count.min(first + size)).map(payload).collect()).await?;
            }
        });
    }
    tasks.join_all().await.into_iter().collect()
}
