//! What a relay is told in its file: stores, transports, and which messages go where.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use pillarbox::naming::Naming;
use pillarbox::relay::DELIVERY_BATCH_DEFAULT;
use pillarbox::retention::Retention;
use pillarbox::{Backend, Checkup, Route, StorePlace, Template};
use serde::Deserialize;

use super::duration;
use super::transports::{Format, TransportSection};
use crate::output::counted;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    #[serde(default)]
    pub(crate) relay: RelaySection,
    pub(crate) stores: BTreeMap<String, StoreSection>,
    pub(crate) transports: BTreeMap<String, TransportSection>,
    pub(crate) routes: Vec<RouteSection>,
}

/// How the relay itself works.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RelaySection {
    /// Where health and metrics are served; `off` for nowhere.
    pub(crate) listen: String,
    /// Batches that are delivered at one time.
    pub(crate) workers: usize,
    /// Connections to all stores together.
    pub(crate) connections: usize,
    /// How long deliveries may go on after SIGTERM.
    #[serde(with = "duration")]
    pub(crate) grace: Duration,
    /// How long a message stays ours unless renewed.
    #[serde(with = "duration")]
    pub(crate) lease: Duration,
    /// How often to look when nobody wakes us.
    #[serde(with = "duration")]
    pub(crate) poll_interval: Duration,
    /// Attempts before a message is dead.
    pub(crate) attempts: u32,
    /// Under which name it stands in the list of instances; in none unless set.
    pub(crate) instance: Option<String>,
    /// What is left of a message that was delivered.
    keep: Keep,
    /// How long; as long as the library keeps it unless set.
    #[serde(with = "duration::optional")]
    keep_for: Option<Duration>,
}

/// What is left of a message that was delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Keep {
    #[default]
    Message,
    Receipt,
    Nothing,
}

impl Default for RelaySection {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:9464".to_owned(),
            workers: 4,
            connections: 16,
            grace: Duration::from_secs(30),
            lease: Duration::from_secs(30),
            poll_interval: Duration::from_millis(500),
            attempts: 10,
            instance: None,
            keep: Keep::default(),
            keep_for: None,
        }
    }
}

impl RelaySection {
    /// What becomes of messages that were delivered.
    pub(crate) fn retention(&self) -> Retention {
        let time = self.keep_for.or(Retention::default().keeps_for()).unwrap_or_default();
        match self.keep {
            Keep::Message => Retention::Message(time),
            Keep::Receipt => Retention::Receipt(time),
            Keep::Nothing => Retention::Delete,
        }
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreSection {
    url: String,
    #[serde(default = "schema_name")]
    schema: String,
    #[serde(default = "table_name")]
    table: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteSection {
    name: Option<String>,
    #[serde(default = "every_topic")]
    topic: String,
    #[serde(rename = "type")]
    message_type: Option<String>,
    tenant: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The name of a transport.
    pub(crate) to: String,
    #[serde(default = "same_topic")]
    pub(crate) destination: String,
    #[serde(default = "batch_default")]
    pub(crate) batch: usize,
    concurrency: Option<usize>,
}

// Addresses are never shown.
impl fmt::Debug for StoreSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSection").field("schema", &self.schema).field("table", &self.table).finish_non_exhaustive()
    }
}

impl Config {
    /// Reads a file; every complaint names it.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
        Self::parse(&text, |name| std::env::var(name).ok()).map_err(|problems| format!("{shown}: {problems}"))
    }

    /// One store and one transport, as the command line tells them.
    pub(crate) fn of_flags(store: StoreSection, transport: &str, topic: String, destination: String) -> Self {
        let route = RouteSection {
            name: None,
            topic,
            message_type: None,
            tenant: None,
            headers: BTreeMap::new(),
            to: "out".to_owned(),
            destination,
            batch: DELIVERY_BATCH_DEFAULT,
            concurrency: None,
        };
        Self {
            relay: RelaySection::default(),
            stores: BTreeMap::from([("store".to_owned(), store)]),
            transports: BTreeMap::from([("out".to_owned(), TransportSection::at(transport))]),
            routes: vec![route],
        }
    }

    fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut config: Self = toml::from_str(text).map_err(|error| without_values(&error, text))?;
        let mut problems = Vec::new();
        for (name, store) in &mut config.stores {
            expand(&format!("stores.{name}.url"), &mut store.url, &variable, &mut problems);
        }
        for (name, transport) in &mut config.transports {
            expand(&format!("transports.{name}.url"), &mut transport.url, &variable, &mut problems);
            for secret in &mut transport.secrets {
                expand(&format!("transports.{name}.secrets"), secret, &variable, &mut problems);
            }
            for (header, value) in &mut transport.headers {
                expand(&format!("transports.{name}.headers.{header}"), value, &variable, &mut problems);
            }
            for (property, value) in &mut transport.properties {
                expand(&format!("transports.{name}.properties.{property}"), value, &variable, &mut problems);
            }
            if transport.url.is_empty() {
                problems.push(format!("transports.{name}.url is missing"));
            }
            if transport.format != Format::Plain && transport.source.is_none() {
                problems.push(format!("transports.{name}.source is missing: CloudEvents say where they come from"));
            }
        }
        if config.relay.keep == Keep::Nothing && config.relay.keep_for.is_some() {
            problems.push("relay.keep_for says how long, and relay.keep that nothing is kept".to_owned());
        }
        if config.stores.is_empty() {
            problems.push("there is no [stores.<name>]".to_owned());
        }
        if config.routes.is_empty() {
            problems.push("there are no [[routes]]: no message would go anywhere".to_owned());
        }
        for (index, route) in config.routes.iter().enumerate() {
            if !config.transports.contains_key(&route.to) {
                let known: Vec<_> = config.transports.keys().map(String::as_str).collect();
                let (number, to, known) = (index + 1, &route.to, known.join(", "));
                problems.push(format!("route {number} goes to `{to}`, and the transports are: {known}"));
            }
            if let Err(invalid) = route.destination.parse::<Template>() {
                problems.push(format!("route {}: {invalid}", index + 1));
            }
        }
        if problems.is_empty() { Ok(config) } else { Err(problems.join("; ")) }
    }

    /// Where the stores are.
    pub(crate) fn places(&self) -> Result<Vec<StorePlace>, String> {
        let place = |(name, store): (&String, &StoreSection)| {
            Backend::of_url(&store.url).map_err(|error| format!("stores.{name}.url: {error}"))?;
            let naming =
                Naming::new(&store.schema, &store.table).map_err(|invalid| format!("stores.{name}: {invalid}"))?;
            let place =
                StorePlace::new(name.as_str(), &store.url).map_err(|invalid| format!("stores.{name}: {invalid}"))?;
            Ok(place.naming(naming))
        };
        self.stores.iter().map(place).collect()
    }

    /// What a look at a transport is about: where its routes lead.
    pub(crate) fn checkup(&self, transport: &str) -> Checkup {
        let routes = self.routes.iter().filter(|route| route.to == transport);
        let destinations = routes.filter_map(|route| route.destination.parse::<Template>().ok());
        Checkup::new(destinations.collect(), self.relay.lease)
    }

    /// How much of everything there is.
    pub(crate) fn summary(&self) -> String {
        let parts = [
            (self.stores.len(), "store", "stores"),
            (self.transports.len(), "transport", "transports"),
            (self.routes.len(), "route", "routes"),
        ];
        parts.map(|(count, one, many)| counted(count, one, many)).join(", ")
    }
}

impl StoreSection {
    pub(crate) fn new(url: String, schema: String, table: String) -> Self {
        Self { url, schema, table }
    }
}

impl RouteSection {
    /// The messages that it is about.
    pub(crate) fn route(&self) -> Route {
        let mut route = Route::topic(&self.topic);
        if let Some(message_type) = &self.message_type {
            route = route.of_type(message_type.as_str());
        }
        if let Some(tenant) = &self.tenant {
            route = route.tenant(tenant);
        }
        for (name, value) in &self.headers {
            route = route.header(name, value);
        }
        if let Some(name) = &self.name {
            route = route.name(name);
        }
        if let Some(concurrency) = self.concurrency {
            route = route.concurrency_max(concurrency);
        }
        route
    }
}

