//! A process that takes messages from a broker into its inbox is killed before and after their commit. The broker is an outbox
//! beside it, whose messages are acknowledged by settling them.

use std::os::unix::process::ExitStatusExt;

use pillarbox::Bridge;
use pillarbox::inbox::InboxState;
use pillarbox::prelude::*;
use tokio::time::timeout;

use super::halting::{Halting, Point};
use super::worker::{Part, Worker, play, reached};
use super::{Backend, LEASE, PATIENCE, POLL, Place, fresh_place};

/// Deliveries that are taken at once, as with a broker that sends ahead.
const COUNT: usize = 40;

const SOURCE: &str = "shop";

/// The same place, for the tables of the broker.
fn broker_of(place: &Place) -> Place {
    Place { url: place.url.clone(), schema: format!("{}b", place.schema) }
}

/// Nothing to prove by itself: in a process of its own it takes messages in until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intake_goes_on_until_it_is_killed() {
    play(TakingIn).await;
}

struct TakingIn;

impl Part for TakingIn {
    async fn play<B: Backend>(self, place: &Place, point: Option<String>) {
        let point: Point = point.unwrap().parse().unwrap();
        let broker = Outbox::new(Halting { store: B::open(&broker_of(place)).await, point });
        let inbox = Outbox::new(B::open(place).await).inbox().await.unwrap();
        let bridge = Bridge::new(SOURCE, &broker).unwrap().timing(LEASE, POLL).unwrap();
        let _intake = inbox.intake(bridge).unwrap();
        std::future::pending::<()>().await;
    }
}

/// H45, H40, H41: what is acknowledged is in the inbox, all of it arrives, and nothing twice.
async fn every_delivery_arrives_once_after_a_kill<B: Backend>(point: Point) {
    let (place, _folder) = fresh_place::<B>();
    let broker = Outbox::new(B::open(&broker_of(&place)).await);
    let inbox = Outbox::new(B::open(&place).await).inbox().await.unwrap();
    let mut ids = Vec::new();
    for number in 0..COUNT {
        ids.push(broker.enqueue_now(Message::new("order", number.to_string())).await.unwrap().message_id);
    }
    let name = "intake::an_intake_goes_on_until_it_is_killed";
    let mut worker = Worker::start::<B>(name, &place, Some(&point.to_string()));
    timeout(PATIENCE, reached(&mut worker, point)).await.expect("the worker reaches its point");
    assert_eq!(worker.kill().signal(), Some(9), "it was killed, and did not end by itself");
    let acknowledged = broker.store().overview().await.unwrap().total().done;
    let stored = inbox.store().admin().overview().await.unwrap().total().pending;
    assert!(acknowledged <= stored, "{acknowledged} acknowledged, {stored} stored");
    assert_eq!(stored, if point == Point::Claimed { 0 } else { COUNT as u64 });

    let bridge = Bridge::new(SOURCE, &broker).unwrap().timing(LEASE, POLL).unwrap();
    let intake = inbox.intake(bridge).unwrap();
    let all_acknowledged = async {
        while broker.store().overview().await.unwrap().total().done < COUNT as u64 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, all_acknowledged).await.expect("what the killed process left is delivered again");
    let stats = intake.shutdown().await;
    assert_eq!(stats.stored_count + stored, COUNT as u64, "stored once each");
    assert_eq!(inbox.store().admin().overview().await.unwrap().total().pending, COUNT as u64);
    for id in ids {
        let record = inbox.store().get(SOURCE, &id.to_string()).await.unwrap().expect("it has arrived");
        assert_eq!(record.state, InboxState::Processing);
    }
}

async fn before_the_commit<B: Backend>() {
    every_delivery_arrives_once_after_a_kill::<B>(Point::Claimed).await;
}

async fn before_the_acknowledgement<B: Backend>() {
    every_delivery_arrives_once_after_a_kill::<B>(Point::BeforeSettle).await;
}

on_every_backend! { before_the_commit before_the_acknowledgement }
