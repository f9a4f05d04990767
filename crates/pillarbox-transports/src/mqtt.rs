//! MQTT 5: QoS 1, delivered when the broker has acknowledged it.

mod connection;
mod packet;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox_core::{DeliveryResult, Invalid, Parcel, Problem, Transport, Undelivered};
use rumqttc::mqttbytes::QoS;
use rumqttc::{ClientError, NetworkOptions, PublishOptions, PublishResult, TlsConfiguration};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::RwLock;
use tokio::time::{Instant, timeout_at};

use self::connection::{Complaint, Connection, End, unavailable};
use crate::batch::Batch;
use crate::encryption::unusable;
use crate::endpoint::{Endpoint, Scheme};
use crate::link::{Line, Link};
use crate::{checks, encryption};

const SCHEMES: [Scheme; 2] = [
    Scheme { name: "mqtt", port: 1883, is_encrypted: false },
    Scheme { name: "mqtts", port: 8883, is_encrypted: true },
];

/// Messages that wait for their acknowledgement at the most; a broker may allow less.
const IN_FLIGHT_MAX: u16 = 1_000;

/// Seconds without a packet after which one is sent, to notice a broker that is gone without a word.
const KEEP_ALIVE_SECONDS: u16 = 15;

/// Bytes of a client id.
const CLIENT_ID_BYTES_MAX: usize = 65_535;

/// A filter that nobody subscribes to: giving it up is a question that every broker answers.
const PROBE_FILTER: &str = "pillarbox/probe";

/// The way to an MQTT 5 broker.
///
/// The destination is a topic: not empty, no wildcards, no control characters, at most 65,535 bytes. A message is sent with
/// QoS 1 and delivered when the broker has acknowledged it. Its content type is the property of that name, its correlation id
/// is also the correlation data, and everything else is a user property; what is not printable ASCII is percent-encoded there,
/// since brokers refuse control characters.
///
/// A broker takes what nobody subscribes to and throws it away: see [`MqttOptions::needs_subscriber`].
///
/// A connection that breaks is given up with all that it had not sent. A broker that closes it over a message gets the messages
/// of that batch one by one, until it is clear which one it does not want.
///
/// ```
/// # use pillarbox_transports::mqtt::{Mqtt, MqttOptions};
/// # fn main() -> Result<(), pillarbox_core::Invalid> {
/// let mqtt = Mqtt::connect_to("mqtt://user:password@broker:1883")?;
/// let strict = Mqtt::with("mqtts://broker", MqttOptions { needs_subscriber: true, ..MqttOptions::default() })?;
/// # Ok(())
/// # }
/// ```
pub struct Mqtt {
    options: MqttOptions,
    endpoint: Endpoint,
    broker: String,
    link: Link<Arc<Connection>>,
    /// Read by all that share the connection, written by whoever must know that a complaint is about its own message.
    sharing: RwLock<()>,
}

/// How to reach an MQTT broker, beyond its address.
#[derive(Clone, Debug)]
pub struct MqttOptions {
    /// How long one call may take, connecting included; 10 s unless set. A call that takes longer ends the connection.
    pub timeout: Duration,
    /// What the broker calls us; unless set, it finds a name. Two connections of one name end each other.
    pub client_id: Option<String>,
    /// A message that nobody subscribes to is refused, and tried again, where the broker tells; otherwise it counts as delivered.
    pub needs_subscriber: bool,
    /// Certificates, as a PEM file, that are trusted instead of the system's.
    pub root_certificates: Option<PathBuf>,
    /// Our own certificate and its key, as PEM files. Needs [`root_certificates`](Self::root_certificates).
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Default for MqttOptions {
    fn default() -> Self {
        let timeout = Duration::from_secs(10);
        Self { timeout, client_id: None, needs_subscriber: false, root_certificates: None, identity: None }
    }
}

impl Mqtt {
    /// A transport to `mqtt://user:password@host:port`, or `mqtts://` for TLS. Connects when it is first used.
    pub fn connect_to(url: &str) -> Result<Self, Invalid> {
        Self::with(url, MqttOptions::default())
    }

    /// Like [`connect_to`](Self::connect_to), with settings of your own.
    pub fn with(url: &str, options: MqttOptions) -> Result<Self, Invalid> {
        let endpoint = Endpoint::parse(url, &SCHEMES)?;
        options.check(&endpoint)?;
        let broker = endpoint.to_string();
        Ok(Self { options, endpoint, broker, link: Link::new(), sharing: RwLock::new(()) })
    }

