//! A connection to RabbitMQ, the channels on it, and the one wire that all of it hangs on.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lapin::options::ConfirmSelectOptions;
use lapin::tcp::OwnedTLSConfig;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{AsyncTcpStream, Channel, Connection, ConnectionProperties};
use pillarbox_core::{Invalid, Problem, wire};
use tokio::sync::Semaphore;
use tracing::dispatcher::{self, DefaultGuard};
use url::Url;

use crate::checks;
use crate::endpoint::{Endpoint, Scheme};
use crate::plug::{Plug, Puller};

const SCHEMES: [Scheme; 2] = [
    Scheme { name: "amqp", port: 5672, is_encrypted: false },
    Scheme { name: "amqps", port: 5671, is_encrypted: true },
];

/// Calls that publish at once; further ones wait for one of these to end.
const CALLS_MAX: usize = 32;

/// A broker's own heartbeat of 60 s would notice a dead connection after two minutes only.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Where a broker is, and how to talk to it.
#[derive(Clone)]
pub(super) struct Broker {
    endpoint: Endpoint,
    virtual_host: String,
    root_certificate: Option<String>,
    pub(super) timeout: Duration,
}

impl Broker {
    /// Reads `amqp://user:password@host:port/virtual%20host`, or `amqps://…`.
    pub(super) fn parse(url: &str, timeout: Duration, root_certificate: Option<String>) -> Result<Self, Invalid> {
        let mut problems = Vec::new();
        checks::time("timeout", timeout, &mut problems);
        Invalid::unless_empty(problems)?;
        let malformed = |complaint: String| Invalid::from(Problem::malformed("url", complaint));
        let mut address = Url::parse(url).map_err(|error| malformed(format!("cannot be read: {error}")))?;
        let path = address.path().strip_prefix('/').unwrap_or_default();
        if path.contains('/') {
            return Err(malformed("must have %2F for each slash in the name of a virtual host".into()));
        }
        let virtual_host = if path.is_empty() { "/".to_owned() } else { wire::from_line_safe(path).into_owned() };
        address.set_path("");
        let endpoint = Endpoint::parse(address.as_str(), &SCHEMES)?;
        Ok(Self { endpoint, virtual_host, root_certificate, timeout })
    }

    pub(super) async fn connect(&self) -> Result<Arc<Session>, lapin::Error> {
        let plug = Plug::default();
        let pulled_unless_connected = plug.puller();
        let (wire, limit) = (plug.clone(), self.timeout);
        let certificate = OwnedTLSConfig { cert_chain: self.root_certificate.clone(), ..OwnedTLSConfig::default() };
        let is_encrypted = self.endpoint.is_encrypted;
        let properties = ConnectionProperties::default().with_connection_name("pillarbox".into());
        let runtime = lapin::runtime::default_runtime()?;
        let connection = Connection::connector(
            self.uri(),
            runtime,
            async move |uri: AMQPUri, runtime| {
                silence_this_thread();
                let (host, port) = (uri.authority.host, uri.authority.port);
                let reached = tokio::time::timeout(limit, async {
                    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
                    for address in tokio::net::lookup_host((host.as_str(), port)).await? {
                        match AsyncTcpStream::connect(&runtime, address).await {
                            Ok(AsyncTcpStream::Plain(stream)) => {
                                wire.insert(stream.get_ref())?;
                                let stream = AsyncTcpStream::Plain(stream);
                                return if is_encrypted {
                                    stream.into_tls(&host, certificate.as_ref()).await
                                } else {
                                    Ok(stream)
                                };
                            }
                            Ok(other) => return Ok(other),
                            Err(error) => last = error,
                        }
                    }
                    Err(last)
                });
                let reached = reached.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                reached.map_err(lapin::Error::from)
            },
            properties,
        )
        .await?;
        pulled_unless_connected.keep();
        Ok(Arc::new(Session::new(connection, plug)))
    }

    fn uri(&self) -> AMQPUri {
        let Endpoint { host, port, is_encrypted, user, password } = &self.endpoint;
        let seconds = u16::try_from(HEARTBEAT.as_secs()).unwrap_or_default();
        AMQPUri {
            scheme: if *is_encrypted { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo {
                    username: user.clone().unwrap_or_else(|| "guest".to_owned()),
                    password: password.as_ref().map_or_else(|| "guest".to_owned(), |password| password.to_string()),
                },
                host: host.clone(),
                port: *port,
            },
            vhost: self.virtual_host.clone(),
            query: AMQPQueryString { heartbeat: Some(seconds), ..AMQPQueryString::default() },
        }
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.endpoint, f)
    }
}

