//! Preparing statements on the caller's connection so that dropping the future there does no harm.
//!
//! The driver (sqlx 0.9.0) loses its place in the stream when it is dropped between sending a statement to be prepared and
//! reading the answer: the next call on that connection waits for ever, in a transaction that stays open on the server.
//! Everything else may be dropped. So while a statement is being prepared, a spare connection lies ready: one whose other end
//! is closed, inside a transaction as the driver counts. If the future is dropped, it takes the place of the spoiled one, whose
//! transaction ends with it; whatever the caller does next, commit included, fails at once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, SqlSafeStr as _};

/// Spares kept at the most; as many are in use as callers prepare at one moment.
const SPARES_MAX: usize = 32;

/// Connections whose other end is closed.
#[derive(Default)]
pub(crate) struct Spares {
    stock: Mutex<Vec<MySqlConnection>>,
}

impl Spares {
    /// Prepares a statement, or finds it prepared; a dropped call leaves a connection that answers errors.
    pub(crate) async fn prepare(
        &self,
        address: &MySqlConnectOptions,
        connection: &mut MySqlConnection,
        sql: &str,
    ) -> Result<(), sqlx::Error> {
        let taken = self.stock().pop();
        let spare = match taken {
            Some(spare) => Some(spare),
            // Without a spare, for lack of connections, the call is merely as safe as the driver.
            None => spare(address).await.ok(),
        };
        let mut watch = Watch { connection, spare };
        let prepared = (&mut *watch.connection).prepare(AssertSqlSafe(sql.to_owned()).into_sql_str()).await;
        if let Some(spare) = watch.spare.take() {
            let mut stock = self.stock();
            if stock.len() < SPARES_MAX {
                stock.push(spare);
            }
        }
        prepared.map(drop)
    }

    fn stock(&self) -> MutexGuard<'_, Vec<MySqlConnection>> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces the connection when it is dropped while it still has a spare.
struct Watch<'c> {
    connection: &'c mut MySqlConnection,
    spare: Option<MySqlConnection>,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.take() {
            *self.connection = spare;
        }
    }
}

/// A connection that believes in an open transaction, and whose other end is closed.
async fn spare(address: &MySqlConnectOptions) -> Result<MySqlConnection, sqlx::Error> {
    let mut connection = address.connect().await?;
    // Forgotten, not dropped: the driver must go on counting it.
    std::mem::forget(connection.begin().await?);
    // The answer is an error either way: that the connection was killed, or none.
    drop(sqlx::raw_sql("KILL CONNECTION_ID()").execute(&mut connection).await);
    Ok(connection)
}
