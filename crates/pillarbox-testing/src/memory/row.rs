//! One stored message, and where it stands.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pillarbox_core::admin::StoredMessage;
use pillarbox_core::lease::{Held, Lease};
use pillarbox_core::message::{When, truncated};
use pillarbox_core::parts::{Parts, write_aggregate_type, write_headers};
use pillarbox_core::retention::Retention;
use pillarbox_core::store::{Claimed, Undecodable};
use pillarbox_core::{AfterDead, Fence, Message, OwnerToken, Served, State, Verdict, WorkId, key_hash};

/// Counters are 32-bit and signed in every database; they stop here.
pub(super) const COUNT_MAX: u32 = i32::MAX.unsigned_abs();

/// A stored message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) id: WorkId,
    pub(super) message: Message,
    /// Of its key; another language may have left it out.
    pub(super) key_hash: Option<u32>,
    /// The headers as stored; another language may have written something that is no header.
    pub(super) headers: Option<String>,
    pub(super) created_at: SystemTime,
    pub(super) due_at: Option<SystemTime>,
    pub(super) expires_at: Option<SystemTime>,
    pub(super) attempts: u32,
    pub(super) lost_lease_count: u32,
    pub(super) last_error: Option<String>,
    pub(super) place: Place,
}

/// Where a row stands: the first two in the live table, the others on the shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Free,
    Leased { owner: OwnerToken, fence: Fence, locked_until: SystemTime },
    Waiting { wake_at: SystemTime, given_back_by: Option<OwnerToken> },
    Done { settled_at: SystemTime, settled_by: OwnerToken, is_receipt: bool },
    Dead { settled_at: SystemTime, settled_by: Option<OwnerToken> },
}

impl Row {
    /// A new row: waiting when it is due later, leased when it is born so and can be handled now, else free.
    pub(super) fn new(id: WorkId, message: &Message, lease: Option<Lease>, now: SystemTime) -> Self {
        let instant = |when| match when {
            When::After(delay) => truncated(now + delay),
            When::At(at) => at,
        };
        let mut row = Self {
            id,
            key_hash: message.get_key().map(key_hash),
            headers: write_headers(message.get_headers()),
            message: message.clone(),
            created_at: now,
            due_at: message.due().map(instant),
            expires_at: message.expires().map(instant),
            attempts: 0,
            lost_lease_count: 0,
            last_error: None,
            place: Place::Free,
        };
        if !row.is_due(now) {
            row.place = Place::Waiting { wake_at: row.wake_at(), given_back_by: None };
        } else if let Some(lease) = lease
            && !row.is_expired(now)
        {
            row.lease(lease, now);
        }
        row
    }

    /// Since when it has been done or dead, or stored.
    pub(super) fn since(&self) -> SystemTime {
        match self.place {
            Place::Done { settled_at, .. } | Place::Dead { settled_at, .. } => settled_at,
            Place::Free | Place::Leased { .. } | Place::Waiting { .. } => self.created_at,
        }
    }

    /// Counts the attempt and puts the row under the lease.
    pub(super) fn lease(&mut self, lease: Lease, now: SystemTime) {
        self.attempts = increased(self.attempts);
        self.place = Place::Leased {
            owner: lease.owner(),
            fence: lease.fence(),
            locked_until: truncated(now + lease.duration()),
        };
    }

    /// Gives the next attempt another content; the running one keeps its lease and its place in the order.
    pub(super) fn revise(&mut self, message: &Message, now: SystemTime) {
        let (key, priority) = (self.message.get_key().unwrap_or_default(), self.message.get_priority());
        let new = Self::new(self.id, &message.clone().key(key).priority(priority), None, now);
        (self.message, self.headers) = (new.message, new.headers);
        (self.due_at, self.expires_at) = (new.due_at, new.expires_at);
    }

    /// Prolongs the lease that the row is under.
    pub(super) fn renew(&mut self, lease: Lease, held: Held, now: SystemTime) {
        let (owner, locked_until) = (lease.owner(), truncated(now + lease.duration()));
        self.place = Place::Leased { owner, fence: held.fence, locked_until };
    }

    /// Does what a verdict asks for; whether anything of the row is kept.
    pub(super) fn settle(
        &mut self,
        owner: OwnerToken,
        verdict: &Verdict,
        retention: Retention,
        now: SystemTime,
    ) -> bool {
        if let Some(reason) = verdict.reason() {
            self.last_error = Some(reason.into_owned());
        }
        match verdict {
            Verdict::Ack => match retention {
                Retention::Delete => return false,
                Retention::Receipt(_) => {
                    self.strip();
                    self.place = Place::Done { settled_at: now, settled_by: owner, is_receipt: true };
                }
                Retention::Message(_) => {
                    self.place = Place::Done { settled_at: now, settled_by: owner, is_receipt: false };
                }
            },
            Verdict::Fail { .. } => self.place = Place::Dead { settled_at: now, settled_by: Some(owner) },
            Verdict::Abandon { .. } => self.give_back(owner, verdict.delay(), now),
            Verdict::Release { .. } => {
                self.attempts = self.attempts.saturating_sub(1);
                self.give_back(owner, verdict.delay(), now);
            }
        }
        true
    }

