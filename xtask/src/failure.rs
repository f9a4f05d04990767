//! Why a task ended early, and the exit code that says so.

use std::fmt;

pub(crate) type Outcome<T> = Result<T, Failure>;

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::with_code(1, message)
    }

    pub(crate) fn with_code(code: u8, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { message, code }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Gives a bare error the words that tell what was being done.
pub(crate) trait Context<T> {
    fn context(self, doing: impl fmt::Display) -> Outcome<T>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, doing: impl fmt::Display) -> Outcome<T> {
        self.map_err(|error| Failure::new(format!("{doing}: {error}")))
    }
}
