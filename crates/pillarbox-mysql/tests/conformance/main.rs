//! The behaviours of the suite, on a MySQL or MariaDB server of one's own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod encryption_hazards;
mod harness;
mod hazards;
mod inbox_hazards;
mod order_hazards;
mod plain_sql_hazards;
mod transaction_hazards;

use harness::MysqlHarness;

pillarbox_testing::conformance!(MysqlHarness);
