//! `pillarbox relay`: delivers what stands in outboxes to brokers, until it is told to end.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output::{json_line, say};
use crate::relay::{Config, Prepared, Service, Signals, StoreSection};

/// A file or flags say what to do; flags come before the variable PILLARBOX_CONFIG, and a file before PILLARBOX_TO.
#[derive(Args)]
pub(crate) struct Options {
    /// The file that names stores, transports and routes, or the variable PILLARBOX_CONFIG; SIGHUP reads it again.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "to", "topic", "destination", "schema", "table"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    /// Where health and metrics are served, instead of what the file says; `off` for nowhere.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Only check everything that can be checked without stores and brokers, and say what it means.
    #[arg(long)]
    check: bool,
    /// Print one line of JSON.
    #[arg(long, requires = "check")]
    json: bool,
}

/// One store and one broker, without a file.
#[derive(Args)]
struct Flags {
    /// Without a file: the database, or the variable DATABASE_URL.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Without a file: the broker, such as nats://127.0.0.1:4222 or `-` for standard output, or the variable PILLARBOX_TO.
    #[arg(long, value_name = "URL", allow_hyphen_values = true)]
    to: Option<String>,
    /// Without a file: only these topics; all unless given.
    #[arg(long, value_name = "PATTERN")]
    topic: Option<String>,
    /// Without a file: where they go, with the names of fields in braces; `{topic}` unless given.
    #[arg(long, value_name = "TEMPLATE")]
    destination: Option<String>,
    /// Without a file: the schema of the tables; `pillarbox` unless given.
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,
    /// Without a file: the outbox table; `outbox` unless given.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
}

impl Options {
    fn read(&self) -> Result<Config, Failure> {
        let of_environment =
            || if self.flags.are_given() { None } else { variable("PILLARBOX_CONFIG").map(PathBuf::from) };
        let mut config = match self.config.clone().or_else(of_environment) {
            Some(path) => Config::read(&path).map_err(Failure::wrong_use)?,
            None => self.flags.config()?,
        };
        if let Some(listen) = &self.listen {
            config.relay.listen.clone_from(listen);
        }
        Ok(config)
    }

    fn check(&self) -> Result<Exit, Failure> {
        let config = self.read()?;
        Prepared::of(&config).map_err(Failure::wrong_use)?;
        say(&match self.json {
            true => json_line(&as_json(&config)),
            false => format!("{}: fine\n", config.summary()),
        })?;
        Ok(Exit::Fine)
    }
}

impl Flags {
    fn are_given(&self) -> bool {
        let Self { url, to, topic, destination, schema, table } = self;
        [url, to, topic, destination, schema, table].into_iter().any(Option::is_some)
    }

    fn config(&self) -> Result<Config, Failure> {
        let url = self.url.clone().or_else(|| variable("DATABASE_URL"));
        let to = self.to.clone().or_else(|| variable("PILLARBOX_TO"));
        let (Some(url), Some(to)) = (url, to) else {
            return Err(Failure::wrong_use(
                "give --config <FILE>, or a database (--url, DATABASE_URL) and a broker (--to, PILLARBOX_TO)",
            ));
        };
        let or = |given: &Option<String>, otherwise: &str| given.clone().unwrap_or_else(|| otherwise.to_owned());
        let store = StoreSection::new(url, or(&self.schema, "pillarbox"), or(&self.table, "outbox"));
        Ok(Config::of_flags(store, &to, or(&self.topic, "**"), or(&self.destination, "{topic}")))
    }
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    if options.check {
        return options.check();
    }
    let cannot = |error: std::io::Error| Failure::new(format!("signals cannot be heard: {error}"));
    let signals = Signals::listen().map_err(cannot)?;
    crate::log::start();
    if let Some(service) = Service::start(|| options.read(), signals).await? {
        service.run().await?;
    }
    Ok(Exit::Fine)
}

/// Of the environment; one that is empty is as good as none.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn as_json(config: &Config) -> Value {
    let routes = config.routes.iter().map(|route| {
        let destination = &route.destination;
        json!({ "route": route.route().selector().name(), "to": route.to, "destination": destination })
    });
    json!({
        "is_fine": true,
        "stores": config.stores.keys().collect::<Vec<_>>(),
        "transports": config.transports.keys().collect::<Vec<_>>(),
        "routes": routes.collect::<Vec<_>>(),
    })
}
