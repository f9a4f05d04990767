//! Rows of text from a query of the user's own: where other stores are.

use pillarbox_core::StoreError;
use sqlx::mysql::{MySqlConnectOptions, MySqlRow};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};

use crate::error::store_error;

/// Runs a query on a connection of its own and answers its rows. Every column must be a text.
pub async fn read_texts(url: &str, query: &str) -> Result<Vec<Vec<Option<String>>>, StoreError> {
    let connect: MySqlConnectOptions = url.parse().map_err(store_error)?;
    let mut connection = MySqlConnection::connect_with(&connect).await.map_err(store_error)?;
    let query = sqlx::query(AssertSqlSafe(query.to_owned())).persistent(false);
    let rows = query.fetch_all(&mut connection).await.map_err(store_error)?;
    let texts = rows.iter().map(|row| (0..row.len()).map(|index| text(row, index)).collect()).collect();
    connection.close().await.map_err(store_error)?;
    texts
}

fn text(row: &MySqlRow, index: usize) -> Result<Option<String>, StoreError> {
    row.try_get(index).map_err(|_| StoreError::rejected(format!("column {} of the query is no text", index + 1)))
}
