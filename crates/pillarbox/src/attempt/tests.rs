use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use pillarbox_core::{Message, StoreId};

use super::*;
use crate::batch::BatchOutcome;
use crate::builder::RuntimeBuilder;
use crate::context::fixture::delivery;
use crate::extract::{Payload, Raw, State};
use crate::failure::Handled;
use crate::interceptor::Interceptor;
use crate::route::Route;

type Log = Arc<Mutex<Vec<String>>>;

fn plan(builder: RuntimeBuilder) -> Plan {
    builder.into_plan(StoreId::new("shop").unwrap(), None).unwrap()
}

fn builder() -> RuntimeBuilder {
    RuntimeBuilder::new()
}

fn context(plan: &Plan, message: Message) -> Context {
    Context::new(delivery(message), Arc::clone(&plan.scope))
}

async fn run_with(builder: RuntimeBuilder) -> Ended {
    let plan = plan(builder);
    run(&plan, 0, &context(&plan, Message::new("t", "1"))).await
}

async fn run_batch_with(builder: RuntimeBuilder, payloads: &[&'static str]) -> Vec<Ended> {
    let plan = plan(builder);
    let messages = payloads.iter().map(|payload| context(&plan, Message::new("t", *payload))).collect();
    run_batch(&plan, 0, messages).await
}

fn failed(reason: &str) -> Ended {
    Ended::End(AttemptEnd::FailedTransient(reason.into()))
}

const DONE: Ended = Ended::End(AttemptEnd::Succeeded);

/// Writes down what it sees, and fails or panics where it is told to.
struct Noisy {
    name: &'static str,
    log: Log,
    before: fn() -> HandlerResult,
    after: fn() -> HandlerResult,
}

impl Noisy {
    fn new(name: &'static str, log: &Log) -> Self {
        Self { name, log: Arc::clone(log), before: Handled::done, after: Handled::done }
    }
}

#[async_trait]
impl Interceptor for Noisy {
    async fn before(&self, _: &Context) -> HandlerResult {
        self.log.lock().unwrap().push(format!("before {}", self.name));
        (self.before)()
    }

    async fn after(&self, _: &Context, end: &AttemptEnd) -> HandlerResult {
        self.log.lock().unwrap().push(format!("after {}: {end:?}", self.name));
        (self.after)()
    }
}

/// Workers are tasks of a runtime with many threads.
#[test]
fn attempts_are_send() {
    fn of<'a, F: Future + Send>(_: impl Fn(&'a Plan, &'a Context) -> F) {}
    of(|plan, cx| run(plan, 0, cx));
    of(|plan, cx| run_batch(plan, 0, vec![cx.clone()]));
}

/// OBX-056: every way in which a handler can answer.
#[tokio::test]
async fn what_a_handler_says_is_how_the_attempt_ends() {
    let minute = Duration::from_secs(60);
    let why = || "why".to_owned();
    let table: [(fn() -> HandlerResult, Ended); 6] = [
        (Handled::done, DONE),
        (|| Handled::retry("why"), failed("why")),
        (|| Handled::dead("why"), Ended::End(AttemptEnd::FailedPermanent(why()))),
        (|| Handled::retry_after(Duration::from_secs(60), "why"), Ended::End(AttemptEnd::RetryAfter(minute, why()))),
        (|| Handled::again_in(Duration::from_secs(60)), Ended::End(AttemptEnd::Deferred(minute))),
        (|| Handled::unavailable("why"), Ended::Unavailable(why())),
    ];
    for (answer, end) in table {
        assert_eq!(run_with(builder().on_topic("t", move |_: Raw| async move { answer() })).await, end);
    }
}

/// H30, OBX-056.
#[tokio::test]
async fn a_panic_of_the_handler_is_a_failed_attempt() {
    let ended = run_with(builder().on_topic("t", async |_: Raw| panic!("at {}", 7))).await;
    assert_eq!(ended, failed("handler panicked: at 7"));
    let ended = run_with(builder().on_batch("t", 9, async |_: Batch| -> HandlerResult { panic!("many") })).await;
    assert_eq!(ended, failed("handler panicked: many"));
}

/// HOT-11, BUS-10.
#[tokio::test]
async fn a_payload_that_does_not_decode_never_reaches_the_handler() {
    let ended = run_with(builder().on_topic("t", async |_: Payload<String>| panic!("was called"))).await;
    assert_eq!(ended, Ended::End(AttemptEnd::FailedPermanent("decode: invalid type at line 1 column 1".into())));
}

/// H28.
#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_is_cancelled_and_its_attempt_is_spent() {
    let log = Log::default();
    let hanging =
        Route::topic("t").run_time_max(Duration::from_secs(2)).to(async |_: Raw| std::future::pending().await);
    let plan = plan(builder().interceptor(Noisy::new("one", &log)).route(hanging));
    let cx = context(&plan, Message::new("t", ""));
    assert_eq!(run(&plan, 0, &cx).await, failed("ran longer than 2s"));
    assert!(cx.cancellation().is_cancelled());
    assert_eq!(log.lock().unwrap()[1], "after one: FailedTransient(\"ran longer than 2s\")");
}

