//! The tables, and how a file is created or recognised as a qo database.
//!
//! - `bucket` has one row: the last generation, the versioning, and the rules.
//! - `objects` is what a plain read or list sees: one row per key, without the bytes, so that lists are fast.
//! - `versions` has replaced versions and delete markers. Only a delete marker that is the newest version of its key
//!   has a null `noncurrent_since_ms`. The row in `objects`, if any, is newer than all of these.
//! - `bodies` has the bytes, in chunks by generation, so they never move when a version becomes current or
//!   noncurrent. Generations grow, so new bytes are appended at the end of the table. An empty object has no row
//!   here.
//!
//! A new file is created in two steps, and any number of processes may do so at once. The first step switches to the
//! write-ahead log. A crash after it leaves an empty database, which counts as new. The second step is one
//! transaction that checks again that the database is empty, creates the tables and marks the file as qo's.

use std::fs;
use std::path::Path;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::connection::{PAGE_BYTES, configure, connect, is_locked, lock_pause, wait_for_lock};
use super::error::SqliteOpenError;

/// Identifies a qo file: `qoob` in ASCII.
const APPLICATION_ID: i64 = 0x716f_6f62;

/// The newest schema version that this code supports.
const SCHEMA_VERSION: i64 = 1;

const CREATE_TABLES: &str = "
CREATE TABLE bucket (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    last_generation INTEGER NOT NULL,
    versioning INTEGER NOT NULL,
    cors TEXT NOT NULL,
    lifecycle TEXT NOT NULL
);
INSERT INTO bucket VALUES (1, 0, 0, '[]', '[]');
CREATE TABLE objects (
    key TEXT PRIMARY KEY,
    generation INTEGER NOT NULL,
    last_modified_ms INTEGER NOT NULL,
    size INTEGER NOT NULL,
    attributes TEXT,
    unversioned INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE versions (
    key TEXT NOT NULL,
    generation INTEGER NOT NULL,
    last_modified_ms INTEGER NOT NULL,
    size INTEGER NOT NULL,
    attributes TEXT,
    unversioned INTEGER NOT NULL,
    is_delete_marker INTEGER NOT NULL,
    noncurrent_since_ms INTEGER,
    PRIMARY KEY (key, generation)
) WITHOUT ROWID;
CREATE TABLE bodies (
    id INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
);
";

/// The contents of a file.
enum Content {
    New,
    Current,
    Newer(i64),
    Foreign,
}

/// Opens the file for writing, after creating or checking its contents.
pub(super) fn open_database(path: &Path) -> Result<Connection, SqliteOpenError> {
    let unwritable = |error: &std::io::Error| SqliteOpenError::Unwritable {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    if path.is_dir() {
        return Err(SqliteOpenError::Unwritable {
            path: path.to_owned(),
            reason: "it is a directory".to_owned(),
        });
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|error| unwritable(&error))?;
    }
    let is_missing = !path.exists();
    let mut attempts = 0;
    loop {
        match prepare(path, is_missing) {
            Ok(Prepared::Ready(connection)) => return Ok(connection),
            Ok(Prepared::Refused(refusal)) => return Err(refusal),
            // While others use the file, the switch to the write-ahead log fails at once, without calling
            // the busy handler.
            Err(error) if is_locked(&error) => match lock_pause(attempts) {
                Some(pause) => std::thread::sleep(pause),
                None => return Err(explain(path, &error)),
            },
            Err(error) => return Err(explain(path, &error)),
        }
        attempts += 1;
    }
}

enum Prepared {
    Ready(Connection),
    Refused(SqliteOpenError),
}

fn prepare(path: &Path, is_missing: bool) -> rusqlite::Result<Prepared> {
    let mut connection = connect(path, wait_for_lock)?;
    if is_missing {
        restrict_to_owner(path);
    }
    match inspect(&connection)? {
        Content::Foreign => {
            return Ok(Prepared::Refused(SqliteOpenError::ForeignDatabase {
                path: path.to_owned(),
            }));
        }
        Content::Newer(found) => {
            return Ok(Prepared::Refused(SqliteOpenError::NewerSchema {
                path: path.to_owned(),
                found,
                supported: SCHEMA_VERSION,
            }));
        }
        Content::New | Content::Current => {}
    }
    if connection.is_readonly("main")? {
        return Ok(Prepared::Refused(SqliteOpenError::Unwritable {
            path: path.to_owned(),
            reason: "the file is read-only".to_owned(),
        }));
    }
    // Takes effect only for a new file.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Ok(Prepared::Refused(SqliteOpenError::Other {
            path: path.to_owned(),
            reason: format!(
                "its file system does not support a write-ahead log (journal mode {mode}): choose a path on a local disk"
            ),
        }));
    }
    configure(&connection)?;
    create_tables_if_new(&mut connection)?;
    Ok(Prepared::Ready(connection))
}

