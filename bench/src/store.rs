//! A store as a subject: the same code for every backend.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox_core::lease::Claim;
use pillarbox_core::message::Message;
use pillarbox_core::store::{Enqueue, Settlement};
use pillarbox_core::{OutboxStore, OwnerToken, StoreTransaction, Transactional};
use tokio::sync::Notify;

use crate::subject::{BATCH, ENQUEUE_BATCH, Subject, TOPIC, payload};

/// What a backend adds: a user's transaction, and a way to empty its tables.
pub(crate) trait Backend: Clone + Send + Sync + 'static {
    type Store: Transactional + Clone;
    type Connection: Send;

    fn store(&self) -> &Self::Store;

    fn clear(&self) -> impl Future<Output = ()> + Send;

    /// A connection of the user's, on which all transactions of one run take place.
    fn connect(&self) -> impl Future<Output = Self::Connection> + Send;

    /// Begins a transaction, enqueues and commits.
    fn enqueue_in_transaction(
        &self,
        connection: &mut Self::Connection,
        messages: &[Message],
    ) -> impl Future<Output = ()> + Send;
}

/// The store of a backend.
#[derive(Clone)]
pub(crate) struct Through<B>(pub(crate) B);

impl<B: Backend> Subject for Through<B> {
    async fn clear(&self) {
        self.0.clear().await;
    }

    async fn fill(&self, count: usize) {
        fill(self.0.store(), count).await;
    }

    async fn enqueue_single(&self, count: usize) {
        let mut connection = self.0.connect().await;
        for _ in 0..count {
            self.0.enqueue_in_transaction(&mut connection, &[message()]).await;
        }
    }

    async fn enqueue_batched(&self, count: usize) {
        let mut connection = self.0.connect().await;
        for batch in batches(count) {
            self.0.enqueue_in_transaction(&mut connection, &batch).await;
        }
    }

    async fn drain(&self, count: usize) -> usize {
        let owner = OwnerToken::new();
        let mut done = 0;
        while done < count {
            let claimed = self.0.store().claim(claim(owner)).await.unwrap();
            if claimed.is_empty() {
                break;
            }
            done += claimed.len();
            let settlements: Vec<_> = claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
            self.0.store().settle(owner, &settlements).await.unwrap();
        }
        done
    }

    async fn drain_by_exchange(&self, count: usize) -> usize {
        by_exchange(self.0.store(), count).await
    }
}

/// Puts messages there, as fast as possible.
pub(crate) async fn fill<S: OutboxStore + ?Sized>(store: &S, count: usize) {
    for batch in batches(count) {
        store.enqueue(Enqueue::pending(&batch)).await.unwrap();
    }
}

/// Settles one batch and claims the next in one round trip, until `count` are done or none is left; answers how many.
pub(crate) async fn by_exchange<S: OutboxStore + ?Sized>(store: &S, count: usize) -> usize {
    let owner = OwnerToken::new();
    let mut done = 0;
    let mut settlements = Vec::new();
    loop {
        if done >= count {
            store.settle(owner, &settlements).await.unwrap();
            return done;
        }
        let exchanged = store.exchange(&settlements, claim(owner)).await.unwrap();
        if exchanged.claimed.is_empty() {
            return done;
        }
        done += exchanged.claimed.len();
        settlements = exchanged.claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
    }
}

/// The store of a backend, which also begins and ends the transactions, as `outbox.begin()` does.
#[derive(Clone)]
pub(crate) struct Begun<B>(pub(crate) B);

impl<B: Backend> Begun<B> {
    async fn enqueue(&self, messages: &[Message]) {
        let mut tx = self.0.store().begin().await.unwrap();
        tx.enqueue(self.0.store(), Enqueue::pending(messages).owned()).await.unwrap();
        tx.commit().await.unwrap();
    }
}

impl<B: Backend> Subject for Begun<B> {
    async fn clear(&self) {
        self.0.clear().await;
    }

    async fn fill(&self, count: usize) {
        Through(self.0.clone()).fill(count).await;
    }

    async fn enqueue_single(&self, count: usize) {
        for _ in 0..count {
            self.enqueue(&[message()]).await;
        }
    }

    async fn enqueue_batched(&self, count: usize) {
        for batch in batches(count) {
            self.enqueue(&batch).await;
        }
    }

