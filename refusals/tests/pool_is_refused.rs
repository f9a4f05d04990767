//! HOT-01: passing a pool instead of a transaction does not compile, and the compiler says why and what to pass instead.
//!
//! The expected texts list the implementors of all backends, without the clients of others.
//! `TRYBUILD=overwrite cargo test -p refusals --test pool_is_refused` writes them anew.

#[test]
fn a_pool_is_no_transaction() {
    trybuild::TestCases::new().compile_fail("tests/pool_is_refused/*.rs");
}
