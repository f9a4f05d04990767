//! AMQP 1.0, as Azure Service Bus, ActiveMQ Artemis and RabbitMQ speak it: a message is delivered when it was accepted.

mod lane;
mod server;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use fe2o3_amqp::types::messaging::{ApplicationProperties, Data, Header, Message, Properties};
use fe2o3_amqp::types::primitives::{SimpleValue, Symbol, Timestamp};
use futures_util::{StreamExt, stream};
use pillarbox_core::wire::{self, Wire};
use pillarbox_core::{DeliveryResult, Invalid, Parcel, Transport, Undelivered};

use crate::batch::Batch;
use crate::link::{Line, Link};
use lane::Trouble;
use server::{Connected, Server};

/// Addresses that one call sends to at once.
const ADDRESSES_AT_ONCE: usize = 16;

/// Bytes of an address.
const ADDRESS_BYTES_MAX: usize = 1_024;

/// Characters of a group id; Azure Service Bus takes no more.
const GROUP_CHARS_MAX: usize = 128;

/// Links that break on one address before all that is left for it waits for another time.
const BREAKS_MAX: usize = 3;

/// Addresses of an AMQP 1.0 broker. Cheap to clone; clones share one connection.
///
/// A destination is an address as the broker has it: the name of a queue or topic at Azure Service Bus, `/queue/name`,
/// `/exchange/name/key` or `/amq/queue/name` at RabbitMQ before 4.0, `/queues/name` or `/exchanges/name/key` since.
///
/// A message is durable. Its id, correlation id, content type and time are properties, its type is the subject, and its key the
/// group id (the session of Azure Service Bus); every field and header is an application property. An outcome other than accepted
/// is no delivery: a broker that releases what nobody takes refuses it so.
///
/// When a message breaks the link, because it is too large or not permitted, those around it that were not accepted are sent
/// again, under the same ids.
#[derive(Clone)]
pub struct Amqp {
    shared: Arc<Shared>,
}

struct Shared {
    server: Server,
    link: Link<Arc<Connected>>,
}

/// How an [`Amqp`] behaves.
#[derive(Clone, PartialEq, Eq)]
pub struct AmqpOptions {
    /// How long a call may take, connecting included; 10 s unless set.
    pub timeout: Duration,
    /// What the broker is called in the protocol; its host unless set. RabbitMQ takes `vhost:name` for a virtual host.
    pub hostname: Option<String>,
    /// Roots that `amqps://` trusts besides the usual ones, as PEM.
    pub root_certificate: Option<String>,
}

impl Default for AmqpOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), hostname: None, root_certificate: None }
    }
}

impl fmt::Debug for AmqpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { timeout, hostname, .. } = self;
        f.debug_struct("AmqpOptions").field("timeout", timeout).field("hostname", hostname).finish_non_exhaustive()
    }
}

impl Amqp {
    /// A transport to the broker at `amqp://[user:password@]host[:port]`, or `amqps://…`. Without a user it is an anonymous one.
    /// Connects when it is first used.
    pub fn connect_to(url: &str) -> Result<Self, Invalid> {
        Self::with(url, AmqpOptions::default())
    }

    /// Like [`connect_to`](Self::connect_to), with settings of your own.
    pub fn with(url: &str, options: AmqpOptions) -> Result<Self, Invalid> {
        Ok(Self { shared: Arc::new(Shared { server: Server::parse(url, options)?, link: Link::new() }) })
    }

    async fn line(&self) -> Result<Line<Arc<Connected>>, Undelivered> {
        let Shared { server, link } = &*self.shared;
        let line = link.get(server.connect()).await?;
        if !line.connection.is_over().await {
            return Ok(line);
        }
        link.broken(&line).await;
        link.get(server.connect()).await
    }

