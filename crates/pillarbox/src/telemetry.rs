//! Everything that can be observed: the names of metrics, and the lines of the log. No payload, no header value.
//!
//! Log lines go through `tracing` with target `pillarbox`; metrics through the facade `metrics`, with feature `metrics`.
//! The recorder must be installed before the runtime starts. `docs/telemetry.md` has a table of all names.

pub(crate) mod inbox;
#[cfg(test)]
#[cfg(feature = "metrics")]
pub(crate) mod tally;
#[cfg(test)]
pub(crate) mod witness;

use std::time::Duration;

use pillarbox_core::clock::Jump;
use pillarbox_core::outbox::AttemptEnd;
use pillarbox_core::store::Reaped;
use pillarbox_core::{Message, MessageId, StoreId};

use crate::attempt::Ended;
use crate::config::UnknownTopics;
use crate::context::Context;
use crate::failure::Failure;
use crate::meters::{Counter, Gauge, Histogram};
use crate::plan::PlannedRoute;
use crate::transactional::NotCommitted;

/// Messages stored and committed by this process.
pub const ENQUEUED_TOTAL: &str = "pillarbox_enqueued_total";
/// Messages handed over in memory after their commit.
pub const HOT_ENQUEUED_TOTAL: &str = "pillarbox_hot_enqueued_total";
/// Messages that found no room in memory and were left to the poller.
pub const HOT_DROPPED_TOTAL: &str = "pillarbox_hot_dropped_total";
/// Messages claimed by the poller.
pub const COLD_ENQUEUED_TOTAL: &str = "pillarbox_cold_enqueued_total";
/// Attempts that succeeded, by route.
pub const HANDLED_TOTAL: &str = "pillarbox_handled_total";
/// Attempts that failed, by route.
pub const FAILED_TOTAL: &str = "pillarbox_failed_total";
/// Messages that this process made dead: by route where a handler was at it, otherwise without.
pub const DEAD_TOTAL: &str = "pillarbox_dead_total";
/// Messages whose lease was found lost when they were settled or renewed.
pub const LEASE_LOST_TOTAL: &str = "pillarbox_lease_lost_total";
/// Messages that a reap put right.
pub const REAPED_TOTAL: &str = "pillarbox_reaped_total";
/// Done messages that were removed.
pub const PURGED_TOTAL: &str = "pillarbox_purged_total";
/// Times that the database's clock was found to have jumped.
pub const CLOCK_JUMPS_TOTAL: &str = "pillarbox_clock_jumps_total";
/// Deliveries that an inbox consumed: their effects are committed.
pub const INBOX_CONSUMED_TOTAL: &str = "pillarbox_inbox_consumed_total";
/// Deliveries of messages that had taken effect before.
pub const INBOX_DUPLICATE_TOTAL: &str = "pillarbox_inbox_duplicate_total";
/// Deliveries of messages that somebody else was at.
pub const INBOX_IN_PROGRESS_TOTAL: &str = "pillarbox_inbox_in_progress_total";
/// Times that another content was found under a known name.
pub const INBOX_MISMATCH_TOTAL: &str = "pillarbox_inbox_mismatch_total";
/// Messages that wait in memory after their commit.
pub const HOT_DEPTH: &str = "pillarbox_hot_depth";
/// Claimed messages that wait in memory.
pub const COLD_DEPTH: &str = "pillarbox_cold_depth";
/// Handlers that run now.
pub const IN_FLIGHT: &str = "pillarbox_in_flight";
/// How long the oldest message has waited that could be claimed, by the database's clock.
pub const OLDEST_AGE_SECONDS: &str = "pillarbox_oldest_age_seconds";
/// 1 while other processes can wake this one, 0 while it polls.
pub const WAKEUPS: &str = "pillarbox_wakeups";
/// 1 while a route pauses, because its destination is down or an operator paused it, by route.
pub const ROUTE_PAUSED: &str = "pillarbox_route_paused";
/// How long attempts took, by route; a batch counts once.
pub const HANDLER_SECONDS: &str = "pillarbox_handler_seconds";
/// From the storing of a message to the end of its successful attempt, by route.
pub const END_TO_END_SECONDS: &str = "pillarbox_end_to_end_seconds";

