//! RabbitMQ, over AMQP 0.9.1: a message is delivered when the broker has confirmed it and did not return it.

mod diagnosis;
mod session;
mod subscription;
mod target;

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use lapin::options::BasicPublishOptions;
use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPSoftError};
use lapin::{Channel, Confirmation, ErrorKind};
use pillarbox_core::diagnosis::Finding;
use pillarbox_core::{Checkup, Delivery, DeliveryResult, Invalid, Parcel, Transport, Undelivered};

pub use subscription::{Declare, Nameless, RabbitSubscription, RabbitSubscriptionOptions, RabbitTag};

use crate::batch::Batch;
use crate::link::{Line, Link};
use session::{Broker, Session};
use target::{Draft, Target, short};

/// Messages and bytes that wait for their confirms at once.
const WINDOW_MESSAGES: usize = 500;
const WINDOW_BYTES: usize = 4 * 1024 * 1024;

/// Exchanges of a RabbitMQ. Cheap to clone; clones share one connection.
///
/// A destination is `exchange/routing key`, such as `events/order.created`; the routing key may be empty (`events/`) and may have
/// slashes. A name without a slash is a queue, by the default exchange, and so is one with a slash before it. `%2F` stands for a
/// slash in the name of an exchange or of such a queue, and `%25` for a percent sign.
///
/// Messages are persistent, and mandatory: what no queue is bound for is refused. The broker confirms a message when every durable
/// queue has it on disk, or has it on most of its nodes; a queue that is not durable loses it with the broker. A queue that has a
/// maximum length drops old messages without a word unless its `overflow` is `reject-publish`, and drops without a word what
/// outlives its `message-ttl`: give such a queue a dead-letter exchange.
///
/// The id of a message is the property `message_id`; correlation id, content type, type and time have their properties too, and
/// every field and header is in the table of headers. RabbitMQ does not know messages again by their ids.
///
/// When a message closes the channel, because there is no such exchange or because it is too large, those around it that were
/// not confirmed are sent again, under the same ids.
#[derive(Clone)]
pub struct Rabbit {
    shared: Arc<Shared>,
}

struct Shared {
    broker: Broker,
    link: Link<Arc<Session>>,
}

/// How a [`Rabbit`] behaves.
#[derive(Clone, PartialEq, Eq)]
pub struct RabbitOptions {
    /// How long a call may take, connecting included; 10 s unless set.
    pub timeout: Duration,
    /// Roots that `amqps://` trusts besides the usual ones, as PEM.
    pub root_certificate: Option<String>,
}

impl Default for RabbitOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), root_certificate: None }
    }
}

impl fmt::Debug for RabbitOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitOptions").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Rabbit {
    /// A transport to the broker at `amqp://[user:password@]host[:port][/virtual%20host]`, or `amqps://…`. User and password are
    /// `guest` and the virtual host is `/` where nothing else is said. Connects when it is first used.
    pub fn connect_to(url: &str) -> Result<Self, Invalid> {
        Self::with(url, RabbitOptions::default())
    }

    /// Like [`connect_to`](Self::connect_to), with settings of your own.
    pub fn with(url: &str, options: RabbitOptions) -> Result<Self, Invalid> {
        let broker = Broker::parse(url, options.timeout, options.root_certificate)?;
        Ok(Self { shared: Arc::new(Shared { broker, link: Link::new() }) })
    }

    async fn line(&self) -> Result<Line<Arc<Session>>, Undelivered> {
        let Shared { broker, link } = &*self.shared;
        let away = |error: lapin::Error| Undelivered::unavailable(format!("{broker}: {error}"));
        let mut line = link.get(broker.connect()).await.map_err(away)?;
        if line.connection.is_over() {
            line.connection.give_up();
            link.broken(&line).await;
            line = link.get(broker.connect()).await.map_err(away)?;
        }
        if line.connection.is_blocked() {
            return Err(self.blocked());
        }
        Ok(line)
    }

    fn blocked(&self) -> Undelivered {
        Undelivered::unavailable(format!("{}: the broker has an alarm and takes nothing", self.shared.broker))
    }

    /// Answers for what it can; an error is for the rest.
    async fn send(&self, batch: &mut Batch<'_>, used: &mut Option<Line<Arc<Session>>>) -> Result<(), Undelivered> {
        let mut drafts: Vec<Option<Draft<'_>>> = Vec::new();
        for place in batch.unanswered() {
            drafts.push(match Draft::of(batch.parcel(place)) {
                Ok(draft) => Some(draft),
                Err(undelivered) => {
                    batch.answer(place, Err(undelivered));
                    None
                }
            });
        }
        if batch.unanswered().is_empty() {
            return Ok(());
        }
        let line = self.line().await?;
        *used = Some(line.clone());
        let call = Call { session: &line.connection, drafts };
        match call.publish(batch).await {
            Ok(()) => Ok(()),
            Err(error) => {
                self.shared.link.broken(&line).await;
                Err(Undelivered::unavailable(format!("{}: {error}", self.shared.broker)))
            }
        }
    }

    /// What is said when the time is up, after nothing was left behind that need not be.
    async fn late(&self, used: Option<Line<Arc<Session>>>) -> Undelivered {
        let Shared { broker, link } = &*self.shared;
        if let Some(line) = used {
            line.connection.give_up();
            if line.connection.is_blocked() {
                return self.blocked();
            }
            link.broken(&line).await;
        }
        Undelivered::unavailable(format!("{broker}: no answer within {:?}", broker.timeout))
    }
}

