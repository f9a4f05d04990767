//! Which store a command is about.

use std::sync::Arc;

use clap::Args;
use pillarbox::naming::Naming;
use pillarbox::schema::SchemaPolicy;
use pillarbox::store::StoreOptions;
use pillarbox::{Backend, Store, StoreError};

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
}

/// An address and where it came from. The address may hold a password: only its origin is ever shown.
pub(crate) struct Address {
    pub(crate) backend: Backend,
    url: String,
    origin: &'static str,
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
        let backend = Backend::of_url(&url).map_err(|error| Failure::wrong_use(format!("{origin}: {error}")))?;
        Ok(Address { backend, url, origin })
    }

    pub(crate) fn options(&self, schema: SchemaPolicy) -> Result<StoreOptions, Failure> {
        let naming =
            Naming::new(&self.schema, &self.table).map_err(|invalid| Failure::wrong_use(invalid.to_string()))?;
        Ok(StoreOptions { naming, schema, ..StoreOptions::default() })
    }
}

impl Address {
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

    /// What failed, and whose address it was.
    pub(crate) fn failure(&self, error: &StoreError) -> Failure {
        Failure::new(format!("the store at {}: {error}", self.origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url_of(url: &str, change: fn(Address) -> Address) -> String {
        let backend = Backend::of_url(url).unwrap();
        change(Address { backend, url: url.to_owned(), origin: "--url" }).url
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

    #[test]
    fn printing_needs_no_sqlite_file() {
        assert_eq!(url_of("sqlite:shop.db", Address::imagined), "sqlite::memory:");
        assert_eq!(url_of("mysql://db/shop", Address::imagined), "mysql://db/shop");
    }
}
