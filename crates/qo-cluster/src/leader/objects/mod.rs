//! Objects in the rows, replicated like everything else: large payloads, worker records, tokens and blobs.
//!
//! | key | value |
//! | --- | --- |
//! | `o`, path | the size, the time of the write, the number of parts, and their id |
//! | `x`, id, position | a part of an object |
//! | `u`, id | the number of parts of an object that is being written |
//!
//! | step of a write | effect of a crash right after it |
//! | --- | --- |
//! | 1. for an object of several parts: a `u` row, and one entry for each part | parts without an object, which the next leader deletes |
//! | 2. the condition of the write is compared with the `o` row | the same |
//! | 3. the `o` row, without the `u` row and the parts of the object before it: **written** | none |
//!
//! **Conditional writes.** Only the leader of an epoch changes rows in it, so it is enough that steps 2 and 3 of writes to one path follow
//! each other in the leader. They hold a lock of the path, and run as a task of their own: a caller that gives up does not release the lock
//! while its entry is in flight. If an entry fails, it may still be applied, and a later write would compare with outdated rows. So the leader
//! then ends its epoch, and starts again with a new barrier.
//!
//! [`ClusterObjects`] belongs to a leader and its epoch. [`NodeObjects`] belongs to a node: it reads the node's own rows, and writes while
//! the node leads.

mod manifest;
mod node;
mod read;
mod write;

use object_store::Error;
use object_store::path::Path;

pub use node::NodeObjects;
pub(super) use node::client;
pub(crate) use write::ClusterObjects;

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic {
        store: "cluster",
        source: Box::new(error),
    }
}

fn unsupported(operation: &str) -> Error {
    Error::NotImplemented {
        operation: operation.to_owned(),
        implementer: "cluster".to_owned(),
    }
}

fn not_found(path: &Path) -> Error {
    Error::NotFound {
        path: path.to_string(),
        source: "there is no such object".into(),
    }
}
