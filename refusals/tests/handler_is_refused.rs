//! What is no handler does not compile, and the compiler says what to write instead.
//!
//! `TRYBUILD=overwrite cargo test -p refusals --test handler_is_refused` writes the expected texts anew.

#[test]
fn what_is_no_handler_is_refused_with_advice() {
    trybuild::TestCases::new().compile_fail("tests/handler_is_refused/*.rs");
}
