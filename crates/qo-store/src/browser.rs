//! What a browser needs to call a bucket by itself: where it is, and credentials that end soon.

use std::fmt;

use qo_core::Timestamp;

/// Where a bucket is, as a browser addresses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserPlace {
    /// The server, without the bucket.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// What all keys of the queue start with; empty where there is none.
    pub prefix: String,
    /// The region that signatures name.
    pub region: String,
    /// Whether the bucket is part of the server's name.
    pub virtual_host: bool,
    /// What a slash and a key within the bucket are appended to.
    pub bucket_url: String,
}

impl BrowserPlace {
    /// The address of an object, by its key below the prefix.
    pub fn url_of(&self, key: &str) -> String {
        if self.prefix.is_empty() {
            format!("{}/{key}", self.bucket_url)
        } else {
            format!("{}/{}/{key}", self.bucket_url, self.prefix)
        }
    }
}

/// What a session may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrowserRights {
    /// List and read.
    Read,
    /// Write and delete, too.
    Operate,
}

/// A session to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionWish {
    /// What it may do.
    pub rights: BrowserRights,
    /// How long it lasts.
    pub seconds: u32,
    /// The role that it has; without one, the caller's own rights are narrowed.
    pub role: Option<String>,
}

/// Credentials to hand over. They are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct BrowserCredentials {
    /// Names the key.
    pub access_key_id: String,
    /// The key.
    pub secret_access_key: String,
    /// Makes it a session, where it is one.
    pub session_token: Option<String>,
    /// When it ends, if that is known.
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
