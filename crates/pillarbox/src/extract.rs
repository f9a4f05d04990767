//! What a handler's arguments can be: each takes what it needs from the message.

use std::any::{TypeId, type_name};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use pillarbox_core::{Message, MessageId, StoreId, WorkId};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::failure::Failure;

/// Something that a handler takes as an argument.
///
/// ```
/// use pillarbox::prelude::*;
/// use pillarbox::extract::FromMessage;
///
/// struct Tenant(String);
///
/// impl FromMessage for Tenant {
///     fn from_message(cx: &Context) -> Result<Self, Failure> {
///         let tenant = cx.message().get_tenant().ok_or_else(|| Failure::dead("the message names no tenant"))?;
///         Ok(Self(tenant.to_owned()))
///     }
/// }
///
/// fn routes(builder: RuntimeBuilder) -> RuntimeBuilder {
///     builder.on_topic("invoice.*", async |tenant: Tenant, message: Raw| {
///         println!("{} for {}", message.topic(), tenant.0);
///         Ok(())
///     })
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken from a message",
    label = "not an argument that a handler can have",
    note = "handlers take `Payload<T>`, `Raw`, `Headers`, `Meta`, `Attempt`, `State<T>`, `InTx<S>`, `CancellationToken`, `Context`, or a type of yours that implements `FromMessage`"
)]
pub trait FromMessage: Sized + Send {
    /// Takes it, or says what should become of the message instead.
    fn from_message(cx: &Context) -> Result<Self, Failure>;

    /// What must be registered before the runtime starts.
    fn needs() -> Option<Need> {
        None
    }
}

/// What an argument needs: a type that is registered with [`RuntimeBuilder::state`](crate::RuntimeBuilder::state), or a
/// transaction of some store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
    /// A transaction of that store, not a state of that type.
    pub(crate) is_transaction: bool,
}

impl Need {
    /// The need for a state of this type.
    pub fn state<T: 'static>() -> Self {
        Self { id: TypeId::of::<T>(), name: type_name::<T>(), is_transaction: false }
    }
}

/// The payload, read as JSON. One that does not fit is dead at once: no attempt would change it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Payload<T>(pub T);

impl<T> Payload<T> {
    /// The payload itself.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Payload<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

// A payload may hold secrets, and whoever prints a handler's arguments does not think of that.
impl<T> fmt::Debug for Payload<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload<{}>", type_name::<T>())
    }
}

impl<T: DeserializeOwned + Send> FromMessage for Payload<T> {
    fn from_message(cx: &Context) -> Result<Self, Failure> {
        decode(cx.payload()).map(Self)
    }
}

/// The whole message.
#[derive(Clone, Debug)]
pub struct Raw(Context);

impl Deref for Raw {
    type Target = Message;

    fn deref(&self) -> &Message {
        self.0.message()
    }
}

impl FromMessage for Raw {
    fn from_message(cx: &Context) -> Result<Self, Failure> {
        Ok(Self(cx.clone()))
    }
}

/// The headers, sorted by name.
#[derive(Clone)]
pub struct Headers(Context);

impl Deref for Headers {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        self.0.message().get_headers()
    }
}

// The values may be secrets.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Headers({})", self.len())
    }
}

impl FromMessage for Headers {
    fn from_message(cx: &Context) -> Result<Self, Failure> {
        Ok(Self(cx.clone()))
    }
}

/// Which attempt this is, 1 for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt(pub u32);

impl FromMessage for Attempt {
    fn from_message(cx: &Context) -> Result<Self, Failure> {
        Ok(Self(cx.attempt()))
    }
}

/// Everything about a message but its content.
#[derive(Clone, Debug)]
pub struct Meta(Context);

impl Meta {
    /// The message's own name, the same in every attempt.
    pub fn message_id(&self) -> MessageId {
        self.0.message_id()
    }

    /// The message's row in its store.
    pub fn work_id(&self) -> WorkId {
        self.0.work_id()
    }

    /// The store that the message came from.
    pub fn store_id(&self) -> &StoreId {
        self.0.store_id()
    }

    /// Where the message went.
    pub fn topic(&self) -> &str {
        self.0.topic()
    }

    /// What happened.
    pub fn message_type(&self) -> Option<&str> {
        self.0.message().get_message_type()
    }

    /// The kind of thing it happened to.
    pub fn aggregate_type(&self) -> &str {
        self.0.message().get_aggregate_type()
    }

    /// Which thing it happened to.
    pub fn aggregate_id(&self) -> Option<&str> {
        self.0.message().get_aggregate_id()
    }

