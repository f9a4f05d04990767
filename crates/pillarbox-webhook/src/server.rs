//! A server whose memory and patience are bounded, whoever connects to it.

mod connection;
mod guest;
mod house;
mod stage;
mod waiting;
mod wire;

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use pillarbox_core::{Invalid, Problem};

use house::House;
use stage::Patience;

/// Far below the 1,024 files that a process may open on most systems, and about 10 MB when all of them are taken.
const CONNECTIONS: usize = 256;
/// What hyper keeps for a connection in any case: a larger head costs memory, and no webhook needs one.
const HEADER_BYTES: usize = 8 * 1024;
const HEADER_BYTES_CEILING: usize = 1024 * 1024;
const HEADER_COUNT: usize = 100;
const HEADER_COUNT_CEILING: usize = 10_000;
const TIMEOUT_CEILING: Duration = Duration::from_secs(24 * 60 * 60);

/// The smallest buffer that hyper reads into; smaller limits are kept all the same.
const BUFFER_BYTES_MIN: usize = 8192;

/// Serves a router over HTTP/1.1 to strangers: connections, heads and waiting are bounded.
///
/// ```no_run
/// # async fn example(router: axum::Router) -> Result<(), Box<dyn std::error::Error>> {
/// use pillarbox_webhook::Server;
///
/// let listener = tokio::net::TcpListener::bind("0.0.0.0:3000").await?;
/// Server::new(router).serve(listener).await?;
/// # Ok(())
/// # }
/// ```
///
/// # When all connections are taken
///
/// A new connection then waits until another one ends. As soon as the one that has waited longest for its client has
/// done so for [`grace`](Self::grace), it is closed to make room: it may wait for the rest of a head, for the rest of a
/// body, for its answer to be taken, or for another request. A wait begins with the connection, with the first byte of a
/// request, or with an answer; a byte now and then does not prolong it. A connection whose request has come in as a
/// whole is never closed for another.
///
/// To leave newcomers with the kernel would be simpler, but a few hundred clients that send nothing could lock out
/// everybody, over and over again. To close the longest waiting at once would let a burst of honest clients close each
/// other's connections before their requests were read. With a grace, a request that comes within it is always served,
/// and slow clients cost the others no more than the grace: about 1,000 of them are shown out in a second, by default.
///
/// A sender whose connection was closed has no answer, and sends again.
///
/// # What it leaves to others
///
/// - Bodies are the router's: see [`Webhooks::body_limit`](crate::Webhooks::body_limit) and its neighbours.
/// - Encryption is the listener's, or a proxy's.
/// - The kernel's line of those who are not let in yet is the listener's, too: 128 long when it comes from
///   `TcpListener::bind`, and as long as you like from `TcpSocket::listen`. Who finds no place there comes again
///   a second later.
/// - A listener that cannot accept, because the process has too many files open, waits and tries again.
///   [`connections`](Self::connections) should be well below that limit.
///
/// There are no upgrades, and an answer that pauses for longer than [`idle_timeout`](Self::idle_timeout) is cut off.
pub struct Server {
    router: Router,
    connections: usize,
    header_bytes: usize,
    header_count: usize,
    header_timeout: Duration,
    idle_timeout: Duration,
    grace: Duration,
    drain_timeout: Duration,
    until: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Server {
    /// A server with the limits that are named below, which ends when it is dropped.
    pub fn new(router: Router) -> Self {
        Self {
            router,
            connections: CONNECTIONS,
            header_bytes: HEADER_BYTES,
            header_count: HEADER_COUNT,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            grace: Duration::from_millis(250),
            drain_timeout: Duration::from_secs(30),
            until: Box::pin(pending()),
        }
    }

    /// How many connections may be open at once; 256 unless set. Together they take about 10 MB, beside their
    /// bodies and unless [`header_bytes`](Self::header_bytes) is raised.
    #[must_use]
    pub fn connections(mut self, count: usize) -> Self {
        self.connections = count;
        self
    }

    /// The largest head of a request, with its first line; 8 KiB unless set. More is answered with 431.
    #[must_use]
    pub fn header_bytes(mut self, bytes: usize) -> Self {
        self.header_bytes = bytes;
        self
    }

    /// The largest number of headers; 100 unless set. More are answered with 431.
    #[must_use]
    pub fn header_count(mut self, count: usize) -> Self {
        self.header_count = count;
        self
    }

    /// How long a whole head may take to arrive; 10 seconds unless set. Then the connection is closed.
    #[must_use]
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// How long a connection may be silent after a request, while its answer is taken and until the next one begins;
    /// 60 seconds unless set.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// How long a client may keep its connection waiting while all are taken and others wait for one;
    /// 250 milliseconds unless set.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long requests that have begun may take once the server is to end; 30 seconds unless set. Then they are cut
    /// off.
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// Serves until this completes. Then nobody new is let in, who has not sent a whole head is let go, and the others
    /// are answered.
    #[must_use]
    pub fn until(mut self, shutdown: impl Future<Output = ()> + Send + 'static) -> Self {
        self.until = Box::pin(shutdown);
        self
    }

    /// Checks everything that was set, reports everything that is wrong, and serves.
    ///
    /// Returns once the server has ended, and never without [`until`](Self::until).
    pub async fn serve<L: Listener>(self, listener: L) -> Result<(), Invalid> {
        Invalid::unless_empty(self.problems())?;
        let patience = Patience { header: self.header_timeout, idle: self.idle_timeout, grace: self.grace };
        let mut house = House::new(self.http(), self.router, patience, self.connections);
        tokio::select! {
            () = self.until => {}
            () = house.welcome(listener) => {}
        }
        house.drain(self.drain_timeout).await;
        Ok(())
    }

    fn http(&self) -> http1::Builder {
        let mut http = http1::Builder::new();
        // Who has sent everything may say so, and is answered nevertheless.
        http.half_close(true);
        http.max_headers(self.header_count).max_header_size(self.header_bytes);
        http.max_buf_size(self.header_bytes.max(BUFFER_BYTES_MIN));
        // The stages of a connection have their own clock, which also covers answers and pauses.
        http.header_read_timeout(None);
        http
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (field, value, ceiling) in [
            ("connections", self.connections, usize::MAX),
            ("header_bytes", self.header_bytes, HEADER_BYTES_CEILING),
            ("header_count", self.header_count, HEADER_COUNT_CEILING),
        ] {
            if value == 0 {
                problems.push(Problem::out_of_range(field, 1, "must not be zero"));
            } else if value > ceiling {
                problems.push(Problem::out_of_range(field, ceiling as u64, format!("must be at most {ceiling}")));
            }
        }
        for (field, timeout) in [
            ("header_timeout", self.header_timeout),
            ("idle_timeout", self.idle_timeout),
            ("grace", self.grace),
            ("drain_timeout", self.drain_timeout),
        ] {
            let ceiling = TIMEOUT_CEILING.as_secs();
            if timeout.is_zero() {
                problems.push(Problem::out_of_range(field, 1, "must not be zero"));
            } else if timeout > TIMEOUT_CEILING {
                problems.push(Problem::out_of_range(field, ceiling, format!("must be at most {ceiling} seconds")));
            }
        }
        problems
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("connections", &self.connections)
            .field("header_bytes", &self.header_bytes)
            .field("header_count", &self.header_count)
            .field("header_timeout", &self.header_timeout)
            .field("idle_timeout", &self.idle_timeout)
            .field("grace", &self.grace)
            .field("drain_timeout", &self.drain_timeout)
            .finish_non_exhaustive()
    }
}
