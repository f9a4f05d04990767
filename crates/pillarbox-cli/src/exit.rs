//! How a command ends.

use std::process::ExitCode;

/// What the exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    Fine = 0,
    Failed = 1,
    WrongUse = 2,
    Warning = 3,
    Critical = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command could not do what it was asked: one line for standard error, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) words: String,
}

impl Failure {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, words: words.into() }
    }

    pub(crate) fn wrong_use(words: impl Into<String>) -> Self {
        Self { exit: Exit::WrongUse, words: words.into() }
    }
}
