//! Enqueueing in transactions of other clients than sqlx itself: the same statements, whoever sends them.

mod sea_orm;

use std::future::Future;

use pillarbox_core::store::{Enqueue, Enqueued, enqueue_answers};
use pillarbox_core::{Message, StoreError, WorkId};

use crate::enqueue::{placement, rolled_back};
use crate::parameters::{Values, bind};
use crate::row::id_list;
use crate::sql::ENQUEUE_ROWS;
use crate::store::SqliteStore;

/// The transaction of another client.
trait Client: Send {
    type Values: Values + Default + Send;

    /// Whether SQLite knows of it, too: after some errors it rolls back by itself.
    fn is_open(&mut self) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Runs a statement, and answers the first column of its rows, with the third where there is one.
    fn fetch(
        &mut self,
        sql: &str,
        values: Self::Values,
    ) -> impl Future<Output = Result<Vec<(i64, bool)>, StoreError>> + Send;
}

/// There is no round trip to save: each message has a statement of its own.
async fn insert_all<C: Client>(
    store: &SqliteStore,
    mut client: C,
    enqueue: Enqueue<'_>,
) -> Result<Vec<Enqueued>, StoreError> {
    if !client.is_open().await? {
        return Err(rolled_back());
    }
    let sql = &store.inner.sql;
    let mut stored = Vec::with_capacity(enqueue.messages().len());
    for message in enqueue.messages() {
        let mut values = C::Values::default();
        bind(&mut values, std::slice::from_ref(message), enqueue.lease())?;
        for (id, leased) in client.fetch(sql.enqueue[ENQUEUE_ROWS.len() - 1].as_str(), values).await? {
            stored.push((message.id(), placement(WorkId::from_i64(id), leased, enqueue.lease())));
        }
    }
    if enqueue.messages().iter().any(Message::is_delayed) {
        let ids = |ids: Vec<WorkId>| {
            let mut values = C::Values::default();
            values.add_text(Some(&id_list(ids)))?;
            Ok::<_, StoreError>(values)
        };
        let new = ids(stored.iter().filter_map(|(_, placement)| placement.work_id()).collect())?;
        let moved = client.fetch(sql.enqueue_delayed.as_str(), new).await?;
        if !moved.is_empty() {
            let moved = ids(moved.into_iter().map(|(id, _)| WorkId::from_i64(id)).collect())?;
            client.fetch(sql.leave_live.as_str(), moved).await?;
        }
    }
    Ok(enqueue_answers(&enqueue, stored))
}
