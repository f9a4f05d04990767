//! A durable consumer of a JetStream stream, as a source of an inbox.

use std::fmt;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Consumer, pull};
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{self, AckKind, ErrorCode};
use async_nats::{HeaderMap, Request, Subject};
use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt, stream};
use pillarbox_core::wire::{self, from_line_safe};
use pillarbox_core::{BrokerError, Delivered, Incoming, Intaken, Invalid, Problem, Receipt, Subscription};
use tokio::time::timeout;

use super::server::{Connection, NatsOptions, Server, WINDOW, is_name};
use super::{MESSAGE_ID, check, is_servers_own};
use crate::checks;

/// How long one request for messages stays with the server.
const PULL_EXPIRES: Duration = Duration::from_secs(30);

/// The most that is taken ahead; a consumer hands out 1000 messages at the most that nobody has acknowledged.
const AHEAD_MAX: usize = 1_000;

/// What is read, and how.
#[derive(Clone, Debug)]
pub struct NatsSubscriptionOptions {
    /// The name of the stream; it must be there.
    pub stream: String,
    /// The name of the durable consumer. All subscriptions with this name share its messages; the first one creates it, from the
    /// beginning of the stream, and one that is there already is used as it is.
    pub consumer: String,
    /// Only messages of these subjects, wildcards allowed; all of the stream unless set. Counts when the consumer is created.
    pub filter_subject: Option<String>,
    /// How long a message may stay unacknowledged before it is delivered again; 30 s unless set. Counts when the consumer is
    /// created.
    pub ack_wait: Duration,
    /// Messages that are taken ahead; 200 unless set, at most 1000.
    pub ahead: usize,
    /// How the server is reached.
    pub connection: NatsOptions,
}

impl NatsSubscriptionOptions {
    /// The settings of a consumer of a stream, with everything else as the fields say.
    pub fn new(stream: impl Into<String>, consumer: impl Into<String>) -> Self {
        Self {
            stream: stream.into(),
            consumer: consumer.into(),
            filter_subject: None,
            ack_wait: Duration::from_secs(30),
            ahead: 200,
            connection: NatsOptions::default(),
        }
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (field, name) in [("stream", &self.stream), ("consumer", &self.consumer)] {
            if !is_name(name) {
                problems.push(Problem::malformed(field, "must be a name without dots, spaces and wildcards"));
            }
        }
        let filter = self.filter_subject.as_ref().map(|filter| filter.replace(['*', '>'], "x"));
        if filter.is_some_and(|filter| check(&filter).is_err()) {
            problems.push(Problem::malformed("filter_subject", "must be a subject"));
        }
        checks::time("ack_wait", self.ack_wait, &mut problems);
        checks::count("ahead", self.ahead, AHEAD_MAX, &mut problems);
        problems
    }

    fn consumer_config(&self) -> pull::Config {
        pull::Config {
            durable_name: Some(self.consumer.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            filter_subject: self.filter_subject.clone().unwrap_or_default(),
            ..pull::Config::default()
        }
    }
}

/// Messages of a stream, for [`Inbox::intake`](https://docs.rs/pillarbox). Each is acknowledged by itself, and the server confirms it.
///
/// A consumer that is there already must acknowledge explicitly, and must not give a message up after a number of deliveries
/// (`max_deliver`): what is put off while the inbox is away would be lost.
///
/// A message is known by its `pillarbox-id`, else by its `Nats-Msg-Id`, else by its place in the stream. What the inbox can never
/// take is terminated: the server does not deliver it again, and says so in an advisory.
pub struct NatsSubscription {
    source: String,
    server: Server,
    options: NatsSubscriptionOptions,
    session: Option<Session>,
}

struct Session {
    connection: Connection,
    messages: pull::Stream,
}

impl NatsSubscription {
    /// Reads from the server at `url`, as in [`Nats::connect_to`](super::Nats::connect_to). `source` is what the inbox calls the
    /// stream, and stays the same for good.
    pub fn new(source: impl Into<String>, url: &str, options: NatsSubscriptionOptions) -> Result<Self, Invalid> {
        let source = source.into();
        Receipt::new(source.clone(), "any").check()?;
        Invalid::unless_empty(options.problems())?;
        let server = Server::parse(url, options.connection.clone())?;
        Ok(Self { source, server, options, session: None })
    }

    async fn session(&mut self) -> Result<&mut Session, BrokerError> {
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let within = self.server.timeout();
                let opened = timeout(within, self.open()).await;
                opened.map_err(|_| self.error(format!("no connection within {within:?}")))??
            }
        };
        Ok(self.session.insert(session))
    }

    async fn open(&self) -> Result<Session, BrokerError> {
        let connection = self.server.connect().await.map_err(BrokerError::new)?;
        let consumer = self.consumer(&connection).await?;
        let (config, name) = (&consumer.cached_info().config, &self.options.consumer);
        if config.ack_policy != AckPolicy::Explicit {
            return Err(self.error(format!("consumer `{name}` must acknowledge explicitly")));
        }
        // What is put off while the inbox is away would be gone by then.
        if config.max_deliver > 0 {
            let what = format!("consumer `{name}` gives a message up after {} deliveries", config.max_deliver);
            return Err(self.error(format!("{what}: set its max_deliver to -1, the inbox decides that")));
        }
        let heartbeat = self.server.timeout().min(PULL_EXPIRES / 3);
        let pulling = consumer.stream().max_messages_per_batch(self.options.ahead);
        let messages = pulling.expires(PULL_EXPIRES).heartbeat(heartbeat).messages().await;
        Ok(Session { messages: messages.map_err(|error| self.error(error))?, connection })
    }

    async fn consumer(&self, connection: &Connection) -> Result<Consumer<pull::Config>, BrokerError> {
        let NatsSubscriptionOptions { stream, consumer, .. } = &self.options;
        let found = match connection.context.get_consumer_from_stream(consumer, stream).await {
            Err(error) if is_missing(&error.kind()) => {
                connection.context.create_consumer_on_stream(self.options.consumer_config(), stream).await
            }
            found => found,
        };
        found.map_err(|error| self.error(format!("consumer `{consumer}` of stream `{stream}`: {error}")))
    }

    fn error(&self, why: impl fmt::Display) -> BrokerError {
        BrokerError::new(format!("{}: {why}", self.server))
    }
}

