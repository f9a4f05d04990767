//! A worker whose handlers run inside transactions is killed before and after a commit: every effect is there once.

use std::os::unix::process::ExitStatusExt;

use pillarbox::admin::{Filter, ListQuery};
use pillarbox::outbox::State;
use pillarbox::prelude::*;
use pillarbox::{Transactional, UnknownTopics};
use tokio::time::timeout;

use super::halting::{Halting, Point};
use super::worker::{Part, Worker, play, reached};
use super::{Backend, COUNT, LEASE, PATIENCE, POLL, Place, TOPIC, fresh_place};

const EFFECT: &str = "effect";

/// Nothing to prove by itself: in a process of its own it is the worker that the other tests kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_handles_inside_of_transactions() {
    play(Transacting).await;
}

struct Transacting;

impl Part for Transacting {
    async fn play<B: Backend>(self, place: &Place, point: Option<String>) {
        let point: Point = point.unwrap().parse().unwrap();
        let outbox = Outbox::new(Halting { store: B::open(place).await, point });
        let _runtime = with_effects(&outbox).lease(LEASE).worker_count(1).start().await.unwrap();
        std::future::pending::<()>().await;
    }
}

/// A runtime whose handler tells what it handled by a message, in its transaction.
fn with_effects<S: Transactional>(outbox: &Outbox<S>) -> RuntimeBuilder {
    Runtime::builder(outbox).transactional().unknown_topics(UnknownTopics::Leave).on_topic(
        TOPIC,
        async |message: Raw, mut tx: InTx<S>| {
            tx.enqueue(Message::new(EFFECT, message.payload().clone())).await?;
            Ok(())
        },
    )
}

/// H7, H23, BUS-03: killed at the point, and taken over: every message is done, and had its effect once.
async fn every_effect_is_single_after_a_kill<B: Backend>(point: Point) {
    let (place, _folder) = fresh_place::<B>();
    let outbox = Outbox::new(B::open(&place).await);
    for number in 0..COUNT {
        outbox.enqueue_now(Message::new(TOPIC, number.to_string())).await.unwrap();
    }
    let name = "transactional::a_worker_handles_inside_of_transactions";
    let mut worker = Worker::start::<B>(name, &place, Some(&point.to_string()));
    timeout(PATIENCE, reached(&mut worker, point)).await.expect("the worker reaches its point");
    assert_eq!(worker.kill().signal(), Some(9), "it was killed, and did not end by itself");

    let runtime = with_effects(&outbox).poll_interval(POLL).idle_interval(POLL).start().await.unwrap();
    let all_done = async {
        while list(&outbox, State::Done, TOPIC).await.len() < COUNT {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, all_done).await.expect("what the killed worker left is taken over");
    runtime.shutdown(PATIENCE).await;
    // The killed worker may have looked at some.
    let mut effects = list(&outbox, State::Pending, EFFECT).await;
    effects.extend(list(&outbox, State::Processing, EFFECT).await);
    effects.sort();
    assert_eq!(effects, (0..COUNT).map(|number| number.to_string()).collect::<Vec<_>>());
}

async fn list<S: OutboxAdmin>(outbox: &Outbox<S>, state: State, topic: &str) -> Vec<String> {
    let query = ListQuery { state, filter: Filter::default(), after: None, limit: 100 };
    let found = outbox.store().list(&query).await.unwrap().messages;
    let of_topic = found.into_iter().filter(|stored| stored.message.as_ref().unwrap().topic() == topic);
    of_topic.map(|stored| String::from_utf8(stored.message.unwrap().payload().to_vec()).unwrap()).collect()
}

async fn before_the_commit<B: Backend>() {
    every_effect_is_single_after_a_kill::<B>(Point::AfterSettle).await;
}

async fn after_the_commit<B: Backend>() {
    every_effect_is_single_after_a_kill::<B>(Point::Committed).await;
}

on_every_backend! { before_the_commit after_the_commit }