    /// Makes the row pending again, now or after the delay.
    fn give_back(&mut self, owner: OwnerToken, delay: Duration, now: SystemTime) {
        if delay.is_zero() {
            self.due_at = None;
            self.put_back();
        } else {
            self.due_at = Some(truncated(now + delay));
            self.place = Place::Waiting { wake_at: self.wake_at(), given_back_by: Some(owner) };
        }
    }

    /// Makes the row claimable, in its old place.
    pub(super) fn put_back(&mut self) {
        self.place = Place::Free;
    }

    /// Drops what a receipt does not keep.
    pub(super) fn strip(&mut self) {
        let message_type = self.message.get_message_type().unwrap_or_default().to_owned();
        self.message = Message::new(self.message.topic(), Bytes::new())
            .with_id(self.message.id())
            .message_type(message_type)
            .priority(self.message.get_priority());
        (self.key_hash, self.headers, self.last_error) = (None, None, None);
    }

    /// Whether a claim that serves these partitions may take the row.
    pub(super) fn is_served(&self, served: Option<&Served>) -> bool {
        self.message.get_key().is_none() || served.is_none_or(|served| served.has(self.key_hash))
    }

    /// Whether a row on the shelf stands in the way of later ones of its key.
    pub(super) fn holds_back(&self, after_dead: AfterDead) -> bool {
        match self.place {
            Place::Waiting { given_back_by, .. } => given_back_by.is_some(),
            Place::Dead { .. } => after_dead.holds_back(),
            _ => false,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.place, Place::Free | Place::Leased { .. })
    }

    pub(super) fn is_due(&self, now: SystemTime) -> bool {
        self.due_at.is_none_or(|due_at| due_at <= now)
    }

    pub(super) fn is_expired(&self, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// Whether the row is under a lease that still runs.
    pub(super) fn is_held(&self, now: SystemTime) -> bool {
        matches!(self.place, Place::Leased { locked_until, .. } if locked_until > now)
    }

    /// Whether a settlement under this claim may touch the row.
    pub(super) fn is_under(&self, by: OwnerToken, held: Held) -> bool {
        matches!(self.place, Place::Leased { owner, fence, .. } if owner == by && fence == held.fence)
    }

    pub(super) fn wake_at(&self) -> SystemTime {
        let due_at = self.due_at.unwrap_or(self.created_at);
        self.expires_at.map_or(due_at, |expires_at| expires_at.min(due_at))
    }

    pub(super) fn state(&self) -> State {
        match self.place {
            Place::Free | Place::Waiting { .. } => State::Pending,
            Place::Leased { .. } => State::Processing,
            Place::Done { .. } => State::Done,
            Place::Dead { .. } => State::Dead,
        }
    }

    pub(super) fn claimed(&self, fence: Fence) -> Claimed {
        Claimed {
            held: Held { work_id: self.id, fence },
            attempts: self.attempts,
            lost_lease_count: self.lost_lease_count,
            created_at: self.created_at,
            last_error: self.last_error.clone(),
            message: self.read(),
        }
    }

    pub(super) fn stored(&self) -> StoredMessage {
        let mut stored = StoredMessage {
            work_id: self.id,
            state: self.state(),
            attempts: self.attempts,
            lost_lease_count: self.lost_lease_count,
            created_at: self.created_at,
            due_at: self.due_at,
            owner: None,
            locked_until: None,
            settled_at: None,
            settled_by: None,
            last_error: self.last_error.clone(),
            is_receipt: false,
            message: self.read(),
        };
        match self.place {
            Place::Free => {}
            Place::Waiting { given_back_by, .. } => stored.settled_by = given_back_by,
            Place::Leased { owner, locked_until, .. } => {
                stored.owner = Some(owner);
                stored.locked_until = Some(locked_until);
            }
            Place::Done { settled_at, settled_by, is_receipt } => {
                stored.settled_at = Some(settled_at);
                stored.settled_by = Some(settled_by);
                stored.is_receipt = is_receipt;
            }
            Place::Dead { settled_at, settled_by } => {
                stored.settled_at = Some(settled_at);
                stored.settled_by = settled_by;
            }
        }
        stored
    }

    /// Reads the row the way every backend does: from its columns.
    fn read(&self) -> Result<Message, Undecodable> {
        let text = |text: Option<&str>| text.map(str::to_owned);
        Parts {
            message_id: self.message.id().as_uuid(),
            topic: self.message.topic().to_owned(),
            message_type: text(self.message.get_message_type()),
            aggregate_type: text(write_aggregate_type(&self.message)),
            aggregate_id: text(self.message.get_aggregate_id()),
            tenant_id: text(self.message.get_tenant()),
            message_key: text(self.message.get_key()),
            correlation_id: text(self.message.get_correlation_id()),
            causation_id: text(self.message.get_causation_id()),
            headers: self.headers.clone(),
            content_type: text(self.message.get_content_type()),
            payload: self.message.payload().clone(),
            occurred_at: self.message.get_occurred_at(),
            due_at: self.due_at,
            expires_at: self.expires_at,
            priority: self.message.get_priority(),
        }
        .into_message()
    }
}

/// One more, up to what the databases' columns hold.
pub(super) fn increased(count: u32) -> u32 {
    count.saturating_add(1).min(COUNT_MAX)
}