/// HOT-05.
#[tokio::test]
async fn interceptors_run_in_order_before_and_in_reverse_after() {
    let log = Log::default();
    let handled = Arc::clone(&log);
    let (before, after) = (Arc::clone(&log), Arc::clone(&log));
    let builder = builder()
        .interceptor(Noisy::new("one", &log))
        .before(move |_: Context| {
            before.lock().unwrap().push("closure before".into());
            async { Ok(()) }
        })
        .after(move |cx: Context, end: AttemptEnd| {
            after.lock().unwrap().push(format!("closure after {}: {end:?}", cx.topic()));
            async { Ok(()) }
        })
        .interceptor(Noisy::new("two", &log))
        .on_topic("t", move |_: Raw| {
            handled.lock().unwrap().push("handled".into());
            async { Ok(()) }
        });
    assert_eq!(run_with(builder).await, DONE);
    let expected = [
        "before one",
        "closure before",
        "before two",
        "handled",
        "after two: Succeeded",
        "closure after t: Succeeded",
        "after one: Succeeded",
    ];
    assert_eq!(*log.lock().unwrap(), expected);
}

/// HOT-06: the failure's kind decides what becomes of the message; a panic is a retry.
#[tokio::test]
async fn a_before_that_fails_ends_the_attempt() {
    let table: [(fn() -> HandlerResult, Ended); 4] = [
        (|| Handled::retry("no"), failed("no")),
        (|| Handled::dead("no"), Ended::End(AttemptEnd::FailedPermanent("no".into()))),
        (|| Handled::unavailable("no"), Ended::Unavailable("no".into())),
        (|| panic!("no"), failed("interceptor panicked: no")),
    ];
    for (before, end) in table {
        let log = Log::default();
        let builder = builder()
            .interceptor(Noisy::new("one", &log))
            .interceptor(Noisy { before, ..Noisy::new("two", &log) })
            .interceptor(Noisy::new("three", &log))
            .on_topic("t", async |_: Raw| panic!("was called"));
        assert_eq!(run_with(builder).await, end);
        let log = log.lock().unwrap();
        assert_eq!(log[..2], ["before one", "before two"]);
        assert_eq!(log[2], format!("after one: {:?}", end.shown()));
        assert_eq!(log.len(), 3, "{log:?}");
    }
}

/// HOT-06, H30.
#[tokio::test]
async fn an_after_that_fails_changes_nothing() {
    let log = Log::default();
    let builder = builder()
        .interceptor(Noisy::new("one", &log))
        .interceptor(Noisy { after: || Handled::dead("no"), ..Noisy::new("two", &log) })
        .interceptor(Noisy { after: || panic!("no"), ..Noisy::new("three", &log) })
        .on_topic("t", async |_: Raw| Ok(()));
    assert_eq!(run_with(builder).await, DONE);
    assert_eq!(log.lock().unwrap().last().unwrap(), "after one: Succeeded");
}

/// H28: an interceptor is the user's code as well.
#[tokio::test(start_paused = true)]
async fn interceptors_that_hang_are_given_up() {
    let builder = builder()
        .after(async |_: Context, _: AttemptEnd| std::future::pending().await)
        .on_topic("t", async |_: Raw| Ok(()));
    assert_eq!(run_with(builder).await, DONE);
    let builder = RuntimeBuilder::new()
        .before(async |_: Context| std::future::pending().await)
        .on_topic("t", async |_: Raw| Ok(()));
    assert_eq!(run_with(builder).await, failed("ran longer than 300s"));
}

