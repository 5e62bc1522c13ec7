//! Errors of the SQLite store.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::ErrorCode;
use thiserror::Error;

use super::{KEY_LENGTH_LIMIT, OBJECT_SIZE_LIMIT};
use crate::error::StoreError;

/// Why a database could not be opened. Each message is one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SqliteOpenError {
    /// The file exists and is not an SQLite database.
    #[error("{} is not an SQLite database: choose another path, or move the file", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The file is an SQLite database that belongs to another program.
    #[error("{} is an SQLite database of another program: choose another path for qo", path.display())]
    ForeignDatabase {
        /// The file.
        path: PathBuf,
    },
    /// A later release of qo wrote the file.
    #[error("{} was written by a newer qo (schema {found}, this version supports {supported}): update qo, or choose another path", path.display())]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// The schema version of the file.
        found: i64,
        /// The newest schema version that this release supports.
        supported: i64,
    },
    /// The file or its directory cannot be created or written.
    #[error("cannot write {}: {reason}; choose a path in a writable directory", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The operating system's message.
        reason: String,
    },
    /// Another error.
    #[error("cannot open the database {}: {reason}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// SQLite's message.
        reason: String,
    },
}

/// Why a read or write failed. It is the source of an [`object_store::Error::Generic`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// Other processes held the lock for too long.
    #[error("the database was locked by other processes for more than {} s", super::connection::LOCK_WAIT_LIMIT.as_secs())]
    Busy,
    /// There is no space left for the database.
    #[error("the disk of the database is full: free some space")]
    DiskFull,
    /// The operating system failed to read or write the file.
    #[error("the database file could not be read or written: {detail}")]
    Io {
        /// SQLite's message.
        detail: String,
    },
    /// The contents of the file are invalid.
    #[error("the database file is damaged: {detail}")]
    Corrupt {
        /// What is wrong.
        detail: String,
    },
    /// The file is read-only.
    #[error("the database file is read-only: make the file and its directory writable")]
    ReadOnly,
    /// The object exceeds the size limit.
    #[error(
        "an object of {size} bytes is too large: the limit of SQLite stores is {OBJECT_SIZE_LIMIT}"
    )]
    TooLarge {
        /// The size of the object, or of the part that had arrived.
        size: usize,
    },
    /// The key is empty or too long.
    #[error("a key of {length} bytes is invalid: keys have 1 to {KEY_LENGTH_LIMIT} bytes")]
    KeyLength {
        /// The key's length in bytes.
        length: usize,
    },
    /// The object's attributes cannot be stored.
    #[error("the attributes cannot be stored: {detail}")]
    Attributes {
        /// The reason.
        detail: String,
    },
    /// A conditional write has neither an entity tag nor a version.
    #[error("a conditional write needs an entity tag or a version")]
    MissingTag,
    /// The upload was already completed or aborted.
    #[error("the upload was already completed or aborted")]
    UploadFinished,
    /// The writer thread has stopped.
    #[error("the writer thread has stopped: open the store again")]
    WriterStopped,
    /// Another error.
    #[error("SQLite failed: {detail}")]
    Other {
        /// SQLite's message.
        detail: String,
    },
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        let detail = error.to_string();
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed,
            ) => Self::Busy,
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => Self::Io { detail },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt { detail },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly,
            _ => Self::Other { detail },
        }
    }
}

impl From<SqliteError> for object_store::Error {
    fn from(error: SqliteError) -> Self {
        // What a retry cannot change is not supported; anything else may be temporary.
        if matches!(
            error,
            SqliteError::TooLarge { .. } | SqliteError::KeyLength { .. }
        ) {
            return Self::NotSupported {
                source: Box::new(error),
            };
        }
        Self::Generic {
            store: "SQLite",
            source: Box::new(error),
        }
    }
}

impl SqliteError {
    /// Converts to a [`StoreError`] of a request for `key` that took `elapsed`.
    pub(super) fn into_store_error(
        self,
        key: &str,
        elapsed: Duration,
        is_write: bool,
    ) -> StoreError {
        let key = key.to_owned();
        let detail = self.to_string();
        match self {
            Self::Corrupt { .. } => StoreError::Corrupt { key, detail },
            Self::ReadOnly => StoreError::Denied { key, detail },
            _ => StoreError::Unavailable {
                key,
                detail,
                attempts: 1,
                elapsed,
                // A failed commit means that nothing was stored, but a failing disk may be wrong
                // about that.
                in_doubt: is_write && matches!(self, Self::Io { .. } | Self::WriterStopped),
            },
        }
    }
}

/// The error for inconsistent rows.
pub(super) fn damaged(detail: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(
        rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
        Some(detail),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sqlite(code: i32) -> SqliteError {
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None).into()
    }

    #[test]
    fn sqlite_codes_map_to_distinct_errors() {
        use rusqlite::ffi;
        assert_eq!(sqlite(ffi::SQLITE_BUSY), SqliteError::Busy);
        assert_eq!(sqlite(ffi::SQLITE_FULL), SqliteError::DiskFull);
        assert!(matches!(
            sqlite(ffi::SQLITE_IOERR_FSYNC),
            SqliteError::Io { .. }
        ));
        assert!(matches!(
            sqlite(ffi::SQLITE_CORRUPT),
            SqliteError::Corrupt { .. }
        ));
        assert_eq!(sqlite(ffi::SQLITE_READONLY), SqliteError::ReadOnly);
        let generic = object_store::Error::from(SqliteError::DiskFull);
        assert!(
            matches!(
                &generic,
                object_store::Error::Generic {
                    store: "SQLite",
                    ..
                }
            ),
            "{generic}"
        );
        assert!(generic.to_string().contains("full"), "{generic}");
    }

    #[test]
    fn only_a_write_can_be_in_doubt() {
        let io = sqlite(rusqlite::ffi::SQLITE_IOERR);
        for is_write in [false, true] {
            match io.clone().into_store_error("k", Duration::ZERO, is_write) {
                StoreError::Unavailable { in_doubt, .. } => assert_eq!(in_doubt, is_write),
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn what_a_retry_cannot_change_is_not_retried() {
        for (error, is_transient) in [
            (SqliteError::TooLarge { size: 1 }, false),
            (SqliteError::KeyLength { length: 0 }, false),
            (SqliteError::Busy, true),
        ] {
            let failure = crate::client::Failure::of(&object_store::Error::from(error));
            assert_eq!(failure.is_transient(), is_transient, "{failure:?}");
        }
    }
}
