//! Messages of one key through the runtime: one at a time, in order, over several runtimes and through failures.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pillarbox::outbox::State as Stand;
use pillarbox::prelude::*;
use pillarbox::retry::{Jittered, RetryPolicy};
use tokio::sync::{Barrier, watch};

use super::acceptance::{Backend, on_every_backend, outbox, stored};
use super::support::{attempts, hushed, memory, on_stage, quiet, stage};

/// What handlers saw of each key: the numbers that were done, in their order, and whether two ever ran at once.
#[derive(Default)]
struct Seen {
    done: HashMap<String, Vec<u32>>,
    running: HashMap<String, u32>,
    overlaps: u32,
}

#[derive(Clone)]
struct Log {
    seen: Arc<Mutex<Seen>>,
    done_count: watch::Sender<usize>,
}

impl Log {
    fn new() -> Self {
        Self { seen: Arc::default(), done_count: watch::Sender::new(0) }
    }

    async fn until_done(&self, count: usize) {
        self.done_count.subscribe().wait_for(|done| *done >= count).await.unwrap();
    }

    fn begin(&self, key: &str) {
        let mut seen = self.seen.lock().unwrap();
        let running = seen.running.entry(key.to_owned()).or_default();
        *running += 1;
        let overlaps = u32::from(*running > 1);
        seen.overlaps += overlaps;
    }

    fn end(&self, key: &str, done: Option<u32>) {
        let mut seen = self.seen.lock().unwrap();
        *seen.running.entry(key.to_owned()).or_default() -= 1;
        seen.done.entry(key.to_owned()).or_default().extend(done);
        self.done_count.send_modify(|count| *count += usize::from(done.is_some()));
    }

    /// Fails every fifth message twice before it is done.
    async fn handle(self, cx: Context) -> HandlerResult {
        let key = cx.message().get_key().unwrap_or_default().to_owned();
        let number: u32 = std::str::from_utf8(cx.message().payload())?.parse()?;
        self.begin(&key);
        tokio::task::yield_now().await;
        let fails = number % 5 == 2 && cx.attempt() < 3;
        self.end(&key, (!fails).then_some(number));
        if fails { Err(Failure::retry("not yet")) } else { Ok(()) }
    }
}

fn message(key: &str, number: u32) -> Message {
    Message::new("order", number.to_string()).key(key)
}

fn soon() -> RetryPolicy {
    let (base, max) = (Duration::from_millis(1), Duration::from_millis(2));
    RetryPolicy::default().backoff(Jittered { base, max }).attempts_max(5)
}

fn logged<S: pillarbox::Transactional>(outbox: &Outbox<S>, log: &Log) -> RuntimeBuilder {
    let log = log.clone();
    let builder = Runtime::builder(outbox).retry(soon()).worker_count(8).poll_interval(Duration::from_millis(5));
    builder.on_topic("order", move |cx: Context| log.clone().handle(cx))
}

/// WRK-07, H34, OBX-057: through the hot path, the poller and retries, with transactions that mix keys.
async fn messages_of_a_key_are_handled_in_order<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let log = Log::new();
    let keys: Vec<_> = (0..10).map(|key| format!("k{key}")).collect();
    for key in &keys {
        outbox.enqueue_now(message(key, 0)).await.unwrap();
    }
    let runtime = logged(&outbox, &log).start().await.unwrap();
    for number in 1..12 {
        let mut tx = outbox.begin().await.unwrap();
        for key in &keys {
            tx.enqueue(message(key, number)).await.unwrap();
        }
        tx.commit().await.unwrap();
    }
    log.until_done(120).await;
    runtime.idle().await;
    let seen = log.seen.lock().unwrap();
    assert_eq!(seen.overlaps, 0);
    for key in &keys {
        assert_eq!(seen.done[key], (0..12).collect::<Vec<_>>(), "{key}");
    }
}

