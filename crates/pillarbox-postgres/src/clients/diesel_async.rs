//! diesel-async.

use diesel::QueryableByName;
use diesel::pg::Pg;
use diesel::query_builder::{BoxedSqlQuery, SqlQuery};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, RunQueryDsl, TransactionManager};
use pillarbox_core::StoreError;
use uuid::Uuid;

use super::{Client, Row, open_transaction};
use crate::enqueue::no_transaction;
use crate::error::of_diesel;
use crate::parameters::Parameter;

open_transaction!(&mut AsyncPgConnection, |connection: Self| {
    let status = AnsiTransactionManager::transaction_manager_status_mut(&mut *connection);
    match status.transaction_depth() {
        Ok(Some(_)) => Ok(connection),
        Ok(None) => Err(no_transaction()),
        Err(error) => Err(of_diesel(&error)),
    }
});

/// What the statement answers.
#[derive(QueryableByName)]
#[diesel(check_for_backend(Pg))]
struct Stored {
    #[diesel(sql_type = BigInt)]
    work_id: i64,
    #[diesel(sql_type = SqlUuid)]
    stored_id: Uuid,
    #[diesel(sql_type = Bool)]
    is_leased: bool,
}

impl Client for &mut AsyncPgConnection {
    async fn fetch(&mut self, sql: &str, parameters: Vec<Parameter<'_>>) -> Result<Vec<Row>, StoreError> {
        let query = parameters.into_iter().fold(diesel::sql_query(sql).into_boxed(), bound);
        let rows: Vec<Stored> = query.load(&mut **self).await.map_err(|error| of_diesel(&error))?;
        Ok(rows.into_iter().map(|row| (row.work_id, row.stored_id, row.is_leased)).collect())
    }
}

type Query<'p> = BoxedSqlQuery<'p, Pg, SqlQuery>;

fn bound<'p>(query: Query<'p>, parameter: Parameter<'p>) -> Query<'p> {
    match parameter {
        Parameter::Ids(ids) => query.bind::<Array<SqlUuid>, _>(ids),
        Parameter::Topics(topics) => query.bind::<Array<Text>, _>(topics),
        Parameter::Payloads(payloads) => query.bind::<Array<Binary>, _>(payloads),
        Parameter::Texts(texts) => query.bind::<Nullable<Array<Nullable<Text>>>, _>(texts),
        Parameter::Numbers(numbers) => query.bind::<Nullable<Array<Nullable<BigInt>>>, _>(numbers),
        Parameter::Priorities(priorities) => query.bind::<Nullable<Array<Nullable<SmallInt>>>, _>(priorities),
        Parameter::Instants(instants) => query.bind::<Nullable<Array<Nullable<Timestamptz>>>, _>(instants),
        Parameter::Owner(owner) => query.bind::<Nullable<SqlUuid>, _>(owner),
        Parameter::Number(number) => query.bind::<Nullable<BigInt>, _>(number),
        Parameter::Guard(guard) => query.bind::<Text, _>(guard),
    }
}
