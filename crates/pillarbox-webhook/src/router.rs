//! The routes put together into a router that can be mounted anywhere.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use pillarbox_core::{Invalid, Limits, Problem};
use tokio::sync::Semaphore;

use crate::accept::Accept;
use crate::body::Intake;
use crate::endpoint::{Clock, Endpoint, Shared};
use crate::route::Route;

/// Characters of a source: its topic must have room for a type.
const SOURCE_CHARS_MAX: usize = 100;

/// Receives webhooks: verifies the raw bytes, then reads them, then has them stored, then answers.
///
/// See the [crate's page](crate) for an example and for what the answers mean.
pub struct Webhooks {
    acceptor: Arc<dyn Accept>,
    routes: Vec<(String, Route)>,
    body_limit: usize,
    read_timeout: Duration,
    memory_limit: usize,
    retry_after: Duration,
    clock: Clock,
}

impl Webhooks {
    /// A receiver without routes, in front of this acceptor.
    pub fn new(acceptor: impl Accept) -> Self {
        Self {
            acceptor: Arc::new(acceptor),
            routes: Vec::new(),
            body_limit: 1024 * 1024,
            read_timeout: Duration::from_secs(10),
            memory_limit: 64 * 1024 * 1024,
            retry_after: Duration::from_secs(10),
            clock: Arc::new(SystemTime::now),
        }
    }

    /// Receives `POST /<source>`. The source names the sender in the inbox; letters, digits, `-`, `_` and `.`.
    #[must_use]
    pub fn route(mut self, source: impl Into<String>, route: impl Into<Route>) -> Self {
        self.routes.push((source.into(), route.into()));
        self
    }

    /// The largest body in bytes; 1 MiB unless set. A store has a limit of its own, 1 MiB unless set there.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// How long a whole body may take to arrive; 10 seconds unless set.
    #[must_use]
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }

    /// The bytes that all bodies together may occupy until they are stored; 64 MiB unless set. More is put off with 503.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// When senders are asked to come again after 503; 10 seconds unless set.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = delay;
        self
    }

    /// Reads the time from here instead of the system's clock; for tests.
    #[must_use]
    pub fn clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(now);
        self
    }

    /// Checks everything that was set, reports everything that is wrong, and makes the router.
    ///
    /// It has one route per source and no fallback, so that it can be nested or merged into any other.
    pub fn into_router(self) -> Result<Router, Invalid> {
        Invalid::unless_empty(self.problems())?;
        let shared = Arc::new(Shared {
            acceptor: self.acceptor,
            intake: Intake {
                limit: self.body_limit,
                timeout: self.read_timeout,
                memory: Arc::new(Semaphore::new(self.memory_limit)),
            },
            retry_after: self.retry_after,
            clock: self.clock,
        });
        let mut router = Router::new();
        for (source, route) in self.routes {
            let path = format!("/{source}");
            let endpoint = Arc::new(Endpoint { source, route, shared: Arc::clone(&shared) });
            let answer = move |request: Request| {
                let endpoint = Arc::clone(&endpoint);
                async move { endpoint.answer(request).await }
            };
            router = router.route(&path, any(answer));
        }
        Ok(router)
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.routes.is_empty() {
            problems.push(Problem::empty("routes"));
        }
        let mut seen = HashSet::new();
        for (source, route) in &self.routes {
            report_source(source, &mut problems);
            if !seen.insert(source) {
                problems.push(Problem::malformed("source", format!("must not be there twice: {source:?}")));
            }
            route.report(&mut problems);
        }
        let ceiling = Limits::PAYLOAD_BYTES_CEILING;
        if !(1..=ceiling).contains(&self.body_limit) {
            problems.push(Problem::out_of_range("body_limit", ceiling as u64, format!("must be 1 to {ceiling} bytes")));
        }
        if !(self.body_limit..=Semaphore::MAX_PERMITS).contains(&self.memory_limit) {
            let complaint = "must have room for one body at least";
            problems.push(Problem::out_of_range("memory_limit", self.body_limit as u64, complaint));
        }
        if self.read_timeout.is_zero() {
            problems.push(Problem::out_of_range("read_timeout", 1, "must not be zero"));
        }
        problems
    }
}

fn report_source(source: &str, problems: &mut Vec<Problem>) {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    if source.is_empty() {
        problems.push(Problem::empty("source"));
    } else if source.len() > SOURCE_CHARS_MAX {
        problems.push(Problem::too_long("source", SOURCE_CHARS_MAX, source.chars().count()));
    } else if !source.chars().all(is_plain) || source.chars().all(|character| character == '.') {
        problems.push(Problem::malformed("source", "must consist of letters, digits, '-', '_' and '.'"));
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes: BTreeMap<_, _> = self.routes.iter().map(|(source, route)| (source, route)).collect();
        f.debug_struct("Webhooks")
            .field("routes", &routes)
            .field("body_limit", &self.body_limit)
            .finish_non_exhaustive()
    }
}
