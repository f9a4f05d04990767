//! One attempt, whatever happens in it: interceptors, handler, panics, and time running out.

mod bounds;

use std::future::Future;
use std::time::{Duration, Instant};

use pillarbox_core::AttemptEnd;
use pillarbox_core::store::Settlement;
use tracing::Instrument;

use crate::batch::{Batch, ErasedBatchHandler};
use crate::context::Context;
use crate::failure::{Failure, FailureKind, HandlerResult};
use crate::handler::ErasedHandler;
use crate::plan::{Plan, PlannedRoute, RouteHandler};
use crate::transactional::{NotCommitted, Transacting};
use crate::{telemetry, trace};

use bounds::{contained, limited};

/// How long the after-interceptors of an attempt may take together. Longer would wear out a lease for a mere hook.
const AFTER_TIME_MAX: Duration = Duration::from_secs(5);

/// How an attempt ended, as far as the handler can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    End(AttemptEnd),
    /// It succeeded, and its message is done: both were committed together.
    Committed,
    /// The destination is down: the route pauses.
    Unavailable(String),
}

impl Ended {
    fn of(result: Result<Success, Failure>) -> Self {
        let failure = match result {
            Ok(Success::Handled) => return Self::End(AttemptEnd::Succeeded),
            Ok(Success::Committed) => return Self::Committed,
            Err(failure) => failure,
        };
        Self::End(match failure.kind() {
            FailureKind::Retry => AttemptEnd::FailedTransient(failure.into_reason()),
            FailureKind::Dead => AttemptEnd::FailedPermanent(failure.into_reason()),
            FailureKind::RetryAfter(delay) => AttemptEnd::RetryAfter(delay, failure.into_reason()),
            FailureKind::Again(delay) => AttemptEnd::Deferred(delay),
            FailureKind::Unavailable => return Self::Unavailable(failure.into_reason()),
        })
    }

    /// Why the destination is down, if it is.
    pub(crate) fn unavailable(&self) -> Option<&str> {
        match self {
            Self::Unavailable(reason) => Some(reason),
            Self::End(_) | Self::Committed => None,
        }
    }

    /// What interceptors are shown.
    fn shown(&self) -> &AttemptEnd {
        match self {
            Self::End(end) => end,
            Self::Committed => &AttemptEnd::Succeeded,
            Self::Unavailable(_) => &AttemptEnd::Deferred(Duration::ZERO),
        }
    }
}

/// What is left to be done about a message that was handled.
#[derive(Clone, Copy)]
enum Success {
    /// It has to be acknowledged.
    Handled,
    /// Nothing.
    Committed,
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
        let handle = contained("handler", cx.store_id(), || handler.call(cx));
        match &route.transacting {
            None => handle.await?.map(|()| Success::Handled),
            Some(transacting) => transacted(route, transacting, cx, handle).await,
        }
    };
    let result = limited(route.run_time_max, work, || cx.cancel()).await;
    let ended = Ended::of(result.unwrap_or_else(|| Err(too_long(route))));
    after(plan, cx, passed, &ended).await;
    route.meters.handler_took(started.elapsed());
    telemetry::ended(cx, route, &ended);
    ended
}

/// Handles a message inside a transaction, in which it ends.
async fn transacted(
    route: &PlannedRoute,
    transacting: &Transacting,
    cx: &Context,
    handle: impl Future<Output = Result<HandlerResult, Failure>>,
) -> Result<Success, Failure> {
    let failed = |error| not_committed(cx, route, &error);
    let begun = transacting.begin().await.map_err(failed)?;
    cx.set_slot(begun.slot());
    if let Err(failure) = handle.await.and_then(std::convert::identity) {
        begun.rollback().await;
        return Err(failure);
    }
    begun.commit(cx.owner(), vec![Settlement::ack(cx.held())]).await.map_err(failed)?;
    cx.settled();
    Ok(Success::Committed)
}

