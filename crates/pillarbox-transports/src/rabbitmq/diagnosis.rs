//! Whether exchanges and queues are there.

use std::collections::BTreeSet;

use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::FieldTable;
use lapin::{ErrorKind, ExchangeKind};
use pillarbox_core::Checkup;
use pillarbox_core::diagnosis::Finding;
use pillarbox_core::template::Template;

use super::session::Session;
use super::target::Target;

/// What messages are sent to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Exchange(String),
    Queue(String),
    /// It depends on the message.
    Unknown,
}

/// Looks for the exchange or queue of each destination.
pub(super) async fn places(session: &Session, checkup: &Checkup) -> Vec<Finding> {
    let mut findings = Vec::new();
    for place in checkup.destinations.iter().map(Place::of).collect::<BTreeSet<_>>() {
        findings.push(match &place {
            Place::Unknown => Finding::unknown("exchange", "which one depends on the message"),
            Place::Exchange(name) => judge("exchange", name, session.has(&place).await),
            Place::Queue(name) => judge("queue", name, session.has(&place).await),
        });
    }
    findings
}

impl Place {
    fn of(destination: &Template) -> Self {
        let (text, is_whole) = match destination.constant() {
            Some(text) => (text, true),
            None => (destination.head(), false),
        };
        match Target::parse(text) {
            Ok(Target { exchange, routing_key }) if exchange.is_empty() && is_whole => Self::Queue(routing_key),
            Ok(Target { exchange, .. }) if !exchange.is_empty() => Self::Exchange(exchange),
            _ => Self::Unknown,
        }
    }
}

impl Session {
    /// A channel of its own: the broker closes the one on which it is asked for what is not there.
    async fn has(&self, place: &Place) -> Result<(), lapin::Error> {
        let channel = self.connection.create_channel().await?;
        match place {
            Place::Exchange(name) => {
                let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
                let table = FieldTable::default();
                channel.exchange_declare(name.as_str().into(), ExchangeKind::Topic, options, table).await?;
            }
            Place::Queue(name) => {
                let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
                channel.queue_declare(name.as_str().into(), options, FieldTable::default()).await?;
            }
            Place::Unknown => {}
        }
        channel.close(200, "OK".into()).await
    }
}

fn judge(kind: &'static str, name: &str, found: Result<(), lapin::Error>) -> Finding {
    let Err(error) = found else { return Finding::fine(kind, format!("`{name}` is there")) };
    let is_missing = matches!(
        error.kind(),
        ErrorKind::ProtocolError(said) if *said.kind() == AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND)
    );
    if !is_missing {
        return Finding::unknown(kind, format!("whether `{name}` is there cannot be asked: {error}"));
    }
    let more = if kind == "exchange" { " type=topic" } else { "" };
    let fix = format!("`rabbitmqadmin declare {kind} name={name}{more} durable=true`, or correct the destination");
    Finding::critical(kind, format!("there is no `{name}`: its messages are refused"), fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_names_an_exchange_or_a_queue() {
        let table = [
            ("events/order.created", Place::Exchange("events".into())),
            ("events/{topic}", Place::Exchange("events".into())),
            ("orders", Place::Queue("orders".into())),
            ("/orders", Place::Queue("orders".into())),
            ("{tenant}/orders", Place::Unknown),
            ("orders-{tenant}", Place::Unknown),
        ];
        for (destination, place) in table {
            assert_eq!(Place::of(&destination.parse().unwrap()), place, "{destination}");
        }
    }
}
