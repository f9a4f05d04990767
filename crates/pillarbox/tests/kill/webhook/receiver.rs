//! The process that receives: one route whose deliveries take effect before they are answered, one whose deliveries wait in
//! the inbox for a handler. An effect is a message in the outbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use pillarbox::inbox::{Inbox, Incoming};
use pillarbox::prelude::*;
use pillarbox::webhook::{Accept, AcceptError, Accepted, Stripe, Webhooks};
use pillarbox::{ConsumeError, RuntimeBuilder, Tx, WithInbox};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedSender;

use super::super::halting::{Point, stand_still};
use super::super::worker::{Part, play};
use super::super::{Backend, LEASE, POLL, Place};
use super::senders::{DIRECT, QUEUED, SECRET};

/// What a receiver writes when it can be reached.
pub(crate) const LISTENING: &str = "listening: ";

/// The topic of effects.
pub(crate) const EFFECT: &str = "effect";

/// Where the test below is found.
pub(crate) const RECEIVER: &str = "webhook::receiver::a_receiver_serves_until_it_is_killed";

/// Nothing to prove by itself: in a process of its own it is the receiver that the other tests kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_serves_until_it_is_killed() {
    play(Receiving).await;
}

struct Receiving;

impl Part for Receiving {
    #[expect(clippy::print_stderr, reason = "the parent reads it")]
    async fn play<B: Backend>(self, place: &Place, point: Option<String>) {
        let mut desk = Desk::open::<B>(place).await;
        desk.halt = Arc::new(Halt::at(point.as_deref()));
        let _runtime = desk.runtime(POLL, None).start().await.unwrap();
        let direct = Webhooks::new(Direct(desk.clone())).route(DIRECT, Stripe::secret(SECRET).unwrap());
        let queued = Webhooks::new(Queued(desk)).route(QUEUED, Stripe::secret(SECRET).unwrap());
        let routes = direct.into_router().unwrap().merge(queued.into_router().unwrap());
        let router = Router::new().nest(&format!("/{}", place.schema), routes);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        eprintln!("{LISTENING}{}", listener.local_addr().unwrap());
        axum::serve(listener, router).await.unwrap();
    }
}

/// Where a receiver stands still, once it has passed there so often.
#[derive(Default)]
pub(crate) struct Halt {
    point: Option<Point>,
    passes: AtomicU32,
}

impl Halt {
    fn at(point: Option<&str>) -> Self {
        let Some((point, passes)) = point.and_then(|point| point.split_once(' ')) else { return Self::default() };
        Self { point: Some(point.parse().unwrap()), passes: AtomicU32::new(passes.parse().unwrap()) }
    }

    async fn pass(&self, point: Point) {
        if self.point == Some(point) && self.passes.fetch_sub(1, Ordering::Relaxed) == 0 {
            stand_still(point).await;
        }
    }
}

/// What a receiver needs.
pub(crate) struct Desk<S: WithInbox> {
    pub(crate) outbox: Outbox<S>,
    pub(crate) inbox: Inbox<S>,
    halt: Arc<Halt>,
}

impl<S: WithInbox> Clone for Desk<S> {
    fn clone(&self) -> Self {
        Self { outbox: self.outbox.clone(), inbox: self.inbox.clone(), halt: Arc::clone(&self.halt) }
    }
}

impl<S: WithInbox> Desk<S> {
    pub(crate) async fn open<B: Backend<Store = S>>(place: &Place) -> Self {
        let outbox = Outbox::new(B::open(place).await);
        let inbox = outbox.inbox().await.unwrap();
        Self { outbox, inbox, halt: Arc::default() }
    }

    /// Handles what waits in the inbox. The record that it took effect is its own, so that a second attempt finds it.
    pub(crate) fn runtime(&self, poll: Duration, ended: Option<UnboundedSender<()>>) -> RuntimeBuilder {
        let desk = self.clone();
        let builder = self.inbox.runtime().lease(LEASE).poll_interval(poll).idle_interval(poll);
        builder.on_topic(format!("{QUEUED}.*"), move |cx: Context| {
            let (desk, ended) = (desk.clone(), ended.clone());
            async move {
                let receipt = Receipt::new("handled", cx.receipt().unwrap().message_id());
                let consumed = desk
                    .inbox
                    .consume(receipt, async |tx| {
                        let written = effect(tx, cx.payload()).await;
                        desk.halt.pass(Point::InHandler).await;
                        written
                    })
                    .await?;
                desk.halt.pass(Point::BeforeSettle).await;
                assert_ne!(consumed, Consumed::InProgress);
                ended.map(|ended| ended.send(())).transpose()?;
                Ok(())
            }
        })
    }
}

async fn effect<S: WithInbox>(tx: &mut Tx<S>, payload: &[u8]) -> Result<(), StoreError> {
    tx.enqueue(Message::new(EFFECT, payload.to_vec())).await.map(drop)
}

/// Deliveries take effect before they are answered.
struct Direct<S: WithInbox>(Desk<S>);

#[pillarbox::async_trait]
impl<S: WithInbox> Accept for Direct<S> {
    async fn accept(&self, incoming: Incoming) -> Result<Accepted, AcceptError> {
        let Self(Desk { inbox, halt, .. }) = self;
        halt.pass(Point::Accepting).await;
        let consume = inbox.consume(incoming.receipt().clone(), async |tx| {
            let written = effect(tx, incoming.message().payload()).await;
            halt.pass(Point::InTransaction).await;
            written
        });
        let consumed = match consume.await {
            Ok(consumed) => consumed,
            Err(ConsumeError::Handler(error) | ConsumeError::Store(error)) => return Err(error.into()),
            Err(other) => return Err(AcceptError::Unavailable(other.to_string())),
        };
        halt.pass(Point::Unanswered).await;
        match consumed {
            Consumed::Done(()) => Ok(Accepted::New),
            Consumed::Duplicate => Ok(Accepted::Duplicate),
            Consumed::InProgress => Err(AcceptError::Unavailable("somebody else is at it".to_owned())),
        }
    }
}

/// Deliveries are stored before they are answered.
struct Queued<S: WithInbox>(Desk<S>);

#[pillarbox::async_trait]
impl<S: WithInbox> Accept for Queued<S> {
    async fn accept(&self, incoming: Incoming) -> Result<Accepted, AcceptError> {
        let Self(Desk { inbox, halt, .. }) = self;
        halt.pass(Point::Accepting).await;
        let accepted = inbox.accept(incoming).await?;
        halt.pass(Point::Unanswered).await;
        Ok(accepted)
    }
}
