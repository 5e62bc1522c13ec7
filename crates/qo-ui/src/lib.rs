//! The dashboard of qo.
//!
//! - [`assets`]: the embedded files with media type and `ETag`, for servers.
//! - [`deploy()`]: uploads the files to a bucket's `ui/`.
//! - [`link()`] and [`server_url()`]: a URL that opens the dashboard with a session in its fragment, which browsers never send to a server.

pub mod assets;
mod deploy;
mod link;

pub use deploy::{DeployError, DeployReport, FOLDER, deploy};
pub use link::{Link, LinkError, LinkRequest, ServerAccess, link, server_url};