fn not_committed(cx: &Context, route: &PlannedRoute, error: &NotCommitted) -> Failure {
    telemetry::not_committed(cx, route, error);
    error.failure()
}

async fn many(
    plan: &Plan,
    route: &PlannedRoute,
    handler: &dyn ErasedBatchHandler,
    messages: Vec<Context>,
) -> Vec<Ended> {
    let started = Instant::now();
    let mut passed = vec![0; messages.len()];
    let mut results: Vec<Option<Result<Success, Failure>>> =
        std::iter::repeat_with(|| None).take(messages.len()).collect();
    let work = async {
        for ((cx, passed), result) in messages.iter().zip(&mut passed).zip(&mut results) {
            telemetry::handling(cx, &route.name);
            if !plan.interceptors.is_empty() {
                *result = trace::handling(cx, before(plan, cx, passed)).await.err().map(Err);
            }
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
        if passed > 0 {
            trace::handling(cx, after(plan, cx, passed, &end)).await;
        }
        telemetry::ended(cx, route, &end);
        ended.push(end);
    }
    ended
}

/// What the handler says to those messages that the interceptors let pass.
async fn answers(
    route: &PlannedRoute,
    handler: &dyn ErasedBatchHandler,
    open: Vec<Context>,
) -> Vec<Result<Success, Failure>> {
    let Some(first) = open.first() else { return Vec::new() };
    let span = trace::span_of_batch(first, &route.name, open.len());
    let batch = open.clone();
    let handle = contained("handler", first.store_id(), move || handler.call(Batch::new(batch))).instrument(span);
    let handle = async { Ok::<_, Failure>(handle.await??.into_results()) };
    let answers = match &route.transacting {
        None => handle.await.map(|results| results.into_iter().map(|one| one.map(|()| Success::Handled)).collect()),
        Some(transacting) => transacted_together(route, transacting, &open, handle).await,
    };
    answers.unwrap_or_else(|failure| open.iter().map(|_| Err(failure.repeated())).collect())
}

/// Handles a batch inside a transaction, in which those messages end that are done.
async fn transacted_together(
    route: &PlannedRoute,
    transacting: &Transacting,
    open: &[Context],
    handle: impl Future<Output = Result<Vec<HandlerResult>, Failure>>,
) -> Result<Vec<Result<Success, Failure>>, Failure> {
    let begun = transacting.begin().await.map_err(|error| not_committed(&open[0], route, &error))?;
    open.iter().for_each(|cx| cx.set_slot(begun.slot()));
    let results = match handle.await {
        Ok(results) => results,
        Err(failure) => {
            begun.rollback().await;
            return Err(failure);
        }
    };
    let done = open.iter().zip(&results).filter(|(_, result)| result.is_ok());
    let acks: Vec<_> = done.map(|(cx, _)| Settlement::ack(cx.held())).collect();
    let committed = if acks.is_empty() {
        begun.rollback().await;
        Ok(())
    } else {
        begun.commit(open[0].owner(), acks).await.map_err(|error| not_committed(&open[0], route, &error))
    };
    let answer = |(cx, result): (&Context, HandlerResult)| match (&committed, result) {
        (Ok(()), Ok(())) => {
            cx.settled();
            Ok(Success::Committed)
        }
        (Err(failure), Ok(())) => Err(failure.repeated()),
        (_, Err(failure)) => Err(failure),
    };
    Ok(open.iter().zip(results).map(answer).collect())
}

/// Runs the befores in order, and counts those that let the message pass.
async fn before(plan: &Plan, cx: &Context, passed: &mut usize) -> HandlerResult {
    for interceptor in &plan.interceptors {
        contained("interceptor", cx.store_id(), || Ok(interceptor.before(cx))).await??;
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
            let result = contained("interceptor", cx.store_id(), || Ok(interceptor.after(cx, ended.shown()))).await;
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
