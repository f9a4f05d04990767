//! One attempt, whatever happens in it: interceptors, handler, panics, and time running out.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use pillarbox_core::AttemptEnd;
use pillarbox_core::store::BoxFuture;
use tracing::Instrument;

use crate::batch::{Batch, ErasedBatchHandler};
use crate::context::Context;
use crate::failure::{Failure, FailureKind, HandlerResult};
use crate::plan::{Plan, PlannedRoute, RouteHandler};
use crate::{telemetry, trace};

/// How an attempt ended, as far as the handler can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    End(AttemptEnd),
    /// The destination is down: the route pauses.
    Unavailable(String),
}

impl Ended {
    fn of(result: HandlerResult) -> Self {
        let Err(failure) = result else { return Self::End(AttemptEnd::Succeeded) };
        Self::End(match failure.kind() {
            FailureKind::Retry => AttemptEnd::FailedTransient(failure.into_reason()),
            FailureKind::Dead => AttemptEnd::FailedPermanent(failure.into_reason()),
            FailureKind::RetryAfter(delay) => AttemptEnd::RetryAfter(delay, failure.into_reason()),
            FailureKind::Again(delay) => AttemptEnd::Deferred(delay),
            FailureKind::Unavailable => return Self::Unavailable(failure.into_reason()),
        })
    }

    /// What interceptors are shown.
    fn shown(&self) -> &AttemptEnd {
        match self {
            Self::End(end) => end,
            Self::Unavailable(_) => &AttemptEnd::Deferred(Duration::ZERO),
        }
    }
}

/// Runs one attempt. Never panics; returns soon after the route's longest run time at the latest.
pub(crate) async fn run(plan: &Plan, route: usize, cx: &Context) -> Ended {
    let route = &plan.routes[route];
    match &route.handler {
        RouteHandler::One(handler) => {
            let attempt = async {
                telemetry::handling(cx, &route.name);
                let started = Instant::now();
                let mut passed = 0;
                let work = async {
                    before(plan, cx, &mut passed).await?;
                    contained("handler", || handler.call(cx)).await?
                };
                let result = limited(route.run_time_max, work, || cx.cancel()).await;
                let ended = Ended::of(result.unwrap_or_else(|| Err(too_long(route))));
                after(plan, route, passed, cx, &ended).await;
                route.meters.handler_took(started.elapsed());
                telemetry::ended(cx, route, &ended);
                ended
            };
            let span = trace::span_of(cx, &route.name);
            trace::handling(cx, attempt.instrument(span)).await
        }
        RouteHandler::Batch { handler, .. } => {
            let ended = batch(plan, route, handler.as_ref(), vec![cx.clone()]).await;
            ended.into_iter().next().unwrap_or_else(|| Ended::of(Err(Failure::retry("the batch was empty"))))
        }
    }
}

/// Runs one attempt for each message of a batch; the answers come in their order. Never panics.
pub(crate) async fn run_batch(plan: &Plan, route: usize, messages: Vec<Context>) -> Vec<Ended> {
    match &plan.routes[route].handler {
        RouteHandler::Batch { handler, .. } => batch(plan, &plan.routes[route], handler.as_ref(), messages).await,
        RouteHandler::One(_) => {
            let mut ended = Vec::with_capacity(messages.len());
            for cx in &messages {
                ended.push(run(plan, route, cx).await);
            }
            ended
        }
    }
}

async fn batch(
    plan: &Plan,
    route: &PlannedRoute,
    handler: &dyn ErasedBatchHandler,
    messages: Vec<Context>,
) -> Vec<Ended> {
    let started = Instant::now();
    let mut passed = vec![0; messages.len()];
    let mut ended: Vec<Option<Ended>> = Vec::with_capacity(messages.len());
    for (cx, passed) in messages.iter().zip(&mut passed) {
        telemetry::handling(cx, &route.name);
        let work = trace::handling(cx, before(plan, cx, passed));
        let result = limited(route.run_time_max, work, || cx.cancel()).await;
        ended.push(result.unwrap_or_else(|| Err(too_long(route))).err().map(|failure| Ended::of(Err(failure))));
    }

    let ready: Vec<_> =
        messages.iter().zip(&ended).filter(|(_, ended)| ended.is_none()).map(|(cx, _)| cx.clone()).collect();
    let mut answers = answers(route, handler, ready).await.into_iter();
    route.meters.handler_took(started.elapsed());

    let mut answered = Vec::with_capacity(messages.len());
    for ((cx, passed), ended) in messages.iter().zip(passed).zip(ended) {
        let unanswered = || Err(Failure::retry("the batch handler gave no answer for it"));
        let ended = ended.unwrap_or_else(|| Ended::of(answers.next().unwrap_or_else(unanswered)));
        trace::handling(cx, after(plan, route, passed, cx, &ended)).await;
        telemetry::ended(cx, route, &ended);
        answered.push(ended);
    }
    answered
}

