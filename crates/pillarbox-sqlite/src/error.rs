//! SQLite's result codes, known in this file only, and the words for them.
//!
//! The driver's own text is never passed on: it may quote what a user stored.

use pillarbox_core::StoreError;
use pillarbox_core::schema::DEPLOY_ADVICE;
use sqlx::error::DatabaseError;

const ERROR: i32 = 1;
const PERM: i32 = 3;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const NOMEM: i32 = 7;
const READONLY: i32 = 8;
const INTERRUPT: i32 = 9;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const PROTOCOL: i32 = 15;
const SCHEMA: i32 = 17;
const TOOBIG: i32 = 18;
const CONSTRAINT: i32 = 19;
const AUTH: i32 = 23;
const NOTADB: i32 = 26;
const BUSY_SNAPSHOT: i32 = 517;

/// What the driver reports, sorted by what the caller should do.
pub(crate) fn store_error(error: sqlx::Error) -> StoreError {
    of_sqlx(&error)
}

/// The same for SeaORM, which has sqlx below it.
#[cfg(feature = "sea-orm")]
pub(crate) fn of_sea_orm(error: &sea_orm::DbErr) -> StoreError {
    match sqlx_below(error) {
        Some(below) => of_sqlx(below),
        None => StoreError::rejected("the driver cannot make sense of the answer of SQLite"),
    }
}

/// What SeaORM had from sqlx.
#[cfg(feature = "sea-orm")]
pub(crate) fn sqlx_below(error: &sea_orm::DbErr) -> Option<&sqlx::Error> {
    use sea_orm::{DbErr, RuntimeErr};
    match error {
        DbErr::Conn(RuntimeErr::SqlxError(below))
        | DbErr::Exec(RuntimeErr::SqlxError(below))
        | DbErr::Query(RuntimeErr::SqlxError(below)) => Some(below),
        DbErr::ConnectionAcquire(_) => Some(&sqlx::Error::PoolTimedOut),
        _ => None,
    }
}

fn of_sqlx(error: &sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(database) => database_error(database.as_ref()),
        sqlx::Error::PoolTimedOut => StoreError::unavailable("no connection to the SQLite file became free in time"),
        sqlx::Error::PoolClosed => StoreError::rejected("the connection pool is closed"),
        sqlx::Error::WorkerCrashed => StoreError::unavailable("the thread of the SQLite connection has ended"),
        sqlx::Error::Io(io) => StoreError::unavailable(format!("the SQLite file cannot be reached: {}", io.kind())),
        sqlx::Error::Configuration(_) => StoreError::rejected("the address of the SQLite file is malformed"),
        _ => StoreError::rejected("the driver cannot make sense of the answer of SQLite"),
    }
}

/// Whether a `BEGIN` was refused because a transaction is open already.
pub(crate) fn is_inside_transaction(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(database) = error else { return false };
    code_of(database.as_ref()) == ERROR && database.message().contains("within a transaction")
}

/// Whether a `COMMIT` was refused because no transaction is open.
pub(crate) fn is_outside_transaction(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(database) = error else { return false };
    code_of(database.as_ref()) == ERROR && database.message().contains("no transaction is active")
}

/// Whether another connection held a lock for longer than the busy timeout, or where none applies.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|database| matches!(code_of(database) & 0xff, BUSY | LOCKED))
}

/// Whether a commit that failed like this may have taken effect all the same: SQLite did not get to answer.
pub(crate) fn is_commit_unknown(error: &sqlx::Error) -> bool {
    error.as_database_error().is_none()
}

fn database_error(error: &dyn DatabaseError) -> StoreError {
    let code = code_of(error);
    let sorted = match (code, code & 0xff) {
        (BUSY_SNAPSHOT, _) => StoreError::conflict(
            "another writer was faster than this transaction, which had only read so far: \
             begin it with `BEGIN IMMEDIATE` (`begin_with(\"BEGIN IMMEDIATE\")`)",
        ),
        (_, SCHEMA) => StoreError::conflict("the schema of the SQLite file was changed at the same moment"),
        (_, BUSY | LOCKED) => StoreError::unavailable("the SQLite file is locked by another writer"),
        (_, FULL) => StoreError::unavailable(
            "the database or disk is full: free space on the disk, or raise the limit of the file",
        ),
        (_, IOERR) => {
            StoreError::unavailable("the SQLite file cannot be read or written: check the disk, and the space on it")
        }
        (_, CANTOPEN) => StoreError::unavailable("the SQLite file cannot be opened: check its path and its directory"),
        (_, NOMEM) => StoreError::unavailable("SQLite ran out of memory"),
        (_, INTERRUPT) => StoreError::unavailable("SQLite was interrupted"),
        (_, PROTOCOL) => StoreError::unavailable("SQLite could not get its locks on the file"),
        (_, READONLY | PERM | AUTH) => {
            StoreError::rejected("the SQLite file must not be written: check its rights and those of its directory")
        }
        (_, CORRUPT) => StoreError::rejected("the SQLite file is damaged: restore it from a backup"),
        (_, NOTADB) => StoreError::rejected("the file is not an SQLite database, or it is encrypted"),
        (_, TOOBIG) => StoreError::rejected("a value is larger than SQLite can store"),
        (_, CONSTRAINT) => StoreError::rejected("a constraint of the outbox tables was violated"),
        (_, ERROR) => refused_statement(error.message()),
        _ => StoreError::rejected("SQLite refused the statement"),
    };
    sorted.with_code(code.to_string())
}

fn refused_statement(message: &str) -> StoreError {
    let is_missing = message.starts_with("no such table") || message.starts_with("no such column");
    if is_missing {
        return StoreError::rejected(format!("the tables do not exist or are too old: {DEPLOY_ADVICE}"));
    }
    StoreError::rejected("SQLite refused the statement")
}

fn code_of(error: &dyn DatabaseError) -> i32 {
    error.code().and_then(|code| code.parse().ok()).unwrap_or(ERROR)
}

#[cfg(test)]
mod tests {
    use pillarbox_core::ErrorKind;
    use sqlx::{Connection, SqliteConnection};

    use super::*;

    async fn failing(sql: &'static str) -> StoreError {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        store_error(sqlx::raw_sql(sql).execute(&mut connection).await.unwrap_err())
    }

    #[tokio::test]
    async fn missing_tables_say_what_to_run() {
        let error = failing("SELECT * FROM pillarbox_outbox").await;
        assert_eq!(error.kind(), ErrorKind::Rejected);
        assert!(error.to_string().contains("pillarbox migrate"), "{error}");
    }

    #[tokio::test]
    async fn a_full_disk_is_waited_out() {
        let error = failing("PRAGMA max_page_count = 1; CREATE TABLE t (x); CREATE TABLE u (x)").await;
        assert_eq!((error.kind(), error.code()), (ErrorKind::Unavailable, Some("13")));
        assert!(error.to_string().contains("database or disk is full"), "{error}");
    }

    /// H54: SQLite's own text of this error would quote the value.
    #[tokio::test]
    async fn no_error_quotes_what_was_stored() {
        for sql in ["CREATE TABLE t (x CHECK (x <> 'canary')); INSERT INTO t VALUES ('canary')", "SELECT canary FROM"] {
            let error = failing(sql).await;
            assert_eq!(error.kind(), ErrorKind::Rejected);
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
