//! What connects a message with what caused it: correlation, causation, and the W3C trace context.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
/// Without one, a trace is carried from a handled message to those that its handler enqueues, no further. A propagator
/// that panics is logged and costs the trace, nothing else.
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
        Some(propagator) if !is_traced(&message) => {
            message.headers(unless_it_panics(|| propagator.current()).unwrap_or_default())
        }
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
    unless_it_panics(|| propagator.resume(headers))
}

/// A trace that cannot be told must not cost the message.
fn unless_it_panics<T>(told: impl FnOnce() -> T) -> Option<T> {
    let told = catch_unwind(AssertUnwindSafe(told));
    if told.is_err() {
        tracing::error!(target: TARGET, "the propagator of traces panicked");
    }
    told.ok()
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
            message.header(TRACEPARENT, child).headers(state)
        }
        _ => message,
    }
}

fn is_traced(message: &Message) -> bool {
    message.get_headers().contains_key(TRACEPARENT)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::fixture::context;
    use crate::telemetry::witness::Witness;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn cause() -> Message {
        Message::new("order.created", "")
            .correlation_id("request-42")
            .header(TRACEPARENT, PARENT)
            .header(TRACESTATE, "v=1")
    }

    #[tokio::test]
    async fn a_message_enqueued_by_a_handler_knows_its_cause() {
        let cx = context(cause());
        let message = handling(&cx, async { inherit(Message::new("mail.send", "")) }).await;
        assert_eq!(message.get_correlation_id(), Some("request-42"));
        assert_eq!(message.get_causation_id(), Some(cx.message_id().to_string().as_str()));
        let parent = &message.get_headers()[TRACEPARENT];
        assert_eq!((&parent[..36], &parent[52..]), (&PARENT[..36], "-01"));
        assert_ne!(parent, PARENT, "the span is a new one");
        assert_eq!(message.get_headers()[TRACESTATE], "v=1");
    }

    #[tokio::test]
    async fn what_a_message_says_itself_stays() {
        let own = Message::new("mail.send", "").correlation_id("own").causation_id("cause").header(TRACEPARENT, "mine");
        let inherited = handling(&context(cause()), async { inherit(own.clone()) }).await;
        assert_eq!(inherited, own);
    }

    #[tokio::test]
    async fn outside_of_handlers_nothing_is_inherited() {
        let message = Message::new("mail.send", "");
        assert_eq!(inherit(message.clone()), message);
        handling(&context(cause()), async {}).await;
        assert_eq!(inherit(message.clone()), message);
    }

    #[tokio::test]
    async fn a_cause_without_a_trace_begins_none() {
        let cx = context(Message::new("t", "").header(TRACEPARENT, "garbage"));
        let message = handling(&cx, async { inherit(Message::new("mail.send", "")) }).await;
        assert_eq!(message.get_causation_id(), Some(cx.message_id().to_string().as_str()));
        assert!(message.get_headers().is_empty() && message.get_correlation_id().is_none());
    }

    thread_local! {
        static SPAN: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
    }

    /// Knows a trace only on the thread of the test that began one.
    struct OfThread;

    impl Propagator for OfThread {
        fn current(&self) -> Vec<(String, String)> {
            assert_ne!(SPAN.get(), Some("panic"));
            SPAN.get().map(|span| (TRACEPARENT.to_owned(), span.to_owned())).into_iter().collect()
        }

        fn resume(&self, headers: &BTreeMap<String, String>) -> Span {
            assert_ne!(headers[TRACEPARENT], "panic");
            tracing::info_span!(target: TARGET, "resumed", traceparent = headers[TRACEPARENT])
        }
    }

    #[tokio::test]
    async fn a_propagator_says_which_trace_is_current_and_continues_that_of_a_message() {
        propagate_with(OfThread);
        assert!(!propagate_with(OfThread), "the first one stays");
        SPAN.set(Some("of the web request"));
        let message = inherit(Message::new("order.created", ""));
        assert_eq!(message.get_headers()[TRACEPARENT], "of the web request");
        let nested = handling(&context(cause()), async { inherit(Message::new("mail.send", "")) }).await;
        assert_eq!(nested.get_headers()[TRACEPARENT], "of the web request");
        assert_eq!(inherit(cause()).get_headers()[TRACEPARENT], PARENT);

        let witness = Witness::default();
        let watch = witness.watch();
        drop(span_of(&context(message), "order.created"));
        drop(watch);
        assert_eq!(witness.lines()[0], "INFO span resumed traceparent=\"of the web request\"");
        assert!(witness.lines()[1].starts_with("INFO span handle "));
    }

    /// H30.
    #[tokio::test]
    async fn a_propagator_that_panics_costs_the_trace_and_nothing_else() {
        propagate_with(OfThread);
        SPAN.set(Some("panic"));
        let message = handling(&context(cause()), async { inherit(Message::new("mail.send", "")) }).await;
        assert_eq!(message.get_headers()[TRACEPARENT][..36], PARENT[..36]);
        assert!(resumed(&context(Message::new("t", "").header(TRACEPARENT, "panic"))).is_none());
    }

    #[test]
    fn only_a_valid_parent_has_children() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let span = "00f067aa0ba902b7";
        let zeros = "0".repeat(32);
        let table = [
            (format!("00-{trace}-{span}-01"), true),
            (format!("00-{trace}-{span}-00"), true),
            (format!("01-{trace}-{span}-01-later"), true),
            (format!("00-{trace}-{span}-01-later"), false),
            (format!("ff-{trace}-{span}-01"), false),
            (format!("00-{zeros}-{span}-01"), false),
            (format!("00-{trace}-{}-01", &zeros[..16]), false),
            (format!("00-{}-{span}-01", trace.to_uppercase()), false),
            (format!("00-{trace}-{span}"), false),
            (format!("0-{trace}-{span}-01"), false),
            (String::new(), false),
        ];
        for (parent, valid) in table {
            let child = child_of(&parent, 0xa);
            assert_eq!(child.is_some(), valid, "{parent}");
            if let Some(child) = child {
                assert_eq!(child[..53], format!("00-{trace}-000000000000000a-"), "{parent}");
            }
        }
        assert_ne!(span_id(), 0);
    }
}
