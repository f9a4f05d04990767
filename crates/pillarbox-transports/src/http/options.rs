//! Settings of webhooks, checked before anything is sent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::{Invalid, Problem, WireFormat};
use reqwest::header::{HeaderName, HeaderValue};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use url::Url;
use zeroize::Zeroizing;

use super::guard::Guard;
use super::lookup::{GuardedLookup, Lookup, SystemLookup};
use super::signing::Signer;
use crate::checks;

/// Requests at once, at the most.
const IN_FLIGHT_MAX: usize = 1024;

/// How long a batch may take with its last requests, so that it is over before a lease of the usual 30 seconds is.
const BATCH_TIME: Duration = Duration::from_secs(25);
/// How long requests of a batch are begun at least, however long one of them may take.
const BATCH_TIME_MIN: Duration = Duration::from_secs(5);

/// How webhooks are sent. Nothing is checked before [`Http::new`](super::Http::new).
#[derive(Clone)]
pub struct HttpOptions {
    pub(super) base: Option<String>,
    secrets: Vec<Zeroizing<String>>,
    headers: Vec<(String, Zeroizing<String>)>,
    certificates: Vec<Vec<u8>>,
    guard: Guard,
    lookup: Arc<dyn Lookup>,
    format: WireFormat,
    timeout: Duration,
    connect_timeout: Duration,
    batch_timeout: Option<Duration>,
    delay_max: Duration,
    in_flight_max: usize,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            base: None,
            secrets: Vec::new(),
            headers: Vec::new(),
            certificates: Vec::new(),
            guard: Guard::default(),
            lookup: Arc::new(SystemLookup),
            format: WireFormat::Plain,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            batch_timeout: None,
            delay_max: Duration::from_secs(3600),
            in_flight_max: 16,
        }
    }
}

impl HttpOptions {
    /// The settings that nobody has changed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where destinations begin that are paths. Also the endpoint that is asked whether it is there.
    #[must_use]
    pub fn base(mut self, url: impl Into<String>) -> Self {
        self.base = Some(url.into());
        self
    }

    /// Signs as Standard Webhooks says, with a secret written as base64, `whsec_` before it or not. Called again, every
    /// secret signs: for rotation.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets.push(Zeroizing::new(secret.into()));
        self
    }

    /// A header of every request, such as `authorization`. It is never shown.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), Zeroizing::new(value.into())));
        self
    }

    /// Trusts certificates that these sign, in PEM, besides the well-known ones.
    #[must_use]
    pub fn trust(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.push(pem.into());
        self
    }

    /// Where webhooks may go; the open internet unless set.
    #[must_use]
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// How names are resolved. Whatever it answers, the guard is asked.
    #[must_use]
    pub fn lookup(mut self, lookup: impl Lookup) -> Self {
        self.lookup = Arc::new(lookup);
        self
    }

    /// In which shape messages travel.
    #[must_use]
    pub fn format(mut self, format: WireFormat) -> Self {
        self.format = format;
        self
    }

    /// How long one request may take; 10 seconds unless set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long connecting may take of that; 5 seconds unless set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long requests of one batch are begun. What was not begun by then goes another time and spends no attempt; what was has
    /// its own time. Unless set, so long that both together are over within 25 seconds, but 5 seconds at least.
    #[must_use]
    pub fn batch_timeout(mut self, timeout: Duration) -> Self {
        self.batch_timeout = Some(timeout);
        self
    }

    /// The longest time that an endpoint gets when it asks for some; an hour unless set.
    #[must_use]
    pub fn delay_max(mut self, delay: Duration) -> Self {
        self.delay_max = delay;
        self
    }

    /// Requests of one batch at once; 16 unless set.
    #[must_use]
    pub fn in_flight_max(mut self, count: usize) -> Self {
        self.in_flight_max = count;
        self
    }

    /// Everything that is wrong, or what is sent with.
    pub(super) fn checked(self) -> Result<Checked, Invalid> {
        let mut problems = Vec::new();
        checks::time("timeout", self.timeout, &mut problems);
        checks::time("connect_timeout", self.connect_timeout, &mut problems);
        let batch_timeout = self.batch_timeout.unwrap_or_else(|| batch_time(self.timeout));
        checks::time("batch_timeout", batch_timeout, &mut problems);
        checks::time("delay_max", self.delay_max, &mut problems);
        checks::count("in_flight_max", self.in_flight_max, IN_FLIGHT_MAX, &mut problems);
        let signer = Signer::new(&self.secrets, &mut problems);
        let base = self.base.as_deref().and_then(|text| {
            let url = self.guard.check(text).map_err(|forbidden| Problem::malformed("base", forbidden.to_string()));
            url.map_err(|problem| problems.push(problem)).ok()
        });
        let headers = self.headers.iter().filter_map(|(name, value)| {
            let header = fixed_header(name, value);
            header.map_err(|complaint| problems.push(Problem::malformed("headers", complaint))).ok()
        });
        let headers: Vec<_> = headers.collect();
        let tls = tls(&self.certificates).map_err(|problem| problems.push(problem)).ok();
        Invalid::unless_empty(problems)?;
        let guard = Arc::new(self.guard);
        let lookup = GuardedLookup { guard: Arc::clone(&guard), lookup: self.lookup };
        Ok(Checked {
            base,
            guard,
            lookup,
            signer,
            headers,
            tls: tls.ok_or_else(|| Problem::malformed("trust", "cannot be used"))?,
            format: self.format,
            timeout: self.timeout,
            connect_timeout: self.connect_timeout,
            batch_timeout,
            delay_max: self.delay_max,
            in_flight_max: self.in_flight_max,
        })
    }
}

