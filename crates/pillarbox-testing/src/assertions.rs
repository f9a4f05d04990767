//! What was enqueued, as assertions. A failure names topics, never payloads.

use std::collections::BTreeMap;

use pillarbox::{Event, Outbox};
use serde::de::DeserializeOwned;

use crate::double::{enqueued, messages};
use crate::memory::MemoryStore;

/// Asserts that a message was enqueued and committed, whether or not it was handled since.
///
/// Takes a [`TestOutbox`](crate::TestOutbox) and either a pattern of an [`Event`], perhaps with an `if`, or a topic.
///
/// ```
/// use pillarbox::prelude::*;
/// use pillarbox_testing::assert_enqueued;
///
/// #[derive(Serialize, Deserialize)]
/// struct OrderCreated { id: i64, customer: String }
/// impl Event for OrderCreated { const TOPIC: &str = "order.created"; }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), StoreError> {
/// let outbox = pillarbox_testing::memory();
/// outbox.enqueue_now(OrderCreated { id: 1, customer: "Ada".into() }).await?;
/// assert_enqueued!(outbox, OrderCreated { id: 1, .. });
/// assert_enqueued!(outbox, OrderCreated { customer, .. } if customer == "Ada");
/// assert_enqueued!(outbox, topic = "order.created");
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! assert_enqueued {
    ($outbox:expr, topic = $topic:expr $(,)?) => {
        $crate::require_topic(&$outbox, $topic)
    };
    ($outbox:expr, $pattern:pat $(if $guard:expr)? $(,)?) => {
        $crate::require_matching(&$outbox, stringify!($pattern $(if $guard)?), |event| {
            matches!(event, $pattern $(if $guard)?)
        })
    };
}

/// Asserts that no such message was enqueued and committed. Takes what [`assert_enqueued!`](crate::assert_enqueued) takes.
///
/// ```
/// use pillarbox::prelude::*;
/// use pillarbox_testing::assert_not_enqueued;
///
/// # #[derive(Serialize, Deserialize)] struct OrderCreated { id: i64 }
/// # impl Event for OrderCreated { const TOPIC: &str = "order.created"; }
/// # #[tokio::main]
/// # async fn main() -> Result<(), StoreError> {
/// let outbox = pillarbox_testing::memory();
/// let mut tx = outbox.begin().await?;
/// tx.enqueue(OrderCreated { id: 1 }).await?;
/// tx.rollback().await?;
/// assert_not_enqueued!(outbox, OrderCreated { .. });
/// assert_not_enqueued!(outbox, topic = "order.created");
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! assert_not_enqueued {
    ($outbox:expr, topic = $topic:expr $(,)?) => {
        $crate::refuse_topic(&$outbox, $topic)
    };
    ($outbox:expr, $pattern:pat $(if $guard:expr)? $(,)?) => {
        $crate::refuse_matching(&$outbox, stringify!($pattern $(if $guard)?), |event| {
            matches!(event, $pattern $(if $guard)?)
        })
    };
}

#[doc(hidden)]
#[track_caller]
pub fn require_matching<T: Event + DeserializeOwned>(
    outbox: &Outbox<MemoryStore>,
    pattern: &str,
    is_match: impl Fn(&T) -> bool,
) {
    if !enqueued::<T>(outbox).iter().any(is_match) {
        panic!("no message of topic `{}` matches `{pattern}`; {}", T::TOPIC, told(outbox));
    }
}

#[doc(hidden)]
#[track_caller]
pub fn refuse_matching<T: Event + DeserializeOwned>(
    outbox: &Outbox<MemoryStore>,
    pattern: &str,
    is_match: impl Fn(&T) -> bool,
) {
    let count = enqueued::<T>(outbox).iter().filter(|event| is_match(event)).count();
    if count > 0 {
        panic!("{count} of topic `{}` match `{pattern}`; {}", T::TOPIC, told(outbox));
    }
}

#[doc(hidden)]
#[track_caller]
pub fn require_topic(outbox: &Outbox<MemoryStore>, topic: &str) {
    if !topics(outbox).contains_key(topic) {
        panic!("no message of topic `{topic}` was enqueued; {}", told(outbox));
    }
}

#[doc(hidden)]
#[track_caller]
pub fn refuse_topic(outbox: &Outbox<MemoryStore>, topic: &str) {
    if let Some(count) = topics(outbox).get(topic) {
        panic!("{count} of topic `{topic}` were enqueued; {}", told(outbox));
    }
}

#[track_caller]
fn topics(outbox: &Outbox<MemoryStore>) -> BTreeMap<String, usize> {
    let mut topics = BTreeMap::new();
    for message in messages(outbox).into_iter().filter_map(|stored| stored.message.ok()) {
        *topics.entry(message.topic().to_owned()).or_default() += 1;
    }
    topics
}

#[track_caller]
fn told(outbox: &Outbox<MemoryStore>) -> String {
    let topics = topics(outbox);
    if topics.is_empty() {
        return "nothing was enqueued".to_owned();
    }
    let topics: Vec<String> = topics.iter().map(|(topic, count)| format!("{count} × `{topic}`")).collect();
    format!("enqueued were {}", topics.join(", "))
}
