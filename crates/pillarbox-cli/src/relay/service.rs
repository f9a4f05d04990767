//! The relay as a process: it starts, reads its file again when it is told to, and ends in order.

use std::pin::pin;

use pillarbox::ShutdownReport;

use super::signals::{Signals, Told};
use super::{Config, Endpoint, Port, Prepared, Relay};
use crate::exit::Failure;
use crate::output::tell;

/// A relay that runs, and everything that a signal may change.
pub(crate) struct Service<R> {
    read: R,
    signals: Signals,
    endpoint: Endpoint,
    port: Port,
    config: Config,
    relay: Relay,
}

/// What a file asks for, found to be right.
struct Next {
    config: Config,
    prepared: Prepared,
    /// None where it stays as it is.
    port: Option<Port>,
}

impl<R: Fn() -> Result<Config, Failure>> Service<R> {
    /// Starts to deliver; none when it was told to end before it was up.
    pub(crate) async fn start(read: R, mut signals: Signals) -> Result<Option<Self>, Failure> {
        let config = read()?;
        let prepared = Prepared::of(&config).map_err(Failure::wrong_use)?;
        let endpoint = Endpoint::new().map_err(Failure::new)?;
        let port = endpoint.open(&config.relay.listen).await.map_err(Failure::new)?;
        let Some(started) = signals.unless_ended(prepared.start()).await else {
            tell(TOO_EARLY);
            return Ok(None);
        };
        let relay = started.map_err(Failure::new)?;
        endpoint.show(Some(relay.fleet().clone()));
        tell(&format!("relay: {}; {port}", config.summary()));
        Ok(Some(Self { read, signals, endpoint, port, config, relay }))
    }

    /// Does what signals say, until one of them says to end.
    pub(crate) async fn run(mut self) -> Result<(), Failure> {
        loop {
            match self.signals.next().await {
                Told::End => {
                    tell(ENDING);
                    self.endpoint.show(None);
                    tell(&ended(self.relay.shutdown().await));
                    return Ok(());
                }
                Told::ReadAgain => match self.read_again().await? {
                    Some(again) => self = again,
                    None => return Ok(()),
                },
            }
        }
    }

    /// Goes on by the file as it is now; none when it was told to end meanwhile. A file that is wrong changes nothing.
    async fn read_again(mut self) -> Result<Option<Self>, Failure> {
        let next = match self.next().await {
            Ok(next) => next,
            Err(failure) => {
                tell(&format!("relay: goes on as before, because {}", failure.words));
                return Ok(Some(self));
            }
        };
        tell("relay: changes over to its file as it is now; deliveries under way are finished, the rest is given back");
        self.endpoint.show(None);
        let mut shutdown = pin!(self.relay.shutdown());
        tokio::select! {
            biased;
            () = self.signals.end() => {
                tell(ENDING);
                tell(&ended(shutdown.await));
                return Ok(None);
            }
            _ = &mut shutdown => {}
        }
        let before = || Prepared::of(&self.config);
        let Some(started) = self.signals.unless_ended(start_or(next.prepared, before)).await else {
            tell(TOO_EARLY);
            return Ok(None);
        };
        let (relay, why_not) = started.map_err(Failure::new)?;
        self.endpoint.show(Some(relay.fleet().clone()));
        let (config, unused) = match &why_not {
            None => (next.config, next.port.map(|port| std::mem::replace(&mut self.port, port))),
            Some(_) => (self.config, next.port),
        };
        if let Some(port) = unused {
            port.close().await;
        }
        let (summary, port) = (config.summary(), &self.port);
        tell(&match why_not {
            None => format!("relay: read again: {summary}; {port}"),
            Some(why) => {
                format!("relay: goes on as before, because the new one could not start: {why}; {summary}; {port}")
            }
        });
        Ok(Some(Self { config, relay, ..self }))
    }

    /// Everything that can go wrong, while the one that runs still runs.
    async fn next(&self) -> Result<Next, Failure> {
        let config = (self.read)()?;
        let prepared = Prepared::of(&config).map_err(Failure::wrong_use)?;
        let listen = &config.relay.listen;
        let port = match self.port.is_at(listen) {
            true => None,
            false => Some(self.endpoint.open(listen).await.map_err(Failure::new)?),
        };
        Ok(Next { config, prepared, port })
    }
}

/// Starts the next one or, where that fails, the one before: an old relay is better than none. Which, and why.
async fn start_or(
    next: Prepared,
    before: impl FnOnce() -> Result<Prepared, String>,
) -> Result<(Relay, Option<String>), String> {
    match next.start().await {
        Ok(relay) => Ok((relay, None)),
        Err(why) => Ok((before()?.start().await?, Some(why))),
    }
}

const ENDING: &str = "relay: ending; deliveries under way are finished, the rest is given back";
const TOO_EARLY: &str = "relay: ended before it was up; what it had begun is left to its leases";

fn ended(report: ShutdownReport) -> String {
    let ShutdownReport { finished, released, interrupted, unsettled, .. } = report;
    format!(
        "relay: ended; {finished} finished, {released} given back, {interrupted} interrupted, {unsettled} left to their leases"
    )
}

#[cfg(test)]
mod tests {
    use super::super::StoreSection;
    use super::*;

    fn config(workers: usize) -> Config {
        let store = StoreSection::new("sqlite::memory:".to_owned(), "pillarbox".to_owned(), "outbox".to_owned());
        let mut config = Config::of_flags(store, "-", "**".to_owned(), "-".to_owned());
        config.relay.workers = workers;
        config
    }

    #[tokio::test]
    async fn where_the_next_one_cannot_start_the_one_before_does() {
        let cannot = || Prepared::unchecked(&config(0)).unwrap();
        let (relay, why) = start_or(cannot(), || Prepared::of(&config(1))).await.unwrap();
        assert!(why.unwrap().contains("must be 1 to"));
        assert_eq!(relay.fleet().stores().len(), 1);
        relay.shutdown().await;
        assert!(start_or(cannot(), || Ok(cannot())).await.is_err(), "neither can");
    }
}
