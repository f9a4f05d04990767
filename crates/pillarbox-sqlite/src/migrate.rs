//! Deploying, checking and printing the tables.

use async_trait::async_trait;
use pillarbox_core::naming::Naming;
use pillarbox_core::schema::{Migration, SchemaAdmin, SchemaStatus};
use pillarbox_core::{StoreError, store::BoxFuture};
use sqlx::SqliteConnection;

use crate::error::store_error;
use crate::row;
use crate::sql::{ready, rendered, version_table};
use crate::store::{Inner, SqliteStore};

const MIGRATIONS: [Migration; 2] = [
    Migration { number: 1, name: "outbox", sql: include_str!("../migrations/0001_outbox.sql") },
    Migration { number: 2, name: "outbox_routines", sql: include_str!("../migrations/0002_outbox_routines.sql") },
];

const EXPECTED: u32 = MIGRATIONS[MIGRATIONS.len() - 1].number;

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
        if let SchemaStatus::Current(version) = self.check_schema().await? {
            return Ok(version);
        }
        // The write lock makes instances that start at once take turns; the second finds everything in place.
        self.write(|inner, tx| Box::pin(deploy(inner, tx))).await
    }

    async fn check_schema(&self) -> Result<SchemaStatus, StoreError> {
        self.read(|inner, tx| -> BoxFuture<'_, _> {
            Box::pin(async move { Ok(SchemaStatus::of(found_version(inner, tx).await?, EXPECTED)) })
        })
        .await
    }

    fn schema_script(&self) -> String {
        let naming = &self.inner.options.naming;
        let mut script = String::from("BEGIN IMMEDIATE;\n\n") + &rendered(VERSION_TABLE, naming);
        for migration in &MIGRATIONS {
            script += &format!("\n{}\n{}\n", step(migration, naming), record(migration, naming));
        }
        script + "\nCOMMIT;\n"
    }
}

async fn deploy(inner: &Inner, tx: &mut SqliteConnection) -> Result<u32, StoreError> {
    let found = found_version(inner, tx).await?;
    let status = SchemaStatus::of(found, EXPECTED);
    if let SchemaStatus::Ahead { .. } = status {
        status.require_current()?;
    }
    let naming = &inner.options.naming;
    run(tx, &rendered(VERSION_TABLE, naming)).await?;
    for migration in MIGRATIONS.iter().filter(|migration| migration.number > found.unwrap_or(0)) {
        run(tx, &step(migration, naming)).await?;
        run(tx, &record(migration, naming)).await?;
    }
    Ok(EXPECTED)
}

/// The version of the tables; none when there is no record of them.
async fn found_version(inner: &Inner, tx: &mut SqliteConnection) -> Result<Option<u32>, StoreError> {
    let naming = &inner.options.naming;
    let table = sqlx::query("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1)")
        .bind(version_table(naming))
        .fetch_one(&mut *tx)
        .await
        .map_err(store_error)?;
    if !row::get::<bool>(&table, 0)? {
        return Ok(None);
    }
    let version = rendered("SELECT max(version) FROM pillarbox_schema_version WHERE outbox = ?1", naming);
    let version = sqlx::query(ready(&version)).bind(naming.joined()).fetch_one(tx).await.map_err(store_error)?;
    row::get(&version, 0)
}

async fn run(tx: &mut SqliteConnection, sql: &str) -> Result<(), StoreError> {
    sqlx::raw_sql(ready(sql)).execute(tx).await.map_err(store_error)?;
    Ok(())
}

fn step(migration: &Migration, naming: &Naming) -> String {
    rendered(migration.sql, naming)
}

fn record(migration: &Migration, naming: &Naming) -> String {
    let insert = format!(
        "INSERT INTO pillarbox_schema_version (outbox, version, name) VALUES ('{}', {}, '{}');",
        naming.joined(),
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
        let numbers: Vec<_> = MIGRATIONS.iter().map(|migration| migration.number).collect();
        assert_eq!(numbers, (1..=EXPECTED).collect::<Vec<_>>());
    }

    #[test]
    fn a_record_names_the_table_it_speaks_of() {
        let naming = Naming::new("app", "mail").unwrap();
        assert_eq!(
            record(&MIGRATIONS[0], &naming),
            "INSERT INTO \"app_schema_version\" (outbox, version, name) VALUES ('app_mail', 1, 'outbox');"
        );
    }
}
