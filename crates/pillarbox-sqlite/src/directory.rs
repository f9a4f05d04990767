//! Rows of text from a query of the user's own: where other stores are.

use std::str::FromStr;

use pillarbox_core::StoreError;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

use crate::error::store_error;
use crate::store::{BUSY_TIMEOUT, in_own_task};

/// Runs a query on a connection of its own and answers its rows. Every column must be a text; the file must exist.
pub async fn read_texts(url: &str, query: &str) -> Result<Vec<Vec<Option<String>>>, StoreError> {
    let connect = SqliteConnectOptions::from_str(url).map_err(store_error)?.busy_timeout(BUSY_TIMEOUT);
    let query = query.to_owned();
    in_own_task(async move {
        let mut connection = SqliteConnection::connect_with(&connect).await.map_err(store_error)?;
        let rows = sqlx::query(AssertSqlSafe(query)).fetch_all(&mut connection).await.map_err(store_error)?;
        let texts = rows.iter().map(|row| (0..row.len()).map(|index| text(row, index)).collect()).collect();
        connection.close().await.map_err(store_error)?;
        texts
    })
    .await
}

fn text(row: &sqlx::sqlite::SqliteRow, index: usize) -> Result<Option<String>, StoreError> {
    row.try_get(index).map_err(|_| StoreError::rejected(format!("column {} of the query is no text", index + 1)))
}