    /// The connection that all use, made anew when it is over.
    async fn line(&self) -> Result<Line<Arc<Connection>>, Undelivered> {
        let line = self.link.get(self.connect()).await?;
        if !line.connection.is_over() {
            return Ok(line);
        }
        self.link.broken(&line).await;
        self.link.get(self.connect()).await
    }

    async fn connect(&self) -> Result<Arc<Connection>, Undelivered> {
        let options = self.options.client(&self.endpoint).map_err(|what| unavailable(&self.broker, &what))?;
        Connection::open(options, &self.broker).await
    }

    /// Sends all, and answers what was not answered. Leaves unanswered what the time limit cuts off.
    async fn send(&self, batch: &mut Batch<'_>) {
        let line = {
            let _shared = self.sharing.read().await;
            let line = match self.line().await {
                Ok(line) => line,
                Err(undelivered) => return answer_all(batch, &undelivered),
            };
            let unanswered = batch.unanswered();
            self.publish(&line.connection, batch, &unanswered).await;
            line
        };
        if batch.unanswered().is_empty() {
            return;
        }
        let end = line.connection.ended().await;
        self.link.broken(&line).await;
        let reason = match end {
            End::Gone(reason) => reason,
            End::Complaint(_) => match self.send_one_by_one(batch).await {
                Ok(()) => return,
                Err(reason) => reason,
            },
        };
        answer_all(batch, &unavailable(&self.broker, &reason));
    }

    /// Alone on the connection, so that a complaint is about the message that was just sent.
    async fn send_one_by_one(&self, batch: &mut Batch<'_>) -> Result<(), String> {
        let _alone = self.sharing.write().await;
        for place in batch.unanswered() {
            let line = self.line().await.map_err(|undelivered| undelivered.to_string())?;
            self.publish(&line.connection, batch, &[place]).await;
            if batch.is_answered(place) {
                continue;
            }
            let end = line.connection.ended().await;
            self.link.broken(&line).await;
            match end {
                End::Gone(reason) => return Err(reason),
                End::Complaint(complaint) => {
                    let bytes = packet::publish(batch.parcel(place), usize::MAX).map_or(0, |packet| packet.size());
                    batch.answer(place, Err(judged(complaint, bytes)));
                }
            }
        }
        Ok(())
    }

    /// Sends these without waiting in between, and notes the answers. What the connection cannot answer any more has none.
    async fn publish(&self, connection: &Connection, batch: &mut Batch<'_>, places: &[usize]) {
        let mut sent = Vec::with_capacity(places.len());
        for place in places.iter().copied() {
            if !batch.admits(place) {
                continue;
            }
            let packet = match packet::publish(batch.parcel(place), connection.packet_bytes_max) {
                Ok(packet) => packet,
                Err(undelivered) => {
                    batch.answer(place, Err(undelivered));
                    continue;
                }
            };
            let properties = packet.properties.unwrap_or_default();
            let options = PublishOptions::new(QoS::AtLeastOnce).properties(properties);
            let topic = batch.parcel(place).destination.as_ref();
            match connection.client.publish_tracked(topic, packet.payload, options).await {
                Ok(notice) => sent.push((place, notice)),
                Err(ClientError::InvalidRequest(_)) => {
                    let rejected = Undelivered::rejected(format_args!("the topic {topic:?} is none"));
                    batch.answer(place, Err(rejected));
                }
                Err(_) => break,
            }
        }
        for (place, notice) in sent {
            if let Ok(PublishResult::Qos1(acknowledged)) = notice.wait_async().await {
                let topic = &batch.parcel(place).destination;
                batch.answer(place, packet::answer(acknowledged.reason, topic, self.options.needs_subscriber));
            }
        }
    }

    async fn ask(&self) -> Result<(), Undelivered> {
        let line = self.line().await?;
        let gone = |_| unavailable(&self.broker, "the connection broke");
        let asked = line.connection.client.unsubscribe_tracked(PROBE_FILTER).await;
        let notice = asked.map_err(|_| unavailable(&self.broker, "the connection broke"))?;
        notice.wait_async().await.map(drop).map_err(gone)
    }
}

#[async_trait]
impl Transport for Mqtt {
    fn kind(&self) -> &'static str {
        "mqtt"
    }