/// A connection, and channels that are ready for the next call.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) calls: Semaphore,
    plug: Plug,
    idle: Mutex<Vec<Channel>>,
    /// The largest body that it takes, as far as it has said.
    body_max: AtomicUsize,
    is_spent: AtomicBool,
}

impl Session {
    fn new(connection: Connection, plug: Plug) -> Self {
        Self {
            connection,
            calls: Semaphore::new(CALLS_MAX),
            plug,
            idle: Mutex::default(),
            body_max: AtomicUsize::new(usize::MAX),
            is_spent: AtomicBool::new(false),
        }
    }

    /// A channel in confirm mode, for one call alone: a returned message is told beside any confirm of its channel.
    pub(super) async fn channel(&self) -> Result<Channel, lapin::Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(channel) = idle.filter(|channel| channel.status().connected()) {
            return Ok(channel);
        }
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// Keeps a channel on which nothing is open; there are never more of them than calls at once.
    pub(super) fn give_back(&self, channel: Channel) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
    }

    /// Ends the connection when it is dropped, so that the broker takes back what it has sent.
    pub(super) fn puller(&self) -> Puller {
        self.plug.puller()
    }

    pub(super) fn body_max(&self) -> usize {
        self.body_max.load(Ordering::Relaxed)
    }

    pub(super) fn learn_body_max(&self, limit: usize) {
        self.body_max.store(limit, Ordering::Relaxed);
    }

    /// Whether the broker has an alarm and reads nothing from us.
    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    /// Whether it is of no more use: it is broken, or what was left on it when it was blocked would come before anything new.
    pub(super) fn is_over(&self) -> bool {
        !self.connection.status().connected() || (self.is_spent.load(Ordering::Relaxed) && !self.is_blocked())
    }

    /// A call has ended before what it sent was taken. A blocked connection is kept, so that there are not more and more of
    /// them, which the broker would all read in the end; any other goes, with everything that is still to be written.
    pub(super) fn give_up(&self) {
        self.is_spent.store(true, Ordering::Relaxed);
        if !self.is_blocked() {
            self.plug.pull();
        }
    }

    /// An orderly end; a disorderly one where that takes too long.
    pub(super) async fn close(&self, within: Duration) {
        let _either_way = tokio::time::timeout(within, self.connection.close(200, "OK".into())).await;
        self.plug.pull();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_blocked() {
            self.plug.pull();
        }
    }
}

thread_local! {
    static SILENCE: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) };
}

/// The client reads on a thread of its own, and logs there what is returned to it, payload and all.
fn silence_this_thread() {
    SILENCE.with_borrow_mut(|silence| {
        silence.get_or_insert_with(|| dispatcher::set_default(&dispatcher::Dispatch::none()));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_broker_virtual_host_and_user() {
        let parse = |url| Broker::parse(url, Duration::from_secs(1), None);
        let uri = parse("amqps://us%40er:p%2Fw@[::1]/a%2Fb").unwrap().uri();
        assert_eq!((uri.scheme, uri.authority.host.as_str(), uri.authority.port), (AMQPScheme::AMQPS, "::1", 5671));
        assert_eq!((uri.authority.userinfo.username.as_str(), uri.vhost.as_str()), ("us@er", "a/b"));
        assert_eq!(uri.authority.userinfo.password, "p/w");
        for url in ["amqp://broker", "amqp://broker/", "amqp://broker/%2F", "amqp://broker/%2f"] {
            let broker = parse(url).unwrap();
            assert_eq!((broker.uri().vhost.as_str(), broker.to_string().as_str()), ("/", "broker:5672"));
        }
        for url in ["amqp://u:canary@h/a/b", "http://u:canary@h", "amqp://u:canary@h/%2F?x=1", "amqp:///x"] {
            let complaint = parse(url).err().expect("it is refused").to_string();
            assert!(complaint.starts_with("url ") && !complaint.contains("canary"), "{complaint}");
        }
        let endless = Broker::parse("amqp://h", Duration::MAX, None).err().expect("it is refused");
        assert_eq!(endless.problems()[0].field(), "timeout");
    }
}
