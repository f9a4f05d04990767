//! Webhooks: each message is a `POST`, signed as Standard Webhooks says.
//!
//! A destination is a URL; with a [base](HttpOptions::base) also a path below it, or nothing for the base itself.
//!
//! ```
//! use pillarbox_transports::http::{Http, HttpOptions};
//!
//! let options = HttpOptions::new().secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
//! let http = Http::new(options)?;
//! # Ok::<(), pillarbox_core::Invalid>(())
//! ```
//!
//! | answer | what becomes of the message |
//! |---|---|
//! | 2xx | delivered |
//! | 410 | the destination is gone |
//! | 429, 503 | later, when `Retry-After` says, at most after an hour |
//! | 413 | too large |
//! | 401, 403, 404, 408, 425, 5xx, a redirect | refused: tried again |
//! | any other 4xx | rejected: never again |
//! | none in time, or no connection | unavailable; it may have arrived, and comes again under the same `webhook-id` |
//!
//! Who asks for time, is gone, or cannot be connected to is asked once in a batch, as far as requests do not run at once already.
//! Redirects are not followed, proxies of the environment not used, and nothing of an answer but its status and `Retry-After`
//! is looked at. Inner addresses are refused unless the [`Guard`] is told otherwise.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use pillarbox_core::{DeliveryResult, Invalid, Parcel, Problem, Transport, Undelivered};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Response, redirect};
use tokio::time::{Instant, timeout};
use url::Url;

use crate::chains::{behind, chains};
use answer::Answer;
use lookup::forbidden_by;
use options::Checked;
use request::{PREFIX, Request};

mod answer;
mod guard;
mod lookup;
mod options;
mod request;
mod signing;
#[cfg(test)]
mod tests;

pub use guard::{Forbidden, Guard, Network};
pub use lookup::{Lookup, SystemLookup};
pub use options::HttpOptions;

/// An answer's body is read up to here, so that its connection can be used again.
const SPARE_BYTES_MAX: usize = 64 * 1024;
const SPARE_TIME_MAX: Duration = Duration::from_secs(1);
/// Connections that nobody used for so long are closed.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// The way to webhooks.
pub struct Http {
    options: Checked,
    client: Mutex<Client>,
}

impl Http {
    /// With settings, which are checked here.
    pub fn new(options: HttpOptions) -> Result<Self, Invalid> {
        let options = options.checked()?;
        let client = client(&options).map_err(|error| Problem::malformed("http", error.to_string()))?;
        Ok(Self { options, client: Mutex::new(client) })
    }

    /// To an endpoint, and to whatever is below it, with the settings that nobody has changed. Connects when it is used.
    pub fn connect_to(url: impl Into<String>) -> Result<Self, Invalid> {
        Self::new(HttpOptions::new().base(url))
    }

    fn client(&self) -> Client {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where a destination lies; checked without any I/O.
    fn target(&self, destination: &str) -> Result<Url, Forbidden> {
        let guard = &self.options.guard;
        let starts_with =
            |start: &str| destination.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start));
        let is_whole = starts_with("http://") || starts_with("https://");
        let Some(base) = self.options.base.as_ref().filter(|_| !is_whole) else {
            return guard.check(destination);
        };
        if destination.is_empty() {
            return Ok(base.clone());
        }
        let below = format!("{}/", base.path().trim_end_matches('/'));
        let origin = base.origin().ascii_serialization();
        let url = guard.check(&format!("{origin}{below}{}", destination.trim_start_matches('/')))?;
        // Whatever a template put together, it stays below what was configured.
        if url.origin() == base.origin() && url.path().starts_with(&below) {
            Ok(url)
        } else {
            Err(Forbidden::Malformed)
        }
    }

    async fn send(&self, call: &Call<'_>, url: Url, parcel: &Parcel<'_>) -> Result<Response, Undelivered> {
        let Checked { format, signer, headers: fixed, timeout, .. } = &self.options;
        let wire = format.encode(parcel.message, PREFIX);
        let Request { headers, body } = Request::new(parcel.message.id(), wire, signer, fixed, SystemTime::now())?;
        let origin = origin(&url);
        let sent = call.client.post(url).headers(headers).body(body).timeout(*timeout).send().await;
        sent.map_err(|error| {
            let is_away = error.is_connect();
            let why = undelivered(&origin, error, *timeout);
            if is_away && matches!(why, Undelivered::Unavailable { .. }) {
                call.close(origin, &why);
            }
            why
        })
    }

    /// One chain of a batch, one message after the other.
    async fn send_chain(&self, call: &Call<'_>, chain: Vec<usize>) -> Vec<(usize, DeliveryResult)> {
        let mut results: Vec<(usize, DeliveryResult)> = Vec::with_capacity(chain.len());
        for at in chain {
            let result = match results.last() {
                Some((_, Err(earlier))) => Err(behind(earlier)),
                _ => self.send_one(call, &call.parcels[at]).await,
            };
            results.push((at, result));
        }
        results
    }

    async fn send_one(&self, call: &Call<'_>, parcel: &Parcel<'_>) -> DeliveryResult {
        let url = self.target(&parcel.destination).map_err(Undelivered::rejected)?;
        let origin = origin(&url);
        if let Some(closed) = call.closed(&origin).or_else(|| call.closed(&parcel.destination)) {
            return Err(closed);
        }
        if Instant::now() >= call.begin_until {
            let reason = "the time for the batch was over before it was sent".to_owned();
            return Err(Undelivered::Later { delay: Duration::ZERO, reason });
        }
        let response = self.send(call, url, parcel).await?;
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok().map(str::to_owned));
        let status = response.status().as_u16();
        tracing::debug!(origin, status, "a webhook was answered");
        // The status has decided; the rest is read only so that the connection can be used again.
        let _ = timeout(SPARE_TIME_MAX, drain(response)).await;
        let answer = Answer { status, retry_after: retry_after.as_deref(), sent: parcel.message.payload().len() };
        let result = answer.judge(&origin, SystemTime::now(), self.options.delay_max);
        if let Err(why @ (Undelivered::Later { .. } | Undelivered::Gone { .. })) = &result {
            call.close(parcel.destination.to_string(), why);
        }
        result
    }
}