    async fn send(&self, batch: &Mutex<Batch<'_>>, used: &mut Option<Line<Arc<Connected>>>) -> Result<(), Undelivered> {
        let groups = by_address(&mut locked(batch));
        if groups.is_empty() {
            return Ok(());
        }
        let line = self.line().await?;
        *used = Some(line.clone());
        let send_group = |(address, places)| send_to(&line.connection, batch, address, places);
        let sends: Vec<_> = groups.into_iter().map(send_group).collect();
        let sent: Vec<_> = stream::iter(sends).buffer_unordered(ADDRESSES_AT_ONCE).collect().await;
        let Some(away) = sent.into_iter().find_map(Result::err) else { return Ok(()) };
        self.shared.link.broken(&line).await;
        Err(Undelivered::unavailable(format!("{}: {away}", self.shared.server)))
    }

    /// What is said when the time is up, after the connection is cut, with everything that was still to be written.
    async fn late(&self, used: Option<Line<Arc<Connected>>>) -> Undelivered {
        let Shared { server, link } = &*self.shared;
        if let Some(line) = used {
            line.connection.cut();
            link.broken(&line).await;
        }
        Undelivered::unavailable(format!("{server}: no answer within {:?}", server.timeout))
    }
}

impl fmt::Debug for Amqp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Amqp").field(&format_args!("{}", self.shared.server)).finish()
    }
}

#[async_trait]
impl Transport for Amqp {
    fn kind(&self) -> &'static str {
        "amqp"
    }

    async fn deliver(&self, parcels: &[Parcel<'_>]) -> Vec<DeliveryResult> {
        let (batch, mut used) = (Mutex::new(Batch::new(parcels)), None);
        let sent = tokio::time::timeout(self.shared.server.timeout, self.send(&batch, &mut used)).await;
        let missing = match sent {
            Ok(Ok(())) => Undelivered::unavailable("no answer"),
            Ok(Err(away)) => away,
            Err(_) => self.late(used).await,
        };
        batch.into_inner().unwrap_or_else(PoisonError::into_inner).finish(&missing)
    }

    async fn probe(&self) -> Result<(), Undelivered> {
        let server = &self.shared.server;
        let probed = tokio::time::timeout(server.timeout, async {
            let line = self.line().await?;
            line.connection
                .begin()
                .await
                .map(drop)
                .map_err(|away| Undelivered::unavailable(format!("{server}: {away}")))
        });
        probed.await.unwrap_or_else(|_| Err(Undelivered::unavailable(format!("{server}: no answer"))))
    }

    async fn close(&self) {
        if let Some(connected) = self.shared.link.take().await {
            connected.close(self.shared.server.timeout).await;
        }
    }
}

/// The places of a batch by their addresses; answers for those that have none.
fn by_address<'a>(batch: &mut Batch<'a>) -> Vec<(&'a str, Vec<usize>)> {
    let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
    let mut known = HashMap::new();
    for place in batch.unanswered() {
        let address: &str = &batch.parcel(place).destination;
        if let Err(undelivered) = check(address) {
            batch.answer(place, Err(undelivered));
            continue;
        }
        let group = *known.entry(address).or_insert(groups.len());
        if group == groups.len() {
            groups.push((address, Vec::new()));
        }
        groups[group].1.push(place);
    }
    groups
}

fn check(address: &str) -> Result<(), Undelivered> {
    let wrong = |what: &str| Err(Undelivered::rejected(format!("the destination {address:?} {what}")));
    if address.is_empty() {
        return wrong("is empty");
    }
    if address.len() > ADDRESS_BYTES_MAX {
        return wrong(&format!("has more than {ADDRESS_BYTES_MAX} bytes"));
    }
    if address.chars().any(char::is_control) {
        return wrong("has a control character");
    }
    Ok(())
}

