//! Connections to the file: how they wait for each other, and the pool of those that read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use super::error::SqliteError;

/// The size of a page of a new file. Large objects go through fewer pages so, which is where most of the time of writing one goes;
/// a write of a small one touches a handful of pages, whatever their size, and then waits for the disk.
pub(super) const PAGE_BYTES: i64 = 16 * 1024;

/// How long a connection waits for other processes before it gives up.
pub(super) const LOCK_WAIT_LIMIT: Duration = Duration::from_secs(30);

/// The longest pause between two attempts at a lock.
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(2);

/// How many reads run at once. More would only wait for each other's turn at the disk.
const READERS_MAX: usize = 4;

/// Statements that a connection keeps prepared: more than there are in this module.
const STATEMENTS_MAX: usize = 64;

/// Opens one connection, which asks `wait` whether to try again when others have the lock. This neither reads the file nor
/// says anything about its content.
pub(super) fn connect(path: &Path, wait: fn(i32) -> bool) -> rusqlite::Result<Connection> {
    // Without the flag for URIs, a path is a path, whatever it starts with.
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

/// Settings that a connection loses when it is closed.
pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // FULL flushes the log at every commit: without it, a power failure could undo writes that were acknowledged.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A checkpoint costs flushes of its own, so it should be worth them (16 MiB of pages).
    connection.pragma_update(None, "wal_autocheckpoint", 16 * 1024 * 1024 / PAGE_BYTES)?;
    // What a burst of writes left of the log is given back at the next checkpoint.
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    // Negative: in KiB.
    connection.pragma_update(None, "cache_size", -16 * 1024)?;
    Ok(())
}

/// Waits a little before SQLite's next attempt at a lock, or tells it to give up.
///
/// SQLite's own handler soon pauses for 100 ms at a time. Locks here are held for as long as one flush takes, so a waiter
/// that sleeps so long starves among others that come fresh. The attempts are counted and not timed, because a blocking
/// callback has no other clock to ask.
pub(super) fn wait_for_lock(attempts: i32) -> bool {
    match lock_pause(attempts) {
        Some(pause) => {
            std::thread::sleep(pause);
            true
        }
        None => false,
    }
}

/// The pause after so many failed attempts, or `None` when together they have taken [`LOCK_WAIT_LIMIT`].
pub(super) fn lock_pause(attempts: i32) -> Option<Duration> {
    let attempts = u32::try_from(attempts).unwrap_or(0);
    let attempts_max = LOCK_WAIT_LIMIT.as_millis() / LOCK_PAUSE_MAX.as_millis();
    if u128::from(attempts) >= attempts_max {
        return None;
    }
    Some(Duration::from_micros(100 << attempts.min(6)).min(LOCK_PAUSE_MAX))
}

/// Whether an error says that somebody else has the lock.
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

/// The connections that read, opened when they are first needed.
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

    /// Runs `work` on a thread for blocking work, in one transaction: all that it reads is of the same moment.
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
            // The permit lives as long as the work, even when the caller has gone.
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
    fn a_lock_is_waited_for_as_long_as_promised() {
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
