//! How far something is: one line that renews itself on a terminal, a few lines anywhere else.

use std::io::{self, IsTerminal as _};

use crate::exit::Failure;
use crate::output::say;

const BAR_WIDTH: u64 = 24;
/// Lines where nothing can be written over.
const LINE_COUNT: u64 = 4;

pub(super) struct Progress {
    total: u64,
    /// Lines written so far.
    shown: u64,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new(total: u64) -> Self {
        Self { total: total.max(1), shown: 0, is_terminal: io::stdout().is_terminal() }
    }

    /// Shows how many of the total there are, and what else there is to say.
    pub(super) fn show(&mut self, count: u64, words: &str) -> Result<(), Failure> {
        match self.line(count, words) {
            Some(line) => say(&line),
            None => Ok(()),
        }
    }

    /// Makes room for what comes after it.
    pub(super) fn clear(&self) -> Result<(), Failure> {
        if self.is_terminal { say("\r\x1b[2K") } else { Ok(()) }
    }

    fn line(&mut self, count: u64, words: &str) -> Option<String> {
        let count = count.min(self.total);
        if self.is_terminal {
            let filled = usize::try_from(count * BAR_WIDTH / self.total).unwrap_or(0);
            let empty = usize::try_from(BAR_WIDTH).unwrap_or(0).saturating_sub(filled);
            return Some(format!("\r\x1b[2K   {}{} {words}", "█".repeat(filled), "░".repeat(empty)));
        }
        let due = count * LINE_COUNT / self.total;
        if due <= self.shown {
            return None;
        }
        self.shown = due;
        Some(format!("   {:>3} %  {words}\n", count * 100 / self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_gets_four_lines() {
        let mut progress = Progress { total: 100, shown: 0, is_terminal: false };
        let lines: Vec<String> = (0..=100).filter_map(|count| progress.line(count, "words")).collect();
        assert_eq!(lines, ["    25 %  words\n", "    50 %  words\n", "    75 %  words\n", "   100 %  words\n"]);
    }

    #[test]
    fn a_terminal_gets_one_line_again_and_again() {
        let mut progress = Progress { total: 2, shown: 0, is_terminal: true };
        let lines: Vec<String> = (0..=2).filter_map(|count| progress.line(count, "words")).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.starts_with("\r\x1b[2K") && !line.contains('\n')), "{lines:?}");
        assert_eq!(lines[1].matches('█').count(), 12);
    }
}
