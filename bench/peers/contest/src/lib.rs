//! What the contestants in Rust share. The protocol is described in `bench/peers/README.md`.
//!
//! A contestant implements [`Contestant`] and ends its `main` with [`serve`]. It names no clock and counts nothing: writers
//! are called when it is time, and workers tell [`Progress`] what they do.

mod batches;
mod delays;
mod pace;
mod payload;
mod progress;
mod recent;
mod serve;
mod work;

use std::future::Future;
use std::sync::Arc;

pub use batches::{Batches, in_batches};
pub use payload::payload;
pub use progress::Progress;
pub use recent::Recent;
pub use serve::serve;

/// Whatever goes wrong is told to the orchestrator as text.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The user's own table, which every business transaction writes to.
pub const BUSINESS_TABLE: &str = "CREATE TABLE business (id bigserial PRIMARY KEY, payload text NOT NULL)";

/// The user's own row: every business transaction begins with it.
pub const BUSINESS_INSERT: &str = "INSERT INTO business (payload) VALUES ($1)";

/// What is written into the user's own table.
pub const BUSINESS_PAYLOAD: &str = "an order of two books";

/// Empties the user's own table.
pub const BUSINESS_CLEAR: &str = "TRUNCATE business";

/// The address of an empty database of the contestant's own.
///
/// # Errors
///
/// When the program was not started by the orchestrator.
pub fn database_url() -> Result<String> {
    Ok(std::env::var("CONTEST_DATABASE_URL").map_err(|_| "CONTEST_DATABASE_URL is not set")?)
}

/// What a contestant says of itself.
#[derive(Clone, Debug)]
pub struct About {
    /// Its name.
    pub name: String,
    /// The version that was installed.
    pub version: String,
    /// What it is written in.
    pub language: String,
    /// Everything that differs from its defaults.
    pub settings: String,
}

/// One library or program in the contest.
pub trait Contestant: Send + Sync + 'static {
    /// One connection of a writer.
    type Writer: Writer;
    /// Workers that run until they are stopped.
    type Workers: Workers;

    /// Name, version and settings.
    fn about(&self) -> About;

    /// Drops and makes all tables, also [`BUSINESS_TABLE`].
    fn prepare(&self) -> impl Future<Output = Result<()>> + Send;

    /// Empties all tables, also with [`BUSINESS_CLEAR`].
    fn clear(&self) -> impl Future<Output = Result<()>> + Send;

    /// Puts so many messages in, in the fastest way there is; [`payload`] makes the n-th.
    fn fill(&self, count: u64) -> impl Future<Output = Result<()>> + Send;

    /// Opens a connection for one writer. Called after the workers' start where there are workers.
    fn writer(&self) -> impl Future<Output = Result<Self::Writer>> + Send;

    /// Starts the workers. Their handlers call [`Progress::handle`] and do nothing else.
    fn start(&self, progress: Arc<Progress>) -> impl Future<Output = Result<Self::Workers>> + Send;
}

/// One connection that runs business transactions.
pub trait Writer: Send + 'static {
    /// Begin, [`BUSINESS_INSERT`] with [`BUSINESS_PAYLOAD`], enqueue all payloads in the same transaction, commit. Returns
    /// as soon as the commit does.
    fn write(&mut self, payloads: Vec<String>) -> impl Future<Output = Result<()>> + Send;
}

/// Running workers.
pub trait Workers: Send + Sync + 'static {
    /// How many of the messages that were handled since the start are settled in the database: gone or marked. Asked every
    /// few milliseconds once enough are handled, so it may ask the database, but not for long.
    fn settled(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Ends them. Nothing may touch the tables afterwards.
    fn stop(self) -> impl Future<Output = Result<()>> + Send;
}
