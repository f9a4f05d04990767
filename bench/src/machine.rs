//! Where figures come from: without this a table says nothing.

use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, MySqlConnection, PgPool, SqliteConnection};

/// The machine and its servers.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) processor: String,
    pub(crate) core_count: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    pub(crate) servers: Vec<String>,
}

impl Machine {
    /// This one; servers are added by whoever uses them.
    pub(crate) fn here() -> Self {
        let processor = line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.into());
        let memory = line_of("/proc/meminfo", "MemTotal").unwrap_or_default();
        let kib: u64 = memory.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            date: time::OffsetDateTime::now_utc().date().to_string(),
            processor,
            core_count: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_gib: kib >> 20,
            kernel: kernel.trim().into(),
            servers: Vec::new(),
        }
    }

    pub(crate) async fn add_postgres(&mut self, pool: &PgPool) {
        let mut text = format!("PostgreSQL {}", setting(pool, "server_version").await);
        for name in ["shared_buffers", "max_wal_size", "fsync", "synchronous_commit"] {
            text += &format!(", {name} = {}", setting(pool, name).await);
        }
        self.add_server(text);
    }

    pub(crate) async fn add_mysql(&mut self, url: &str) {
        let mut session = MySqlConnection::connect(url).await.unwrap();
        let version: String = sqlx::query_scalar("SELECT version()").fetch_one(&mut session).await.unwrap();
        self.add_server(format!("MariaDB {version}"));
    }

    pub(crate) async fn add_sqlite(&mut self) {
        let mut session = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let version: String = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut session).await.unwrap();
        self.add_server(format!("SQLite {version}"));
    }

    /// In place of an earlier one of its kind: figures may come from several runs.
    fn add_server(&mut self, text: String) {
        let kind = |server: &str| server.split(' ').next().map(str::to_owned);
        self.servers.retain(|server| kind(server) != kind(&text));
        self.servers.push(text);
    }

    /// As a sentence of a document.
    pub(crate) fn sentence(&self) -> String {
        let Self { date, processor, core_count, memory_gib, kernel, servers } = self;
        let servers = servers.join("; ");
        format!("Measured {date} on {processor}, {core_count} cores, {memory_gib} GiB, Linux {kernel}: {servers}.")
    }
}

async fn setting(pool: &PgPool, name: &str) -> String {
    sqlx::query_scalar("SELECT current_setting($1)").bind(name).fetch_one(pool).await.unwrap()
}

/// The value of a line `name : value`.
fn line_of(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
