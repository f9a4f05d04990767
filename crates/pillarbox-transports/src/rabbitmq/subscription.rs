//! A queue of RabbitMQ as the source of an inbox.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Consumer};
use pillarbox_core::inbox::{Incoming, Receipt};
use pillarbox_core::wire::{self, rfc3339};
use pillarbox_core::{BrokerError, Delivered, Intaken, Invalid, Problem, Subscription};
use sha2::{Digest, Sha256};

use super::session::{Broker, Session};
use super::target::short;
use crate::checks;

/// Deliveries that AMQP 0.9.1 can count ahead.
const AHEAD_MAX: usize = 65_535;

/// A queue whose messages go into an inbox; acknowledged once the inbox has them.
///
/// A message is known by the header `pillarbox-id`, or else by the property `message_id`; see [`Nameless`] for one that has
/// neither. What the inbox can never take is rejected without being queued again: the broker moves it to the queue's dead-letter
/// exchange, and drops it where there is none.
///
/// What is put off is queued again at once. A quorum queue counts that: after its `delivery-limit`, which is 20 since RabbitMQ 4.0
/// unless set, it moves the message to its dead-letter exchange or drops it. Give such a queue a dead-letter exchange, or a
/// `delivery-limit` of -1.
pub struct RabbitSubscription {
    broker: Broker,
    queue: ShortString,
    source: String,
    options: RabbitSubscriptionOptions,
    open: Option<Open>,
    opened_count: u64,
}

/// How a [`RabbitSubscription`] behaves.
#[derive(Clone, PartialEq, Eq)]
pub struct RabbitSubscriptionOptions {
    /// Deliveries that the broker sends ahead; 1 to 65535, and 500 unless set.
    pub ahead: usize,
    /// What to do with a message without an id.
    pub nameless: Nameless,
    /// Whether to make the queue where it is missing.
    pub declare: Declare,
    /// How long it may take to connect and to tell the broker something; 10 s unless set.
    pub timeout: Duration,
    /// Roots that `amqps://` trusts besides the usual ones, as PEM.
    pub root_certificate: Option<String>,
}

/// What to do with a message that has no id of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nameless {
    /// Every delivery is a message of its own: none is lost, and one that is delivered again takes effect again.
    #[default]
    AsNew,
    /// Known by routing key and body: none takes effect twice, and of two that are equal the second has no effect.
    ByContent,
    /// Rejected, to the queue's dead-letter exchange.
    Reject,
}

/// Whether a subscription makes its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Declare {
    /// It must be there.
    #[default]
    Nothing,
    /// A durable classic queue.
    Classic,
    /// A quorum queue.
    Quorum,
}

impl Default for RabbitSubscriptionOptions {
    fn default() -> Self {
        Self {
            ahead: 500,
            nameless: Nameless::default(),
            declare: Declare::default(),
            timeout: Duration::from_secs(10),
            root_certificate: None,
        }
    }
}

impl fmt::Debug for RabbitSubscriptionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ahead, nameless, declare, timeout, .. } = self;
        f.debug_struct("RabbitSubscriptionOptions")
            .field("ahead", ahead)
            .field("nameless", nameless)
            .field("declare", declare)
            .field("timeout", timeout)
            .finish_non_exhaustive()
    }
}

/// What the broker calls a delivery, and on which of our connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RabbitTag {
    opened: u64,
    tag: u64,
}

struct Open {
    number: u64,
    session: Arc<Session>,
    channel: Channel,
    consumer: Consumer,
}

impl RabbitSubscription {
    /// A subscription to a queue at a broker, see [`Rabbit::connect_to`](super::Rabbit::connect_to) for its URL. The inbox calls
    /// the broker `source`, which stays the same for good. Connects when it is first used.
    pub fn new(url: &str, queue: &str, source: impl Into<String>) -> Result<Self, Invalid> {
        Self::with(url, queue, source, RabbitSubscriptionOptions::default())
    }

