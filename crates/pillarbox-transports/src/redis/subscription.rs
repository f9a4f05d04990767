//! A consumer group of a Redis stream, as a source of an inbox.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use pillarbox_core::{BrokerError, Delivered, Incoming, Intaken, Invalid, Problem, Receipt, Subscription};
use redis::{Cmd, RedisResult, Value, cmd};
use tokio::time::{Instant, timeout};

use super::server::{Connection, RedisOptions, Server};
use super::{check, entry};
use crate::checks;

/// How long the server waits for entries before it answers that there are none.
const BLOCK_MAX: Duration = Duration::from_secs(5);

/// What is read, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSubscriptionOptions {
    /// The name of the stream; it is made when it is not there.
    pub stream: String,
    /// The name of the group. All subscriptions of a group share its entries; the first one makes it, from the beginning of the
    /// stream.
    pub group: String,
    /// What this one is called within the group; `pillarbox` unless set. Several may have one name.
    pub consumer: String,
    /// How long an entry may stay unacknowledged before it is delivered again, here or to another one; 60 s unless set.
    pub idle: Duration,
    /// How the server is reached.
    pub connection: RedisOptions,
}

impl RedisSubscriptionOptions {
    /// The settings of a group of a stream, with everything else as the fields say.
    pub fn new(stream: impl Into<String>, group: impl Into<String>) -> Self {
        Self {
            stream: stream.into(),
            group: group.into(),
            consumer: "pillarbox".to_owned(),
            idle: Duration::from_secs(60),
            connection: RedisOptions::default(),
        }
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (field, name) in [("stream", &self.stream), ("group", &self.group), ("consumer", &self.consumer)] {
            if check(name).is_err() {
                problems.push(Problem::malformed(field, "must have 1 to 1024 bytes and no control characters"));
            }
        }
        checks::time("idle", self.idle, &mut problems);
        problems
    }

    /// Gets the entries that somebody has left, from a place on.
    fn claim(&self, cursor: &[u8], count: usize) -> Cmd {
        let mut claim = cmd("XAUTOCLAIM");
        claim.arg(&self.stream).arg(&self.group).arg(&self.consumer).arg(millis(self.idle));
        claim.arg(cursor).arg("COUNT").arg(count);
        claim
    }

    /// Gets new entries, or waits for some.
    fn read(&self, count: usize) -> Cmd {
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group).arg(&self.consumer).arg("COUNT").arg(count);
        read.arg("BLOCK").arg(millis(self.block())).arg("STREAMS").arg(&self.stream).arg(">");
        read
    }

    fn block(&self) -> Duration {
        (self.idle / 2).min(BLOCK_MAX)
    }
}

/// Entries of a stream, for [`Inbox::intake`](https://docs.rs/pillarbox). Each is acknowledged by itself.
///
/// An entry is known by its `pillarbox-id`, else by its id in the stream. Redis cannot be told to deliver again at once: what is put
/// off comes again after [`idle`](RedisSubscriptionOptions::idle). What the inbox can never take is acknowledged, and stays in the
/// stream like all the others.
pub struct RedisSubscription {
    source: String,
    server: Server,
    options: RedisSubscriptionOptions,
    /// Delivered by the server, and not yet by us.
    ready: VecDeque<Delivered<String>>,
    session: Option<Session>,
}

struct Session {
    /// Waits most of the time, so that acknowledgements need another one.
    reader: Connection,
    teller: Connection,
    /// Goes on when nobody waits for it any more: the server would not deliver again what it has answered.
    reading: Option<Reading>,
    claim_at: Instant,
    cursor: Vec<u8>,
}

struct Reading {
    is_claim: bool,
    answer: Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>,
}

