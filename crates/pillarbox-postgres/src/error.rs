//! What PostgreSQL's codes mean for a caller. The only file that knows them.

use pillarbox_core::StoreError;
use pillarbox_core::schema::DEPLOY_ADVICE;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// Translates a driver's error into our own words.
///
/// The driver's text is dropped for everything that concerns data: PostgreSQL puts failing rows into it.
pub(crate) fn store_error(error: sqlx::Error) -> StoreError {
    of_sqlx(&error)
}

/// The same for tokio-postgres.
#[cfg(feature = "tokio-postgres")]
pub(crate) fn of_tokio_postgres(error: &tokio_postgres::Error) -> StoreError {
    match error.as_db_error() {
        Some(database) => {
            from_code(database.code().code(), database.message(), database.table(), database.constraint())
        }
        None => broken_connection(),
    }
}

/// The same for diesel, which passes no codes on.
#[cfg(feature = "diesel-async")]
pub(crate) fn of_diesel(error: &diesel::result::Error) -> StoreError {
    use diesel::result::DatabaseErrorKind as Kind;
    use diesel::result::Error;
    match error {
        Error::DatabaseError(Kind::SerializationFailure, _) => from_code("40001", "", None, None),
        Error::DatabaseError(Kind::ReadOnlyTransaction, _) => from_code("25006", "", None, None),
        Error::DatabaseError(Kind::ClosedConnection | Kind::UnableToSendCommand, _) => broken_connection(),
        Error::DatabaseError(_, about) => refused(about.table_name(), about.constraint_name()),
        Error::BrokenTransactionManager => from_code("25P02", "", None, None),
        _ => StoreError::rejected("the database's answer could not be read: is the schema ours?"),
    }
}

/// The same for SeaORM, which has sqlx below it.
#[cfg(feature = "sea-orm")]
pub(crate) fn of_sea_orm(error: &sea_orm::DbErr) -> StoreError {
    use sea_orm::{DbErr, RuntimeErr};
    match error {
        DbErr::Conn(RuntimeErr::SqlxError(below))
        | DbErr::Exec(RuntimeErr::SqlxError(below))
        | DbErr::Query(RuntimeErr::SqlxError(below)) => of_sqlx(below),
        DbErr::ConnectionAcquire(_) => StoreError::unavailable("no connection became free in time"),
        _ => StoreError::rejected("the database's answer could not be read: is the schema ours?"),
    }
}

fn of_sqlx(error: &sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(database) => {
            let database = database.downcast_ref::<PgDatabaseError>();
            from_code(database.code(), database.message(), database.table(), database.constraint())
        }
        sqlx::Error::Io(io) => StoreError::unreachable(io.kind()),
        sqlx::Error::Tls(_) => {
            StoreError::unencrypted("the server offers none, or a certificate that the address names cannot be used")
        }
        sqlx::Error::PoolTimedOut => {
            StoreError::unavailable("no connection became free in time: raise the pool's maximum or lower the load")
        }
        sqlx::Error::PoolClosed => StoreError::unavailable("the connection pool was closed"),
        sqlx::Error::WorkerCrashed | sqlx::Error::Protocol(_) => broken_connection(),
        sqlx::Error::Configuration(_) => {
            StoreError::rejected("the database URL is malformed: expected postgres://user:password@host:port/database")
        }
        sqlx::Error::ColumnDecode { index, .. } => {
            StoreError::rejected(format!("column {index} holds what this program cannot read: is the schema ours?"))
        }
        other => StoreError::rejected(format!("the database driver failed: {}", kind_of(other))),
    }
}

/// Whether the session lost a race that another try may win.
pub(crate) fn is_race(error: &StoreError) -> bool {
    matches!(error.code(), Some("40P01" | "40001"))
}

/// Whether a settlement that is made as a whole or not at all was not made: `outbox_settle` says so.
pub(crate) fn is_not_whole(error: &StoreError) -> bool {
    error.code() == Some("PBX01")
}

/// A claim in a session whose transactions look at old snapshots unless told otherwise.
pub(crate) fn is_old_snapshot(error: &StoreError) -> bool {
    error.code() == Some("PBX02")
}

/// Whether a prepared statement was looked for on a connection that never saw it, as happens behind a pooler.
///
/// A value that is missing is one that the statement's guard has taken away: none of ours sends NULL for it.
pub(crate) fn is_foreign_connection(error: &StoreError) -> bool {
    matches!(error.code(), Some("26000" | "42P05" | "08P01" | "23502"))
}

