use std::time::Duration;

use pillarbox::Outbox;
use pillarbox::prelude::{Context, Failure, Handled, Message, Raw};

use super::support::*;

/// One task, no background: what is due is handled, also what handlers enqueue meanwhile.
#[tokio::test]
async fn a_drain_handles_everything_that_is_due() {
    let outbox = memory();
    let follow_up = outbox.clone();
    let inline = quiet(&outbox)
        .retry(attempts(2))
        .on_topic("first", move |message: Raw| {
            let outbox = follow_up.clone();
            async move {
                outbox.enqueue_now(Message::new("second", message.payload().clone())).await?;
                Ok(())
            }
        })
        .on_topic("second", async |_: Raw| Ok(()))
        .on_topic("bad", async |_: Context| Err(Failure::dead("no")))
        .on_topic("later", async |_: Context| Handled::again_in(Duration::from_secs(60)))
        .inline()
        .unwrap();
    for topic in ["first", "bad", "later"] {
        outbox.enqueue_now(Message::new(topic, "")).await.unwrap();
    }
    outbox.enqueue_now(Message::new("second", "").delay(Duration::from_secs(60))).await.unwrap();
    let drained = inline.drain().await.unwrap();
    assert_eq!((drained.attempts, drained.done, drained.dead, drained.released), (4, 2, 1, 1));
    assert_eq!(inline.drain().await.unwrap(), pillarbox::Drained::default());
    outbox.store().database().advance(Duration::from_secs(61));
    let drained = inline.drain().await.unwrap();
    assert_eq!((drained.done, drained.released), (1, 1));
}

#[tokio::test]
async fn a_drain_that_would_never_end_is_an_error() {
    let outbox: Outbox<_> = memory();
    let builder = quiet(&outbox).on_topic("again", async |_: Context| Handled::again_in(Duration::ZERO));
    outbox.enqueue_now(Message::new("again", "")).await.unwrap();
    let refused = builder.inline().unwrap().drain().await.unwrap_err();
    assert!(refused.to_string().contains("came back"), "{refused}");
}
