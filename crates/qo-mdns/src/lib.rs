//! Announces `qo serve` by multicast DNS, and finds such servers.
//!
//! A server is an instance of the service [`SERVICE`], as DNS-SD (RFC 6763) defines it:
//!
//! | record | content |
//! | --- | --- |
//! | PTR | `_qo._tcp.local.`, and `_serval-queue._tcp.local.` for clients of queuey-queue |
//! | SRV | host and port |
//! | A, AAAA | the addresses on which the server listens |
//! | TXT | `http_port`, `version`, `path`, `scheme` |
//!
//! Announcements are not authenticated: any machine on the network can answer. So a client must not send a secret to a server that it
//! found, unless that server is on the same machine or proves its name by TLS. [`Server::is_safe_for_secrets`] says which.

mod announce;
mod discover;

pub use announce::{Announcement, Announcer};
pub use discover::{Server, discover};

/// The service that every server announces.
pub const SERVICE: &str = "_qo._tcp.local.";

/// The service of queuey-queue. It called itself `_serval:queue._tcp.local.`, but RFC 6335 permits only letters, digits and hyphens in a
/// service name.
pub const QUEUEY_SERVICE: &str = "_serval-queue._tcp.local.";

/// Multicast DNS does not work on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("multicast DNS is unavailable: {0}")]
#[non_exhaustive]
pub struct MdnsError(String);

impl From<mdns_sd::Error> for MdnsError {
    fn from(error: mdns_sd::Error) -> Self {
        Self(error.to_string())
    }
}