/// The parser's complaint with its line, without the line's text: it may hold a password.
fn without_values(error: &toml::de::Error, text: &str) -> String {
    let line = error.span().map(|span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1);
    match line {
        Some(line) => format!("line {line}: {}", error.message()),
        None => error.message().to_owned(),
    }
}

/// Puts the values of `${NAME}`s in.
fn expand(field: &str, text: &mut String, variable: &impl Fn(&str) -> Option<String>, problems: &mut Vec<String>) {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else {
            problems.push(format!("{field} has `${{` without `}}`"));
            return;
        };
        match variable(name) {
            Some(value) => {
                expanded.push_str(before);
                expanded.push_str(&value);
            }
            None => problems.push(format!("{field} needs the variable {name}, which is not set")),
        }
        rest = after;
    }
    expanded.push_str(rest);
    *text = expanded;
}

fn schema_name() -> String {
    "pillarbox".to_owned()
}

fn table_name() -> String {
    "outbox".to_owned()
}

fn every_topic() -> String {
    "**".to_owned()
}

fn same_topic() -> String {
    "{topic}".to_owned()
}

fn batch_default() -> usize {
    DELIVERY_BATCH_DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
        [relay]
        grace = "5s"
        [stores.shop]
        url = "postgres://relay:${PASSWORD}@db/shop"
        [transports.bus]
        url = "nats://bus:4222"
        timeout = "1500ms"
        [[routes]]
        topic = "order.*"
        tenant = "acme"
        headers = { region = "eu" }
        to = "bus"
        destination = "shop.{topic}"
    "#;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, |name| (name == "PASSWORD").then(|| "canary".to_owned()))
    }

    #[test]
    fn a_file_names_stores_transports_and_routes() {
        let config = parse(WHOLE).unwrap();
        assert_eq!(config.relay.grace, Duration::from_secs(5));
        assert_eq!(config.places().unwrap()[0].address(), "postgres://relay:canary@db/shop");
        assert_eq!(config.transports["bus"].timeout, Some(Duration::from_millis(1500)));
        assert_eq!(config.routes[0].destination, "shop.{topic}");
        assert!(!format!("{config:?}").contains("canary"), "no secret is shown");
    }

    #[test]
    fn a_file_says_what_is_left_of_delivered_messages() {
        let kept = |lines: &str| {
            parse(&WHOLE.replace("[relay]", &format!("[relay]\n{lines}"))).map(|file| file.relay.retention())
        };
        let (week, hour) = (Retention::default().keeps_for().unwrap(), Duration::from_secs(3600));
        for (lines, retention) in [
            ("", Retention::Message(week)),
            ("keep = 'receipt'", Retention::Receipt(week)),
            ("keep_for = '1h'", Retention::Message(hour)),
            ("keep = 'receipt'\nkeep_for = '1h'", Retention::Receipt(hour)),
            ("keep = 'nothing'", Retention::Delete),
        ] {
            assert_eq!(kept(lines), Ok(retention), "{lines}");
        }
        assert!(kept("keep = 'nothing'\nkeep_for = '1h'").unwrap_err().contains("relay.keep_for"));
        assert!(kept("keep = 'some'").unwrap_err().contains("line 3"));
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let text =
            WHOLE.replace("PASSWORD", "NOBODY").replace("to = \"bus\"", "to = \"bux\"").replace("{topic}", "{x}");
        let problems = parse(&text).unwrap_err();
        for part in [
            "stores.shop.url needs the variable NOBODY",
            "route 1 goes to `bux`, and the transports are: bus",
            "names `x`",
        ] {
            assert!(problems.contains(part), "{problems}");
        }
    }

    /// H54: the parser would print the line, and with it a password.
    #[test]
    fn a_complaint_names_the_line_and_not_its_text() {
        let text = "[stores.shop]\nurl = \"postgres://a:canary@db\"\ncolour = \"canary\"\n";
        let problems = parse(text).unwrap_err();
        assert!(problems.contains("colour") && problems.contains("line 3"), "{problems}");
        assert!(!problems.contains("canary"), "{problems}");
    }
}
