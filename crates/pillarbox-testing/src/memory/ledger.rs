//! The rules of the ledger: what each call does to its entries, as the contract says it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pillarbox_core::inbox::{
    ContentHash, InboxRecord, InboxState, Mark, Marking, Place, Receipt, Registered, Standing, decide_mark, state_of,
};
use pillarbox_core::lease::Lease;
use pillarbox_core::message::truncated;
use pillarbox_core::{MessageId, State, Verdict};
use tokio::sync::Mutex;

use super::outbox::Outbox;
use super::row::{self, increased};

/// Source and message id.
pub(super) type Name = (String, String);

/// The name under which a receipt is remembered.
pub(super) fn name_of(receipt: &Receipt) -> Name {
    (receipt.source().to_owned(), receipt.message_id().to_owned())
}

/// What the ledger knows of one message.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) message_id: MessageId,
    pub(super) marked: InboxState,
    pub(super) is_queued: bool,
    first_seen_at: SystemTime,
    last_seen_at: SystemTime,
    hash: Option<ContentHash>,
    mismatch_count: u32,
    /// A consumer's lease, and when it ends.
    lease: Option<(Lease, SystemTime)>,
    last_error: Option<String>,
}

impl Entry {
    /// One that nobody has seen before.
    pub(super) fn new(now: SystemTime) -> Self {
        Self {
            message_id: MessageId::new(),
            marked: InboxState::Seen,
            is_queued: false,
            first_seen_at: now,
            last_seen_at: now,
            hash: None,
            mismatch_count: 0,
            lease: None,
            last_error: None,
        }
    }

    /// Counts a delivery; whether its hash contradicts the one on record.
    pub(super) fn see(&mut self, receipt: &Receipt, now: SystemTime) -> bool {
        self.last_seen_at = now;
        let Some(hash) = receipt.get_hash() else { return false };
        let is_mismatch = self.hash.get_or_insert_with(|| hash.clone()).contradicts(hash);
        if is_mismatch {
            self.mismatch_count = increased(self.mismatch_count);
        }
        is_mismatch
    }

    pub(super) fn standing(&self, outbox: &Outbox, now: SystemTime) -> Standing {
        let place = match outbox.row_of(self.message_id) {
            _ if !self.is_queued => Place::NotQueued,
            None => Place::Gone,
            Some(row) if row.is_held(now) => Place::Leased,
            Some(row) => match row.state() {
                State::Pending | State::Processing => Place::Free,
                State::Done => Place::Done,
                State::Dead => Place::Dead,
            },
        };
        Standing { marked: self.marked, place }
    }

    /// Takes it for a consumer, done at once or under a lease, unless somebody else has it.
    pub(super) fn take(
        &mut self,
        outbox: &Outbox,
        leased: Option<Lease>,
        held: Option<Lease>,
        now: SystemTime,
    ) -> Registered {
        let is_free = match self.lease {
            Some((lease, until)) => until <= now || held == Some(lease),
            None => true,
        };
        let is_taken = is_free && !self.is_queued && self.marked != InboxState::Done;
        if is_taken {
            self.marked = if leased.is_some() { InboxState::Processing } else { InboxState::Done };
            self.lease = leased.map(|lease| (lease, truncated(now + lease.duration())));
        }
        Registered::of(is_taken, self.standing(outbox, now))
    }

    pub(super) fn release(&mut self, lease: Lease) -> bool {
        let is_ours = self.lease.is_some_and(|(held, _)| held == lease) && !self.is_queued;
        if is_ours {
            self.lease = None;
            self.marked = InboxState::Seen;
        }
        is_ours
    }

    pub(super) fn queue(&mut self, receipt: &Receipt) {
        self.hash = receipt.get_hash().cloned();
        (self.marked, self.is_queued, self.lease, self.last_error) = (InboxState::Processing, true, None, None);
    }

    /// Does what a mark asks for, to a message that stood so before.
    pub(super) fn mark(&mut self, outbox: &mut Outbox, before: Option<Standing>, mark: Mark, now: SystemTime) {
        let marking = decide_mark(before, &mark);
        let reason = match mark {
            Mark::Dead(reason) => Verdict::Fail { reason }.reason().map(String::from),
            Mark::Processing | Mark::Processed => None,
        };
        match marking {
            Marking::Keep => {}
            Marking::Set(state) => {
                (self.marked, self.lease, self.last_error) = (state, None, reason);
            }
            Marking::Finish => {
                outbox.forget(self.message_id);
                (self.marked, self.is_queued, self.last_error) = (InboxState::Done, false, None);
            }
            Marking::Bury => {
                if let Some(row) = outbox.row_of_mut(self.message_id) {
                    row.place = row::Place::Dead { settled_at: now, settled_by: None };
                    row.last_error = reason.or(row.last_error.take());
                }
            }
        }
    }

    fn record(&self, name: &Name, outbox: &Outbox, now: SystemTime) -> InboxRecord {
        let row = outbox.row_of(self.message_id);
        InboxRecord {
            source: name.0.clone(),
            message_id: name.1.clone(),
            queue_id: self.message_id,
            state: state_of(self.standing(outbox, now)),
            first_seen_at: self.first_seen_at,
            last_seen_at: self.last_seen_at,
            hash: self.hash.clone(),
            mismatch_count: self.mismatch_count,
            attempts: row.map_or(0, |row| row.attempts),
            due_at: row.and_then(|row| row.due_at),
            last_error: row.and_then(|row| row.last_error.clone()).or_else(|| self.last_error.clone()),
            topic: row.map(|row| row.message.topic().to_owned()),
        }
    }
}

/// The ledger of one inbox.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) entries: BTreeMap<Name, Entry>,
    /// Who is at an entry; others wait, as they do for a row of a database.
    locks: HashMap<Name, Arc<Mutex<()>>>,
}

impl Ledger {
    pub(super) fn lock_of(&mut self, name: &Name) -> Arc<Mutex<()>> {
        self.locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(self.locks.entry(name.clone()).or_default())
    }

    pub(super) fn record(&self, name: &Name, outbox: &Outbox, now: SystemTime) -> Option<InboxRecord> {
        self.entries.get(name).map(|entry| entry.record(name, outbox, now))
    }

    pub(super) fn mismatches(&self, after: &Name, limit: u32, outbox: &Outbox, now: SystemTime) -> Vec<InboxRecord> {
        let is_meant = |(name, entry): &(&Name, &Entry)| *name > after && entry.mismatch_count > 0;
        let page = self.entries.iter().filter(is_meant).take(limit as usize);
        page.map(|(name, entry)| entry.record(name, outbox, now)).collect()
    }

    /// Forgets what is done and was last seen so long ago; what the queue still has is not forgotten here.
    pub(super) fn purge(&mut self, limit: u32, remember: Duration, outbox: &Outbox, now: SystemTime) -> u64 {
        let mut old: Vec<(SystemTime, Name)> = self
            .entries
            .iter()
            .filter(|(_, entry)| {
                state_of(entry.standing(outbox, now)) == InboxState::Done
                    && outbox.row_of(entry.message_id).is_none()
                    && entry.last_seen_at + remember <= now
            })
            .map(|(name, entry)| (entry.last_seen_at, name.clone()))
            .collect();
        old.sort_unstable();
        old.truncate(limit as usize);
        for (_, name) in &old {
            self.entries.remove(name);
        }
        old.len() as u64
    }
}
