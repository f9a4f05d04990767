//! The orders and their messages, on SQLite or PostgreSQL.

use pillarbox::async_trait;
use pillarbox::postgres::PostgresStore;
use pillarbox::prelude::*;
use pillarbox::sqlite::SqliteStore;

/// An order, and the event that tells about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OrderCreated {
    pub(crate) id: i64,
    pub(crate) customer: String,
    pub(crate) total_cents: i64,
}

impl Event for OrderCreated {
    const TOPIC: &str = "order.created";
}

/// What the web service needs of its database.
#[async_trait]
pub(crate) trait Orders: Send + Sync {
    async fn create_tables(&self) -> Result<(), sqlx::Error>;
    /// Commits an order together with its message. False when there is such an order already.
    async fn place(&self, order: &OrderCreated) -> Result<bool, Failure>;
    /// Every order, and whether its mail was sent.
    async fn list(&self) -> Result<Vec<(i64, String, i64, bool)>, sqlx::Error>;
    /// Remembers that the mail was sent; once, however often it is told.
    async fn mailed(&self, id: i64) -> Result<(), sqlx::Error>;
}

/// The statements are the same; only the types of the two databases differ.
macro_rules! orders_on {
    ($store:ty) => {
        #[async_trait]
        impl Orders for Outbox<$store> {
            async fn create_tables(&self) -> Result<(), sqlx::Error> {
                let tables = "create table if not exists orders
                        (id bigint primary key, customer text not null, total_cents bigint not null);
                    create table if not exists mails (order_id bigint primary key)";
                sqlx::raw_sql(tables).execute(self.store().pool()).await.map(drop)
            }

            async fn place(&self, order: &OrderCreated) -> Result<bool, Failure> {
                let mut tx = self.begin().await?;
                let insert =
                    "insert into orders (id, customer, total_cents) values ($1, $2, $3) on conflict do nothing";
                let insert = sqlx::query(insert).bind(order.id).bind(&order.customer).bind(order.total_cents);
                if insert.execute(tx.conn()).await?.rows_affected() == 0 {
                    return Ok(false);
                }
                tx.enqueue(order).await?;
                tx.commit().await?; // the order and its message, or neither
                Ok(true)
            }

            async fn list(&self) -> Result<Vec<(i64, String, i64, bool)>, sqlx::Error> {
                let orders = "select id, customer, total_cents, order_id is not null
                    from orders left join mails on order_id = id order by id limit 1000";
                sqlx::query_as(orders).fetch_all(self.store().pool()).await
            }

            async fn mailed(&self, id: i64) -> Result<(), sqlx::Error> {
                let insert = sqlx::query("insert into mails (order_id) values ($1) on conflict do nothing").bind(id);
                insert.execute(self.store().pool()).await.map(drop)
            }
        }
    };
}

orders_on!(SqliteStore);
orders_on!(PostgresStore);
