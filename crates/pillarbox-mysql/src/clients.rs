//! Enqueueing in transactions of other clients than sqlx: the routine for one message, called for each.
//!
//! The routine looks whether a transaction is open, so that nothing is committed alone, whatever the client believes.

#[cfg(feature = "diesel-async")]
mod diesel_async;
#[cfg(feature = "sea-orm")]
mod sea_orm;

use std::future::Future;

use pillarbox_core::StoreError;
use pillarbox_core::store::{Enqueue, Enqueued, enqueue_answers};

use crate::enqueue::Birth;
use crate::parameters::{Parameter, of_one};
use crate::store::MysqlStore;

/// The row of a new message: its number, and whether it was born leased.
type Row = (i64, bool);

/// The transaction of another client.
trait Client: Send {
    fn call(
        &mut self,
        sql: &str,
        parameters: Vec<Parameter<'_>>,
    ) -> impl Future<Output = Result<Option<Row>, StoreError>> + Send;
}

async fn insert_all(
    store: &MysqlStore,
    mut client: impl Client,
    enqueue: Enqueue<'_>,
) -> Result<Vec<Enqueued>, StoreError> {
    let birth = Birth::of(&enqueue);
    let mut stored = Vec::with_capacity(enqueue.messages().len());
    for message in enqueue.distinct() {
        if let Some((id, leased)) = client.call(&store.inner.sql.enqueue_one, of_one(message, &birth)).await? {
            stored.push((message.id(), birth.placement(id, leased)));
        }
    }
    Ok(enqueue_answers(&enqueue, stored))
}

/// Implements [`OpenTransaction`](pillarbox_core::store::OpenTransaction) for a client's transaction.
macro_rules! open_transaction {
    ($transaction:ty, $($open:tt)*) => {
        impl pillarbox_core::store::OpenTransaction<crate::store::MysqlStore> for $transaction {
            fn enqueue_on<'a>(
                self,
                store: &'a crate::store::MysqlStore,
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
