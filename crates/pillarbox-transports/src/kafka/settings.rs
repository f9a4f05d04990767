//! Where a Kafka cluster is, and the settings of librdkafka that are ours, the user's, or nobody's to change.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use pillarbox_core::{Invalid, Problem, wire};
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use zeroize::Zeroizing;

use crate::checks;

const SCHEME: &str = "kafka://";

/// What a producer refuses beyond, unless the user says otherwise: the default of librdkafka.
const MESSAGE_BYTES_MAX: usize = 1_000_000;

/// Settings on which the promises of this crate rest.
const OURS: [&str; 14] = [
    "acks",
    "auto.commit.enable",
    "bootstrap.servers",
    "delivery.timeout.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "message.timeout.ms",
    "metadata.broker.list",
    "queued.min.messages",
    "request.required.acks",
    "transactional.id",
];

/// How to reach a Kafka cluster, beyond its address.
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// How long one call may take, connecting included; 10 s unless set.
    pub timeout: Duration,
    /// A topic that is not there is created by the cluster, if it is set up so; otherwise messages for it are refused.
    pub creates_topics: bool,
    /// Properties of librdkafka; see [`set`](Self::set).
    pub settings: KafkaSettings,
}

/// Properties of librdkafka by their names. Values are never shown: passwords are among them.
#[derive(Clone, Default)]
pub struct KafkaSettings(BTreeMap<String, Zeroizing<String>>);

impl KafkaOptions {
    /// Sets a property of librdkafka, such as `security.protocol`. Those on which delivery rests, such as `enable.idempotence`,
    /// cannot be set.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.0.insert(name.into(), Zeroizing::new(value.into()));
        self
    }
}

impl Default for KafkaOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), creates_topics: false, settings: KafkaSettings::default() }
    }
}

impl fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A cluster, checked.
#[derive(Clone)]
pub(super) struct Cluster {
    /// Host and port of each server, with commas between.
    servers: String,
    login: Option<(String, Zeroizing<String>)>,
    options: KafkaOptions,
}

impl Cluster {
    /// Reads `kafka://[user:password@]host[:port][,host[:port]]…`, and checks the settings as far as that needs no I/O.
    pub(super) fn parse(url: &str, options: KafkaOptions) -> Result<Self, Invalid> {
        let mut problems = Vec::new();
        checks::time("timeout", options.timeout, &mut problems);
        for name in options.settings.0.keys().filter(|name| OURS.contains(&name.as_str())) {
            problems.push(Problem::malformed("settings", format!("must not contain {name}")));
        }
        let parsed = parse(url);
        if let Err(complaint) = &parsed {
            problems.push(Problem::malformed("url", *complaint));
        }
        Invalid::unless_empty(problems)?;
        let (servers, login) = parsed.unwrap_or_default();
        let cluster = Self { servers, login, options };
        cluster.config().create_native_config().map_err(|error| Problem::malformed("settings", complaint(&error)))?;
        Ok(cluster)
    }

    pub(super) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// The largest message that our own side takes.
    pub(super) fn message_bytes_max(&self) -> usize {
        let set = self.options.settings.0.get("message.max.bytes").and_then(|bytes| bytes.parse().ok());
        set.unwrap_or(MESSAGE_BYTES_MAX)
    }

    /// What a producer needs so that a message is sent within its call or never.
    pub(super) fn producer_config(&self) -> ClientConfig {
        let mut config = self.base_config();
        let timeout = self.options.timeout;
        config.set("enable.idempotence", "true");
        config.set("message.timeout.ms", millis(timeout));
        // Shorter than the time limit, so that a topic that is not there is told as such.
        config.set("topic.metadata.propagation.max.ms", millis(timeout / 2));
        config.set("allow.auto.create.topics", self.options.creates_topics.to_string());
        // As the clients of the Java world do it: the same key goes to the same partition, whoever sends.
        config.set("partitioner", "murmur2_random");
        config.set("linger.ms", "1");
        config.set("queue.buffering.max.kbytes", "131072");
        self.with_settings(config)
    }

    /// What a consumer needs so that nothing is acknowledged that the inbox does not have.
    pub(super) fn consumer_config(&self, group: &str, ahead: usize) -> ClientConfig {
        let mut config = self.base_config();
        config.set("group.id", group);
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        config.set("auto.offset.reset", "earliest");
        config.set("queued.min.messages", ahead.to_string());
        config.set("queued.max.messages.kbytes", "16384");
        self.with_settings(config)
    }

    /// Every setting, for a check of the user's.
    fn config(&self) -> ClientConfig {
        self.with_settings(self.base_config())
    }

