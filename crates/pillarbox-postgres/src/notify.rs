//! Wake-ups between processes: `NOTIFY` on a connection of the store's, never in a transaction of the user's.

use async_trait::async_trait;
use pillarbox_core::naming::Naming;
use pillarbox_core::{StoreError, Wakeups};
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgListener, PgPoolOptions};

use crate::error::store_error;
use crate::store::PostgresStore;

/// Tells everybody who listens. One message of the simple protocol, so that a pooler in transaction mode takes it.
pub(crate) async fn wake_others(store: &PostgresStore) -> Result<(), StoreError> {
    let notify = format!("SELECT pg_catalog.pg_notify('{}', '')", channel(&store.settings().naming));
    let mut session = store.kept().acquire().await.map_err(store_error)?;
    sqlx::raw_sql(AssertSqlSafe(notify)).execute(&mut *session).await.map_err(store_error)?;
    session.passes_on();
    Ok(())
}

/// Listens on a connection that is not the pool's. Behind a pooler in transaction mode nobody could hear anything.
pub(crate) async fn listen(store: &PostgresStore) -> Result<Option<Box<dyn Wakeups>>, StoreError> {
    if store.is_behind_pooler() {
        return Ok(None);
    }
    let connect = store.pool().connect_options().as_ref().clone();
    let own = PgPoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
    let own = own.acquire_timeout(store.pool().options().get_acquire_timeout()).connect_lazy_with(connect);
    let mut listener = PgListener::connect_with(&own).await.map_err(store_error)?;
    // The user of a broken subscription must know: what was sent meanwhile is missed.
    listener.eager_reconnect(false);
    listener.listen(&channel(&store.settings().naming)).await.map_err(store_error)?;
    Ok(Some(Box::new(Subscription { listener: Some(listener) })))
}

struct Subscription {
    /// None once the connection has failed.
    listener: Option<PgListener>,
}

#[async_trait]
impl Wakeups for Subscription {
    async fn next(&mut self) -> Result<(), StoreError> {
        let Some(listener) = &mut self.listener else {
            return Err(broken());
        };
        let heard = listener.try_recv().await;
        match heard {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                self.listener = None;
                Err(broken())
            }
            Err(error) => {
                self.listener = None;
                Err(store_error(error))
            }
        }
    }
}

fn broken() -> StoreError {
    StoreError::unavailable("the connection that listens for wake-ups broke")
}

/// The channel of one outbox. Names hold letters, digits and underscores only and are short enough, see [`Naming`].
fn channel(naming: &Naming) -> String {
    format!("pillarbox.{}.{}", naming.schema(), naming.outbox())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BUS-05, H53: PostgreSQL refuses channels of more than 63 bytes, and cuts names of that length when they are quoted.
    #[test]
    fn the_longest_names_make_a_channel() {
        let longest = (0..).map_while(|more| Naming::new("s", "t".repeat(1 + more)).ok()).last().unwrap();
        assert!(channel(&longest).len() <= 63, "{}", channel(&longest));
    }

    /// BUS-05: two outboxes never share a channel, whatever their names.
    #[test]
    fn every_outbox_has_a_channel_of_its_own() {
        let of = |schema, table| channel(&Naming::new(schema, table).unwrap());
        assert_ne!(of("a_b", "c"), of("a", "b_c"));
        assert_ne!(of("a", "b"), of("a", "c"));
        assert_ne!(of("a", "b"), of("A", "b"));
    }
}
