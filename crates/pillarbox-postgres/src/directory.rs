//! Rows of text from a query of the user's own: where other stores are.

use pillarbox_core::StoreError;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use uuid::Uuid;

use crate::error::store_error;

/// Runs a query on a connection of its own and answers its rows. Every column must be a text or a UUID.
pub async fn read_texts(url: &str, query: &str) -> Result<Vec<Vec<Option<String>>>, StoreError> {
    let connect: PgConnectOptions = url.parse().map_err(store_error)?;
    let mut connection = PgConnection::connect_with(&connect).await.map_err(store_error)?;
    let query = sqlx::query(AssertSqlSafe(query.to_owned())).persistent(false);
    let rows = query.fetch_all(&mut connection).await.map_err(store_error)?;
    let texts = rows.iter().map(|row| (0..row.len()).map(|index| text(row, index)).collect()).collect();
    connection.close().await.map_err(store_error)?;
    texts
}

fn text(row: &PgRow, index: usize) -> Result<Option<String>, StoreError> {
    if let Ok(text) = row.try_get(index) {
        return Ok(text);
    }
    let uuid: Result<Option<Uuid>, _> = row.try_get(index);
    let complaint = |_| StoreError::rejected(format!("column {} of the query is neither text nor uuid", index + 1));
    Ok(uuid.map_err(complaint)?.map(|uuid| uuid.to_string()))
}
