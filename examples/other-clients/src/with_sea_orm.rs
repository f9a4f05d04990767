//! SeaORM, which has one type of transactions for all databases.

use pillarbox::Transactional;
use pillarbox::prelude::*;
use pillarbox::store::OpenTransaction;
use sea_orm::{ConnectionTrait, Database, DatabaseTransaction, TransactionTrait};

pub(crate) async fn run<S>(url: &str, outbox: &Outbox<S>) -> Result<(), Failure>
where
    S: Transactional,
    for<'t> &'t DatabaseTransaction: OpenTransaction<S>,
{
    let database = Database::connect(url).await?;
    database.execute_unprepared(crate::TABLE).await?;
    let tx = database.begin().await?;
    tx.execute_unprepared(
        "insert into orders (id) select 1 from (select 1) as one where not exists (select 1 from orders)",
    )
    .await?;
    outbox.enqueue(&tx, crate::created(1)).await?;
    tx.commit().await?;
    outbox.nudge();
    println!("order 1: committed with its message");
    crate::deliver(outbox).await
}
