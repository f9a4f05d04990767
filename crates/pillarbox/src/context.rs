//! What a handler can know about the message it is given.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use pillarbox_core::inbox::{MESSAGE_ID_HEADER, Receipt, SOURCE_HEADER};
use pillarbox_core::lease::Held;
use pillarbox_core::{Message, MessageId, OwnerToken, RoutingKey, StoreId, WorkId};
use tokio_util::sync::CancellationToken;

use crate::telemetry::Telemetry;

/// One attempt to handle one message. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    delivery: Delivery,
    /// Made when somebody asks: most handlers never do.
    token: OnceLock<CancellationToken>,
    /// Where the transaction of the attempt lies, if it has one.
    slot: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// The message is done: its transaction was committed.
    is_settled: AtomicBool,
    scope: Arc<Scope>,
}

/// A message on its way to a handler, with what the store says about it.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) message: Message,
    pub(crate) held: Held,
    /// Attempts, this one included.
    pub(crate) attempt: u32,
    pub(crate) lost_lease_count: u32,
    pub(crate) created_at: SystemTime,
    pub(crate) last_error: Option<String>,
}

impl Context {
    pub(crate) fn new(delivery: Delivery, scope: Arc<Scope>) -> Self {
        Self(Arc::new(Inner {
            delivery,
            token: OnceLock::new(),
            slot: OnceLock::new(),
            is_settled: AtomicBool::new(false),
            scope,
        }))
    }

    /// The message's own name, the same in every attempt.
    pub fn message_id(&self) -> MessageId {
        self.message().id()
    }

    /// The whole message.
    pub fn message(&self) -> &Message {
        &self.0.delivery.message
    }

    /// Where the message went.
    pub fn topic(&self) -> &str {
        self.message().topic()
    }

    /// The payload as it was enqueued.
    pub fn payload(&self) -> &Bytes {
        self.message().payload()
    }

    /// Who sent a message that came through an inbox, and what the sender calls it.
    pub fn receipt(&self) -> Option<Receipt> {
        Some(Receipt::new(self.header(SOURCE_HEADER)?, self.header(MESSAGE_ID_HEADER)?))
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.message().get_headers().get(name).map(String::as_str)
    }

    /// Which attempt this is, 1 for the first.
    pub fn attempt(&self) -> u32 {
        self.0.delivery.attempt
    }

    /// How often the message's lease ran out, for example because its worker died.
    pub fn lost_lease_count(&self) -> u32 {
        self.0.delivery.lost_lease_count
    }

    /// When the message was stored.
    pub fn created_at(&self) -> SystemTime {
        self.0.delivery.created_at
    }

    /// Why the last attempt failed.
    pub fn last_error(&self) -> Option<&str> {
        self.0.delivery.last_error.as_deref()
    }

    /// The store that the message came from.
    pub fn store_id(&self) -> &StoreId {
        &self.0.scope.store_id
    }

    /// The key of that store, where it is one of a [fleet](crate::Fleet).
    pub fn routing_key(&self) -> Option<&RoutingKey> {
        self.0.scope.key.as_ref()
    }

    /// The message's row in its store.
    pub fn work_id(&self) -> WorkId {
        self.held().work_id
    }

    /// What to give to a service that must not do the same thing twice: the message id, the same in every attempt.
    pub fn idempotency_key(&self) -> String {
        self.message_id().to_string()
    }

    /// Is cancelled when the attempt should stop: its lease was lost, its time is up, or the runtime shuts down.
    pub fn cancellation(&self) -> &CancellationToken {
        self.0.token.get_or_init(|| self.0.scope.token.child_token())
    }

    /// What was registered with [`RuntimeBuilder::state`](crate::RuntimeBuilder::state).
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.scope.states.get()
    }

    pub(crate) fn cancel(&self) {
        self.cancellation().cancel();
    }

    /// The claim that the message is held under.
    pub(crate) fn held(&self) -> Held {
        self.0.delivery.held
    }

    /// The transaction of the attempt was committed, and the message ended with it.
    pub(crate) fn settled(&self) {
        self.0.is_settled.store(true, Ordering::Release);
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.0.is_settled.load(Ordering::Acquire)
    }

    /// Who holds it.
    pub(crate) fn owner(&self) -> OwnerToken {
        self.0.scope.owner
    }

    pub(crate) fn slot(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.slot.get().cloned()
    }

    /// Says where the transaction of this attempt is.
    pub(crate) fn set_slot(&self, slot: Arc<dyn Any + Send + Sync>) {
        // An attempt has one transaction.
        let _ = self.0.slot.set(slot);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("message", self.message())
            .field("attempt", &self.attempt())
            .field("store_id", self.store_id())
            .finish_non_exhaustive()
    }
}

