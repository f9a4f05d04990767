//! A body is read under three bounds: its size, the time it takes, and the memory of all bodies together.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::answer::Failure;
use crate::refusal::Malformed;

/// The bounds of all routes of one router.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) limit: usize,
    pub(crate) timeout: Duration,
    /// One permit per byte that is being buffered.
    pub(crate) memory: Arc<Semaphore>,
}

/// A body, and its share of the memory, given back when dropped.
#[derive(Debug)]
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

impl Intake {
    /// Refuses a body that says of itself that it is too large. Reads nothing.
    pub(crate) fn check(&self, body: &Body) -> Result<(), Failure> {
        let announced = body.size_hint().lower();
        if usize::try_from(announced).is_ok_and(|bytes| bytes <= self.limit) { Ok(()) } else { Err(Failure::TooLarge) }
    }

    pub(crate) async fn read(&self, body: Body) -> Result<Buffered, Failure> {
        tokio::time::timeout(self.timeout, self.collect(body)).await.unwrap_or(Err(Failure::TooSlow))
    }

    async fn collect(&self, body: Body) -> Result<Buffered, Failure> {
        let mut chunks = body.into_data_stream();
        // Nothing is reserved for what was announced: memory is taken for bytes that came.
        let mut buffer = BytesMut::new();
        let mut share: Option<OwnedSemaphorePermit> = None;
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_| Malformed::Incomplete)?;
            if chunk.len() > self.limit - buffer.len() {
                return Err(Failure::TooLarge);
            }
            let permit = self.share(chunk.len())?;
            match &mut share {
                Some(share) => share.merge(permit),
                None => share = Some(permit),
            }
            buffer.extend_from_slice(&chunk);
        }
        Ok(Buffered { bytes: buffer.freeze(), _share: share })
    }

    fn share(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let bytes = u32::try_from(bytes).map_err(|_| Failure::TooLarge)?;
        Arc::clone(&self.memory).try_acquire_many_owned(bytes).map_err(|_| Failure::Busy)
    }
}
