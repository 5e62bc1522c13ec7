//! An object store in an SQLite file.
//!
//! [`SqliteStore`] is the default store of qo. Any number of processes on one machine may open the same file.
//! SQLite's write-ahead log gives each of them consistent reads, and every write is part of an immediate transaction,
//! so that no other write can come between checking a condition and acting on it.
//!
//! - **Durable on return.** The log is flushed (`synchronous = FULL`) before a write returns.
//! - **Group commit.** Concurrent writes share one transaction and one flush (`group`).
//! - **Entity tags never repeat.** A tag is the object's generation, a counter in the file that every write
//!   increments, whatever the bytes are. Compare-and-swap is therefore immune to a value that changed and changed
//!   back. The generation is also the object's version. Only
//!   [`BucketAdmin::delete_version`](crate::admin::BucketAdmin::delete_version) of the newest version restores an
//!   older generation, together with the version that it identifies.
//! - **Crash safe.** Each write is one transaction or part of one: after a crash, SQLite finds all of it or none.
//!   Opening a new file takes two steps, see `schema`.
//!
//! Dropping the future of a write does not undo it: as with a remote store, the write may or may not take effect.

mod attributes;
mod checkpoint;
mod connection;
mod error;
mod group;
mod lifecycle;
mod list;
mod objects;
mod read;
mod rules;
mod schema;
mod upload;
mod versions;
mod write;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::runtime::Runtime;

use connection::ReaderPool;
use group::WriteQueue;
use lifecycle::LifecycleTimer;

pub use error::{SqliteError, SqliteOpenError};
pub use lifecycle::LifecycleReport;

/// The maximum size of an object in bytes.
pub const OBJECT_SIZE_LIMIT: usize = 64 * 1024 * 1024;

/// The maximum length of a key in bytes, as in S3.
pub const KEY_LENGTH_LIMIT: usize = 1024;

/// An object store in an SQLite file. Clones share the same connections.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

/// Dropping the last clone closes the queue, which ends the writer thread.
struct Inner {
    path: PathBuf,
    runtime: Arc<dyn Runtime>,
    writes: WriteQueue,
    readers: Arc<ReaderPool>,
    lifecycle: LifecycleTimer,
}

impl SqliteStore {
    /// Opens the database at `path`, creating it and its directory if they do not exist.
    ///
    /// On Unix, only the owner can read and write a new file.
    pub fn open(path: &Path, runtime: Arc<dyn Runtime>) -> Result<Self, SqliteOpenError> {
        // A relative path would refer to another file after a change of directory, and SQLite has special
        // names, such as `:memory:`, that are not paths.
        let path = &std::path::absolute(path).map_err(|error| SqliteOpenError::Unwritable {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let connection = schema::open_database(path)?;
        let writes = WriteQueue::start(connection, Arc::clone(&runtime)).map_err(|error| {
            SqliteOpenError::Other {
                path: path.to_owned(),
                reason: format!("cannot start the writer thread: {error}"),
            }
        })?;
        Ok(Self {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                lifecycle: LifecycleTimer::new(runtime.monotonic()),
                runtime,
                writes,
                readers: Arc::new(ReaderPool::new(path.to_owned())),
            }),
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }
}

impl fmt::Display for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SQLite({})", self.inner.path.display())
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.inner.path)
            .finish_non_exhaustive()
    }
}
