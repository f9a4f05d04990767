//! Messages whose life has ended, to be counted, grouped and sent on their way again.

use std::time::SystemTime;

use super::Filter;
use crate::id::WorkId;
use crate::outbox::State;
use crate::problem::Invalid;

/// Where the life of a message ended. From here it goes on only when an operator says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was delivered, and is kept whole. Of a receipt nothing is left that could be delivered again.
    Done,
    /// It was given up.
    Dead,
}

impl Ended {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Done, Self::Dead];

    /// The state of such messages.
    pub fn state(self) -> State {
        match self {
            Self::Done => State::Done,
            Self::Dead => State::Dead,
        }
    }
}

/// Messages that are to be delivered again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Those that ended so.
    pub ended: Ended,
    /// Only these.
    pub filter: Filter,
    /// Where the last call ended. Without it, what has ended anew since then would come first again.
    pub after: Option<WorkId>,
    /// Messages at the most.
    pub limit: u32,
}

impl Replay {
    /// Dead messages, from the lowest on.
    pub fn dead(filter: Filter, limit: u32) -> Self {
        Self { ended: Ended::Dead, filter, after: None, limit }
    }

    /// Delivered messages, from the lowest on.
    pub fn done(filter: Filter, limit: u32) -> Self {
        Self { ended: Ended::Done, filter, after: None, limit }
    }

    /// Begins after this row.
    pub fn after(self, after: WorkId) -> Self {
        Self { after: Some(after), ..self }
    }

    /// Checks filter and limit.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.filter.validate(self.limit)
    }
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Messages that are pending again.
    pub count: u64,
    /// The highest row that the call looked at; none when there was nothing to take.
    pub last: Option<WorkId>,
}

/// How many messages match, and since when the first and the last of them have ended. Receipts are counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// When the first one ended.
    pub oldest: Option<SystemTime>,
    /// When the last one ended.
    pub newest: Option<SystemTime>,
    /// Receipts that match: delivered messages of which nothing is left to be replayed.
    pub receipt_count: u64,
}

/// What dead messages have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// The topic.
    Topic,
    /// The topic and the last error.
    Error,
}

/// Dead messages that have something in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their topic.
    pub topic: String,
    /// Their last error, where it was asked for and there is one.
    pub error: Option<String>,
    /// How many.
    pub count: u64,
}
