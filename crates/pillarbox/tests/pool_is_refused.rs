//! HOT-01: passing a pool instead of a transaction does not compile, and the compiler says why and what to pass instead.
//!
//! The expected texts list the implementors of all backends, so this runs with all features, as the whole workspace is
//! tested. `TRYBUILD=overwrite cargo test -p pillarbox --all-features --test pool_is_refused` writes them anew.

#[test]
fn a_pool_is_no_transaction() {
    trybuild::TestCases::new().compile_fail("tests/pool_is_refused/*.rs");
}
