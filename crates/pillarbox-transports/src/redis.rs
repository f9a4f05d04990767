//! Redis Streams: a message is delivered when its entry is in the stream.

mod diagnosis;
mod entry;
mod recall;
mod server;
mod subscription;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use pillarbox_core::diagnosis::Finding;
use pillarbox_core::wire::Wire;
use pillarbox_core::{Checkup, Delivery, DeliveryResult, Invalid, Parcel, Recall, Recalled, Transport, Undelivered};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value, cmd};
use tokio::time::{Instant, timeout_at};

pub use server::RedisOptions;
pub use subscription::{RedisSubscription, RedisSubscriptionOptions};

use crate::chains::behind;
use crate::link::{Line, Link};
use server::{Connection, Server};

/// What one transaction takes, so that it does not keep the server from everybody else.
const ENTRIES_MAX: usize = 500;
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of a stream's name.
const NAME_BYTES_MAX: usize = 1_024;

/// Streams of a Redis server. Cheap to clone; clones share one connection.
///
/// A destination is the name of a stream. An entry has the payload in the field `body`, then `content-type`, and every header as a
/// field of its name; a header named `body`, or with a name that begins with `header:`, has `header:` before it.
///
/// A batch goes out in transactions of up to 500 messages: the server stores what it can, in the order of the batch, and what is
/// to be refused because of its stream alone holds up nothing else.
///
/// What is larger than the server's `proto-max-bulk-len` is refused as too large, where the user may read that setting.
///
/// A server keeps over a crash what it has acknowledged only if it runs with `appendonly yes` and `appendfsync always`; with
/// Redis's defaults up to a second of it may be lost. [`RedisOptions::replicas`] asks replicas to have it, too. Redis does not know
/// a message again: what is sent twice stands there twice, with the same `pillarbox-id`. Clusters are not supported.
#[derive(Clone)]
pub struct Redis {
    shared: Arc<Shared>,
}

struct Shared {
    server: Server,
    link: Link<Connection>,
}

impl Redis {
    /// A transport to the server at `redis://[user:password@]host[:port][/database]`, or `rediss://…`. Connects when it is first
    /// used.
    pub fn connect_to(url: &str) -> Result<Self, Invalid> {
        Self::with(url, RedisOptions::default())
    }

    /// Like [`connect_to`](Self::connect_to), with settings of your own.
    pub fn with(url: &str, options: RedisOptions) -> Result<Self, Invalid> {
        Ok(Self { shared: Arc::new(Shared { server: Server::parse(url, options)?, link: Link::new() }) })
    }

