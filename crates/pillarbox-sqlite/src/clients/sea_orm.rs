//! SeaORM.

use pillarbox_core::StoreError;
use pillarbox_core::store::{BoxFuture, Enqueue, Enqueued, OpenTransaction};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, QueryResult, Statement, Value};
use uuid::Uuid;

use super::{Client, insert_all};
use crate::error::{is_inside_transaction, of_sea_orm, sqlx_below};
use crate::parameters::Values;
use crate::store::SqliteStore;

impl OpenTransaction<SqliteStore> for &DatabaseTransaction {
    fn enqueue_on<'a>(
        self,
        store: &'a SqliteStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            match self.get_database_backend() {
                DbBackend::Sqlite => insert_all(store, self, enqueue).await,
                _ => Err(StoreError::rejected("this outbox is in a SQLite database, and the transaction is not")),
            }
        })
    }
}

impl OpenTransaction<SqliteStore> for &mut DatabaseTransaction {
    fn enqueue_on<'a>(
        self,
        store: &'a SqliteStore,
        enqueue: Enqueue<'a>,
    ) -> BoxFuture<'a, Result<Vec<Enqueued>, StoreError>>
    where
        Self: 'a,
    {
        let tx: &DatabaseTransaction = self;
        tx.enqueue_on(store, enqueue)
    }
}

impl Client for &DatabaseTransaction {
    type Values = Vec<Value>;

    /// As the store asks it: inside a transaction a `BEGIN` is refused, and changes nothing.
    async fn is_open(&mut self) -> Result<bool, StoreError> {
        match self.execute_unprepared("BEGIN; ROLLBACK").await {
            Ok(_) => Ok(false),
            Err(error) if sqlx_below(&error).is_some_and(is_inside_transaction) => Ok(true),
            Err(error) => Err(of_sea_orm(&error)),
        }
    }

    async fn fetch(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<(i64, bool)>, StoreError> {
        let statement = Statement::from_sql_and_values(DbBackend::Sqlite, sql, values);
        let rows = self.query_all_raw(statement).await.map_err(|error| of_sea_orm(&error))?;
        let read = |row: &QueryResult| {
            let leased = if row.column_names().len() > 2 { row.try_get_by_index::<i64>(2)? != 0 } else { false };
            Ok((row.try_get_by_index(0)?, leased))
        };
        rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| of_sea_orm(&error))
    }
}

impl Values for Vec<Value> {
    fn add_uuid(&mut self, uuid: Option<Uuid>) -> Result<(), StoreError> {
        self.push(Value::Bytes(uuid.map(|uuid| uuid.into_bytes().to_vec())));
        Ok(())
    }

    fn add_number(&mut self, number: Option<i64>) -> Result<(), StoreError> {
        self.push(Value::BigInt(number));
        Ok(())
    }

    fn add_bytes(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.push(Value::Bytes(Some(bytes.to_vec())));
        Ok(())
    }

    fn add_text(&mut self, text: Option<&str>) -> Result<(), StoreError> {
        self.push(Value::String(text.map(str::to_owned)));
        Ok(())
    }
}
