//! The rules: what each call does to the rows, as the contract says it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, SystemTime};

use pillarbox_core::lease::{Claim, Held, Lease};
use pillarbox_core::order::REASON_PARKED;
use pillarbox_core::outbox::{REASON_EXPIRED, REASON_LEASES_LOST};
use pillarbox_core::retention::Retention;
use pillarbox_core::retry::RetryPolicy;
use pillarbox_core::store::{Claimed, Enqueue, Enqueued, Placement, Reap, Reaped, Settlement};
use pillarbox_core::{AfterDead, AttemptEnd, MessageId, OwnerToken, Verdict, WorkId, decide};

use super::locks::{Holder, Lock, Locks};
use super::order::Lanes;
use super::row::{Place, Row, increased};
use super::staged::Overlay;

/// The tables of one outbox.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    pub(super) version: u32,
    last_id: i64,
    rows: BTreeMap<WorkId, Row>,
    by_message: HashMap<MessageId, WorkId>,
    locks: Locks,
}

impl Outbox {
    /// Draws rows for the messages that are not known yet, in their order. Nothing is stored before [`insert`](Self::insert).
    pub(super) fn prepare(
        &mut self,
        enqueue: &Enqueue<'_>,
        unsaved: &Overlay,
        now: SystemTime,
    ) -> (Vec<Row>, Vec<Enqueued>) {
        let mut rows: Vec<Row> = Vec::new();
        let mut drawn: HashSet<MessageId> = unsaved.values().flatten().map(|row| row.message.id()).collect();
        let mut answers = Vec::new();
        for message in enqueue.messages() {
            let message_id = message.id();
            if self.by_message.contains_key(&message_id) || !drawn.insert(message_id) {
                answers.push(Enqueued { message_id, placement: Placement::Duplicate });
                continue;
            }
            let row = Row::new(self.draw_id(), message, enqueue.lease(), now);
            let placement = match row.place {
                Place::Leased { fence, .. } => Placement::Leased(Held { work_id: row.id, fence }),
                _ => Placement::Pending(row.id),
            };
            answers.push(Enqueued { message_id, placement });
            rows.push(row);
        }
        (rows, answers)
    }

    /// Stores rows; of two for one message the first counts.
    pub(super) fn insert(&mut self, rows: Vec<Row>) {
        for row in rows {
            if let Entry::Vacant(vacant) = self.by_message.entry(row.message.id()) {
                vacant.insert(row.id);
                self.rows.insert(row.id, row);
            }
        }
    }

    /// Replaces, removes and adds rows; of two new ones for one message the first counts.
    pub(super) fn lay_over(&mut self, overlay: Overlay) {
        for (id, row) in overlay {
            match row {
                None => self.remove(id),
                Some(row) if self.rows.contains_key(&id) => drop(self.rows.insert(id, row)),
                Some(row) => self.insert(vec![row]),
            }
        }
    }

    /// The tables as a transaction with these changes sees them: its own locks do not stand in its way.
    pub(super) fn seen_with(&self, overlay: &Overlay) -> Self {
        let mut seen = self.clone();
        overlay.keys().for_each(|row| seen.locks.ignore(*row));
        seen.lay_over(overlay.clone());
        seen
    }

    /// What must change to make these tables like those; also takes over the numbers that were drawn.
    pub(super) fn changes_to(&mut self, changed: Self) -> Overlay {
        self.last_id = changed.last_id;
        let removed = self.rows.keys().filter(|id| !changed.rows.contains_key(id)).map(|id| (*id, None));
        let mut overlay: Overlay = removed.collect();
        let is_changed = |row: &Row| self.rows.get(&row.id) != Some(row);
        overlay.extend(changed.rows.into_values().filter(is_changed).map(|row| (row.id, Some(row))));
        overlay
    }

    pub(super) fn draw_id(&mut self) -> WorkId {
        self.last_id += 1;
        WorkId::from_i64(self.last_id)
    }