/// Whether a commit that failed like this may have taken effect all the same.
///
/// An error means a rollback. Not so when the session ends with it, or when nobody could hear the answer.
pub(crate) fn is_commit_unknown(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(database) = error else { return true };
    let database = database.downcast_ref::<PgDatabaseError>();
    let ends_session = matches!(database.severity(), PgSeverity::Fatal | PgSeverity::Panic);
    ends_session || database.code().starts_with("08") || database.code() == "40003"
}

/// Whether a commit found no open transaction.
pub(crate) fn is_no_transaction(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|database| database.code().as_deref() == Some("25P01"))
}

fn from_code(code: &str, message: &str, table: Option<&str>, constraint: Option<&str>) -> StoreError {
    let error = match code {
        "40P01" | "40001" | "55P03" => StoreError::conflict("another session was faster, again and again"),
        "25P02" => StoreError::rejected("the transaction has failed before: roll it back and start again"),
        "25006" => StoreError::unavailable("the database is read-only: connect to the primary"),
        "42P01" | "3F000" | "42883" => StoreError::rejected(format!("the tables do not exist: {DEPLOY_ADVICE}")),
        "42501" => StoreError::rejected(format!(
            "the database user lacks a right: {message}; `pillarbox doctor` names those that are missing"
        )),
        "28P01" | "28000" => StoreError::rejected("the database refused user or password: check both in the address"),
        "3D000" => StoreError::rejected(format!("{message}: create it first, or correct the address")),
        "26000" | "42P05" => StoreError::unavailable(
            "prepared statements got lost between connections: a pooler in transaction mode needs `behind_pooler`",
        ),
        "53100" => StoreError::unavailable("the database's disk is full: free space on its server"),
        "53300" => StoreError::unavailable("the database has no connection left"),
        "57014" => StoreError::unavailable("the statement was cancelled by the server's time limit or an operator"),
        _ if code.starts_with("08") || code.starts_with("57") => {
            StoreError::unavailable(format!("the database cannot serve now: {message}"))
        }
        _ if code.starts_with("53") || code.starts_with("58") => {
            StoreError::unavailable("the database has run out of a resource or failed inside")
        }
        // Classes 22 and 23 quote values in their texts, and so may others.
        _ => refused(table, constraint),
    };
    error.with_code(code)
}

fn refused(table: Option<&str>, constraint: Option<&str>) -> StoreError {
    StoreError::rejected(format!(
        "the database refused the statement{}{}",
        table.map(|table| format!(" on table {table}")).unwrap_or_default(),
        constraint.map(|name| format!(" by constraint {name}")).unwrap_or_default(),
    ))
}

fn broken_connection() -> StoreError {
    StoreError::unavailable("the connection to the database broke")
}

fn kind_of(error: &sqlx::Error) -> &'static str {
    match error {
        sqlx::Error::RowNotFound => "a row is missing",
        sqlx::Error::ColumnNotFound(_) | sqlx::Error::ColumnIndexOutOfBounds { .. } => "a column is missing",
        sqlx::Error::Encode(_) | sqlx::Error::Decode(_) => "a value could not be translated",
        sqlx::Error::BeginFailed => "no transaction could be begun",
        _ => "for a reason of its own",
    }
}

#[cfg(test)]
mod tests {
    use pillarbox_core::ErrorKind;

    use super::*;

    #[test]
    fn every_class_of_codes_has_its_kind() {
        let table = [
            ("40P01", ErrorKind::Conflict),
            ("40001", ErrorKind::Conflict),
            ("57P01", ErrorKind::Unavailable),
            ("57014", ErrorKind::Unavailable),
            ("53300", ErrorKind::Unavailable),
            ("53100", ErrorKind::Unavailable),
            ("08006", ErrorKind::Unavailable),
            ("25006", ErrorKind::Unavailable),
            ("42P01", ErrorKind::Rejected),
            ("42501", ErrorKind::Rejected),
            ("28P01", ErrorKind::Rejected),
            ("23505", ErrorKind::Rejected),
            ("22021", ErrorKind::Rejected),
            ("XX000", ErrorKind::Rejected),
        ];
        for (code, kind) in table {
            assert_eq!(from_code(code, "", None, None).kind(), kind, "{code}");
        }
    }

    /// H54: errors about data do not repeat the data.
    #[test]
    fn the_servers_text_is_dropped_for_errors_about_data() {
        for code in ["23514", "22P02", "22021", "23502", "XX000", "P0001"] {
            let error = from_code(code, "canary", Some("outbox"), Some("some_check"));
            assert!(!format!("{error} {error:?}").contains("canary"), "{code}");
        }
    }
}
