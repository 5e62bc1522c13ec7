//! Direct access to a bucket from a browser: the bucket's location, and short-lived credentials.

use std::fmt;

use qo_core::Timestamp;

/// The location of a bucket as a browser addresses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketLocation {
    /// The server, without the bucket.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// The common prefix of the queue's keys; empty if there is none.
    pub prefix: String,
    /// The region for request signatures.
    pub region: String,
    /// Whether the bucket is part of the host name.
    pub virtual_host: bool,
    /// The base URL of the bucket. Append a slash and a key.
    pub bucket_url: String,
}

impl BucketLocation {
    /// The URL of an object, given its key below the prefix.
    pub fn url_of(&self, key: &str) -> String {
        if self.prefix.is_empty() {
            format!("{}/{key}", self.bucket_url)
        } else {
            format!("{}/{}/{key}", self.bucket_url, self.prefix)
        }
    }
}

/// The permissions of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrowserRights {
    /// List and read.
    Read,
    /// Also write and delete.
    Operate,
}

/// A request for a browser session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// The permissions of the session.
    pub rights: BrowserRights,
    /// Its lifetime in seconds.
    pub seconds: u32,
    /// The role to assume. Without one, the session has a subset of the caller's own permissions.
    pub role: Option<String>,
}

/// Credentials for a browser. `Debug` does not print them.
#[derive(Clone, PartialEq, Eq)]
pub struct BrowserCredentials {
    /// The access key id.
    pub access_key_id: String,
    /// The secret access key.
    pub secret_access_key: String,
    /// The session token, if these are session credentials.
    pub session_token: Option<String>,
    /// The expiry time, if known.
    pub expires_at: Option<Timestamp>,
}

impl fmt::Debug for BrowserCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrowserCredentials")
            .field("is_session", &self.session_token.is_some())
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}
