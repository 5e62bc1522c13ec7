//! Keeps the write-ahead log from growing without bounds.
//!
//! SQLite copies the log into the database every few thousand pages, and restarts it when everything was copied and
//! no reader uses it. If several processes write continuously, that never happens: while one copies, another appends.
//! When the log is far too large, the writer therefore blocks other writers until the rest is copied and the readers
//! are done, and then truncates the log.

use std::fs;
use std::path::PathBuf;

use rusqlite::Connection;

use super::connection::connect;

/// A larger log is truncated.
const LOG_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// How many attempts, half a millisecond apart, truncating waits for others. A long-lived reader, such as an open
/// SQLite shell, must not block writes.
const ATTEMPTS_MAX: i32 = 400;

/// Watches the size of the log.
pub(super) struct LogGuard {
    database: PathBuf,
    log: PathBuf,
    bytes_max: u64,
    /// The size at which to act next. After a failed attempt it exceeds the limit.
    threshold_bytes: u64,
}

impl LogGuard {
    pub(super) fn new(connection: &Connection) -> Self {
        Self::with_limit(connection, LOG_BYTES_MAX)
    }

    fn with_limit(connection: &Connection, bytes_max: u64) -> Self {
        let database = connection.path().unwrap_or_default();
        Self {
            database: PathBuf::from(database),
            log: PathBuf::from(format!("{database}-wal")),
            bytes_max,
            threshold_bytes: bytes_max,
        }
    }

    /// Truncates the log if it is too large and other processes permit it. Must be called outside of a
    /// transaction.
    pub(super) fn check(&mut self) {
        let bytes = fs::metadata(&self.log).map_or(0, |log| log.len());
        if bytes < self.threshold_bytes {
            return;
        }
        self.threshold_bytes = match self.truncate() {
            Ok(true) => self.bytes_max,
            Ok(false) => bytes.saturating_add(self.bytes_max),
            Err(error) => {
                tracing::warn!(%error, bytes, "the write-ahead log could not be truncated");
                bytes.saturating_add(self.bytes_max)
            }
        };
    }

    /// Returns whether the log is empty. Uses a separate connection with a shorter wait than the writer's.
    fn truncate(&self) -> rusqlite::Result<bool> {
        let connection = connect(&self.database, |attempts| {
            std::thread::sleep(std::time::Duration::from_micros(500));
            attempts < ATTEMPTS_MAX
        })?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
            Ok(row.get::<_, i64>(0)? == 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema::open_database;

    fn write(connection: &Connection, id: i64) {
        let bytes = vec![7_u8; 64 * 1024];
        connection
            .execute("INSERT INTO bodies VALUES (?1, ?2)", (id, bytes))
            .unwrap();
    }

    #[test]
    fn a_large_log_is_truncated_unless_it_has_a_reader() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qo.db");
        let writer = open_database(&path).unwrap();
        let mut guard = LogGuard::with_limit(&writer, 200_000);
        let log_bytes =
            || fs::metadata(directory.path().join("qo.db-wal")).map_or(0, |log| log.len());

        write(&writer, 1);
        guard.check();
        assert!(log_bytes() > 0, "a small log must be left alone");
        for id in 2..6 {
            write(&writer, id);
        }
        guard.check();
        assert_eq!(log_bytes(), 0);

        let reader = open_database(&path).unwrap();
        write(&writer, 6);
        let snapshot = reader.unchecked_transaction().unwrap();
        let count = |connection: &Connection| -> i64 {
            connection
                .query_row("SELECT count(*) FROM bodies", [], |row| row.get(0))
                .unwrap()
        };
        assert_eq!(count(&snapshot), 6);
        for id in 7..12 {
            write(&writer, id);
        }
        guard.check();
        assert!(log_bytes() > 200_000, "a reader still needs the log");
        assert_eq!(count(&snapshot), 6);
        assert!(
            guard.threshold_bytes > log_bytes(),
            "must not be tried at every write"
        );
        drop(snapshot);
        for id in 12..16 {
            write(&writer, id);
        }
        guard.check();
        assert_eq!(log_bytes(), 0);
        assert_eq!(guard.threshold_bytes, 200_000);
        assert_eq!(count(&writer), 15);
    }
}
