//! The smallest whole program: an order and its message are committed together, and handled a moment later.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use pillarbox::prelude::*;

#[derive(Serialize, Deserialize)]
struct OrderCreated {
    id: i64,
    customer: String,
}

impl Event for OrderCreated {
    const TOPIC: &str = "order.created";
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run("sqlite:embedded.db").await?;
    Ok(())
}

/// Places an order and waits until its message is handled; how many messages are done.
async fn run(url: &str) -> Result<u64, Box<dyn Error>> {
    let outbox = Outbox::sqlite(url).await?; // makes the file and the outbox's tables
    sqlx::raw_sql("create table if not exists orders (id integer primary key, customer text not null)")
        .execute(outbox.store().pool())
        .await?;

    let runtime = Runtime::builder(&outbox)
        .on(async |order: Payload<OrderCreated>| {
            println!("order {} of {} is on its way", order.id, order.customer);
            Ok(())
        })
        .start()
        .await?;

    let mut tx = outbox.begin().await?;
    let (id,): (i64,) =
        sqlx::query_as("insert into orders (customer) values ('Ada') returning id").fetch_one(tx.conn()).await?;
    tx.enqueue(OrderCreated { id, customer: "Ada".into() }).await?;
    tx.commit().await?; // the order and its message, or neither

    runtime.idle().await; // a service would wait for `pillarbox::signal::terminated()`
    runtime.shutdown(Duration::from_secs(5)).await;
    Ok(outbox.store().overview().await?.total().done)
}

#[cfg(test)]
mod tests {
    /// HOT-23: run twice, as a user may; every run has its order.
    #[tokio::test]
    async fn the_embedded_example_handles_its_message() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("orders.db").display());
        for run in 1..=2 {
            assert_eq!(super::run(&url).await.unwrap(), run);
        }
    }
}
