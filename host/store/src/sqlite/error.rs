//! What SQLite reports, as errors of a store: codes only, as its messages could quote what is stored.

use rusqlite::ErrorCode;

use crate::StoreError;

/// Why an operation stops.
#[derive(Debug)]
pub(super) enum Fault {
    /// The store refuses it. Nothing was changed.
    Refused(StoreError),
    /// The database failed. The transaction has to be rolled back.
    Database(rusqlite::Error),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error,
            Fault::Database(error) if is_full(&error) => Self::Full,
            Fault::Database(error) => Self::Failed(describe(&error)),
        }
    }
}

pub(super) fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// Whether the database is as it was before a transaction that could not be committed.
pub(super) fn is_unchanged(error: &rusqlite::Error) -> bool {
    is_full(error) || error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

pub(super) fn describe(error: &rusqlite::Error) -> String {
    match error {
        // The text of a code, and not of the statement.
        rusqlite::Error::SqliteFailure(error, _) | rusqlite::Error::SqlInputError { error, .. } => error.to_string(),
        _ => "the database has unexpected content".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_sqlite_are_left_out() {
        let failure = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some("secret".to_owned()));
        let said = |code| StoreError::from(Fault::from(failure(code))).to_string();
        assert_eq!(said(rusqlite::ffi::SQLITE_FULL), "the disk is full");
        assert_eq!(
            said(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE),
            "the store failed: Error code 2067: constraint failed"
        );
        let odd = rusqlite::Error::InvalidColumnName("secret".to_owned());
        assert_eq!(describe(&odd), "the database has unexpected content");
    }
}