/// Every metric.
pub const METRICS: [&str; 23] = [
    ENQUEUED_TOTAL,
    HOT_ENQUEUED_TOTAL,
    HOT_DROPPED_TOTAL,
    COLD_ENQUEUED_TOTAL,
    HANDLED_TOTAL,
    FAILED_TOTAL,
    DEAD_TOTAL,
    LEASE_LOST_TOTAL,
    REAPED_TOTAL,
    PURGED_TOTAL,
    CLOCK_JUMPS_TOTAL,
    INBOX_CONSUMED_TOTAL,
    INBOX_DUPLICATE_TOTAL,
    INBOX_IN_PROGRESS_TOTAL,
    INBOX_MISMATCH_TOTAL,
    HOT_DEPTH,
    COLD_DEPTH,
    IN_FLIGHT,
    OLDEST_AGE_SECONDS,
    WAKEUPS,
    ROUTE_PAUSED,
    HANDLER_SECONDS,
    END_TO_END_SECONDS,
];

/// The target of every log line and span.
pub const TARGET: &str = "pillarbox";

/// What is told of a message that was stored.
#[derive(Debug)]
pub(crate) struct Announced<'m> {
    pub(crate) topic: &'m str,
    pub(crate) id: MessageId,
    pub(crate) correlation_id: Option<&'m str>,
}

impl<'m> Announced<'m> {
    pub(crate) fn of(message: &'m Message) -> Self {
        Self { topic: message.topic(), id: message.id(), correlation_id: message.get_correlation_id() }
    }
}

/// What is observed of one store by one process.
#[derive(Debug)]
pub(crate) struct Telemetry {
    store_id: StoreId,
    enqueued: Counter,
    hot_enqueued: Counter,
    hot_dropped: Counter,
    cold_enqueued: Counter,
    dead: Counter,
    lease_lost: Counter,
    reaped: Counter,
    purged: Counter,
    clock_jumps: Counter,
    hot_depth: Gauge,
    cold_depth: Gauge,
    in_flight: Gauge,
    oldest_age: Gauge,
    wakeups: Gauge,
}

impl Telemetry {
    pub(crate) fn new(store_id: &StoreId) -> Self {
        let store = store_id.as_str();
        Self {
            store_id: store_id.clone(),
            enqueued: Counter::new(ENQUEUED_TOTAL, store, None),
            hot_enqueued: Counter::new(HOT_ENQUEUED_TOTAL, store, None),
            hot_dropped: Counter::new(HOT_DROPPED_TOTAL, store, None),
            cold_enqueued: Counter::new(COLD_ENQUEUED_TOTAL, store, None),
            dead: Counter::new(DEAD_TOTAL, store, None),
            lease_lost: Counter::new(LEASE_LOST_TOTAL, store, None),
            reaped: Counter::new(REAPED_TOTAL, store, None),
            purged: Counter::new(PURGED_TOTAL, store, None),
            clock_jumps: Counter::new(CLOCK_JUMPS_TOTAL, store, None),
            hot_depth: Gauge::new(HOT_DEPTH, store, None),
            cold_depth: Gauge::new(COLD_DEPTH, store, None),
            in_flight: Gauge::new(IN_FLIGHT, store, None),
            oldest_age: Gauge::new(OLDEST_AGE_SECONDS, store, None),
            wakeups: Gauge::new(WAKEUPS, store, None),
        }
    }

    /// A message is committed, or was stored in a transaction whose commit nobody here will see.
    pub(crate) fn enqueued(&self, message: &Announced<'_>) {
        self.enqueued.add(1);
        tracing::info!(
            target: TARGET,
            topic = message.topic,
            message_id = %message.id,
            correlation_id = message.correlation_id,
            store = self.store_id.as_str(),
            "enqueued"
        );
    }

    /// Messages are dead, and no route of this process was at them.
    pub(crate) fn dead(&self, count: u64) {
        self.dead.add_u64(count);
    }

    /// Messages were handed over in memory.
    pub(crate) fn hot_enqueued(&self, count: usize) {
        self.hot_enqueued.add(count);
    }

    /// Messages found no room in memory. The caller says whether it is time for a line again.
    pub(crate) fn hot_dropped(&self, count: usize, say: bool) {
        self.hot_dropped.add(count);
        if say {
            tracing::warn!(target: TARGET, count, store = self.store_id.as_str(), "hot queue full: left to the poller");
        }
    }

