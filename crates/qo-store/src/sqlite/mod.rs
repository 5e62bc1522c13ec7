//! One SQLite file as an object store.
//!
//! [`SqliteStore`] is what qo runs on when nothing is configured. Any number of processes on one machine may open the same
//! file: SQLite's write-ahead log gives each of them consistent reads, and every write is part of an immediate
//! transaction, so that checking a condition and acting on it cannot be interleaved with anybody else's write.
//!
//! - **Durable on return.** The log is flushed (`synchronous = FULL`) before a write is answered.
//! - **Group commit.** Writes that wait at the same time share one transaction and one flush (`group`).
//! - **Entity tags never repeat.** A tag is the object's generation, a number that the file counts up with every write,
//!   whatever the bytes are. Compare-and-swap is therefore immune to a value that changed and changed back. The same
//!   number is the object's version. Only [`BucketAdmin::delete_version`](crate::admin::BucketAdmin::delete_version) of
//!   the newest version brings an older generation back, together with the very version that it names.
//! - **A crash is harmless at every point.** Each write is one transaction or a part of one: after a crash, SQLite finds
//!   all of it or nothing of it. Opening a new file takes two steps, see `schema`.
//!
//! A caller that stops waiting for a write (by dropping its future) does not undo it: as with a store behind a network,
//! the write may take effect or not.

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

pub use error::{SqliteError, SqliteOpenError};
pub use lifecycle::LifecycleReport;

/// The largest object, in bytes.
pub const OBJECT_SIZE_LIMIT: usize = 64 * 1024 * 1024;

/// The longest key, in bytes, as in S3.
pub const KEY_LENGTH_LIMIT: usize = 1024;

/// An object store in one SQLite file. Clones share the same connections.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

/// When the last clone is gone the queue closes, and with it the writer's thread ends.
struct Inner {
    path: PathBuf,
    runtime: Arc<dyn Runtime>,
    writes: WriteQueue,
    readers: Arc<ReaderPool>,
}

impl SqliteStore {
    /// Opens the database at `path`, and creates it, and the directory that it is in, if they are missing.
    ///
    /// On Unix a new file is readable and writable by its owner alone.
    pub fn open(path: &Path, runtime: Arc<dyn Runtime>) -> Result<Self, SqliteOpenError> {
        // A relative path would name another file once the process changes its directory, and SQLite has names of its own,
        // such as `:memory:`, that are no paths at all.
        let path = &std::path::absolute(path).map_err(|error| SqliteOpenError::Unwritable {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let connection = schema::open_database(path)?;
        let writes = WriteQueue::start(connection, Arc::clone(&runtime)).map_err(|error| {
            SqliteOpenError::Other {
                path: path.to_owned(),
                reason: format!("cannot start the writer's thread: {error}"),
            }
        })?;
        Ok(Self {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                runtime,
                writes,
                readers: Arc::new(ReaderPool::new(path.to_owned())),
            }),
        })
    }

    /// The file that this store is in.
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
