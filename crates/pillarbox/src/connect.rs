//! A store from its address, whatever the database.

use std::sync::Arc;

use pillarbox_core::inbox::InboxOptions;
use pillarbox_core::store::{BoxFuture, StoreOptions};
use pillarbox_core::{InboxStore, OutboxAdmin, OutboxStore, SchemaAdmin, StoreError, WithInbox};

/// Everything that a store of any backend can do without a transaction of the caller's own.
///
/// To enqueue on such a transaction, hold the backend's own type: a transaction belongs to one kind of database.
pub trait Store: OutboxStore + OutboxAdmin + SchemaAdmin {
    /// Opens the inbox beside this store, through the same connections.
    fn open_inbox(&self, options: InboxOptions) -> BoxFuture<'_, Result<Arc<dyn AnyInbox>, StoreError>>;
}

impl<S: WithInbox + OutboxAdmin + SchemaAdmin> Store for S {
    fn open_inbox(&self, options: InboxOptions) -> BoxFuture<'_, Result<Arc<dyn AnyInbox>, StoreError>> {
        Box::pin(async move { Ok(Arc::new(self.inbox(options).await?) as Arc<dyn AnyInbox>) })
    }
}

/// Everything that an inbox of any backend can do without a transaction of the caller's own.
pub trait AnyInbox: InboxStore + SchemaAdmin {}

impl<I: InboxStore + SchemaAdmin> AnyInbox for I {}

/// Opens the store at `sqlite:…`, `postgres://…` (or `postgresql:`), `mysql://…` (or `mariadb:`).
///
/// An address that no backend serves is refused, and so is one whose backend was not built in. No error repeats the
/// address, which may hold a password.
///
/// ```
/// # use pillarbox::prelude::*;
/// # #[tokio::main]
/// # async fn main() -> Result<(), StoreError> {
/// let store = pillarbox::connect("sqlite::memory:", StoreOptions::default()).await?;
/// assert_eq!(store.overview().await?.total().pending, 0);
/// # Ok(())
/// # }
/// ```
pub async fn connect(url: &str, options: StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    struct IntoStore;
    impl Opened for IntoStore {
        type Open = Arc<dyn Store>;

        fn take<S: Store + WithInbox>(self, store: S) -> Self::Open {
            Arc::new(store)
        }
    }
    open(url, options, IntoStore).await
}

/// What is done with a store while its type is known.
pub(crate) trait Opened {
    type Open;

    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
        expect(dead_code, reason = "there is no store to take")
    )]
    fn take<S: Store + WithInbox>(self, store: S) -> Self::Open;
}

/// Opens the store at an address.
pub(crate) async fn open<O: Opened>(url: &str, options: StoreOptions, opened: O) -> Result<O::Open, StoreError> {
    let backend = Backend::of_url(url)?;
    match backend {
        #[cfg(feature = "sqlite")]
        Backend::Sqlite => Ok(opened.take(pillarbox_sqlite::SqliteStore::connect(url, options).await?)),
        #[cfg(feature = "postgres")]
        Backend::Postgres => Ok(opened.take(pillarbox_postgres::PostgresStore::connect(url, options).await?)),
        #[cfg(feature = "mysql")]
        Backend::Mysql => Ok(opened.take(pillarbox_mysql::MysqlStore::connect(url, options).await?)),
        #[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql")))]
        absent => {
            drop((options, opened));
            Err(absent.not_built_in())
        }
    }
}

/// Runs a query of the user's own at an address and answers its rows as texts.
pub(crate) async fn read_texts(url: &str, query: &str) -> Result<Vec<Vec<Option<String>>>, StoreError> {
    match Backend::of_url(url)? {
        #[cfg(feature = "sqlite")]
        Backend::Sqlite => pillarbox_sqlite::read_texts(url, query).await,
        #[cfg(feature = "postgres")]
        Backend::Postgres => pillarbox_postgres::read_texts(url, query).await,
        #[cfg(feature = "mysql")]
        Backend::Mysql => pillarbox_mysql::read_texts(url, query).await,
        #[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql")))]
        absent => {
            let _ = query;
            Err(absent.not_built_in())
        }
    }
}

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// SQLite, in a file or in memory.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
}

