//! Which store a command is about.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use pillarbox::inbox::InboxOptions;
use pillarbox::naming::Naming;
use pillarbox::retention::Retention;
use pillarbox::schema::{SchemaPolicy, SchemaStatus};
use pillarbox::store::StoreOptions;
use pillarbox::{AnyInbox, Backend, OutboxAdmin, OutboxStore, Store, StoreError, StoreId};

use crate::exit::Failure;

#[derive(Args, Clone, Debug)]
pub(crate) struct StoreArgs {
    /// The database: sqlite:<file>, postgres://… or mysql://…; without it, the variable DATABASE_URL is read.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The schema of the tables, or the first part of their names where a database has no schemas.
    #[arg(long, value_name = "NAME", default_value = "pillarbox")]
    schema: String,
    /// The outbox table.
    #[arg(long, value_name = "NAME", default_value = "outbox")]
    table: String,
    /// The inbox table, in the same schema.
    #[arg(long, value_name = "NAME", default_value = "inbox")]
    inbox_table: String,
}

/// A store that is there, and where it was found.
pub(crate) struct Opened {
    pub(crate) address: Address,
    pub(crate) store: Arc<dyn Store>,
    inbox: InboxOptions,
}

/// One of the two queues of a store: what an operator can do about it, and its name.
pub(crate) struct Queue {
    pub(crate) id: StoreId,
    pub(crate) store: Arc<dyn OutboxStore>,
    pub(crate) admin: Arc<dyn OutboxAdmin>,
}

/// An address and where it came from. The address may hold a password: only its origin is ever shown.
pub(crate) struct Address {
    pub(crate) backend: Backend,
    url: String,
    origin: String,
}

impl StoreArgs {
    pub(crate) fn address(&self) -> Result<Address, Failure> {
        let (url, origin) = match &self.url {
            Some(url) => (url.clone(), "--url"),
            None => match std::env::var("DATABASE_URL") {
                Ok(url) if !url.is_empty() => (url, "DATABASE_URL"),
                _ => return Err(Failure::wrong_use("no database: give --url or set DATABASE_URL")),
            },
        };
        Address::new(url, origin)
    }

    pub(crate) fn options(&self, schema: SchemaPolicy) -> Result<StoreOptions, Failure> {
        let naming =
            Naming::new(&self.schema, &self.table).map_err(|invalid| Failure::wrong_use(invalid.to_string()))?;
        Ok(StoreOptions { naming, schema, ..StoreOptions::default() })
    }

    /// The settings of the inbox; nothing is deployed or checked when it is opened.
    pub(crate) fn inbox_options(&self) -> InboxOptions {
        let schema = Some(SchemaPolicy::Assume);
        InboxOptions { table: self.inbox_table.clone(), schema, ..InboxOptions::default() }
    }

    /// The store, whose tables must be there and fit. Creates nothing.
    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        self.open_keeping(Retention::default()).await
    }

    /// Like [`open`](Self::open), with another retention.
    pub(crate) async fn open_keeping(&self, retention: Retention) -> Result<Opened, Failure> {
        let check = StoreOptions { retention, ..self.options(SchemaPolicy::Check)? };
        let address = self.address()?.existing();
        let store = address.connect(check).await?;
        Ok(Opened { address, store, inbox: self.inbox_options() })
    }
}

impl Opened {
    /// How long the inbox remembers what is done.
    pub(crate) fn remembers_for(&self) -> Duration {
        self.inbox.remember
    }

    pub(crate) fn remember_for(&mut self, remember: Duration) {
        self.inbox.remember = remember;
    }

    /// The inbox beside the store; none where its tables do not exist.
    pub(crate) async fn inbox(&self) -> Result<Option<Arc<dyn AnyInbox>>, Failure> {
        let failure = |error: StoreError| self.address.failure(&error);
        let inbox = self.store.open_inbox(self.inbox.clone()).await.map_err(failure)?;
        let found = inbox.check_schema().await.map_err(failure)?;
        if found == SchemaStatus::Missing {
            return Ok(None);
        }
        found.require_current().map_err(failure)?;
        Ok(Some(inbox))
    }

    /// The inbox beside the store, which must be there.
    pub(crate) async fn require_inbox(&self) -> Result<Arc<dyn AnyInbox>, Failure> {
        let table = &self.inbox.table;
        let missing = || {
            let words = format!(
                "has no inbox `{table}`: name its table with --inbox-table, or run `pillarbox migrate --inbox`"
            );
            Failure::new(format!("the store at {} {words}", self.address.origin))
        };
        self.inbox().await?.ok_or_else(missing)
    }

    /// The outbox's queue, or the inbox's.
    pub(crate) async fn queue(&self, of_inbox: bool) -> Result<Queue, Failure> {
        if of_inbox {
            let inbox = self.require_inbox().await?;
            return Ok(Queue { id: inbox.id().clone(), store: inbox.queue(), admin: inbox.admin() });
        }
        let store = Arc::clone(&self.store);
        Ok(Queue { id: store.id().clone(), store: Arc::clone(&self.store) as Arc<dyn OutboxStore>, admin: store })
    }
}