impl fmt::Debug for NatsSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("NatsSubscription");
        shown.field("source", &self.source).field("server", &self.server).field("stream", &self.options.stream);
        shown.field("consumer", &self.options.consumer).finish_non_exhaustive()
    }
}

#[async_trait]
impl Subscription for NatsSubscription {
    type Tag = Subject;

    async fn next(&mut self, limit: usize) -> Result<Vec<Delivered<Subject>>, BrokerError> {
        let source = self.source.clone();
        let session = self.session().await?;
        let mut delivered = Vec::new();
        let why = loop {
            // Only the first one is waited for: whoever cuts this short takes nothing away that is not here yet.
            let next = match delivered.len() {
                0 => session.messages.next().await,
                count if count < limit => match session.messages.next().now_or_never() {
                    Some(next) => next,
                    None => return Ok(delivered),
                },
                _ => return Ok(delivered),
            };
            match next {
                Some(Ok(message)) => match read(&source, message) {
                    Some(one) => delivered.push(one),
                    None => break "a message came that cannot be acknowledged".to_owned(),
                },
                Some(Err(error)) => break session.connection.explain(error),
                None => break session.connection.explain("the connection ended"),
            }
        };
        self.session = None;
        if delivered.is_empty() { Err(self.error(why)) } else { Ok(delivered) }
    }

    async fn settle(&mut self, outcomes: Vec<(Subject, Intaken)>) -> Result<(), BrokerError> {
        let within = self.server.timeout();
        let client = self.session().await?.connection.context.client();
        let told = outcomes.into_iter().map(|(tag, outcome)| {
            let kind = match outcome {
                Intaken::Stored => AckKind::Ack,
                Intaken::Later => AckKind::Nak(None),
                Intaken::Refused(_) => AckKind::Term,
            };
            client.send_request(tag, Request::new().payload(kind.into()))
        });
        // With an answer of the server's: an acknowledgement that gets lost would make the message come again.
        let answers = timeout(within, stream::iter(told).buffer_unordered(WINDOW).collect::<Vec<_>>()).await;
        let why = match answers {
            Ok(answers) => match answers.into_iter().find_map(Result::err) {
                None => return Ok(()),
                Some(error) => error.to_string(),
            },
            Err(_) => format!("no answer within {within:?}"),
        };
        self.session = None;
        Err(self.error(why))
    }
}

fn is_missing(kind: &ConsumerErrorKind) -> bool {
    matches!(kind, ConsumerErrorKind::JetStream(error) if error.error_code() == ErrorCode::CONSUMER_NOT_FOUND)
}

/// A delivery; none where the server did not say how to acknowledge it, which it does for all that a consumer delivers.
fn read(source: &str, message: jetstream::Message) -> Option<Delivered<Subject>> {
    let place = message.info().ok().map(|info| format!("{}:{}", info.stream, info.stream_sequence))?;
    let message = message.message;
    let headers = message.headers.unwrap_or_default();
    let broker_id = headers.get(MESSAGE_ID).map(|id| id.as_str().to_owned());
    // What others send is read as it stands: a percent sign is theirs.
    let is_ours = headers.get(wire::ID).is_some();
    let arrival = wire::read(&message.subject, message.payload, None, lines(&headers, is_ours));
    let receipt = if arrival.is_named {
        Receipt::new(source, arrival.message.id().to_string())
    } else {
        let named = broker_id.map(|id| Receipt::new(source, id)).filter(|receipt| receipt.check().is_ok());
        named.unwrap_or_else(|| Receipt::new(source, place))
    };
    Some(Delivered { tag: message.reply?, incoming: Incoming::new(receipt, arrival.message) })
}

fn lines(headers: &HeaderMap, is_ours: bool) -> impl Iterator<Item = (String, String)> {
    let text = move |line: &str| if is_ours { from_line_safe(line).into_owned() } else { line.to_owned() };
    headers.iter().filter(|(name, _)| !is_servers_own(name.as_ref())).map(move |(name, values)| {
        let values: Vec<_> = values.iter().map(|value| text(value.as_str())).collect();
        (text(name.as_ref()), values.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_settings_are_refused() {
        let mut options = NatsSubscriptionOptions::new("a.b", "");
        options.filter_subject = Some("a b".to_owned());
        (options.ack_wait, options.ahead) = (Duration::ZERO, 0);
        let refused = NatsSubscription::new("shop", "one", options).unwrap_err();
        let fields: Vec<_> = refused.problems().iter().map(Problem::field).collect();
        assert_eq!(fields, ["stream", "consumer", "filter_subject", "ack_wait", "ahead"]);
        let mut good = NatsSubscriptionOptions::new("orders", "billing");
        good.filter_subject = Some("orders.*.>".to_owned());
        assert!(NatsSubscription::new("shop", "one", good.clone()).is_ok());
        assert_eq!(NatsSubscription::new("", "one", good).unwrap_err().problems()[0].field(), "source");
    }
}
