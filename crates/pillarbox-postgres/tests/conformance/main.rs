//! PostgreSQL keeps the contract: directly, and through pgbouncer in transaction mode.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod clock_hazards;
mod encryption_hazards;
mod harness;
mod hazards;
mod inbox_hazards;
mod kept_hazards;
mod line_hazards;
mod plain_sql_hazards;
mod stretch_hazards;
mod transaction_hazards;
#[path = "../../../pillarbox/src/telemetry/witness.rs"]
mod witness;

pillarbox_testing::conformance!(crate::harness::PostgresHarness);

/// H7: the whole suite through a pooler that hands every transaction to another server connection.
mod through_pgbouncer {
    pillarbox_testing::conformance!(crate::harness::PostgresHarness<crate::harness::Pooler>);
}
