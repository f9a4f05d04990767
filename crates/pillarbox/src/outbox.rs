//! The outbox as a program holds it, and the machine behind it: states, verdicts and the one decision.

use std::fmt;
use std::sync::Arc;

use pillarbox_core::store::{Enqueue, Enqueued, OpenTransaction, Placement, StoreOptions};
use pillarbox_core::{EnqueueIn, Isolation, Message, OutboxStore, StoreError, Transactional, WithInbox};

pub use pillarbox_core::outbox::*;

use crate::connect::{Opened, Store, open};
use crate::event::IntoMessage;
use crate::hot_path::{Handover, Hub};
use crate::lasting::lasting;
use crate::telemetry::Announced;
use crate::trace::inherit;
use crate::tx::Tx;

/// One outbox of a program: enqueue through it, and start a [`Runtime`](crate::Runtime) on it. Cheap to clone.
///
/// ```
/// use pillarbox::prelude::*;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = Outbox::connect("sqlite::memory:").await?;
/// outbox.enqueue_now(Message::new("greeting", "hello")).await?;
/// # Ok(())
/// # }
/// ```
pub struct Outbox<S: ?Sized> {
    store: Arc<S>,
    hub: Arc<Hub>,
}

impl Outbox<dyn Store> {
    /// Opens the outbox at `sqlite:…`, `postgres://…` or `mysql://…`, and deploys its tables.
    ///
    /// The database is chosen by the address, so that no transaction of it can be taken: see [`enqueue_now`](Self::enqueue_now).
    /// The constructors that are named after a database give an outbox that can [`begin`](Self::begin).
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(url, StoreOptions::default()).await
    }

    /// Like [`connect`](Self::connect), with settings of your own.
    pub async fn connect_with(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        struct IntoOutbox;
        impl Opened for IntoOutbox {
            type Open = Outbox<dyn Store>;

            fn take<S: Store + WithInbox>(self, store: S) -> Self::Open {
                Outbox::new(store).erased()
            }
        }
        open(url, options, IntoOutbox).await
    }
}

#[cfg(feature = "sqlite")]
impl Outbox<pillarbox_sqlite::SqliteStore> {
    /// Opens `sqlite:<path>` or `sqlite::memory:`, and deploys its tables.
    pub async fn sqlite(url: &str) -> Result<Self, StoreError> {
        Self::sqlite_with(url, StoreOptions::default()).await
    }

    /// Like [`sqlite`](Self::sqlite), with settings of your own.
    pub async fn sqlite_with(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        Ok(Self::new(pillarbox_sqlite::SqliteStore::connect(url, options).await?))
    }
}

#[cfg(feature = "postgres")]
impl Outbox<pillarbox_postgres::PostgresStore> {
    /// Opens `postgres://…`, and deploys its tables.
    pub async fn postgres(url: &str) -> Result<Self, StoreError> {
        Self::postgres_with(url, StoreOptions::default()).await
    }

    /// Like [`postgres`](Self::postgres), with settings of your own.
    pub async fn postgres_with(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        Ok(Self::new(pillarbox_postgres::PostgresStore::connect(url, options).await?))
    }
}

#[cfg(feature = "mysql")]
impl Outbox<pillarbox_mysql::MysqlStore> {
    /// Opens `mysql://…` or `mariadb://…`, and deploys its tables.
    pub async fn mysql(url: &str) -> Result<Self, StoreError> {
        Self::mysql_with(url, StoreOptions::default()).await
    }

    /// Like [`mysql`](Self::mysql), with settings of your own.
    pub async fn mysql_with(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        Ok(Self::new(pillarbox_mysql::MysqlStore::connect(url, options).await?))
    }
}

impl<S: OutboxStore> Outbox<S> {
    /// Stores a message through a transaction of your own; it exists once you commit.
    ///
    /// `tx` is `&mut` a transaction of sqlx, or a connection inside of one. With the features of their names it is a
    /// `tokio_postgres::Transaction`, a `diesel_async` connection inside of a transaction, or a `sea_orm::DatabaseTransaction`.
    ///
    /// This outbox cannot see your commit: call [`nudge`](Self::nudge) after it, or the message is found by the next poll.
    /// After an error of the database roll back, as after that of a statement of your own.
    pub async fn enqueue<T>(&self, tx: T, message: impl IntoMessage) -> Result<Enqueued, StoreError>
    where
        T: OpenTransaction<S>,
    {
        let message = inherit(message.into_message()?);
        let answers = self.store.enqueue_in(tx, Enqueue::pending(std::slice::from_ref(&message)).owned()).await?;
        self.stored(std::slice::from_ref(&message), &answers);
        answers.into_iter().next().ok_or_else(|| StoreError::rejected("the store gave no answer"))
    }

