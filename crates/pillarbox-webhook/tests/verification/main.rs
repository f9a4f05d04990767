//! The schemes as pure functions: headers, bytes and a time go in, a verdict comes out.

mod fuzz;
mod github;
mod properties;
mod standard;
mod stripe;
mod support;