    /// Like [`new`](Self::new), with settings of your own.
    pub fn with(
        url: &str,
        queue: &str,
        source: impl Into<String>,
        options: RabbitSubscriptionOptions,
    ) -> Result<Self, Invalid> {
        let source = source.into();
        Receipt::new(source.clone(), "any").check()?;
        let mut problems = Vec::new();
        checks::count("ahead", options.ahead, AHEAD_MAX, &mut problems);
        if queue.is_empty() {
            problems.push(Problem::empty("queue"));
        }
        let name = short(queue);
        if name.is_none() {
            problems.push(Problem::too_large("queue", 255, queue.len()));
        }
        Invalid::unless_empty(problems)?;
        let broker = Broker::parse(url, options.timeout, options.root_certificate.clone())?;
        Ok(Self { broker, queue: name.unwrap_or_default(), source, options, open: None, opened_count: 0 })
    }

    async fn open(&self, number: u64) -> Result<Open, lapin::Error> {
        let session = self.broker.connect().await?;
        // Whoever stops waiting may leave a consumer behind, to whom the broker has sent messages already.
        let pulled_unless_open = session.puller();
        let channel = session.connection.create_channel().await?;
        let ahead = u16::try_from(self.options.ahead).unwrap_or(u16::MAX);
        channel.basic_qos(ahead, BasicQosOptions::default()).await?;
        let kind = match self.options.declare {
            Declare::Nothing => None,
            Declare::Classic => Some("classic"),
            Declare::Quorum => Some("quorum"),
        };
        if let Some(kind) = kind {
            let mut arguments = FieldTable::default();
            arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
            channel.queue_declare(self.queue.clone(), QueueDeclareOptions::durable(), arguments).await?;
        }
        let options = BasicConsumeOptions::default();
        let consumer =
            channel.basic_consume(self.queue.clone(), ShortString::default(), options, FieldTable::default()).await?;
        pulled_unless_open.keep();
        Ok(Open { number, session, channel, consumer })
    }

    async fn open_anew(&mut self) -> Result<(), BrokerError> {
        if self.opened_count == 0 {
            tracing::info!(
                queue = self.queue.as_str(),
                "a quorum queue drops or dead-letters what is put off more often than its delivery-limit"
            );
        }
        let number = self.opened_count + 1;
        let opened = tokio::time::timeout(self.options.timeout, self.open(number)).await;
        let open = opened.map_err(|_| self.broken("no answer"))?.map_err(|error| self.broken(error))?;
        self.opened_count = number;
        self.open = Some(open);
        Ok(())
    }

    fn broken(&self, why: impl fmt::Display) -> BrokerError {
        BrokerError::new(format!("{}: queue {:?}: {why}", self.broker, self.queue.as_str()))
    }

    fn delivered(&self, opened: u64, delivery: Delivery) -> Delivered<RabbitTag> {
        let tag = RabbitTag { opened, tag: delivery.delivery_tag };
        let properties = &delivery.properties;
        let mut headers: Vec<(String, String)> = Vec::new();
        for (name, value) in properties.headers().iter().flat_map(FieldTable::inner) {
            headers.extend(text_of(value).map(|value| (name.as_str().to_owned(), value)));
        }
        // The fields of somebody who does not send our headers.
        let text = |property: &Option<ShortString>| property.as_ref().map(|text| text.as_str().to_owned());
        let at = properties.timestamp().and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at)));
        let fields = [
            (wire::CORRELATION_ID, text(properties.correlation_id())),
            (wire::TYPE, text(properties.kind())),
            (wire::OCCURRED_AT, at.and_then(rfc3339)),
        ];
        for (name, value) in fields {
            let is_there = headers.iter().any(|(there, _)| there.eq_ignore_ascii_case(name));
            headers.extend(value.filter(|_| !is_there).map(|value| (name.to_owned(), value)));
        }
        let topic = if delivery.routing_key.as_str().is_empty() { &self.queue } else { &delivery.routing_key };
        let message_id = text(properties.message_id()).filter(|id| !id.is_empty());
        let content = (self.options.nameless == Nameless::ByContent).then(|| content_id(topic, &delivery.data));
        let content_type = text(properties.content_type());
        let arrival = wire::read(topic.as_str(), delivery.data, content_type.as_deref(), headers);
        let id = match (arrival.is_named, message_id, self.options.nameless) {
            (true, ..) | (false, None, Nameless::AsNew) => arrival.message.id().to_string(),
            (false, Some(id), _) => id,
            // An empty id can never be stored, and so it is rejected.
            (false, None, Nameless::ByContent | Nameless::Reject) => content.unwrap_or_default(),
        };
        Delivered { tag, incoming: Incoming::new(Receipt::new(self.source.clone(), id), arrival.message) }
    }
}

