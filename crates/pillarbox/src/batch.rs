//! Handlers that take many messages at once and answer for each.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use pillarbox_core::store::BoxFuture;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::extract::{FromMessage, Need, State, decode};
use crate::failure::{Failure, HandlerResult};

/// Messages of one route, handled together.
///
/// ```
/// use pillarbox::prelude::*;
/// # #[derive(serde::Deserialize)] struct Entry { text: String }
/// # async fn insert(_: &Entry) -> HandlerResult { Ok(()) }
///
/// fn routes(builder: RuntimeBuilder) -> RuntimeBuilder {
///     builder.on_batch("audit.*", 500, async |batch: Batch| {
///         let (entries, mut outcome) = batch.decode::<Entry>(); // what does not decode is dead
///         for (index, entry) in &entries {
///             outcome.set(*index, insert(entry).await);
///         }
///         Ok(outcome) // `Ok(())` says that all are done; an error, that all are tried again
///     })
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Batch(Vec<Context>);

impl Batch {
    pub(crate) fn new(messages: Vec<Context>) -> Self {
        Self(messages)
    }

    /// How many messages there are; at least one.
    #[expect(clippy::len_without_is_empty, reason = "no batch is ever empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The messages, in the order in which they are answered.
    pub fn iter(&self) -> std::slice::Iter<'_, Context> {
        self.0.iter()
    }

    /// The payloads read as JSON, each with its index; those that do not fit are dead in the outcome.
    pub fn decode<T: DeserializeOwned>(&self) -> (Vec<(usize, T)>, BatchOutcome) {
        let mut outcome = self.outcome();
        let mut payloads = Vec::with_capacity(self.len());
        for (index, cx) in self.iter().enumerate() {
            match decode(cx.payload()) {
                Ok(payload) => payloads.push((index, payload)),
                Err(failure) => outcome.set(index, Err(failure)),
            }
        }
        (payloads, outcome)
    }

    /// An outcome in which every message is done, to be changed message by message.
    pub fn outcome(&self) -> BatchOutcome {
        BatchOutcome::done(self.len())
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = &'a Context;
    type IntoIter = std::slice::Iter<'a, Context>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Batch {
    type Item = Context;
    type IntoIter = std::vec::IntoIter<Context>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// How each message of a batch ended.
#[derive(Debug)]
pub struct BatchOutcome(Vec<HandlerResult>);

impl BatchOutcome {
    fn done(count: usize) -> Self {
        Self(std::iter::repeat_with(|| Ok(())).take(count).collect())
    }

    /// Answers for one message, by its place in the batch. A place outside the batch is ignored.
    pub fn set(&mut self, index: usize, result: HandlerResult) {
        if let Some(slot) = self.0.get_mut(index) {
            *slot = result;
        }
    }

    pub(crate) fn into_results(self) -> Vec<HandlerResult> {
        self.0
    }
}

/// Answers in the order of the batch. A message without an answer is tried again.
impl FromIterator<HandlerResult> for BatchOutcome {
    fn from_iter<I: IntoIterator<Item = HandlerResult>>(results: I) -> Self {
        Self(results.into_iter().collect())
    }
}

/// What a batch handler may return as success: `()` when all are done, or an answer for each.
pub trait IntoBatchOutcome: Send + 'static {
    /// The answers for a batch of this many messages.
    fn into_outcome(self, count: usize) -> BatchOutcome;
}

impl IntoBatchOutcome for () {
    fn into_outcome(self, count: usize) -> BatchOutcome {
        BatchOutcome::done(count)
    }
}

impl IntoBatchOutcome for BatchOutcome {
    fn into_outcome(self, _count: usize) -> BatchOutcome {
        self
    }
}

/// Something that a batch handler takes beside the batch: it belongs to no single message.
pub trait FromBatch: FromMessage {}

impl<T: Send + Sync + 'static> FromBatch for State<T> {}

/// Something that handles messages many at a time.
///
/// Implemented for async functions and closures that take a [`Batch`] and up to three [`FromBatch`].
#[diagnostic::on_unimplemented(
    message = "this is not a batch handler",
    label = "expected an async closure such as `async |batch: Batch| {{ …; Ok(()) }}`",
    note = "after the batch it may take up to three of `State<T>` and `InTx<S>`; it returns `Result<(), Failure>` or `Result<BatchOutcome, Failure>`",
    note = "an async closure that captures something is not one: register the thing with `.state(thing)` and take `State<Thing>`, or write `move |batch| {{ let thing = thing.clone(); async move {{ …; Ok(()) }} }}`"
)]
pub trait BatchHandler<Args>: Send + Sync + 'static {
    /// Begins the work, or says why it cannot.
    fn call(&self, batch: Batch) -> Result<BoxFuture<'static, Result<BatchOutcome, Failure>>, Failure>;

    /// What must be registered before the runtime starts.
    fn needs() -> Vec<Need>;
}

macro_rules! handles_batches {
    ($($extra:ident)*) => {
        impl<Function, Fut, Outcome, $($extra),*> BatchHandler<(Outcome, $($extra,)*)> for Function
        where
            Function: Fn(Batch, $($extra),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<Outcome, Failure>> + Send + 'static,
            Outcome: IntoBatchOutcome,
            $($extra: FromBatch,)*
        {
            fn call(&self, batch: Batch) -> Result<BoxFuture<'static, Result<BatchOutcome, Failure>>, Failure> {
                let count = batch.len();
                $(
                    #[expect(non_snake_case, reason = "named like its type by the macro")]
                    let $extra = $extra::from_message(&batch.0[0])?;
                )*
                let work = self(batch, $($extra),*);
                Ok(Box::pin(async move { Ok(work.await?.into_outcome(count)) }))
            }

            fn needs() -> Vec<Need> {
                let needs: [Option<Need>; _] = [$($extra::needs()),*];
                needs.into_iter().flatten().collect()
            }
        }
    };
}

handles_batches!();
handles_batches!(A);
handles_batches!(A B);
handles_batches!(A B C);

/// A batch handler whose arguments nobody needs to know any more.
pub(crate) trait ErasedBatchHandler: Send + Sync {
    fn call(&self, batch: Batch) -> Result<BoxFuture<'static, Result<BatchOutcome, Failure>>, Failure>;
}

pub(crate) fn erased<Args: 'static>(handler: impl BatchHandler<Args>) -> Arc<dyn ErasedBatchHandler> {
    Arc::new(Erased(handler, PhantomData))
}

struct Erased<H, Args>(H, PhantomData<fn(Args)>);

impl<Args: 'static, H: BatchHandler<Args>> ErasedBatchHandler for Erased<H, Args> {
    fn call(&self, batch: Batch) -> Result<BoxFuture<'static, Result<BatchOutcome, Failure>>, Failure> {
        self.0.call(batch)
    }
}
