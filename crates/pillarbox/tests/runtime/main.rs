//! The runtime on the memory store, and the acceptance scenarios on every backend.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod acceptance;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod commit;
mod coordinator;
mod counts;
mod crowd;
mod dispatch;
mod expiry;
mod fleet;
mod hot_path;
mod inbox;
mod inline;
mod instances;
mod intake;
mod leases;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod link;
mod obedience;
mod order;
mod outage;
mod partitions;
mod pauses;
mod poller;
mod relay;
mod runs;
mod settle;
mod shutdown;
mod support;
#[path = "../../src/telemetry/tally.rs"]
mod tally;
mod telemetry;
mod transactional;
#[path = "../../src/telemetry/witness.rs"]
mod witness;
