//! The behaviours that make a backend a Pillarbox store: each one claim, proved on a store of its own.
//!
//! A doc line ends with the requirements and hazards that the behaviour proves. Time never passes by itself here: leases
//! and delays are minutes and hours, and [`Harness::advance`](crate::Harness::advance) moves the clock.

pub mod admin;
pub mod again;
pub mod born_leased;
pub mod cancellation;
pub mod claim;
pub mod coordinator;
pub mod coordinator_progress;
pub mod data;
pub mod detached;
pub mod enqueue;
pub mod exchange;
pub mod guard;
pub mod in_transaction;
pub mod in_transaction_races;
pub mod inbox;
pub mod inbox_again;
pub mod inbox_cancellation;
pub mod inbox_consume;
pub mod inbox_keep;
pub mod inbox_queue;
pub mod inbox_receive;
mod inbox_walk;
pub mod inbox_walks;
pub mod instances;
pub mod isolation;
pub mod lease;
pub mod left_out;
pub mod limits;
pub mod order;
pub mod order_again;
pub mod order_races;
pub mod owned;
pub mod partitions;
pub mod pauses;
pub mod races;
pub mod reap;
pub mod replay;
pub mod replay_done;
pub mod rescan;
pub mod retention;
pub mod savepoints;
pub mod schema;
pub mod settle;
mod support;
pub mod together;
pub mod transaction;
pub mod wakeups;
mod walk;
pub mod walks;
