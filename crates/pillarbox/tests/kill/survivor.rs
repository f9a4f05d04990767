//! A process that is busy all the time takes over what dead ones left, although its claims start above those rows.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::lease::Lease;
use pillarbox::prelude::*;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, interval, timeout};

use super::halting::Point;
use super::worker::{WORKER, Worker, reached};
use super::{Backend, COUNT, LEASE, PATIENCE, TOPIC, fresh_place};

/// How often a runtime looks that nobody told otherwise.
const POLL_DEFAULT: Duration = Duration::from_millis(500);

/// How long it may take until a message of a dead process begins again; the promise, not what is usual.
const TAKE_OVER: Duration = LEASE.saturating_add(POLL_DEFAULT).saturating_add(Duration::from_secs(1));

/// Leases that end at many moments: the worst one, right after the survivor has looked at everything, is among them.
const DEAD: usize = 12;
const APART: Duration = Duration::from_millis(200);

const BUSY: &str = "busy";

/// H23, BUS-07: one process was killed, and others left messages that looked the same. No setting is changed.
async fn a_busy_process_takes_over_in_time<B: Backend>() {
    let (place, _folder) = fresh_place::<B>();
    let outbox = Outbox::new(B::open(&place).await);
    let (sender, mut began) = mpsc::unbounded_channel();
    let handled = Arc::new(Semaphore::new(1));
    let next = Arc::clone(&handled);
    let runtime = Runtime::builder(&outbox)
        .on_topic(TOPIC, move |cx: Context| {
            sender.send((cx.message_id(), Instant::now())).unwrap();
            async { Ok(()) }
        })
        .on_topic(BUSY, move |_: Context| {
            next.add_permits(1);
            async { Ok(()) }
        })
        .start()
        .await
        .unwrap();

    let mut worker = Worker::start::<B>(WORKER, &place, Some(&Point::Committed.to_string()));
    timeout(PATIENCE, reached(&mut worker, Point::Committed)).await.expect("the worker reaches its point");
    assert_eq!(worker.kill().signal(), Some(9), "it was killed, and did not end by itself");
    let killed_at = Instant::now();

    // A handle of its own: what it stores must be claimed, and lifts the floor of the survivor.
    let writer = B::open(&place).await;
    let (mut phase, mut left) = (interval(APART), HashMap::new());
    let (mut stored_count, mut begun_count) = (0, 0);
    let all_begin = async {
        while begun_count < COUNT + DEAD {
            tokio::select! {
                _ = phase.tick(), if stored_count < DEAD => {
                    let message = Message::new(TOPIC, "left");
                    let (id, lease) = (message.id(), Lease::new(OwnerToken::new(), LEASE).unwrap());
                    writer.enqueue(Enqueue::leased(&[message], lease)).await.unwrap();
                    left.insert(id, Instant::now());
                    stored_count += 1;
                }
                permit = handled.acquire() => {
                    permit.unwrap().forget();
                    writer.enqueue(Enqueue::pending(&[Message::new(BUSY, "")])).await.unwrap();
                    writer.wake_others().await.unwrap();
                }
                Some((id, at)) = began.recv() => {
                    let took = at - left.remove(&id).unwrap_or(killed_at);
                    assert!(took <= TAKE_OVER, "it began {took:?} after it was left");
                    begun_count += 1;
                }
            }
        }
    };
    timeout(PATIENCE, all_begin).await.expect("everything is taken over");
    assert!(left.is_empty() && began.is_empty(), "each of them once");
    runtime.shutdown(Duration::ZERO).await;
}

on_every_backend! {
    a_busy_process_takes_over_in_time
}
