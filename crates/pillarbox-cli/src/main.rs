//! The pillarbox command.
fn main() {}