    async fn line(&self, deadline: Instant) -> Result<Line<Connection>, Undelivered> {
        let Shared { server, link } = &*self.shared;
        match timeout_at(deadline, link.get(server.connect())).await {
            Ok(line) => line.map_err(Undelivered::unavailable),
            Err(_) => Err(self.late(server.no_connection())),
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.shared.server.options.timeout
    }

    fn late(&self, what: &str) -> Undelivered {
        let server = &self.shared.server;
        Undelivered::unavailable(format!("{server}: {what} within {:?}", server.options.timeout))
    }

    /// Stores messages in one transaction. Without an answer are those that wait for another one, because of what was wrong with
    /// the others.
    async fn store(
        &self,
        connection: &mut MultiplexedConnection,
        parcels: &[&Parcel<'_>],
    ) -> Result<Vec<Option<DeliveryResult>>, RedisError> {
        let options = &self.shared.server.options;
        let mut pipeline = redis::Pipeline::with_capacity(parcels.len() + 3);
        pipeline.ignore_errors().cmd("MULTI");
        for parcel in parcels {
            let wire = Wire::plain(parcel.message);
            let mut add = entry::room_for(&wire, &parcel.destination);
            add.arg("XADD").arg(&*parcel.destination);
            if !options.makes_streams {
                add.arg("NOMKSTREAM");
            }
            if let Some(length) = options.stream_length_max {
                add.arg("MAXLEN").arg("~").arg(length);
            }
            add.arg("*");
            entry::write(&mut add, wire);
            pipeline.add_command(add);
        }
        pipeline.cmd("EXEC");
        if options.replicas > 0 {
            let patience = u64::try_from(options.timeout.as_millis() / 2).unwrap_or(u64::MAX).max(1);
            pipeline.cmd("WAIT").arg(options.replicas).arg(patience);
        }
        let mut answers: Vec<Value> = pipeline.query_async(connection).await?;
        let replicas = if options.replicas > 0 { answers.pop() } else { None };
        let executed = answers.pop().unwrap_or_default();
        let queued = answers.into_iter().skip(1);
        let replicated = replicas.map_or(Ok(()), |answer| self.replicated(&answer));
        Ok(match executed {
            Value::Array(entries) => {
                let stored = entries.into_iter().zip(parcels);
                stored.map(|(answer, parcel)| Some(self.stored(&answer, parcel, &replicated))).collect()
            }
            other => self.aborted(queued, &other),
        })
    }

    fn stored(&self, answer: &Value, parcel: &Parcel<'_>, replicated: &Result<(), Undelivered>) -> DeliveryResult {
        let server = &self.shared.server;
        match answer {
            Value::ServerError(error) => Err(server.undelivered(error.code(), error.details())),
            Value::Nil => Err(Undelivered::refused(format!("{server}: no stream `{}`", parcel.destination))),
            _ => replicated.clone().map(|()| Delivery::Taken),
        }
    }

    /// The server stored nothing, since it would not have done some of it.
    fn aborted(&self, queued: impl Iterator<Item = Value>, executed: &Value) -> Vec<Option<DeliveryResult>> {
        let server = &self.shared.server;
        let mut answers: Vec<_> = queued
            .map(|answer| match answer {
                Value::ServerError(error) => Some(Err(server.undelivered(error.code(), error.details()))),
                _ => None,
            })
            .collect();
        if answers.iter().all(Option::is_none) {
            let away = match executed {
                Value::ServerError(error) => server.undelivered(error.code(), error.details()),
                _ => Undelivered::unavailable(format!("{server}: the transaction was not executed")),
            };
            answers.fill(Some(Err(away)));
        }
        answers
    }

    fn replicated(&self, answer: &Value) -> Result<(), Undelivered> {
        let Shared { server, .. } = &*self.shared;
        let wanted = server.options.replicas;
        match answer {
            Value::Int(count) if *count >= i64::from(wanted) => Ok(()),
            Value::Int(count) => {
                Err(Undelivered::unavailable(format!("{server}: {count} replicas have it, and not {wanted}")))
            }
            _ => Err(Undelivered::unavailable(format!("{server}: nobody knows how many replicas have it"))),
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Redis").field(&self.shared.server).finish()
    }
}

#[async_trait]
impl Transport for Redis {
    fn kind(&self) -> &'static str {
        "redis"
    }

    async fn deliver(&self, parcels: &[Parcel<'_>]) -> Vec<DeliveryResult> {
        if parcels.is_empty() {
            return Vec::new();
        }
        let mut batch = Batch::new(parcels);
        let deadline = self.deadline();
        let mut line = match self.line(deadline).await {
            Ok(line) => line,
            Err(away) => return batch.end(&away),
        };
        if let Some(limit) = line.connection.text_bytes_max {
            batch.refuse_larger_than(limit);
        }
        let away = loop {
            let part = batch.next_part();
            if part.is_empty() {
                break self.late("no answer");
            }
            let chosen: Vec<_> = part.iter().map(|at| &parcels[*at]).collect();
            match timeout_at(deadline, self.store(&mut line.connection.redis, &chosen)).await {
                Ok(Ok(answers)) => batch.record(part.into_iter().zip(answers)),
                Ok(Err(error)) => break Undelivered::unavailable(format!("{}: {error}", self.shared.server)),
                Err(_) => break self.late("no answer"),
            }
        };
        let results = batch.end(&away);
        if results.iter().any(|result| matches!(result, Err(Undelivered::Unavailable { .. }))) {
            // Also one that works: behind its address may be another server by now, which is no replica.
            self.shared.link.broken(&line).await;
        }
        results
    }

    async fn probe(&self) -> Result<(), Undelivered> {
        let deadline = self.deadline();
        let mut line = self.line(deadline).await?;
        let answer = timeout_at(deadline, cmd("PING").exec_async(&mut line.connection.redis)).await;
        let away = match answer {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => Undelivered::unavailable(format!("{}: {error}", self.shared.server)),
            Err(_) => self.late("no answer"),
        };
        self.shared.link.broken(&line).await;
        Err(away)
    }

    async fn diagnose(&self, _checkup: &Checkup) -> Vec<Finding> {
        let deadline = self.deadline();
        let Ok(mut line) = self.line(deadline).await else { return Vec::new() };
        let looked = timeout_at(deadline, diagnosis::settings(&mut line.connection.redis)).await;
        looked.unwrap_or_default()
    }

    async fn recall(&self, recall: &Recall<'_>) -> Result<Recalled, Undelivered> {
        let server = &self.shared.server;
        let mut line = self.line(self.deadline()).await?;
        let is_trimmed = server.options.stream_length_max.is_some();
        let recalled = recall::recall(&mut line.connection.redis, recall, is_trimmed, server.options.timeout).await;
        recalled.map_err(|error| Undelivered::unavailable(format!("{server}: {error}")))
    }

    async fn close(&self) {
        drop(self.shared.link.take().await);
    }
}

/// What is known so far of a batch.
struct Batch<'a> {
    parcels: &'a [Parcel<'a>],
    results: Vec<Option<DeliveryResult>>,
    /// The first message of a key that was not taken, and why: those behind it must not overtake it.
    failed: HashMap<&'a str, (usize, Undelivered)>,
}

impl<'a> Batch<'a> {
    fn new(parcels: &'a [Parcel<'a>]) -> Self {
        let mut batch = Self { parcels, results: vec![None; parcels.len()], failed: HashMap::new() };
        let checked = parcels.iter().enumerate().map(|(at, parcel)| (at, check(&parcel.destination).err().map(Err)));
        batch.record(checked);
        batch
    }

