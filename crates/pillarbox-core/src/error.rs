//! What can go wrong with a store, sorted by what the caller should do.

use std::{fmt, io};

use crate::problem::{Invalid, Problem};

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Wait and try again: the database is away, full, overloaded or starting.
    Unavailable,
    /// Try again at once: another session was faster, and retries inside the store were used up.
    Conflict,
    /// Do not try again unchanged: bad arguments, missing tables, missing rights.
    Rejected,
}

/// An error of a store. It never carries a payload, a header or a secret.
///
/// Drivers put failing rows into the details of their errors; backends therefore keep the vendor's code and
/// our own words, not the driver's error.
#[derive(Debug)]
pub struct StoreError {
    kind: ErrorKind,
    what: String,
    code: Option<String>,
    invalid: Option<Invalid>,
}

impl StoreError {
    /// The database cannot serve now.
    pub fn unavailable(what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Unavailable, what: what.into(), code: None, invalid: None }
    }

    /// Another session was faster.
    pub fn conflict(what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Conflict, what: what.into(), code: None, invalid: None }
    }

    /// The call can never succeed as it is.
    pub fn rejected(what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Rejected, what: what.into(), code: None, invalid: None }
    }

    /// No connection to a database server came about, or it broke.
    pub fn unreachable(kind: io::ErrorKind) -> Self {
        match kind {
            // How TLS says that it refuses a certificate; a plain connection never says this.
            io::ErrorKind::InvalidData => Self::unencrypted(
                "the server's certificate is not trusted for this address; check root certificate and host name",
            ),
            io::ErrorKind::NotFound => Self::unavailable(
                "the database cannot be reached: its socket, or a certificate file that the address names, does not exist",
            ),
            kind => Self::unavailable(format!("the database cannot be reached: {}", advice(kind))),
        }
    }

    /// The address demands encryption, and there is none: nothing falls back to plain text.
    ///
    /// Worth waiting for: an operator may renew the certificate, or the next server after a failover may have one.
    pub fn unencrypted(why: &str) -> Self {
        Self::unavailable(format!("no encrypted connection to the database could be made: {why}"))
    }

    /// Adds the vendor's code for the error.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        self.kind != ErrorKind::Rejected
    }

    /// The vendor's code, such as an SQLSTATE.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// What is wrong with the arguments, when that is what it was.
    pub fn problems(&self) -> &[Problem] {
        self.invalid.as_ref().map_or(&[], Invalid::problems)
    }
}

impl From<Invalid> for StoreError {
    fn from(invalid: Invalid) -> Self {
        Self { kind: ErrorKind::Rejected, what: invalid.to_string(), code: None, invalid: Some(invalid) }
    }
}

impl From<Problem> for StoreError {
    fn from(problem: Problem) -> Self {
        Invalid::from(problem).into()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.code {
            Some(code) => write!(f, " ({code})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for StoreError {}

/// What may be the cause, and what to look at.
fn advice(kind: io::ErrorKind) -> String {
    match kind {
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there; check host and port, and whether the server runs".to_owned()
        }
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            format!("{kind}; check host, port and firewall")
        }
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::UnexpectedEof => {
            format!("{kind}; the server, or something before it, ended the connection")
        }
        // The resolver's failures have no kind of their own.
        kind => format!("{kind}; check that the host's name is right and known here"),
    }
}
