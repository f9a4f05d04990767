//! diesel-async.

use diesel::QueryableByName;
use diesel::mysql::Mysql;
use diesel::query_builder::{BoxedSqlQuery, SqlQuery};
use diesel::sql_types::{BigInt, Binary, Bool, Nullable};
use diesel_async::{AnsiTransactionManager, AsyncMysqlConnection, RunQueryDsl, TransactionManager};
use pillarbox_core::StoreError;

use super::{Client, Row, open_transaction};
use crate::error::{no_transaction, of_diesel};
use crate::parameters::Parameter;

open_transaction!(&mut AsyncMysqlConnection, |connection: Self| {
    let status = AnsiTransactionManager::transaction_manager_status_mut(&mut *connection);
    match status.transaction_depth() {
        Ok(Some(_)) => Ok(connection),
        Ok(None) => Err(no_transaction()),
        Err(error) => Err(of_diesel(&error)),
    }
});

/// What the routine answers.
#[derive(QueryableByName)]
#[diesel(check_for_backend(Mysql))]
struct Stored {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    leased: bool,
}

impl Client for &mut AsyncMysqlConnection {
    async fn call(&mut self, sql: &str, parameters: Vec<Parameter<'_>>) -> Result<Option<Row>, StoreError> {
        let query = parameters.into_iter().fold(diesel::sql_query(sql).into_boxed(), bound);
        let rows: Vec<Stored> = query.load(&mut **self).await.map_err(|error| of_diesel(&error))?;
        Ok(rows.into_iter().next().map(|row| (row.id, row.leased)))
    }
}

type Query<'p> = BoxedSqlQuery<'p, Mysql, SqlQuery>;

fn bound<'p>(query: Query<'p>, parameter: Parameter<'p>) -> Query<'p> {
    match parameter {
        Parameter::Bytes(bytes) => query.bind::<Nullable<Binary>, _>(bytes.map(std::borrow::Cow::into_owned)),
        Parameter::Number(number) => query.bind::<Nullable<BigInt>, _>(number),
    }
}
