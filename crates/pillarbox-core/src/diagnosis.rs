//! What is right and wrong around a store: settings of its database, its rights, its connection. Backends bring facts, and
//! what several of them share is judged here.

use std::time::{Duration, SystemTime};

use crate::transport::Undelivered;

/// Beyond this difference between two clocks something is wrong with one of them.
pub const SKEW_MAX: Duration = Duration::from_secs(2);

/// Open for longer than this, a transaction keeps a database from clearing up.
pub const TRANSACTION_MAX: Duration = Duration::from_secs(600);

/// What to think of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It could not be looked at, or does not exist here.
    Unknown,
    /// As it should be.
    Fine,
    /// Something will be slower or weaker than it could be.
    Warning,
    /// Messages may be lost, or nothing works at all.
    Critical,
}

impl Health {
    /// One word for machines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Fine => "fine",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, in one or two words.
    pub check: &'static str,
    /// What to think of it.
    pub health: Health,
    /// What was found.
    pub what: String,
    /// What to do about it.
    pub fix: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn fine(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, health: Health::Fine, what: what.into(), fix: None }
    }

    /// Could not be looked at, or does not exist here.
    pub fn unknown(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, health: Health::Unknown, what: what.into(), fix: None }
    }

    /// Weaker than it could be.
    pub fn warning(check: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, health: Health::Warning, what: what.into(), fix: Some(fix.into()) }
    }

    /// Messages may be lost.
    pub fn critical(check: &'static str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { health: Health::Critical, ..Self::warning(check, what, fix) }
    }

    /// How far the database's clock is from this machine's, which was read before and after.
    pub fn clock(before: SystemTime, database: SystemTime, after: SystemTime) -> Self {
        let apart = |one: SystemTime, other: SystemTime| one.duration_since(other).unwrap_or_default();
        let skew = apart(before, database).max(apart(database, after));
        let what = format!("{} ms apart from this machine's", skew.as_millis());
        if skew <= SKEW_MAX {
            return Self::fine("clock", what);
        }
        Self::warning(
            "clock",
            what,
            "set both clocks by NTP; only times that a program names itself are off by that much",
        )
    }

    /// Whether a broker talks to us.
    pub fn broker(probed: &Result<(), Undelivered>) -> Self {
        match probed {
            Ok(()) => Self::fine("broker", "answers"),
            Err(away) => Self::critical(
                "broker",
                away.to_string(),
                "start it, or correct the address, the user and the password; until then its messages wait",
            ),
        }
    }

    /// Connections in use, of as many as the server takes.
    pub fn connections(used: Option<u64>, max: Option<u64>) -> Self {
        let (Some(used), Some(max)) = (used, max) else { return Self::unknown("connections", "cannot be counted") };
        let what = format!("{used} of {max} in use");
        if used.saturating_mul(5) <= max.saturating_mul(4) {
            return Self::fine("connections", what);
        }
        Self::warning(
            "connections",
            what,
            "make the pools of the programs smaller, or raise the server's max_connections",
        )
    }

    /// Rights that the user lacks, in the words of a GRANT.
    pub fn privileges(missing: &[String]) -> Self {
        if missing.is_empty() {
            return Self::fine("privileges", "the user has every right that the tables need");
        }
        let what = format!("the user lacks {}", missing.join(", "));
        Self::critical("privileges", what, "grant these to the user of the address, as an owner of the tables")
    }

    /// Whether others can read along.
    pub fn encryption(is_encrypted: Option<bool>, host: &str, fix: &str) -> Self {
        let is_local = host.starts_with('/') || matches!(host, "localhost" | "127.0.0.1" | "::1" | "[::1]");
        match is_encrypted {
            None => Self::unknown("encryption", "the server does not say"),
            Some(true) => Self::fine("encryption", "the connection is encrypted"),
            Some(false) if is_local => {
                Self::fine("encryption", "none, and none is needed: the server is on this machine")
            }
            Some(false) => Self::warning("encryption", "the connection is readable on its way", fix),
        }
    }

    /// Whether the server can be written to.
    pub fn primary(is_read_only: bool) -> Self {
        if !is_read_only {
            return Self::fine("primary", "the server takes writes");
        }
        let what = "the server is read-only: a replica, or set to be so";
        Self::critical("primary", what, "connect to the primary: on this server nothing can be claimed or settled")
    }

    /// The transaction that has been open for longest.
    pub fn longest_transaction(open_for: Option<Duration>) -> Self {
        let Some(open_for) = open_for.filter(|open_for| *open_for > TRANSACTION_MAX) else {
            return Self::fine("transactions", "none is open for long");
        };
        let what = format!(
            "one has been open for {} min: no row that was done since then can be cleared",
            open_for.as_secs() / 60
        );
        Self::warning(
            "transactions",
            what,
            "end it, or set a limit for idle transactions; claims get slower until then",
        )
    }
}

/// What a database says of itself, by name. A name may have several values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(Vec<(String, String)>);

impl Facts {
    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All values of a name.
    pub fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone()).collect()
    }

    /// A value that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// A value that says yes or no; none where it says neither.
    pub fn is_on(&self, name: &str) -> Option<bool> {
        match self.get(name)?.to_ascii_lowercase().as_str() {
            "on" | "true" | "t" | "1" | "yes" => Some(true),
            "off" | "false" | "f" | "0" | "no" => Some(false),
            _ => None,
        }
    }
}

impl FromIterator<(String, String)> for Facts {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(facts: I) -> Self {
        Self(facts.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_differ_by_as_much_as_the_question_took() {
        let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        let table = [
            (100, 150, 200, "0 ms"),
            (100, 50, 200, "50 ms"),
            (100, 2_200, 200, "2000 ms"),
            (100, 2_201, 200, "2001 ms"),
        ];
        for (before, database, after, words) in table {
            let finding = Finding::clock(at(before), at(database), at(after));
            assert!(finding.what.starts_with(words), "{finding:?}");
            assert_eq!(finding.health == Health::Warning, database == 2_201, "{finding:?}");
        }
    }

    #[test]
    fn every_finding_that_is_not_fine_says_what_to_do() {
        let bad = [
            Finding::broker(&Err(Undelivered::unavailable("connection refused"))),
            Finding::connections(Some(81), Some(100)),
            Finding::privileges(&["UPDATE ON outbox".into()]),
            Finding::encryption(Some(false), "db.example", "ask for TLS"),
            Finding::primary(true),
            Finding::longest_transaction(Some(Duration::from_secs(601))),
        ];
        for finding in bad {
            assert!(finding.health >= Health::Warning && finding.fix.is_some(), "{finding:?}");
        }
        let good = [
            Finding::broker(&Ok(())),
            Finding::connections(Some(80), Some(100)),
            Finding::privileges(&[]),
            Finding::encryption(Some(false), "127.0.0.1", ""),
            Finding::encryption(Some(true), "db.example", ""),
            Finding::primary(false),
            Finding::longest_transaction(None),
        ];
        for finding in good {
            assert_eq!((finding.health, &finding.fix), (Health::Fine, &None), "{finding:?}");
        }
        assert_eq!(Finding::connections(None, Some(100)).health, Health::Unknown);
    }

    #[test]
    fn facts_are_read_by_name() {
        let facts: Facts = [("a", "1"), ("b", "off"), ("a", "2")]
            .map(|(name, value)| (name.into(), value.into()))
            .into_iter()
            .collect();
        assert_eq!((facts.number("a"), facts.all("a").len()), (Some(1), 2));
        assert_eq!((facts.is_on("b"), facts.is_on("c"), facts.number("b")), (Some(false), None, None));
    }
}
