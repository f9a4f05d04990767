//! NATS JetStream: a message is delivered when a stream has stored it, and known when the stream has its id already.

mod diagnosis;
mod recall;
mod server;
mod subscription;

use std::fmt;
use std::sync::Arc;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use pillarbox_core::diagnosis::Finding;
use pillarbox_core::wire::{self, Wire, line_safe};
use pillarbox_core::{
    Checkup, Delivery, DeliveryResult, Invalid, Message, Parcel, Recall, Recalled, Transport, Undelivered,
};
use tokio::time::{Instant, timeout_at};

pub use server::NatsOptions;
pub use subscription::{NatsSubscription, NatsSubscriptionOptions};

use crate::chains::{behind, chains};
use crate::link::{Line, Link};
use server::{Connection, Server, WINDOW};

/// Bytes of a subject; with the rest of its line it stays below what a server reads at once.
const SUBJECT_BYTES_MAX: usize = 1_024;

/// Headers that mean something to the server itself begin with this, in any case.
const SERVERS_OWN: &str = "nats-";

/// The header by which a stream knows a message again.
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// Streams of a NATS server. Cheap to clone; clones share one connection.
///
/// A destination is a subject, such as `orders.created`, without wildcards, and not one of the server's own (`$…`). A stream must
/// take it: where none does, the message is refused.
///
/// The message's id is its `Nats-Msg-Id`, so that a stream knows it again for as long as its duplicate window says. What an operator
/// replays has the count of its replays behind it, so that it gets through; `pillarbox-id` stays the same. Fields and headers are headers, the content type among them; what does not fit into a line of ASCII is percent-encoded. Headers whose
/// names begin with `Nats-` would be orders to the server and are left out.
///
/// Messages of one key are sent one after the other, each once the one before it is stored; all others at once. When the server
/// stops answering, up to one batch may still arrive at it after it was told to be undelivered, under the same ids.
#[derive(Clone)]
pub struct Nats {
    shared: Arc<Shared>,
}

struct Shared {
    server: Server,
    link: Link<Connection>,
}

impl Nats {
    /// A transport to the server at `nats://[user:password@|token@]host[:port]`, or `tls://…`; several servers of a cluster with
    /// commas between. Connects when it is first used.
    pub fn connect_to(url: &str) -> Result<Self, Invalid> {
        Self::with(url, NatsOptions::default())
    }

    /// Like [`connect_to`](Self::connect_to), with settings of your own.
    pub fn with(url: &str, options: NatsOptions) -> Result<Self, Invalid> {
        Ok(Self { shared: Arc::new(Shared { server: Server::parse(url, options)?, link: Link::new() }) })
    }

    async fn line(&self, deadline: Instant) -> Result<Line<Connection>, Undelivered> {
        let Shared { server, link } = &*self.shared;
        match timeout_at(deadline, link.get(server.connect())).await {
            Ok(line) => line.map_err(Undelivered::unavailable),
            Err(_) => Err(Undelivered::unavailable(format!("{server}: no connection within {:?}", server.timeout()))),
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.shared.server.timeout()
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nats").field(&self.shared.server).finish()
    }
}

#[async_trait]
impl Transport for Nats {
    fn kind(&self) -> &'static str {
        "nats"
    }

    async fn deliver(&self, parcels: &[Parcel<'_>]) -> Vec<DeliveryResult> {
        if parcels.is_empty() {
            return Vec::new();
        }
        let deadline = self.deadline();
        let line = match self.line(deadline).await {
            Ok(line) => line,
            Err(away) => {
                return parcels.iter().map(|parcel| check(&parcel.destination).and(Err(away.clone()))).collect();
            }
        };
        let limit = line.connection.context.client().max_payload();
        let call = Call { server: &self.shared.server, connection: &line.connection, limit, deadline };
        let sent = chains(parcels).into_iter().map(|chain| call.deliver_chain(parcels, chain));
        let answers: Vec<_> = stream::iter(sent).buffer_unordered(WINDOW).collect().await;
        let mut answers: Vec<_> = answers.into_iter().flatten().collect();
        answers.sort_unstable_by_key(|(at, _)| *at);
        let results: Vec<_> = answers.into_iter().map(|(_, result)| result).collect();
        if results.iter().any(|result| matches!(result, Err(Undelivered::Unavailable { .. }))) {
            self.shared.link.broken(&line).await;
        }
        results
    }

    async fn probe(&self) -> Result<(), Undelivered> {
        let deadline = self.deadline();
        let line = self.line(deadline).await?;
        let server = &self.shared.server;
        let why = match timeout_at(deadline, line.connection.context.query_account()).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => line.connection.explain(format!("{server}: JetStream does not answer: {error}")),
            Err(_) => line.connection.explain(format!("{server}: no answer within {:?}", server.timeout())),
        };
        self.shared.link.broken(&line).await;
        Err(Undelivered::unavailable(why))
    }

