//! tokio-postgres.

use pillarbox::postgres::PostgresStore;
use pillarbox::prelude::*;
use tokio_postgres::{Client, NoTls};

pub(crate) async fn run(url: &str) -> Result<(), Failure> {
    let outbox = Outbox::postgres(url).await?;
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(crate::TABLE).await?;
    place(&outbox, &mut client, 1).await?;
    println!("order 1: committed with its message");
    crate::deliver(&outbox).await
}

async fn place(outbox: &Outbox<PostgresStore>, client: &mut Client, id: i64) -> Result<(), Failure> {
    let mut tx = client.transaction().await?;
    tx.execute("insert into orders (id) values ($1) on conflict do nothing", &[&id]).await?;
    outbox.enqueue(&mut tx, crate::created(id)).await?;
    tx.commit().await?;
    outbox.nudge();
    Ok(())
}