impl RedisSubscription {
    /// Reads from the server at `url`, as in [`Redis::connect_to`](super::Redis::connect_to). `source` is what the inbox calls the
    /// stream, and stays the same for good.
    pub fn new(source: impl Into<String>, url: &str, options: RedisSubscriptionOptions) -> Result<Self, Invalid> {
        let source = source.into();
        Receipt::new(source.clone(), "any").check()?;
        Invalid::unless_empty(options.problems())?;
        let server = Server::parse(url, options.connection.clone())?;
        Ok(Self { source, server, options, ready: VecDeque::new(), session: None })
    }

    async fn session(&mut self) -> Result<&mut Session, BrokerError> {
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let opened = timeout(self.server.options.timeout, open(&self.server, &self.options)).await;
                opened.map_err(|_| late(&self.server))??
            }
        };
        Ok(self.session.insert(session))
    }

    /// One answer of the server, with or without entries.
    async fn read(&mut self, limit: usize) -> Result<(), BrokerError> {
        let options = self.options.clone();
        let within = options.block() + self.server.options.timeout;
        let session = self.session().await?;
        let reading = session.reading.get_or_insert_with(|| {
            let is_claim = session.claim_at <= Instant::now();
            let command = if is_claim { options.claim(&session.cursor, limit) } else { options.read(limit) };
            let mut connection = session.reader.redis.clone();
            Reading { is_claim, answer: Box::pin(async move { command.query_async(&mut connection).await }) }
        });
        let answer = timeout(within, &mut reading.answer).await;
        let is_claim = reading.is_claim;
        session.reading = None;
        let answer = answer.map_err(|_| late(&self.server))?.map_err(|error| failed(&self.server, error))?;
        let entries = if is_claim { self.claimed(answer) } else { entries_by_stream(answer) };
        let delivered = entries.into_iter().map(|(id, fields)| deliver(&self.source, &options.stream, id, fields));
        self.ready.extend(delivered);
        Ok(())
    }

    /// What was claimed. At the end of the list the next look comes after a while.
    fn claimed(&mut self, answer: Value) -> Vec<Entry> {
        let mut parts = items(answer).into_iter();
        let cursor = parts.next().and_then(bytes).unwrap_or_else(first_cursor);
        let wait = self.options.block();
        if let Some(session) = &mut self.session {
            if cursor == first_cursor() {
                session.claim_at = Instant::now() + wait;
            }
            session.cursor = cursor;
        }
        parts.next().map(entries).unwrap_or_default()
    }
}

impl fmt::Debug for RedisSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RedisSubscription");
        shown.field("source", &self.source).field("server", &self.server).field("stream", &self.options.stream);
        shown.field("group", &self.options.group).finish_non_exhaustive()
    }
}

#[async_trait]
impl Subscription for RedisSubscription {
    type Tag = String;

    async fn next(&mut self, limit: usize) -> Result<Vec<Delivered<String>>, BrokerError> {
        while self.ready.is_empty() {
            if let Err(error) = self.read(limit).await {
                self.session = None;
                return Err(error);
            }
        }
        let count = self.ready.len().min(limit);
        Ok(self.ready.drain(..count).collect())
    }

