//! What a server knows of one connection, while its bytes, its request and its answer go by.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::AbortHandle;
use tokio::time::Instant;

use super::stage::{Patience, Stage};
use super::waiting::{Turn, Waiting};

#[derive(Debug)]
pub(crate) struct Guest {
    waiting: Arc<Waiting>,
    connection: AbortHandle,
    patience: Patience,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// There while the client is waited for.
    turn: Option<Turn>,
    has_left: bool,
}

impl Guest {
    /// A new connection waits for its first head.
    pub(crate) fn new(waiting: Arc<Waiting>, connection: AbortHandle, patience: Patience) -> Self {
        let now = Instant::now();
        let stage = Stage::accepted(now, &patience);
        let turn = Some(waiting.join(now, connection.clone()));
        Self { waiting, connection, patience, state: Mutex::new(State { stage, turn, has_left: false }) }
    }

    pub(crate) fn heard(&self) {
        self.pass(|stage, now| stage.heard(now, &self.patience));
    }

    pub(crate) fn told(&self) {
        self.pass(|stage, now| stage.told(now, &self.patience));
    }

    pub(crate) fn begun(&self) {
        self.pass(|stage, _| stage.begun());
    }

    pub(crate) fn whole(&self) {
        self.pass(|stage, now| stage.whole(now, &self.patience));
    }

    pub(crate) fn answered(&self) {
        self.pass(|stage, now| stage.answered(now, &self.patience));
    }

    /// A body may live on in some other task; it changes nothing any more.
    pub(crate) fn leave(&self) {
        let mut state = self.state();
        state.has_left = true;
        if let Some(turn) = state.turn.take() {
            self.waiting.leave(turn);
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        self.state().stage
    }

    fn pass(&self, to: impl FnOnce(Stage, Instant) -> Stage) {
        let mut state = self.state();
        let now = Instant::now();
        let stage = to(state.stage, now);
        let is_new_wait = stage.begins_wait_after(state.stage);
        state.stage = stage;
        if !state.has_left && (stage.is_ours() || is_new_wait) {
            if let Some(turn) = state.turn.take() {
                self.waiting.leave(turn);
            }
            state.turn = is_new_wait.then(|| self.waiting.join(now, self.connection.clone()));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
