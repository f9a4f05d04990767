//! A configuration at work: one fleet over all stores, whose handlers are the routes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::relay::To;
use pillarbox::retry::RetryPolicy;
use pillarbox::transports::{Settings, transport_from_url};
use pillarbox::wire::WireFormat;
use pillarbox::{
    Discovery, DiscoveryError, Fleet, RouteTable, Selector, ShutdownReport, StorePlace, Transport, UnknownTopics,
    async_trait, this_process,
};

use super::config::{Config, Format, TransportSection};

/// Stores up to which each may keep one connection more, on which other processes wake the relay.
const LISTENED_MAX: usize = 16;

/// The most that one claim brings: what a relay holds in memory is a few of them.
const CLAIM_MAX: usize = 500;

/// How soon a pause is obeyed.
const OBEY_WITHIN: Duration = Duration::from_secs(3);

/// A relay that runs.
pub(crate) struct Relay {
    fleet: Fleet,
    transports: BTreeMap<String, Arc<dyn Transport>>,
    grace: Duration,
}

impl Relay {
    /// Starts to deliver. Stores and brokers that are away keep nothing from starting: they are tried again.
    pub(crate) async fn start(config: &Config) -> Result<Self, String> {
        let mut transports = BTreeMap::new();
        for (name, section) in &config.transports {
            transports.insert(name.clone(), transport(name, section)?);
        }
        let places = Places(config.places()?);
        let relay = &config.relay;
        let retry = RetryPolicy::default().attempts_max(relay.attempts);
        let batch_max = config.routes.iter().map(|section| section.batch).max().unwrap_or_default();
        let mut builder = Fleet::builder()
            .worker_count(relay.workers)
            // A claim that fills a batch saves the broker a round trip.
            .claim_limit(u32::try_from(batch_max.clamp(1, CLAIM_MAX)).unwrap_or(u32::MAX))
            .connections_max(relay.connections)
            .lease(relay.lease)
            .poll_interval(relay.poll_interval)
            // What a relay left that died is looked for as soon as its leases can have run out.
            .reap_interval(relay.lease)
            .retry(retry)
            .unknown_topics(UnknownTopics::Leave)
            .obey_pauses(OBEY_WITHIN);
        if places.0.len() <= LISTENED_MAX {
            builder = builder.wakeups();
        }
        if let Some(name) = &relay.instance {
            builder = builder.instance(this_process(name.as_str()));
        }
        for section in &config.routes {
            let Some(transport) = transports.get(&section.to) else { continue };
            let to = To::new(Arc::clone(transport), section.destination.as_str()).batch_max(section.batch);
            builder = builder.route(section.route().deliver(to));
        }
        let fleet = builder.discover(places).start().await.map_err(|error| error.to_string())?;
        Ok(Self { fleet, transports, grace: relay.grace })
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Ends what is under way, gives the rest back, and takes leave of the brokers.
    pub(crate) async fn shutdown(self) -> ShutdownReport {
        let report = self.fleet.shutdown(self.grace).await;
        for transport in self.transports.values() {
            transport.close().await;
        }
        report
    }
}

/// Which route a message would take, for `routes explain`.
pub(crate) fn table(config: &Config) -> Result<(RouteTable, Vec<Selector>), String> {
    let selectors: Vec<_> = config.routes.iter().map(|route| route.route().selector().clone()).collect();
    let table = RouteTable::new(selectors.iter().cloned()).map_err(|invalid| invalid.to_string())?;
    Ok((table, selectors))
}

/// The way to a broker, as the file tells it; has not connected yet.
pub(crate) fn transport(name: &str, section: &TransportSection) -> Result<Arc<dyn Transport>, String> {
    let source = section.source.as_deref().unwrap_or_default();
    let refuse = |what: &dyn std::fmt::Display| format!("transports.{name}: {what}");
    let mut settings = Settings::new();
    settings.timeout = section.timeout;
    settings.format = match section.format {
        Format::Plain => Ok(WireFormat::Plain),
        Format::Cloudevents => WireFormat::cloud_events_binary(source),
        Format::CloudeventsStructured => WireFormat::cloud_events_structured(source),
    }
    .map_err(|invalid| refuse(&invalid))?;
    settings.secrets = section.secrets.iter().cloned().map(Into::into).collect();
    settings.networks.clone_from(&section.networks);
    settings.is_synced = section.sync;
    transport_from_url(&section.url, &settings).map_err(|error| refuse(&error))
}

/// The stores of the file, which do not change while it is not read again.
struct Places(Vec<StorePlace>);

#[async_trait]
impl Discovery for Places {
    async fn discover(&self) -> Result<Vec<StorePlace>, DiscoveryError> {
        Ok(self.0.clone())
    }
}