    async fn diagnose(&self, checkup: &Checkup) -> Vec<Finding> {
        match self.line(self.deadline()).await {
            Ok(line) => diagnosis::streams(&line.connection.context, checkup).await,
            Err(_) => Vec::new(),
        }
    }

    async fn recall(&self, recall: &Recall<'_>) -> Result<Recalled, Undelivered> {
        let server = &self.shared.server;
        let line = self.line(self.deadline()).await?;
        let recalled = recall::recall(&line.connection.context, recall, server.timeout()).await;
        recalled.map_err(|error| Undelivered::unavailable(format!("{server}: {error}")))
    }

    async fn close(&self) {
        if let Some(connection) = self.shared.link.take().await {
            let _ = timeout_at(self.deadline(), connection.context.client().drain()).await;
        }
    }
}

/// One call, on one connection.
struct Call<'a> {
    server: &'a Server,
    connection: &'a Connection,
    /// Bytes that the server takes in one message.
    limit: usize,
    deadline: Instant,
}

impl Call<'_> {
    /// Delivers messages one after the other, until one is not taken.
    async fn deliver_chain(&self, parcels: &[Parcel<'_>], chain: Vec<usize>) -> Vec<(usize, DeliveryResult)> {
        let mut results = Vec::with_capacity(chain.len());
        let mut failed: Option<Undelivered> = None;
        for at in chain {
            let result = match &failed {
                Some(earlier) => Err(behind(earlier)),
                None => self.deliver_one(&parcels[at]).await,
            };
            if let (Err(undelivered), None) = (&result, &failed) {
                failed = Some(undelivered.clone());
            }
            results.push((at, result));
        }
        results
    }

    async fn deliver_one(&self, parcel: &Parcel<'_>) -> DeliveryResult {
        check(&parcel.destination)?;
        let (headers, bytes) = headers_of(parcel.message)?;
        if bytes > self.limit {
            return Err(Undelivered::TooLarge { bytes, limit: Some(self.limit) });
        }
        let publish = PublishMessage::build().headers(headers).payload(parcel.message.payload().clone());
        let stored =
            async { self.connection.context.send_publish(parcel.destination.to_string(), publish).await?.await };
        match timeout_at(self.deadline, stored).await {
            Ok(Ok(ack)) if ack.duplicate => Ok(Delivery::Known),
            Ok(Ok(_)) => Ok(Delivery::Taken),
            Ok(Err(error)) => Err(self.undelivered(&error, &parcel.destination, bytes)),
            Err(_) => Err(self.away(format!("no answer within {:?}", self.server.timeout()))),
        }
    }

    fn undelivered(&self, error: &PublishError, subject: &str, bytes: usize) -> Undelivered {
        match error.kind() {
            PublishErrorKind::StreamNotFound => {
                Undelivered::refused(format!("{}: no stream takes subject `{subject}`", self.server))
            }
            PublishErrorKind::MaxPayloadExceeded => Undelivered::TooLarge { bytes, limit: Some(self.limit) },
            PublishErrorKind::WrongLastMessageId | PublishErrorKind::WrongLastSequence => Undelivered::refused(error),
            _ => match std::error::Error::source(error).and_then(|source| source.downcast_ref()) {
                Some(said) => self.said(said, bytes),
                None => self.away(error),
            },
        }
    }

    /// What JetStream answered instead of storing a message.
    fn said(&self, error: &jetstream::Error, bytes: usize) -> Undelivered {
        match error.error_code() {
            ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
                Undelivered::TooLarge { bytes, limit: None }
            }
            ErrorCode::CLUSTER_NOT_AVAILABLE
            | ErrorCode::CLUSTER_NOT_LEADER
            | ErrorCode::JETSTREAM_NOT_ENABLED
            | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT
            | ErrorCode::INSUFFICIENT_RESOURCES
            | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
            | ErrorCode::MEMORY_RESOURCES_EXCEEDED
            | ErrorCode::STORAGE_RESOURCES_EXCEEDED => self.away(error),
            // One stream is full, sealed or cannot write; others may well take messages.
            _ => Undelivered::refused(format!("{}: {error}", self.server)),
        }
    }

    fn away(&self, why: impl fmt::Display) -> Undelivered {
        Undelivered::unavailable(self.connection.explain(format!("{}: {why}", self.server)))
    }
}

