//! Deploying, checking and printing the tables.

use async_trait::async_trait;
use pillarbox_core::schema::{Migration, Part, SchemaStatus};
use pillarbox_core::{SchemaAdmin, StoreError};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, MySqlConnection, Row as _};

use crate::error::{is_missing_table, store_error};
use crate::sql::with_names;
use crate::store::{MysqlStore, finished};

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

/// How long an instance waits for another one that deploys.
const LOCK_SECONDS: i64 = 300;

/// Modes and encoding are stored with the routines; the deploying session's own must not matter.
const PRELUDE: &str = "\
SET NAMES utf8mb4;
SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';
";

const VERSION_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS `pillarbox_schema_version` (
    `outbox` VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `version` INT NOT NULL,
    `name` VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `applied_at` DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (`outbox`, `version`)
) ENGINE = InnoDB;
";

#[async_trait]
impl SchemaAdmin for MysqlStore {
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

impl MysqlStore {
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
        let store = self.clone();
        finished(async move {
            // A connection of its own: closing it gives the lock back, whatever happened before.
            let mut connection = store.inner.pool.connect_options().connect().await.map_err(store_error)?;
            let deployed = store.deploy_on(&mut connection, part).await;
            drop(connection.close().await);
            deployed
        })
        .await
    }

    pub(crate) async fn check(&self, part: &'static Part) -> Result<SchemaStatus, StoreError> {
        let store = self.clone();
        finished(async move {
            let mut connection = store.inner.pool.acquire().await.map_err(store_error)?;
            Ok(SchemaStatus::of(store.version(&mut connection, part).await?, part.version()))
        })
        .await
    }

    pub(crate) fn script(&self, part: &Part) -> String {
        let version = part.version();
        let mut script =
            format!("-- Pillarbox {version}: for the mysql or mariadb client.\n{PRELUDE}\n{VERSION_TABLE}");
        for step in part.steps {
            let (number, name, sql) = (step.number, step.name, step.sql);
            script.push_str(&format!("\n-- {number} {name}\n{sql}\n{};\n", recorded(part, step)));
        }
        self.named(&script)
    }

    async fn deploy_on(&self, connection: &mut MySqlConnection, part: &'static Part) -> Result<u32, StoreError> {
        self.lock(connection).await?;
        let found = self.version(connection, part).await?;
        match SchemaStatus::of(found, part.version()) {
            SchemaStatus::Current(version) => return Ok(version),
            ahead @ SchemaStatus::Ahead { .. } => ahead.require_current()?,
            SchemaStatus::Missing | SchemaStatus::Behind { .. } => {}
        }
        self.run(connection, &format!("{PRELUDE}{VERSION_TABLE}")).await?;
        for step in part.missing(found) {
            self.run(connection, step.sql).await?;
            self.run(connection, &format!("{};", recorded(part, step))).await?;
        }
        Ok(part.version())
    }

    /// One instance at a time. The name is hashed: it must stay within 64 characters.
    async fn lock(&self, connection: &mut MySqlConnection) -> Result<(), StoreError> {
        let row = sqlx::query("SELECT GET_LOCK(CONCAT('pillarbox:', MD5(CONCAT(DATABASE(), '.', ?))), ?)")
            .bind(self.inner.options.naming.schema().as_str())
            .bind(LOCK_SECONDS)
            .fetch_one(connection)
            .await
            .map_err(store_error)?;
        match row.try_get_unchecked::<Option<i64>, _>(0).map_err(store_error)? {
            Some(1) => Ok(()),
            _ => Err(StoreError::unavailable("another instance has been deploying the tables for too long")),
        }
    }

    /// The version on record; none when there is no record.
    async fn version(&self, connection: &mut MySqlConnection, part: &Part) -> Result<Option<u32>, StoreError> {
        let suffix = part.suffix;
        let sql = self.named(&format!(
            "SELECT MAX(`version`) FROM `pillarbox_schema_version` WHERE `outbox` = 'pillarbox_outbox{suffix}'"
        ));
        match sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(connection).await {
            Ok(row) => {
                let version: Option<i64> = row.try_get_unchecked(0).map_err(store_error)?;
                Ok(version.map(|version| u32::try_from(version).unwrap_or(0)))
            }
            Err(error) if is_missing_table(&error) => Ok(None),
            Err(error) => Err(store_error(error)),
        }
    }

    async fn run(&self, connection: &mut MySqlConnection, script: &str) -> Result<(), StoreError> {
        for statement in statements(&self.named(script)) {
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await.map_err(store_error)?;
        }
        Ok(())
    }

    fn named(&self, sql: &str) -> String {
        with_names(&self.inner.options.naming, sql)
    }
}

/// The statement that records a step; repeating it changes nothing.
fn recorded(part: &Part, migration: &Migration) -> String {
    format!(
        "INSERT INTO `pillarbox_schema_version` (`outbox`, `version`, `name`) VALUES ('pillarbox_outbox{}', {}, '{}')\n\
         ON DUPLICATE KEY UPDATE `version` = `version`",
        part.suffix, migration.number, migration.name
    )
}

/// Cuts a script into statements as the vendor's client does, `DELIMITER` lines included.
///
/// Enough for our own files: a delimiter counts at the end of a line only.
fn statements(script: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut delimiter = ";";
    let mut statement = String::new();
    for line in script.lines() {
        if let Some(next) = line.strip_prefix("DELIMITER ") {
            delimiter = next.trim();
        } else if line.starts_with("--") || (line.trim().is_empty() && statement.is_empty()) {
            // Comments between statements stay behind; those within a routine are indented and stay in it.
        } else if let Some(end) = line.trim_end().strip_suffix(delimiter) {
            statement.push_str(end);
            statements.push(std::mem::take(&mut statement));
        } else {
            statement.push_str(line);
            statement.push('\n');
        }
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_cut_like_the_client_cuts_them() {
        let script = "-- why\nSELECT 1;\n\nDELIMITER $$\nCREATE x\nBEGIN\n  a;\nEND$$\nDELIMITER ;\nSELECT\n  2;\n";
        assert_eq!(statements(script), ["SELECT 1", "CREATE x\nBEGIN\n  a;\nEND", "SELECT\n  2"]);
    }

    #[test]
    fn the_steps_are_numbered_without_gaps() {
        let steps = [&QUEUE, &LEDGER, &INSTANCES, &PROGRESS, &PAUSES].into_iter().flat_map(|part| part.steps);
        let mut numbers: Vec<_> = steps.map(|step| step.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn every_routine_is_dropped_before_it_is_created() {
        let routines = QUEUE.steps[1];
        let created = routines.sql.matches("CREATE PROCEDURE").count();
        assert_eq!(created, routines.sql.matches("DROP PROCEDURE IF EXISTS").count());
        assert_eq!(statements(routines.sql).len(), 2 * created + 1);
    }
}
