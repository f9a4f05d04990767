//! The memory store passes the suite that it is the reference of.

use pillarbox_testing::MemoryHarness;

pillarbox_testing::conformance!(MemoryHarness);