    fn base_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers);
        config.set("client.id", "pillarbox");
        config.set("socket.timeout.ms", millis(self.options.timeout.max(Duration::from_secs(1))));
        config.set("socket.keepalive.enable", "true");
        config.set("reconnect.backoff.max.ms", "1000");
        if let Some((user, password)) = &self.login {
            config.set("security.protocol", "sasl_plaintext");
            config.set("sasl.mechanism", "PLAIN");
            config.set("sasl.username", user);
            config.set("sasl.password", password.as_str());
        }
        config.set_log_level(RDKafkaLogLevel::Error);
        config
    }

    fn with_settings(&self, mut config: ClientConfig) -> ClientConfig {
        for (name, value) in &self.options.settings.0 {
            config.set(name, value.as_str());
        }
        config
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.servers)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("servers", &self.servers)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Passes what librdkafka says on to our log, where it is of no more than interest: every failure is answered elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hushed;

impl ClientContext for Hushed {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, said: &str) {
        tracing::debug!(facility, said, "librdkafka");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "librdkafka");
    }
}

/// What is wrong with a setting, without its value.
pub(super) fn complaint(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, said, name, _) if said.contains("No such configuration property") => {
            format!("must not contain {name}, which librdkafka does not know")
        }
        KafkaError::ClientConfig(_, said, name, _) if said.contains("build") => {
            format!("contain a value of {name} that this build of librdkafka does not support")
        }
        KafkaError::ClientConfig(_, _, name, _) => format!("contain a value of {name} that librdkafka does not take"),
        other => other.to_string(),
    }
}

type Address = (String, Option<(String, Zeroizing<String>)>);

fn parse(url: &str) -> Result<Address, &'static str> {
    let rest = url.strip_prefix(SCHEME).ok_or("must begin with kafka://")?;
    let (login, servers) = match rest.rsplit_once('@') {
        Some((login, servers)) => (Some(login), servers),
        None => (None, rest),
    };
    let servers = servers.strip_suffix('/').unwrap_or(servers);
    if servers.split(',').any(|server| !is_server(server)) {
        return Err("must name servers as host or host:port, with commas between, and end there");
    }
    let decoded = |text: &str| wire::from_line_safe(text).into_owned();
    let login = match login.map(|login| login.split_once(':')) {
        None => None,
        Some(Some((user, password))) if !user.is_empty() => Some((decoded(user), Zeroizing::new(decoded(password)))),
        Some(_) => return Err("must name a user and a password, or neither"),
    };
    Ok((servers.to_owned(), login))
}

/// `host`, `host:port`, `[address]` or `[address]:port`.
fn is_server(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':').or(rest.is_empty().then_some("1"))),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("1")),
        },
    };
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c));
    is_host && port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn millis(duration: Duration) -> String {
    duration.as_millis().max(1).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(url: &str, options: KafkaOptions) -> Vec<&'static str> {
        match Cluster::parse(url, options) {
            Ok(_) => Vec::new(),
            Err(invalid) => {
                assert!(!invalid.to_string().contains("canary"), "{invalid}");
                invalid.problems().iter().map(Problem::field).collect()
            }
        }
    }

    #[test]
    fn an_address_is_read_or_named_without_its_password() {
        for url in ["kafka://a", "kafka://a:9092,b:9093/", "kafka://u:p%40w@[::1]:9092,c", "kafka://u:a@b@h:1"] {
            assert_eq!(fields(url, KafkaOptions::default()), [""; 0], "{url}");
        }
        for url in [
            "a:9092",
            "kafka://",
            "kafka://a:0",
            "kafka://canary@a",
            "kafka://u:canary@",
            "kafka://a,,b",
            "kafka://a/x",
        ] {
            assert_eq!(fields(url, KafkaOptions::default()), ["url"], "{url}");
        }
        let cluster = Cluster::parse("kafka://u:p%40w@a:1,b", KafkaOptions::default()).unwrap();
        assert_eq!(cluster.to_string(), "a:1,b");
        assert_eq!(cluster.config().get("sasl.password"), Some("p@w"));
    }

    /// H48: a setting that is wrong is named without its value.
    #[test]
    fn settings_are_checked_and_never_shown() {
        let with = |name: &str, value: &str| fields("kafka://a", KafkaOptions::default().set(name, value));
        assert_eq!(with("compression.type", "gzip"), [""; 0]);
        assert_eq!(with("enable.idempotence", "false"), ["settings"]);
        assert_eq!(with("no.such.thing", "canary"), ["settings"]);
        assert_eq!(with("compression.type", "canary"), ["settings"]);
        let timeless = KafkaOptions { timeout: Duration::ZERO, ..KafkaOptions::default() };
        assert_eq!(fields("kafka://a", timeless), ["timeout"]);
        let options = KafkaOptions::default().set("sasl.password", "canary");
        let cluster = Cluster::parse("kafka://u:canary@a", options).unwrap();
        assert!(!format!("{cluster:?}").contains("canary"));
    }
}
