//! Verdicts on their way to the store.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pillarbox_core::lease::Held;
use pillarbox_core::outbox::Verdict;
use pillarbox_core::store::{SETTLE_MAX, Settlement};

use crate::flight::Flight;

/// Verdicts that wait for the next call. Bounded by what is held: every message in memory has one verdict.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    batch: Batch,
    /// Verdicts that are in a call or wait for one.
    unwritten: usize,
}

/// What one call settles: settlements, and beside each the record of its message where there is one.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) settlements: Vec<Settlement>,
    pub(crate) flights: Vec<Option<Arc<Flight>>>,
    /// A run ends with it: the store can hand out what waits behind.
    pub(crate) ends_run: bool,
}

impl Batch {
    /// Room for so many.
    pub(crate) fn of(count: usize) -> Self {
        Self { settlements: Vec::with_capacity(count), flights: Vec::with_capacity(count), ends_run: false }
    }

    pub(crate) fn push(&mut self, held: Held, verdict: Verdict, flight: Option<Arc<Flight>>) {
        self.settlements.push(Settlement { held, verdict });
        self.flights.push(flight);
    }

    pub(crate) fn len(&self) -> usize {
        self.settlements.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.settlements.is_empty()
    }

    pub(crate) fn append(&mut self, mut more: Self) {
        self.settlements.append(&mut more.settlements);
        self.flights.append(&mut more.flights);
        self.ends_run |= more.ends_run;
    }
}

impl Verdicts {
    /// Adds one; whether it is the first that waits, and a call should be made.
    pub(crate) fn push(&self, held: Held, verdict: Verdict, flight: Option<Arc<Flight>>, ends_run: bool) -> bool {
        let mut waiting = self.lock();
        waiting.unwritten += 1;
        waiting.batch.ends_run |= ends_run;
        waiting.batch.push(held, verdict, flight);
        waiting.batch.len() == 1
    }

    /// Adds many; whether they are the first that wait.
    pub(crate) fn push_all(&self, batch: Batch) -> bool {
        if batch.is_empty() {
            return false;
        }
        let mut waiting = self.lock();
        let was_empty = waiting.batch.is_empty();
        waiting.unwritten += batch.len();
        waiting.batch.append(batch);
        was_empty
    }

    /// Takes what waits, oldest first, as much as one call may carry.
    pub(crate) fn take(&self) -> Batch {
        let mut waiting = self.lock();
        let mut taken = mem::take(&mut waiting.batch);
        if taken.len() > SETTLE_MAX {
            waiting.batch.settlements = taken.settlements.split_off(SETTLE_MAX);
            waiting.batch.flights = taken.flights.split_off(SETTLE_MAX);
            waiting.batch.ends_run = taken.ends_run;
        }
        taken
    }

    /// Puts back what a failed call did not write, before all others.
    pub(crate) fn put_back(&self, mut batch: Batch) {
        let mut waiting = self.lock();
        batch.append(mem::take(&mut waiting.batch));
        waiting.batch = batch;
    }

    /// So many of those that were taken are written.
    pub(crate) fn written(&self, count: usize) {
        let mut waiting = self.lock();
        waiting.unwritten = waiting.unwritten.saturating_sub(count);
    }

    /// Whether any waits for a call.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.lock().batch.is_empty()
    }

    /// Whether a run ends with what waits.
    pub(crate) fn end_runs(&self) -> bool {
        self.lock().batch.ends_run
    }

    /// How many are not written yet, those in a call included.
    pub(crate) fn unwritten(&self) -> usize {
        self.lock().unwritten
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use pillarbox_core::{Fence, WorkId};

    use super::*;

    fn held(id: i64) -> Held {
        Held { work_id: WorkId::from_i64(id), fence: Fence::from_i64(1) }
    }

    fn ids(batch: &Batch) -> Vec<i64> {
        batch.settlements.iter().map(|settlement| settlement.held.work_id.as_i64()).collect()
    }

    /// H18, H20: what a failed call carried is neither lost nor overtaken.
    #[test]
    fn what_a_failed_call_carried_goes_first_next_time() {
        let verdicts = Verdicts::default();
        assert!(verdicts.push(held(1), Verdict::Ack, None, false));
        assert!(!verdicts.push(held(2), Verdict::Ack, None, false));
        let taken = verdicts.take();
        assert!(verdicts.push(held(3), Verdict::Ack, None, false), "the first one after a call began asks for another");
        assert_eq!(verdicts.unwritten(), 3);
        verdicts.put_back(taken);
        let taken = verdicts.take();
        assert_eq!(ids(&taken), [1, 2, 3]);
        verdicts.written(3);
        assert_eq!((verdicts.unwritten(), verdicts.is_waiting()), (0, false));
    }

    /// WRK-07: a failed call does not forget that keys become free.
    #[test]
    fn the_end_of_a_run_is_remembered_until_it_is_written() {
        let verdicts = Verdicts::default();
        verdicts.push(held(1), Verdict::Ack, None, true);
        verdicts.push(held(2), Verdict::Ack, None, false);
        let taken = verdicts.take();
        assert!(taken.ends_run && !verdicts.end_runs());
        verdicts.put_back(taken);
        assert!(verdicts.end_runs());
    }

    #[test]
    fn a_call_carries_no_more_than_the_store_takes() {
        let verdicts = Verdicts::default();
        let mut batch = Batch::default();
        for id in 0..=i64::try_from(SETTLE_MAX).unwrap() {
            batch.push(held(id), Verdict::Ack, None);
        }
        assert!(verdicts.push_all(batch));
        assert_eq!(verdicts.take().len(), SETTLE_MAX);
        assert_eq!(verdicts.take().len(), 1);
    }
}
