//! The ways to brokers, as the file tells them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::Transport;
use pillarbox::transports::{Settings, transport_from_url};
use pillarbox::wire::WireFormat;
use serde::Deserialize;

use super::duration;

/// One `[transports.<name>]`. Most keys are for some kinds of transports only, and refused by the others.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TransportSection {
    pub(super) url: String,
    /// How long one call may take.
    #[serde(with = "duration::optional")]
    pub(super) timeout: Option<Duration>,
    /// How messages look on their way.
    pub(super) format: Format,
    /// What the messages come from, for CloudEvents.
    pub(super) source: Option<String>,
    /// What webhooks are signed with.
    pub(super) secrets: Vec<String>,
    /// Inner networks that webhooks may go to.
    networks: Vec<String>,
    /// Headers of every webhook.
    pub(super) headers: BTreeMap<String, String>,
    /// Whether lines are on the disk before they count.
    sync: bool,
    /// A file with the certificates that are trusted.
    root_certificates: Option<PathBuf>,
    stream_length_max: Option<u64>,
    makes_streams: Option<bool>,
    replicas: Option<u32>,
    needs_subscriber: Option<bool>,
    credentials_file: Option<PathBuf>,
    domain: Option<String>,
    hostname: Option<String>,
    /// Of librdkafka.
    pub(super) properties: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    #[default]
    Plain,
    Cloudevents,
    CloudeventsStructured,
}

impl TransportSection {
    pub(super) fn at(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }

    /// The transport of this name; has not connected yet. Every complaint names the section.
    pub(crate) fn transport(&self, name: &str) -> Result<Arc<dyn Transport>, String> {
        let refuse = |what: &dyn fmt::Display| format!("transports.{name}: {what}");
        let settings = self.settings().map_err(|invalid| refuse(&invalid))?;
        let transport = transport_from_url(&self.url, &settings).map_err(|error| refuse(&error))?;
        let kind = transport.kind();
        let unfit = self.keys().into_iter().filter(|(_, is_set, kinds)| *is_set && !kinds.contains(&kind));
        let complaint =
            |(key, _, kinds): (&str, bool, &[&str])| format!("{key} is for {}, not for {kind}", kinds.join(", "));
        let unfit: Vec<_> = unfit.map(complaint).collect();
        if unfit.is_empty() { Ok(transport) } else { Err(refuse(&unfit.join("; "))) }
    }

    fn settings(&self) -> Result<Settings, pillarbox::Invalid> {
        let source = self.source.as_deref().unwrap_or_default();
        let hidden = |texts: &BTreeMap<String, String>| {
            texts.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect()
        };
        let mut settings = Settings::new();
        settings.timeout = self.timeout;
        settings.format = match self.format {
            Format::Plain => WireFormat::Plain,
            Format::Cloudevents => WireFormat::cloud_events_binary(source)?,
            Format::CloudeventsStructured => WireFormat::cloud_events_structured(source)?,
        };
        settings.secrets = self.secrets.iter().cloned().map(Into::into).collect();
        settings.networks.clone_from(&self.networks);
        settings.headers = hidden(&self.headers);
        settings.is_synced = self.sync;
        settings.root_certificates.clone_from(&self.root_certificates);
        settings.stream_length_max = self.stream_length_max;
        settings.makes_streams = self.makes_streams;
        settings.replicas = self.replicas;
        settings.needs_subscriber = self.needs_subscriber;
        settings.credentials_file.clone_from(&self.credentials_file);
        settings.domain.clone_from(&self.domain);
        settings.hostname.clone_from(&self.hostname);
        settings.properties = hidden(&self.properties);
        Ok(settings)
    }

    /// Keys that not every transport has a use for, whether they are set, and which kinds have.
    fn keys(&self) -> [(&'static str, bool, &'static [&'static str]); 13] {
        [
            ("secrets", !self.secrets.is_empty(), &["http"]),
            ("networks", !self.networks.is_empty(), &["http"]),
            ("headers", !self.headers.is_empty(), &["http"]),
            ("sync", self.sync, &["lines"]),
            (
                "root_certificates",
                self.root_certificates.is_some(),
                &["amqp", "http", "mqtt", "nats", "rabbitmq", "redis"],
            ),
            ("stream_length_max", self.stream_length_max.is_some(), &["redis"]),
            ("makes_streams", self.makes_streams.is_some(), &["redis"]),
            ("replicas", self.replicas.is_some(), &["redis"]),
            ("needs_subscriber", self.needs_subscriber.is_some(), &["mqtt"]),
            ("credentials_file", self.credentials_file.is_some(), &["nats"]),
            ("domain", self.domain.is_some(), &["nats"]),
            ("hostname", self.hostname.is_some(), &["amqp"]),
            ("properties", !self.properties.is_empty(), &["kafka"]),
        ]
    }
}

// Addresses and secrets are never shown.
impl fmt::Debug for TransportSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportSection").field("format", &self.format).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Option<String> {
        toml::from_str::<TransportSection>(text).unwrap().transport("bus").err()
    }

    #[test]
    fn every_key_fits_its_kind_and_is_refused_by_others() {
        let (https, lines, redis) = ("https://h.example", "stdout:", "redis://h");
        let table = [
            ("secrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]", "http", https),
            ("networks = [\"10.0.0.0/8\"]", "http", https),
            ("headers = { authorization = \"canary\" }", "http", https),
            ("sync = true", "lines", lines),
            ("stream_length_max = 100", "redis", redis),
            ("makes_streams = false", "redis", redis),
            ("replicas = 1", "redis", redis),
            ("needs_subscriber = true", "mqtt", "mqtt://h"),
            ("credentials_file = \"bus.creds\"", "nats", "nats://h"),
            ("domain = \"leaf\"", "nats", "nats://h"),
            ("hostname = \"vhost:shop\"", "amqp", "amqp10://h"),
        ];
        for (key, kind, url) in table {
            assert_eq!(refused(&format!("url = \"{url}\"\n{key}")), None, "{key}");
            let (other, its_kind) = if kind == "nats" { (redis, "redis") } else { ("nats://h", "nats") };
            let name = key.split(' ').next().unwrap();
            let words = format!("transports.bus: {name} is for {kind}, not for {its_kind}");
            assert_eq!(refused(&format!("url = \"{other}\"\n{key}")), Some(words));
        }
        let properties = "properties = { \"message.max.bytes\" = \"2000000\" }";
        let words = refused(&format!("url = \"nats://h\"\n{properties}")).unwrap();
        assert_eq!(words, "transports.bus: properties is for kafka, not for nats");
        #[cfg(feature = "kafka")]
        assert_eq!(refused(&format!("url = \"kafka://h\"\n{properties}")), None);
    }

    #[test]
    fn certificates_that_cannot_be_read_are_told_at_once() {
        for url in ["tls://h", "rediss://h", "mqtts://h", "amqps://h", "amqps10://h", "https://h.example"] {
            let words = refused(&format!("url = \"{url}\"\nroot_certificates = \"no/such.pem\"")).unwrap();
            assert!(words.starts_with("transports.bus: root_certificates cannot be read: "), "{words}");
        }
        let own = |url| format!("url = \"{url}\"\nroot_certificates = \"{}/Cargo.toml\"", env!("CARGO_MANIFEST_DIR"));
        assert_eq!(refused(&own("rediss://h")), None);
        let words = "transports.bus: root_certificates is for amqp, http, mqtt, nats, rabbitmq, redis, not for lines";
        assert_eq!(refused(&own("stdout:")).as_deref(), Some(words));
    }
}