/// Whether a message can be sent to a subject at all.
fn check(subject: &str) -> Result<(), Undelivered> {
    let complaint = if subject.is_empty() {
        "is empty"
    } else if subject.len() > SUBJECT_BYTES_MAX {
        "is longer than 1024 bytes"
    } else if subject.contains(|c: char| c.is_whitespace() || c.is_control()) {
        "has spaces or control characters"
    } else if subject.split('.').any(str::is_empty) {
        "has an empty part"
    } else if subject.split('.').any(|part| part == "*" || part == ">") {
        "has wildcards"
    } else if subject.starts_with('$') {
        "is one of the server's own"
    } else {
        return Ok(());
    };
    // A subject that is too long, or breaks lines, would spoil whatever shows it.
    let shown: String = subject.chars().take(100).flat_map(char::escape_debug).collect();
    Err(Undelivered::rejected(format!("subject `{shown}` {complaint}")))
}

/// Headers as they are sent, and the bytes of the whole message as the server counts them.
fn headers_of(message: &Message) -> Result<(HeaderMap, usize), Undelivered> {
    let Wire { body, content_type, headers } = Wire::plain(message);
    let content_type = content_type.map(|value| (wire::CONTENT_TYPE.into(), value));
    let mut map = HeaderMap::new();
    // The line of the version, and the empty one at the end.
    let mut bytes = body.len() + "NATS/1.0\r\n\r\n".len();
    let mut add = |name: &str, value: &str| {
        bytes += name.len() + value.len() + ": \r\n".len();
        let name: HeaderName = name.parse().map_err(|_| Undelivered::rejected("a header's name cannot be sent"))?;
        let value: HeaderValue = value.parse().map_err(|_| Undelivered::rejected("a header cannot be sent"))?;
        map.append(name, value);
        Ok::<_, Undelivered>(())
    };
    add(MESSAGE_ID, &stream_id(message))?;
    for (name, value) in headers.into_iter().chain(content_type) {
        if !is_servers_own(&name) {
            add(&line_safe(&name).replace(':', "%3A").replace(' ', "%20"), &line_safe(&value))?;
        }
    }
    Ok((map, bytes))
}

/// What a stream knows a message by: the same in every attempt, and another one for each replay.
fn stream_id(message: &Message) -> String {
    match message.get_headers().get(wire::REPLAY) {
        Some(count) => format!("{}/{}", message.id(), line_safe(count)),
        None => message.id().to_string(),
    }
}

fn is_servers_own(name: &str) -> bool {
    name.get(..SERVERS_OWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(SERVERS_OWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_checked_before_anything_is_sent() {
        for good in ["orders", "orders.created", "größe.$x", "a*b.c>"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let long = "x".repeat(1_025);
        for bad in ["", "a b", "a\r\nPUB x 0", ".a", "a.", "a..b", "a.*", "a.>", "$JS.API.STREAM.DELETE.x", &long] {
            let Err(Undelivered::Rejected { reason }) = check(bad) else { panic!("{bad:?} is taken") };
            assert!(!reason.contains('\n') && reason.len() < 300, "{reason}");
        }
    }

    #[test]
    fn a_users_header_is_no_order_to_the_server() {
        let message = Message::new("t", "p")
            .header("Nats-Rollup", "all")
            .header("NATS-MSG-ID", "forged")
            .header("x: y\r\nz", "1\r\n2")
            .header("nats", "kept");
        let (headers, bytes) = headers_of(&message).unwrap();
        assert_eq!(headers.get_all(MESSAGE_ID).count(), 1);
        assert!(headers.get("Nats-Rollup").is_none());
        assert_eq!(headers.get("nats").map(HeaderValue::as_str), Some("kept"));
        assert_eq!(headers.get("x%3A%20y%0D%0Az").map(HeaderValue::as_str), Some("1%0D%0A2"));
        let lines = headers.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
        let counted: usize = lines.map(|(name, value)| format!("{name}: {}\r\n", value.as_str()).len()).sum();
        assert_eq!(bytes, "NATS/1.0\r\n\r\n".len() + counted + 1);
    }
}
