//! The schemes as pure functions: headers, bytes and a time go in, a verdict comes out.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fuzz;
mod github;
mod properties;
mod standard;
mod stripe;
mod support;
mod timing;
