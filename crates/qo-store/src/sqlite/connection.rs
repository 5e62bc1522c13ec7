//! Connections to the file, their lock handling, and the pool of read connections.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use super::error::SqliteError;

/// The page size of a new file. Large pages speed up writing large objects, whose cost depends on the number of
/// pages. A small write touches a handful of pages of any size and then waits for the disk.
pub(super) const PAGE_BYTES: i64 = 16 * 1024;

/// How long a connection waits for the lock.
pub(super) const LOCK_WAIT_LIMIT: Duration = Duration::from_secs(30);

/// The maximum pause between two attempts to lock.
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(2);

/// The number of concurrent reads. More would only compete for the disk.
const READERS_MAX: usize = 4;

/// The number of cached prepared statements: more than this module uses.
const STATEMENTS_MAX: usize = 64;

/// Opens a connection. `wait` decides whether to retry when the file is locked. This does not read the file or check
/// its contents.
pub(super) fn connect(path: &Path, wait: fn(i32) -> bool) -> rusqlite::Result<Connection> {
    // Without the URI flag, every path is taken literally.
    let mut connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_handler(Some(wait))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(connection)
}

/// Settings that apply per connection.
pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // FULL flushes the log at every commit. Without it, a power failure could undo acknowledged writes.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A checkpoint has its own flushes, so it runs only every 16 MiB of pages.
    connection.pragma_update(None, "wal_autocheckpoint", 16 * 1024 * 1024 / PAGE_BYTES)?;
    // After a burst of writes, the next checkpoint truncates the log.
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    // Negative values are in KiB.
    connection.pragma_update(None, "cache_size", -16 * 1024)?;
    Ok(())
}

/// Pauses before SQLite's next attempt to lock, or tells it to give up.
///
/// SQLite's built-in handler soon pauses for 100 ms at a time. Locks here are held only for one flush, so a
/// connection that sleeps that long starves among newcomers. Attempts are counted instead of timed, because a
/// blocking callback has no access to the runtime's clock.
pub(super) fn wait_for_lock(attempts: i32) -> bool {
    match lock_pause(attempts) {
        Some(pause) => {
            std::thread::sleep(pause);
            true
        }
        None => false,
    }
}

/// The pause after this many failed attempts, or `None` once all pauses add up to [`LOCK_WAIT_LIMIT`].
pub(super) fn lock_pause(attempts: i32) -> Option<Duration> {
    let attempts = u32::try_from(attempts).unwrap_or(0);
    let attempts_max = LOCK_WAIT_LIMIT.as_millis() / LOCK_PAUSE_MAX.as_millis();
    if u128::from(attempts) >= attempts_max {
        return None;
    }
    Some(Duration::from_micros(100 << attempts.min(6)).min(LOCK_PAUSE_MAX))
}

/// Whether the error means that the file is locked.
pub(super) fn is_locked(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            rusqlite::ErrorCode::DatabaseBusy
                | rusqlite::ErrorCode::DatabaseLocked
                | rusqlite::ErrorCode::FileLockingProtocolFailed
        )
    )
}

/// The read connections, opened on first use.
pub(super) struct ReaderPool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl ReaderPool {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            idle: Mutex::new(Vec::new()),
            permits: Arc::new(Semaphore::new(READERS_MAX)),
        }
    }

    /// Runs `work` on a blocking thread in one transaction, so that all its reads see the same snapshot.
    pub(super) async fn read<T, F>(self: &Arc<Self>, work: F) -> Result<T, SqliteError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|closed| SqliteError::Other {
                detail: closed.to_string(),
            })?;
        let pool = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            // The permit lives as long as the work, even if the caller is gone.
            let _permit = permit;
            let connection = pool.take()?;
            let result = {
                let snapshot = connection.unchecked_transaction()?;
                work(&snapshot)
            };
            pool.give_back(connection);
            result
        });
        match task.await {
            Ok(result) => result.map_err(SqliteError::from),
            Err(stopped) => Err(SqliteError::Other {
                detail: stopped.to_string(),
            }),
        }
    }

    fn take(&self) -> rusqlite::Result<Connection> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        if let Some(connection) = idle {
            return Ok(connection);
        }
        let connection = connect(&self.path, wait_for_lock)?;
        configure(&connection)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }

    fn give_back(&self, connection: Connection) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_wait_matches_its_limit() {
        let mut total = Duration::ZERO;
        let mut attempts = 0;
        while let Some(pause) = lock_pause(attempts) {
            assert!(pause <= LOCK_PAUSE_MAX);
            total += pause;
            attempts += 1;
        }
        assert!(total <= LOCK_WAIT_LIMIT, "{total:?}");
        assert!(total > LOCK_WAIT_LIMIT * 9 / 10, "{total:?}");
        assert_eq!(lock_pause(-1), lock_pause(0));
        assert_eq!(lock_pause(i32::MAX), None);
    }
}