impl Backend {
    /// Every backend, built in or not.
    pub const ALL: [Self; 3] = [Self::Sqlite, Self::Postgres, Self::Mysql];

    /// The backend that serves an address.
    pub fn of_url(url: &str) -> Result<Self, StoreError> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        let found = Self::ALL.into_iter().find(|backend| backend.schemes().contains(&scheme));
        found.ok_or_else(|| unknown(url, scheme))
    }

    /// The feature that builds it in.
    pub fn feature(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    /// What its addresses start with, before the colon.
    pub fn schemes(self) -> &'static [&'static str] {
        match self {
            Self::Sqlite => &["sqlite"],
            Self::Postgres => &["postgres", "postgresql"],
            Self::Mysql => &["mysql", "mariadb"],
        }
    }

    #[cfg(any(test, not(all(feature = "sqlite", feature = "postgres", feature = "mysql"))))]
    fn not_built_in(self) -> StoreError {
        let (scheme, feature) = (self.schemes()[0], self.feature());
        StoreError::rejected(format!(
            "`{scheme}:` addresses need a backend that is not built in: add feature `{feature}` to `pillarbox`"
        ))
    }
}

fn unknown(url: &str, scheme: &str) -> StoreError {
    let expected = "expected `sqlite:…`, `postgres://…` or `mysql://…`";
    // What stands before a bare colon may be a user's name, or worse: only a scheme that looks like one is repeated.
    let is_scheme = scheme.len() <= 20 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !scheme.is_empty() && is_scheme && url[scheme.len()..].starts_with("://") {
        return StoreError::rejected(format!("no backend serves `{scheme}:` addresses: {expected}"));
    }
    StoreError::rejected(format!("the database's address does not say which database it is: {expected}"))
}

#[cfg(test)]
mod tests {
    use pillarbox_core::ErrorKind;

    use super::*;

    #[test]
    fn the_scheme_chooses_the_backend() {
        let table = [
            ("sqlite::memory:", Backend::Sqlite),
            ("sqlite:shop.db", Backend::Sqlite),
            ("sqlite://shop.db", Backend::Sqlite),
            ("postgres://db/shop", Backend::Postgres),
            ("postgresql://db/shop", Backend::Postgres),
            ("mysql://db/shop", Backend::Mysql),
            ("mariadb://db/shop", Backend::Mysql),
        ];
        for (url, backend) in table {
            assert_eq!(Backend::of_url(url).unwrap(), backend, "{url}");
        }
    }

    #[test]
    fn an_unknown_scheme_is_named_with_what_was_expected() {
        let error = Backend::of_url("oracle://user:canary@db/shop").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected);
        assert_eq!(
            error.to_string(),
            "no backend serves `oracle:` addresses: expected `sqlite:…`, `postgres://…` or `mysql://…`"
        );
    }

    /// H54: the address may hold a password, wherever its writer put it.
    #[test]
    fn an_address_without_a_scheme_is_not_repeated() {
        for url in
            ["", "canary", "user:canary@db/shop", "canary:x@db", "canary@db:5432/shop", "can ary://db", "://canary"]
        {
            let error = Backend::of_url(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("can"), "{url}: {error}");
            assert!(error.to_string().contains("expected `sqlite:…`"), "{error}");
        }
    }

    #[test]
    fn a_backend_that_is_not_built_in_names_its_feature() {
        for backend in Backend::ALL {
            let error = backend.not_built_in();
            assert_eq!(error.kind(), ErrorKind::Rejected);
            assert!(error.to_string().contains(&format!("add feature `{}`", backend.feature())), "{error}");
        }
    }

    /// H54: nothing listens on port 1, and the second address is malformed; neither error shows the password.
    #[tokio::test]
    async fn no_error_of_a_connection_shows_the_password() {
        for scheme in ["postgres", "postgresql", "mysql", "mariadb"] {
            for address in ["user:canary@127.0.0.1:1/shop", "user:canary@127.0.0.1:canary/shop?password=canary"] {
                let error = connect(&format!("{scheme}://{address}"), StoreOptions::default()).await.unwrap_err();
                assert!(!format!("{error} {error:?}").contains("canary"), "{scheme}: {error}");
            }
        }
    }
}