/// The handler's answers for those messages that the interceptors let pass.
async fn answers(route: &PlannedRoute, handler: &dyn ErasedBatchHandler, ready: Vec<Context>) -> Vec<HandlerResult> {
    let count = ready.len();
    if count == 0 {
        return Vec::new();
    }
    let cancel = || ready.iter().for_each(Context::cancel);
    let span = trace::span_of_batch(&ready[0], &route.name, count);
    let batch = Batch::new(ready.clone());
    let work = async { contained("handler", move || handler.call(batch)).await? }.instrument(span);
    let failure = match limited(route.run_time_max, work, cancel).await {
        Some(Ok(outcome)) => return outcome.into_results(count),
        Some(Err(failure)) => failure,
        None => too_long(route),
    };
    std::iter::repeat_with(|| Err(failure.repeated())).take(count).collect()
}

/// Runs the befores in order, and counts those that let the message pass.
async fn before(plan: &Plan, cx: &Context, passed: &mut usize) -> HandlerResult {
    for interceptor in &plan.interceptors {
        contained("interceptor", || Ok(interceptor.before(cx))).await??;
        *passed += 1;
    }
    Ok(())
}

/// Runs the afters of those that let the message pass, in reverse. What goes wrong in them is only logged.
async fn after(plan: &Plan, route: &PlannedRoute, passed: usize, cx: &Context, ended: &Ended) {
    if passed == 0 {
        return;
    }
    let work = async {
        for interceptor in plan.interceptors[..passed].iter().rev() {
            let result = contained("interceptor", || Ok(interceptor.after(cx, ended.shown()))).await;
            if let Err(failure) = result.and_then(std::convert::identity) {
                telemetry::after_failed(cx, &failure);
            }
        }
    };
    if limited(route.run_time_max, work, || ()).await.is_none() {
        telemetry::after_failed(cx, &too_long(route));
    }
}

fn too_long(route: &PlannedRoute) -> Failure {
    Failure::retry(format!("ran longer than {:?}", route.run_time_max))
}

/// Waits for the work up to the limit. When time is up, `late` is called before the work is dropped.
///
/// No timer is set for work that is done when it is first polled: most handlers of a fast queue are.
async fn limited<T>(limit: Duration, work: impl Future<Output = T>, late: impl FnOnce()) -> Option<T> {
    let mut work = pin!(work);
    let mut timer = None;
    let done = poll_fn(|task| {
        if let Poll::Ready(value) = work.as_mut().poll(task) {
            return Poll::Ready(Some(value));
        }
        // Unconstrained: work that never tires must not keep the timer from being looked at.
        let timer = timer.get_or_insert_with(|| Box::pin(tokio::task::unconstrained(tokio::time::sleep(limit))));
        ready!(timer.as_mut().poll(task));
        Poll::Ready(None)
    })
    .await;
    if done.is_none() {
        late();
    }
    done
}

/// Begins and awaits something of the user's; a panic in it, also while it is dropped, is a failure and no more.
async fn contained<'a, T>(
    who: &'static str,
    begin: impl FnOnce() -> Result<BoxFuture<'a, T>, Failure>,
) -> Result<T, Failure> {
    let panicked = |panic| Failure::retry(format!("{who} panicked: {}", text_of(panic)));
    let work = catch_unwind(AssertUnwindSafe(begin)).map_err(panicked)??;
    Contained(Some(work)).await.map_err(panicked)
}

struct Contained<'a, T>(Option<BoxFuture<'a, T>>);

impl<T> Future for Contained<'_, T> {
    type Output = Result<T, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        let Some(work) = self.0.as_mut() else { return Poll::Pending };
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(task))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

impl<T> Drop for Contained<'_, T> {
    fn drop(&mut self) {
        let work = self.0.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(work))) {
            telemetry::panicked_late(&text_of(panic));
        }
    }
}

/// What a panic said, if it said something.
fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "without a text".to_owned(),
    };
    // What was thrown may itself panic when it is dropped, and so on; a leak is the lesser evil.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers are tasks of a runtime with many threads.
    #[test]
    fn attempts_are_send() {
        fn is_send<T: Send>(_: &dyn Fn(T)) {}
        fn of<'a, F: Future + Send>(_: impl Fn(&'a Plan, &'a Context) -> F) {}
        of(|plan, cx| run(plan, 0, cx));
        of(|plan, cx| run_batch(plan, 0, vec![cx.clone()]));
        is_send::<Plan>(&drop);
    }
}
