//! A test double for users, and the conformance suite and memory store behind it.
//!
//! # In your own tests
//!
//! [`memory`] is an outbox without a database. It remembers what was enqueued, runs your handlers when you say so, and its
//! time is yours:
//!
//! ```
//! use std::time::Duration;
//! use pillarbox::prelude::*;
//! use pillarbox_testing::{assert_enqueued, assert_not_enqueued};
//!
//! #[derive(Serialize, Deserialize)]
//! struct OrderCreated { id: i64, total_cents: i64 }
//! impl Event for OrderCreated { const TOPIC: &str = "order.created"; }
//!
//! // Yours, and the same on every database.
//! async fn place_order<S: pillarbox::Transactional>(outbox: &Outbox<S>, id: i64) -> Result<(), Failure> {
//!     let mut tx = outbox.begin().await?;
//!     tx.enqueue(OrderCreated { id, total_cents: 999 }).await?;
//!     tx.commit().await?;
//!     Ok(())
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Failure> {
//! let outbox = pillarbox_testing::memory()
//!     .handlers(|runtime| runtime.on(async |_: Payload<OrderCreated>, attempt: Attempt| match attempt.0 {
//!         1 => Handled::retry_after(Duration::from_secs(60), "the mail server is busy"),
//!         _ => Handled::done(),
//!     }));
//!
//! place_order(&outbox, 1).await?;
//! assert_enqueued!(outbox, OrderCreated { id: 1, .. });
//! assert_not_enqueued!(outbox, topic = "order.cancelled");
//!
//! assert_eq!(outbox.drain().await.retried, 1);
//! outbox.advance(Duration::from_secs(60));
//! assert_eq!(outbox.drain().await.done, 1);
//! # Ok(())
//! # }
//! ```
//!
//! [`TestOutbox`] says more. [`MemoryStore`] is the store behind it, with a clock that stands until you
//! [`advance`](MemoryDatabase::advance) it.
//!
//! # Proving a backend
//!
//! A database is supported when it passes the suite. To prove your own backend:
//!
//! 1. Implement [`Harness`]: how to open a store on fresh tables, how to begin, commit and roll back a transaction of a
//!    user, and how to let time pass (shift every time in the tables into the past). [`MemoryHarness`] is the smallest one.
//! 2. Add `tests/conformance.rs` with one line:
//!
//! ```no_run
//! use pillarbox_testing::MemoryHarness as MyHarness;
//!
//! pillarbox_testing::conformance!(MyHarness);
//! # fn main() {}
//! ```
//!
//! 3. Run it. Every behaviour is one test, named as a claim: `guard::a_zombie_changes_nothing`. Its doc line, in
//!    [`suite`], says which requirements and hazards it proves.
//!
//! The groups [`suite::races`] and [`suite::cancellation`] use many connections at once. [`suite::walks`] takes 500 seeded
//! random walks of 50 steps and compares every answer with the memory store; a walk that differs prints the command that
//! replays it. `PILLARBOX_WALKS=<n>` sets how many walks each of the ten shards takes. [`suite::inbox_walks`] does the same for
//! the inbox, in four shards.
//!
//! The suite never sleeps and never asserts how long something takes. It expects the database's clock to differ from the
//! last `advance` by less than a minute within one behaviour, and that a store's reads do not wait for an open transaction.

mod assertions;
pub mod conformance;
mod contract;
mod double;
mod encryption;
mod everything;
pub mod harness;
pub mod memory;
mod recorder;
pub mod source;
pub mod station;
pub mod subscription_suite;
pub mod suite;
pub mod transport_suite;
mod trips;

#[doc(hidden)]
pub use assertions::{refuse_matching, refuse_topic, require_matching, require_topic};

pub use conformance::run;
pub use contract::{assert_contract_message, code_blocks, contract_key_hash};
pub use double::{TestOutbox, memory};
pub use encryption::Encryption;
pub use everything::use_everything;
pub use harness::{Harness, StoreTx};
pub use memory::{
    MemoryDatabase, MemoryHarness, MemoryInbox, MemoryInstances, MemoryPauses, MemoryProgress, MemoryStore,
    MemoryTransaction,
};
pub use recorder::Recorder;
pub use trips::{TripCounter, batches_of_every_kind};
