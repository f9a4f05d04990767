//! The seam for the operator: look, replay, delete. Everything is bounded, so that it can be run at 3 a.m.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::diagnosis::Finding;
use crate::error::StoreError;
use crate::id::{MessageId, OwnerToken, WorkId};
use crate::message::Message;
use crate::outbox::State;
use crate::problem::{Invalid, Problem};
use crate::store::Undecodable;

mod replay;

pub use replay::{Ended, Group, GroupBy, Replay, Replayed, Tally};

/// Messages that one admin call lists or changes at the most.
pub const ADMIN_LIMIT_MAX: u32 = 10_000;

/// What an operator can ask and do.
#[async_trait]
pub trait OutboxAdmin: Send + Sync {
    /// Counts by state and topic, the age of the oldest message that waits, and the leases.
    ///
    /// Counts exactly, and so reads every message once: seconds on millions of rows.
    async fn overview(&self) -> Result<Overview, StoreError>;

    /// One message, wherever it stands; none when it is unknown or purged.
    async fn get(&self, name: MessageName) -> Result<Option<StoredMessage>, StoreError>;

    /// A page of messages in one state, in the order of the sequence.
    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError>;

    /// How many messages match that ended so, and when they did: the dry run of [`replay`](Self::replay), and for dead ones
    /// of [`delete`](Self::delete).
    async fn tally(&self, ended: Ended, filter: &Filter) -> Result<Tally, StoreError>;

    /// Counts matching dead messages by what they have in common: the largest groups first, those of one size by topic and
    /// error. At most `limit` groups.
    async fn group_dead(&self, by: GroupBy, filter: &Filter, limit: u32) -> Result<Vec<Group>, StoreError>;

    /// Makes matching messages pending again, lowest first, under their own ids.
    ///
    /// They start anew: no attempts, no lost leases, due at once, no expiry. The last error stays to be read, and the header
    /// [`REPLAY`](crate::wire::REPLAY) says how often they were replayed. A receipt is never taken. One whose id is pending
    /// already is not stored a second time.
    async fn replay(&self, replay: &Replay) -> Result<Replayed, StoreError>;

    /// Deletes up to `limit` matching dead messages, lowest first; answers how many.
    async fn delete(&self, filter: &Filter, limit: u32) -> Result<u64, StoreError>;

    /// Keys whose messages wait behind one that failed: which waits for its next attempt, or is dead. At most `limit`,
    /// those that were stored first come first.
    ///
    /// Messages behind a dead one are listed whether or not they are held back: under
    /// [`AfterDead::Skip`](crate::AfterDead::Skip) they are about to go on.
    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError>;

    /// Looks at the settings of the database, the rights of the user and the connection; changes nothing. The tables need not
    /// be there.
    ///
    /// A store that has nothing to look at answers nothing.
    async fn diagnose(&self) -> Result<Vec<Finding>, StoreError> {
        Ok(Vec::new())
    }
}

/// A message's name, one way or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageName {
    /// Its row.
    Work(WorkId),
    /// Its own id.
    Message(MessageId),
}

/// The state of a store at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// One entry per topic, sorted by topic.
    pub topics: Vec<TopicCounts>,
    /// How long the oldest message has waited that could be claimed now.
    pub oldest_pending: Option<Duration>,
    /// Leases that run.
    pub active_lease_count: u64,
    /// Leases that ran out and wait to be taken over or reaped.
    pub expired_lease_count: u64,
}

impl Overview {
    /// The counts over all topics.
    pub fn total(&self) -> Counts {
        self.topics.iter().fold(Counts::default(), |sum, topic| Counts {
            pending: sum.pending + topic.counts.pending,
            processing: sum.processing + topic.counts.processing,
            done: sum.done + topic.counts.done,
            dead: sum.dead + topic.counts.dead,
        })
    }
}

/// The counts of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicCounts {
    /// The topic.
    pub topic: String,
    /// Its messages by state.
    pub counts: Counts,
}

/// Messages by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting, now or for a later time.
    pub pending: u64,
    /// Leased.
    pub processing: u64,
    /// Done and kept.
    pub done: u64,
    /// Given up.
    pub dead: u64,
}

impl Counts {
    /// The count of one state.
    pub fn of_mut(&mut self, state: State) -> &mut u64 {
        match state {
            State::Pending => &mut self.pending,
            State::Processing => &mut self.processing,
            State::Done => &mut self.done,
            State::Dead => &mut self.dead,
        }
    }
}

