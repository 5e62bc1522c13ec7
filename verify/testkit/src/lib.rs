//! Servers and processes for qo's tests: a real S3 server and an Azure emulator, installed and started on demand, and cargo.
//!
//! [`SeaweedFs`] is the S3 server. The tests of a process share one, and each test creates its own bucket in it. So tests do not wait for a
//! start of three seconds each, and do not see each other's objects. [`Azurite`] is the emulator, one for each
//! test that needs it. [`LoggedProcess`] is any other process.
//!
//! ```no_run
//! let server = qo_testkit::SeaweedFs::shared()?;
//! let bucket = server.unique_bucket("conformance")?;
//! println!("{} {bucket}", server.endpoint());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate is for development only and needs a Unix with `sh`, `python3`, and Node.js with npm.

mod azurite;
mod cargo;
mod clock;
mod error;
pub mod http;
mod install;
mod logged;
pub mod ports;
mod process;
mod program;
pub mod proxy;
mod random;
mod request;
mod seaweedfs;
mod seaweedfs_process;
mod sign;
mod target_dir;

pub use azurite::Azurite;
pub use cargo::cargo;
pub use clock::wait_until;
pub use error::KitError;
pub use install::{install, jqueue_python, schemathesis};
pub use logged::LoggedProcess;
pub use program::{PROGRAM_VARIABLE, program_under_test};
pub use seaweedfs::SeaweedFs;
pub use target_dir::target_dir;
