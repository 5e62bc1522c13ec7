//! The dashboard: its files inside the program, a bucket that serves them, and links that open them.
//!
//! - [`assets`]: every file with its type and its tag, for servers that embed the dashboard.
//! - [`deploy()`]: the files in a bucket's `ui/`.
//! - [`link()`]: an address that carries a session in its fragment, which no server ever sees.

pub mod assets;
mod deploy;
mod link;

pub use deploy::{DeployError, DeployReport, FOLDER, deploy};
pub use link::{Link, LinkError, LinkWish, link};
