//! One connection, from its first byte to its end.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use super::guest::Guest;
use super::stage::Stage;
use super::wire::{Wire, arriving};

/// Answers one request after the other, until either side has enough.
///
/// When the other end of `closing` is dropped, a request that has begun is answered, and nothing else is waited for.
pub(crate) async fn serve<I>(
    io: I,
    http: http1::Builder,
    router: Router,
    guest: Arc<Guest>,
    closing: watch::Receiver<()>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _leaving = Leaving(&guest);
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request| answer(&router, &guest, request));
    let mut connection = pin!(http.serve_connection(TokioIo::new(Wire::new(io, Arc::clone(&guest))), service));
    let mut alarm = Alarm::new(&guest);
    let mut closing = pin!(closed(closing));
    loop {
        tokio::select! {
            // The connection first: what has come in counts, and only then the time.
            biased;
            // Its error tells about the client, in the client's own bytes perhaps.
            _ = connection.as_mut() => return,
            () = poll_fn(|cx| alarm.poll(cx)) => {
                tracing::debug!("connection closed: its client was too slow");
                return;
            }
            () = closing.as_mut(), if !alarm.is_closing => {
                alarm.is_closing = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

async fn answer(
    router: &TowerToHyperService<Router>,
    guest: &Arc<Guest>,
    request: hyper::Request<Incoming>,
) -> Result<Response, Infallible> {
    guest.begun();
    let response = router.call(request.map(|body| arriving(body, Arc::clone(guest)))).await;
    guest.answered();
    response
}

async fn closed(mut closing: watch::Receiver<()>) {
    while closing.changed().await.is_ok() {}
}

/// Rings when the client has taken too long. Looks again each time that the connection has moved.
struct Alarm<'a> {
    guest: &'a Guest,
    sleep: Pin<Box<Sleep>>,
    is_closing: bool,
}

impl<'a> Alarm<'a> {
    fn new(guest: &'a Guest) -> Self {
        Self { guest, sleep: Box::pin(tokio::time::sleep_until(Instant::now())), is_closing: false }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let stage = self.guest.stage();
        if self.is_closing && matches!(stage, Stage::Head { .. }) {
            return Poll::Ready(());
        }
        let Some(deadline) = stage.deadline() else { return Poll::Pending };
        if self.sleep.deadline() != deadline {
            self.sleep.as_mut().reset(deadline);
        }
        ready!(self.sleep.as_mut().poll(cx));
        Poll::Ready(())
    }
}

/// However a connection ends, it waits no more.
struct Leaving<'a>(&'a Guest);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
