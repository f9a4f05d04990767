//! The inbox machine: where a received message stands, and what another delivery of it does.
//!
//! ```text
//! already_processed       receive                    ack, register, mark_processed
//! ──────────────────▶ seen ──────▶ processing ──────────────────────────────▶ done ──(purge)──▶ gone
//!                                   ▲    │
//!                                   │    └─ fail, mark_dead ─▶ dead
//!                                   └───── receive, replay ─────┘
//! ```

/// Where a received message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InboxState {
    /// It was asked about; nobody has taken it on.
    Seen,
    /// It waits in the queue, is being handled, or was marked so.
    Processing,
    /// It has taken effect; what comes again is a duplicate.
    Done,
    /// Given up; waits for an operator or another delivery.
    Dead,
}

impl InboxState {
    /// Every state, in the order of a message's life.
    pub const ALL: [Self; 4] = [Self::Seen, Self::Processing, Self::Done, Self::Dead];

    /// The word used in tables, metrics and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Seen => "seen",
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }

    /// The state for a word from a table.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// What the queue knows of a message that stands in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// It was never put into the queue.
    NotQueued,
    /// It can be claimed, now or when it is due; a lease that ran out does not hold it.
    Free,
    /// It is under a lease that runs.
    Leased,
    /// It was acknowledged.
    Done,
    /// It was given up.
    Dead,
    /// It was put into the queue, and its row is there no more: purged, or deleted by an operator.
    Gone,
}

impl Place {
    /// The place for the words that the backends' statements answer; no word means that there is no row.
    pub fn of(is_queued: bool, word: Option<&str>) -> Option<Self> {
        match (is_queued, word) {
            (false, _) => Some(Self::NotQueued),
            (true, None) => Some(Self::Gone),
            (true, Some("free")) => Some(Self::Free),
            (true, Some("leased")) => Some(Self::Leased),
            (true, Some("done")) => Some(Self::Done),
            (true, Some("dead")) => Some(Self::Dead),
            (true, Some(_)) => None,
        }
    }
}

/// A ledger's row and what the queue knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The ledger's own word.
    pub marked: InboxState,
    /// Where the queue has it.
    pub place: Place,
}

impl Standing {
    /// The standing for the words that the backends' statements answer; none when a word is not known.
    pub fn of_words(state: &str, is_queued: bool, place: Option<&str>) -> Option<Self> {
        Some(Self { marked: InboxState::from_word(state)?, place: Place::of(is_queued, place)? })
    }
}

/// Where a message stands, all told: done in the ledger is done; else the queue tells of what it was given.
pub fn state_of(standing: Standing) -> InboxState {
    match (standing.marked, standing.place) {
        (InboxState::Done, _) | (_, Place::Done | Place::Gone) => InboxState::Done,
        (_, Place::Free | Place::Leased) => InboxState::Processing,
        (_, Place::Dead) => InboxState::Dead,
        (marked, Place::NotQueued) => marked,
    }
}

/// What a delivery for the queue did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reception {
    /// It stands in the queue for the first time.
    Queued,
    /// It stood there, waiting or dead: topic, payload and due time are the new ones, and it starts anew.
    Replaced,
    /// It is being handled: the running attempt keeps its lease and ends as it would have; the next one, should there be one,
    /// gets the new topic, payload and due time.
    Revised,
    /// It has taken effect before: nothing was changed.
    Done,
}

impl Reception {
    /// Whether it takes or changes a row that the queue has.
    pub fn takes_row(self) -> bool {
        matches!(self, Self::Replaced | Self::Revised)
    }
}

/// Decides what a delivery for the queue does to a message that stands so; nothing means that it is unknown.
pub fn decide(before: Option<Standing>) -> Reception {
    let Some(standing) = before else { return Reception::Queued };
    match (state_of(standing), standing.place) {
        (InboxState::Done, _) => Reception::Done,
        (_, Place::Leased) => Reception::Revised,
        (_, Place::Free | Place::Dead) => Reception::Replaced,
        (_, Place::NotQueued | Place::Done | Place::Gone) => Reception::Queued,
    }
}

/// Whether a consumer may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Registered {
    /// Nobody has had it: go on, and commit.
    New,
    /// It has taken effect before: roll back, it is no error.
    Duplicate,
    /// The queue has it, waiting, running or dead, or another consumer holds a lease on it: roll back.
    InProgress,
}

impl Registered {
    /// What a registration found: whether it took the ledger's row, and how that stands now.
    pub fn of(is_taken: bool, now: Standing) -> Self {
        match state_of(now) {
            _ if is_taken => Self::New,
            InboxState::Done => Self::Duplicate,
            InboxState::Seen | InboxState::Processing | InboxState::Dead => Self::InProgress,
        }
    }
}

