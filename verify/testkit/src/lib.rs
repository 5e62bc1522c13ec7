//! Servers and processes for qo's tests: a real S3 server, installed and started on demand, and cargo.
//!
//! [`SeaweedFs`] is the server. The tests of a process share one, and each test creates its own bucket in it. So tests do not wait for a
//! start of three seconds each, and do not see each other's objects. [`LoggedProcess`] is any other process.
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
mod logged;
mod ports;
mod process;
mod random;
mod request;
mod seaweedfs;
mod sign;
mod target_dir;

pub use cargo::cargo;
pub use clock::wait_until;
pub use error::KitError;
pub use install::{install, jqueue_python, schemathesis};
pub use logged::LoggedProcess;
pub use seaweedfs::SeaweedFs;
