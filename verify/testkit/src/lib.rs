//! What qo's tests stand on: a real S3 server, installed and started on demand, and cargo.
//!
//! [`SeaweedFs`] is the server. A test takes the one that its process shares and makes a bucket of its own in it, so
//! that tests neither wait for a start of three seconds each nor see each other's objects:
//!
//! ```no_run
//! let server = qo_testkit::SeaweedFs::shared()?;
//! let bucket = server.unique_bucket("conformance")?;
//! println!("{} {bucket}", server.endpoint());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate is for development only and needs a Unix with `sh` and `python3`.

mod cargo;
mod clock;
mod error;
mod install;
mod place;
mod ports;
mod process;
mod random;
mod request;
mod seaweedfs;
mod sign;

pub use cargo::cargo;
pub use clock::wait_until;
pub use error::KitError;
pub use install::{install, jqueue_python, schemathesis};
pub use seaweedfs::SeaweedFs;
