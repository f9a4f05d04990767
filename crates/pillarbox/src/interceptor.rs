//! What runs around every handler: before it in order, after it in reverse.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use pillarbox_core::AttemptEnd;

use crate::context::Context;
use crate::failure::HandlerResult;

/// Runs around every handler of a runtime.
///
/// The `before`s run in the order in which they were registered. The first that fails ends the attempt, and its failure
/// says what becomes of the message; the handler does not run. The `after`s of those whose `before` succeeded run in
/// reverse, whatever happened in between. An `after` that fails is logged, nothing more.
#[async_trait]
pub trait Interceptor: Send + Sync + 'static {
    /// Runs before the handler.
    async fn before(&self, cx: &Context) -> HandlerResult {
        let _ = cx;
        Ok(())
    }

    /// Runs after the handler. An unavailable destination is shown as a deferral without delay.
    async fn after(&self, cx: &Context, end: &AttemptEnd) -> HandlerResult {
        let _ = (cx, end);
        Ok(())
    }
}

#[async_trait]
impl<I: Interceptor + ?Sized> Interceptor for Arc<I> {
    async fn before(&self, cx: &Context) -> HandlerResult {
        (**self).before(cx).await
    }

    async fn after(&self, cx: &Context, end: &AttemptEnd) -> HandlerResult {
        (**self).after(cx, end).await
    }
}

/// A closure that runs before the handler.
pub(crate) struct Before<F>(pub(crate) F);

#[async_trait]
impl<F, Fut> Interceptor for Before<F>
where
    F: Fn(Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    async fn before(&self, cx: &Context) -> HandlerResult {
        (self.0)(cx.clone()).await
    }
}

/// A closure that runs after the handler.
pub(crate) struct After<F>(pub(crate) F);

#[async_trait]
impl<F, Fut> Interceptor for After<F>
where
    F: Fn(Context, AttemptEnd) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    async fn after(&self, cx: &Context, end: &AttemptEnd) -> HandlerResult {
        (self.0)(cx.clone(), end.clone()).await
    }
}
