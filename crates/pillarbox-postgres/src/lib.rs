//! PostgreSQL backend of Pillarbox, the transactional outbox and inbox.
//!
//! ```no_run
//! use pillarbox_core::store::{Enqueue, StoreOptions};
//! use pillarbox_core::{EnqueueIn, Message};
//! use pillarbox_postgres::PostgresStore;
//!
//! # async fn place_order(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::with_pool(pool.clone(), StoreOptions::default()).await?;
//!
//! let mut tx = pool.begin().await?;
//! sqlx::query("insert into orders (id) values (1)").execute(&mut *tx).await?;
//! let message = Message::json("order.created", &serde_json::json!({ "id": 1 }))?;
//! store.enqueue_in(&mut tx, Enqueue::pending(&[message])).await?;
//! tx.commit().await?; // the order and the message, or neither
//! # Ok(())
//! # }
//! ```
//!
//! A pool is refused by the compiler, because it commits every statement by itself:
//!
//! ```compile_fail,E0277
//! # use pillarbox_core::{EnqueueIn, store::Enqueue};
//! # async fn refused(store: pillarbox_postgres::PostgresStore, pool: sqlx::PgPool) {
//! store.enqueue_in(&pool, Enqueue::pending(&[])).await;
//! # }
//! ```
//!
//! Behind a pooler in transaction mode (pgbouncer), say so: [`PostgresStore::behind_pooler`].

mod admin;
#[cfg(any(feature = "diesel-async", feature = "sea-orm", feature = "tokio-postgres"))]
mod clients;
mod diagnosis;
mod directory;
mod enqueue;
mod error;
mod inbox;
mod instance;
mod kept;
mod lease;
mod migrate;
mod notify;
mod outbox;
mod parameters;
mod pause;
mod progress;
mod row;
mod sql;
mod store;
mod transaction;
mod work;

pub use directory::read_texts;
pub use inbox::PostgresInbox;
pub use store::PostgresStore;
pub use transaction::PostgresTransaction;