/// What all messages of one runtime share.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) store_id: StoreId,
    /// What a fleet calls the store.
    pub(crate) key: Option<RoutingKey>,
    /// Whose leases they are under.
    pub(crate) owner: OwnerToken,
    /// The parent of every handler's token.
    pub(crate) token: CancellationToken,
    pub(crate) states: States,
    pub(crate) telemetry: Telemetry,
}

/// The user's own things, one of each type.
#[derive(Clone, Default)]
pub(crate) struct States(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl States {
    /// Whether the type was new.
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) -> bool {
        self.0.insert(TypeId::of::<T>(), Arc::new(value)).is_none()
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.get(&TypeId::of::<T>()).and_then(|value| Arc::clone(value).downcast().ok())
    }

    pub(crate) fn has(&self, id: TypeId) -> bool {
        self.0.contains_key(&id)
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "States({})", self.0.len())
    }
}

/// Contexts for the tests of this crate.
#[cfg(test)]
pub(crate) mod fixture {
    use pillarbox_core::Fence;

    use super::*;

    pub(crate) fn scope(states: States) -> Arc<Scope> {
        let store_id = StoreId::new("shop").unwrap();
        let telemetry = Telemetry::new(&store_id);
        let (owner, token) = (OwnerToken::new(), CancellationToken::new());
        Arc::new(Scope { store_id, key: None, owner, token, states, telemetry })
    }

    pub(crate) fn delivery(message: Message) -> Delivery {
        let created_at = SystemTime::UNIX_EPOCH;
        let held = Held { work_id: WorkId::from_i64(7), fence: Fence::from_i64(1) };
        let last_error = Some("timed out".to_owned());
        Delivery { message, held, attempt: 2, lost_lease_count: 1, created_at, last_error }
    }

    pub(crate) fn context(message: Message) -> Context {
        Context::new(delivery(message), scope(States::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{context, delivery, scope};
    use super::*;

    /// OBX-057: the handler is given the whole message.
    #[test]
    fn a_context_tells_everything_about_its_message() {
        let message = Message::new("order.created", "1").header("region", "eu").key("k");
        let cx = context(message.clone());
        assert_eq!(cx.message(), &message);
        assert_eq!(cx.message_id(), message.id());
        assert_eq!(cx.topic(), "order.created");
        assert_eq!(&cx.payload()[..], b"1");
        assert_eq!((cx.header("region"), cx.header("Region")), (Some("eu"), None));
        assert_eq!((cx.attempt(), cx.lost_lease_count()), (2, 1));
        assert_eq!(cx.created_at(), SystemTime::UNIX_EPOCH);
        assert_eq!(cx.last_error(), Some("timed out"));
        assert_eq!(cx.store_id().as_str(), "shop");
        assert_eq!(cx.work_id(), WorkId::from_i64(7));
        assert_eq!(cx.idempotency_key(), message.id().to_string());
    }

    /// OBX-057.
    #[test]
    fn the_token_is_cancelled_alone_or_with_the_runtime() {
        let scope = scope(States::default());
        let [one, other] = [1, 2].map(|_| Context::new(delivery(Message::new("t", "")), Arc::clone(&scope)));
        let seen = one.cancellation().clone();
        one.cancel();
        assert!(seen.is_cancelled() && !other.cancellation().is_cancelled());
        scope.token.cancel();
        assert!(other.cancellation().is_cancelled());
        let late = Context::new(delivery(Message::new("t", "")), scope);
        assert!(late.cancellation().is_cancelled());
    }

    #[test]
    fn states_are_found_by_their_type() {
        let mut states = States::default();
        assert!(states.insert(7_u8));
        assert!(states.insert("seven".to_owned()));
        assert!(!states.insert(8_u8));
        let cx = Context::new(delivery(Message::new("t", "")), scope(states));
        assert_eq!(cx.state::<u8>().as_deref(), Some(&8));
        assert_eq!(cx.state::<String>().unwrap().as_str(), "seven");
        assert_eq!(cx.state::<u16>(), None);
    }

    /// H54.
    #[test]
    fn no_debug_text_shows_content() {
        let cx = context(Message::new("t", "canary").header("token", "canary"));
        assert!(!format!("{cx:?}").contains("canary"));
    }
}