/// What a caller says of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Somebody works on it.
    Processing,
    /// It has taken effect.
    Processed,
    /// It is given up, for this reason.
    Dead(String),
}

/// What a mark does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marking {
    /// Nothing.
    Keep,
    /// The ledger's row gets this state.
    Set(InboxState),
    /// The ledger's row is done, and the queue's row goes.
    Finish,
    /// The queue's row is dead, with its payload.
    Bury,
}

/// Decides what a mark does to a message that stands so. What is done stays done.
pub fn decide_mark(before: Option<Standing>, mark: &Mark) -> Marking {
    let is_done = before.is_some_and(|standing| state_of(standing) == InboxState::Done);
    let is_queued = before.is_some_and(|standing| standing.place != Place::NotQueued);
    match mark {
        _ if is_done => Marking::Keep,
        Mark::Processing if is_queued => Marking::Keep,
        Mark::Processing => Marking::Set(InboxState::Processing),
        Mark::Processed if is_queued => Marking::Finish,
        Mark::Processed => Marking::Set(InboxState::Done),
        Mark::Dead(_) if is_queued => Marking::Bury,
        Mark::Dead(_) => Marking::Set(InboxState::Dead),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [Place; 6] = [Place::NotQueued, Place::Free, Place::Leased, Place::Done, Place::Dead, Place::Gone];

    fn standing(marked: InboxState, place: Place) -> Option<Standing> {
        Some(Standing { marked, place })
    }

    #[test]
    fn every_standing_has_its_state() {
        use InboxState::{Dead, Done, Processing, Seen};
        let table = [
            (Seen, [Seen, Processing, Processing, Done, Dead, Done]),
            (Processing, [Processing, Processing, Processing, Done, Dead, Done]),
            (Done, [Done; 6]),
            (Dead, [Dead, Processing, Processing, Done, Dead, Done]),
        ];
        for (marked, states) in table {
            for (place, state) in PLACES.into_iter().zip(states) {
                assert_eq!(state_of(Standing { marked, place }), state, "{marked:?}, {place:?}");
            }
        }
    }

    /// IBX-027, IBX-028, IBX-029.
    #[test]
    fn every_delivery_has_its_outcome() {
        use Reception::{Done, Queued, Replaced, Revised};
        assert_eq!(decide(None), Queued);
        for marked in InboxState::ALL {
            let outcomes = match marked {
                InboxState::Done => [Done; 6],
                _ => [Queued, Replaced, Revised, Done, Replaced, Done],
            };
            for (place, outcome) in PLACES.into_iter().zip(outcomes) {
                assert_eq!(decide(standing(marked, place)), outcome, "{marked:?}, {place:?}");
            }
        }
    }

    #[test]
    fn every_mark_has_its_effect_and_none_leaves_done() {
        use InboxState::{Dead, Done, Processing};
        use Marking::{Bury, Finish, Keep, Set};
        let dead = Mark::Dead("why".into());
        for (mark, alone, queued) in [
            (&Mark::Processing, Set(Processing), Keep),
            (&Mark::Processed, Set(Done), Finish),
            (&dead, Set(Dead), Bury),
        ] {
            assert_eq!(decide_mark(None, mark), alone);
            for marked in InboxState::ALL {
                for place in PLACES {
                    let is_done = state_of(Standing { marked, place }) == Done;
                    let expected = match place {
                        _ if is_done => Keep,
                        Place::NotQueued => alone,
                        _ => queued,
                    };
                    assert_eq!(decide_mark(standing(marked, place), mark), expected, "{mark:?}, {marked:?}, {place:?}");
                }
            }
        }
    }

    #[test]
    fn a_consumer_goes_on_only_with_a_row_of_its_own() {
        for marked in InboxState::ALL {
            for place in PLACES {
                let now = Standing { marked, place };
                assert_eq!(Registered::of(true, now), Registered::New);
                let expected = match state_of(now) {
                    InboxState::Done => Registered::Duplicate,
                    _ => Registered::InProgress,
                };
                assert_eq!(Registered::of(false, now), expected, "{now:?}");
            }
        }
    }

    #[test]
    fn words_and_what_they_mean_are_one_to_one() {
        for state in InboxState::ALL {
            assert_eq!(InboxState::from_word(state.as_str()), Some(state));
        }
        assert_eq!(InboxState::from_word("pending"), None);
        assert_eq!(Place::of(false, Some("dead")), Some(Place::NotQueued));
        assert_eq!(Place::of(true, None), Some(Place::Gone));
        assert_eq!(Place::of(true, Some("elsewhere")), None);
        assert_eq!(Standing::of_words("seen", false, None), standing(InboxState::Seen, Place::NotQueued));
        assert_eq!(Standing::of_words("lost", false, None), None);
    }
}
