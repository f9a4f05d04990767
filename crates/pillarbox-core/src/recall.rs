//! What a broker still has of what it took: a broker that confirmed a message may lose it all the same.

use std::collections::HashSet;
use std::time::SystemTime;

use crate::id::MessageId;

/// A look through what lies at one destination.
#[derive(Clone, Copy, Debug)]
pub struct Recall<'a> {
    /// Where the messages went.
    pub destination: &'a str,
    /// The messages that are looked for.
    pub wanted: &'a HashSet<MessageId>,
    /// They came at this moment of the broker's clock at the earliest.
    pub from: SystemTime,
    /// And at this one at the latest.
    pub until: SystemTime,
}

impl Recall<'_> {
    /// The message that is meant by an id as it was sent, if it is one that is looked for.
    pub fn wanted(&self, id: &str) -> Option<MessageId> {
        let id = id.parse().ok().and_then(|uuid| MessageId::from_uuid(uuid).ok());
        id.filter(|id| self.wanted.contains(id))
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recalled {
    /// The broker was looked through.
    Found {
        /// Those of the wanted messages that it has.
        ids: HashSet<MessageId>,
        /// It was told to drop what is old, and may have dropped what came before this moment. None where it has to have
        /// everything.
        since: Option<SystemTime>,
    },
    /// What the broker took cannot be looked through, for this reason.
    Unreadable {
        /// In words.
        why: String,
    },
}

impl Recalled {
    /// Not to be looked through.
    pub fn unreadable(why: impl Into<String>) -> Self {
        Self::Unreadable { why: why.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_looked_for_is_found() {
        let (one, other) = (MessageId::new(), MessageId::new());
        let wanted = HashSet::from([one]);
        let now = SystemTime::UNIX_EPOCH;
        let recall = Recall { destination: "d", wanted: &wanted, from: now, until: now };
        assert_eq!(recall.wanted(&one.to_string()), Some(one));
        assert_eq!([recall.wanted(&other.to_string()), recall.wanted("x"), recall.wanted("")], [None; 3]);
    }
}
