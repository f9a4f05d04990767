//! A configuration at work: one fleet over all stores, whose handlers are the routes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::diagnosis::{Finding, Health};
use pillarbox::relay::To;
use pillarbox::retry::RetryPolicy;
use pillarbox::store::StoreOptions;
use pillarbox::{
    Checkup, Discovery, DiscoveryError, Fleet, FleetBuilder, Invalid, Problem, RouteTable, Selector, ShutdownReport,
    StorePlace, Transport, UnknownTopics, async_trait, this_process,
};
use tokio::task::JoinSet;

use super::Config;

/// Stores up to which each may keep one connection more, on which other processes wake the relay.
const LISTENED_MAX: usize = 16;

/// The most that one claim brings: what a relay holds in memory is a few of them.
const CLAIM_MAX: usize = 2_000;

/// Batches that one claim brings. The database hands out many messages at once for less, and no worker waits for its batch.
const BATCHES_PER_CLAIM: usize = 4;

/// Calls to a store at one time.
const CALLS: usize = 3;

/// How soon a pause is obeyed.
const OBEY_WITHIN: Duration = Duration::from_secs(3);

/// A relay that can start: nothing is wrong with its file, as far as that shows without asking stores and brokers.
pub(crate) struct Prepared {
    builder: FleetBuilder,
    transports: BTreeMap<String, Arc<dyn Transport>>,
    checkups: BTreeMap<String, Checkup>,
    grace: Duration,
}

/// A relay that runs.
pub(crate) struct Relay {
    fleet: Fleet,
    transports: BTreeMap<String, Arc<dyn Transport>>,
    /// Looks at brokers, which end with it.
    looks: JoinSet<()>,
    grace: Duration,
}

impl Prepared {
    /// Checks everything. Nothing has been connected to yet.
    pub(crate) fn of(config: &Config) -> Result<Self, String> {
        let prepared = Self::unchecked(config)?;
        prepared.builder.check().map_err(|invalid| by_keys(&invalid))?;
        Ok(prepared)
    }

    /// Builds everything; what the fleet itself objects to shows when it starts.
    pub(super) fn unchecked(config: &Config) -> Result<Self, String> {
        let mut transports = BTreeMap::new();
        for (name, section) in &config.transports {
            transports.insert(name.clone(), section.transport(name)?);
        }
        let places = Places(config.places()?);
        let relay = &config.relay;
        let retry = RetryPolicy::default().attempts_max(relay.attempts);
        let batch_max = config.routes.iter().map(|section| section.batch).max().unwrap_or_default();
        let claim_limit = batch_max.saturating_mul(BATCHES_PER_CLAIM).clamp(1, CLAIM_MAX);
        let mut builder = Fleet::builder()
            .worker_count(relay.workers)
            .claim_limit(u32::try_from(claim_limit).unwrap_or(u32::MAX))
            // While one waits for the disk and one for its messages, a third keeps the database busy.
            .store_call_count(CALLS)
            .cold_capacity(claim_limit * CALLS)
            .connections_max(relay.connections)
            .lease(relay.lease)
            .poll_interval(relay.poll_interval)
            // What a relay left that died is looked for as soon as its leases can have run out.
            .reap_interval(relay.lease)
            .retry(retry)
            .unknown_topics(UnknownTopics::Leave)
            .store_options(StoreOptions { retention: relay.retention(), ..StoreOptions::default() })
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
        let checkups = config.transports.keys().map(|name| (name.clone(), config.checkup(name))).collect();
        Ok(Self { builder: builder.discover(places), transports, checkups, grace: relay.grace })
    }

    /// Starts to deliver. Stores and brokers that are away keep nothing from starting: they are tried again.
    pub(crate) async fn start(self) -> Result<Relay, String> {
        let Self { builder, transports, mut checkups, grace } = self;
        let fleet = builder.start().await.map_err(|error| error.to_string())?;
        let mut looks = JoinSet::new();
        for (name, transport) in &transports {
            if let Some(checkup) = checkups.remove(name) {
                looks.spawn(look_at(name.clone(), Arc::clone(transport), checkup));
            }
        }
        Ok(Relay { fleet, transports, looks, grace })
    }
}

/// H46: what would cost messages is told from the start, as `pillarbox doctor --config` tells it. Whether a broker is there, its
/// routes tell.
async fn look_at(name: String, transport: Arc<dyn Transport>, checkup: Checkup) {
    for Finding { check, health, what, fix } in transport.diagnose(&checkup).await {
        if health >= Health::Warning {
            let fix = fix.unwrap_or_default();
            tracing::warn!(transport = name, check, fix, "something is wrong with a broker: {what}");
        }
    }
}

impl Relay {
    pub(crate) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Ends what is under way, gives the rest back, and takes leave of the brokers.
    pub(crate) async fn shutdown(mut self) -> ShutdownReport {
        self.looks.shutdown().await;
        let report = self.fleet.shutdown(self.grace).await;
        for transport in self.transports.values() {
            transport.close().await;
        }
        report
    }
}

/// Complaints about a fleet, under the names that its settings have in the file.
fn by_keys(invalid: &Invalid) -> String {
    let complaint = |problem: &Problem| {
        let (field, words) = (problem.field(), problem.to_string());
        let key = match field {
            "worker_count" => "relay.workers",
            "connections_max" => "relay.connections",
            "lease" => "relay.lease",
            "poll_interval" => "relay.poll_interval",
            _ => return words,
        };
        words.replacen(field, key, 1)
    };
    let complaints: Vec<_> = invalid.problems().iter().map(complaint).collect();
    complaints.join("; ")
}

/// Which route a message would take, for `routes explain`.
pub(crate) fn table(config: &Config) -> Result<(RouteTable, Vec<Selector>), String> {
    let selectors: Vec<_> = config.routes.iter().map(|route| route.route().selector().clone()).collect();
    let table = RouteTable::new(selectors.iter().cloned()).map_err(|invalid| invalid.to_string())?;
    Ok((table, selectors))
}

/// The stores of the file, which do not change while it is not read again.
struct Places(Vec<StorePlace>);

#[async_trait]
impl Discovery for Places {
    async fn discover(&self) -> Result<Vec<StorePlace>, DiscoveryError> {
        Ok(self.0.clone())
    }
}
