//! The conformance suite, the memory store and helpers for tests of Pillarbox.
pub mod harness;

pub use harness::Harness;
