//! Enqueueing in transactions of other clients than sqlx: the same statement, whoever sends it.
//!
//! A transaction that an error has aborted commits nothing, and PostgreSQL does not say so when it is committed. So whoever
//! gets an error from an enqueue must roll back, as after every other statement.

#[cfg(feature = "diesel-async")]
mod diesel_async;
#[cfg(feature = "sea-orm")]
mod sea_orm;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use std::future::Future;

use pillarbox_core::store::{Enqueue, Enqueued, chunks, enqueue_answers};
use pillarbox_core::{MessageId, StoreError};
use uuid::Uuid;

use crate::enqueue::{STATEMENT_BYTES_MAX, everything, placement};
use crate::parameters::Parameter;
use crate::store::PostgresStore;

/// A row of `outbox_enqueue_delayed.sql`: its number, the message, and whether it was born leased.
type Row = (i64, Uuid, bool);

/// The transaction of another client.
trait Client: Send {
    /// Messages in one statement.
    const ROWS_MAX: usize = usize::MAX;

    fn fetch(
        &mut self,
        sql: &str,
        parameters: Vec<Parameter<'_>>,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;
}

async fn insert_all<C: Client>(
    store: &PostgresStore,
    mut client: C,
    enqueue: Enqueue<'_>,
) -> Result<Vec<Enqueued>, StoreError> {
    let messages = enqueue.distinct();
    let statement = &store.sql().enqueue_delayed;
    let mut stored = Vec::with_capacity(messages.len());
    for chunk in chunks(&messages, STATEMENT_BYTES_MAX, C::ROWS_MAX) {
        let parameters = everything(chunk, enqueue.lease(), statement.guard.as_deref());
        for (id, message_id, leased) in client.fetch(&statement.text, parameters).await? {
            stored.push((MessageId::from_uuid(message_id)?, placement(id, leased, enqueue.lease())));
        }
    }
    Ok(enqueue_answers(&enqueue, stored))
}

/// Implements [`OpenTransaction`](pillarbox_core::store::OpenTransaction) for a client's transaction.
macro_rules! open_transaction {
    ($transaction:ty, $($open:tt)*) => {
        impl pillarbox_core::store::OpenTransaction<crate::store::PostgresStore> for $transaction {
            fn enqueue_on<'a>(
                self,
                store: &'a crate::store::PostgresStore,
                enqueue: pillarbox_core::store::Enqueue<'a>,
            ) -> pillarbox_core::store::BoxFuture<
                'a,
                Result<Vec<pillarbox_core::store::Enqueued>, pillarbox_core::StoreError>,
            >
            where
                Self: 'a,
            {
                Box::pin(async move {
                    let open = $($open)*;
                    super::insert_all(store, open(self)?, enqueue).await
                })
            }
        }
    };
}

use open_transaction;