    /// The server ends the connection of whoever sends such a text: that must not happen to the others.
    fn refuse_larger_than(&mut self, limit: usize) {
        let sizes = self.parcels.iter().map(|parcel| parcel.message.payload().len()).enumerate();
        let too_large: Vec<_> = sizes
            .filter(|(at, bytes)| *bytes > limit && self.results[*at].is_none())
            .map(|(at, bytes)| (at, Some(Err(Undelivered::TooLarge { bytes, limit: Some(limit) }))))
            .collect();
        self.record(too_large);
    }

    fn record(&mut self, answers: impl IntoIterator<Item = (usize, Option<DeliveryResult>)>) {
        for (at, answer) in answers {
            if let (Some(Err(why)), Some(key)) = (&answer, self.parcels[at].message.get_key()) {
                let first = self.failed.entry(key).or_insert_with(|| (at, why.clone()));
                if at < first.0 {
                    *first = (at, why.clone());
                }
            }
            self.results[at] = answer;
        }
    }

    /// Messages without an answer, as many as one transaction takes.
    fn next_part(&mut self) -> Vec<usize> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        for (at, parcel) in self.parcels.iter().enumerate() {
            if self.results[at].is_some() {
                continue;
            }
            let failed = parcel.message.get_key().and_then(|key| self.failed.get(key));
            if let Some((_, earlier)) = failed.filter(|(first, _)| *first < at) {
                self.results[at] = Some(Err(behind(earlier)));
                continue;
            }
            bytes += parcel.message.payload().len();
            if part.len() == ENTRIES_MAX || (bytes > BYTES_MAX && !part.is_empty()) {
                break;
            }
            part.push(at);
        }
        part
    }

    /// All answers; those that are missing are the given one.
    fn end(self, away: &Undelivered) -> Vec<DeliveryResult> {
        self.results.into_iter().map(|result| result.unwrap_or_else(|| Err(away.clone()))).collect()
    }
}

/// Whether a stream can have this name.
fn check(name: &str) -> Result<(), Undelivered> {
    let complaint = if name.is_empty() {
        "is empty"
    } else if name.len() > NAME_BYTES_MAX {
        "is longer than 1024 bytes"
    } else if name.contains(char::is_control) {
        "has control characters"
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(100).flat_map(char::escape_debug).collect();
    Err(Undelivered::rejected(format!("stream name `{shown}` {complaint}")))
}

#[cfg(test)]
mod tests {
    use pillarbox_core::Message;

    use super::*;

    #[test]
    fn a_name_is_checked_before_anything_is_sent() {
        for bad in ["", "a\nb", &"x".repeat(1_025)] {
            assert!(matches!(check(bad), Err(Undelivered::Rejected { .. })), "{bad:?}");
        }
        assert_eq!(check("orders {1} größe"), Ok(()));
    }

    #[test]
    fn a_batch_is_cut_into_parts_and_nothing_overtakes_its_key() {
        let large = vec![0; BYTES_MAX];
        let messages = ["a", "b", "a", "b"].map(|key| Message::new("t", large.clone()).key(key));
        let parcels: Vec<_> = messages.iter().map(|message| Parcel::new("d", message)).collect();
        let mut batch = Batch::new(&parcels);
        assert_eq!(batch.next_part(), [0]);
        batch.record([(0, Some(Err(Undelivered::refused("no"))))]);
        assert_eq!(batch.next_part(), [1]);
        batch.record([(1, Some(Ok(Delivery::Taken)))]);
        assert_eq!(batch.next_part(), [3]);
        let results = batch.end(&Undelivered::unavailable("away"));
        assert!(matches!(results[2], Err(Undelivered::Refused { .. })));
        assert!(matches!(results[3], Err(Undelivered::Unavailable { .. })));

        let small: Vec<_> = (0..=ENTRIES_MAX).map(|_| Message::new("t", "")).collect();
        let parcels: Vec<_> = small.iter().map(|message| Parcel::new("d", message)).collect();
        assert_eq!(Batch::new(&parcels).next_part().len(), ENTRIES_MAX);
    }
}
