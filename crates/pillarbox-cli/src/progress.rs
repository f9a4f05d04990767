//! A bar that grows on a terminal. Anywhere else nothing is shown: nobody watches a log file grow.

use std::io::{self, IsTerminal, Write};

use crate::output::grouped;

const WIDTH: u64 = 30;

pub(crate) struct Progress {
    participle: &'static str,
    total: u64,
    is_shown: bool,
}

impl Progress {
    /// Silent when standard error is no terminal, or when it is told to be.
    pub(crate) fn on_stderr(participle: &'static str, total: u64, is_silent: bool) -> Self {
        Self { participle, total, is_shown: io::stderr().is_terminal() && !is_silent }
    }

    pub(crate) fn show(&mut self, done: u64) {
        if self.is_shown {
            // A bar that cannot be drawn is no reason to stop.
            let mut stderr = io::stderr().lock();
            let _ = write!(stderr, "\r\x1b[K{}", line(self.participle, done, self.total)).and_then(|()| stderr.flush());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn line(participle: &str, done: u64, total: u64) -> String {
    let done = done.min(total);
    let share = |of: u64| {
        if total == 0 { of } else { u64::try_from(u128::from(done) * u128::from(of) / u128::from(total)).unwrap_or(of) }
    };
    let filled = share(WIDTH);
    let bar: String = (0..WIDTH).map(|at| if at < filled { '█' } else { '░' }).collect();
    format!("{bar} {:>3} %   {participle} {} of {}", share(100), grouped(done), grouped(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_share() {
        let empty = "░".repeat(30);
        assert_eq!(line("replayed", 0, 40_000), format!("{empty}   0 %   replayed 0 of 40,000"));
        let half = "█".repeat(15) + &"░".repeat(15);
        assert_eq!(line("replayed", 20_000, 40_000), format!("{half}  50 %   replayed 20,000 of 40,000"));
        assert!(line("replayed", 1, 0).ends_with("100 %   replayed 0 of 0"));
        assert!(line("replayed", u64::MAX, u64::MAX).contains("100 %"));
    }
}