    async fn deliver(&self, parcels: &[Parcel<'_>]) -> Vec<DeliveryResult> {
        let mut batch = Batch::new(parcels);
        if !parcels.is_empty() && timeout_at(self.deadline(), self.send(&mut batch)).await.is_err() {
            self.give_up().await;
        }
        batch.finish(&self.late())
    }

    async fn probe(&self) -> Result<(), Undelivered> {
        match timeout_at(self.deadline(), self.ask()).await {
            Ok(answer) => answer,
            Err(_) => Err(self.late()),
        }
    }

    async fn close(&self) {
        let Some(connection) = self.link.take().await else { return };
        let deadline = self.deadline();
        if connection.client.disconnect_with_timeout(self.options.timeout).await.is_ok() {
            let _ = timeout_at(deadline, connection.ended()).await;
        }
    }
}

impl Mqtt {
    fn deadline(&self) -> Instant {
        Instant::now() + self.options.timeout
    }

    fn late(&self) -> Undelivered {
        unavailable(&self.broker, &format!("no answer within {:?}", self.options.timeout))
    }

    /// Ends the connection, so that nothing of what was given up is sent later.
    async fn give_up(&self) {
        if let Some(connection) = self.link.take().await {
            connection.abort();
        }
    }
}

impl fmt::Debug for Mqtt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mqtt").field("broker", &self.endpoint).field("options", &self.options).finish_non_exhaustive()
    }
}

impl MqttOptions {
    fn check(&self, endpoint: &Endpoint) -> Result<(), Invalid> {
        let mut problems = Vec::new();
        checks::time("timeout", self.timeout, &mut problems);
        if let Some(client_id) = &self.client_id {
            if client_id.len() > CLIENT_ID_BYTES_MAX {
                problems.push(Problem::too_large("client_id", CLIENT_ID_BYTES_MAX, client_id.len()));
            }
            if client_id.contains(char::is_control) {
                problems.push(Problem::malformed("client_id", "must not contain control characters"));
            }
        }
        if (self.root_certificates.is_some() || self.identity.is_some()) && !endpoint.is_encrypted {
            problems.push(Problem::malformed("url", "must begin with mqtts:// where certificates are given"));
        }
        if self.identity.is_some() && self.root_certificates.is_none() {
            problems.push(Problem::malformed("identity", "needs root_certificates"));
        }
        Invalid::unless_empty(problems)
    }

    /// The same in the words of the client. Fails where certificates cannot be read.
    fn client(&self, endpoint: &Endpoint) -> Result<rumqttc::MqttOptions, String> {
        let mut client = rumqttc::MqttOptions::new(
            self.client_id.as_deref().unwrap_or_default(),
            (endpoint.host.clone(), endpoint.port),
        );
        if endpoint.is_encrypted {
            client.set_transport(self.tls()?);
        }
        match (&endpoint.user, &endpoint.password) {
            (Some(user), Some(password)) => client.set_credentials(user.clone(), password.as_bytes().to_vec()),
            (Some(user), None) => client.set_username(user.clone()),
            (None, Some(password)) => client.set_password(password.as_bytes().to_vec()),
            (None, None) => &mut client,
        };
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        client.set_network_options(network);
        // A session of its own for every connection: the broker forgets what it did not acknowledge, as we do.
        client.set_clean_start(true);
        client.set_keep_alive(KEEP_ALIVE_SECONDS);
        client.set_connect_timeout(self.timeout);
        client.set_outgoing_inflight_upper_limit(IN_FLIGHT_MAX);
        Ok(client)
    }

    fn tls(&self) -> Result<rumqttc::Transport, String> {
        let trusting = encryption::trusting(self.root_certificates.as_deref())?;
        let config = match &self.identity {
            None => trusting.with_no_client_auth(),
            Some((ours, file)) => {
                let key = PrivateKeyDer::from_pem_file(file).map_err(|error| unusable(file, &error))?;
                let config = trusting.with_client_auth_cert(encryption::certificates(ours)?, key);
                config.map_err(|error| unusable(ours, &error))?
            }
        };
        Ok(rumqttc::Transport::tls_with_config(TlsConfiguration::Rustls(Arc::new(config))))
    }
}

fn answer_all(batch: &mut Batch<'_>, undelivered: &Undelivered) {
    for place in batch.unanswered() {
        batch.answer(place, Err(undelivered.clone()));
    }
}

/// A complaint about one message, which was alone.
fn judged(complaint: Complaint, bytes: usize) -> Undelivered {
    match complaint {
        Complaint::TooLarge => Undelivered::TooLarge { bytes, limit: None },
        Complaint::Malformed(reason) => Undelivered::rejected(reason),
        Complaint::Other(reason) => Undelivered::refused(reason),
    }
}