    /// A claim was answered.
    pub(crate) fn claimed(&self, count: usize) {
        self.cold_enqueued.add(count);
        tracing::debug!(target: TARGET, count, store = self.store_id.as_str(), "claimed");
    }

    /// Somebody else took a message over while we held it.
    pub(crate) fn lease_lost(&self, message_id: Option<MessageId>) {
        self.lease_lost.add(1);
        let message_id = message_id.map(tracing::field::display);
        tracing::warn!(target: TARGET, message_id, store = self.store_id.as_str(), "lease lost");
    }

    /// A reap has ended. One that found nothing is no news.
    pub(crate) fn reaped(&self, reaped: &Reaped) {
        let Reaped { released, lost, expired, parked, .. } = *reaped;
        let count = released.saturating_add(lost).saturating_add(expired).saturating_add(parked);
        self.reaped.add_u64(count);
        self.dead(count.saturating_sub(released));
        let store = self.store_id.as_str();
        if count == 0 {
            tracing::debug!(target: TARGET, released, lost, expired, parked, store, "reaped");
        } else {
            tracing::info!(target: TARGET, released, lost, expired, parked, store, "reaped");
        }
    }

    /// Done messages were removed.
    pub(crate) fn purged(&self, count: u64) {
        self.purged.add_u64(count);
        tracing::debug!(target: TARGET, count, store = self.store_id.as_str(), "purged");
    }

    /// The database's clock went on by something else than the time that passed here. Who was right cannot be told.
    pub(crate) fn clock_jumped(&self, jump: Jump) {
        self.clock_jumps.add(1);
        let (Jump::Ahead(by) | Jump::Back(by)) = jump;
        let (seconds, store) = (by.as_secs_f64().round(), self.store_id.as_str());
        match jump {
            Jump::Ahead(_) => tracing::warn!(
                target: TARGET,
                seconds,
                store,
                "the database's clock jumped ahead, or this process stood still: leases ran out early"
            ),
            Jump::Back(_) => tracing::warn!(
                target: TARGET,
                seconds,
                store,
                "the database's clock jumped back: leases and delays last so much longer"
            ),
        }
    }

    /// No handler is registered for a message.
    pub(crate) fn no_handler(&self, message: &Message, policy: UnknownTopics) {
        tracing::warn!(
            target: TARGET,
            topic = message.topic(),
            message_id = %message.id(),
            store = self.store_id.as_str(),
            ?policy,
            "no handler for this topic"
        );
    }

    /// How many messages wait in memory, and how many handlers run.
    pub(crate) fn depths(&self, hot: usize, cold: usize, in_flight: usize) {
        self.hot_depth.set_count(hot);
        self.cold_depth.set_count(cold);
        self.in_flight.set_count(in_flight);
    }

    /// The age of the oldest message that is known to wait.
    pub(crate) fn oldest_age(&self, age: Duration) {
        self.oldest_age.set(age.as_secs_f64());
    }

    /// Whether other processes can wake this one.
    pub(crate) fn wakeups(&self, listening: bool) {
        self.wakeups.set(if listening { 1.0 } else { 0.0 });
    }
}

/// What is measured of one route.
#[derive(Debug)]
pub(crate) struct RouteMeters {
    handled: Counter,
    failed: Counter,
    dead: Counter,
    paused: Gauge,
    handler_seconds: Histogram,
    end_to_end_seconds: Histogram,
}

impl RouteMeters {
    pub(crate) fn new(store_id: &StoreId, route: &str) -> Self {
        let (store, route) = (store_id.as_str(), Some(route));
        Self {
            handled: Counter::new(HANDLED_TOTAL, store, route),
            failed: Counter::new(FAILED_TOTAL, store, route),
            dead: Counter::new(DEAD_TOTAL, store, route),
            paused: Gauge::new(ROUTE_PAUSED, store, route),
            handler_seconds: Histogram::new(HANDLER_SECONDS, store, route),
            end_to_end_seconds: Histogram::new(END_TO_END_SECONDS, store, route),
        }
    }

    pub(crate) fn handler_took(&self, time: Duration) {
        self.handler_seconds.record(time);
    }

    /// From the storing of a message to the end of its successful attempt.
    pub(crate) fn end_to_end_took(&self, time: Duration) {
        self.end_to_end_seconds.record(time);
    }

