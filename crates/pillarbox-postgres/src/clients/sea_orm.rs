//! SeaORM.

use pillarbox_core::StoreError;
use sea_orm::sea_query::ArrayType;
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, QueryResult, Statement, Value};

use super::{Client, Row, open_transaction};
use crate::error::of_sea_orm;
use crate::parameters::{Column, Parameter};

open_transaction!(&mut DatabaseTransaction, |tx: Self| of_postgres(tx));
open_transaction!(&DatabaseTransaction, of_postgres);

fn of_postgres(tx: &DatabaseTransaction) -> Result<&DatabaseTransaction, StoreError> {
    match tx.get_database_backend() {
        DbBackend::Postgres => Ok(tx),
        _ => Err(StoreError::rejected("this outbox is in a PostgreSQL database, and the transaction is not")),
    }
}

impl Client for &DatabaseTransaction {
    /// Its arrays take no NULL among their values: each message has a statement of its own.
    const ROWS_MAX: usize = 1;

    async fn fetch(&mut self, sql: &str, parameters: Vec<Parameter<'_>>) -> Result<Vec<Row>, StoreError> {
        let values: Vec<_> = parameters.into_iter().map(value).collect();
        let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, values);
        let rows = self.query_all_raw(statement).await.map_err(|error| of_sea_orm(&error))?;
        let read =
            |row: &QueryResult| Ok((row.try_get_by_index(0)?, row.try_get_by_index(1)?, row.try_get_by_index(2)?));
        rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| of_sea_orm(&error))
    }
}

fn value(parameter: Parameter<'_>) -> Value {
    match parameter {
        Parameter::Ids(ids) => array(ArrayType::Uuid, Some(ids)),
        Parameter::Topics(topics) => array(ArrayType::String, Some(topics)),
        Parameter::Payloads(payloads) => array(ArrayType::Bytes, Some(payloads)),
        Parameter::Texts(texts) => column(ArrayType::String, texts, std::borrow::Cow::into_owned),
        Parameter::Numbers(numbers) => column(ArrayType::BigInt, numbers, |number| number),
        Parameter::Priorities(priorities) => column(ArrayType::SmallInt, priorities, |priority| priority),
        Parameter::Instants(instants) => column(ArrayType::TimeDateTimeWithTimeZone, instants, |instant| instant),
        Parameter::Owner(owner) => owner.into(),
        Parameter::Number(number) => number.into(),
        Parameter::Guard(guard) => guard.into(),
    }
}

fn column<T, V>(kind: ArrayType, values: Column<T>, into: fn(T) -> V) -> Value
where
    Option<V>: Into<Value>,
{
    array(kind, values.map(|values| values.into_iter().map(|value| value.map(into)).collect()))
}

fn array<V: Into<Value>>(kind: ArrayType, values: Option<Vec<V>>) -> Value {
    Value::Array(kind, values.map(|values| Box::new(values.into_iter().map(Into::into).collect())))
}
