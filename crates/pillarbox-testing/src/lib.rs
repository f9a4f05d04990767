//! The conformance suite, the memory store and helpers for tests of Pillarbox.
//!
//! # A store for your own tests
//!
//! [`MemoryStore`] is a whole outbox in memory, with a clock that stands until you [`advance`](MemoryDatabase::advance) it.
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
//! replays it. `PILLARBOX_WALKS=<n>` sets how many walks each of the ten shards takes.
//!
//! The suite never sleeps and never asserts how long something takes. It expects the database's clock to differ from the
//! last `advance` by less than a minute within one behaviour, and that a store's reads do not wait for an open transaction.

pub mod conformance;
pub mod harness;
pub mod memory;
pub mod suite;

pub use conformance::run;
pub use harness::{Harness, StoreTx};
pub use memory::{MemoryDatabase, MemoryHarness, MemoryStore, MemoryTransaction};
