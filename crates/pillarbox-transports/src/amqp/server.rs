//! A connection to an AMQP 1.0 broker, and the lanes on it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex as PlainMutex, PoisonError};
use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::{Connection, Session};
use pillarbox_core::{Invalid, Problem, Undelivered};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use uuid::Uuid;

use super::AmqpOptions;
use super::lane::{Lane, Trouble};
use crate::checks;
use crate::endpoint::{Endpoint, Scheme};
use crate::plug::Plug;

/// Those with a number tell it from AMQP 0.9.1, where an address alone must say which is meant.
const SCHEMES: [Scheme; 4] = [
    Scheme { name: "amqp", port: 5672, is_encrypted: false },
    Scheme { name: "amqps", port: 5671, is_encrypted: true },
    Scheme { name: "amqp10", port: 5672, is_encrypted: false },
    Scheme { name: "amqps10", port: 5671, is_encrypted: true },
];

/// Lanes that are kept for the next call.
const IDLE_MAX: usize = 64;

/// A connection over which nothing came for this long is dead, in milliseconds.
const IDLE_TIMEOUT: u32 = 30_000;

/// Where a broker is, and how to talk to it.
pub(super) struct Server {
    endpoint: Endpoint,
    hostname: String,
    encryption: Option<TlsConnector>,
    pub(super) timeout: Duration,
}

impl Server {
    pub(super) fn parse(url: &str, options: AmqpOptions) -> Result<Self, Invalid> {
        let mut problems = Vec::new();
        checks::time("timeout", options.timeout, &mut problems);
        Invalid::unless_empty(problems)?;
        let endpoint = Endpoint::parse(url, &SCHEMES)?;
        let encryption = match endpoint.is_encrypted {
            true => Some(encryption(options.root_certificate.as_deref())?),
            false => None,
        };
        let hostname = options.hostname.unwrap_or_else(|| endpoint.host.clone());
        Ok(Self { endpoint, hostname, encryption, timeout: options.timeout })
    }

    pub(super) async fn connect(&self) -> Result<Arc<Connected>, Undelivered> {
        let away = |why: &dyn fmt::Display| Undelivered::unavailable(format!("{self}: {why}"));
        let plug = Plug::default();
        let pulled_unless_connected = plug.puller();
        let Endpoint { host, port, user, password, .. } = &self.endpoint;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| away(&error))?;
        stream.set_nodelay(true).and_then(|()| plug.insert(&stream)).map_err(|error| away(&error))?;
        let profile = match (user, password) {
            (Some(user), password) => SaslProfile::Plain {
                username: user.clone(),
                password: password.as_ref().map(|password| password.to_string()).unwrap_or_default(),
            },
            (None, _) => SaslProfile::Anonymous,
        };
        let builder = Connection::builder()
            .container_id(format!("pillarbox-{}", Uuid::new_v4()))
            .scheme("amqp")
            .hostname(self.hostname.as_str())
            .sasl_hostname(self.hostname.as_str())
            .idle_time_out(IDLE_TIMEOUT)
            .sasl_profile(profile);
        let opened = match &self.encryption {
            None => builder.open_with_stream(stream).await,
            Some(encryption) => {
                let name = ServerName::try_from(host.clone()).map_err(|error| away(&error))?;
                let stream = encryption.connect(name, stream).await.map_err(|error| away(&error))?;
                builder.open_with_stream(stream).await
            }
        };
        let handle = opened.map_err(|error| away(&error))?;
        pulled_unless_connected.keep();
        Ok(Arc::new(Connected { handle: Mutex::new(handle), plug, idle: PlainMutex::default() }))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.endpoint, f)
    }
}

fn encryption(root_certificate: Option<&str>) -> Result<TlsConnector, Invalid> {
    let malformed = |why: &dyn fmt::Display| Invalid::from(Problem::malformed("root_certificate", why.to_string()));
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for root in CertificateDer::pem_slice_iter(root_certificate.unwrap_or_default().as_bytes()) {
        let root = root.map_err(|error| malformed(&error))?;
        roots.add(root).map_err(|error| malformed(&error))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|error| malformed(&error))?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}

/// A connection, and lanes that are ready for the next call.
pub(super) struct Connected {
    handle: Mutex<ConnectionHandle<()>>,
    plug: Plug,
    /// The one that was used last comes last.
    idle: PlainMutex<VecDeque<Lane>>,
}

impl Connected {
    pub(super) async fn is_over(&self) -> bool {
        self.handle.lock().await.is_closed()
    }

    pub(super) async fn begin(&self) -> Result<SessionHandle<()>, String> {
        Session::begin(&mut *self.handle.lock().await).await.map_err(|error| error.to_string())
    }

    /// A lane to an address, for one call alone.
    pub(super) async fn lane(&self, address: &str) -> Result<Lane, Trouble> {
        let idle = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let at = idle.iter().rposition(|lane| lane.is_to(address));
            at.and_then(|at| idle.remove(at))
        };
        if let Some(lane) = idle.filter(Lane::is_open) {
            return Ok(lane);
        }
        let session = self.begin().await.map_err(Trouble::Away)?;
        Lane::open(session, address).await
    }

    pub(super) fn give_back(&self, lane: Lane) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push_back(lane);
        if idle.len() > IDLE_MAX {
            idle.pop_front();
        }
    }

    /// Ends it without a word.
    pub(super) fn cut(&self) {
        self.plug.pull();
    }

    /// An orderly end; a disorderly one where that takes too long.
    pub(super) async fn close(&self, within: Duration) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let closed = async { self.handle.lock().await.close().await.map_err(io::Error::other) };
        let _either_way = tokio::time::timeout(within, closed).await;
        self.cut();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked_before_anything_is_opened() {
        let refused = |url: &str, options| Server::parse(url, options).err().expect("it is refused");
        let endless = AmqpOptions { timeout: Duration::MAX, ..AmqpOptions::default() };
        assert_eq!(refused("amqp://h", endless).problems()[0].field(), "timeout");
        let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
        let strange = AmqpOptions { root_certificate: Some(pem), ..AmqpOptions::default() };
        assert_eq!(refused("amqps://h", strange).problems()[0].field(), "root_certificate");
        assert_eq!(refused("amqp://u:canary@h/path", AmqpOptions::default()).problems()[0].field(), "url");
    }
}