fn create_tables_if_new(connection: &mut Connection) -> rusqlite::Result<()> {
    if !matches!(inspect(connection)?, Content::New) {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have created them in the meantime.
    if matches!(inspect(&transaction)?, Content::New) {
        transaction.execute_batch(CREATE_TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    transaction.commit()
}

fn inspect(connection: &Connection) -> rusqlite::Result<Content> {
    // A single statement, so that all values are from one snapshot.
    let (application, version, tables): (i64, i64, i64) = connection.query_row(
        "SELECT a.application_id, u.user_version, (SELECT count(*) FROM sqlite_schema)
         FROM pragma_application_id AS a, pragma_user_version AS u",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    Ok(match (application, version, tables) {
        (0, 0, 0) => Content::New,
        (APPLICATION_ID, SCHEMA_VERSION, _) => Content::Current,
        (APPLICATION_ID, newer, _) if newer > SCHEMA_VERSION => Content::Newer(newer),
        _ => Content::Foreign,
    })
}

/// Restricts the file to its owner, because tasks may be confidential. The log inherits the mode.
///
/// The mode is set by path. Opening and closing the file here would release the locks of this process's other
/// connections, because any close releases all POSIX locks of the process.
fn restrict_to_owner(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Some file systems have no modes. The database works without them.
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
    }
    #[cfg(not(unix))]
    let _ = path;
}

fn explain(path: &Path, error: &rusqlite::Error) -> SqliteOpenError {
    let path_buf = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => SqliteOpenError::NotADatabase { path: path_buf },
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
            SqliteOpenError::Unwritable {
                path: path_buf,
                reason: system_reason(path).unwrap_or_else(|| error.to_string()),
            }
        }
        _ => SqliteOpenError::Other {
            path: path_buf,
            reason: super::error::SqliteError::from(clone_failure(error)).to_string(),
        },
    }
}

/// The operating system's reason why a file cannot be created, which SQLite does not report.
///
/// An existing file is not opened for this, see [`restrict_to_owner`].
fn system_reason(path: &Path) -> Option<String> {
    if path.exists() {
        return Some(
            "the file belongs to another user, or it or its directory is read-only".to_owned(),
        );
    }
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .err()
        .map(|error| error.to_string())
}

fn clone_failure(error: &rusqlite::Error) -> rusqlite::Error {
    let code = error
        .sqlite_error()
        .map_or(rusqlite::ffi::SQLITE_ERROR, |failure| failure.extended_code);
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_becomes_a_recognised_database() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/er/qo.db");
        drop(open_database(&path).unwrap());
        let again = open_database(&path).unwrap();
        let mode: String = again.pragma_query_one(None, "journal_mode").unwrap();
        let synchronous: i64 = again.pragma_query_one(None, "synchronous").unwrap();
        assert_eq!((mode.as_str(), synchronous), ("wal", 2));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_database_left_between_the_two_steps_counts_as_new() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qo.db");
        let connection = connect(&path, wait_for_lock).unwrap();
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .unwrap();
        drop(connection);
        let opened = open_database(&path).unwrap();
        assert!(matches!(inspect(&opened).unwrap(), Content::Current));
    }
}