impl Address {
    /// An address, and what to call it.
    pub(crate) fn new(url: String, origin: impl Into<String>) -> Result<Self, Failure> {
        let origin = origin.into();
        let backend = Backend::of_url(&url).map_err(|error| Failure::wrong_use(format!("{origin}: {error}")))?;
        Ok(Self { backend, url, origin })
    }

    /// The address itself, to connect with and never to be shown.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// An address for looking only: an SQLite file that does not exist is not created.
    pub(crate) fn existing(mut self) -> Self {
        let creates = self.backend == Backend::Sqlite && !self.url.contains(":memory:") && !self.url.contains("mode=");
        if creates {
            let separator = if self.url.contains('?') { '&' } else { '?' };
            self.url = format!("{}{separator}mode=rw", self.url);
        }
        self
    }

    /// An address for printing only: SQLite needs no file for it.
    pub(crate) fn imagined(mut self) -> Self {
        if self.backend == Backend::Sqlite {
            self.url = "sqlite::memory:".to_owned();
        }
        self
    }

    pub(crate) async fn connect(&self, options: StoreOptions) -> Result<Arc<dyn Store>, Failure> {
        pillarbox::connect(&self.url, options).await.map_err(|error| self.failure(&error))
    }

    /// Host and port, or the file's name, in brackets; nothing where the address is not plainly legible. What looks like one
    /// of them may be a part of a password that was not encoded: in doubt nothing is shown.
    fn place(&self) -> String {
        let place = match self.backend {
            Backend::Sqlite => file_of(&self.url).map(str::to_owned),
            Backend::Postgres => host_of(&self.url, 5432),
            Backend::Mysql => host_of(&self.url, 3306),
        };
        place.map(|place| format!(" ({place})")).unwrap_or_default()
    }

    /// What failed, and whose address it was.
    pub(crate) fn failure(&self, error: &StoreError) -> Failure {
        if !error.problems().is_empty() {
            return Failure::wrong_use(error.to_string());
        }
        Failure::new(format!("the store at {}{}: {error}", self.origin, self.place()))
    }
}

fn file_of(url: &str) -> Option<&str> {
    let path = url.split_once(':')?.1.split('?').next()?;
    let name = path.rsplit(['/', '\\']).next()?;
    (!name.is_empty() && !path.contains(":memory:")).then_some(name)
}

fn host_of(url: &str, default_port: u16) -> Option<String> {
    let (before, query) = url.split_once('?').unwrap_or((url, ""));
    let rest = before.split_once("://")?.1;
    let user_and_host = rest.rsplit_once('@');
    // Without a user, a colon before the host may be that of a user whose password was cut off by a question mark.
    if query.contains('@') || before.contains('#') {
        return None;
    }
    let authority = user_and_host.map_or(rest, |(_, host)| host).split('/').next()?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, default_port),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_host = host.bytes().all(is_name) || (host.starts_with('[') && host.ends_with(']'));
    (!host.is_empty() && is_host).then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url_of(url: &str, change: fn(Address) -> Address) -> String {
        change(Address::new(url.to_owned(), "--url").unwrap()).url
    }

    #[test]
    fn looking_creates_no_file() {
        let table = [
            ("sqlite:shop.db", "sqlite:shop.db?mode=rw"),
            ("sqlite:shop.db?cache=private", "sqlite:shop.db?cache=private&mode=rw"),
            ("sqlite:shop.db?mode=ro", "sqlite:shop.db?mode=ro"),
            ("sqlite::memory:", "sqlite::memory:"),
            ("postgres://db/shop", "postgres://db/shop"),
        ];
        for (given, used) in table {
            assert_eq!(url_of(given, Address::existing), used);
        }
    }

    /// H54: what is not plainly a host is not shown.
    #[test]
    fn the_place_of_an_address_is_named_without_its_secrets() {
        let table = [
            ("postgres://user:canary@db.example:5433/shop", " (db.example:5433)"),
            ("postgres://db/shop", " (db:5432)"),
            ("mysql://user:canary@[::1]/shop", " ([::1]:3306)"),
            ("postgres://user:can@ary/x@db/shop", " (db:5432)"),
            ("postgres://user:canary?x@db/shop", ""),
            ("postgres://user:12#34@db/shop", ""),
            ("postgres://user:canary", ""),
            ("postgres://db:port/shop", ""),
            ("postgres:///shop?host=/run/canary", ""),
            ("sqlite:some/canary/shop.db?mode=rw", " (shop.db)"),
            ("sqlite::memory:", ""),
        ];
        for (url, place) in table {
            assert_eq!(Address::new(url.to_owned(), "--url").unwrap().place(), place, "{url}");
        }
    }

    #[test]
    fn printing_needs_no_sqlite_file() {
        assert_eq!(url_of("sqlite:shop.db", Address::imagined), "sqlite::memory:");
        assert_eq!(url_of("mysql://db/shop", Address::imagined), "mysql://db/shop");
    }
}