    async fn settle(&mut self, outcomes: Vec<(String, Intaken)>) -> Result<(), BrokerError> {
        let RedisSubscriptionOptions { stream, group, .. } = &self.options;
        let mut told = cmd("XACK");
        told.arg(stream).arg(group);
        let mut count = 0;
        for (id, _) in outcomes.iter().filter(|(_, outcome)| *outcome != Intaken::Later) {
            told.arg(id);
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        let within = self.server.options.timeout;
        let session = self.session().await?;
        let error = match timeout(within, told.exec_async(&mut session.teller.redis)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => failed(&self.server, error),
            Err(_) => late(&self.server),
        };
        self.session = None;
        Err(error)
    }
}

async fn open(server: &Server, options: &RedisSubscriptionOptions) -> Result<Session, BrokerError> {
    let reader = server.connect().await.map_err(BrokerError::new)?;
    let mut teller = server.connect().await.map_err(BrokerError::new)?;
    let mut create = cmd("XGROUP");
    create.arg("CREATE").arg(&options.stream).arg(&options.group).arg("0").arg("MKSTREAM");
    match create.exec_async(&mut teller.redis).await {
        Err(error) if error.code() != Some("BUSYGROUP") => Err(failed(server, error)),
        _ => Ok(Session { reader, teller, reading: None, claim_at: Instant::now(), cursor: first_cursor() }),
    }
}

fn late(server: &Server) -> BrokerError {
    failed(server, "no answer in time")
}

fn failed(server: &Server, why: impl fmt::Display) -> BrokerError {
    BrokerError::new(format!("{server}: {why}"))
}

pub(super) type Entry = (String, Vec<(Vec<u8>, Vec<u8>)>);

fn deliver(source: &str, stream: &str, id: String, fields: Vec<(Vec<u8>, Vec<u8>)>) -> Delivered<String> {
    let arrival = entry::read(stream, fields);
    let name = if arrival.is_named { arrival.message.id().to_string() } else { id.clone() };
    Delivered { tag: id, incoming: Incoming::new(Receipt::new(source, name), arrival.message) }
}

/// Entries below the names of their streams, as a list of pairs or, in RESP3, as a map.
fn entries_by_stream(answer: Value) -> Vec<Entry> {
    let lists = match answer {
        Value::Map(pairs) => pairs.into_iter().map(|(_, list)| list).collect(),
        other => items(other).into_iter().filter_map(|pair| items(pair).into_iter().nth(1)).collect::<Vec<_>>(),
    };
    lists.into_iter().flat_map(entries).collect()
}

/// Entries in a list; one that was removed meanwhile has no fields.
pub(super) fn entries(list: Value) -> Vec<Entry> {
    let entry = |one: Value| {
        let mut parts = items(one).into_iter();
        let id = String::from_utf8(bytes(parts.next()?)?).ok()?;
        let Some(Value::Array(words)) = parts.next() else { return None };
        let mut words = words.into_iter().filter_map(bytes);
        let mut fields = Vec::new();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            fields.push((name, value));
        }
        Some((id, fields))
    };
    items(list).into_iter().filter_map(entry).collect()
}

fn items(value: Value) -> Vec<Value> {
    if let Value::Array(items) = value { items } else { Vec::new() }
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

fn first_cursor() -> Vec<u8> {
    b"0-0".to_vec()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_settings_are_refused() {
        let mut options = RedisSubscriptionOptions::new("", "a\nb");
        options.idle = Duration::ZERO;
        let refused = RedisSubscription::new("shop", "redis://one", options).unwrap_err();
        assert_eq!(refused.problems().iter().map(Problem::field).collect::<Vec<_>>(), ["stream", "group", "idle"]);
        let good = RedisSubscriptionOptions::new("orders", "billing");
        assert!(RedisSubscription::new("shop", "redis://one", good.clone()).is_ok());
        assert_eq!(RedisSubscription::new("", "redis://one", good).unwrap_err().problems()[0].field(), "source");
    }

    #[test]
    fn answers_of_any_shape_are_read_without_a_panic() {
        let word = |text: &str| Value::BulkString(text.into());
        let entry = Value::Array(vec![word("1-0"), Value::Array(vec![word("body"), word("x")])]);
        let gone = Value::Array(vec![word("2-0"), Value::Nil]);
        let list = Value::Array(vec![entry, gone, Value::Int(7)]);
        let expected = [("1-0".to_owned(), vec![(b"body".to_vec(), b"x".to_vec())])];
        let pairs = Value::Array(vec![Value::Array(vec![word("s"), list.clone()])]);
        assert_eq!(entries_by_stream(pairs), expected);
        assert_eq!(entries_by_stream(Value::Map(vec![(word("s"), list)])), expected);
        assert_eq!(entries_by_stream(Value::Nil), []);
    }
}
