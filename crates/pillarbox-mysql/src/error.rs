//! The vendor's codes, known here and nowhere else.

use pillarbox_core::StoreError;
use pillarbox_core::schema::DEPLOY_ADVICE;
use sqlx::mysql::MySqlDatabaseError;

/// Raised by our own routine when no transaction is open.
const NO_TRANSACTION: u16 = 30_001;

/// A subquery with two rows: how a batch fails on MariaDB when no transaction is open.
const TWO_ROWS: u16 = 1242;

/// NULL for a column that takes none: how one message fails there. No statement of ours sends NULL otherwise.
const NULL_VALUE: u16 = 1048;

/// The server ended the connection, or could not speak on it.
const SESSION_ENDED: [u16; 15] =
    [1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 4031];

/// The storage engine, or a plugin that is asked at every commit, failed while a commit was under way.
const ERROR_DURING_COMMIT: u16 = 1180;
const HOOK_FAILED: u16 = 3100;

/// Turns a driver's error into ours. Its text may hold a row or a password and is left behind.
pub(crate) fn store_error(error: sqlx::Error) -> StoreError {
    of_sqlx(&error)
}

/// The same for diesel, which passes no codes on: what a caller must be able to tell apart is known by its text.
#[cfg(feature = "diesel-async")]
pub(crate) fn of_diesel(error: &diesel::result::Error) -> StoreError {
    use diesel::result::DatabaseErrorKind as Kind;
    use diesel::result::Error;
    match error {
        Error::DatabaseError(Kind::ClosedConnection | Kind::UnableToSendCommand, _) => server_error(2013),
        Error::DatabaseError(Kind::ReadOnlyTransaction, _) => server_error(1792),
        Error::DatabaseError(_, about) if about.message().starts_with("no transaction is open") => no_transaction(),
        Error::DatabaseError(_, about) if about.message().starts_with("Deadlock found") => server_error(1213),
        Error::DatabaseError(_, about) if about.message().starts_with("Lock wait timeout") => server_error(1205),
        Error::DatabaseError(..) => StoreError::rejected("the database refused the call"),
        Error::BrokenTransactionManager => no_transaction(),
        _ => StoreError::rejected("the database's answer could not be read"),
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
        DbErr::ConnectionAcquire(_) => of_sqlx(&sqlx::Error::PoolTimedOut),
        _ => StoreError::rejected("the database's answer could not be read"),
    }
}

fn of_sqlx(error: &sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(error) => match error.try_downcast_ref::<MySqlDatabaseError>() {
            Some(error) => server_error(error.number()),
            None => StoreError::rejected("the database refused the call"),
        },
        sqlx::Error::PoolTimedOut => StoreError::unavailable("no connection to the database was free in time"),
        sqlx::Error::PoolClosed => StoreError::unavailable("the connection pool is closed"),
        sqlx::Error::Io(error) => StoreError::unreachable(error.kind()),
        sqlx::Error::WorkerCrashed => StoreError::unavailable("the connection to the database is broken"),
        // The server closed the connection in the middle of an answer, or something between us and it did.
        sqlx::Error::Protocol(_) => StoreError::unavailable("the connection to the database is broken"),
        sqlx::Error::Tls(_) => {
            StoreError::unencrypted("the server offers none, or a certificate that the address names cannot be used")
        }
        sqlx::Error::Configuration(_) => StoreError::rejected(
            "the database's address cannot be read: expected mysql://user:password@host:port/database",
        ),
        sqlx::Error::BeginFailed => StoreError::unavailable("the database did not begin a transaction"),
        _ => StoreError::rejected("the database's answer could not be read"),
    }
}

/// No transaction is open where one must be.
pub(crate) fn no_transaction() -> StoreError {
    StoreError::rejected(
        "no transaction is open on this connection: begin one; after a deadlock the server has rolled it back, \
         so roll back and start again",
    )
}

/// As [`store_error`], for a savepoint: one that is not there went with its transaction.
pub(crate) fn savepoint_error(error: sqlx::Error) -> StoreError {
    if number(&error) == Some(1305) { no_transaction() } else { store_error(error) }
}

/// Whether the connection itself is spoiled: somebody left a transaction open on it.
pub(crate) fn is_dirty_connection(error: &sqlx::Error) -> bool {
    number(error) == Some(1568)
}

