//! All connections of a server: who is let in, who has to make room, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use futures_util::future::{AbortHandle, Abortable, Aborted};
use hyper::server::conn::http1;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection;
use super::guest::Guest;
use super::stage::Patience;
use super::waiting::Waiting;

pub(crate) struct House {
    http: http1::Builder,
    router: Router,
    patience: Patience,
    connections: usize,
    waiting: Arc<Waiting>,
    guests: JoinSet<Result<(), Aborted>>,
    is_full: bool,
    /// Dropped to tell all guests that it ends.
    open: watch::Sender<()>,
}

impl House {
    pub(crate) fn new(http: http1::Builder, router: Router, patience: Patience, connections: usize) -> Self {
        let (waiting, guests, open) = (Arc::default(), JoinSet::new(), watch::Sender::new(()));
        Self { http, router, patience, connections, waiting, guests, is_full: false, open }
    }

    /// Lets in whoever comes. Never returns; what was begun when it is dropped goes on.
    pub(crate) async fn welcome<L: Listener>(&mut self, mut listener: L) {
        loop {
            let (io, _) = listener.accept().await;
            self.make_room().await;
            let (abort, registration) = AbortHandle::new_pair();
            let guest = Arc::new(Guest::new(Arc::clone(&self.waiting), abort, self.patience));
            let (http, router, closing) = (self.http.clone(), self.router.clone(), self.open.subscribe());
            let connection = connection::serve(io, http, router, guest, closing);
            self.guests.spawn(Abortable::new(connection, registration));
        }
    }

    async fn make_room(&mut self) {
        while self.guests.try_join_next().is_some() {}
        let was_full = self.is_full;
        self.is_full = self.guests.len() >= self.connections;
        if self.is_full && !was_full {
            tracing::warn!(
                connections = self.connections,
                "all connections are taken: those that wait longest are closed"
            );
        }
        while self.guests.len() >= self.connections {
            tokio::select! {
                biased;
                _ = self.guests.join_next() => {}
                () = self.waiting.close_longest(self.patience.grace) => drop(self.guests.join_next().await),
            }
        }
    }

    /// Answers what has begun, for so long.
    pub(crate) async fn drain(self, timeout: Duration) {
        let Self { mut guests, open, .. } = self;
        drop(open);
        let left = async { while guests.join_next().await.is_some() {} };
        if tokio::time::timeout(timeout, left).await.is_err() {
            tracing::warn!(
                connections = guests.len(),
                "connections cut off: they were still busy when the time was up"
            );
            guests.shutdown().await;
        }
    }
}
