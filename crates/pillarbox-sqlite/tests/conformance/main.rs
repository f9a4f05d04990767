//! The suite on SQLite, and what only SQLite can do to a message.
#![expect(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests, not their helpers")]

mod clock_hazards;
mod harness;
mod hazards;
mod inbox_hazards;
mod plain_sql_hazards;
mod stretch_hazards;
mod transaction_hazards;

use harness::SqliteHarness;

pillarbox_testing::conformance!(SqliteHarness);
