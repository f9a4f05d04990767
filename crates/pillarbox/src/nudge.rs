//! Waking other processes: from outside the user's transaction, at most once in a few milliseconds, and never forgotten.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pillarbox_core::OutboxStore;
use tokio::runtime::Handle;

use crate::telemetry::TARGET;

/// The least time between two wake-ups of one process.
const APART: Duration = Duration::from_millis(5);

/// Whether a wake-up is on its way, and whether another one must follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Debounce {
    /// None is on its way.
    #[default]
    Idle,
    /// One is on its way.
    Sending,
    /// One is on its way, and messages were written since it left.
    SendingAgain,
}

impl Debounce {
    /// Messages were written. Whether the caller must begin to send.
    fn ask(&mut self) -> bool {
        let begins = *self == Self::Idle;
        *self = if begins { Self::Sending } else { Self::SendingAgain };
        begins
    }

    /// A wake-up was sent. Whether another one must follow.
    fn sent(&mut self) -> bool {
        let follows = *self == Self::SendingAgain;
        *self = if follows { Self::Sending } else { Self::Idle };
        follows
    }
}

/// Wakes other processes.
#[derive(Debug)]
pub(crate) struct Others {
    store: Arc<dyn OutboxStore>,
    state: Mutex<Debounce>,
    /// The async runtime in which the outbox was made, for callers outside of any.
    home: Option<Handle>,
}

impl Others {
    pub(crate) fn new(store: Arc<dyn OutboxStore>) -> Arc<Self> {
        Arc::new(Self { store, state: Mutex::default(), home: Handle::try_current().ok() })
    }

    /// Returns at once; the wake-up is sent from a task. Outside of every async runtime nothing can be sent: whoever
    /// misses a wake-up polls.
    pub(crate) fn wake(self: &Arc<Self>) {
        let Some(handle) = Handle::try_current().ok().or_else(|| self.home.clone()) else { return };
        if self.with(Debounce::ask) {
            handle.spawn(Sending { others: Arc::clone(self), is_through: false }.run());
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Debounce) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The task that sends. When it is dropped half-way, the next caller begins another one.
struct Sending {
    others: Arc<Others>,
    is_through: bool,
}

impl Sending {
    async fn run(mut self) {
        loop {
            if let Err(error) = self.others.store.wake_others().await {
                let store = self.others.store.id().as_str();
                tracing::debug!(target: TARGET, %error, store, "a wake-up was not sent; others will poll");
            }
            tokio::time::sleep(APART).await;
            if !self.others.with(Debounce::sent) {
                self.is_through = true;
                return;
            }
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.is_through {
            self.others.with(|state| *state = Debounce::Idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BUS-05, H5: many are one, and the last is never forgotten.
    #[test]
    fn many_wake_ups_are_one_and_the_last_is_never_forgotten() {
        let mut state = Debounce::default();
        assert!(state.ask());
        assert!(!state.ask() && !state.ask());
        assert!(state.sent(), "asked again after it left");
        assert!(!state.sent());
        assert_eq!(state, Debounce::Idle);
        assert!(state.ask());
    }
}
