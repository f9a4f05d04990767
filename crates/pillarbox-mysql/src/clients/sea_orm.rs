//! SeaORM.

use pillarbox_core::StoreError;
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, Statement, Value};

use super::{Client, Row, open_transaction};
use crate::error::of_sea_orm;
use crate::parameters::Parameter;

open_transaction!(&mut DatabaseTransaction, |tx: Self| of_mysql(tx));
open_transaction!(&DatabaseTransaction, of_mysql);

fn of_mysql(tx: &DatabaseTransaction) -> Result<&DatabaseTransaction, StoreError> {
    match tx.get_database_backend() {
        DbBackend::MySql => Ok(tx),
        _ => Err(StoreError::rejected("this outbox is in a MySQL or MariaDB database, and the transaction is not")),
    }
}

impl Client for &DatabaseTransaction {
    async fn call(&mut self, sql: &str, parameters: Vec<Parameter<'_>>) -> Result<Option<Row>, StoreError> {
        let values: Vec<_> = parameters.into_iter().map(value).collect();
        let statement = Statement::from_sql_and_values(DbBackend::MySql, sql, values);
        let rows = self.query_all_raw(statement).await.map_err(|error| of_sea_orm(&error))?;
        let Some(row) = rows.first() else { return Ok(None) };
        let read = || Ok((row.try_get_by_index(0)?, row.try_get_by_index::<i64>(2)? != 0));
        read().map(Some).map_err(|error| of_sea_orm(&error))
    }
}

fn value(parameter: Parameter<'_>) -> Value {
    match parameter {
        Parameter::Bytes(bytes) => Value::Bytes(bytes.map(std::borrow::Cow::into_owned)),
        Parameter::Number(number) => Value::BigInt(number),
    }
}
