//! The router behind a real listener, spoken to over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod answers;
mod bounds;
mod exchange;
mod logs;
mod messages;
mod server;
