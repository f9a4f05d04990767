//! A transport for users' tests: keeps what was delivered, and answers as it is told.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use pillarbox_core::{Delivery, DeliveryResult, Message, Parcel, Transport, Undelivered};
use tokio::sync::Notify;

/// Takes everything and remembers it, unless it is told to answer otherwise. Clones share what they remember.
///
/// ```
/// use pillarbox_core::{Delivery, Message, Parcel, Transport, Undelivered};
/// use pillarbox_testing::Recorder;
///
/// # #[tokio::main]
/// # async fn main() {
/// let recorder = Recorder::new();
/// recorder.answer(|parcel| match parcel.destination.as_ref() {
///     "down" => Err(Undelivered::unavailable("connection refused")),
///     _ => Ok(Delivery::Taken),
/// });
/// let message = Message::new("t", "");
/// let results = recorder.deliver(&[Parcel::new("up", &message), Parcel::new("down", &message)]).await;
/// assert_eq!((results[0].is_ok(), results[1].is_ok()), (true, false));
/// assert_eq!(recorder.delivered(), [("up".to_owned(), message)]);
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Recorder(Arc<Inner>);

type Answer = Box<dyn Fn(&Parcel<'_>) -> DeliveryResult + Send + Sync>;

#[derive(Default)]
struct Inner {
    delivered: Mutex<Vec<(String, Message)>>,
    answer: Mutex<Option<Answer>>,
    changed: Notify,
}

impl Recorder {
    /// One that takes everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers so from now on; what is answered with `Ok` is remembered.
    pub fn answer(&self, answer: impl Fn(&Parcel<'_>) -> DeliveryResult + Send + Sync + 'static) {
        *self.0.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(answer));
    }

    /// What was delivered so far, with its destination, in order.
    pub fn delivered(&self) -> Vec<(String, Message)> {
        self.0.delivered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until so many are delivered.
    pub async fn wait_for(&self, count: usize) -> Vec<(String, Message)> {
        loop {
            let changed = self.0.changed.notified();
            let delivered = self.delivered();
            if delivered.len() >= count {
                return delivered;
            }
            changed.await;
        }
    }
}

#[async_trait]
impl Transport for Recorder {
    fn kind(&self) -> &'static str {
        "recorder"
    }

    async fn deliver(&self, parcels: &[Parcel<'_>]) -> Vec<DeliveryResult> {
        let answer = self.0.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut delivered = self.0.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut take = |parcel: &Parcel<'_>| {
            let result = answer.as_ref().map_or(Ok(Delivery::Taken), |answer| answer(parcel));
            if result.is_ok() {
                delivered.push((parcel.destination.to_string(), parcel.message.clone()));
            }
            result
        };
        let results = parcels.iter().map(&mut take).collect();
        drop((answer, delivered));
        self.0.changed.notify_waiters();
        results
    }

    async fn probe(&self) -> Result<(), Undelivered> {
        Ok(())
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("delivered_count", &self.delivered().len()).finish_non_exhaustive()
    }
}
