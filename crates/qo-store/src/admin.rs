//! What qo needs of a bucket beyond objects: versions, versioning, CORS and lifecycle rules.
//!
//! The `object_store` trait has none of these. [`BucketAdmin`] is implemented for S3, with the crate's own request signer,
//! and for SQLite, where versions are rows.

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;
use qo_core::Timestamp;

use crate::browser::{BrowserCredentials, BrowserPlace, SessionWish};
use crate::error::StoreError;

/// One stored version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVersion {
    /// The store's name for this version.
    pub version: String,
    /// When it was written.
    pub last_modified: Timestamp,
    /// Whether it is what a plain read returns.
    pub is_latest: bool,
    /// Whether it marks a deletion instead of holding bytes.
    pub is_delete_marker: bool,
    /// Its size in bytes; 0 for a delete marker.
    pub size: u64,
    /// Its entity tag, absent for a delete marker.
    pub e_tag: Option<String>,
}

/// The versions of one object, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionList {
    /// Newest first.
    pub versions: Vec<ObjectVersion>,
    /// Whether there are older ones beyond the limit that was asked for.
    pub truncated: bool,
}

/// Whether a bucket keeps what is overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versioning {
    /// Never switched on: an overwrite is the end of what was there.
    Off,
    /// Every overwrite and every delete keeps what was there.
    On,
    /// Switched off after having been on: old versions stay, new ones are not kept.
    Suspended,
}

/// One rule of who may call the bucket from a browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsRule {
    /// Origins, such as `https://qo.example.org`, or `*`.
    pub allowed_origins: Vec<String>,
    /// HTTP methods.
    pub allowed_methods: Vec<String>,
    /// Request headers, or `*`.
    pub allowed_headers: Vec<String>,
    /// Response headers that a script may read.
    pub expose_headers: Vec<String>,
    /// How long a browser may remember the answer.
    pub max_age_seconds: u32,
}

/// One rule of what the bucket removes by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleRule {
    /// A name that is unique in the bucket. Rules whose name starts with `qo-` are qo's own.
    pub id: String,
    /// The keys that it applies to.
    pub prefix: String,
    /// Remove objects this many days after they were written.
    pub expire_days: Option<u32>,
    /// Remove replaced versions this many days after they were replaced.
    pub expire_noncurrent_days: Option<u32>,
    /// Remove delete markers that hide nothing any more.
    pub expire_delete_markers: bool,
    /// Abort multipart uploads that were left unfinished for this many days.
    pub abort_multipart_days: Option<u32>,
}

/// Versions, versioning, CORS and lifecycle rules of one bucket.
///
/// Keys are full keys within the store as its user sees it: a prefix given in the store's URL is added here, as it is for
/// objects.
#[async_trait]
pub trait BucketAdmin: Debug + Send + Sync + 'static {
    /// The newest `limit` versions of one object, newest first. An unknown key has none.
    async fn list_versions(&self, key: &str, limit: usize) -> Result<VersionList, StoreError>;

    /// The bytes of one version.
    async fn get_version(&self, key: &str, version: &str) -> Result<Bytes, StoreError>;

    /// Removes one version for good. Removing what is not there succeeds.
    async fn delete_version(&self, key: &str, version: &str) -> Result<(), StoreError>;

    /// Whether the bucket keeps versions.
    async fn versioning(&self) -> Result<Versioning, StoreError>;

    /// Switches versions on or off. S3 turns `Off` into `Suspended` where versioning was once on.
    async fn set_versioning(&self, versioning: Versioning) -> Result<(), StoreError>;

    /// The CORS rules; empty where none are set.
    async fn cors(&self) -> Result<Vec<CorsRule>, StoreError>;

    /// Replaces all CORS rules; an empty list removes them.
    async fn set_cors(&self, rules: &[CorsRule]) -> Result<(), StoreError>;

    /// The lifecycle rules; empty where none are set.
    async fn lifecycle(&self) -> Result<Vec<LifecycleRule>, StoreError>;

    /// Replaces all lifecycle rules; an empty list removes them.
    async fn set_lifecycle(&self, rules: &[LifecycleRule]) -> Result<(), StoreError>;

    /// Where a browser finds the bucket, if it can call it at all.
    fn browser_place(&self) -> Option<BrowserPlace> {
        None
    }

    /// The credentials with which requests are signed.
    async fn own_credentials(&self) -> Result<BrowserCredentials, StoreError> {
        Err(no_browsers("handing over credentials"))
    }

    /// Makes credentials that end by themselves and may do no more than asked, where the store can.
    async fn browser_session(&self, _wish: &SessionWish) -> Result<BrowserCredentials, StoreError> {
        Err(no_browsers("making a session"))
    }

    /// Lets everybody read what lies below a folder. Says whether that had to be changed.
    async fn publish(&self, _folder: &str) -> Result<bool, StoreError> {
        Err(no_browsers("publishing a folder"))
    }
}

fn no_browsers(operation: &'static str) -> StoreError {
    StoreError::Unsupported {
        operation,
        detail: "a browser cannot call this kind of store by itself".to_owned(),
    }
}