    pub(super) fn claim(&mut self, claim: &Claim, lost_leases_max: u32, now: SystemTime) -> Vec<Claimed> {
        let limit = claim.limit() as usize;
        let is_served = |row: &Row| row.is_served(claim.served());
        let is_free = |row: &Row| is_served(row) && self.locks.holder(row.id).is_none();
        let woken = Lanes::new(&self.rows, &self.locks, claim.order(), now).woken(limit, is_free);
        let mut claimed = self.lease(woken, claim, now);
        let is_left_out = |row: &Row| claim.left_out().is_some_and(|left_out| left_out.has(row.message.topic()));
        let is_ready = |row: &Row| {
            is_served(row)
                && !is_left_out(row)
                && row.is_due(now)
                && !row.is_expired(now)
                && self.locks.holder(row.id).is_none()
                && match row.place {
                    Place::Free => true,
                    Place::Leased { locked_until, .. } => locked_until <= now && !is_last_lease(row, lost_leases_max),
                    _ => false,
                }
        };
        let ready = Lanes::new(&self.rows, &self.locks, claim.order(), now).live(limit - claimed.len(), is_ready);
        claimed.extend(self.lease(ready, claim, now));
        claimed.sort_unstable_by_key(|claimed| claimed.held.work_id);
        claimed
    }

    fn lease(&mut self, ids: Vec<WorkId>, claim: &Claim, now: SystemTime) -> Vec<Claimed> {
        let mut claimed = Vec::new();
        for id in ids {
            if let Some(row) = self.rows.get_mut(&id) {
                if let Place::Leased { .. } = row.place {
                    row.lost_lease_count = increased(row.lost_lease_count);
                }
                row.lease(claim.lease(), now);
                claimed.push(row.claimed(claim.lease().fence()));
            }
        }
        claimed
    }