/// What the chains of one batch share.
struct Call<'a> {
    parcels: &'a [Parcel<'a>],
    client: Client,
    begin_until: Instant,
    /// Origins and destinations that the rest of the batch is not sent to, and why.
    closed: Mutex<HashMap<String, Undelivered>>,
}

impl Call<'_> {
    fn closed(&self, place: &str) -> Option<Undelivered> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).get(place).cloned()
    }

    /// The rest of a batch need not wait for a host that is away, nor trouble an endpoint that wants nothing now.
    fn close(&self, place: String, why: &Undelivered) {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).insert(place, why.clone());
    }
}

#[async_trait]
impl Transport for Http {
    fn kind(&self) -> &'static str {
        "http"
    }

    async fn deliver(&self, parcels: &[Parcel<'_>]) -> Vec<DeliveryResult> {
        let begin_until = Instant::now() + self.options.batch_timeout;
        let call = Call { parcels, client: self.client(), begin_until, closed: Mutex::default() };
        let sending = stream::iter(chains(parcels)).map(|chain| self.send_chain(&call, chain));
        let mut answered = sending.buffer_unordered(self.options.in_flight_max);
        let unanswered = Undelivered::unavailable("it was not sent");
        let mut results = vec![Err(unanswered); parcels.len()];
        while let Some(chain) = answered.next().await {
            for (at, result) in chain {
                results[at] = result;
            }
        }
        results
    }

    /// Asks the base for its head; any answer will do. Without a base there is nobody to ask.
    async fn probe(&self) -> Result<(), Undelivered> {
        let Some(base) = self.options.base.clone() else { return Ok(()) };
        let (origin, timeout) = (origin(&base), self.options.timeout);
        let answered = self.client().head(base).timeout(timeout).send().await;
        answered.map(drop).map_err(|error| undelivered(&origin, error, timeout))
    }

    async fn close(&self) {
        if let Ok(fresh) = client(&self.options) {
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("base", &self.options.base.as_ref().map(origin))
            .field("signer", &self.options.signer)
            .field("guard", &self.options.guard)
            .field("format", &self.options.format)
            .finish_non_exhaustive()
    }
}

fn client(options: &Checked) -> reqwest::Result<Client> {
    Client::builder()
        .user_agent(concat!("pillarbox/", env!("CARGO_PKG_VERSION")))
        .tls_backend_preconfigured(options.tls.clone())
        .dns_resolver(options.lookup.clone())
        .redirect(redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .connect_timeout(options.connect_timeout)
        .pool_max_idle_per_host(options.in_flight_max)
        .pool_idle_timeout(IDLE_MAX)
        .build()
}

/// Host and port: what may be shown of a URL, whose path may hold a token.
fn origin(url: &Url) -> String {
    format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default())
}

/// What an error says, without the URL.
fn undelivered(origin: &str, error: reqwest::Error, timeout: Duration) -> Undelivered {
    if let Some(forbidden) = forbidden_by(&error) {
        // A name can get another address, so that it is not the end of the message.
        return Undelivered::refused(format!("{origin}: {forbidden}"));
    }
    let mut cause: &(dyn Error + 'static) = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    if error.is_connect() {
        return Undelivered::unavailable(format!("{origin} cannot be connected to: {}", without_url(cause)));
    }
    if error.is_timeout() {
        return Undelivered::unavailable(format!("{origin}: no answer within {timeout:?}"));
    }
    Undelivered::unavailable(format!("{origin}: the connection broke: {}", without_url(cause)))
}

/// An error of the HTTP client that has no cause repeats the URL.
fn without_url(cause: &(dyn Error + 'static)) -> String {
    if cause.is::<reqwest::Error>() { "no reason was given".to_owned() } else { cause.to_string() }
}

async fn drain(mut response: Response) {
    let mut left = SPARE_BYTES_MAX;
    while let Ok(Some(chunk)) = response.chunk().await {
        match left.checked_sub(chunk.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