/// Whether a commit that failed like this may have taken effect all the same.
///
/// An error means that nothing was committed. Not so when the server ended the session, or failed in the middle of it.
pub(crate) fn is_commit_unknown(error: &sqlx::Error) -> bool {
    match number(error) {
        Some(number) => [ERROR_DURING_COMMIT, HOOK_FAILED].contains(&number) || SESSION_ENDED.contains(&number),
        None => true,
    }
}

/// Whether the table, or its database, is not there.
pub(crate) fn is_missing_table(error: &sqlx::Error) -> bool {
    number(error) == Some(1146)
}

fn number(error: &sqlx::Error) -> Option<u16> {
    error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
}

fn server_error(number: u16) -> StoreError {
    let error = match number {
        NO_TRANSACTION | TWO_ROWS | NULL_VALUE => return no_transaction(),
        1213 => StoreError::conflict("a deadlock was resolved against this call"),
        1205 => StoreError::conflict("another session held a lock for too long"),
        1020 | 3572 => StoreError::conflict("another session changed the row first"),
        // Seen where many wrote to a new table at once; the same call goes through a moment later.
        1467 => StoreError::conflict("the database had no number for the row"),
        1040 | 1203 | 1226 => StoreError::unavailable("the database has no room for another connection"),
        number if SESSION_ENDED.contains(&number) => StoreError::unavailable("the database ended the connection"),
        1317 | 1969 | 3024 => StoreError::unavailable("the database interrupted the call"),
        1021 | 1114 | 1030 | 1037 | 1041 | 1135 => {
            StoreError::unavailable("the database is out of space or memory: free some on its server")
        }
        1290 | 1836 | 1792 | 3101 => StoreError::unavailable("the database is read-only now"),
        1568 => StoreError::conflict("the pooled connection was left inside a transaction"),
        1146 | 1305 | 1054 => StoreError::rejected(format!("tables or routines are missing: {DEPLOY_ADVICE}")),
        1049 => StoreError::rejected("the database named in the address does not exist: create it first"),
        1045 | 1698 | 1251 | 1524 | 2059 => {
            StoreError::rejected("the database refused the login: check user name and password in the address")
        }
        1044 | 1142 | 1143 | 1227 | 1370 | 1419 => StoreError::rejected(
            "the database user lacks rights: grant SELECT, INSERT, UPDATE, DELETE and EXECUTE on the outbox tables and \
             routines, and CREATE, ALTER, ALTER ROUTINE and CREATE ROUTINE for deploying them",
        ),
        1153 => StoreError::rejected("the message is larger than the server's max_allowed_packet"),
        1406 | 1264 | 1366 | 1292 | 1062 => StoreError::rejected("the database refused a value"),
        _ => StoreError::rejected("the database refused the call"),
    };
    error.with_code(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillarbox_core::ErrorKind;

    /// H1: an answer that may hide a commit is never taken for a rollback.
    #[test]
    fn an_unheard_commit_is_unknown() {
        assert!(is_commit_unknown(&sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())));
        assert!(is_commit_unknown(&sqlx::Error::Protocol("half an answer".into())));
    }

    #[test]
    fn every_code_says_what_to_do() {
        let table = [
            (1213, ErrorKind::Conflict, "deadlock"),
            (1205, ErrorKind::Conflict, "lock"),
            (1467, ErrorKind::Conflict, "number"),
            (1040, ErrorKind::Unavailable, "connection"),
            (1053, ErrorKind::Unavailable, "ended"),
            (1290, ErrorKind::Unavailable, "read-only"),
            (1146, ErrorKind::Rejected, "pillarbox migrate"),
            (1305, ErrorKind::Rejected, "pillarbox migrate"),
            (1045, ErrorKind::Rejected, "password"),
            (1370, ErrorKind::Rejected, "grant"),
            (1366, ErrorKind::Rejected, "value"),
            (NO_TRANSACTION, ErrorKind::Rejected, "no transaction is open"),
            (TWO_ROWS, ErrorKind::Rejected, "no transaction is open"),
        ];
        for (number, kind, words) in table {
            let error = server_error(number);
            assert_eq!(error.kind(), kind, "{number}");
            assert!(error.to_string().contains(words), "{number}: {error}");
        }
    }
}