    /// What the message belongs together with.
    pub fn key(&self) -> Option<&str> {
        self.0.message().get_key()
    }

    /// The tenant.
    pub fn tenant(&self) -> Option<&str> {
        self.0.message().get_tenant()
    }

    /// What the message belongs to.
    pub fn correlation_id(&self) -> Option<&str> {
        self.0.message().get_correlation_id()
    }

    /// What caused the message.
    pub fn causation_id(&self) -> Option<&str> {
        self.0.message().get_causation_id()
    }

    /// The media type of the payload.
    pub fn content_type(&self) -> Option<&str> {
        self.0.message().get_content_type()
    }

    /// When it happened, as the producer saw it.
    pub fn occurred_at(&self) -> Option<SystemTime> {
        self.0.message().get_occurred_at()
    }

    /// When the message was stored.
    pub fn created_at(&self) -> SystemTime {
        self.0.created_at()
    }

    /// Which attempt this is, 1 for the first.
    pub fn attempt(&self) -> u32 {
        self.0.attempt()
    }
}

impl FromMessage for Meta {
    fn from_message(cx: &Context) -> Result<Self, Failure> {
        Ok(Self(cx.clone()))
    }
}

impl FromMessage for CancellationToken {
    fn from_message(cx: &Context) -> Result<Self, Failure> {
        Ok(cx.cancellation().clone())
    }
}

impl FromMessage for Context {
    fn from_message(cx: &Context) -> Result<Self, Failure> {
        Ok(cx.clone())
    }
}

/// What was registered with [`RuntimeBuilder::state`](crate::RuntimeBuilder::state), shared by all handlers.
///
/// A runtime whose handlers ask for a state that was not registered does not start.
pub struct State<T>(Arc<T>);

impl<T> State<T> {
    /// The shared pointer itself.
    pub fn into_inner(self) -> Arc<T> {
        self.0
    }
}

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for State<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State<{}>", type_name::<T>())
    }
}

impl<T: Send + Sync + 'static> FromMessage for State<T> {
    fn from_message(cx: &Context) -> Result<Self, Failure> {
        let state = cx.state().ok_or_else(|| Failure::retry(format!("no state `{}` is registered", type_name::<T>())));
        state.map(Self)
    }

    fn needs() -> Option<Need> {
        Some(Need::state::<T>())
    }
}

/// Reads a payload as JSON; the failure repeats nothing of it.
pub(crate) fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(payload).map_err(|error| Failure::dead(complaint(&error)))
}

/// What can be said of a payload that does not fit without quoting it: serde's own text shows values.
fn complaint(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Io => "cannot be read",
        Category::Syntax => "is not JSON",
        Category::Eof => "ends too early",
        Category::Data => {
            let text = error.to_string();
            if let Some(field) = missing_field(&text) {
                // The same for all messages of one producer, so that dead ones can be counted by it.
                return format!("decode: missing field `{field}`");
            }
            KNOWN.into_iter().find(|known| text.starts_with(known)).unwrap_or("does not fit")
        }
    };
    format!("decode: {what} at line {} column {}", error.line(), error.column())
}

/// How serde's texts about data begin, before they come to values.
const KNOWN: [&str; 6] =
    ["invalid type", "invalid value", "invalid length", "unknown variant", "unknown field", "duplicate field"];

