//! The handle: connections, names, and the one way in which the store's own transactions run.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pillarbox_core::floor::Floor;
use pillarbox_core::store::{BoxFuture, CONFLICT_RETRIES_MAX, StoreOptions};
use pillarbox_core::{ErrorKind, SchemaAdmin as _, StoreError, StoreId};
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, MySqlConnection, Row as _};

use crate::error::{is_dirty_connection, store_error};
use crate::prepare::Spares;
use crate::sql::Statements;
use crate::transaction::begin_clean;

/// A store in a MySQL or MariaDB database. Clones share the connections.
///
/// Every call runs in a task of its own and is finished even when its future is dropped, so that no connection goes back
/// to the pool in the middle of a transaction.
#[derive(Clone)]
pub struct MysqlStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) pool: MySqlPool,
    pub(crate) id: StoreId,
    pub(crate) options: StoreOptions,
    pub(crate) sql: Statements,
    pub(crate) server: Server,
    pub(crate) floor: Floor,
    /// Whether a claim has brought a message with a key.
    pub(crate) has_keys: AtomicBool,
    pub(crate) spares: Spares,
}

/// What the backend must know about the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// MariaDB tells whether a transaction is open; MySQL must be asked.
    pub(crate) is_mariadb: bool,
    /// The longest packet that the server takes, in bytes.
    pub(crate) packet_bytes_max: usize,
}

/// Connections of a detached handle.
const DETACHED_MAX: u32 = 2;

impl MysqlStore {
    /// Connects to `mysql://user:password@host:port/database` and treats the tables as the options say.
    pub async fn connect(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        let address: MySqlConnectOptions = url.parse().map_err(store_error)?;
        options.validate()?;
        // Once without the pool, which would wait for a server that is not there. The tables are deployed on a connection of
        // their own, too, so that one is open at a time until the store is.
        let mut probe = address.connect().await.map_err(store_error)?;
        let server = Server::ask(&mut probe).await;
        probe.close().await.map_err(store_error)?;
        Self::opened(MySqlPoolOptions::new().connect_lazy_with(address), options, server?).await
    }

    /// Uses a pool that exists already and treats the tables as the options say.
    pub async fn with_pool(pool: MySqlPool, options: StoreOptions) -> Result<Self, StoreError> {
        options.validate()?;
        let asked = pool.clone();
        let server = finished(async move {
            let mut connection = asked.acquire().await.map_err(store_error)?;
            Server::ask(&mut connection).await
        });
        let server = server.await?;
        Self::opened(pool, options, server).await
    }

    async fn opened(pool: MySqlPool, options: StoreOptions, server: Server) -> Result<Self, StoreError> {
        let id = match &options.store_id {
            Some(id) => id.clone(),
            None => store_id(&pool.connect_options())?,
        };
        let store = Self::made_of(pool, id, options, server);
        store.apply_policy(store.inner.options.schema).await?;
        Ok(store)
    }

    /// The connections, for transactions of one's own.
    pub fn pool(&self) -> &MySqlPool {
        &self.inner.pool
    }

    /// Behaves as on MySQL, which cannot do all that MariaDB can. For tests.
    #[doc(hidden)]
    pub fn as_on_mysql(&self) -> Self {
        self.sibling(self.inner.pool.clone(), Server { is_mariadb: false, ..self.inner.server })
    }

    /// The same store with connections of its own, which are opened on the runtime that needs them first.
    pub(crate) fn with_own_pool(&self) -> Self {
        let pool = &self.inner.pool;
        let own = pool.options().clone().min_connections(0).max_connections(DETACHED_MAX);
        self.sibling(own.connect_lazy_with(pool.connect_options().as_ref().clone()), self.inner.server)
    }

    /// Another set of tables in the same database, through the same connections.
    pub(crate) fn beside(&self, id: StoreId, options: StoreOptions) -> Self {
        Self::made_of(self.inner.pool.clone(), id, options, self.inner.server)
    }

    fn sibling(&self, pool: MySqlPool, server: Server) -> Self {
        Self::made_of(pool, self.inner.id.clone(), self.inner.options.clone(), server)
    }

