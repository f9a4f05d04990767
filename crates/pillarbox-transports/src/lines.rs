//! Lines of JSON, in files or on standard output: for logs, for `jq`, for a first look.
//!
//! A destination is a file below a directory, such as `orders.jsonl` or `acme/orders.jsonl`, or `-` for standard output;
//! without a directory everything goes to standard output.
//!
//! ```
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path();
//! use pillarbox_transports::lines::{Lines, LinesOptions};
//!
//! let lines = Lines::new(LinesOptions::new().directory(directory).sync(true))?;
//! # Ok::<(), pillarbox_core::Invalid>(())
//! ```
//!
//! One line has `id`, `topic`, whichever of `key`, `type`, `aggregate_type`, `aggregate_id`, `tenant`, `correlation_id`,
//! `causation_id`, `occurred_at` and `content_type` there are, `headers`, and `payload` where it is text, or else
//! `payload_base64`. As a structured CloudEvent, a line is that event; headers other than the trace context have no place in it.
//!
//! The lines of a batch are appended with one write. A line that a crash has cut off is ended by the next one; its message
//! was not delivered, and comes again. Files can be moved or removed at any time: each batch opens them anew.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use pillarbox_core::{Delivery, DeliveryResult, Invalid, Parcel, Problem, Transport, Undelivered, WireFormat};

use crate::checks;
use place::Place;

mod line;
mod place;
#[cfg(test)]
mod tests;

/// Where lines go, and how. Nothing is checked before [`Lines::new`].
#[derive(Clone, Debug)]
pub struct LinesOptions {
    directory: Option<PathBuf>,
    is_synced: bool,
    format: WireFormat,
    timeout: Duration,
}

impl Default for LinesOptions {
    fn default() -> Self {
        Self { directory: None, is_synced: false, format: WireFormat::Plain, timeout: Duration::from_secs(10) }
    }
}

impl LinesOptions {
    /// Standard output, and nothing else.
    pub fn new() -> Self {
        Self::default()
    }

    /// The directory below which files are written. It must be there; directories below it are made.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Whether lines must be on the disk, and not just with the operating system, before they count as delivered.
    #[must_use]
    pub fn sync(mut self, is_synced: bool) -> Self {
        self.is_synced = is_synced;
        self
    }

    /// Plain or as structured CloudEvents. A line has no headers beside it, so that binary ones have no place here.
    #[must_use]
    pub fn format(mut self, format: WireFormat) -> Self {
        self.format = format;
        self
    }

    /// How long a call may take; 10 seconds unless set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// The way into files and onto standard output.
#[derive(Debug)]
pub struct Lines {
    options: LinesOptions,
    /// Held while something is written, so that the writes of two calls do not mingle.
    turn: Arc<Mutex<()>>,
}

impl Lines {
    /// With settings, which are checked here. No file is touched.
    pub fn new(options: LinesOptions) -> Result<Self, Invalid> {
        let mut problems = Vec::new();
        checks::time("timeout", options.timeout, &mut problems);
        if options.directory.as_ref().is_some_and(|directory| directory.as_os_str().is_empty()) {
            problems.push(Problem::empty("directory"));
        }
        if matches!(options.format, WireFormat::CloudEventsBinary { .. }) {
            problems.push(Problem::malformed("format", "must be plain or structured: a line has no headers beside it"));
        }
        Invalid::unless_empty(problems)?;
        Ok(Self { options, turn: Arc::default() })
    }

    /// Runs what may block on a thread for it, no longer than the time limit. What is late may still be written.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Undelivered> {
        match tokio::time::timeout(self.options.timeout, tokio::task::spawn_blocking(work)).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) => Err(Undelivered::unavailable("the writer has ended")),
            Err(_) => Err(Undelivered::unavailable(format!("nothing was written within {:?}", self.options.timeout))),
        }
    }
}

#[async_trait]
impl Transport for Lines {
    fn kind(&self) -> &'static str {
        "lines"
    }

    async fn deliver(&self, parcels: &[Parcel<'_>]) -> Vec<DeliveryResult> {
        let mut places: BTreeMap<Place, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
        let mut results = vec![Ok(Delivery::Taken); parcels.len()];
        for (at, parcel) in parcels.iter().enumerate() {
            match Place::find(self.options.directory.as_deref(), &parcel.destination) {
                Ok(place) => {
                    let (members, text) = places.entry(place).or_default();
                    members.push(at);
                    line::append(parcel.message, &self.options.format, text);
                }
                Err(misplaced) => results[at] = Err(Undelivered::rejected(misplaced)),
            }
        }
        let (members, texts): (Vec<_>, Vec<_>) =
            places.into_iter().map(|(place, (members, text))| (members, (place, text))).unzip();
        let (turn, is_synced) = (Arc::clone(&self.turn), self.options.is_synced);
        let written = self.run(move || {
            let _turn = turn.lock();
            texts.into_iter().map(|(place, text)| place.write(&text, is_synced)).collect::<Vec<_>>()
        });
        let written = match written.await {
            Ok(written) => written,
            Err(late) => vec![Err(late); members.len()],
        };
        for (members, written) in members.into_iter().zip(written) {
            for at in members {
                results[at] = written.clone().map(|()| Delivery::Taken);
            }
        }
        results
    }

    async fn probe(&self) -> Result<(), Undelivered> {
        let Some(directory) = self.options.directory.clone() else { return Ok(()) };
        let found = self.run(move || place::probe(&directory)).await?;
        found.map_err(Undelivered::unavailable)
    }
}
