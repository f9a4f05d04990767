//! Messages that expire while they wait in memory are not begun. Only the database's clock decides: what it shows now is told
//! from its last reading, and a message that seems to have expired is given back for the store to judge.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use pillarbox_core::StoreError;
use pillarbox_core::clock::Reading;
use pillarbox_core::message::When;
use tokio::time::timeout;

use crate::clock::Tick;
use crate::dispatcher::Engine;
use crate::flight::Flight;

/// How old a reading may be when a message begins that expires: so long a clock that was set, or a machine that slept, goes
/// unnoticed.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// How long such a message waits for the reading; then what is known counts.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How long a message waits that seems to have expired: a claim brings it again if it has not, a reap buries it if it has.
pub(crate) const EXPIRED_DELAY: Duration = Duration::from_secs(1);

/// What is known of the database's clock.
#[derive(Debug, Default)]
pub(crate) struct DatabaseClock {
    known: Mutex<Known>,
    /// Of many workers one asks.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    /// From when on it is too old; at once when nobody has asked.
    stale_at: Tick,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, Default)]
enum Answer {
    /// Nobody has asked, or there was no answer.
    #[default]
    None,
    /// The clock does not go by itself: nothing expires here between a claim and the beginning of a handler.
    Stands,
    Read(Reading),
}

impl DatabaseClock {
    fn is_stale(&self, now: Tick) -> bool {
        self.known().stale_at <= now
    }

    fn answered(&self, now: Tick, answer: Answer) {
        *self.known() = Known { stale_at: now.after(READ_WITHIN), answer };
    }

    /// What was known before stays. Messages that were given back for want of an answer come when it is time to ask again.
    fn failed(&self, now: Tick) {
        self.known().stale_at = now.after(EXPIRED_DELAY);
    }

    /// Whether an instant has passed, as far as can be told: what cannot be told is left to the store.
    fn has_passed(&self, at: SystemTime, now: Tick) -> bool {
        match self.known().answer {
            Answer::None => true,
            Answer::Stands => false,
            Answer::Read(reading) => at <= reading.latest(now.since(Tick::from_zero())),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Reads the database's clock if one of these expires, and what is known of the clock is too old for it to begin.
    pub(crate) async fn know_time(&self, flights: &[Arc<Flight>]) {
        let names_instant = |flight: &Arc<Flight>| matches!(flight.cx.message().expires(), Some(When::At(_)));
        let now = self.clock.now();
        if !flights.iter().any(names_instant) || !self.database_clock.is_stale(now) {
            return;
        }
        let read = async {
            let _alone = self.database_clock.asking.lock().await;
            // Somebody else may have asked meanwhile.
            if self.database_clock.is_stale(now) {
                let mut turn = self.turn();
                self.take_turn(&mut turn).await;
                if turn.call(self.read_clock()).await.is_err() {
                    self.database_clock.failed(self.clock.now());
                }
            }
        };
        if timeout(ANSWER_WITHIN, read).await.is_err() {
            self.database_clock.failed(self.clock.now());
        }
    }

    /// Reads the database's clock, and remembers what it showed. None where it does not go by itself.
    pub(crate) async fn read_clock(&self) -> Result<Option<Reading>, StoreError> {
        let asked = self.clock.now().since(Tick::from_zero());
        let shown = self.store.clock().await?;
        let now = self.clock.now();
        let reading = shown.map(|shown| Reading { shown, asked, answered: now.since(Tick::from_zero()) });
        self.database_clock.answered(now, reading.map_or(Answer::Stands, Answer::Read));
        Ok(reading)
    }

    /// Whether a message must not begin any more. Too early is possible, by what a call to the store takes; too late is not.
    pub(crate) fn has_expired(&self, flight: &Flight, now: Tick) -> bool {
        match flight.cx.message().expires() {
            None => false,
            // Stored here a moment ago: the store counts from a later moment than we do.
            Some(When::After(_)) => flight.expires_at <= now,
            Some(When::At(at)) => self.database_clock.has_passed(at, now),
        }
    }
}
