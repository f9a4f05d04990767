//! Order: messages of one key are handled one at a time, in the order of the database's sequence.
//!
//! The rule is kept by every claim, whoever makes it, and by nothing else. A message with a key is handed out when no other
//! message of its key stands in its way: none that is under a running lease, and none before it in the sequence that waits,
//! unless that one is handed out by the same claim. So a claim brings *runs*: messages of one key in a row, to be handled
//! one after the other by whoever claimed them. A message without a key stands in nobody's way.
//!
//! What stands in the way of later messages of its key: one that could be claimed, one under a lease that ran out, one that
//! waits for its next attempt, and, as [`AfterDead`] says, a dead one. One that waits for the due time it was enqueued with
//! does not: it takes its place when its time has come.
//!
//! Two transactions that overlap have no order of their own: the sequence numbers both, and their commits may come the other
//! way round. The one that is visible first goes first; the other one waits until that is through. For that a claim looks at
//! later messages of the key as well, as far as any was ever claimed (on MySQL at a few). Messages that came back, being replayed or given back,
//! may stand before one that is held, too, and wait for it likewise.

use crate::outbox::Verdict;

/// What becomes of the later messages of a key when one of them is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AfterDead {
    /// They wait until it is replayed or deleted.
    #[default]
    Block,
    /// They go on without it.
    Skip,
    /// They become dead themselves, with [`REASON_PARKED`], at the first reap that finds them due; replayed together they keep
    /// their order.
    Park,
}

impl AfterDead {
    /// Whether a dead message stands in the way of the later ones of its key.
    pub fn holds_back(self) -> bool {
        self != Self::Skip
    }
}

/// The reason of a message that became dead because an earlier one of its key is.
pub const REASON_PARKED: &str = "parked: an earlier message of its key is dead";

/// In which order a claim hands messages out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Order {
    /// What a dead message does to the later ones of its key.
    pub after_dead: AfterDead,
    /// All messages as if they had one key: one claim at a time, of whichever process, in the order of the sequence.
    pub in_sequence: bool,
}

/// Whether the next message of a run may be handled after this verdict on the one before it; otherwise it is given back.
pub fn goes_on(verdict: &Verdict, after_dead: AfterDead) -> bool {
    match verdict {
        Verdict::Ack => true,
        Verdict::Fail { .. } => !after_dead.holds_back(),
        Verdict::Abandon { .. } | Verdict::Release { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_run_goes_on_when_nothing_of_it_is_left_behind() {
        let (delay, reason) = (Duration::ZERO, String::new());
        let abandon = Verdict::Abandon { delay, reason: reason.clone() };
        let fail = Verdict::Fail { reason };
        let table = [
            (Verdict::Ack, [true, true, true]),
            (fail, [false, true, false]),
            (abandon, [false; 3]),
            (Verdict::Release { delay }, [false; 3]),
        ];
        for (verdict, expected) in table {
            let answers = [AfterDead::Block, AfterDead::Skip, AfterDead::Park].map(|after| goes_on(&verdict, after));
            assert_eq!(answers, expected, "{verdict:?}");
        }
    }
}