    /// The verdict on a message of this route was that it is dead.
    pub(crate) fn dead(&self) {
        self.dead.add(1);
    }

    pub(crate) fn paused(&self, paused: bool) {
        self.paused.set(if paused { 1.0 } else { 0.0 });
    }
}

/// An attempt begins.
pub(crate) fn handling(cx: &Context, route: &str) {
    tracing::info!(
        target: TARGET,
        topic = cx.topic(),
        message_id = %cx.message_id(),
        correlation_id = cx.message().get_correlation_id(),
        attempt = cx.attempt(),
        route,
        store = cx.store_id().as_str(),
        "handling"
    );
}

/// An attempt has ended.
pub(crate) fn ended(cx: &Context, route: &PlannedRoute, ended: &Ended) {
    let error = match ended {
        Ended::End(AttemptEnd::Succeeded) | Ended::Committed => return route.meters.handled.add(1),
        // Not tried, hence no failure.
        Ended::End(AttemptEnd::Deferred(_) | AttemptEnd::LeaseExpired { .. }) => return,
        Ended::Unavailable(reason) => {
            let store = cx.store_id().as_str();
            let message_id = cx.message_id();
            return tracing::warn!(target: TARGET, route = route.name, %message_id, store, error = reason, "unavailable");
        }
        Ended::End(
            AttemptEnd::FailedTransient(reason)
            | AttemptEnd::FailedPermanent(reason)
            | AttemptEnd::RetryAfter(_, reason),
        ) => reason,
    };
    route.meters.failed.add(1);
    tracing::error!(
        target: TARGET,
        error,
        topic = cx.topic(),
        message_id = %cx.message_id(),
        correlation_id = cx.message().get_correlation_id(),
        attempt = cx.attempt(),
        route = route.name,
        store = cx.store_id().as_str(),
        "handler failed"
    );
}

/// The transaction of a handler was not begun, or not committed.
pub(crate) fn not_committed(cx: &Context, route: &PlannedRoute, error: &NotCommitted) {
    let (message_id, store) = (cx.message_id(), cx.store_id().as_str());
    tracing::warn!(target: TARGET, %error, %message_id, route = route.name, store, "transaction failed");
}

/// An after-interceptor failed; nothing follows from it.
pub(crate) fn after_failed(cx: &Context, failure: &Failure) {
    tracing::warn!(
        target: TARGET,
        error = %failure,
        message_id = %cx.message_id(),
        store = cx.store_id().as_str(),
        "an interceptor failed after the handler"
    );
}

