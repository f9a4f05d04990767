//! The conformance suite, the memory store and helpers for tests of Pillarbox.
pub mod conformance;
pub mod harness;
pub mod memory;
pub mod suite;

pub use conformance::run;
pub use harness::Harness;
pub use memory::{MemoryDatabase, MemoryHarness, MemoryStore, MemoryTransaction};
