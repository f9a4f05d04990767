//! Deploys, prints and checks the tables.

use async_trait::async_trait;
use pillarbox_core::StoreError;
use pillarbox_core::schema::{Migration, Part, SchemaAdmin, SchemaStatus};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::error::store_error;
use crate::sql::render;
use crate::store::PostgresStore;

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

/// Several outboxes may share a schema: each has its own rows.
const VERSION_TABLE: &str = "CREATE TABLE IF NOT EXISTS pillarbox.schema_version (
    table_name text        NOT NULL,
    version    integer     NOT NULL,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (table_name, version)
)";

#[async_trait]
impl SchemaAdmin for PostgresStore {
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

impl PostgresStore {
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
        // A dropped begin() would leave an open transaction in the pool: the task is never dropped half-way.
        let run = tokio::spawn(async move { store.deploy_within(part).await });
        run.await.map_err(|_| StoreError::unavailable("the runtime is shutting down"))?
    }

    pub(crate) async fn check(&self, part: &'static Part) -> Result<SchemaStatus, StoreError> {
        let store = self.clone();
        let run = tokio::spawn(async move {
            let mut tx = store.pool().begin().await.map_err(store_error)?;
            let found = store.found_version(&mut tx, part).await?;
            tx.commit().await.map_err(store_error)?;
            Ok(SchemaStatus::of(found, part.version()))
        });
        run.await.map_err(|_| StoreError::unavailable("the runtime is shutting down"))?
    }

    pub(crate) fn script(&self, part: &Part) -> String {
        let schema = self.settings().naming.schema();
        let mut script =
            format!("BEGIN;\nCREATE SCHEMA IF NOT EXISTS \"{schema}\";\n{};\n\n", self.rendered(VERSION_TABLE));
        for migration in part.steps {
            script.push_str(&self.rendered(migration.sql));
            script.push_str(&format!("\n{};\n\n", self.record_of(part, migration)));
        }
        script.push_str("COMMIT;\n");
        script
    }

    async fn deploy_within(&self, part: &'static Part) -> Result<u32, StoreError> {
        let mut tx = self.pool().begin().await.map_err(store_error)?;
        let found = self.found_version(&mut tx, part).await?;
        if let SchemaStatus::Current(version) = SchemaStatus::of(found, part.version()) {
            return Ok(version);
        }
        self.lock(&mut tx).await?;
        // Another instance may have been through while this one waited for the lock.
        let found = self.found_version(&mut tx, part).await?;
        let status = SchemaStatus::of(found, part.version());
        if matches!(status, SchemaStatus::Current(_) | SchemaStatus::Ahead { .. }) {
            return status.require_current().map(|()| part.version());
        }
        self.create_schema(&mut tx).await?;
        run(&mut tx, &self.rendered(VERSION_TABLE)).await?;
        for migration in part.missing(found) {
            run(&mut tx, &self.rendered(migration.sql)).await?;
            run(&mut tx, &self.record_of(part, migration)).await?;
        }
        tx.commit().await.map_err(store_error)?;
        tracing::info!(store = %self.name(), version = part.version(), "tables deployed");
        Ok(part.version())
    }

    /// One deployer at a time. The lock ends with the transaction, so it works behind a pooler too.
    async fn lock(&self, tx: &mut PgConnection) -> Result<(), StoreError> {
        let schema = self.settings().naming.schema();
        run(
            tx,
            &format!(
                "SET LOCAL lock_timeout = '30s'; SET LOCAL client_min_messages = warning; \
                 SELECT pg_advisory_xact_lock(hashtextextended('pillarbox {schema}', 0))"
            ),
        )
        .await
    }

    /// Creates the schema where it is missing, without asking for the right to do so where it is there.
    async fn create_schema(&self, tx: &mut PgConnection) -> Result<(), StoreError> {
        let schema = self.settings().naming.schema();
        let sql = format!("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = '{schema}'");
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        if query.fetch_optional(&mut *tx).await.map_err(store_error)?.is_some() {
            return Ok(());
        }
        run(tx, &format!("CREATE SCHEMA \"{schema}\"")).await
    }

    async fn found_version(&self, tx: &mut PgConnection, part: &Part) -> Result<Option<u32>, StoreError> {
        let (schema, table) = (self.settings().naming.schema(), self.settings().naming.outbox());
        let exists = format!("SELECT to_regclass('\"{schema}\".\"schema_version\"') IS NOT NULL");
        let query = sqlx::query(AssertSqlSafe(exists)).persistent(false);
        if !query.fetch_one(&mut *tx).await.and_then(|row| row.try_get::<bool, _>(0)).map_err(store_error)? {
            return Ok(None);
        }
        let sql = self.rendered("SELECT max(version) FROM pillarbox.schema_version")
            + &format!(" WHERE table_name = '{table}{}'", part.suffix);
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        let version: Option<i32> = query.fetch_one(tx).await.and_then(|row| row.try_get(0)).map_err(store_error)?;
        Ok(version.map(|version| u32::try_from(version).unwrap_or(0)))
    }

    fn rendered(&self, sql: &str) -> String {
        render(sql, &self.settings().naming)
    }

    fn record_of(&self, part: &Part, migration: &Migration) -> String {
        let table = self.settings().naming.outbox();
        let (number, name) = (migration.number, migration.name);
        self.rendered("INSERT INTO pillarbox.schema_version (table_name, version, name)")
            + &format!(" VALUES ('{table}{}', {number}, '{name}')", part.suffix)
    }
}

async fn run(tx: &mut PgConnection, sql: &str) -> Result<(), StoreError> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(tx).await.map_err(store_error)?;
    Ok(())
}
