use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pillarbox::Outbox;
use pillarbox::prelude::{Context, Failure, HandlerResult, Message, MessageId, OutboxAdmin, OutboxStore};
use pillarbox_testing::MemoryStore;

use super::support::*;

/// What handlers did, as they saw it.
#[derive(Default)]
struct Log {
    running: HashSet<MessageId>,
    tried: HashSet<MessageId>,
    handled: HashMap<MessageId, u32>,
    doubled: usize,
}

/// Every third message fails when it is first tried, in one way or another.
async fn handle(log: Arc<Mutex<Log>>, cx: Context) -> HandlerResult {
    let id = cx.message_id();
    let is_first = {
        let mut log = log.lock().unwrap();
        log.doubled += usize::from(!log.running.insert(id));
        log.tried.insert(id)
    };
    tokio::task::yield_now().await;
    log.lock().unwrap().running.remove(&id);
    match (id.as_uuid().as_bytes()[15] % 9, is_first) {
        (0, true) => Err(Failure::retry("the first attempt fails")),
        (3, true) => Err(Failure::again_in(Duration::from_millis(1))),
        (6, true) => panic!("the first attempt panics"),
        _ => {
            *log.lock().unwrap().handled.entry(id).or_default() += 1;
            Ok(())
        }
    }
}

/// One writer: hot transactions, plain ones, lone messages, and transactions that never come to be.
async fn write(outbox: Outbox<MemoryStore>, rounds: u32) -> (Vec<MessageId>, Vec<MessageId>) {
    let (mut committed, mut undone) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let batch = messages("work", 3);
        let ids = batch.iter().map(Message::id);
        match round % 5 {
            0 | 1 => {
                committed.extend(ids);
                let mut tx = outbox.begin().await.unwrap();
                tx.enqueue_all(batch).await.unwrap();
                tx.commit().await.unwrap();
            }
            2 => {
                undone.extend(ids);
                let mut tx = outbox.begin().await.unwrap();
                tx.enqueue_all(batch).await.unwrap();
                tokio::task::yield_now().await;
                drop(tx);
            }
            3 => {
                committed.extend(ids);
                let mut tx = outbox.store().database().begin();
                outbox.enqueue_all(&mut tx, batch).await.unwrap();
                tx.commit();
                outbox.nudge();
            }
            _ => {
                let answer = outbox.enqueue_now(Message::new("work", "")).await.unwrap();
                committed.push(answer.message_id);
            }
        }
        tokio::task::yield_now().await;
    }
    (committed, undone)
}

/// HOT-05, OBX-058, OBX-059, H29, H30: eight writers, small queues, failing handlers, and a second runtime half-way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_nothing_is_phantom_and_nothing_runs_twice_at_once() {
    let outbox = memory();
    let log = Arc::new(Mutex::new(Log::default()));
    let builder = || {
        let log = Arc::clone(&log);
        quiet(&outbox)
            .hot_capacity(8)
            .cold_capacity(16)
            .claim_limit(5)
            .poll_interval(Duration::from_millis(1))
            .retry(attempts(5))
            .on_topic("work", move |cx: Context| handle(Arc::clone(&log), cx))
    };
    let first = builder().start().await.unwrap();
    let writers: Vec<_> = (0..8).map(|_| tokio::spawn(write(outbox.clone(), 60))).collect();
    while first.stats().done_count < 100 {
        tokio::task::yield_now().await;
    }
    let report = first.shutdown(Duration::from_secs(60)).await;
    assert_eq!((report.interrupted, report.unsettled), (0, 0));
    let second = builder().start().await.unwrap();
    let (mut committed, mut undone) = (Vec::new(), Vec::new());
    for writer in writers {
        let (more_committed, more_undone) = writer.await.unwrap();
        committed.extend(more_committed);
        undone.extend(more_undone);
    }
    // Leases of transactions that were open while the first runtime ended are given back by a task of theirs.
    while outbox.store().overview().await.unwrap().total().done < committed.len() as u64 {
        second.idle().await;
    }
    let log = log.lock().unwrap();
    assert!(committed.iter().all(|id| log.handled.get(id) == Some(&1)), "each is handled, and no success is repeated");
    assert!(undone.iter().all(|id| !log.handled.contains_key(id)), "what was rolled back never ran");
    assert_eq!((log.handled.len(), log.doubled), (committed.len(), 0));
}

/// H39: twelve processes share the attempts of a message that always fails. Each attempt is counted once, whoever made it.
#[tokio::test]
async fn many_processes_do_not_multiply_the_attempts_of_a_message() {
    const PROCESSES: usize = 12;
    const ATTEMPTS: u32 = 24;
    let outbox = memory();
    let tried = Arc::new(Mutex::new(Vec::new()));
    let mut runtimes = Vec::new();
    for _ in 0..PROCESSES {
        let store = outbox.store().database().connect(outbox.store().options().clone()).unwrap();
        let tried = Arc::clone(&tried);
        let builder = quiet(&Outbox::new(store)).poll_interval(Duration::from_millis(1)).retry(attempts(ATTEMPTS));
        let runtime = builder.on_topic("poison", move |cx: Context| {
            tried.lock().unwrap().push(cx.attempt());
            async { Err(Failure::retry("always")) }
        });
        runtimes.push(runtime.start().await.unwrap());
    }
    outbox.enqueue_now(Message::new("poison", "")).await.unwrap();
    while outbox.store().overview().await.unwrap().total().dead == 0 {
        tokio::task::yield_now().await;
    }
    for runtime in &runtimes {
        runtime.idle().await;
    }
    assert_eq!(
        *tried.lock().unwrap(),
        (1..=ATTEMPTS).collect::<Vec<_>>(),
        "one after the other, and no more than that"
    );
    let takers = runtimes.iter().filter(|runtime| runtime.stats().started_count > 0).count();
    assert!(takers > 1, "more than one of them had it");
    let stored = outbox.store().messages().unwrap();
    assert_eq!((stored[0].attempts, stored[0].lost_lease_count), (ATTEMPTS, 0));
}
