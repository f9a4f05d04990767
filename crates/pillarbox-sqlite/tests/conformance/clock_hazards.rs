//! SQLite reads the machine's clock, which can be set. It is guarded: no time before the last one is acted upon.

use std::time::{Duration, SystemTime};

use pillarbox_core::admin::{MessageName, OutboxAdmin};
use pillarbox_core::store::{Enqueue, OutboxStore};
use pillarbox_core::{Message, OwnerToken};
use pillarbox_testing::Harness;

use crate::hazards::{claim, enqueue, start};

const HOUR: Duration = Duration::from_secs(3600);

/// §5.2: the clock of the machine is behind the time that was acted upon; the database's time stands still.
#[tokio::test]
async fn time_never_goes_back() {
    let harness = start().await;
    let store = harness.store();
    let ahead = SystemTime::now() + HOUR;
    let micros = ahead.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
    harness.run(&format!("UPDATE {{t}}_clock SET at = {micros}")).await;

    let message = Message::new("t", "").delay(Duration::from_secs(60));
    store.enqueue(Enqueue::pending(&[Message::new("t", ""), message.clone()])).await.unwrap();
    let claimed = store.claim(claim(OwnerToken::new(), 10)).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert!(claimed[0].created_at >= ahead - Duration::from_micros(1));
    let waiting = store.get(MessageName::Message(message.id())).await.unwrap().unwrap();
    assert!(waiting.due_at.unwrap() > ahead + Duration::from_secs(59));
    assert_eq!(harness.number("SELECT at FROM {t}_clock").await, i64::try_from(micros).unwrap());
}

/// §5.2: what is written moves the guard, what only looks does not.
#[tokio::test]
async fn the_clock_is_remembered_when_something_is_written() {
    let harness = start().await;
    enqueue(harness.store(), 1).await;
    assert_eq!(harness.number("SELECT at FROM {t}_clock").await, 0);
    harness.store().claim(claim(OwnerToken::new(), 1)).await.unwrap();
    let guard = harness.number("SELECT at FROM {t}_clock").await;
    assert!(guard > 0);
    harness.store().claim(claim(OwnerToken::new(), 1)).await.unwrap();
    assert_eq!(harness.number("SELECT at FROM {t}_clock").await, guard);
}
