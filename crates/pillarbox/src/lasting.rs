//! Work that goes on when its caller stops waiting.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

use pillarbox_core::store::BoxFuture;

/// Runs to its end also when it is dropped, once it was polled: what was begun in the database has its consequences.
pub(crate) struct Lasting<T: Send + 'static> {
    work: Option<BoxFuture<'static, T>>,
    has_begun: bool,
}

impl<T: Send + 'static> Lasting<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), has_begun: false }
    }
}

impl<T: Send + 'static> Future for Lasting<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<T> {
        self.has_begun = true;
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let polled = work.as_mut().poll(task);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Lasting<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take()
            && self.has_begun
            && let Ok(handle) = tokio::runtime::Handle::try_current()
        {
            handle.spawn(async move { drop(work.await) });
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    /// H31: the caller stops waiting while the commit is under way; what follows from the commit follows all the same.
    #[tokio::test]
    async fn work_that_was_begun_goes_on_when_nobody_waits_for_it() {
        let (answer, answered) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel::<()>();
        let mut work = Box::pin(Lasting::new(async move {
            answered.await.unwrap();
            done.send(()).unwrap();
        }));
        assert!(work.as_mut().now_or_never().is_none());
        drop(work);
        answer.send(()).unwrap();
        is_done.await.expect("it went on");
    }

    #[tokio::test]
    async fn work_that_was_not_begun_is_forgotten() {
        let (done, is_done) = oneshot::channel::<()>();
        drop(Lasting::new(async move { done.send(()).unwrap() }));
        is_done.await.unwrap_err();
    }
}
