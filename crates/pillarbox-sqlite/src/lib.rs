//! The outbox of Pillarbox in SQLite: in a file, or in memory.
//!
//! A message is enqueued on the transaction that changes the business data, so both are committed or neither is:
//!
//! ```
//! use pillarbox_core::lease::Claim;
//! use pillarbox_core::store::{Enqueue, Settlement, StoreOptions};
//! use pillarbox_core::{EnqueueIn, Message, OutboxStore, OwnerToken};
//! use pillarbox_sqlite::SqliteStore;
//! # use std::time::Duration;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let url = format!("sqlite:{}/shop.db", directory.path().display());
//! let store = SqliteStore::connect(&url, StoreOptions::default()).await?;
//! # sqlx::query("CREATE TABLE orders (item TEXT)").execute(store.pool()).await?;
//!
//! let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await?;
//! sqlx::query("INSERT INTO orders (item) VALUES ('book')").execute(&mut *tx).await?;
//! let created = Message::new("order.created", "book");
//! store.enqueue_in(&mut tx, Enqueue::pending(&[created])).await?;
//! tx.commit().await?;
//!
//! let owner = OwnerToken::new();
//! let claimed = store.claim(Claim::new(owner, Duration::from_secs(30), 100)?).await?;
//! assert_eq!(claimed[0].message.as_ref().unwrap().topic(), "order.created");
//! store.settle(owner, &[Settlement::ack(claimed[0].held)]).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A pool is refused by the compiler: it commits every statement by itself, so the message would survive a rollback of
//! the change it tells about.
//!
//! ```compile_fail,E0277
//! # use pillarbox_core::store::Enqueue;
//! # use pillarbox_core::{EnqueueIn, Message};
//! # async fn refused(store: pillarbox_sqlite::SqliteStore) {
//! let message = Message::new("order.created", "book");
//! let _ = store.enqueue_in(store.pool(), Enqueue::pending(&[message])).await;
//! # }
//! ```
//!
//! # What to know about SQLite
//!
//! - There is one writer at a time, in all processes together. The store writes in short transactions through one
//!   connection of its own and waits up to 10 s for others; keep your own write transactions short too.
//! - Begin your own with `begin_with("BEGIN IMMEDIATE")`. A plain `begin` that reads first and writes later fails at once
//!   when another writer came in between ([`ErrorKind::Conflict`](pillarbox_core::ErrorKind::Conflict)).
//! - After some errors (full disk, I/O) SQLite rolls a transaction back by itself, and what follows would be committed
//!   statement by statement. Enqueueing notices and refuses.
//! - Commits are durable (`synchronous = FULL`) unless you choose otherwise, see [`SqliteStore::connect_options`].
//! - Time is SQLite's, in whole milliseconds, and never goes back: the latest time acted upon is kept in a row.
//!
//! # Map
//!
//! `store` has the handle and its own transactions, `transaction` those that it begins for its user, `lease` the leases of many
//! rows at once, `enqueue`, `outbox`, `admin`, `inbox`, `instance` and `migrate` fill the other seams of [`pillarbox_core`], `sql` renders the statements of `sql/*.sql`, `row` reads
//! their answers, `error` knows SQLite's codes.

mod admin;
#[cfg(feature = "sea-orm")]
mod clients;
mod diagnosis;
mod directory;
mod enqueue;
mod error;
mod inbox;
mod instance;
mod lease;
mod migrate;
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
pub use inbox::SqliteInbox;
pub use store::SqliteStore;
pub use transaction::SqliteTransaction;