/// BUS-06: all messages, keys or not, in the order in which they were stored, by two runtimes.
async fn a_sequence_is_handled_by_one_at_a_time<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let log = Log::new();
    let handler = |log: Log| {
        move |cx: Context| {
            let log = log.clone();
            async move {
                let number: u32 = std::str::from_utf8(cx.message().payload())?.parse()?;
                log.begin("");
                tokio::task::yield_now().await;
                let fails = number % 7 == 3 && cx.attempt() == 1;
                log.end("", (!fails).then_some(number));
                if fails { Err(Failure::retry("not yet")) } else { Ok(()) }
            }
        }
    };
    let second = Outbox::new(outbox.store().clone());
    let mut runtimes = Vec::new();
    for outbox in [&outbox, &second] {
        let builder = Runtime::builder(outbox).retry(soon()).poll_interval(Duration::from_millis(5)).in_sequence();
        runtimes.push(builder.on_topic("order", handler(log.clone())).start().await.unwrap());
    }
    for number in 0..40 {
        let message = Message::new("order", number.to_string());
        let message = if number % 3 == 0 { message.key("k") } else { message };
        [&outbox, &second][number % 2].enqueue_now(message).await.unwrap();
    }
    log.until_done(40).await;
    let seen = log.seen.lock().unwrap();
    assert_eq!((seen.overlaps, &seen.done[""]), (0, &(0..40).collect::<Vec<_>>()));
}

/// WRK-07: what waits behind a run is claimed as soon as the run is through, and not with the next poll.
async fn a_backlog_of_one_key_is_drained_without_a_poll<B: Backend>() {
    drained_without_a_poll::<B>(message, |builder| builder).await;
}

/// BUS-06: the same in a sequence, where all messages wait for each other.
async fn a_backlog_in_sequence_is_drained_without_a_poll<B: Backend>() {
    drained_without_a_poll::<B>(|_, number| Message::new("order", number.to_string()), RuntimeBuilder::in_sequence)
        .await;
}

async fn drained_without_a_poll<B: Backend>(
    message: fn(&str, u32) -> Message,
    ordered: fn(RuntimeBuilder) -> RuntimeBuilder,
) {
    let (outbox, _folder) = outbox::<B>().await;
    let mut ids = Vec::new();
    for number in 0..20 {
        ids.push(outbox.enqueue_now(message("k", number)).await.unwrap().message_id);
    }
    let (stage, mut director) = stage();
    director.go(ids.len());
    let runtime = ordered(on_stage(quiet(&outbox).claim_limit(3), "order", &stage)).start().await.unwrap();
    for id in ids {
        assert_eq!(director.began().await, id);
    }
    runtime.idle().await;
    assert_eq!(director.most_at_once(), 1);
}

/// WRK-07, HOT-04: the same where the next message came while its key was busy.
async fn what_came_while_its_key_was_busy_is_next<B: Backend>() {
    let (outbox, _folder) = outbox::<B>().await;
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    let mut next = outbox.enqueue_now(message("k", 0)).await.unwrap().message_id;
    for number in 1..20 {
        assert_eq!(director.began().await, next);
        next = outbox.enqueue_now(message("k", number)).await.unwrap().message_id;
        director.go(1);
    }
    director.go(1);
    runtime.idle().await;
    assert_eq!((runtime.stats().done_count, director.most_at_once()), (20, 1));
}

on_every_backend! {
    a_backlog_of_one_key_is_drained_without_a_poll
    a_backlog_in_sequence_is_drained_without_a_poll
    what_came_while_its_key_was_busy_is_next
    messages_of_a_key_are_handled_in_order
    a_sequence_is_handled_by_one_at_a_time
}

/// WRK-07: keys do not wait for each other: each handler ends only when that of the other key has begun.
#[tokio::test]
async fn handlers_of_different_keys_run_at_the_same_time() {
    let outbox = memory();
    for number in 0..5 {
        for key in ["a", "b"] {
            outbox.enqueue_now(message(key, number)).await.unwrap();
        }
    }
    let both = Arc::new(Barrier::new(2));
    let builder = quiet(&outbox).worker_count(2).on_topic("order", move |_: Context| {
        let both = Arc::clone(&both);
        async move {
            both.wait().await;
            Ok(())
        }
    });
    let runtime = builder.start().await.unwrap();
    runtime.idle().await;
    assert_eq!(runtime.stats().done_count, 10);
}