#[tokio::test]
async fn a_batch_answers_for_each_of_its_messages() {
    let builder =
        builder().state(AtomicUsize::new(0)).on_batch("t", 9, async |batch: Batch, calls: State<AtomicUsize>| {
            calls.fetch_add(1, Ordering::Relaxed);
            let (numbers, mut outcome) = batch.decode::<u8>();
            for (index, number) in numbers {
                outcome.set(index, if number < 3 { Ok(()) } else { Handled::retry(format!("{number} is too many")) });
            }
            outcome.set(99, Handled::dead("outside of the batch"));
            Ok(outcome)
        });
    let plan = plan(builder);
    let messages = ["1", "canary", "7"].map(|payload| context(&plan, Message::new("t", payload)));
    let ended = run_batch(&plan, 0, messages.to_vec()).await;
    let dead = Ended::End(AttemptEnd::FailedPermanent("decode: is not JSON at line 1 column 1".into()));
    assert_eq!(ended, [DONE, dead, failed("7 is too many")]);
    assert_eq!(messages[0].state::<AtomicUsize>().unwrap().load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_batch_without_answers_is_done_or_failed_as_a_whole() {
    let done = builder().on_batch("t", 9, async |_: Batch| Ok(()));
    assert_eq!(run_batch_with(done, &["1", "2"]).await, [DONE, DONE]);
    let refused = builder().on_batch("t", 9, async |batch: Batch| {
        for cx in &batch {
            cx.topic().parse::<u8>()?;
        }
        Ok(())
    });
    let ended = run_batch_with(refused, &["1", "2"]).await;
    assert!(ended.iter().all(|end| matches!(end, Ended::End(AttemptEnd::FailedTransient(_)))), "{ended:?}");
    let short = builder().on_batch("t", 9, async |_: Batch| Ok([Ok(())].into_iter().collect::<BatchOutcome>()));
    let unanswered = failed("the batch handler gave no answer for it");
    assert_eq!(run_batch_with(short, &["1", "2"]).await, [DONE, unanswered]);
}

/// HOT-06: what an interceptor stops never reaches the batch; the answers stay with their messages.
#[tokio::test]
async fn interceptors_stop_single_messages_of_a_batch() {
    let log = Log::default();
    let builder = builder()
        .interceptor(Noisy::new("one", &log))
        .before(async |cx: Context| if cx.payload() == "2" { Handled::dead("stopped") } else { Ok(()) })
        .on_batch("t", 9, async |batch: Batch| {
            Ok(batch.into_iter().map(|cx| Handled::retry(format!("{:?}", cx.payload()))).collect::<BatchOutcome>())
        });
    let stopped = Ended::End(AttemptEnd::FailedPermanent("stopped".into()));
    assert_eq!(run_batch_with(builder, &["1", "2", "3"]).await, [failed("b\"1\""), stopped, failed("b\"3\"")]);
    let after = log.lock().unwrap().iter().filter(|line| line.starts_with("after one")).count();
    assert_eq!(after, 3);
}

/// H28.
#[tokio::test(start_paused = true)]
async fn a_batch_that_hangs_is_cancelled_as_a_whole() {
    let plan = plan(builder().on_batch("t", 9, async |_: Batch| -> HandlerResult { std::future::pending().await }));
    let messages = ["1", "2"].map(|payload| context(&plan, Message::new("t", payload)));
    let ended = run_batch(&plan, 0, messages.to_vec()).await;
    assert_eq!(ended, [failed("ran longer than 300s"), failed("ran longer than 300s")]);
    assert!(messages.iter().all(|cx| cx.cancellation().is_cancelled()));
}

#[tokio::test]
async fn both_kinds_of_handlers_take_one_message_and_many() {
    let one = builder().on_topic("t", async |m: Raw| if m.payload() == "1" { Ok(()) } else { Handled::retry("no") });
    assert_eq!(run_batch_with(one, &["1", "2"]).await, [DONE, failed("no")]);
    assert_eq!(run_with(builder().on_batch("t", 9, async |_: Batch| Ok(()))).await, DONE);
    assert_eq!(run_batch_with(builder().on_batch("t", 9, async |_: Batch| Ok(())), &[]).await, []);
}
