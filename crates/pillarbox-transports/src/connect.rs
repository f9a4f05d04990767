//! A transport from its address, whatever the broker.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::{Invalid, Problem, Transport, WireFormat};
use zeroize::Zeroizing;

#[cfg(any(
    feature = "amqp",
    feature = "kafka",
    feature = "mqtt",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis"
))]
use crate::cloud_events::Shaped;

/// What an address does not say. Settings that a transport has no use for are passed over.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Settings {
    /// How long a call may take; each transport's own limit unless set.
    pub timeout: Option<Duration>,
    /// In which shape messages travel.
    pub format: WireFormat,
    /// Webhooks: what they are signed with, as `whsec_…`; several for rotation.
    pub secrets: Vec<Zeroizing<String>>,
    /// Webhooks: inner networks that they may go to, such as `10.0.0.0/8`.
    pub networks: Vec<String>,
    /// Webhooks: headers of every request, such as `authorization`.
    pub headers: Vec<(String, Zeroizing<String>)>,
    /// Files: whether lines must be on the disk before they count as delivered.
    pub is_synced: bool,
    /// A PEM file with the certificates that are trusted: by NATS, Redis and MQTT instead of the system's, by RabbitMQ, AMQP
    /// and webhooks besides the usual ones.
    pub root_certificates: Option<PathBuf>,
    /// Redis: entries that a stream keeps, roughly.
    pub stream_length_max: Option<u64>,
    /// Redis: whether a stream that is not there is made.
    pub makes_streams: Option<bool>,
    /// Redis: replicas that must have a message before it counts as delivered.
    pub replicas: Option<u32>,
    /// MQTT: whether a message that nobody subscribes to is refused.
    pub needs_subscriber: Option<bool>,
    /// NATS: a credentials file, as `nsc` makes it.
    pub credentials_file: Option<PathBuf>,
    /// NATS: the JetStream domain.
    pub domain: Option<String>,
    /// AMQP 1.0: what the broker is called in the protocol.
    pub hostname: Option<String>,
    /// Kafka: properties of librdkafka, such as `message.max.bytes`.
    pub properties: Vec<(String, Zeroizing<String>)>,
}

impl Settings {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("timeout", &self.timeout)
            .field("format", &self.format)
            .field("secret_count", &self.secrets.len())
            .field("networks", &self.networks)
            .field("is_synced", &self.is_synced)
            .field("root_certificates", &self.root_certificates)
            .finish_non_exhaustive()
    }
}

/// Why an address leads to no transport. Never repeats it: it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address does not say what it leads to.
    #[error("the address of a broker must begin with one of {}", known())]
    Unknown,
    /// The transport was left out when this program was built.
    #[error("`{scheme}:` addresses need a transport that is not built in: add feature `{feature}`")]
    NotBuiltIn {
        /// How the address begins.
        scheme: &'static str,
        /// What builds it in.
        feature: &'static str,
    },
    /// The transport does not take the address or the settings.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// What addresses begin with, and the feature that serves them.
const SCHEMES: [(&str, &str); 16] = [
    ("nats", "nats"),
    ("tls", "nats"),
    ("amqp", "rabbitmq"),
    ("amqps", "rabbitmq"),
    ("amqp10", "amqp"),
    ("amqps10", "amqp"),
    ("kafka", "kafka"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("mqtt", "mqtt"),
    ("mqtts", "mqtt"),
    ("http", "http"),
    ("https", "http"),
    ("file", "lines"),
    ("stdout", "lines"),
    ("-", "lines"),
];

/// A transport that takes an address and options, the time limit and those that are named among them, in the shape of the
/// settings.
#[cfg(any(
    feature = "amqp",
    feature = "kafka",
    feature = "mqtt",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis"
))]
macro_rules! shaped {
    ($transport:ty, $options:ty, $url:expr, $settings:expr, |$chosen:ident| $choose:expr) => {{
        let mut options = <$options>::default();
        options.timeout = $settings.timeout.unwrap_or(options.timeout);
        let $chosen = &mut options;
        $choose;
        Ok(Shaped::through(<$transport>::with($url, options)?, &$settings.format))
    }};
}

