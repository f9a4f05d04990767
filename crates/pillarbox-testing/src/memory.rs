//! The memory store: reference model of the contract, and a double for users' tests.
//!
//! Plain data under one lock, and no cleverness: every rule stands here once, so that a backend can be compared with it.
//! Its clock stands still except for one millisecond per call, and goes where [`MemoryDatabase::advance`] sends it.
//!
//! ```
//! use std::time::Duration;
//! use pillarbox_core::lease::Claim;
//! use pillarbox_core::store::{Enqueue, EnqueueIn, OutboxStore, StoreOptions};
//! use pillarbox_core::{Message, OwnerToken};
//! use pillarbox_testing::MemoryStore;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let store = MemoryStore::new(StoreOptions::default());
//! let mut tx = store.database().begin();
//! store.enqueue_in(&mut tx, Enqueue::pending(&[Message::new("greeting", "hello")])).await?;
//! tx.commit();
//!
//! let claim = Claim::new(OwnerToken::new(), Duration::from_secs(30), 10)?;
//! assert_eq!(store.claim(claim).await?.len(), 1);
//! # Ok::<(), pillarbox_core::StoreError>(())
//! # }).unwrap();
//! ```

mod admin;
mod database;
mod harness;
mod inbox;
mod instance;
mod ledger;
mod locks;
mod order;
mod outbox;
mod pause;
mod progress;
mod row;
mod staged;
mod store;
mod transaction;
mod work;

pub use database::MemoryDatabase;
pub use harness::MemoryHarness;
pub use inbox::MemoryInbox;
pub use instance::MemoryInstances;
pub use pause::MemoryPauses;
pub use progress::MemoryProgress;
pub use store::MemoryStore;
pub use transaction::MemoryTransaction;