/// The name of a missing field comes from the handler's own type, as long as it looks like a name.
fn missing_field(text: &str) -> Option<&str> {
    let (field, _) = text.strip_prefix("missing field `")?.split_once('`')?;
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$' | '@');
    (!field.is_empty() && field.len() <= 100 && field.chars().all(is_name)).then_some(field)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;

    use super::*;
    use crate::context::fixture::context;
    use crate::failure::FailureKind;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Shipped {
        id: i64,
        carrier: String,
        #[serde(default)]
        kind: Kind,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    enum Kind {
        #[default]
        Parcel,
    }

    fn refused(payload: &'static str) -> String {
        let cx = context(Message::new("order.shipped", payload));
        let failure = Payload::<Shipped>::from_message(&cx).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Dead, "{failure:?}");
        assert!(!format!("{failure:?}").contains("canary"), "{failure:?}");
        failure.reason().to_owned()
    }

    #[test]
    fn a_payload_is_read_as_json() {
        let cx = context(Message::new("order.shipped", r#"{"id":1,"carrier":"post"}"#));
        let payload = Payload::<Shipped>::from_message(&cx).unwrap();
        assert_eq!(payload.carrier, "post");
        assert!(!format!("{payload:?}").contains("post"));
        assert_eq!(payload.into_inner(), Shipped { id: 1, carrier: "post".into(), kind: Kind::Parcel });
    }

    /// HOT-11, BUS-10, H33, H54: what does not decode is dead at once, and the reason repeats nothing of it.
    #[test]
    fn a_payload_that_does_not_decode_is_dead_and_never_quoted() {
        let table = [
            (r#"{"id":1}"#, "decode: missing field `carrier`"),
            (r#"{"id":"canary","carrier":"post"}"#, "decode: invalid type at line 1 column 14"),
            (r#"{"id":1,"carrier":"post","canary":1}"#, "decode: unknown field at line 1 column 33"),
            (r#"{"id":1,"carrier":"post","kind":"canary"}"#, "decode: unknown variant at line 1 column 40"),
            (r#"{"id":1,"id":2,"carrier":"canary"}"#, "decode: duplicate field at line 1 column 12"),
            (r#""canary""#, "decode: invalid type at line 1 column 8"),
            ("canary", "decode: is not JSON at line 1 column 1"),
            (r#"{"id":1,"#, "decode: ends too early at line 1 column 8"),
            ("", "decode: ends too early at line 1 column 0"),
        ];
        for (payload, reason) in table {
            assert_eq!(refused(payload), reason, "{payload}");
        }
    }

    /// H54: a type of the user's may put anything into its error, also something that looks like serde's own words.
    #[test]
    fn a_custom_error_is_not_repeated() {
        #[derive(Debug, Deserialize)]
        #[serde(try_from = "String")]
        struct Picky;
        impl TryFrom<String> for Picky {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                Err(text)
            }
        }
        for said in ["canary", "missing field `the canary sings`", "missing field ``canary"] {
            let payload = serde_json::to_vec(said).unwrap();
            let reason = decode::<Picky>(&payload).unwrap_err().into_reason();
            assert!(!reason.contains("canary") && reason.starts_with("decode: does not fit at line"), "{reason}");
        }
    }

    /// H59: JSON that nests without end is refused, not followed.
    #[test]
    fn deep_json_is_refused() {
        let reason = decode::<serde_json::Value>("[".repeat(100_000).as_bytes()).unwrap_err().into_reason();
        assert!(reason.starts_with("decode: is not JSON"), "{reason}");
    }

    /// OBX-057.
    #[test]
    fn every_extractor_takes_its_part() {
        let message = Message::new("order.created", "1")
            .message_type("created")
            .aggregate_type("Order")
            .aggregate_id(1)
            .key("k")
            .tenant("t")
            .correlation_id("c")
            .causation_id("p")
            .content_type("text/plain")
            .header("secret", "canary");
        let cx = context(message.clone());
        assert_eq!(*Raw::from_message(&cx).unwrap(), message);
        let headers = Headers::from_message(&cx).unwrap();
        assert_eq!(headers.get("secret").map(String::as_str), Some("canary"));
        assert!(!format!("{headers:?}").contains("canary"));
        assert_eq!(Attempt::from_message(&cx).unwrap(), Attempt(2));
        let meta = Meta::from_message(&cx).unwrap();
        let texts = [
            (Some(meta.topic()), Some("order.created")),
            (meta.message_type(), Some("created")),
            (Some(meta.aggregate_type()), Some("Order")),
            (meta.aggregate_id(), Some("1")),
            (meta.key(), Some("k")),
            (meta.tenant(), Some("t")),
            (meta.correlation_id(), Some("c")),
            (meta.causation_id(), Some("p")),
            (meta.content_type(), Some("text/plain")),
            (Some(meta.store_id().as_str()), Some("shop")),
        ];
        for (given, expected) in texts {
            assert_eq!(given, expected);
        }
        assert_eq!((meta.message_id(), meta.work_id(), meta.attempt()), (message.id(), cx.work_id(), 2));
        assert_eq!((meta.created_at(), meta.occurred_at()), (SystemTime::UNIX_EPOCH, None));
        assert!(!format!("{meta:?}").contains("canary"));
        let token = CancellationToken::from_message(&cx).unwrap();
        cx.cancel();
        assert!(token.is_cancelled());
        assert_eq!(Context::from_message(&cx).unwrap().message_id(), message.id());
    }

    #[test]
    fn a_state_that_is_not_there_is_no_fault_of_the_message() {
        let cx = context(Message::new("t", ""));
        let failure = State::<HashMap<u8, u8>>::from_message(&cx).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Retry);
        assert_eq!(State::<u8>::needs(), Some(Need::state::<u8>()));
        assert_eq!(Raw::needs(), None);
    }
}
