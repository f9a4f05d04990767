//! Where a Redis server is, and what it says when it does not do what it is asked.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::{Invalid, Problem, Undelivered};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisConnectionInfo, cmd};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use crate::{checks, encryption};

/// How a Redis server is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisOptions {
    /// How long one call may take, connecting included; 10 s unless set.
    pub timeout: Duration,
    /// Entries that a stream keeps, roughly: older ones are removed when new ones come, whether anybody has read them or not.
    /// None are removed unless set.
    pub stream_length_max: Option<u64>,
    /// Whether a stream that is not there is made; it is, unless this is set to false. Then its messages are refused.
    pub makes_streams: bool,
    /// Replicas that must have a message before it counts as delivered; none unless set.
    pub replicas: u32,
    /// Certificates, as a PEM file, that are trusted instead of the system's. Only for `rediss://`.
    pub root_certificates: Option<PathBuf>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        let timeout = Duration::from_secs(10);
        Self { timeout, stream_length_max: None, makes_streams: true, replicas: 0, root_certificates: None }
    }
}

/// A server, and how it is used.
#[derive(Clone)]
pub(super) struct Server {
    client: Client,
    pub(super) options: RedisOptions,
}

impl Server {
    pub(super) fn parse(url: &str, options: RedisOptions) -> Result<Self, Invalid> {
        let mut problems = Vec::new();
        checks::time("timeout", options.timeout, &mut problems);
        if options.stream_length_max == Some(0) {
            problems.push(Problem::out_of_range("stream_length_max", 1, "must be at least 1"));
        }
        let is_known = ["redis://", "rediss://"].iter().any(|scheme| url.starts_with(scheme));
        let client = if is_known { Client::open(url).ok() } else { None };
        let Some(client) = client else {
            let complaint = "must be redis://[user:password@]host[:port][/database], or rediss://…";
            problems.push(Problem::malformed("url", complaint));
            return Invalid::unless_empty(problems).and(Err(Problem::empty("url").into()));
        };
        match client.get_connection_info().addr() {
            ConnectionAddr::TcpTls { insecure: false, .. } => {}
            ConnectionAddr::TcpTls { .. } => {
                problems
                    .push(Problem::malformed("url", "must not end with #insecure: certificates are always checked"));
            }
            _ if options.root_certificates.is_some() => {
                problems.push(Problem::malformed("url", "must begin with rediss:// where certificates are given"));
            }
            _ => {}
        }
        Invalid::unless_empty(problems)?;
        Ok(Self { client, options })
    }

    pub(super) async fn connect(&self) -> Result<Connection, String> {
        // Calls have time limits of their own, for connecting and answering together.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let info = self.client.get_connection_info();
        let connected = match info.addr() {
            ConnectionAddr::TcpTls { host, port, .. } => {
                self.encrypted(host, *port, info.redis_settings(), config).await
            }
            _ => match self.client.get_multiplexed_async_connection_with_config(&config).await {
                Ok(redis) => Ok(Connection { redis, text_bytes_max: None, _driver: None }),
                Err(error) => Err(error.to_string()),
            },
        };
        let mut connection = connected.map_err(|why| format!("{self}: {why}"))?;
        connection.text_bytes_max = text_bytes_max(&mut connection.redis).await;
        Ok(connection)
    }

    /// By hand: the client would take its provider of encryption from the process, and end it where there is none.
    async fn encrypted(
        &self,
        host: &str,
        port: u16,
        login: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<Connection, String> {
        let trusting = encryption::trusting(self.options.root_certificates.as_deref())?;
        let encryption = TlsConnector::from(Arc::new(trusting.with_no_client_auth()));
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let unencrypted = |error| format!("no encrypted connection: {}", encryption::words(&error));
        let stream = encryption.connect(name, stream).await.map_err(unencrypted)?;
        let opened = MultiplexedConnection::new_with_config(login, stream, config).await;
        let (redis, driver) = opened.map_err(|error| error.to_string())?;
        let driver = Driver(tokio::spawn(driver).abort_handle());
        Ok(Connection { redis, text_bytes_max: None, _driver: Some(Arc::new(driver)) })
    }

    /// What was wanted of it in vain.
    pub(super) fn no_connection(&self) -> &'static str {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::TcpTls { .. } => "no encrypted connection",
            _ => "no connection",
        }
    }

    /// What an error of the server means for a message.
    pub(super) fn undelivered(&self, code: &str, details: Option<&str>) -> Undelivered {
        let said = format!("{self}: {code} {}", details.unwrap_or_default());
        match code {
            "ERR" | "WRONGTYPE" => Undelivered::refused(said),
            "MOVED" | "ASK" | "CROSSSLOT" => {
                Undelivered::unavailable(format!("{said}; a node of a cluster cannot be used by itself"))
            }
            // Loading, full, read-only, without permission: it takes nothing from us now.
            _ => Undelivered::unavailable(said),
        }
    }
}

async fn text_bytes_max(redis: &mut MultiplexedConnection) -> Option<usize> {
    let settings = cmd("CONFIG").arg("GET").arg("proto-max-bulk-len").query_async(redis).await;
    let settings: HashMap<String, String> = settings.ok()?;
    settings.into_values().next()?.parse().ok()
}

/// A connection that clones share. With the last of them ends whatever it had not sent yet.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) redis: MultiplexedConnection,
    /// What the server takes as one text, if it tells. It ends the connection of whoever sends more.
    pub(super) text_bytes_max: Option<usize>,
    /// Of an encrypted one; others have theirs inside.
    _driver: Option<Arc<Driver>>,
}

struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Host and port.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.client.get_connection_info().addr())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_told_before_any_connection() {
        for bad in ["", "http://one", "redis://", "redis://one:99999", "one:1", "rediss://one/#insecure"] {
            assert_eq!(Server::parse(bad, RedisOptions::default()).unwrap_err().problems()[0].field(), "url", "{bad}");
        }
        let options = RedisOptions { timeout: Duration::MAX, stream_length_max: Some(0), ..RedisOptions::default() };
        let refused = Server::parse("redis://one", options).unwrap_err();
        assert_eq!(refused.problems().iter().map(Problem::field).collect::<Vec<_>>(), ["timeout", "stream_length_max"]);
        let options = RedisOptions { root_certificates: Some("ca.pem".into()), ..RedisOptions::default() };
        assert!(Server::parse("rediss://one", options.clone()).is_ok());
        let refused = Server::parse("redis://one", options).unwrap_err();
        assert!(refused.to_string().contains("rediss://"), "{refused}");
    }

    #[test]
    fn no_secret_is_shown() {
        let server = Server::parse("redis://me:canary@one:7/2", RedisOptions::default()).unwrap();
        assert_eq!(format!("{server:?}"), "one:7");
        let refused = Server::parse("redis://me:canary@one:x", RedisOptions::default()).unwrap_err();
        assert!(!format!("{refused:?} {refused}").contains("canary"));
    }

    #[test]
    fn a_server_that_takes_nothing_is_away_and_a_wrong_key_is_not() {
        let server = Server::parse("redis://one", RedisOptions::default()).unwrap();
        for code in ["OOM", "LOADING", "READONLY", "CLUSTERDOWN", "NOAUTH", "NOPERM", "MISCONF", "MOVED", "NOREPLICAS"]
        {
            assert!(matches!(server.undelivered(code, None), Undelivered::Unavailable { .. }), "{code}");
        }
        for code in ["WRONGTYPE", "ERR"] {
            assert!(matches!(server.undelivered(code, Some("no")), Undelivered::Refused { .. }), "{code}");
        }
    }
}
