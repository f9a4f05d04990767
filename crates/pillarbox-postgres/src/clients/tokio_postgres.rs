//! tokio-postgres.

use pillarbox_core::StoreError;
use postgres_types::{ToSql, Type};
use tokio_postgres::Transaction;
use tokio_postgres::types as postgres_types;

use super::{Client, Row, open_transaction};
use crate::error::of_tokio_postgres;
use crate::parameters::Parameter;

open_transaction!(&mut Transaction<'_>, |tx: Self| Ok::<_, StoreError>(&*tx));
open_transaction!(&Transaction<'_>, Ok::<Self, StoreError>);

impl Client for &Transaction<'_> {
    /// With the types of the values it takes one round trip, and nothing is prepared that a pooler could lose.
    async fn fetch(&mut self, sql: &str, parameters: Vec<Parameter<'_>>) -> Result<Vec<Row>, StoreError> {
        let parameters: Vec<_> = parameters.iter().map(typed).collect();
        let rows = self.query_typed(sql, &parameters).await.map_err(|error| of_tokio_postgres(&error))?;
        let read = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| of_tokio_postgres(&error))
    }
}

fn typed<'p>(parameter: &'p Parameter<'_>) -> (&'p (dyn ToSql + Sync), Type) {
    match parameter {
        Parameter::Ids(ids) => (ids, Type::UUID_ARRAY),
        Parameter::Topics(topics) => (topics, Type::TEXT_ARRAY),
        Parameter::Payloads(payloads) => (payloads, Type::BYTEA_ARRAY),
        Parameter::Texts(texts) => (texts, Type::TEXT_ARRAY),
        Parameter::Numbers(numbers) => (numbers, Type::INT8_ARRAY),
        Parameter::Priorities(priorities) => (priorities, Type::INT2_ARRAY),
        Parameter::Instants(instants) => (instants, Type::TIMESTAMPTZ_ARRAY),
        Parameter::Owner(owner) => (owner, Type::UUID),
        Parameter::Number(number) => (number, Type::INT8),
        Parameter::Guard(guard) => (guard, Type::TEXT),
    }
}