/// Answers for all messages of one address; fails when the connection is of no more use.
async fn send_to(
    connected: &Connected,
    batch: &Mutex<Batch<'_>>,
    address: &str,
    mut places: Vec<usize>,
) -> Result<(), String> {
    let mut break_count = 0;
    loop {
        let trouble = match connected.lane(address).await {
            Ok(mut lane) => match lane.send(batch, &places).await {
                Ok(()) => {
                    connected.give_back(lane);
                    return Ok(());
                }
                Err(trouble) => trouble,
            },
            // Nothing can be sent there at all.
            Err(trouble) => {
                break_count = BREAKS_MAX;
                trouble
            }
        };
        let mut batch = locked(batch);
        places.retain(|place| !batch.is_answered(*place));
        match trouble {
            Trouble::Away(why) => return Err(why),
            Trouble::TooLarge(limit) => {
                let bytes = |place: usize| Wire::plain(batch.parcel(place).message).bytes();
                let Some(largest) = places.iter().copied().max_by_key(|place| bytes(*place)) else { return Ok(()) };
                let bytes = bytes(largest);
                batch.answer(largest, Err(Undelivered::TooLarge { bytes, limit }));
            }
            Trouble::Refused(why) => {
                break_count += 1;
                let count = if break_count >= BREAKS_MAX { places.len() } else { 1 };
                for place in places.drain(..count.min(places.len())) {
                    batch.answer(place, Err(Undelivered::refused(&why)));
                }
            }
        }
        places.retain(|place| !batch.is_answered(*place) && batch.admits(*place));
        if places.is_empty() {
            return Ok(());
        }
    }
}

/// A message as AMQP 1.0 has it.
fn encoded(message: &pillarbox_core::Message) -> Message<Data> {
    let wire = Wire::plain(message);
    let mut all = ApplicationProperties::default();
    for (name, value) in &wire.headers {
        all.0.insert(name.to_string(), SimpleValue::String(value.to_string()));
    }
    // A symbol is ASCII.
    let (symbol, other) = match wire.content_type.as_deref() {
        Some(text) if text.is_ascii() => (Some(Symbol::from(text)), None),
        text => (None, text),
    };
    if let Some(text) = other {
        all.0.insert(wire::CONTENT_TYPE.to_owned(), SimpleValue::String(text.to_owned()));
    }
    let millis = |at: SystemTime| i64::try_from(at.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis()).ok();
    let properties = Properties {
        message_id: Some(message.id().to_string().into()),
        subject: message.get_message_type().map(str::to_owned),
        correlation_id: message.get_correlation_id().map(|id| id.to_owned().into()),
        content_type: symbol,
        creation_time: message.get_occurred_at().and_then(millis).map(Timestamp::from),
        group_id: message.get_key().filter(|key| key.chars().count() <= GROUP_CHARS_MAX).map(str::to_owned),
        ..Properties::new()
    };
    Message::builder()
        .header(Header { durable: true, ..Header::default() })
        .properties(properties)
        .application_properties(all)
        .data(wire.body.to_vec())
        .build()
}

fn locked<'m, 'b>(batch: &'m Mutex<Batch<'b>>) -> MutexGuard<'m, Batch<'b>> {
    batch.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_checked_before_anything_is_sent() {
        assert_eq!(check("/queue/orders"), Ok(()));
        for address in ["", "a\nb", "x".repeat(1_025).as_str()] {
            assert!(matches!(check(address), Err(Undelivered::Rejected { .. })), "{address}");
        }
    }

    /// H48: a secret is in no picture of a transport.
    #[test]
    fn a_picture_shows_the_address_and_no_password() {
        let amqp = Amqp::connect_to("amqps://policy:canary@bus.example").unwrap();
        assert_eq!(format!("{amqp:?}"), "Amqp(bus.example:5671)");
    }

    #[test]
    fn a_content_type_that_is_no_symbol_is_a_property() {
        let message = pillarbox_core::Message::new("t", "").content_type("größe").key("k".repeat(129));
        let encoded = encoded(&message);
        let properties = encoded.properties.unwrap();
        assert_eq!((properties.content_type, properties.group_id), (None, None));
        let all = encoded.application_properties.unwrap();
        assert_eq!(all.0.get("content-type"), Some(&SimpleValue::String("größe".to_owned())));
    }
}