    fn made_of(pool: MySqlPool, id: StoreId, options: StoreOptions, server: Server) -> Self {
        let inner = Inner {
            pool,
            id,
            sql: Statements::new(&options.naming),
            options,
            server,
            floor: Floor::default(),
            has_keys: AtomicBool::default(),
            spares: Spares::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Runs scripts as one transaction: the first is sent together with its beginning, the last with its end.
    pub(crate) async fn transact(&self, mut scripts: Vec<String>) -> Result<Vec<MySqlRow>, StoreError> {
        if let Some(first) = scripts.first_mut() {
            *first = format!("{};\n{first}", self.inner.sql.begin);
        }
        if let Some(last) = scripts.last_mut() {
            last.push_str(";\nCOMMIT");
        }
        let scripts = Arc::new(scripts);
        self.attempt(move |connection| {
            let scripts = Arc::clone(&scripts);
            Box::pin(async move {
                let mut rows = Vec::new();
                for script in scripts.iter() {
                    let answer = sqlx::raw_sql(AssertSqlSafe(script.as_str())).fetch_all(&mut *connection).await?;
                    rows.extend(answer);
                }
                Ok(rows)
            })
        })
        .await
    }

    /// Runs `work` in a transaction of the store's own, again when it lost a race, in a task that nobody drops half-way.
    pub(crate) async fn within<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> Fn(&'c mut MySqlConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + Sync + 'static,
    {
        let (store, work) = (self.clone(), Arc::new(work));
        persistently(move || {
            let (store, work) = (store.clone(), Arc::clone(&work));
            async move { store.within_once(&*work).await }
        })
        .await
    }

    async fn within_once<T, W>(&self, work: &W) -> Result<T, StoreError>
    where
        W: for<'c> Fn(&'c mut MySqlConnection) -> BoxFuture<'c, Result<T, StoreError>>,
    {
        let mut tx = begin_clean(&self.inner.pool, &self.inner.sql.begin).await?;
        let done = work(&mut tx).await?;
        tx.commit().await.map_err(store_error)?;
        Ok(done)
    }

    /// Runs something on a connection of the pool, again after a lost race, in a task that nobody can drop half-way.
    pub(crate) async fn attempt<T, F>(&self, run: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut MySqlConnection) -> futures_util::future::BoxFuture<'c, Result<T, sqlx::Error>>
            + Send
            + Sync
            + 'static,
    {
        let (store, run) = (self.clone(), Arc::new(run));
        persistently(move || {
            let (store, run) = (store.clone(), Arc::clone(&run));
            async move { store.attempt_once(&*run).await }
        })
        .await
    }

    async fn attempt_once<T, F>(&self, run: &F) -> Result<T, StoreError>
    where
        F: for<'c> Fn(&'c mut MySqlConnection) -> futures_util::future::BoxFuture<'c, Result<T, sqlx::Error>>,
    {
        let mut connection = self.inner.pool.acquire().await.map_err(store_error)?;
        match run(&mut connection).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                let cleaned = match is_dirty_connection(&error) {
                    true => false,
                    false => sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.is_ok(),
                };
                if !cleaned {
                    // Closed, not pooled: whatever is open on it ends here.
                    drop(connection.detach().close_hard().await);
                }
                Err(store_error(error))
            }
        }
    }
}

impl Server {
    async fn ask(connection: &mut MySqlConnection) -> Result<Self, StoreError> {
        let asked = sqlx::query("SELECT VERSION(), CAST(@@max_allowed_packet AS SIGNED), @@autocommit = 1");
        let row = asked.fetch_one(connection).await.map_err(store_error)?;
        let version: String = row.try_get_unchecked(0).map_err(store_error)?;
        let packet: i64 = row.try_get_unchecked(1).map_err(store_error)?;
        // Without it a transaction that lost a deadlock is followed by another one, which looks as if nothing had happened.
        if !row.try_get_unchecked::<bool, _>(2).map_err(store_error)? {
            return Err(StoreError::rejected(
                "sessions of this database begin with autocommit switched off: switch it on for the store's user or connections",
            ));
        }
        let is_mariadb = version.contains("MariaDB");
        let least = if is_mariadb { (10, 6, 0) } else { (8, 0, 19) };
        if numbers(&version) < least {
            let (major, minor, patch) = least;
            let words = format!("the server's version {version} is too old: {major}.{minor}.{patch} is the least");
            return Err(StoreError::rejected(words));
        }
        Ok(Self { is_mariadb, packet_bytes_max: usize::try_from(packet).unwrap_or(1 << 20) })
    }
}

/// Runs to the end, also when the caller loses interest.
pub(crate) async fn finished<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::spawn(work).await {
        Ok(ended) => ended,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::unavailable("the runtime is shutting down")),
        },
    }
}

/// Runs again after a lost race, and to the end also when the caller loses interest.
async fn persistently<T, F>(run: impl Fn() -> F + Send + 'static) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send,
{
    finished(async move {
        let mut tries = 0;
        loop {
            match run().await {
                Err(error) if error.kind() == ErrorKind::Conflict && tries < CONFLICT_RETRIES_MAX => {
                    tries += 1;
                    tokio::time::sleep(pause(tries)).await;
                }
                ended => return ended,
            }
        }
    })
    .await
}

/// A short wait that grows and differs between sessions, so that they do not meet again.
fn pause(tries: u32) -> Duration {
    let jitter = uuid::Uuid::new_v4().as_bytes()[0];
    Duration::from_micros(u64::from(jitter) * 20 * u64::from(tries) + 100)
}

/// The name of the store: the address without user and password.
fn store_id(address: &MySqlConnectOptions) -> Result<StoreId, StoreError> {
    let host = address.get_host();
    let database = address.get_database().unwrap_or_default();
    let name = format!("mysql:{host}:{}/{database}", address.get_port());
    Ok(StoreId::new(name.chars().take(StoreId::CHARS_MAX).collect::<String>())?)
}

/// The numbers of a version such as `10.11.6-MariaDB-log`; old MariaDB servers put `5.5.5-` in front of their own.
fn numbers(version: &str) -> (u32, u32, u32) {
    let version = if version.contains("MariaDB") { version.trim_start_matches("5.5.5-") } else { version };
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

// The pool's options hold the password.
impl fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlStore")
            .field("id", &self.inner.id)
            .field("naming", &self.inner.options.naming)
            .field("server", &self.inner.server)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(numbers("10.11.6-MariaDB-0+deb12u1"), (10, 11, 6));
        assert_eq!(numbers("5.5.5-10.6.1-MariaDB"), (10, 6, 1));
        assert_eq!(numbers("8.0.36"), (8, 0, 36));
        assert_eq!(numbers("8.4.0-commercial"), (8, 4, 0));
    }

    #[test]
    fn the_handle_can_be_shared() {
        fn assert_shareable<T: Clone + Send + Sync + 'static>() {}
        assert_shareable::<MysqlStore>();
    }

    #[test]
    fn the_default_name_shows_no_secret() {
        let address = "mysql://user:canary@db.example:3307/shop?ssl-mode=disabled".parse().unwrap();
        assert_eq!(store_id(&address).unwrap().as_str(), "mysql:db.example:3307/shop");
    }
}
