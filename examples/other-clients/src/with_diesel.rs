//! diesel-async.

use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use pillarbox::prelude::*;

pub(crate) async fn run_on_postgres(url: &str) -> Result<(), Failure> {
    let outbox = Outbox::postgres(url).await?;
    let mut connection = AsyncPgConnection::establish(url).await?;
    connection.batch_execute(crate::TABLE).await?;
    connection
        .transaction::<_, Failure, _>(async |tx| {
            let insert = diesel::sql_query("insert into orders (id) values ($1) on conflict do nothing");
            insert.bind::<BigInt, _>(1).execute(tx).await?;
            outbox.enqueue(&mut *tx, crate::created(1)).await?;
            Ok(())
        })
        .await?;
    outbox.nudge();
    println!("order 1: committed with its message");
    crate::deliver(&outbox).await
}

pub(crate) async fn run_on_mysql(url: &str) -> Result<(), Failure> {
    let outbox = Outbox::mysql(url).await?;
    let mut connection = AsyncMysqlConnection::establish(url).await?;
    connection.batch_execute(crate::TABLE).await?;
    connection
        .transaction::<_, Failure, _>(async |tx| {
            let insert = diesel::sql_query("insert ignore into orders (id) values (?)");
            insert.bind::<BigInt, _>(1).execute(tx).await?;
            outbox.enqueue(&mut *tx, crate::created(1)).await?;
            Ok(())
        })
        .await?;
    outbox.nudge();
    println!("order 1: committed with its message");
    crate::deliver(&outbox).await
}
