//! One sending link in a session of its own: a broker that ends a session over one message ends no other link with it.

use std::sync::Mutex;

use fe2o3_amqp::Sender;
use fe2o3_amqp::link::{
    DetachError, LinkStateError, MessageSizeExceeded, SendError, SenderAttachError, SessionStopReason,
};
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::{self, AmqpError, ErrorCondition, LinkError, SenderSettleMode};
use fe2o3_amqp::types::messaging::Outcome;
use futures_util::FutureExt;
use pillarbox_core::{Delivery, DeliveryResult, Undelivered};
use uuid::Uuid;

use super::{encoded, locked};
use crate::batch::Batch;

/// Messages and bytes that wait for their outcomes at once.
const WINDOW_MESSAGES: usize = 500;
const WINDOW_BYTES: usize = 4 * 1024 * 1024;

/// What broke a lane.
pub(super) enum Trouble {
    /// The connection.
    Away(String),
    /// A message, by its size; with the limit where it is told.
    TooLarge(Option<usize>),
    /// Something about the address, or about a message.
    Refused(String),
}

pub(super) struct Lane {
    address: String,
    // Before the session, which it belongs to.
    sender: Sender,
    session: SessionHandle<()>,
}

impl Lane {
    pub(super) async fn open(mut session: SessionHandle<()>, address: &str) -> Result<Self, Trouble> {
        let attached = Sender::builder()
            .name(format!("pillarbox-{}", Uuid::new_v4()))
            .target(address)
            .sender_settle_mode(SenderSettleMode::Unsettled)
            .attach(&mut session);
        let sender = attached.await.map_err(|error| match error {
            SenderAttachError::SessionStopped(reason) => stopped(&reason),
            SenderAttachError::RemoteClosedWithError(error) => told(&error),
            other => Trouble::Refused(other.to_string()),
        })?;
        Ok(Self { address: address.to_owned(), sender, session })
    }

    pub(super) fn is_to(&self, address: &str) -> bool {
        self.address == address
    }

    pub(super) fn is_open(&self) -> bool {
        !self.session.is_ended()
    }

    /// Answers for every message, or for those before the one that broke it.
    pub(super) async fn send(&mut self, batch: &Mutex<Batch<'_>>, places: &[usize]) -> Result<(), Trouble> {
        let mut left = places.iter().copied().peekable();
        while left.peek().is_some() {
            let (mut window, mut bytes, mut broken) = (Vec::new(), 0, None);
            while window.len() < WINDOW_MESSAGES && bytes < WINDOW_BYTES {
                let Some(place) = left.next() else { break };
                let message = {
                    let mut batch = locked(batch);
                    if !batch.admits(place) {
                        continue;
                    }
                    batch.parcel(place).message
                };
                bytes += message.payload().len();
                match self.sender.send_batchable(encoded(message)).await {
                    Ok(settled) => window.push((place, settled)),
                    Err(SendError::MessageSizeExceeded(MessageSizeExceeded { size, max_size })) => {
                        let count = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
                        let too_large = Undelivered::TooLarge { bytes: count(size), limit: Some(count(max_size)) };
                        locked(batch).answer(place, Err(too_large));
                    }
                    Err(SendError::MessageEncodeError) => {
                        locked(batch).answer(place, Err(Undelivered::rejected("it cannot be encoded")));
                    }
                    Err(error) => {
                        broken = Some(trouble(error));
                        break;
                    }
                }
            }
            for (place, mut settled) in window {
                if broken.is_none() {
                    // An outcome that has not come when the link ends would be waited for without end.
                    broken = tokio::select! {
                        biased;
                        settled = &mut settled => {
                            settled.map(|outcome| locked(batch).answer(place, answer(outcome))).err().map(trouble)
                        }
                        ended = self.sender.on_detach() => Some(trouble(ended.into())),
                    };
                } else if let Some(Ok(outcome)) = settled.now_or_never() {
                    locked(batch).answer(place, answer(outcome));
                }
            }
            if let Some(broken) = broken {
                return Err(broken);
            }
        }
        Ok(())
    }
}

fn answer(outcome: Outcome) -> DeliveryResult {
    match outcome {
        Outcome::Accepted(_) => Ok(Delivery::Taken),
        Outcome::Rejected(rejected) => Err(match rejected.error {
            Some(error) if is_final(&error.condition) => Undelivered::rejected(words(&error)),
            Some(error) => Undelivered::refused(words(&error)),
            None => Undelivered::refused("the broker rejected it"),
        }),
        Outcome::Released(_) => Err(Undelivered::refused("the broker released it: nobody takes it there")),
        Outcome::Modified(_) => Err(Undelivered::refused("the broker did not take it")),
    }
}

/// Whether a message that is sent again would fare no better.
fn is_final(condition: &ErrorCondition) -> bool {
    let finals = [AmqpError::DecodeError, AmqpError::InvalidField, AmqpError::NotImplemented];
    matches!(condition, ErrorCondition::AmqpError(error) if finals.contains(error))
}

fn trouble(error: SendError) -> Trouble {
    match error {
        SendError::LinkStateError(LinkStateError::SessionStopped(reason))
        | SendError::Detached(DetachError::SessionStopped(reason)) => stopped(&reason),
        SendError::LinkStateError(
            LinkStateError::RemoteDetachedWithError(error) | LinkStateError::RemoteClosedWithError(error),
        )
        | SendError::Detached(
            DetachError::RemoteDetachedWithError(error) | DetachError::RemoteClosedWithError(error),
        ) => told(&error),
        SendError::LinkStateError(LinkStateError::IllegalState) => Trouble::Away(error.to_string()),
        other => Trouble::Refused(other.to_string()),
    }
}

fn stopped(reason: &SessionStopReason) -> Trouble {
    match reason {
        SessionStopReason::RemoteEndedWithError(error) => told(error),
        SessionStopReason::RemoteEnded => Trouble::Refused("the broker ended the session".to_owned()),
        SessionStopReason::Ended | SessionStopReason::EndedWithError(_) => {
            Trouble::Away("the session ended".to_owned())
        }
        SessionStopReason::ConnectionStopped(_) => Trouble::Away("the connection broke".to_owned()),
    }
}

fn told(error: &definitions::Error) -> Trouble {
    let text = error.description.as_deref().unwrap_or_default();
    let is_size = match &error.condition {
        ErrorCondition::LinkError(LinkError::MessageSizeExceeded) => true,
        // RabbitMQ has no other words for it.
        ErrorCondition::AmqpError(AmqpError::PreconditionFailed) => text.contains("message size"),
        _ => false,
    };
    if is_size {
        let numbers = text.rsplit(|letter: char| !letter.is_ascii_digit());
        return Trouble::TooLarge(numbers.filter_map(|word| word.parse().ok()).next());
    }
    Trouble::Refused(words(error))
}

fn words(error: &definitions::Error) -> String {
    let condition = format!("{:?}", error.condition);
    match error.description.as_deref() {
        Some(text) if !text.is_empty() => format!("{condition}: {text}"),
        _ => condition,
    }
}
