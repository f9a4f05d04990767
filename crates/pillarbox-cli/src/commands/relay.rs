//! `pillarbox relay`: delivers what stands in outboxes to brokers, until it is told to end.

use std::path::PathBuf;

use clap::Args;
use pillarbox::ShutdownReport;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Exit, Failure};
use crate::output::{counted, say, tell};
use crate::relay::{Config, Endpoint, Relay, StoreSection};

#[derive(Args)]
pub(crate) struct Options {
    /// The file that names stores, transports and routes; SIGHUP reads it again.
    #[arg(long, value_name = "FILE", env = "PILLARBOX_CONFIG", conflicts_with_all = ["url", "to"])]
    config: Option<PathBuf>,
    /// Without a file: the database, or the variable DATABASE_URL.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Without a file: the broker, such as nats://127.0.0.1:4222 or `-` for standard output.
    #[arg(long, value_name = "URL", env = "PILLARBOX_TO", hide_env_values = true, allow_hyphen_values = true)]
    to: Option<String>,
    /// Without a file: only these topics.
    #[arg(long, value_name = "PATTERN", default_value = "**")]
    topic: String,
    /// Without a file: where they go, with the names of fields in braces.
    #[arg(long, value_name = "TEMPLATE", default_value = "{topic}")]
    destination: String,
    /// Without a file: the schema of the tables.
    #[arg(long, value_name = "NAME", default_value = "pillarbox")]
    schema: String,
    /// Without a file: the outbox table.
    #[arg(long, value_name = "NAME", default_value = "outbox")]
    table: String,
    /// Where health and metrics are served, instead of what the file says; `off` for nowhere.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Only check the file, and say what it means.
    #[arg(long)]
    check: bool,
}

impl Options {
    fn read(&self) -> Result<Config, Failure> {
        let mut config = match &self.config {
            Some(path) => Config::read(path).map_err(Failure::wrong_use)?,
            None => self.of_flags()?,
        };
        if let Some(listen) = &self.listen {
            config.relay.listen.clone_from(listen);
        }
        Ok(config)
    }

    fn of_flags(&self) -> Result<Config, Failure> {
        let url = self.url.clone().or_else(|| std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty()));
        let (Some(url), Some(to)) = (url, &self.to) else {
            return Err(Failure::wrong_use(
                "give --config <FILE>, or a database (--url, DATABASE_URL) and a broker (--to)",
            ));
        };
        let store = StoreSection::new(url, self.schema.clone(), self.table.clone());
        Ok(Config::of_flags(store, to, self.topic.clone(), self.destination.clone()))
    }
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let config = options.read()?;
    if options.check {
        crate::relay::table(&config).map_err(Failure::wrong_use)?;
        say(&format!("{}: fine\n", summary(&config)))?;
        return Ok(Exit::Fine);
    }
    crate::log::start();
    let endpoint = Endpoint::new().map_err(Failure::new)?;
    let mut relay = Relay::start(&config).await.map_err(Failure::wrong_use)?;
    endpoint.show(Some(relay.fleet().clone()));
    let metrics = match config.relay.listen.as_str() {
        "off" => "no metrics".to_owned(),
        listen => format!("metrics on {}/metrics", endpoint.serve(listen).await.map_err(Failure::new)?),
    };
    tell(&format!("relay: {}; {metrics}", summary(&config)));

    let cannot = |error: std::io::Error| Failure::new(format!("signals cannot be heard: {error}"));
    let mut hangups = signal(SignalKind::hangup()).map_err(cannot)?;
    loop {
        tokio::select! {
            () = pillarbox::signal::terminated() => break,
            _ = hangups.recv() => relay = reloaded(relay, &options, &endpoint).await?,
        }
    }
    tell("relay: ending; deliveries under way are finished, the rest is given back");
    endpoint.show(None);
    let report = relay.shutdown().await;
    let ShutdownReport { finished, released, interrupted, unsettled, .. } = report;
    tell(&format!(
        "relay: ended; {finished} finished, {released} given back, {interrupted} interrupted, {unsettled} left to their leases"
    ));
    Ok(Exit::Fine)
}

/// The file read again. One that is wrong changes nothing.
async fn reloaded(relay: Relay, options: &Options, endpoint: &Endpoint) -> Result<Relay, Failure> {
    let read = options.read().and_then(|config| {
        crate::relay::table(&config).map_err(Failure::wrong_use)?;
        Ok(config)
    });
    let config = match read {
        Ok(config) => config,
        Err(failure) => {
            tell(&format!("relay: goes on as before, because {}", failure.words));
            return Ok(relay);
        }
    };
    endpoint.show(None);
    relay.shutdown().await;
    let relay = Relay::start(&config).await.map_err(Failure::wrong_use)?;
    endpoint.show(Some(relay.fleet().clone()));
    tell(&format!("relay: read again: {}", summary(&config)));
    Ok(relay)
}

fn summary(config: &Config) -> String {
    let parts = [
        (config.stores.len(), "store", "stores"),
        (config.transports.len(), "transport", "transports"),
        (config.routes.len(), "route", "routes"),
    ];
    parts.map(|(count, one, many)| counted(count, one, many)).join(", ")
}
