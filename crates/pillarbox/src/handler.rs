//! What can handle a message: async functions and closures with extractors as arguments, and trait objects.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use pillarbox_core::store::BoxFuture;

use crate::context::Context;
use crate::event::Event;
use crate::extract::{FromMessage, Need, Payload};
use crate::failure::{Failure, HandlerResult};

/// Something that handles messages one at a time.
///
/// Implemented for async functions and closures of one to six arguments that each implement [`FromMessage`], and for
/// every [`MessageHandler`]. `Args` tells these apart and is never written down.
///
/// The future of a handler must outlive the call, so an async closure must not capture anything. What a handler needs is
/// registered as [`State`](crate::extract::State), or cloned for each message by a plain closure:
///
/// ```
/// use std::sync::Arc;
/// use pillarbox::prelude::*;
/// # struct Mailer;
/// # impl Mailer { async fn send(&self, _: &[u8]) -> Result<(), std::io::Error> { Ok(()) } }
///
/// fn by_state(builder: RuntimeBuilder, mailer: Mailer) -> RuntimeBuilder {
///     builder.state(mailer).on_topic("mail.*", async |message: Raw, mailer: State<Mailer>| {
///         mailer.send(message.payload()).await?;
///         Ok(())
///     })
/// }
///
/// fn by_clone(builder: RuntimeBuilder, mailer: Arc<Mailer>) -> RuntimeBuilder {
///     builder.on_topic("mail.*", move |message: Raw| {
///         let mailer = Arc::clone(&mailer);
///         async move {
///             mailer.send(message.payload()).await?;
///             Ok(())
///         }
///     })
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "this is not a handler",
    label = "expected an async closure such as `async |order: Payload<Order>, cx: Context| {{ …; Ok(()) }}`",
    note = "each of its one to six arguments must be an extractor: `Payload<T>`, `Raw`, `Headers`, `Meta`, `Attempt`, `State<T>`, `InTx<S>`, `CancellationToken` or `Context`",
    note = "it returns `HandlerResult`, and what it awaits must be `Send`",
    note = "an async closure that captures something is not one: register the thing with `.state(thing)` and take `State<Thing>`, or write `move |…| {{ let thing = thing.clone(); async move {{ …; Ok(()) }} }}`"
)]
pub trait Handler<Args>: Send + Sync + 'static {
    /// Takes the arguments from the message and begins the work, or says why it cannot.
    fn call<'a>(&'a self, cx: &Context) -> Result<BoxFuture<'a, HandlerResult>, Failure>;

    /// What must be registered before the runtime starts.
    fn needs() -> Vec<Need>;
}

/// A handler with a name and fields: for those who prefer a type to a closure, and for handlers chosen at run time.
///
/// ```
/// use pillarbox::handler::MessageHandler;
/// use pillarbox::prelude::*;
///
/// struct Mailer;
///
/// #[pillarbox::async_trait]
/// impl MessageHandler for Mailer {
///     async fn handle(&self, cx: Context) -> HandlerResult {
///         println!("{} is to be mailed", cx.message_id());
///         Ok(())
///     }
/// }
///
/// fn routes(builder: RuntimeBuilder) -> RuntimeBuilder {
///     builder.on_topic("mail.*", Mailer)
/// }
/// ```
#[async_trait]
pub trait MessageHandler: Send + Sync + 'static {
    /// Handles one message.
    async fn handle(&self, cx: Context) -> HandlerResult;
}

#[async_trait]
impl<H: MessageHandler + ?Sized> MessageHandler for Arc<H> {
    async fn handle(&self, cx: Context) -> HandlerResult {
        (**self).handle(cx).await
    }
}

#[async_trait]
impl<H: MessageHandler + ?Sized> MessageHandler for Box<H> {
    async fn handle(&self, cx: Context) -> HandlerResult {
        (**self).handle(cx).await
    }
}

/// Tells a [`MessageHandler`] apart from a function.
#[derive(Debug)]
pub struct ByTrait(());

impl<H: MessageHandler> Handler<ByTrait> for H {
    fn call<'a>(&'a self, cx: &Context) -> Result<BoxFuture<'a, HandlerResult>, Failure> {
        Ok(self.handle(cx.clone()))
    }

    fn needs() -> Vec<Need> {
        Vec::new()
    }
}

/// Arguments whose first is the [`Payload`] of an [`Event`], which names the topic.
#[diagnostic::on_unimplemented(
    message = "`.on(…)` takes its topic from the first argument, and this handler's first argument names none",
    label = "expected `Payload<E>` first, with `E: Event`",
    note = "write `impl Event for … {{ const TOPIC: &str = \"…\"; }}`, or name the topic: `.on_topic(\"…\", handler)`"
)]
pub trait NamesTopic {
    /// The event.
    type Event: Event;
}

macro_rules! handles {
    ($first:ident $($rest:ident)*) => {
        impl<Function, Fut, $first, $($rest),*> Handler<($first, $($rest,)*)> for Function
        where
            Function: Fn($first, $($rest),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = HandlerResult> + Send + 'static,
            $first: FromMessage,
            $($rest: FromMessage,)*
        {
            fn call<'a>(&'a self, cx: &Context) -> Result<BoxFuture<'a, HandlerResult>, Failure> {
                Ok(Box::pin(self($first::from_message(cx)?, $($rest::from_message(cx)?),*)))
            }

            fn needs() -> Vec<Need> {
                [$first::needs(), $($rest::needs()),*].into_iter().flatten().collect()
            }
        }

        impl<Named: Event, $($rest),*> NamesTopic for (Payload<Named>, $($rest,)*) {
            type Event = Named;
        }
    };
}

handles!(A);
handles!(A B);
handles!(A B C);
handles!(A B C D);
handles!(A B C D E);
handles!(A B C D E F);

/// A handler whose arguments nobody needs to know any more.
pub(crate) trait ErasedHandler: Send + Sync {
    fn call<'a>(&'a self, cx: &Context) -> Result<BoxFuture<'a, HandlerResult>, Failure>;
}

pub(crate) fn erased<Args: 'static>(handler: impl Handler<Args>) -> Arc<dyn ErasedHandler> {
    Arc::new(Erased(handler, PhantomData))
}

struct Erased<H, Args>(H, PhantomData<fn(Args)>);

impl<Args: 'static, H: Handler<Args>> ErasedHandler for Erased<H, Args> {
    fn call<'a>(&'a self, cx: &Context) -> Result<BoxFuture<'a, HandlerResult>, Failure> {
        self.0.call(cx)
    }
}
