//! MySQL and MariaDB backend of Pillarbox.
//!
//! MariaDB from 10.6 and MySQL from 8.0.19. The tests run on MariaDB.
//!
//! ```no_run
//! use pillarbox_core::store::{Enqueue, StoreOptions};
//! use pillarbox_core::{EnqueueIn as _, Message};
//! use pillarbox_mysql::MysqlStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MysqlStore::connect("mysql://shop:secret@localhost/shop", StoreOptions::default()).await?;
//! let mut tx = store.pool().begin().await?;
//! sqlx::query("INSERT INTO orders (customer) VALUES (7)").execute(&mut *tx).await?;
//! store.enqueue_in(&mut tx, Enqueue::pending(&[Message::new("order.created", "7")])).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A pool is refused by the compiler: it would commit the message alone.
//!
//! ```compile_fail
//! # use pillarbox_core::store::Enqueue;
//! # use pillarbox_core::{EnqueueIn as _, Message};
//! # async fn example(store: pillarbox_mysql::MysqlStore) {
//! let pool = store.pool().clone();
//! store.enqueue_in(&pool, Enqueue::pending(&[Message::new("order.created", "7")])).await.unwrap();
//! # }
//! ```
//!
//! # What the server does that others do not
//!
//! - After a deadlock (1213) the server has rolled back the whole transaction, and what follows would be committed statement
//!   by statement. An enqueue notices and refuses. After a lock wait timeout (1205) only the statement is undone; the
//!   transaction goes on.
//! - Under REPEATABLE READ a message that was settled after the transaction took its snapshot is not recognised as known
//!   when it is enqueued again: reading past the snapshot would take locks that hold up every settlement. Under READ COMMITTED
//!   it is always recognised.
//! - The routines `pillarbox_outbox_enqueue`, `_claim`, `_ack`, `_abandon`, `_fail` and `_reap` serve other languages; see
//!   `migrations/0002_outbox_routines.sql`.
//! - The store's own transactions are READ COMMITTED, which needs `binlog_format` ROW or MIXED.
//!
//! In reading order: `store` (the handle), `enqueue`, `transaction`, `prepare`, `outbox`, `inbox`, `instance`, `admin`,
//! `migrate`, `row`, `sql`, `error`.

mod admin;
#[cfg(any(feature = "diesel-async", feature = "sea-orm"))]
mod clients;
mod diagnosis;
mod directory;
mod enqueue;
mod error;
mod inbox;
mod instance;
mod migrate;
mod outbox;
mod parameters;
mod pause;
mod prepare;
mod progress;
mod row;
mod sql;
mod store;
mod transaction;
mod work;

pub use directory::read_texts;
pub use inbox::MysqlInbox;
pub use store::MysqlStore;
pub use transaction::MysqlTransaction;
