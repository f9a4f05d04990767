//! An outbox for users' tests: nothing to set up, nothing in the background, and time that obeys.

use std::any::type_name;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use pillarbox::{Drained, Event, Inline, Outbox, Runtime, RuntimeBuilder, UnknownTopics};
use pillarbox_core::admin::StoredMessage;
use pillarbox_core::store::StoreOptions;
use serde::de::DeserializeOwned;

use crate::memory::MemoryStore;

/// An outbox in memory, empty and without handlers.
pub fn memory() -> TestOutbox {
    TestOutbox::new(MemoryStore::new(StoreOptions::default()))
}

/// An [`Outbox`] in memory for tests. Pass `&outbox` where `&Outbox<S>` is expected, and `outbox.clone()` where it is kept.
///
/// Handlers run when [`drain`](Self::drain) says so, in the test's own task, exactly as a runtime would run them. Time stands
/// still until [`advance`](Self::advance) moves it, apart from a millisecond for every call.
///
/// What was enqueued can be asserted with [`assert_enqueued!`](crate::assert_enqueued) and
/// [`assert_not_enqueued!`](crate::assert_not_enqueued), also after it was handled.
///
/// # Panics
///
/// The methods panic where a program would get an error: in a test both end the same way.
pub struct TestOutbox {
    outbox: Outbox<MemoryStore>,
    inline: Option<Inline>,
}

impl TestOutbox {
    /// On a store of one's own: with other limits, or shared with another outbox.
    pub fn new(store: MemoryStore) -> Self {
        Self { outbox: Outbox::new(store), inline: None }
    }

    /// Registers handlers, as for [`Runtime::builder`]; best with the very function that the program uses.
    ///
    /// Messages without a handler are left alone, unless the builder is told otherwise.
    ///
    /// ```
    /// use pillarbox::prelude::*;
    ///
    /// fn handlers(runtime: RuntimeBuilder) -> RuntimeBuilder {
    ///     runtime.on_topic("order.*", async |_: Raw| Handled::done())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), StoreError> {
    /// let outbox = pillarbox_testing::memory().handlers(handlers);
    /// outbox.enqueue_now(Message::new("order.created", "1")).await?;
    /// assert_eq!(outbox.drain().await.done, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// When the builder refuses what it was told; the words are those of [`RuntimeBuilder::start`].
    #[must_use]
    #[track_caller]
    pub fn handlers(mut self, register: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Self {
        let builder = Runtime::builder(&self.outbox).unknown_topics(UnknownTopics::Leave);
        match register(builder).inline() {
            Ok(inline) => self.inline = Some(inline),
            Err(refused) => panic!("the handlers are refused: {refused}"),
        }
        self
    }

    /// Runs the handler of every message that is due, also of those that handlers enqueue meanwhile, until none is left.
    ///
    /// # Panics
    ///
    /// When a message comes back again and again, so that there would be no end.
    pub async fn drain(&self) -> Drained {
        let Some(inline) = &self.inline else { return Drained::default() };
        match inline.drain().await {
            Ok(drained) => drained,
            Err(refused) => panic!("the outbox cannot be drained: {refused}"),
        }
    }

    /// Lets time pass: delays, backoffs, leases, and the pauses of routes whose destination was down.
    pub fn advance(&self, by: Duration) {
        self.outbox.store().database().advance(by);
        if let Some(inline) = &self.inline {
            inline.advance(by);
        }
    }

    /// Every message that was committed, handled or not, in the order in which they were enqueued.
    pub fn messages(&self) -> Vec<StoredMessage> {
        messages(&self.outbox)
    }

    /// Every event of one type that was committed, handled or not, in the order in which they were enqueued.
    ///
    /// ```
    /// use pillarbox::prelude::*;
    ///
    /// #[derive(Serialize, Deserialize, PartialEq, Debug)]
    /// struct OrderCreated { id: i64 }
    /// impl Event for OrderCreated { const TOPIC: &str = "order.created"; }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), StoreError> {
    /// let outbox = pillarbox_testing::memory();
    /// outbox.enqueue_now(OrderCreated { id: 1 }).await?;
    /// assert_eq!(outbox.enqueued::<OrderCreated>(), [OrderCreated { id: 1 }]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// When a message of its topic cannot be read as this type: its handler could not read it either.
    #[track_caller]
    pub fn enqueued<T: Event + DeserializeOwned>(&self) -> Vec<T> {
        enqueued(&self.outbox)
    }
}

impl Deref for TestOutbox {
    type Target = Outbox<MemoryStore>;

    fn deref(&self) -> &Self::Target {
        &self.outbox
    }
}

impl fmt::Debug for TestOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestOutbox").field("outbox", &self.outbox).field("inline", &self.inline).finish()
    }
}

#[track_caller]
pub(crate) fn messages(outbox: &Outbox<MemoryStore>) -> Vec<StoredMessage> {
    match outbox.store().messages() {
        Ok(messages) => messages,
        Err(refused) => panic!("the messages cannot be listed: {refused}"),
    }
}

#[track_caller]
pub(crate) fn enqueued<T: Event + DeserializeOwned>(outbox: &Outbox<MemoryStore>) -> Vec<T> {
    let mut events = Vec::new();
    for stored in messages(outbox) {
        let Ok(message) = stored.message else { continue };
        if message.topic() != T::TOPIC {
            continue;
        }
        // Serde's text may quote the payload.
        match serde_json::from_slice(message.payload()) {
            Ok(event) => events.push(event),
            Err(_) => panic!(
                "message {} of topic `{}` cannot be read as `{}`: compare its `Serialize` and `Deserialize`",
                message.id(),
                T::TOPIC,
                type_name::<T>()
            ),
        }
    }
    events
}
