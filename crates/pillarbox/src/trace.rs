//! What connects a message with what caused it: correlation, causation, and the W3C trace context.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::OnceLock;

use pillarbox_core::Message;
use tracing::Span;
use uuid::Uuid;

use crate::context::Context;
use crate::telemetry::TARGET;

/// The header of the W3C trace context.
pub const TRACEPARENT: &str = "traceparent";

/// The header of the W3C trace context that vendors add to.
pub const TRACESTATE: &str = "tracestate";

/// Knows the trace that the current code belongs to, for example from OpenTelemetry.
///
/// Without one, a trace is carried from a handled message to those that its handler enqueues, no further.
pub trait Propagator: Send + Sync + 'static {
    /// The headers of the trace that is current now; none outside of any.
    fn current(&self) -> Vec<(String, String)>;

    /// A span that continues the trace in these headers; the span of the handler becomes its child.
    fn resume(&self, headers: &BTreeMap<String, String>) -> Span;
}

static PROPAGATOR: OnceLock<Box<dyn Propagator>> = OnceLock::new();

/// Sets the propagator of this process, like its subscriber; the first one stays. Answers whether it is this one.
pub fn propagate_with(propagator: impl Propagator) -> bool {
    PROPAGATOR.set(Box::new(propagator)).is_ok()
}

tokio::task_local! {
    static CURRENT: Context;
}

/// Runs an attempt such that messages enqueued in it know what caused them.
pub(crate) fn handling<F: Future>(cx: &Context, attempt: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(cx.clone(), attempt)
}

/// Fills in what a message does not say itself: the current trace, and in a handler the correlation and the cause.
pub(crate) fn inherit(message: Message) -> Message {
    let message = match PROPAGATOR.get() {
        Some(propagator) if !is_traced(&message) => traced(message, propagator.current()),
        _ => message,
    };
    match CURRENT.try_with(Context::clone) {
        Ok(cx) => caused_by(message, cx.message()),
        Err(_) => message,
    }
}

/// The span of one attempt.
pub(crate) fn span_of(cx: &Context, route: &str) -> Span {
    let resumed = resumed(cx);
    let parent = resumed.as_ref().map_or_else(|| Span::current().id(), Span::id);
    tracing::info_span!(
        target: TARGET,
        parent: parent,
        "handle",
        topic = cx.topic(),
        message_id = %cx.message_id(),
        correlation_id = cx.message().get_correlation_id(),
        attempt = cx.attempt(),
        route,
        store = cx.store_id().as_str(),
    )
}

/// The span of a batch. Its messages belong to many traces, so it continues none of them.
pub(crate) fn span_of_batch(first: &Context, route: &str, count: usize) -> Span {
    tracing::info_span!(target: TARGET, "handle_batch", count, route, store = first.store_id().as_str())
}

fn resumed(cx: &Context) -> Option<Span> {
    let headers = cx.message().get_headers();
    let propagator = PROPAGATOR.get().filter(|_| headers.contains_key(TRACEPARENT))?;
    Some(propagator.resume(headers))
}

fn caused_by(message: Message, cause: &Message) -> Message {
    let message = match (message.get_correlation_id(), cause.get_correlation_id()) {
        (None, Some(correlation_id)) => message.correlation_id(correlation_id),
        _ => message,
    };
    let message = match message.get_causation_id() {
        None => message.causation_id(cause.id()),
        Some(_) => message,
    };
    let headers = cause.get_headers();
    match headers.get(TRACEPARENT).and_then(|parent| child_of(parent, span_id())) {
        Some(child) if !is_traced(&message) => {
            let state = headers.get(TRACESTATE).map(|state| (TRACESTATE.to_owned(), state.clone()));
            traced(message, [(TRACEPARENT.to_owned(), child)].into_iter().chain(state))
        }
        _ => message,
    }
}

fn is_traced(message: &Message) -> bool {
    message.get_headers().contains_key(TRACEPARENT)
}

fn traced(message: Message, headers: impl IntoIterator<Item = (String, String)>) -> Message {
    message.headers(headers)
}

/// A new span of the same trace, or nothing when the header is not one that we understand.
fn child_of(parent: &str, span_id: u64) -> Option<String> {
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let is_zero = |text: &str| text.bytes().all(|byte| byte == b'0');
    let mut fields = parent.split('-');
    let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let known = is_hex(version, 2) && version != "ff" && (version != "00" || fields.next().is_none());
    let named = is_hex(trace, 32) && !is_zero(trace) && is_hex(span, 16) && !is_zero(span) && is_hex(flags, 2);
    // Later versions only add fields; what we write is of version 00.
    (known && named).then(|| format!("00-{trace}-{span_id:016x}-{flags}"))
}

/// A random span id, never zero.
fn span_id() -> u64 {
    Uuid::new_v4().as_u64_pair().1.max(1)
}
