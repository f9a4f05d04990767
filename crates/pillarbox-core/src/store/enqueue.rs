//! What an enqueue takes, and what it answers.

use std::collections::{HashMap, HashSet};

use crate::id::{MessageId, WorkId};
use crate::lease::{Held, Lease};
use crate::message::Message;

/// Messages to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Enqueue<'a> {
    messages: &'a [Message],
    lease: Option<Lease>,
    is_new: bool,
}

impl<'a> Enqueue<'a> {
    /// Messages that wait for a claim.
    pub fn pending(messages: &'a [Message]) -> Self {
        Self { messages, lease: None, is_new: false }
    }

    /// Messages born leased: as if claimed by this owner at the moment they are stored, first attempt counted.
    ///
    /// Those that are not due yet are stored pending all the same.
    pub fn leased(messages: &'a [Message], lease: Lease) -> Self {
        Self { messages, lease: Some(lease), is_new: false }
    }

    /// What is to be stored.
    pub fn messages(&self) -> &'a [Message] {
        self.messages
    }

    /// Says that the caller owns the messages and lends them to nobody else during the call.
    ///
    /// Of those whose ids were drawn here, and which nobody has asked for their ids or cloned, no store can hold one yet: when
    /// all are such, the store need not look.
    #[must_use]
    pub fn owned(mut self) -> Self {
        self.is_new = self.messages.iter().all(Message::has_secret_id);
        self
    }

    /// Whether no store can hold any of the messages yet.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The same call with copies of its messages, for a task of its own.
    pub fn copied(&self) -> EnqueueCopy {
        EnqueueCopy { messages: self.messages.to_vec(), lease: self.lease, is_new: self.is_new }
    }

    /// What is to be stored, each id once: of two messages with one id the first counts.
    pub fn distinct(&self) -> Vec<&'a Message> {
        // Ids that were drawn one after the other rise, and so are distinct.
        if self.messages.is_sorted_by(|before, after| before.peek_id() < after.peek_id()) {
            return self.messages.iter().collect();
        }
        let mut seen = HashSet::with_capacity(self.messages.len());
        self.messages.iter().filter(|message| seen.insert(message.id())).collect()
    }

    /// The lease they are born with.
    pub fn lease(&self) -> Option<Lease> {
        self.lease
    }
}

/// An [`Enqueue`] that has its messages.
#[derive(Clone, Debug)]
pub struct EnqueueCopy {
    messages: Vec<Message>,
    lease: Option<Lease>,
    is_new: bool,
}

impl EnqueueCopy {
    /// The call again.
    pub fn call(&self) -> Enqueue<'_> {
        Enqueue { messages: &self.messages, lease: self.lease, is_new: self.is_new }
    }
}

/// What became of one enqueued message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The message.
    pub message_id: MessageId,
    /// Where it stands now.
    pub placement: Placement,
}

/// Where an enqueued message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It waits for a claim.
    Pending(WorkId),
    /// It was born leased.
    Leased(Held),
    /// It had been stored before; nothing was changed.
    Duplicate,
}

impl Placement {
    /// The row, when this call made it.
    pub fn work_id(&self) -> Option<WorkId> {
        match self {
            Self::Pending(work_id) => Some(*work_id),
            Self::Leased(held) => Some(held.work_id),
            Self::Duplicate => None,
        }
    }
}

/// Brings the answers of an insert, in whatever order they came, into the order of the messages.
///
/// The same message twice in one batch is stored once: its second place answers as a duplicate.
pub fn enqueue_answers(
    enqueue: &Enqueue<'_>,
    stored: impl IntoIterator<Item = (MessageId, Placement)>,
) -> Vec<Enqueued> {
    let stored: Vec<_> = stored.into_iter().collect();
    let messages = enqueue.messages();
    // Most batches are new as a whole and come back as they went; ids that rise are named once each.
    let rises = messages.is_sorted_by(|before, after| before.peek_id() < after.peek_id());
    if rises
        && stored.len() == messages.len()
        && stored.iter().zip(messages).all(|((id, _), message)| *id == message.peek_id())
    {
        return stored.into_iter().map(|(message_id, placement)| Enqueued { message_id, placement }).collect();
    }
    let mut stored: HashMap<MessageId, Placement> = stored.into_iter().collect();
    let mut answer = |id: MessageId| stored.remove(&id).unwrap_or(Placement::Duplicate);
    messages.iter().map(|message| Enqueued { message_id: message.id(), placement: answer(message.id()) }).collect()
}
