//! The seam for deploying and checking tables.

use std::fmt;

use async_trait::async_trait;

use crate::error::StoreError;

/// What a store does about its tables when it connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchemaPolicy {
    /// Creates or upgrades them; safe when many instances start at once.
    #[default]
    Deploy,
    /// Creates nothing; refuses to start when they are missing, too old or too new.
    Check,
    /// Creates nothing and looks at nothing.
    Assume,
}

/// What to do about tables that are not there.
pub const DEPLOY_ADVICE: &str = "run `pillarbox migrate` (with --inbox for those of an inbox, --instances for that of the instances, \
     --pauses for that of paused routes, \
     --progress for those of the work coordinator), \
     or connect with SchemaPolicy::Deploy";

/// One numbered step of the schema. A step is never changed once it has been released.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// 1, 2, 3, … without gaps; the same in every backend.
    pub number: u32,
    /// What it does; the same in every backend.
    pub name: &'static str,
    /// The statements, with the default names of schema and tables.
    pub sql: &'static str,
}

/// Steps that are deployed and recorded together: the tables of a queue, or what stands beside them: an inbox's ledger, the
/// list of instances, the progress of receptors and perspectives.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// What its record adds to the name of the queue's table.
    pub suffix: &'static str,
    /// Its steps, in order; numbers are given once over all parts.
    pub steps: &'static [Migration],
}

impl Part {
    /// The version that this program needs: the number of the last step.
    pub const fn version(&self) -> u32 {
        self.steps[self.steps.len() - 1].number
    }

    /// The steps that a database lacks which has come so far.
    pub fn missing(&self, found: Option<u32>) -> impl Iterator<Item = &'static Migration> {
        self.steps.iter().filter(move |step| step.number > found.unwrap_or(0))
    }
}

/// Deploys, prints and checks the tables of a store.
#[async_trait]
pub trait SchemaAdmin: Send + Sync {
    /// Applies what is missing, in order, each step once, however many instances call at once. Answers the version.
    ///
    /// A schema that is newer than this program is refused and not touched.
    async fn deploy_schema(&self) -> Result<u32, StoreError>;

    /// Compares the tables with what this program needs; changes nothing.
    async fn check_schema(&self) -> Result<SchemaStatus, StoreError>;

    /// What is done about the tables when a store is opened: as the policy says.
    async fn apply_policy(&self, policy: SchemaPolicy) -> Result<(), StoreError> {
        match policy {
            SchemaPolicy::Deploy => self.deploy_schema().await.map(drop),
            SchemaPolicy::Check => self.check_schema().await?.require_current(),
            SchemaPolicy::Assume => Ok(()),
        }
    }

    /// Everything that a deployment would run on an empty database, to be read and run by a DBA.
    fn schema_script(&self) -> String;
}

/// How the tables compare with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaStatus {
    /// There are none.
    Missing,
    /// The tables are older.
    Behind {
        /// Version of the tables.
        found: u32,
        /// Version this program needs.
        expected: u32,
    },
    /// They fit.
    Current(u32),
    /// The tables are newer.
    Ahead {
        /// Version of the tables.
        found: u32,
        /// Version this program needs.
        expected: u32,
    },
}

impl SchemaStatus {
    /// Compares the version found with the one expected.
    pub fn of(found: Option<u32>, expected: u32) -> Self {
        match found {
            None | Some(0) => Self::Missing,
            Some(found) if found < expected => Self::Behind { found, expected },
            Some(found) if found > expected => Self::Ahead { found, expected },
            Some(found) => Self::Current(found),
        }
    }

    /// `Ok` when a store can work with the tables; else an error that says what to do.
    pub fn require_current(self) -> Result<(), StoreError> {
        match self {
            Self::Current(_) => Ok(()),
            other => Err(StoreError::rejected(other.to_string())),
        }
    }
}

impl fmt::Display for SchemaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "the tables do not exist: {DEPLOY_ADVICE}"),
            Self::Behind { found, expected } => write!(
                f,
                "the tables have version {found}, this program needs {expected}: \
                 run `pillarbox migrate`, or connect with SchemaPolicy::Deploy"
            ),
            Self::Current(version) => write!(f, "the tables have version {version}, as expected"),
            Self::Ahead { found, expected } => {
                write!(f, "the tables have version {found}, this program knows only {expected}: upgrade the program")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_says_what_to_do() {
        let table = [
            (None, SchemaStatus::Missing, "pillarbox migrate"),
            (Some(0), SchemaStatus::Missing, "pillarbox migrate"),
            (Some(1), SchemaStatus::Behind { found: 1, expected: 2 }, "pillarbox migrate"),
            (Some(2), SchemaStatus::Current(2), "as expected"),
            (Some(3), SchemaStatus::Ahead { found: 3, expected: 2 }, "upgrade the program"),
        ];
        for (found, status, words) in table {
            assert_eq!(SchemaStatus::of(found, 2), status);
            assert!(status.to_string().contains(words), "{status}");
            assert_eq!(status.require_current().is_ok(), matches!(status, SchemaStatus::Current(_)));
        }
    }
}