/// Something of the user's panicked while it was dropped.
pub(crate) fn panicked_late(store: &StoreId, text: &str) {
    tracing::error!(target: TARGET, error = text, store = store.as_str(), "a handler panicked while it was dropped");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::witness::Witness;
    use super::*;
    use crate::attempt::run;
    use crate::builder::RuntimeBuilder;
    use crate::context::States;
    use crate::context::fixture::{delivery, scope};
    use crate::extract::Raw;
    use crate::failure::{Handled, HandlerResult};

    fn message() -> Message {
        Message::new("order.created", "canary").header("token", "canary").correlation_id("request-42")
    }

    /// Runs one attempt under a witness; answers the message's id and the lines.
    async fn watched(answer: fn() -> HandlerResult) -> (String, Vec<String>) {
        let builder = RuntimeBuilder::new()
            .after(async |_: Context, _: AttemptEnd| Handled::retry("after"))
            .on_topic("order.*", move |_: Raw| async move { answer() });
        let plan = builder.into_plan(StoreId::new("shop").unwrap(), None).unwrap();
        let cx = Context::new(delivery(message()), Arc::clone(&plan.scope));
        let witness = Witness::default();
        let watch = witness.watch();
        run(&plan, 0, &cx).await;
        drop(watch);
        (cx.message_id().to_string(), witness.lines())
    }

    /// OBX-085, OBX-086, OBX-089, OBX-090, H54.
    #[test]
    fn each_line_has_its_level_its_fields_and_the_store_and_no_content() {
        let witness = Witness::default();
        let watch = witness.watch();
        let (scope, message) = (scope(States::default()), message());
        let telemetry = &scope.telemetry;
        telemetry.enqueued(&Announced::of(&message));
        telemetry.claimed(3);
        telemetry.reaped(&Reaped { released: 2, lost: 1, ..Reaped::default() });
        telemetry.reaped(&Reaped::default());
        telemetry.purged(4);
        telemetry.clock_jumped(Jump::Ahead(Duration::from_millis(599_800)));
        telemetry.clock_jumped(Jump::Back(Duration::from_secs(600)));
        telemetry.lease_lost(Some(message.id()));
        telemetry.lease_lost(None);
        telemetry.no_handler(&message, UnknownTopics::Retry);
        telemetry.hot_dropped(5, true);
        telemetry.hot_dropped(5, false);
        drop(watch);
        let id = message.id();
        let expected = [
            format!(
                "INFO enqueued topic=\"order.created\" message_id={id} correlation_id=\"request-42\" store=\"shop\""
            ),
            "DEBUG claimed count=3 store=\"shop\"".to_owned(),
            "INFO reaped released=2 lost=1 expired=0 parked=0 store=\"shop\"".to_owned(),
            "DEBUG reaped released=0 lost=0 expired=0 parked=0 store=\"shop\"".to_owned(),
            "DEBUG purged count=4 store=\"shop\"".to_owned(),
            "WARN the database's clock jumped ahead, or this process stood still: leases ran out early \
             seconds=600.0 store=\"shop\""
                .to_owned(),
            "WARN the database's clock jumped back: leases and delays last so much longer seconds=600.0 store=\"shop\""
                .to_owned(),
            format!("WARN lease lost message_id={id} store=\"shop\""),
            "WARN lease lost store=\"shop\"".to_owned(),
            format!(
                "WARN no handler for this topic topic=\"order.created\" message_id={id} store=\"shop\" policy=Retry"
            ),
            "WARN hot queue full: left to the poller count=5 store=\"shop\"".to_owned(),
        ];
        assert_eq!(witness.lines(), expected);
    }

    /// OBX-087, OBX-090, H54: the span of an attempt and its line carry the same fields.
    #[tokio::test]
    async fn every_invocation_of_a_handler_is_logged() {
        let (id, lines) = watched(Handled::done).await;
        let fields = format!(
            "topic=\"order.created\" message_id={id} correlation_id=\"request-42\" attempt=2 route=\"order.*\" store=\"shop\""
        );
        assert_eq!(lines[0], format!("INFO span handle {fields}"));
        assert_eq!(lines[1], format!("INFO handling {fields}"));
        assert!(!lines.concat().contains("canary"), "{lines:#?}");
    }

    /// OBX-088.
    #[tokio::test]
    async fn every_failure_of_a_handler_is_an_error_with_its_message_id() {
        for answer in [|| Handled::retry("why"), || Handled::dead("why"), || panic!("why")] {
            let (id, lines) = watched(answer).await;
            let line = lines.iter().find(|line| line.starts_with("ERROR")).unwrap();
            assert!(line.starts_with("ERROR handler failed error=") && line.contains("why"), "{line}");
            assert!(line.contains(&format!("message_id={id}")) && line.contains("store=\"shop\""), "{line}");
        }
    }

    /// HOT-06.
    #[tokio::test]
    async fn an_after_that_fails_is_logged() {
        let (id, lines) = watched(Handled::done).await;
        let line = lines.iter().find(|line| line.starts_with("WARN")).unwrap();
        assert_eq!(
            *line,
            format!("WARN an interceptor failed after the handler error=after message_id={id} store=\"shop\"")
        );
    }

    #[tokio::test]
    async fn a_destination_that_is_down_is_a_warning_and_a_deferral_is_nothing() {
        let (_, lines) = watched(|| Handled::unavailable("refused")).await;
        assert!(lines.iter().any(|line| line.starts_with("WARN unavailable route=\"order.*\"")), "{lines:#?}");
        let (_, lines) = watched(|| Handled::again_in(Duration::ZERO)).await;
        assert!(!lines.iter().any(|line| line.starts_with("ERROR")), "{lines:#?}");
    }

    #[test]
    fn every_metric_is_documented() {
        let document = include_str!("../../../docs/telemetry.md");
        for name in METRICS {
            assert!(document.contains(&format!("| `{name}` |")), "docs/telemetry.md lacks {name}");
        }
        let rows = document.lines().filter(|line| line.starts_with("| `pillarbox_")).count();
        assert_eq!(rows, METRICS.len(), "docs/telemetry.md has metrics that do not exist");
    }
}
