//! The runtime on the memory store, and the acceptance scenarios on every backend.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod acceptance;
mod coordinator;
mod crowd;
mod dispatch;
mod fleet;
mod hot_path;
mod inbox;
mod inline;
mod instances;
mod intake;
mod leases;
mod obedience;
mod order;
mod outage;
mod partitions;
mod pauses;
mod poller;
mod relay;
mod settle;
mod shutdown;
mod support;
#[path = "../../src/telemetry/tally.rs"]
mod tally;
mod telemetry;
mod transactional;
#[path = "../../src/telemetry/witness.rs"]
mod witness;
