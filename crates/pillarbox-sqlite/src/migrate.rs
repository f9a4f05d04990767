//! Deploying, checking and printing the tables.

use async_trait::async_trait;
use pillarbox_core::naming::Naming;
use pillarbox_core::schema::{Migration, Part, SchemaAdmin, SchemaStatus};
use pillarbox_core::{StoreError, store::BoxFuture};
use sqlx::SqliteConnection;

use crate::error::store_error;
use crate::row;
use crate::sql::{ready, rendered, version_table};
use crate::store::{Inner, SqliteStore};

/// The tables of an outbox, and of an inbox's queue.
pub(crate) const QUEUE: Part = Part {
    suffix: "",
    steps: &[
        Migration { number: 1, name: "outbox", sql: include_str!("../migrations/0001_outbox.sql") },
        Migration { number: 2, name: "outbox_routines", sql: include_str!("../migrations/0002_outbox_routines.sql") },
    ],
};

/// The table that an inbox has beside its queue.
pub(crate) const LEDGER: Part = Part {
    suffix: "_ledger",
    steps: &[Migration { number: 3, name: "inbox_ledger", sql: include_str!("../migrations/0003_inbox_ledger.sql") }],
};

/// The list of the instances that serve a queue, deployed by the first that registers.
pub(crate) const INSTANCES: Part = Part {
    suffix: "_instance",
    steps: &[Migration { number: 4, name: "instances", sql: include_str!("../migrations/0004_instances.sql") }],
};

/// How far receptors and perspectives have come, deployed with the first work coordinator.
pub(crate) const PROGRESS: Part = Part {
    suffix: "_progress",
    steps: &[Migration { number: 5, name: "progress", sql: include_str!("../migrations/0005_progress.sql") }],
};

/// Routes that an operator paused, deployed by the first pause.
pub(crate) const PAUSES: Part = Part {
    suffix: "_pause",
    steps: &[Migration { number: 6, name: "pauses", sql: include_str!("../migrations/0006_pauses.sql") }],
};

const VERSION_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS pillarbox_schema_version (
    outbox     TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
    PRIMARY KEY (outbox, version)
) STRICT;
";

#[async_trait]
impl SchemaAdmin for SqliteStore {
    async fn deploy_schema(&self) -> Result<u32, StoreError> {
        self.deploy(&QUEUE).await
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        self.check(&QUEUE).await
    }

    fn schema_script(&self) -> String {
        self.script(&QUEUE)
    }
}

impl SqliteStore {
    /// The tables of the queue, then those of a part that stands beside them.
    pub(crate) async fn deploy_beside(&self, part: &'static Part) -> Result<u32, StoreError> {
        self.deploy(&QUEUE).await?;
        self.deploy(part).await
    }

    pub(crate) async fn check_beside(&self, part: &'static Part) -> Result<SchemaStatus, StoreError> {
        match self.check(&QUEUE).await? {
            SchemaStatus::Current(_) => self.check(part).await,
            other => Ok(other),
        }
    }

    pub(crate) async fn deploy(&self, part: &'static Part) -> Result<u32, StoreError> {
        if let SchemaStatus::Current(version) = self.check(part).await? {
            return Ok(version);
        }
        // The write lock makes instances that start at once take turns; the second finds everything in place.
        self.write(move |inner, tx| Box::pin(deploy(inner, tx, part))).await
    }

    pub(crate) async fn check(&self, part: &'static Part) -> Result<SchemaStatus, StoreError> {
        self.read(move |inner, tx| -> BoxFuture<'_, _> {
            Box::pin(async move { Ok(SchemaStatus::of(found_version(inner, tx, part).await?, part.version())) })
        })
        .await
    }

    pub(crate) fn script(&self, part: &Part) -> String {
        let naming = &self.inner.options.naming;
        let mut script = String::from("BEGIN IMMEDIATE;\n\n") + &rendered(VERSION_TABLE, naming);
        for step in part.steps {
            script += &format!("\n{}\n{}\n", rendered(step.sql, naming), record(part, step, naming));
        }
        script + "\nCOMMIT;\n"
    }
}

async fn deploy(inner: &Inner, tx: &mut SqliteConnection, part: &'static Part) -> Result<u32, StoreError> {
    let found = found_version(inner, tx, part).await?;
    let status = SchemaStatus::of(found, part.version());
    if let SchemaStatus::Ahead { .. } = status {
        status.require_current()?;
    }
    let naming = &inner.options.naming;
    run(tx, &rendered(VERSION_TABLE, naming)).await?;
    for step in part.missing(found) {
        run(tx, &rendered(step.sql, naming)).await?;
        run(tx, &record(part, step, naming)).await?;
    }
    Ok(part.version())
}

/// The version of the tables; none when there is no record of them.
async fn found_version(inner: &Inner, tx: &mut SqliteConnection, part: &Part) -> Result<Option<u32>, StoreError> {
    let naming = &inner.options.naming;
    if !is_table(tx, version_table(naming)).await? {
        return Ok(None);
    }
    let version = rendered("SELECT max(version) FROM pillarbox_schema_version WHERE outbox = ?1", naming);
    let version = sqlx::query(ready(&version)).bind(naming.joined() + part.suffix);
    row::get(&version.fetch_one(tx).await.map_err(store_error)?, 0)
}

/// Whether there is a table of this name.
pub(crate) async fn is_table(tx: &mut SqliteConnection, name: String) -> Result<bool, StoreError> {
    let look = sqlx::query("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1)").bind(name);
    row::get(&look.fetch_one(tx).await.map_err(store_error)?, 0)
}

async fn run(tx: &mut SqliteConnection, sql: &str) -> Result<(), StoreError> {
    sqlx::raw_sql(ready(sql)).execute(tx).await.map_err(store_error)?;
    Ok(())
}

fn record(part: &Part, migration: &Migration, naming: &Naming) -> String {
    let insert = format!(
        "INSERT INTO pillarbox_schema_version (outbox, version, name) VALUES ('{}{}', {}, '{}');",
        naming.joined(),
        part.suffix,
        migration.number,
        migration.name
    );
    // The recorded name is a value, not a name to be replaced: it stays in quotes of its own.
    insert.replacen("pillarbox_schema_version", &format!("\"{}\"", version_table(naming)), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_without_gaps() {
        let steps = [&QUEUE, &LEDGER, &INSTANCES, &PROGRESS, &PAUSES].into_iter().flat_map(|part| part.steps);
        let mut numbers: Vec<_> = steps.map(|step| step.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_record_names_the_table_it_speaks_of() {
        let naming = Naming::new("app", "mail").unwrap();
        assert_eq!(
            record(&QUEUE, &QUEUE.steps[0], &naming),
            "INSERT INTO \"app_schema_version\" (outbox, version, name) VALUES ('app_mail', 1, 'outbox');"
        );
        assert!(record(&LEDGER, &LEDGER.steps[0], &naming).contains("('app_mail_ledger', 3, 'inbox_ledger')"));
    }
}
