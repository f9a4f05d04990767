//! A receiver on a loopback port, and an acceptor that does as the test says.

use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use axum::Router;
use pillarbox_core::inbox::Incoming;
use pillarbox_webhook::{Accept, AcceptError, Accepted, GitHub, Server, StandardWebhooks, Stripe, Webhooks};
use tokio::net::TcpListener;
use tokio::sync::Notify;

pub(crate) const SENT_AT: u64 = 1_700_000_000;
pub(crate) const SECRET: &str = "canary-secret";
/// The same bytes, as Standard Webhooks writes them.
pub(crate) const WRITTEN_SECRET: &str = "whsec_Y2FuYXJ5LXNlY3JldA==";

/// Keeps what it is given. Fails, or waits, when told to.
#[derive(Clone, Default)]
pub(crate) struct Desk(Arc<Inside>);

#[derive(Default)]
struct Inside {
    taken: Mutex<Vec<Incoming>>,
    failure: Mutex<Option<AcceptError>>,
    is_held: Mutex<bool>,
    entered: Notify,
    released: Notify,
}

impl Desk {
    pub(crate) fn taken(&self) -> Vec<Incoming> {
        self.0.taken.lock().unwrap().clone()
    }

    pub(crate) fn fail(&self, with: AcceptError) {
        *self.0.failure.lock().unwrap() = Some(with);
    }

    /// The next delivery waits inside until it is released; those after it pass.
    pub(crate) fn hold(&self) {
        *self.0.is_held.lock().unwrap() = true;
    }

    pub(crate) async fn entered(&self) {
        self.0.entered.notified().await;
    }

    pub(crate) fn release(&self) {
        self.0.released.notify_one();
    }
}

#[async_trait]
impl Accept for Desk {
    async fn accept(&self, incoming: Incoming) -> Result<Accepted, AcceptError> {
        let is_held = mem::take(&mut *self.0.is_held.lock().unwrap());
        if is_held {
            self.0.entered.notify_one();
            self.0.released.notified().await;
        }
        if let Some(failure) = self.0.failure.lock().unwrap().clone() {
            return Err(failure);
        }
        let mut taken = self.0.taken.lock().unwrap();
        let is_known = taken.iter().any(|known| known.receipt() == incoming.receipt());
        taken.push(incoming);
        Ok(if is_known { Accepted::Duplicate } else { Accepted::New })
    }
}

/// All schemes, at a time that stands still.
pub(crate) fn webhooks(desk: &Desk) -> Webhooks {
    Webhooks::new(desk.clone())
        .clock(|| SystemTime::UNIX_EPOCH + Duration::from_secs(SENT_AT))
        .route("stripe", Stripe::secret(SECRET).unwrap())
        .route("standard", StandardWebhooks::secret(WRITTEN_SECRET).unwrap())
        .route("github", GitHub::secret(SECRET).unwrap())
}

/// The router under `/hooks`.
pub(crate) fn router(webhooks: Webhooks) -> Router {
    Router::new().nest("/hooks", webhooks.into_router().unwrap())
}

/// Serves the router until the test ends, with axum's own server.
pub(crate) async fn serve(webhooks: Webhooks) -> SocketAddr {
    let app = router(webhooks);
    listen(|listener| async move { axum::serve(listener, app).await.unwrap() }).await
}

/// Serves until the test ends, or until the server is told to end.
pub(crate) async fn host(server: Server) -> SocketAddr {
    listen(|listener| async move { server.serve(listener).await.unwrap() }).await
}

async fn listen<F>(serve: impl FnOnce(TcpListener) -> F) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener));
    address
}