/// Makes the transport that an address leads to, without any I/O but that certificates are read: it connects when it is first
/// used.
///
/// | address | where messages go |
/// |---|---|
/// | `nats://`, `tls://` | NATS |
/// | `amqp://`, `amqps://` | RabbitMQ |
/// | `amqp10://`, `amqps10://` | AMQP 1.0, such as Azure Service Bus |
/// | `kafka://` | Kafka |
/// | `redis://`, `rediss://` | Redis Streams |
/// | `mqtt://`, `mqtts://` | MQTT 5 |
/// | `http://`, `https://` | webhooks, at this address or below it |
/// | `file:///var/spool/out`, `file:out` | files below a directory, as lines of JSON |
/// | `stdout:`, `-` | standard output, as lines of JSON |
pub fn transport_from_url(url: &str, settings: &Settings) -> Result<Arc<dyn Transport>, ConnectError> {
    let start = if url == "-" { "-" } else { url.split_once(':').map_or("", |(start, _)| start) };
    let found = SCHEMES.into_iter().find(|(scheme, _)| start.eq_ignore_ascii_case(scheme));
    let (scheme, feature) = found.ok_or(ConnectError::Unknown)?;
    let rest = url.get(scheme.len() + 1..).unwrap_or_default();
    let roots = roots(settings)?;
    match feature {
        #[cfg(feature = "amqp")]
        "amqp" => shaped!(crate::Amqp, crate::amqp::AmqpOptions, url, settings, |options| {
            (options.root_certificate, options.hostname) = (roots, settings.hostname.clone());
        }),
        #[cfg(feature = "http")]
        "http" => Ok(Arc::new(http(url, settings, roots)?)),
        #[cfg(feature = "kafka")]
        "kafka" => shaped!(crate::Kafka, crate::kafka::KafkaOptions, url, settings, |options| {
            for (name, value) in &settings.properties {
                *options = std::mem::take(options).set(name, value.as_str());
            }
        }),
        #[cfg(feature = "mqtt")]
        "mqtt" => shaped!(crate::Mqtt, crate::mqtt::MqttOptions, url, settings, |options| {
            options.root_certificates.clone_from(&settings.root_certificates);
            options.needs_subscriber = settings.needs_subscriber.unwrap_or(options.needs_subscriber);
        }),
        #[cfg(feature = "nats")]
        "nats" => shaped!(crate::Nats, crate::nats::NatsOptions, url, settings, |options| {
            options.root_certificates.clone_from(&settings.root_certificates);
            options.credentials_file.clone_from(&settings.credentials_file);
            options.domain.clone_from(&settings.domain);
        }),
        #[cfg(feature = "rabbitmq")]
        "rabbitmq" => shaped!(crate::Rabbit, crate::rabbitmq::RabbitOptions, url, settings, |options| {
            options.root_certificate = roots;
        }),
        #[cfg(feature = "redis")]
        "redis" => shaped!(crate::Redis, crate::redis::RedisOptions, url, settings, |options| {
            options.stream_length_max = settings.stream_length_max;
            options.makes_streams = settings.makes_streams.unwrap_or(options.makes_streams);
            options.replicas = settings.replicas.unwrap_or(options.replicas);
            options.root_certificates.clone_from(&settings.root_certificates);
        }),
        #[cfg(feature = "lines")]
        "lines" => Ok(Arc::new(lines(scheme, rest, settings)?)),
        _ => {
            let _ = (rest, roots);
            Err(ConnectError::NotBuiltIn { scheme, feature })
        }
    }
}

/// The trusted certificates, as PEM. A file that cannot be read is told now, and not when a connection fails.
fn roots(settings: &Settings) -> Result<Option<String>, Invalid> {
    let Some(path) = &settings.root_certificates else { return Ok(None) };
    let refused = |error| Problem::malformed("root_certificates", format!("cannot be read: {error}"));
    Ok(Some(fs::read_to_string(path).map_err(refused)?))
}

