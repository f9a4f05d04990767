//! The connections that wait for their clients, in the order in which they began to.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::AbortHandle;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(u64);

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    line: Mutex<Line>,
    /// Told each time that one joins.
    joined: Notify,
}

/// What has become of the first in the line.
#[derive(Debug, PartialEq, Eq)]
enum Longest {
    Closed,
    Due(Instant),
    Nobody,
}

#[derive(Debug, Default)]
struct Line {
    next: u64,
    turns: BTreeMap<Turn, (Instant, AbortHandle)>,
}

impl Waiting {
    /// At the end of the line.
    pub(crate) fn join(&self, now: Instant, connection: AbortHandle) -> Turn {
        let mut line = self.line();
        let turn = Turn(line.next);
        line.next += 1;
        line.turns.insert(turn, (now, connection));
        self.joined.notify_one();
        turn
    }

    pub(crate) fn leave(&self, turn: Turn) {
        self.line().turns.remove(&turn);
    }

    /// Closes the connection that has waited longest, as soon as that is long enough.
    pub(crate) async fn close_longest(&self, grace: Duration) {
        loop {
            match self.try_close_longest(Instant::now(), grace) {
                Longest::Closed => return,
                Longest::Due(at) => tokio::time::sleep_until(at).await,
                // One that has joined and left again was told of too: then there is nobody once more.
                Longest::Nobody => self.joined.notified().await,
            }
        }
    }

    fn try_close_longest(&self, now: Instant, grace: Duration) -> Longest {
        let mut line = self.line();
        let Some(longest) = line.turns.first_entry() else { return Longest::Nobody };
        let due = longest.get().0 + grace;
        if now < due {
            return Longest::Due(due);
        }
        longest.remove().1.abort();
        Longest::Closed
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H59.
    #[test]
    fn the_longest_waiting_is_closed_first_and_not_at_once() {
        let (waiting, start, grace) = (Waiting::default(), Instant::now(), Duration::from_secs(5));
        let at = |seconds| start + Duration::from_secs(seconds);
        let connections: Vec<_> = (0..3).map(|_| AbortHandle::new_pair().0).collect();
        let join = |number: usize, seconds| waiting.join(at(seconds), connections[number].clone());
        let turns: Vec<_> = (0..3).map(|number| join(number, 0)).collect();
        // The first has begun a new wait, the second waits no more.
        waiting.leave(turns[0]);
        join(0, 1);
        waiting.leave(turns[1]);
        let closed = || connections.iter().map(AbortHandle::is_aborted).collect::<Vec<_>>();
        assert_eq!(waiting.try_close_longest(at(4), grace), Longest::Due(at(5)));
        assert_eq!(closed(), [false; 3]);
        assert_eq!(waiting.try_close_longest(at(5), grace), Longest::Closed);
        assert_eq!(closed(), [false, false, true]);
        assert_eq!(waiting.try_close_longest(at(5), grace), Longest::Due(at(6)));
        assert_eq!(waiting.try_close_longest(at(9), grace), Longest::Closed);
        assert_eq!(closed(), [true, false, true]);
        assert_eq!(waiting.try_close_longest(at(9), grace), Longest::Nobody);
    }
}