    async fn drain(&self, count: usize) -> usize {
        Through(self.0.clone()).drain(count).await
    }

    async fn drain_by_exchange(&self, count: usize) -> usize {
        Through(self.0.clone()).drain_by_exchange(count).await
    }
}

/// The store of a backend with messages that have keys: each key's are handed out one claim at a time.
#[derive(Clone)]
pub(crate) struct Keyed<B> {
    backend: B,
    key_count: usize,
    left: Arc<AtomicUsize>,
    /// Something was settled.
    settled: Arc<Notify>,
}

impl<B> Keyed<B> {
    pub(crate) fn new(backend: B, key_count: usize) -> Self {
        Self { backend, key_count, left: Arc::default(), settled: Arc::default() }
    }

    /// Messages that take the keys in turn.
    fn messages(&self, batch: Vec<Message>, first: usize) -> Vec<Message> {
        let key = |at: usize| format!("customer-{}", (first + at) % self.key_count);
        batch.into_iter().enumerate().map(|(at, message)| message.key(key(at))).collect()
    }
}

impl<B: Backend> Subject for Keyed<B> {
    async fn clear(&self) {
        self.backend.clear().await;
        self.left.store(0, Ordering::Relaxed);
    }

    async fn fill(&self, count: usize) {
        for (number, batch) in batches(count).enumerate() {
            let batch = self.messages(batch, number * ENQUEUE_BATCH);
            self.backend.store().enqueue(Enqueue::pending(&batch)).await.unwrap();
        }
        self.left.store(count, Ordering::Relaxed);
    }

    async fn enqueue_single(&self, count: usize) {
        let mut connection = self.backend.connect().await;
        for number in 0..count {
            let message = self.messages(vec![message()], number);
            self.backend.enqueue_in_transaction(&mut connection, &message).await;
        }
    }

    async fn enqueue_batched(&self, count: usize) {
        let mut connection = self.backend.connect().await;
        for (number, batch) in batches(count).enumerate() {
            let batch = self.messages(batch, number * ENQUEUE_BATCH);
            self.backend.enqueue_in_transaction(&mut connection, &batch).await;
        }
    }

    async fn drain(&self, _: usize) -> usize {
        let owner = OwnerToken::new();
        let mut done = 0;
        loop {
            let settled = self.settled.notified();
            if self.left.load(Ordering::Acquire) == 0 {
                return done;
            }
            let claimed = self.backend.store().claim(claim(owner)).await.unwrap();
            if claimed.is_empty() {
                // What is left is behind the other worker's messages, or two claims met and each left it to the other:
                // claims without a pause would only be in its way.
                let _ = tokio::time::timeout(MEETING_PAUSE, settled).await;
                continue;
            }
            let settlements: Vec<_> = claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
            self.backend.store().settle(owner, &settlements).await.unwrap();
            self.left.fetch_sub(claimed.len(), Ordering::AcqRel);
            self.settled.notify_waiters();
            done += claimed.len();
        }
    }

    async fn drain_by_exchange(&self, _: usize) -> usize {
        let owner = OwnerToken::new();
        let mut done = 0;
        let mut settlements = Vec::new();
        while self.left.load(Ordering::Relaxed) > 0 {
            let exchanged = self.backend.store().exchange(&settlements, claim(owner)).await.unwrap();
            self.left.fetch_sub(settlements.len(), Ordering::Relaxed);
            done += settlements.len();
            settlements = exchanged.claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
        }
        done
    }
}

/// How long a worker that found nothing waits for news.
const MEETING_PAUSE: Duration = Duration::from_millis(2);

pub(crate) fn message() -> Message {
    Message::new(TOPIC, payload()).content_type("application/json")
}

pub(crate) fn batches(count: usize) -> impl Iterator<Item = Vec<Message>> {
    let full = (0..count / ENQUEUE_BATCH).map(|_| ENQUEUE_BATCH);
    let rest = Some(count % ENQUEUE_BATCH).filter(|rest| *rest > 0);
    full.chain(rest).map(|size| (0..size).map(|_| message()).collect())
}

fn claim(owner: OwnerToken) -> Claim {
    Claim::new(owner, Duration::from_secs(60), u32::try_from(BATCH).unwrap()).unwrap()
}