/// Settings that were found to be right.
pub(super) struct Checked {
    pub(super) base: Option<Url>,
    pub(super) guard: Arc<Guard>,
    pub(super) lookup: GuardedLookup,
    pub(super) signer: Signer,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) tls: ClientConfig,
    pub(super) format: WireFormat,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) batch_timeout: Duration,
    pub(super) delay_max: Duration,
    pub(super) in_flight_max: usize,
}

/// How long requests of a batch are begun, each of which may take so long.
fn batch_time(timeout: Duration) -> Duration {
    BATCH_TIME.saturating_sub(timeout).max(BATCH_TIME_MIN)
}

fn fixed_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "must have names that HTTP allows")?;
    if super::request::is_reserved(name.as_str()) {
        return Err("must not have a name that the protocol uses itself");
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| "must have values of one line")?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Encryption with a provider of its own: the one of the process belongs to the program.
fn tls(certificates: &[Vec<u8>]) -> Result<ClientConfig, Problem> {
    let refused = |_| Problem::malformed("trust", "must be certificates in PEM");
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for pem in certificates {
        let mut count = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots.add(certificate.map_err(|_| refused(()))?).map_err(|_| refused(()))?;
            count += 1;
        }
        if count == 0 {
            return Err(refused(()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Problem::malformed("tls", error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("secret_count", &self.secrets.len())
            .field("header_count", &self.headers.len())
            .field("guard", &self.guard)
            .field("format", &self.format)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H23: a batch and its last requests are over before a usual lease is, as far as the time of one request allows.
    #[test]
    fn the_time_of_a_batch_follows_from_that_of_a_request() {
        let seconds = Duration::from_secs;
        for (timeout, expected) in [(1, 24), (10, 15), (20, 5), (60, 5)] {
            let checked = HttpOptions::new().timeout(seconds(timeout)).checked().unwrap();
            assert_eq!(checked.batch_timeout, seconds(expected), "{timeout} s");
        }
        let own = HttpOptions::new().batch_timeout(seconds(90)).checked().unwrap();
        assert_eq!(own.batch_timeout, seconds(90));
    }
}
