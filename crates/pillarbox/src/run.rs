//! Runs: messages of one key that came with one claim, handled one after the other.
//!
//! Only the first of a run goes into the queue. Each one carries the next, which follows when it is through, or is given
//! back when the one before it was not done: the store hands it out again in its turn. So it is when the one before it hangs
//! or is lost to somebody else: whoever takes that one over needs the rest, and must not meet it running here.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::Message;
use pillarbox_core::order::goes_on;
use pillarbox_core::outbox::Verdict;

use crate::dispatcher::Engine;
use crate::flight::Flight;
use crate::queue::Path;
use crate::settler::Batch;

/// The keys of one claim whose later messages must go back, because an earlier one is not handled here.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    lanes: HashSet<String>,
}

impl Cut {
    /// Notes a message of the claim that is not handled here.
    pub(crate) fn note(&mut self, lane: Option<&str>) {
        self.lanes.extend(lane.map(str::to_owned));
    }

    /// Whether a message comes after such a one.
    pub(crate) fn is_behind(&self, lane: Option<&str>) -> bool {
        !self.lanes.is_empty() && lane.is_some_and(|lane| self.lanes.contains(lane))
    }
}

impl Engine {
    /// Messages of one lane are handled one at a time. None for a message that waits for no other.
    pub(crate) fn lane_of<'m>(&self, message: &'m Message) -> Option<&'m str> {
        if self.plan.config.order.in_sequence { Some("") } else { message.get_key() }
    }

    /// Makes runs of flights that stand in the order of their claim; answers the first one of each.
    pub(crate) fn linked(&self, flights: Vec<Arc<Flight>>) -> Vec<Arc<Flight>> {
        if flights.iter().all(|flight| self.lane_of(flight.cx.message()).is_none()) {
            return flights;
        }
        let mut last = HashMap::<String, Arc<Flight>>::new();
        let mut first = Vec::with_capacity(flights.len());
        for flight in flights {
            let Some(lane) = self.lane_of(flight.cx.message()).map(str::to_owned) else {
                first.push(flight);
                continue;
            };
            match last.insert(lane, Arc::clone(&flight)) {
                Some(before) => before.set_next(flight),
                None => first.push(flight),
            }
        }
        first
    }

    /// A message has its verdict: the next one of its run may begin, or goes back with all that follow. Whether its run
    /// ends here, so that the store can hand out what waits behind it.
    pub(crate) fn follow(&self, flight: &Flight, verdict: &Verdict) -> bool {
        let goes_on = goes_on(verdict, self.plan.config.order.after_dead) && !flight.is_cut();
        if !goes_on {
            self.give_back_after(flight);
            return false;
        }
        let Some(next) = flight.take_next() else {
            return self.lane_of(flight.cx.message()).is_some();
        };
        let refused = self.queue.push(Path::Cold, vec![(next.route, next)]);
        self.settle_all(self.refused(refused.into_iter().map(|(_, flight)| flight)));
        false
    }

    /// What would have followed a message goes back to the store, and the room that was kept for it to the queue.
    pub(crate) fn give_back_after(&self, flight: &Flight) {
        let batch = given_back(flight.take_next());
        if !batch.is_empty() {
            self.give_back(Path::Cold, batch.len());
            self.settle_all(batch);
        }
    }

    /// What the queue did not take, because it is closed: given back, and counted.
    pub(crate) fn refused(&self, flights: impl IntoIterator<Item = Arc<Flight>>) -> Batch {
        let batch = given_back(flights);
        (0..batch.len()).for_each(|_| self.counters.refused());
        batch
    }
}

/// Verdicts that give flights back at once, and all that would have followed them.
pub(crate) fn given_back(flights: impl IntoIterator<Item = Arc<Flight>>) -> Batch {
    let mut batch = Batch::default();
    for flight in flights {
        let mut next = Some(flight);
        while let Some(flight) = next {
            next = flight.take_next();
            flight.ended();
            batch.push(flight.held, Verdict::Release { delay: Duration::ZERO }, Some(flight));
        }
    }
    batch
}