    /// Stores many messages through a transaction of your own, in one round trip. Answers come in their order.
    pub async fn enqueue_all<T, M>(&self, tx: T, messages: M) -> Result<Vec<Enqueued>, StoreError>
    where
        T: OpenTransaction<S>,
        M: IntoIterator<Item: IntoMessage>,
    {
        let messages = into_messages(messages)?;
        let answers = self.store.enqueue_in(tx, Enqueue::pending(&messages).owned()).await?;
        self.stored(&messages, &answers);
        Ok(answers)
    }

    /// Tells of messages in a transaction whose commit nobody here will see.
    fn stored(&self, messages: &[Message], answers: &[Enqueued]) {
        let new = messages.iter().zip(answers).filter(|(_, answer)| answer.placement != Placement::Duplicate);
        new.for_each(|(message, _)| self.hub.telemetry.enqueued(&Announced::of(message)));
    }
}

impl<S: Transactional> Outbox<S> {
    /// The outbox of a store that is open already.
    pub fn new(store: S) -> Self {
        let store = Arc::new(store);
        let hub = Hub::new(Arc::clone(&store));
        Self { store, hub }
    }

    /// Begins a transaction: an ordinary one of the database, which also takes messages.
    ///
    /// Its isolation level is that of [`StoreOptions::isolation`].
    pub async fn begin(&self) -> Result<Tx<S>, StoreError> {
        self.begin_at(self.store.options().isolation).await
    }

    /// Begins a transaction at an isolation level of its own.
    pub async fn begin_at(&self, isolation: Isolation) -> Result<Tx<S>, StoreError> {
        let tx = self.store.begin_at(isolation).await?;
        Ok(Tx::new(Arc::clone(&self.store), tx, Handover::new(Arc::clone(&self.hub))))
    }
}

impl<S: Store> Outbox<S> {
    /// The same outbox, for whoever need not know which database it is.
    pub(crate) fn erased(&self) -> Outbox<dyn Store> {
        let store: Arc<dyn Store> = Arc::clone(&self.store) as Arc<dyn Store>;
        Outbox { store, hub: Arc::clone(&self.hub) }
    }
}

impl<S: ?Sized> Outbox<S> {
    /// The store behind the outbox.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Stores a message in a transaction of its own, committed when this returns, and handled a moment later.
    ///
    /// Once begun it runs to its end, also when the future is dropped.
    pub async fn enqueue_now(&self, message: impl IntoMessage) -> Result<Enqueued, StoreError> {
        let message = inherit(message.into_message()?);
        let (store, mut handover) = (Arc::clone(&self.hub.store), Handover::new(Arc::clone(&self.hub)));
        lasting(async move {
            let mut sorted = handover.sort(vec![message]);
            let answers = if sorted.leased.is_empty() {
                let answers = store.enqueue(Enqueue::pending(&sorted.pending).owned()).await?;
                handover.stored_pending(&sorted.pending, &answers);
                answers
            } else {
                let answers = store.enqueue(Enqueue::leased(&sorted.leased, handover.lease()?).owned()).await?;
                handover.stored(&mut sorted, &answers);
                answers
            };
            handover.committed();
            answers.into_iter().next().ok_or_else(|| StoreError::rejected("the store gave no answer"))
        })
        .await
    }

    /// Says that messages were committed: this process looks at once, and others are woken from a task, soon.
    ///
    /// Never waits, and may be called from anywhere. Outside of an async runtime others are woken only if the outbox was
    /// made inside of one; whoever is not woken finds the messages by its next poll.
    pub fn nudge(&self) {
        self.hub.nudge();
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }
}

impl<S: ?Sized> Clone for Outbox<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), hub: Arc::clone(&self.hub) }
    }
}

impl<S: ?Sized> fmt::Debug for Outbox<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("store", self.hub.store.id()).finish_non_exhaustive()
    }
}

pub(crate) fn into_messages<M>(messages: M) -> Result<Vec<Message>, StoreError>
where
    M: IntoIterator<Item: IntoMessage>,
{
    messages.into_iter().map(|message| Ok(inherit(message.into_message()?))).collect()
}