#[cfg(feature = "http")]
fn http(url: &str, settings: &Settings, roots: Option<String>) -> Result<crate::Http, Invalid> {
    use crate::http::{Guard, HttpOptions, Network};

    let networks: Result<Vec<Network>, _> = settings.networks.iter().map(|network| network.parse()).collect();
    let guard = Guard::default().allow_networks(networks?);
    let mut options = HttpOptions::new().base(url).guard(guard).format(settings.format.clone());
    for secret in &settings.secrets {
        options = options.secret(secret.as_str());
    }
    for (name, value) in &settings.headers {
        options = options.header(name, value.as_str());
    }
    if let Some(pem) = roots {
        options = options.trust(pem);
    }
    if let Some(timeout) = settings.timeout {
        options = options.timeout(timeout);
    }
    crate::Http::new(options)
}

#[cfg(feature = "lines")]
fn lines(scheme: &str, rest: &str, settings: &Settings) -> Result<crate::Lines, Invalid> {
    use crate::lines::LinesOptions;

    let mut options = LinesOptions::new().format(settings.format.clone()).sync(settings.is_synced);
    if scheme == "file" {
        let malformed = || Problem::malformed("url", "must name a directory, as file:///var/spool/out or file:out");
        let directory = if rest.starts_with("//") {
            let url = url::Url::parse(&format!("file:{rest}")).map_err(|_| malformed())?;
            url.to_file_path().map_err(|()| malformed())?
        } else {
            rest.into()
        };
        options = options.directory(directory);
    } else if !rest.trim_matches('/').is_empty() {
        return Err(Problem::malformed("url", "must end after stdout:").into());
    }
    crate::Lines::new(settings.timeout.into_iter().fold(options, LinesOptions::timeout))
}

fn known() -> String {
    SCHEMES.map(|(scheme, _)| if scheme == "-" { "-".to_owned() } else { format!("{scheme}:") }).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(feature = "amqp", feature = "http", feature = "lines", feature = "rabbitmq"))]
    #[test]
    fn the_scheme_chooses_the_transport() {
        let table = [
            ("amqp://broker.example/shop", "rabbitmq"),
            ("amqps://broker.example", "rabbitmq"),
            ("amqp10://broker.example", "amqp"),
            ("amqps10://policy:key@bus.example", "amqp"),
            ("https://hooks.example/in", "http"),
            ("HTTP://hooks.example", "http"),
            ("file:///var/spool", "lines"),
            ("file:spool", "lines"),
            ("stdout:", "lines"),
            ("stdout://", "lines"),
            ("-", "lines"),
        ];
        for (url, kind) in table {
            assert_eq!(transport_from_url(url, &Settings::new()).unwrap().kind(), kind, "{url}");
        }
    }

    /// H54: whatever is wrong with an address, it is not repeated.
    #[test]
    fn an_address_is_not_repeated() {
        let addresses = [
            "",
            "canary",
            "canary:canary@host",
            "ftp://canary",
            ":canary",
            "http://canary:canary@a.example",
            "stdout:canary",
        ];
        for url in addresses {
            let error = transport_from_url(url, &Settings::new()).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{url}: {error}");
        }
        let error = transport_from_url("ftp://a.example", &Settings::new()).unwrap_err();
        assert_eq!(error, ConnectError::Unknown);
        assert!(
            error.to_string().contains("nats:, tls:, amqp:") && error.to_string().ends_with("stdout:, -"),
            "{error}"
        );
    }

    #[test]
    fn a_transport_that_is_not_built_in_names_its_feature() {
        let error = ConnectError::NotBuiltIn { scheme: "kafka", feature: "kafka" };
        let words = "`kafka:` addresses need a transport that is not built in: add feature `kafka`";
        assert_eq!(error.to_string(), words);
    }

    /// H54.
    #[cfg(feature = "http")]
    #[test]
    fn settings_reach_the_transport_and_hide_secrets() {
        let mut settings = Settings::new();
        assert!(transport_from_url("http://10.0.0.1/", &settings).is_err());
        settings.networks = vec!["10.0.0.0/8".to_owned()];
        settings.secrets = vec![Zeroizing::new("whsec_Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5".to_owned())];
        assert!(transport_from_url("http://10.0.0.1/", &settings).is_ok());
        assert!(!format!("{settings:?}").contains("Y2FuYXJ5"));
        settings.networks = vec!["ten".to_owned()];
        assert!(matches!(transport_from_url("http://a.example/", &settings), Err(ConnectError::Invalid(_))));
    }
}
