//! The simulated object store, and each process's faulty connection to it.

mod answers;
mod bucket;
mod gate;
mod link;
mod listing;
mod request;

pub use self::bucket::{Bucket, BucketSettings, Counts};
pub use self::gate::Gate;
pub use self::link::Link;
pub use self::request::{Request, StoreReply};