impl fmt::Debug for Rabbit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rabbit").field(&format_args!("{}", self.shared.broker)).finish()
    }
}

#[async_trait]
impl Transport for Rabbit {
    fn kind(&self) -> &'static str {
        "rabbitmq"
    }

    async fn deliver(&self, parcels: &[Parcel<'_>]) -> Vec<DeliveryResult> {
        let (mut batch, mut used) = (Batch::new(parcels), None);
        let sent = tokio::time::timeout(self.shared.broker.timeout, self.send(&mut batch, &mut used)).await;
        let missing = match sent {
            Ok(Ok(())) => Undelivered::unavailable("no answer"),
            Ok(Err(away)) => away,
            Err(_) => self.late(used).await,
        };
        batch.finish(&missing)
    }

    async fn probe(&self) -> Result<(), Undelivered> {
        let broker = &self.shared.broker;
        let probed = tokio::time::timeout(broker.timeout, async {
            let line = self.line().await?;
            match line.connection.channel().await {
                Ok(channel) => {
                    line.connection.give_back(channel);
                    Ok(())
                }
                Err(error) => {
                    self.shared.link.broken(&line).await;
                    Err(Undelivered::unavailable(format!("{broker}: {error}")))
                }
            }
        });
        probed.await.unwrap_or_else(|_| Err(Undelivered::unavailable(format!("{broker}: no answer"))))
    }

    async fn diagnose(&self, checkup: &Checkup) -> Vec<Finding> {
        let looked = tokio::time::timeout(self.shared.broker.timeout, async {
            let line = self.line().await.ok()?;
            Some(diagnosis::places(&line.connection, checkup).await)
        });
        looked.await.ok().flatten().unwrap_or_default()
    }

    async fn close(&self) {
        if let Some(session) = self.shared.link.take().await {
            session.close(self.shared.broker.timeout).await;
        }
    }
}

/// One batch on one connection.
struct Call<'a> {
    session: &'a Session,
    /// By their places in the batch.
    drafts: Vec<Option<Draft<'a>>>,
}

impl Call<'_> {
    /// Fails when the connection is of no more use.
    async fn publish(&self, batch: &mut Batch<'_>) -> Result<(), lapin::Error> {
        let _turn = self.session.calls.acquire().await;
        let mut groups = VecDeque::from([batch.unanswered()]);
        while let Some(mut group) = groups.pop_front() {
            group.retain(|place| !batch.is_answered(*place));
            let Some(closed) = self.publish_group(batch, &group).await? else { continue };
            group.retain(|place| !batch.is_answered(*place));
            if let Some(limit) = size_limit(&closed) {
                let Some(largest) = group.iter().copied().max_by_key(|place| self.body_bytes(*place)) else { continue };
                if let Some(limit) = limit {
                    self.session.learn_body_max(limit);
                }
                batch.answer(largest, Err(Undelivered::TooLarge { bytes: self.body_bytes(largest), limit }));
                groups.push_front(group);
                continue;
            }
            let mut by_exchange = self.by_exchange(&group);
            if let [only] = &mut by_exchange[..] {
                for place in std::mem::take(only) {
                    batch.answer(place, Err(refusal(&closed)));
                }
            } else {
                by_exchange.into_iter().rev().for_each(|group| groups.push_front(group));
            }
        }
        Ok(())
    }

    /// Publishes on one channel; answers why the broker closed it, if it did.
    async fn publish_group(&self, batch: &mut Batch<'_>, group: &[usize]) -> Result<Option<AMQPError>, lapin::Error> {
        let frame_max = usize::try_from(self.session.connection.configuration().frame_max()).unwrap_or(usize::MAX);
        let channel = self.session.channel().await?;
        let mut left = group.iter().copied().peekable();
        while left.peek().is_some() {
            let (mut window, mut bytes) = (Vec::new(), 0);
            while let Some(place) = left.next_if(|place| {
                let fits = bytes + self.body_bytes(*place) <= WINDOW_BYTES && window.len() < WINDOW_MESSAGES;
                fits || window.is_empty()
            }) {
                let Some(draft) = self.drafts[place].as_ref().filter(|_| batch.admits(place)) else { continue };
                match draft.check_size(frame_max, self.session.body_max()) {
                    Ok(()) => {
                        bytes += draft.wire.body.len();
                        window.push((place, draft));
                    }
                    Err(too_large) => batch.answer(place, Err(too_large)),
                }
            }
            if let Some(error) = publish_window(&channel, batch, &window).await {
                return match error.kind() {
                    ErrorKind::ProtocolError(closed) if error.is_amqp_soft_error() => Ok(Some(closed.clone())),
                    _ => Err(error),
                };
            }
        }
        self.session.give_back(channel);
        Ok(None)
    }

    fn body_bytes(&self, place: usize) -> usize {
        self.drafts[place].as_ref().map_or(0, |draft| draft.wire.body.len())
    }

    /// In the order in which each exchange comes first.
    fn by_exchange(&self, group: &[usize]) -> Vec<Vec<usize>> {
        let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
        for place in group {
            let exchange = self.drafts[*place].as_ref().map_or("", |draft| draft.target.exchange.as_str());
            match groups.iter_mut().find(|(name, _)| *name == exchange) {
                Some((_, places)) => places.push(*place),
                None => groups.push((exchange, vec![*place])),
            }
        }
        groups.into_iter().map(|(_, places)| places).collect()
    }
}

