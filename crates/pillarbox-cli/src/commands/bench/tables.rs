//! Removes the tables that the bench made, by the name that no one else has.

use pillarbox::mysql::MysqlStore;
use pillarbox::schema::SchemaPolicy;
use pillarbox::store::StoreOptions;
use pillarbox::{Backend, StoreError, mysql, postgres, sqlite};
use sqlx::AssertSqlSafe;

use crate::store_args::Address;

/// Drops everything whose name begins with the bench's own, which holds letters, digits and underscores only.
pub(super) async fn drop_all(address: &Address, schema: &str) -> Result<(), StoreError> {
    let url = address.url();
    match address.backend {
        Backend::Postgres => {
            postgres::read_texts(url, &format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await.map(drop)
        }
        Backend::Mysql => {
            let script = drops(&mysql::read_texts(url, &of_mysql(schema)).await?, '`').join(";\n");
            let assume = StoreOptions { schema: SchemaPolicy::Assume, ..StoreOptions::default() };
            let store = MysqlStore::connect(url, assume).await?;
            // As plain text: MySQL prepares no statement that drops a routine.
            let dropped = sqlx::raw_sql(AssertSqlSafe(script)).execute(store.pool()).await;
            dropped.map(drop).map_err(|_| StoreError::rejected("the database refused to drop them"))
        }
        Backend::Sqlite => {
            for drop in drops(&sqlite::read_texts(url, &of_sqlite(schema)).await?, '"') {
                sqlite::read_texts(url, &drop).await?;
            }
            Ok(())
        }
    }
}

/// Rows of kind and name as statements. A table takes its triggers along, which then are no longer there to be dropped.
fn drops(rows: &[Vec<Option<String>>], quote: char) -> Vec<String> {
    let statement = |row: &Vec<Option<String>>| match &row[..] {
        [Some(kind), Some(name)] => Some(format!("DROP {kind} IF EXISTS {quote}{name}{quote}")),
        _ => None,
    };
    rows.iter().filter_map(statement).collect()
}

fn of_mysql(schema: &str) -> String {
    format!(
        "SELECT CAST(ROUTINE_TYPE AS CHAR), CAST(ROUTINE_NAME AS CHAR) FROM information_schema.ROUTINES \
         WHERE ROUTINE_SCHEMA = DATABASE() AND ROUTINE_NAME LIKE '{schema}\\_%' \
         UNION ALL \
         SELECT 'TABLE', CAST(TABLE_NAME AS CHAR) FROM information_schema.TABLES \
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE '{schema}\\_%'"
    )
}

fn of_sqlite(schema: &str) -> String {
    format!(
        "SELECT upper(type), name FROM sqlite_master WHERE type IN ('table', 'view', 'trigger') \
         AND substr(name, 1, {length}) = '{schema}_' ORDER BY type DESC",
        length = schema.len() + 1
    )
}
