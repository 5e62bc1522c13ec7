//! Bucket features beyond objects: versions, versioning, CORS and lifecycle rules.
//!
//! The `object_store` trait has none of these. [`BucketAdmin`] is implemented for S3, using the request signer of
//! `object_store`, and for SQLite, where versions are rows.

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;
use qo_core::Timestamp;

use crate::browser::{BrowserCredentials, BucketLocation, SessionRequest};
use crate::error::StoreError;

/// One stored version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVersion {
    /// The store's id of this version.
    pub version: String,
    /// When it was written.
    pub last_modified: Timestamp,
    /// Whether a plain read returns this version.
    pub is_latest: bool,
    /// Whether it is a delete marker, which has no bytes.
    pub is_delete_marker: bool,
    /// Its size in bytes; 0 for a delete marker.
    pub size: u64,
    /// Its entity tag; `None` for a delete marker.
    pub e_tag: Option<String>,
}

/// The versions of one object, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionList {
    /// The versions, newest first.
    pub versions: Vec<ObjectVersion>,
    /// Whether older versions exist beyond the requested limit.
    pub truncated: bool,
}

/// A version of an object, with the object's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedVersion {
    /// The key of the object.
    pub key: String,
    /// The version.
    pub version: ObjectVersion,
}

/// The versions of all objects below a prefix, ordered by key, newest first within a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyedVersionList {
    /// The versions.
    pub versions: Vec<KeyedVersion>,
    /// Whether more versions exist beyond the requested limit.
    pub truncated: bool,
}

/// Whether a bucket keeps overwritten objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versioning {
    /// Never enabled: an overwrite removes the old bytes.
    Off,
    /// Every overwrite and delete keeps the old version.
    On,
    /// Disabled after having been enabled: old versions stay, new ones are not kept.
    Suspended,
}

/// A rule for requests to the bucket from a browser.
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
    /// How long a browser may cache the preflight response, in seconds.
    pub max_age_seconds: u32,
}

/// A rule for automatic removal of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleRule {
    /// An id that is unique in the bucket. qo's own rules start with `qo-`.
    pub id: String,
    /// The key prefix that it applies to.
    pub prefix: String,
    /// Remove objects this many days after they were written.
    pub expire_days: Option<u32>,
    /// Remove noncurrent versions this many days after they were replaced.
    pub expire_noncurrent_days: Option<u32>,
    /// Remove delete markers that no longer hide a version.
    pub expire_delete_markers: bool,
    /// Abort multipart uploads that are unfinished after this many days.
    pub abort_multipart_days: Option<u32>,
}

/// The error of a store without settings.
pub(crate) fn no_settings<T>(operation: &'static str) -> Result<T, StoreError> {
    Err(StoreError::Unsupported {
        operation,
        detail: "this store has no settings".to_owned(),
    })
}

/// Versions, versioning, CORS and lifecycle rules of one bucket. By default there are no CORS and lifecycle rules.
///
/// Keys are relative to the prefix in the store's URL, as they are for objects.
#[async_trait]
pub trait BucketAdmin: Debug + Send + Sync + 'static {
    /// The newest `limit` versions of one object, newest first. An unknown key has no versions.
    async fn list_versions(&self, key: &str, limit: usize) -> Result<VersionList, StoreError>;

    /// Up to `limit` versions of the objects whose keys start with `prefix`, ordered by key, newest first within a
    /// key. It also finds objects that have only versions behind a delete marker.
    async fn list_versions_below(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<KeyedVersionList, StoreError>;

    /// The bytes of one version.
    async fn get_version(&self, key: &str, version: &str) -> Result<Bytes, StoreError>;

    /// Removes one version permanently. Succeeds if the version does not exist.
    async fn delete_version(&self, key: &str, version: &str) -> Result<(), StoreError>;

    /// Whether the bucket keeps versions.
    async fn versioning(&self) -> Result<Versioning, StoreError>;

    /// Enables or disables versioning. S3 stores `Off` as `Suspended` if versioning was ever enabled.
    async fn set_versioning(&self, versioning: Versioning) -> Result<(), StoreError>;

    /// The CORS rules; empty if none are set.
    async fn cors(&self) -> Result<Vec<CorsRule>, StoreError> {
        no_settings("reading CORS rules")
    }

    /// Replaces all CORS rules. An empty list removes them.
    async fn set_cors(&self, _rules: &[CorsRule]) -> Result<(), StoreError> {
        no_settings("setting CORS rules")
    }

    /// The lifecycle rules; empty if none are set.
    async fn lifecycle(&self) -> Result<Vec<LifecycleRule>, StoreError> {
        no_settings("reading lifecycle rules")
    }

    /// Replaces all lifecycle rules. An empty list removes them.
    async fn set_lifecycle(&self, _rules: &[LifecycleRule]) -> Result<(), StoreError> {
        no_settings("setting lifecycle rules")
    }

    /// The bucket's location for a browser, or `None` if browsers cannot access this kind of store.
    fn browser_location(&self) -> Option<BucketLocation> {
        None
    }

    /// The credentials that sign requests.
    async fn own_credentials(&self) -> Result<BrowserCredentials, StoreError> {
        Err(browsers_unsupported("exporting credentials"))
    }

    /// Creates credentials that expire and have only the requested permissions, if the store supports it.
    async fn browser_session(
        &self,
        _request: &SessionRequest,
    ) -> Result<BrowserCredentials, StoreError> {
        Err(browsers_unsupported("creating a browser session"))
    }

    /// Makes all objects below `folder` publicly readable. Returns whether that required a change.
    async fn publish(&self, _folder: &str) -> Result<bool, StoreError> {
        Err(browsers_unsupported("publishing a folder"))
    }
}

fn browsers_unsupported(operation: &'static str) -> StoreError {
    StoreError::Unsupported {
        operation,
        detail: "browsers cannot access this kind of store directly".to_owned(),
    }
}