/// Publishes all at once and waits for all confirms; answers the error that left some without.
async fn publish_window(
    channel: &Channel,
    batch: &mut Batch<'_>,
    window: &[(usize, &Draft<'_>)],
) -> Option<lapin::Error> {
    // The frames are queued when each is first polled, which happens in order.
    let published = join_all(window.iter().map(|(_, draft)| publish(channel, draft))).await;
    let confirmed = join_all(published.into_iter().map(async |confirm| confirm?.await)).await;
    // The client ties a returned message to the next confirm, which may be that of another one.
    let mut returned = HashSet::new();
    for confirmation in confirmed.iter().flatten() {
        if let Confirmation::Ack(Some(back)) | Confirmation::Nack(Some(back)) = confirmation {
            let id = back.properties.message_id().as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default();
            let (exchange, routing_key) = (back.exchange.as_str().to_owned(), back.routing_key.as_str().to_owned());
            returned.insert((id, Target { exchange, routing_key }));
        }
    }
    let mut failed: Option<lapin::Error> = None;
    for ((place, draft), confirmation) in window.iter().zip(confirmed) {
        let is_returned = || returned.contains(&(draft.message_id.clone(), draft.target.clone()));
        match confirmation {
            Ok(Confirmation::Ack(_) | Confirmation::Nack(_)) if is_returned() => {
                batch.answer(*place, Err(Undelivered::refused("no queue is bound for it")));
            }
            Ok(Confirmation::Ack(_)) => batch.answer(*place, Ok(Delivery::Taken)),
            Ok(Confirmation::Nack(_)) => {
                batch.answer(*place, Err(Undelivered::refused("the broker or a full queue did not take it")));
            }
            Ok(Confirmation::NotRequested) => failed = failed.or(Some(ErrorKind::FutureCompleted.into())),
            // Why the channel was closed says more than that it is closed.
            Err(error) if failed.as_ref().is_none_or(|failed| !failed.is_amqp_error()) => failed = Some(error),
            Err(_) => {}
        }
    }
    failed
}

async fn publish(channel: &Channel, draft: &Draft<'_>) -> Result<lapin::PublisherConfirm, lapin::Error> {
    let Target { exchange, routing_key } = &draft.target;
    let (exchange, routing_key) = (short(exchange).unwrap_or_default(), short(routing_key).unwrap_or_default());
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    channel.basic_publish(exchange, routing_key, options, &draft.wire.body, draft.properties.clone()).await
}

/// The limit that a message has missed, if that closed the channel and as far as it is told.
fn size_limit(closed: &AMQPError) -> Option<Option<usize>> {
    let text = closed.get_message().as_str();
    let is_size = *closed.kind() == AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) && text.contains("size");
    is_size.then(|| text.rsplit(|letter: char| !letter.is_ascii_digit()).find_map(|word| word.parse().ok()))
}

fn refusal(closed: &AMQPError) -> Undelivered {
    match closed.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => Undelivered::refused("there is no such exchange"),
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => Undelivered::refused("the exchange may not be written to"),
        _ => Undelivered::refused(format!("the broker closed the channel: {}", closed.get_message())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_channel_was_closed_is_understood() {
        let closed = |kind: AMQPSoftError, text: &str| AMQPError::new(kind.into(), text.into());
        let text = "PRECONDITION_FAILED - message size 2000000 is larger than configured max size 1048576";
        assert_eq!(size_limit(&closed(AMQPSoftError::PRECONDITIONFAILED, text)), Some(Some(1_048_576)));
        let other = closed(AMQPSoftError::PRECONDITIONFAILED, "PRECONDITION_FAILED - no such header");
        assert_eq!(size_limit(&other), None);
        let missing = closed(AMQPSoftError::NOTFOUND, "NOT_FOUND - no exchange 'x' in vhost '/'");
        assert_eq!(
            (size_limit(&missing), refusal(&missing)),
            (None, Undelivered::refused("there is no such exchange"))
        );
    }

    /// H48: a secret is in no picture of a transport.
    #[test]
    fn a_picture_shows_the_address_and_no_password() {
        let rabbit = Rabbit::connect_to("amqp://ann:canary@broker/shop").unwrap();
        assert_eq!(format!("{rabbit:?}"), "Rabbit(broker:5672)");
    }
}