/// A message with everything the store knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// The row.
    pub work_id: WorkId,
    /// Where it stands.
    pub state: State,
    /// Attempts so far.
    pub attempts: u32,
    /// Leases of it that ran out.
    pub lost_lease_count: u32,
    /// When it was stored.
    pub created_at: SystemTime,
    /// When it may be claimed, where it was told to wait.
    pub due_at: Option<SystemTime>,
    /// Who holds it.
    pub owner: Option<OwnerToken>,
    /// Until when it is held.
    pub locked_until: Option<SystemTime>,
    /// When it was done or dead.
    pub settled_at: Option<SystemTime>,
    /// Who settled it, or gave it back to be tried again; none when it expired, lost its leases or waits for its first time.
    pub settled_by: Option<OwnerToken>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// Whether only a receipt is left: payload, headers and tracing fields are gone.
    pub is_receipt: bool,
    /// The message, or why the row cannot be read as one.
    pub message: Result<Message, Undecodable>,
}

/// Which messages are meant; what is not set matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only these rows; empty means any.
    pub work_ids: Vec<WorkId>,
    /// Exactly this topic.
    pub topic: Option<String>,
    /// Exactly this correlation id. A receipt has none.
    pub correlation_id: Option<String>,
    /// The last error contains this text; case counts.
    pub error_contains: Option<String>,
    /// In its state for longer than this (done, dead), or stored longer ago (pending, processing).
    pub older_than: Option<Duration>,
    /// In its state for less than this, or stored more recently.
    pub newer_than: Option<Duration>,
}

impl Filter {
    /// Everything.
    pub fn all() -> Self {
        Self::default()
    }

    /// One row.
    pub fn work_id(work_id: WorkId) -> Self {
        Self { work_ids: vec![work_id], ..Self::default() }
    }

    /// One topic.
    pub fn topic(topic: impl Into<String>) -> Self {
        Self { topic: Some(topic.into()), ..Self::default() }
    }

    /// What belongs to one correlation id.
    pub fn correlation_id(correlation_id: impl Into<String>) -> Self {
        Self { correlation_id: Some(correlation_id.into()), ..Self::default() }
    }

    /// Checks the limit of a call that lists or changes.
    pub fn check_limit(limit: u32) -> Result<(), Invalid> {
        Self::all().validate(limit)
    }

    /// Checks the filter and a limit that goes with it.
    pub fn validate(&self, limit: u32) -> Result<(), Invalid> {
        let mut problems = Vec::new();
        if self.work_ids.len() > ADMIN_LIMIT_MAX as usize {
            let complaint = format!("must be at most {ADMIN_LIMIT_MAX}, are {}", self.work_ids.len());
            problems.push(Problem::out_of_range("work_ids", u64::from(ADMIN_LIMIT_MAX), complaint));
        }
        let texts = [
            ("topic", &self.topic),
            ("correlation_id", &self.correlation_id),
            ("error_contains", &self.error_contains),
        ];
        for (field, text) in texts {
            if text.as_ref().is_some_and(|text| text.contains('\0')) {
                problems.push(Problem::malformed(field, "must not contain the character NUL"));
            }
        }
        for (field, age) in [("older_than", self.older_than), ("newer_than", self.newer_than)] {
            if age.is_some_and(|age| age > crate::message::HORIZON_MAX) {
                let limit = crate::message::HORIZON_MAX.as_secs();
                problems.push(Problem::out_of_range(field, limit, format!("must be at most {limit} seconds")));
            }
        }
        if !(1..=ADMIN_LIMIT_MAX).contains(&limit) {
            let missed = if limit == 0 { 1 } else { u64::from(ADMIN_LIMIT_MAX) };
            let complaint = format!("must be 1 to {ADMIN_LIMIT_MAX}, is {limit}");
            problems.push(Problem::out_of_range("limit", missed, complaint));
        }
        Invalid::unless_empty(problems)
    }
}

/// A page to be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// Only this state.
    pub state: State,
    /// Only these messages.
    pub filter: Filter,
    /// Where the last page ended.
    pub after: Option<WorkId>,
    /// Messages on the page at the most.
    pub limit: u32,
}

/// A key whose messages wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedKey {
    /// The key.
    pub key: String,
    /// The row of the message that stands in the way: the earliest of its key.
    pub head: WorkId,
    /// Pending, when it waits for its next attempt, or dead.
    pub state: State,
    /// Why its last attempt failed.
    pub last_error: Option<String>,
    /// When its next attempt is due, if it has one.
    pub due_at: Option<SystemTime>,
    /// Messages that wait behind it.
    pub waiting_count: u64,
}

/// A page of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The messages, in the order of the sequence.
    pub messages: Vec<StoredMessage>,
    /// What to ask for next; none on the last page.
    pub next: Option<WorkId>,
}

impl Page {
    /// Makes a page of what a query for one message more than the limit brought.
    pub fn from_overfull(mut messages: Vec<StoredMessage>, limit: u32) -> Self {
        let limit = limit as usize;
        let more = messages.len() > limit;
        messages.truncate(limit);
        let next = if more { messages.last().map(|message| message.work_id) } else { None };
        Self { messages, next }
    }
}