    /// What must end before these claims can be settled or renewed: a transaction that has settled one of them.
    pub(super) fn holder<'h>(&self, owner: OwnerToken, held: impl IntoIterator<Item = &'h Held>) -> Option<Holder> {
        let mut ours = held.into_iter().filter(|held| self.is_under(owner, **held));
        ours.find_map(|held| self.locks.holder(held.work_id)).cloned()
    }

    /// Keeps everybody else from rows that no transaction has changed.
    pub(super) fn lock(&mut self, rows: impl IntoIterator<Item = WorkId>) -> Lock {
        self.locks.take(rows)
    }

    pub(super) fn is_under(&self, owner: OwnerToken, held: Held) -> bool {
        self.row(held.work_id).is_some_and(|row| row.is_under(owner, held))
    }

    /// What must end before this message can be replaced, removed or buried.
    pub(super) fn holder_of(&self, message_id: MessageId) -> Option<Holder> {
        self.by_message.get(&message_id).and_then(|row| self.locks.holder(*row)).cloned()
    }

    /// Applies one verdict; whether the message was still under the claim that the settlement names.
    pub(super) fn settle(
        &mut self,
        owner: OwnerToken,
        settlement: &Settlement,
        retention: Retention,
        now: SystemTime,
    ) -> bool {
        let id = settlement.held.work_id;
        let Some(row) = self.rows.get_mut(&id).filter(|row| row.is_under(owner, settlement.held)) else {
            return false;
        };
        if !row.settle(owner, &settlement.verdict, retention, now) {
            self.remove(id);
        }
        true
    }

    /// Prolongs one lease; whether the message was still under it.
    pub(super) fn renew(&mut self, lease: Lease, held: Held, now: SystemTime) -> bool {
        let owner = lease.owner();
        let Some(row) = self.rows.get_mut(&held.work_id).filter(|row| row.is_under(owner, held)) else {
            return false;
        };
        row.renew(lease, held, now);
        true
    }

    pub(super) fn reap(&mut self, reap: Reap, lost_leases_max: u32, now: SystemTime) -> Reaped {
        let window = reap.window as usize;
        let mut reaped = Reaped::default();
        let is_ahead = |row: &&Row| reap.after.is_none_or(|after| row.id > after) && row.is_live();
        let mut ids: Vec<WorkId> = self.rows.values().filter(is_ahead).map(|row| row.id).take(window).collect();
        if ids.len() == window {
            reaped.next = ids.last().copied();
        }
        let parked: HashSet<WorkId> =
            if reap.after_dead == AfterDead::Park { self.behind_dead() } else { HashSet::new() };
        if reap.after.is_none() {
            let is_parked = |row: &Row| row.is_due(now) && !row.is_expired(now) && parked.contains(&row.id);
            ids.extend(self.waiting(window, is_parked));
            ids.extend(self.waiting(window, |row| row.is_expired(now)));
        }
        for id in ids {
            let is_free = self.locks.holder(id).is_none();
            if let Some(row) = self.rows.get_mut(&id).filter(|row| is_free && !row.is_held(now)) {
                reap_row(row, lost_leases_max, parked.contains(&id), now, &mut reaped);
            }
        }
        reaped
    }

    /// The first of the waiting rows that are meant, those first that waited longest.
    fn waiting(&self, limit: usize, is_meant: impl Fn(&Row) -> bool) -> Vec<WorkId> {
        let meant = self.rows.values().filter(|row| is_meant(row)).filter_map(|row| match row.place {
            Place::Waiting { wake_at, .. } => Some((wake_at, row.id)),
            _ => None,
        });
        let mut meant: Vec<(SystemTime, WorkId)> = meant.collect();
        meant.sort_unstable();
        meant.into_iter().take(limit).map(|(_, id)| id).collect()
    }

    /// Rows of keys that have an earlier dead one.
    fn behind_dead(&self) -> HashSet<WorkId> {
        let mut keys = HashSet::new();
        let mut behind = HashSet::new();
        for row in self.rows.values() {
            let Some(key) = row.message.get_key() else { continue };
            if keys.contains(key) {
                behind.insert(row.id);
            }
            if let Place::Dead { .. } = row.place {
                keys.insert(key);
            }
        }
        behind
    }

    pub(super) fn purge(&mut self, limit: u32, keep: Duration, now: SystemTime) -> u64 {
        let mut old: Vec<(SystemTime, WorkId)> = self
            .rows
            .values()
            .filter_map(|row| match row.place {
                Place::Done { settled_at, .. } if settled_at + keep <= now => Some((settled_at, row.id)),
                _ => None,
            })
            .collect();
        old.sort_unstable();
        old.truncate(limit as usize);
        for (_, id) in &old {
            self.remove(*id);
        }
        old.len() as u64
    }

    pub(super) fn remove(&mut self, id: WorkId) {
        if let Some(row) = self.rows.remove(&id) {
            self.by_message.remove(&row.message.id());
        }
    }

    /// Removes a message by its own id, wherever it stands.
    pub(super) fn forget(&mut self, message_id: MessageId) {
        if let Some(id) = self.by_message.get(&message_id).copied() {
            self.remove(id);
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    pub(super) fn rows_mut(&mut self) -> impl Iterator<Item = &mut Row> {
        self.rows.values_mut()
    }

    pub(super) fn row(&self, id: WorkId) -> Option<&Row> {
        self.rows.get(&id)
    }

    pub(super) fn row_of(&self, message_id: MessageId) -> Option<&Row> {
        self.by_message.get(&message_id).and_then(|id| self.rows.get(id))
    }

    pub(super) fn row_of_mut(&mut self, message_id: MessageId) -> Option<&mut Row> {
        self.by_message.get(&message_id).and_then(|id| self.rows.get_mut(id))
    }
}

/// Puts right a row that nobody holds.
fn reap_row(row: &mut Row, lost_leases_max: u32, is_parked: bool, now: SystemTime, reaped: &mut Reaped) {
    let had_owner = matches!(row.place, Place::Leased { .. });
    let is_last = had_owner && is_last_lease(row, lost_leases_max);
    if had_owner {
        row.lost_lease_count = increased(row.lost_lease_count);
    }
    if row.is_expired(now) {
        row.last_error = Some(REASON_EXPIRED.into());
        row.place = Place::Dead { settled_at: now, settled_by: None };
        reaped.expired += 1;
    } else if is_last {
        row.last_error = Some(REASON_LEASES_LOST.into());
        row.place = Place::Dead { settled_at: now, settled_by: None };
        reaped.lost += 1;
    } else if is_parked {
        row.last_error = Some(REASON_PARKED.into());
        row.place = Place::Dead { settled_at: now, settled_by: None };
        reaped.parked += 1;
    } else if had_owner {
        row.put_back();
        reaped.released += 1;
    } else if row.is_live() && !row.is_due(now) {
        row.place = Place::Waiting { wake_at: row.wake_at(), given_back_by: None };
    }
}

/// Whether losing the lease it is under buries the message: the same decision as everywhere.
fn is_last_lease(row: &Row, lost_leases_max: u32) -> bool {
    let policy = RetryPolicy::default().lost_leases_max_of(lost_leases_max);
    let end = AttemptEnd::LeaseExpired { lost_lease_count: row.lost_lease_count.saturating_add(1) };
    matches!(decide(row.attempts, end, &policy, 0.5), Verdict::Fail { .. })
}
