//! The router behind a real listener, spoken to over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod answers;
mod bounds;
mod connections;
mod exchange;
mod heads;
mod logs;
mod messages;
mod server;
mod shutdown;
#[cfg(target_os = "linux")]
mod siege;
