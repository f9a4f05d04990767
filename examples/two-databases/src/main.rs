//! Orders in one database, an audit copy of each in another. No transaction spans the two, and yet no copy is missing.
//!
//! The message is committed with the order. Its handler writes the copy, again and again until that succeeds, under the
//! message's id: a copy that is delivered twice is written once.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use pillarbox::prelude::*;
use pillarbox::sqlite::SqliteStore;
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

#[derive(Serialize, Deserialize)]
struct OrderChanged {
    id: i64,
    total_cents: i64,
}

impl Event for OrderChanged {
    const TOPIC: &str = "order.changed";
}

/// The other database.
struct Audit {
    pool: SqlitePool,
}

impl Audit {
    async fn open(file: &str) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
        Ok(Self { pool: SqlitePool::connect_with(options).await? })
    }

    async fn create_tables(&self) -> Result<(), sqlx::Error> {
        let table = "create table if not exists copies (message_id text primary key, id integer, total_cents integer)";
        sqlx::query(table).execute(&self.pool).await.map(drop)
    }

    async fn write(&self, order: &OrderChanged, key: &str) -> Result<(), sqlx::Error> {
        sqlx::query("insert into copies (message_id, id, total_cents) values (?1, ?2, ?3) on conflict do nothing")
            .bind(key)
            .bind(order.id)
            .bind(order.total_cents)
            .execute(&self.pool)
            .await
            .map(drop)
    }

    async fn total_cents(&self) -> Result<i64, sqlx::Error> {
        sqlx::query_scalar("select coalesce(sum(total_cents), 0) from copies").fetch_one(&self.pool).await
    }
}

async fn open_shop(file: &str) -> Result<Outbox<SqliteStore>, Box<dyn Error>> {
    let outbox = Outbox::sqlite(&format!("sqlite:{file}")).await?;
    let table = "create table if not exists orders (id integer primary key, total_cents integer not null)";
    sqlx::query(table).execute(outbox.store().pool()).await?;
    Ok(outbox)
}

async fn place_order(outbox: &Outbox<SqliteStore>, total_cents: i64) -> Result<i64, Box<dyn Error>> {
    let mut tx = outbox.begin().await?;
    let insert = sqlx::query_scalar("insert into orders (total_cents) values (?1) returning id").bind(total_cents);
    let id: i64 = insert.fetch_one(tx.conn()).await?;
    tx.enqueue(OrderChanged { id, total_cents }).await?;
    tx.commit().await?;
    Ok(id)
}

/// While the audit database is away, every attempt fails and is repeated with backoff.
fn handlers(runtime: RuntimeBuilder, audit: Audit) -> RuntimeBuilder {
    runtime.state(audit).on(async |order: Payload<OrderChanged>, audit: State<Audit>, cx: Context| {
        audit.write(&order, &cx.idempotency_key()).await?;
        Ok(())
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (outbox, audit) = (open_shop("shop.db").await?, Audit::open("audit.db").await?);
    audit.create_tables().await?;
    let runtime = handlers(Runtime::builder(&outbox), audit).start().await?;
    for total_cents in [1_999, 4_950, 350] {
        let id = place_order(&outbox, total_cents).await?;
        println!("order {id}: {total_cents} cents, committed in shop.db");
    }
    runtime.idle().await;
    runtime.shutdown(Duration::from_secs(5)).await;
    println!("audit.db has copies of {} cents in all", Audit::open("audit.db").await?.total_cents().await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HOT-23: an order can be placed while the audit database cannot take anything; its copy comes later.
    #[tokio::test]
    async fn the_copy_arrives_although_the_other_database_was_not_ready() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let outbox = open_shop(&file("orders.db")).await.unwrap();
        let audit = Audit::open(&file("audit.db")).await.unwrap();
        let (failed, mut failures) = tokio::sync::mpsc::unbounded_channel();
        let runtime = handlers(Runtime::builder(&outbox), Audit { pool: audit.pool.clone() })
            .after(move |_: Context, end: pillarbox::AttemptEnd| {
                let _ = failed.send(end != pillarbox::AttemptEnd::Succeeded);
                async { Ok(()) }
            })
            .start()
            .await
            .unwrap();

        place_order(&outbox, 999).await.unwrap();
        assert!(failures.recv().await.unwrap(), "there is no table for the copy yet");
        audit.create_tables().await.unwrap();
        while failures.recv().await.unwrap() {}
        assert_eq!(audit.total_cents().await.unwrap(), 999);
        runtime.idle().await;
        assert_eq!(outbox.store().overview().await.unwrap().total().done, 1);
    }
}
