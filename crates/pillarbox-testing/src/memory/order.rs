//! Which rows a claim takes: those that are ready, as far as the order of their keys allows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::SystemTime;

use pillarbox_core::WorkId;
use pillarbox_core::order::Order;

use super::locks::Locks;
use super::row::{Place, Row};

/// The rows of an outbox, seen by their keys.
pub(super) struct Lanes<'a> {
    rows: &'a BTreeMap<WorkId, Row>,
    locks: &'a Locks,
    order: Order,
    now: SystemTime,
    lanes: HashMap<&'a str, Vec<&'a Row>>,
}

impl<'a> Lanes<'a> {
    pub(super) fn new(rows: &'a BTreeMap<WorkId, Row>, locks: &'a Locks, order: Order, now: SystemTime) -> Self {
        let mut lanes = HashMap::<&str, Vec<&Row>>::new();
        for row in rows.values() {
            if let Some(lane) = lane(row, order) {
                lanes.entry(lane).or_default().push(row);
            }
        }
        Self { rows, locks, order, now, lanes }
    }

    /// Rows whose time has come and that nothing of their key precedes: up to `limit`, those first that waited longest.
    pub(super) fn woken(&self, limit: usize, may: impl Fn(&Row) -> bool) -> Vec<WorkId> {
        let is_ready = |row: &&Row| row.is_due(self.now) && !row.is_expired(self.now) && may(row) && self.is_first(row);
        let waiting = self.rows.values().filter(is_ready).filter_map(|row| match row.place {
            Place::Waiting { wake_at, .. } => Some((wake_at, row.id)),
            _ => None,
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable();
        waiting.into_iter().take(limit).map(|(_, id)| id).collect()
    }

    /// Live rows in the order of the sequence: each with all rows of its key that come before it, or not at all.
    pub(super) fn live(&self, limit: usize, is_ready: impl Fn(&Row) -> bool) -> Vec<WorkId> {
        let mut stuck = HashSet::new();
        let mut taken = Vec::new();
        for row in self.rows.values().filter(|row| row.is_live()) {
            if taken.len() == limit {
                break;
            }
            let lane = lane(row, self.order);
            if lane.is_some_and(|lane| stuck.contains(lane)) {
                continue;
            }
            if is_ready(row) && self.is_free(row) && !self.is_behind_the_shelf(row) {
                taken.push(row.id);
            } else {
                stuck.extend(lane);
            }
        }
        taken
    }

    /// Whether a waiting row is the first of its key, and nothing of its key is held.
    fn is_first(&self, row: &Row) -> bool {
        let is_behind = self.lane_of(row).iter().any(|other| other.is_live() && other.id < row.id);
        !is_behind && self.is_free(row) && !self.is_behind_the_shelf(row)
    }

    /// Whether no later row of the key is held, and no open transaction wakes one.
    fn is_free(&self, row: &Row) -> bool {
        let others = || self.lane_of(row).iter().filter(|other| other.id != row.id);
        let is_taken = |other: &&Row| other.is_live() && other.id > row.id && self.is_held(other);
        let is_woken = |other: &&Row| matches!(other.place, Place::Waiting { .. }) && self.is_locked(other);
        !others().any(|other| is_taken(other) || is_woken(other))
    }

    /// Whether a claim has the row, be it that its transaction is still open.
    fn is_held(&self, row: &Row) -> bool {
        row.is_held(self.now) || self.is_locked(row)
    }

    fn is_locked(&self, row: &Row) -> bool {
        self.locks.holder(row.id).is_some()
    }

    fn is_behind_the_shelf(&self, row: &Row) -> bool {
        self.lane_of(row).iter().any(|other| other.id < row.id && other.holds_back(self.order.after_dead))
    }

    fn lane_of(&self, row: &Row) -> &[&'a Row] {
        lane(row, self.order).and_then(|lane| self.lanes.get(lane)).map_or(&[], Vec::as_slice)
    }
}

/// Messages of one lane are handled one at a time.
fn lane(row: &Row, order: Order) -> Option<&str> {
    if order.in_sequence { Some("") } else { row.message.get_key() }
}