impl fmt::Debug for RabbitSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitSubscription")
            .field("broker", &format_args!("{}", self.broker))
            .field("queue", &self.queue.as_str())
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Subscription for RabbitSubscription {
    type Tag = RabbitTag;

    async fn next(&mut self, limit: usize) -> Result<Vec<Delivered<RabbitTag>>, BrokerError> {
        if self.open.is_none() {
            self.open_anew().await?;
        }
        let Some(open) = &mut self.open else { return Err(BrokerError::new("there is no connection")) };
        let number = open.number;
        let mut taken = match open.consumer.next().await {
            Some(Ok(delivery)) => vec![delivery],
            ended => {
                self.open = None;
                return Err(match ended {
                    Some(Err(error)) => self.broken(error),
                    _ => self.broken("the broker has ended the subscription"),
                });
            }
        };
        // No await from here on: what is taken out of the client must get out of here.
        while taken.len() < limit {
            let Some(Some(Ok(delivery))) = open.consumer.next().now_or_never() else { break };
            taken.push(delivery);
        }
        Ok(taken.into_iter().map(|delivery| self.delivered(number, delivery)).collect())
    }

    async fn settle(&mut self, outcomes: Vec<(RabbitTag, Intaken)>) -> Result<(), BrokerError> {
        let Some(open) = self.open.as_ref().filter(|open| open.session.connection.status().connected()) else {
            self.open = None;
            return Err(self.broken("the connection is gone, and its deliveries will come again"));
        };
        let told = outcomes.into_iter().map(async |(RabbitTag { opened, tag }, outcome)| {
            // A tag of an earlier connection would mean another message on this one.
            if opened != open.number {
                return Ok(());
            }
            match outcome {
                Intaken::Stored => open.channel.basic_ack(tag, BasicAckOptions::default()).await,
                Intaken::Later => {
                    open.channel.basic_nack(tag, BasicNackOptions { requeue: true, ..Default::default() }).await
                }
                Intaken::Refused(_) => open.channel.basic_reject(tag, BasicRejectOptions { requeue: false }).await,
            }
        });
        let told = tokio::time::timeout(self.options.timeout, join_all(told)).await;
        let told = match told {
            Ok(told) => told.into_iter().collect::<Result<(), _>>().map_err(|error| self.broken(error)),
            Err(_) => Err(self.broken("no answer")),
        };
        if told.is_err() {
            self.open = None;
        }
        told
    }
}

/// Values that one line of text can stand for.
fn text_of(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => Some(String::from_utf8_lossy(text.as_bytes()).into_owned()),
        AMQPValue::ShortString(text) => Some(text.as_str().to_owned()),
        AMQPValue::Boolean(value) => Some(value.to_string()),
        AMQPValue::ShortShortInt(number) => Some(number.to_string()),
        AMQPValue::ShortShortUInt(number) => Some(number.to_string()),
        AMQPValue::ShortInt(number) => Some(number.to_string()),
        AMQPValue::ShortUInt(number) => Some(number.to_string()),
        AMQPValue::LongInt(number) => Some(number.to_string()),
        AMQPValue::LongUInt(number) => Some(number.to_string()),
        AMQPValue::LongLongInt(number) => Some(number.to_string()),
        AMQPValue::Float(number) => Some(number.to_string()),
        AMQPValue::Double(number) => Some(number.to_string()),
        AMQPValue::Timestamp(seconds) => Some(seconds.to_string()),
        AMQPValue::DecimalValue(_)
        | AMQPValue::FieldArray(_)
        | AMQPValue::FieldTable(_)
        | AMQPValue::ByteArray(_)
        | AMQPValue::Void => None,
    }
}

fn content_id(topic: &ShortString, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(topic.as_str());
    hash.update([0]);
    hash.update(body);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