/// H33: the later ones of a key wait for a dead one, others do not.
#[tokio::test]
async fn a_dead_message_blocks_its_key_and_no_other() {
    let outbox = memory();
    let mut ids = Vec::new();
    for (key, topic) in [("a", "poison"), ("a", "order"), ("b", "order")] {
        ids.push(outbox.enqueue_now(Message::new(topic, "0").key(key)).await.unwrap().message_id);
    }
    let builder = hushed(Runtime::builder(&outbox)).retry(attempts(1));
    let runtime = builder
        .on_topic("poison", async |_: Context| Err::<(), _>(Failure::dead("poison")))
        .on_topic("order", async |_: Context| Ok(()))
        .start()
        .await
        .unwrap();
    runtime.idle().await;
    let mut states = Vec::new();
    for id in &ids {
        states.push(stored(&outbox, *id).await.unwrap().state);
    }
    assert_eq!(states, [Stand::Dead, Stand::Pending, Stand::Done]);
    let blocked = outbox.store().blocked_keys(10).await.unwrap();
    assert_eq!(blocked.iter().map(|key| (key.key.as_str(), key.waiting_count)).collect::<Vec<_>>(), [("a", 1)]);
}

/// H33.
#[tokio::test]
async fn a_dead_message_can_be_skipped() {
    let outbox = memory();
    for topic in ["poison", "order"] {
        outbox.enqueue_now(Message::new(topic, "0").key("a")).await.unwrap();
    }
    let builder = hushed(Runtime::builder(&outbox)).retry(attempts(1)).after_dead(AfterDead::Skip);
    let runtime = builder
        .on_topic("poison", async |_: Context| Err::<(), _>(Failure::dead("poison")))
        .on_topic("order", async |_: Context| Ok(()))
        .start()
        .await
        .unwrap();
    runtime.idle().await;
    let stats = runtime.stats();
    assert_eq!((stats.dead_count, stats.done_count), (1, 1));
}

/// HOT-13, H21: what waits behind a running message goes back without an attempt spent.
#[tokio::test]
async fn a_shutdown_gives_the_rest_of_a_run_back() {
    let outbox = memory();
    let mut ids = Vec::new();
    for number in 0..3 {
        ids.push(outbox.enqueue_now(message("a", number)).await.unwrap().message_id);
    }
    let (stage, mut director) = stage();
    let runtime = on_stage(quiet(&outbox), "order", &stage).start().await.unwrap();
    assert_eq!(director.began().await, ids[0]);
    let ending = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown(Duration::from_secs(60)).await }
    });
    director.go(1);
    let report = ending.await.unwrap();
    assert_eq!((report.finished, report.unsettled), (1, 0));
    for (id, expected) in ids.iter().zip([(Stand::Done, 1), (Stand::Pending, 0), (Stand::Pending, 0)]) {
        let stored = stored(&outbox, *id).await.unwrap();
        assert_eq!((stored.state, stored.attempts), expected);
    }
}

/// A message of a run that nobody handles here holds back the ones behind it, and is not jumped.
#[tokio::test]
async fn a_message_without_a_handler_is_not_jumped() {
    let outbox = memory();
    for topic in ["order", "unknown", "order"] {
        outbox.enqueue_now(Message::new(topic, "0").key("a")).await.unwrap();
    }
    let runtime = hushed(Runtime::builder(&outbox)).on_topic("order", async |_: Context| Ok(())).start().await.unwrap();
    runtime.idle().await;
    assert_eq!(runtime.stats().done_count, 1);
    let blocked = outbox.store().blocked_keys(10).await.unwrap();
    assert_eq!(blocked.iter().map(|key| key.waiting_count).collect::<Vec<_>>(), [1]);
}
