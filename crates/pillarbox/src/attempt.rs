//! One attempt, whatever happens in it: interceptors, handler, panics, and time running out.

mod bounds;

use std::time::{Duration, Instant};

use pillarbox_core::AttemptEnd;
use tracing::Instrument;

use crate::batch::{Batch, ErasedBatchHandler};
use crate::context::Context;
use crate::failure::{Failure, FailureKind, HandlerResult};
use crate::handler::ErasedHandler;
use crate::plan::{Plan, PlannedRoute, RouteHandler};
use crate::{telemetry, trace};

use bounds::{contained, limited};

/// How long the after-interceptors of an attempt may take together. Longer would wear out a lease for a mere hook.
const AFTER_TIME_MAX: Duration = Duration::from_secs(5);

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

/// Runs one attempt: before-interceptors, handler, after-interceptors. Never panics.
///
/// It is over when the route's longest run time is, plus a few seconds for the after-interceptors.
pub(crate) async fn run(plan: &Plan, route: usize, cx: &Context) -> Ended {
    let route = &plan.routes[route];
    match &route.handler {
        RouteHandler::One(handler) => {
            let span = trace::span_of(cx, &route.name);
            trace::handling(cx, one(plan, route, handler.as_ref(), cx).instrument(span)).await
        }
        RouteHandler::Batch { handler, .. } => {
            let mut ended = many(plan, route, handler.as_ref(), vec![cx.clone()]).await;
            ended.pop().unwrap_or_else(|| Ended::of(Err(unanswered())))
        }
    }
}

/// Runs one attempt for each message of a batch, together; the answers come in their order. Never panics.
pub(crate) async fn run_batch(plan: &Plan, route: usize, messages: Vec<Context>) -> Vec<Ended> {
    match &plan.routes[route].handler {
        RouteHandler::Batch { handler, .. } => many(plan, &plan.routes[route], handler.as_ref(), messages).await,
        RouteHandler::One(_) => {
            let mut ended = Vec::with_capacity(messages.len());
            for cx in &messages {
                ended.push(run(plan, route, cx).await);
            }
            ended
        }
    }
}

async fn one(plan: &Plan, route: &PlannedRoute, handler: &dyn ErasedHandler, cx: &Context) -> Ended {
    telemetry::handling(cx, &route.name);
    let started = Instant::now();
    let mut passed = 0;
    let work = async {
        before(plan, cx, &mut passed).await?;
        contained("handler", || handler.call(cx)).await?
    };
    let result = limited(route.run_time_max, work, || cx.cancel()).await;
    let ended = Ended::of(result.unwrap_or_else(|| Err(too_long(route))));
    after(plan, cx, passed, &ended).await;
    route.meters.handler_took(started.elapsed());
    telemetry::ended(cx, route, &ended);
    ended
}

async fn many(
    plan: &Plan,
    route: &PlannedRoute,
    handler: &dyn ErasedBatchHandler,
    messages: Vec<Context>,
) -> Vec<Ended> {
    let started = Instant::now();
    let mut passed = vec![0; messages.len()];
    let mut results: Vec<Option<HandlerResult>> = std::iter::repeat_with(|| None).take(messages.len()).collect();
    let work = async {
        for ((cx, passed), result) in messages.iter().zip(&mut passed).zip(&mut results) {
            telemetry::handling(cx, &route.name);
            *result = trace::handling(cx, before(plan, cx, passed)).await.err().map(Err);
        }
        let open = messages.iter().zip(&results).filter(|(_, result)| result.is_none());
        let open: Vec<_> = open.map(|(cx, _)| cx.clone()).collect();
        let mut answers = answers(route, handler, open).await.into_iter();
        for result in results.iter_mut().filter(|result| result.is_none()) {
            *result = answers.next();
        }
    };
    let cancel = || messages.iter().for_each(Context::cancel);
    let in_time = limited(route.run_time_max, work, cancel).await.is_some();
    route.meters.handler_took(started.elapsed());

    let missing = || if in_time { unanswered() } else { too_long(route) };
    let mut ended = Vec::with_capacity(messages.len());
    for ((cx, passed), result) in messages.iter().zip(passed).zip(results) {
        let end = Ended::of(result.unwrap_or_else(|| Err(missing())));
        trace::handling(cx, after(plan, cx, passed, &end)).await;
        telemetry::ended(cx, route, &end);
        ended.push(end);
    }
    ended
}

/// What the handler says to those messages that the interceptors let pass.
async fn answers(route: &PlannedRoute, handler: &dyn ErasedBatchHandler, open: Vec<Context>) -> Vec<HandlerResult> {
    let Some(first) = open.first() else { return Vec::new() };
    let count = open.len();
    let span = trace::span_of_batch(first, &route.name, count);
    let work = contained("handler", move || handler.call(Batch::new(open))).instrument(span);
    match work.await.and_then(std::convert::identity) {
        Ok(outcome) => outcome.into_results(),
        Err(failure) => std::iter::repeat_with(|| Err(failure.repeated())).take(count).collect(),
    }
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
async fn after(plan: &Plan, cx: &Context, passed: usize, ended: &Ended) {
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
    if limited(AFTER_TIME_MAX, work, || ()).await.is_none() {
        telemetry::after_failed(cx, &Failure::retry(format!("ran longer than {AFTER_TIME_MAX:?}")));
    }
}

fn too_long(route: &PlannedRoute) -> Failure {
    Failure::retry(format!("ran longer than {:?}", route.run_time_max))
}

/// For a handler whose outcome has fewer answers than its batch had messages.
fn unanswered() -> Failure {
    Failure::retry("the batch handler gave no answer for it")
}

#[cfg(test)]
mod tests;
