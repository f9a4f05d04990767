//! What the transport suite needs of a broker, and what it sees there.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use pillarbox_core::{Message, Transport, wire};

/// A broker of a test's own, and a transport to it.
///
/// A broker that starts at once is started for each test; of one that takes longer, each test takes a part of its own (a
/// virtual host, a prefix). It ends when the station is dropped.
pub trait Station: Send + Sync + Sized + 'static {
    /// What this kind of broker does that others do not.
    const TRAITS: Traits;

    /// A fresh broker, which runs.
    fn open() -> impl Future<Output = Self> + Send;

    /// A transport to it, which has not connected yet. Its time limits are short: a few seconds at the most.
    fn transport(&self) -> Arc<dyn Transport>;

    /// Makes a place where messages can go, and answers its destination. Two names make two places.
    fn place(&self, name: &str) -> impl Future<Output = String> + Send;

    /// A destination that is well-formed and that nobody has made.
    fn nowhere(&self) -> String;

    /// Waits until the place holds so many messages, and answers all it holds, in the broker's order.
    fn arrived(&self, destination: &str, count: usize) -> impl Future<Output = Vec<Arrived>> + Send;

    /// Ends the broker without warning, like `kill -9`; its address stays free for it.
    fn kill(&mut self) -> impl Future<Output = ()> + Send;

    /// Starts it again at the same address, with what it had stored; places are there again.
    fn revive(&mut self) -> impl Future<Output = ()> + Send;
}

/// Waits until the place holds each of these messages, some perhaps more than once, and answers all it holds.
pub async fn all_arrived<S: Station>(station: &S, destination: &str, messages: &[Message]) -> Vec<Arrived> {
    let mut count = messages.len();
    loop {
        let arrived = station.arrived(destination, count).await;
        count = arrived.len() + 1;
        let ids: BTreeSet<_> = arrived.iter().filter_map(|arrived| arrived.header(wire::ID)).collect();
        if messages.iter().all(|message| ids.contains(message.id().to_string().as_str())) {
            return arrived;
        }
    }
}

/// What not every broker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// It knows messages again by their ids.
    pub knows_ids: bool,
    /// It tells when nobody takes what is sent to a destination.
    pub refuses_nowhere: bool,
    /// The size of a message that it does not take, in bytes; none where it takes all that ours can be.
    pub refused_bytes: Option<usize>,
    /// It keeps what it has acknowledged over `kill -9`.
    pub is_durable: bool,
    /// It can be killed at all.
    pub is_mortal: bool,
}

/// A message as it stands with the broker.
#[derive(Clone, PartialEq, Eq)]
pub struct Arrived {
    /// The body.
    pub body: Bytes,
    /// The content type, from the broker's own field or from the header.
    pub content_type: Option<String>,
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// What the broker itself calls the key or the id, where it has a field for it.
    pub broker_key: Option<String>,
    /// See [`broker_key`](Self::broker_key).
    pub broker_id: Option<String>,
}

impl Arrived {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

impl std::fmt::Debug for Arrived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let headers = &self.headers;
        f.debug_struct("Arrived")
            .field("headers", headers)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}
